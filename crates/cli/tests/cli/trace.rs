//! `trace`: the tree of a flow, as text and as JSON.

use serde_json::Value;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Json, NewTask, Store, TaskId};
use task_engine_core::flow::Origin;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// A task, as one that the parent has created.
fn child_of(parent: &str, correlation_id: &str, class: &str, parameters: &str) -> NewTask {
    let task = NewTask::new(class, Json::parse(parameters).unwrap()).unwrap();
    let parent: TaskId = parent.trim().parse().unwrap();
    let context = Json::parse(format!(r#"{{"correlation_id": {correlation_id:?}}}"#)).unwrap();
    Origin::of(parent, &context).for_children_of(parent).stamp(task)
}

fn create(store: &dyn Store, tasks: &[NewTask]) -> Vec<TaskId> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.create(tasks)).unwrap()
}

/// A flow of three generations, where the last child fails twice.
fn tells_the_story(sandbox: &Sandbox, store: &dyn Store) {
    sandbox.ok(&["create", "unrelated", "--count", "3"]);
    let quick = r#"{"waiting_time": 0.05}"#;
    let first = sandbox.ok(&["create", "WaitingTask", quick, "--correlation", "order-17"]);
    let second = create(store, &[child_of(&first, "order-17", "WaitingTask", quick)]);
    let second = second[0].to_string();
    create(
        store,
        &[
            child_of(&first, "order-17", "FailingNotRetryTask", "{}"),
            child_of(&second, "order-17", "WitnessTask", r#"{"ms": 1, "fail": true}"#),
            child_of(&second, "order-17", "stranger", "{}"),
        ],
    );
    sandbox.witness();
    let engine = sandbox.start(&["start", "--instance", "web-1", "--config", "witness.toml"]);
    wait_until("the first is done", || sandbox.status(first.trim()) == "stopped");
    wait_until("the second is done", || sandbox.status(&second) == "stopped");
    wait_until("the third has failed", || sandbox.status("6") == "failed");
    wait_until("the fourth is retried", || sandbox.task("7")["retry_number"].as_i64() >= Some(2));
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));

    let shown = sandbox.ok(&["trace", "order-17"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("Flow order-17: 5 tasks (2 waiting, 2 stopped, 1 failed)"),
        "{shown}"
    );
    assert!(lines[1].starts_with("4 WaitingTask stopped, waited "), "{shown}");
    assert!(lines[1].contains(", ran ") && lines[1].contains(" on web-1"), "{shown}");
    assert!(lines[2].starts_with("├─ 5 WaitingTask stopped, waited "), "{shown}");
    assert!(lines[3].starts_with("│  ├─ 7 WitnessTask waiting, due "), "{shown}");
    assert!(lines[4].starts_with("│  │     attempt 1: failure, waited "), "{shown}");
    assert!(lines[4].ends_with(": ExitCode3: exit code 3: failed as asked"), "{shown}");
    assert!(lines[5].contains("attempt 2: failure, waited "), "{shown}");
    let rest = shown.lines().filter(|line| !line.contains("attempt ")).skip(4).collect::<Vec<_>>();
    assert!(rest[0].starts_with("│  └─ 8 stranger waiting, due "), "{shown}");
    assert!(rest[1].starts_with("└─ 6 FailingNotRetryTask failed, waited "), "{shown}");
    assert!(rest[1].ends_with(" on web-1: ZeroDivisionError: divided by 0"), "{shown}");
    assert_eq!(rest.len(), 2);

    // Any of its tasks names the flow, and is marked.
    let marked = sandbox.ok(&["trace", &second]);
    assert_eq!(marked.lines().filter(|line| line.ends_with("  <")).count(), 1);
    assert!(marked.lines().nth(2).unwrap().ends_with("  <"), "{marked}");

    let json: Value = serde_json::from_str(&sandbox.ok(&["trace", "6", "--json"])).unwrap();
    assert_eq!((&json["correlation_id"], &json["complete"]), (&"order-17".into(), &true.into()));
    let tasks = json["tasks"].as_array().unwrap();
    let place_of = |task: &Value| (task["id"].as_i64(), task["depth"].as_i64());
    let order: Vec<_> = tasks.iter().map(place_of).collect();
    let expected = [(4, 0), (5, 1), (7, 2), (8, 2), (6, 1)].map(|(id, at)| (Some(id), Some(at)));
    assert_eq!(order, expected);
    assert_eq!(tasks[1]["parent_id"], 4);
    assert_eq!(tasks[4]["executions"][0]["error"]["exception"], "ZeroDivisionError");
    assert!(tasks[0]["waited_ms"][0].as_f64().unwrap() >= 0.0);
    assert!(tasks[0]["ran_ms"][0].as_f64().unwrap() >= 50.0);

    let cut = sandbox.run(&["trace", "order-17", "--limit", "2"]);
    assert_eq!((cut.code, cut.out.lines().count()), (Some(0), 3), "{cut:?}");
    assert!(cut.err.contains("Only the oldest 2 tasks"), "{}", cut.err);
    assert!(cut.err.contains("trace order-17 --limit 20"), "{}", cut.err);
    let cut = sandbox.run(&["trace", "8", "--limit", "2", "--json"]);
    assert!(cut.out.contains(r#""complete":false"#), "{}", cut.out);
    assert!(cut.err.contains("Task 8 is not among them"), "{}", cut.err);

    let task = sandbox.ok(&["show", "7"]);
    assert!(task.contains("flow        order-17, created by task 5"), "{task}");
    assert!(sandbox.ok(&["show", "1"]).contains("flow        its own"));
    assert_eq!(sandbox.task("1")["correlation_id"], "1");
    assert_eq!(sandbox.task("7")["parent_id"], 5);
}

#[test]
fn trace_prints_flow_on_sqlite() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let store = SqliteStore::open(sandbox.path("task-engine.db")).unwrap();
    tells_the_story(&sandbox, &store);
}

#[test]
fn trace_prints_flow_on_postgresql() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let store = runtime.block_on(PgStore::connect(&url)).unwrap();
    tells_the_story(&sandbox, &store);
}

