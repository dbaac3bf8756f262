//! Queues: listed, paused and resumed from outside.

use std::time::{Duration, Instant};

use serde_json::Value;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

fn queues(sandbox: &Sandbox) -> Vec<Value> {
    let lines = sandbox.ok(&["queues", "list", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn queue(sandbox: &Sandbox, name: &str) -> Value {
    let found = queues(sandbox).into_iter().find(|queue| queue["name"] == name);
    found.expect("the queue is listed")
}

fn pauses_and_resumes(sandbox: &Sandbox) {
    let quick = r#"{"waiting_time": 0}"#;
    sandbox.ok(&["migrate"]);
    let nothing = sandbox.run(&["queues", "list"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("no engine serves a queue"), "{}", nothing.err);

    let unknown = sandbox.run(&["queues", "pause", "mail", "--reason", "provider is down"]);
    assert_eq!(unknown.code, Some(0));
    assert_eq!(unknown.out, "queue mail was paused; its running tasks finish\n");
    for words in ["the pause applies to future tasks", "queues resume mail"] {
        assert!(unknown.err.contains(words), "{words}: {}", unknown.err);
    }
    let created = sandbox.run(&["create", "WaitingTask", quick, "--queue", "mail"]);
    for words in ["Its queue mail was paused", "provider is down", "queues resume mail"] {
        assert!(created.err.contains(words), "{words}: {}", created.err);
    }
    sandbox.ok(&["create", "WaitingTask", quick, "--queue", "mail", "--after", "1h"]);
    let engine = sandbox.start(&["start", "--queue", "mail=3", "--queue", "default=2"]);
    engine.wait_for_log("started with 5 workers (3 for mail; 2 for default)");
    sandbox.ok(&["create", "WaitingTask", quick]);
    wait_until("another queue goes on", || sandbox.status("3") == "stopped");
    assert_eq!(sandbox.status("1"), "waiting");

    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("because its queue mail was paused"), "{shown}");
    assert!(shown.contains(": provider is down"), "{shown}");
    let listed = sandbox.ok(&["queues", "list"]);
    let mail = listed.lines().find(|line| line.starts_with("mail ")).expect("mail is listed");
    for words in ["paused", "provider is down", " 3 "] {
        assert!(mail.contains(words), "{words}: {listed}");
    }
    let mail = queue(sandbox, "mail");
    assert_eq!(mail["due"], serde_json::json!({"counted": 1, "and_more": false}));
    assert_eq!(mail["later"]["counted"], 1);
    assert_eq!(mail["paused"]["reason"], "provider is down");
    assert_eq!((&mail["served_by"][0]["workers"], &mail["running"]), (&3.into(), &0.into()));
    assert_eq!(queue(sandbox, "default")["paused"], Value::Null);

    let again = sandbox.ok(&["queues", "pause", "mail", "--reason", "still down"]);
    assert_eq!(again, "queue mail was paused before; it has a new reason\n");
    assert_eq!(queue(sandbox, "mail")["paused"]["reason"], "still down");

    let begun = Instant::now();
    assert_eq!(sandbox.ok(&["queues", "resume", "mail"]), "queue mail was resumed\n");
    wait_until("it runs", || sandbox.status("1") == "stopped");
    assert!(begun.elapsed() < Duration::from_secs(5), "not only by the poll");
    let open = sandbox.run(&["queues", "resume", "mail"]);
    assert_eq!((open.code, open.out.as_str()), (Some(0), ""));
    assert!(open.err.contains("queue mail was not paused"), "{}", open.err);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn queues_on_sqlite() {
    pauses_and_resumes(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    pauses_and_resumes(&sandbox_on(&url));
}

#[test]
fn instances_show_served_queues() {
    let sandbox = sandbox();
    let pools = ["start", "--instance", "e", "--queue", "a", "--queue", "b", "--queue", "mail=3"];
    let engine = sandbox.start(&[&pools[..], &["--workers", "2", "--reserve", "-7=1"]].concat());
    engine.wait_for_log("started with 6 workers (2 for a, b; 3 for mail; 1 from priority -7 up)");
    let listed = sandbox.ok(&["instances"]);
    assert!(listed.contains("a,b=2 mail=3 -7+=1"), "{listed}");
    let listed = sandbox.ok(&["queues", "list"]);
    assert!(
        listed.lines().any(|line| line.starts_with("mail") && line.contains("3+1 e")),
        "{listed}"
    );
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    assert!(!sandbox.ok(&["queues", "list"]).contains("mail"), "no engine serves it now");
}

#[test]
fn own_workers_keep_default_queue() {
    let sandbox = sandbox();
    let engine = sandbox.start(&["start", "--queue", "a=b=1"]);
    engine.wait_for_log("started with 6 workers (5 for default; 1 for a=b)");
    let quick = r#"{"waiting_time": 0}"#;
    sandbox.ok(&["create", "WaitingTask", quick]);
    sandbox.ok(&["create", "WaitingTask", quick, "--queue", "a=b"]);
    for id in ["1", "2"] {
        wait_until("it ran", || sandbox.status(id) == "stopped");
    }
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    let engine = sandbox.start(&["start", "--workers", "0", "--queue", "a=1"]);
    engine.wait_for_log("This engine does not serve queue \"default\" (of class ");
    engine.wait_for_log("started with 1 workers (1 for a)");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn hostile_queue_names_are_escaped() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["queues", "pause", "evil\u{202e}", "--reason", "because\u{202e} I can"]);
    for args in [
        &["queues", "list"][..],
        &["create", "a", "--queue", "evil\u{202e}"],
        &["show", "1"],
        &["why", "1"],
    ] {
        let finished = sandbox.run(args);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(!finished.out.contains('\u{202e}'), "{args:?}: {:?}", finished.out);
        assert!(!finished.err.contains('\u{202e}'), "{args:?}: {:?}", finished.err);
    }
}
