//! `why`, `wait`, `tail`, `stats` and `top`.

use std::time::{Duration, Instant};

use serde_json::Value;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The reasons, as `why` prints them and by their names.
fn why(sandbox: &Sandbox, id: &str) -> (String, Vec<String>) {
    let names = json(&sandbox.ok(&["why", id, "--json"]))["reasons"]
        .as_array()
        .expect("reasons")
        .iter()
        .map(|reason| reason["reason"].as_str().expect("a name").to_owned())
        .collect();
    (sandbox.ok(&["why", id]), names)
}

/// Each reason that can be brought about from outside.
fn tells_why(sandbox: &Sandbox) {
    let long = r#"{"waiting_time": 600}"#;
    let words = |id: &str, expected: &[&str], text: &str| {
        let (said, names) = why(sandbox, id);
        assert_eq!(names, expected, "{said}");
        assert!(said.contains(text), "{text}: {said}");
    };
    sandbox.ok(&["migrate"]);
    let missing = sandbox.run(&["why", "1"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(3), ""));
    assert!(missing.err.contains("there is no task 1"), "{}", missing.err);

    sandbox.ok(&["create", "WaitingTask", long]);
    words("1", &["no_engine"], "none has ever run");
    let args = ["start", "--workers", "1", "--instance", "e", "--queue", "default", "--queue", "b"];
    let engine = sandbox.start(&args);
    wait_until("it runs", || sandbox.status("1") == "running");
    words("1", &["running"], "it runs on e: attempt 1, ");
    words("1", &["running"], "the last heartbeat of its engine was");

    sandbox.ok(&["create", "WaitingTask", long, "--after", "10m"]);
    words("2", &["not_due"], "(in 10 min)");
    sandbox.ok(&["create", "Nobodys"]);
    words(
        "3",
        &["unknown_class"],
        "no live engine has a handler for its class Nobodys; alive: e handles ",
    );
    sandbox.ok(&["create", "WaitingTask", long, "--queue", "c"]);
    words("4", &["queue_not_served"], "serves its queue c; e serves ");
    sandbox.ok(&["create", "WaitingTask", long]);
    words("5", &["workers_busy"], "the one worker that could take it is busy");
    sandbox.ok(&["create", "WaitingTask", long]);
    words("6", &["workers_busy", "behind"], "1 task is ahead of it");
    sandbox.ok(&["create", "WaitingTask", long, "--queue", "b", "--after", "10m"]);
    sandbox.ok(&["queues", "pause", "b", "--reason", "provider is down"]);
    words("7", &["not_due", "queue_paused"], "b was paused");
    words("7", &["not_due", "queue_paused"], "provider is down");

    sandbox.ok(&["cancel", "5", "6"]);
    words("5", &["ended"], "it has ended cancelled");
    // Its worker is free after that, and takes one that fails.
    sandbox.ok(&["cancel", "1", "--wait"]);
    sandbox.ok(&["create", "FailingTask"]);
    wait_until("it failed", || sandbox.task("8")["retry_number"] == 1);
    words("8", &["retry"], "it waits for retry 1 of 10: ");
    words("8", &["retry"], ", after ");
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    wait_until("it failed", || sandbox.status("9") == "failed");
    words("9", &["ended"], "it has ended failed");
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    wait_until("it ran", || sandbox.status("10") == "stopped");
    words("10", &["ended"], "it has succeeded");

    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    words("2", &["not_due", "no_engine"], "no engine is alive; the last heartbeat was");
}