#[test]
fn number_is_task_or_flow() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--correlation", "2"]);
    sandbox.ok(&["create", "b", "--correlation", "other"]);
    sandbox.ok(&["create", "c"]);
    let flow_of = |args: &[&str]| sandbox.ok(args).lines().next().unwrap().to_owned();
    assert_eq!(flow_of(&["trace", "2"]), "Flow other: 1 task (1 waiting)");
    assert_eq!(flow_of(&["trace", "2", "--correlation"]), "Flow 2: 1 task (1 waiting)");
    assert_eq!(flow_of(&["trace", "3"]), "Flow 3: 1 task (1 waiting)");
    sandbox.ok(&["cancel", "3"]);
    let over = flow_of(&["trace", "3"]);
    assert!(
        over.starts_with("Flow 3: 1 task (1 cancelled); ") && over.contains("to the last"),
        "{over}"
    );
}

#[test]
fn large_flow_is_bounded_and_escaped() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let store = SqliteStore::open(sandbox.path("task-engine.db")).unwrap();
    let name = "\u{202e}flow\u{1b}[2J";
    let evil = NewTask::new("evil\u{202e}", Json::empty_object()).unwrap();
    let mut evil = vec![evil; 5000];
    for task in &mut evil {
        // As SQL could have it: the builder refuses control characters.
        let context = serde_json::json!({ "correlation_id": name, "parent_id": 1 });
        task.context = Json::encode(&context).unwrap();
    }
    create(&store, &evil);
    let shown = sandbox.run(&["trace", "2"]);
    assert_eq!(shown.out.lines().count(), 1 + 1000);
    assert!(shown.err.contains("Only the oldest 1000 tasks"), "{}", shown.err);
    let hostile = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!shown.out.contains(hostile) && !shown.err.contains(hostile));
    let all = sandbox.run(&["trace", "2", "--limit", "5000"]);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (1 + 5000, ""));
}

#[test]
fn slow_executions_are_warned_about() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0.3}"#]);
    let engine = sandbox.start(&["start", "-v", "--warn-after", "50ms"]);
    engine.wait_for_log("task 1 of class WaitingTask is over its budget of 50ms");
    engine.wait_for_log("finished task 1 in ");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

/// The library's tests check the spans; this one checks that the collector gets them.
#[cfg(feature = "otlp")]
#[test]
fn spans_go_to_configured_collector() {
    use std::io::{Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        let mut some = [0; 4096];
        while let Ok(count @ 1..) = connection.read(&mut some) {
            all.extend_from_slice(&some[..count]);
            let text = String::from_utf8_lossy(&all).into_owned();
            if text.contains("execute WaitingTask") {
                let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                let _ = send.send(text);
            }
        }
    });
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let collector = format!("OTEL_EXPORTER_OTLP_ENDPOINT=http://{address}");
    let around = ["env", collector.as_str(), "OTEL_SERVICE_NAME=shop"];
    let engine = sandbox.start_under(&around, &["start"]);
    wait_until("it is done", || sandbox.status("1") == "stopped");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("finished task 1"), "the log is as ever: {}", ended.err);
    let text = received.recv_timeout(std::time::Duration::from_secs(30)).expect("spans");
    assert!(text.starts_with("POST /v1/traces") && text.contains("shop"), "{text}");

    let wrong = ["env", "OTEL_EXPORTER_OTLP_ENDPOINT=localhost"];
    let refused = sandbox.start_under(&wrong, &["start"]).end();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("looks like http://localhost:4318"), "{}", refused.err);
}
