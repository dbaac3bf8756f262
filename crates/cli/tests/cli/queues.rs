//! Queues: listed, paused and resumed from outside.

use std::time::{Duration, Instant};

use serde_json::Value;
use task_engine_conformance::postgres_server::TestServer;

use super::support::{Place, eventually};

fn queues(place: &Place) -> Vec<Value> {
    let lines = place.ok(&["queues", "list", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn queue(place: &Place, name: &str) -> Value {
    let found = queues(place).into_iter().find(|queue| queue["name"] == name);
    found.expect("the queue is listed")
}

fn pauses_and_resumes(place: &Place) {
    let quick = r#"{"waiting_time": 0}"#;
    place.ok(&["migrate"]);
    let nothing = place.run(&["queues", "list"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("no engine serves a queue"), "{}", nothing.err);

    let unknown = place.run(&["queues", "pause", "mail", "--reason", "provider is down"]);
    assert_eq!(unknown.code, Some(0));
    assert_eq!(unknown.out, "queue mail is paused; its running tasks finish\n");
    for words in ["for what may come", "queues resume mail"] {
        assert!(unknown.err.contains(words), "{words}: {}", unknown.err);
    }
    let created = place.run(&["create", "WaitingTask", quick, "--queue", "mail"]);
    for words in ["Its queue mail was paused", "provider is down", "queues resume mail"] {
        assert!(created.err.contains(words), "{words}: {}", created.err);
    }
    place.ok(&["create", "WaitingTask", quick, "--queue", "mail", "--in", "1h"]);
    let engine = place.start(&["start", "--queue", "mail=3", "--queue", "default=2"]);
    engine.says("started with 5 workers (3 for mail; 2 for default)");
    place.ok(&["create", "WaitingTask", quick]);
    eventually("another queue goes on", || place.status("3") == "stopped");
    assert_eq!(place.status("1"), "waiting");

    let shown = place.ok(&["show", "1"]);
    assert!(shown.contains("because its queue mail was paused"), "{shown}");
    assert!(shown.contains(": provider is down"), "{shown}");
    let listed = place.ok(&["queues", "list"]);
    let mail = listed.lines().find(|line| line.starts_with("mail ")).expect("mail is listed");
    for words in ["paused", "provider is down", " 3 "] {
        assert!(mail.contains(words), "{words}: {listed}");
    }
    let mail = queue(place, "mail");
    assert_eq!(mail["due"], serde_json::json!({"counted": 1, "and_more": false}));
    assert_eq!(mail["later"]["counted"], 1);
    assert_eq!(mail["paused"]["reason"], "provider is down");
    assert_eq!((&mail["served_by"][0]["workers"], &mail["running"]), (&3.into(), &0.into()));
    assert_eq!(queue(place, "default")["paused"], Value::Null);

    let again = place.ok(&["queues", "pause", "mail", "--reason", "still down"]);
    assert_eq!(again, "queue mail was paused before; it has a new reason\n");
    assert_eq!(queue(place, "mail")["paused"]["reason"], "still down");

    let begun = Instant::now();
    assert_eq!(place.ok(&["queues", "resume", "mail"]), "queue mail is resumed\n");
    eventually("it runs", || place.status("1") == "stopped");
    assert!(begun.elapsed() < Duration::from_secs(5), "not only by the poll");
    let open = place.run(&["queues", "resume", "mail"]);
    assert_eq!((open.code, open.out.as_str()), (Some(0), ""));
    assert!(open.err.contains("queue mail was not paused"), "{}", open.err);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn queues_on_sqlite() {
    pauses_and_resumes(&Place::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    pauses_and_resumes(&Place::with_database(&url));
}

#[test]
fn instances_show_served_queues() {
    let place = Place::new();
    let pools = ["start", "--instance", "e", "--queue", "a", "--queue", "b", "--queue", "mail=3"];
    let engine = place.start(&[&pools[..], &["--workers", "2", "--reserve", "-7=1"]].concat());
    engine.says("started with 6 workers (2 for a, b; 3 for mail; 1 from priority -7 up)");
    let listed = place.ok(&["instances"]);
    assert!(listed.contains("a,b=2 mail=3 -7+=1"), "{listed}");
    let listed = place.ok(&["queues", "list"]);
    assert!(
        listed.lines().any(|line| line.starts_with("mail") && line.contains("3+1 e")),
        "{listed}"
    );
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    assert!(!place.ok(&["queues", "list"]).contains("mail"), "no engine serves it now");
}

#[test]
fn own_workers_keep_default_queue() {
    let place = Place::new();
    let engine = place.start(&["start", "--queue", "a=b=1"]);
    engine.says("started with 6 workers (5 for default; 1 for a=b)");
    let quick = r#"{"waiting_time": 0}"#;
    place.ok(&["create", "WaitingTask", quick]);
    place.ok(&["create", "WaitingTask", quick, "--queue", "a=b"]);
    for id in ["1", "2"] {
        eventually("it ran", || place.status(id) == "stopped");
    }
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    let engine = place.start(&["start", "--workers", "0", "--queue", "a=1"]);
    engine.says("This engine does not serve queue \"default\" (of class ");
    engine.says("started with 1 workers (1 for a)");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn hostile_queue_names_are_escaped() {
    let place = Place::new();
    place.ok(&["migrate"]);
    place.ok(&["queues", "pause", "evil\u{202e}", "--reason", "because\u{202e} I can"]);
    for args in [
        &["queues", "list"][..],
        &["create", "a", "--queue", "evil\u{202e}"],
        &["show", "1"],
        &["why", "1"],
    ] {
        let finished = place.run(args);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(!finished.out.contains('\u{202e}'), "{args:?}: {:?}", finished.out);
        assert!(!finished.err.contains('\u{202e}'), "{args:?}: {:?}", finished.err);
    }
}