#[test]
fn why_on_sqlite() {
    tells_why(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn why_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    tells_why(&sandbox_on(&url));
}

/// A transaction that holds a task is named, with its process and its client.
#[tokio::test(flavor = "multi_thread")]
async fn why_names_blocking_session() {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    let (client, connection) = task_engine::postgres::tokio_postgres::connect(
        &url,
        task_engine::postgres::tokio_postgres::NoTls,
    )
    .await
    .expect("a connection");
    tokio::spawn(connection);
    sandbox.ok(&["migrate"]);
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    // Locked before its time has come.
    let lock = "SET application_name = 'an application';
        BEGIN; SELECT task_engine.create_task(
            'WaitingTask', '{\"waiting_time\": 0}', after => '1 second'); COMMIT;
        BEGIN; SELECT FROM task_engine.waiting_tasks FOR UPDATE";
    client.batch_execute(lock).await.expect("a lock");
    let pid = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid");
    let pid: i32 = pid.get(0);
    wait_until("it is due", || why(&sandbox, "1").1 == ["locked"]);
    let (said, _) = why(&sandbox, "1");
    for words in
        [format!("process {pid} (postgres, an application)"), "idle in transaction".to_owned()]
    {
        assert!(said.contains(&words), "{words}: {said}");
    }
    client.batch_execute("ROLLBACK").await.expect("rollback");
    wait_until("it runs", || sandbox.status("1") == "stopped");
}

fn waits(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    let missing = sandbox.run(&["wait", "1"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(3), ""), "{missing:?}");

    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let begun = Instant::now();
    let late = sandbox.run(&["wait", "1", "--timeout", "200ms"]);
    assert_eq!((late.code, late.out.as_str()), (Some(8), ""), "{late:?}");
    assert!(late.err.contains("1 task of 1 had not ended after"), "{}", late.err);
    assert!(
        late.err.contains("\n  task 1: no engine is alive, and none has ever run"),
        "{}",
        late.err
    );
    let quiet = sandbox.run(&["wait", "1", "--timeout", "0s", "--quiet"]);
    assert!(quiet.code == Some(8) && !quiet.err.contains("task 1:"), "{quiet:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200));

    let waiting = sandbox.start(&["wait", "1"]);
    let engine = sandbox.start(&["start"]);
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = json(&ended.out);
    assert_eq!((&line["id"], &line["status"]), (&1.into(), &"stopped".into()));
    assert!(line.get("result").is_some() && line["error"].is_null(), "{line}");
    let quiet = sandbox.run(&["wait", "1", "--quiet"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(0), ""));

    sandbox.ok(&["create", "FailingNotRetryTask"]);
    let failed = sandbox.run(&["wait", "1", "2"]);
    assert_eq!(failed.code, Some(10), "{failed:?}");
    assert!(failed.err.contains("1 task of 2 failed or was cancelled"), "{}", failed.err);
    let lines: Vec<_> = failed.out.lines().map(json).collect();
    assert_eq!(lines.len(), 2, "each once");
    let line = lines.iter().find(|line| line["id"] == 2).expect("the one that failed");
    assert_eq!(line["status"], "failed");
    assert!(line["error"]["message"].is_string(), "{line}");

    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 600}"#]);
    let any = sandbox.run(&["wait", "3", "1", "2", "--any"]);
    assert_eq!((any.code, any.out.lines().count()), (Some(0), 1), "{any:?}");
    assert_eq!(sandbox.run(&["wait", "2", "1", "--any"]).code, Some(10), "the first decides");
    let waiting = sandbox.start(&["wait", "3"]);
    sandbox.ok(&["cancel", "3"]);
    assert_eq!(waiting.end().code, Some(10), "a cancelled task did not do its work");

    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 600}"#]);
    let waiting = sandbox.start(&["wait", "4"]);
    wait_until("it runs", || sandbox.status("4") == "running");
    waiting.signal("INT");
    assert_eq!(waiting.end().code, None, "Ctrl-C ends it, and nothing else");
    assert_eq!(sandbox.status("4"), "running");
    sandbox.ok(&["cancel", "4", "--wait"]);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn wait_on_sqlite() {
    waits(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    waits(&sandbox_on(&url));
}

fn follows(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    // One that waited before, one that ran before, and later new ones.
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--after", "3s"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 2}"#]);
    let engine = sandbox.start(&["start", "--instance", "e"]);
    wait_until("it runs", || sandbox.status("2") == "running");
    let lines = sandbox.start(&["tail"]);
    let documents = sandbox.start(&["tail", "--jsonl", "--starts"]);
    let failures = sandbox.start(&["tail", "--failed", "--jsonl"]);
    let others = sandbox.start(&["tail", "--class", "FailingTask", "--jsonl"]);
    for tail in [&lines, &documents, &failures, &others] {
        tail.wait_for_log("Following attempts on");
    }
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "FailingTask"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 1.5}"#]);
    let ended = |out: &str| -> Vec<i64> {
        let lines = out.lines().map(json).filter(|line| line["event"] == "ended");
        let mut ids: Vec<_> = lines.map(|line| line["task_id"].as_i64().expect("an id")).collect();
        ids.sort_unstable();
        ids
    };
    wait_until("all are printed", || ended(&documents.out()) == [1, 2, 3, 4, 5]);
    wait_until("failures are printed", || ended(&failures.out()) == [3, 4]);
    wait_until("one class is printed", || ended(&others.out()) == [4]);
    let started = documents.out();
    let started = started.lines().map(json).find(|line| line["event"] == "started");
    assert!(started.is_some(), "what runs for a while is seen to begin");
    wait_until("lines are printed", || lines.out().lines().count() == 5);
    let lines = lines.out();
    for words in [
        "  2  WaitingTask  stopped after ",
        " on e",
        "  3  FailingNotRetryTask  failed",
        "retried in 1 min",
    ] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
    let ends = sandbox.ok(&["tail", "--for", "100ms"]);
    assert_eq!(ends, "", "what ended before is history");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn tail_on_sqlite() {
    follows(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    follows(&sandbox_on(&url));
}

fn counts(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    let empty = sandbox.ok(&["stats"]);
    assert!(empty.contains("waiting 0 due, 0 later; running 0; failed 0"), "{empty}");
    assert!(empty.contains("No engine is alive."), "{empty}");
    for _ in 0..3 {
        sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    }
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    sandbox.ok(&["create", "Nobodys", "--queue", "evil\u{202e}"]);
    let engine = sandbox.start(&["start", "--instance", "e", "--workers", "3"]);
    sandbox.ok(&["wait", "1", "2", "3"]);
    assert_eq!(sandbox.run(&["wait", "4"]).code, Some(10));
    sandbox.ok(&["create", "ReportingTask", r#"{"steps": 1000, "step_time": 0.1}"#]);
    wait_until("it says how far it is", || sandbox.ok(&["top"]).contains(" %"));

    let mut stats = Value::Null;
    wait_until("engines have reported", || {
        stats = json(&sandbox.ok(&["stats", "--json"]));
        stats["last_hour"]["ended"] == 4
    });
    for (name, expected) in [("due", 1), ("later", 1), ("failed", 1), ("cancelled", 0)] {
        assert_eq!(stats[name]["counted"], expected, "{name}: {stats}");
    }
    assert_eq!((&stats["running"], &stats["newest_task"]), (&1.into(), &7.into()), "{stats}");
    let hour = &stats["last_hour"];
    assert_eq!((&hour["ended"], &hour["failed"]), (&4.into(), &1.into()), "{hour}");
    assert_eq!(stats["last_minute"]["ended"], 4);
    let classes = hour["classes"].as_array().expect("classes");
    assert_eq!(classes[0]["class"], "WaitingTask");
    assert_eq!((&classes[0]["ended"], &classes[0]["failed"]), (&3.into(), &0.into()));
    assert!(classes[0]["run_secs_p95"].as_f64().is_some_and(|secs| secs < 5.0), "{hour}");
    assert!(classes[1]["last_error"].is_string(), "{hour}");
    let engines = &stats["engines"][0];
    assert_eq!((&engines["instance"], &engines["workers"]), (&"e".into(), &3.into()));
    assert_eq!(engines["busy"], 1);
    let queues = stats["queues"].as_array().expect("queues");
    let queue = queues.iter().find(|queue| queue["name"] == "evil\u{202e}").expect("a queue");
    assert!(queue["oldest_due_secs"].as_f64().is_some_and(|secs| secs > 0.0), "{queue}");
    let default = queues.iter().find(|queue| queue["name"] == "default").expect("a queue");
    assert!(default["oldest_due_secs"].is_null(), "only one for later: {default}");

    for command in ["stats", "top"] {
        let shown = sandbox.ok(&[command]);
        for words in ["failed 1", "WaitingTask", r"evil\u{202e}", "RUNNING"] {
            assert!(shown.contains(words), "{command}: {words}: {shown}");
        }
        assert!(!shown.contains(['\u{202e}', '\u{1b}']), "{command}: {shown}");
    }
    let top = sandbox.ok(&["top"]);
    assert!(top.contains("1 of 3 workers busy"), "{top}");
    sandbox.ok(&["cancel", "7", "--wait"]);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn stats_on_sqlite() {
    counts(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    counts(&sandbox_on(&url));
}

/// On a terminal it fills the screen, and gives the terminal back as it was.
#[test]
fn top_restores_terminal() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    let script =
        r#"stty rows 20 cols 60; stty -a >before; "$0" top; echo "code $?"; stty -a >after"#;
    for end in ["q", "signal"] {
        let program = env!("CARGO_BIN_EXE_task-engine");
        let inner = format!("sh -c '{script}' {program}");
        let keys = std::process::Stdio::piped();
        let mut child = std::process::Command::new("script")
            .args(["-qfec", &inner, "typescript"])
            .current_dir(sandbox.path(""))
            .env_remove("TASK_ENGINE_DATABASE_URL")
            .stdin(keys)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("script runs");
        let mut keys = child.stdin.take().expect("a terminal");
        let screen = || std::fs::read(sandbox.path("typescript")).unwrap_or_default();
        let shows = |words: &str| String::from_utf8_lossy(&screen()).contains(words);
        wait_until("it shows something", || shows("waiting 0 due, 1 later"));
        use std::io::Write;
        keys.write_all(b"p").expect("a key");
        wait_until("it is paused", || shows("paused; p resumes"));
        if end == "q" {
            keys.write_all(b"q").expect("a key");
        } else {
            let top = || {
                let found = std::process::Command::new("pgrep")
                    .args(["-f", &format!("^{program} top$")])
                    .output()
                    .expect("pgrep runs");
                let text = String::from_utf8(found.stdout).expect("text");
                let mine = text.lines().filter(|pid| {
                    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
                    folder == std::fs::canonicalize(sandbox.path("")).ok()
                });
                mine.map(str::to_owned).collect::<Vec<_>>()
            };
            let pids = top();
            assert_eq!(pids.len(), 1, "the one in this folder");
            let sent = std::process::Command::new("kill").arg(&pids[0]).status();
            assert!(sent.expect("kill runs").success());
        }
        wait_until("it has ended", || shows("code 0"));
        assert!(child.wait().expect("an end").success());
        let read = |name: &str| std::fs::read_to_string(sandbox.path(name)).expect("settings");
        assert_eq!(read("before"), read("after"), "{end}");
        let screen = String::from_utf8_lossy(&screen()).into_owned();
        assert!(screen.contains("\u{1b}[?1049l") && screen.contains("\u{1b}[?25h"), "{end}");
        std::fs::remove_file(sandbox.path("typescript")).expect("a file");
    }
}

#[test]
fn wrong_inputs_are_explained() {
    let sandbox = sandbox();
    let none = sandbox.run(&["stats"]);
    assert_eq!(none.code, Some(3), "no database yet: {none:?}");
    sandbox.ok(&["migrate"]);
    for (args, words) in [
        (&["why"][..], "ID"),
        (&["why", "x"], "invalid value 'x'"),
        (&["why", "-1"], "-1"),
        (&["wait"], "ID"),
        (&["wait", "1", "--all", "--any"], "cannot be used with"),
        (&["wait", "1", "--timeout", "soon"], "--timeout"),
        (&["tail", "--for", "x"], "--for"),
        (&["tail", "--failed", "--starts"], "cannot be used with"),
        (&["top", "--every", "0"], "--every"),
    ] {
        let finished = sandbox.run(args);
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{args:?}: {finished:?}");
        assert!(finished.err.contains(words), "{args:?}: {}", finished.err);
    }
}
