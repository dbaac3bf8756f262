//! Workers that announce their classes, so that the file needs only their command.

use std::fs;

use serde_json::{Value, json};
use task_engine_test_harness::{Sandbox, TestServer, wait_until};

use super::executables::{create, ended, error, execution, file, is_here, pids, stop};
use super::support::{sandbox, sandbox_on};

/// A worker that announces what ANNOUNCEMENT contains, and answers with the class.
const WORKER: &str = r#"
import json, os, sys

open("pids", "a").write(f"{os.getpid()}\n")
print("loaded", file=sys.stderr)
print(open("announcement").read(), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    if "parameters" not in task: continue
    while task["parameters"].get("hold"): pass
    answer = {"result": task["class"]}
    if task["parameters"].get("fail"): answer = {"error": "as requested"}
    print(json.dumps({"id": task["id"], **answer}), flush=True)
"#;
const COMMAND: &str = "[worker.python]\ncommand = [\"python3\", \"worker.py\"]\n";

fn place(sandbox: Sandbox, announcement: &Value) -> Sandbox {
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    announce(&sandbox, &announcement.to_string());
    file(&sandbox, COMMAND);
    sandbox
}

fn announce(sandbox: &Sandbox, text: &str) {
    fs::write(sandbox.path("announcement"), text).unwrap();
}

fn announced(sandbox: Sandbox) {
    let sandbox = place(
        sandbox,
        &json!({ "protocol": 1, "concurrency": 7, "classes": [
            { "class": "Mail::Send", "queue": "mail", "retry": { "maximum": 0 } },
            { "class": "greet", "timeout": "30s", "limit": 2, "schema": { "type": "object" } },
        ]}),
    );
    let checked = sandbox.run(&["check"]);
    assert!(checked.out.contains("announced by worker python"), "{checked:?}");
    assert!(checked.err.contains("0 classes, 1 worker with classes of its own"), "{checked:?}");
    // A task that was created before an engine knew its class.
    let greet = create(&sandbox, "greet", "{}");
    let engine = sandbox.start(&["start"]);
    assert_eq!(execution(&ended(&sandbox, &greet), 0)["result"], "greet");
    let mail = sandbox.ok(&["create", "Mail::Send", r#"{"fail": true}"#, "--queue", "mail"]);
    let mail = ended(&sandbox, mail.trim());
    assert_eq!((&mail["status"], error(&mail)), (&json!("failed"), "Failure: as requested".into()));
    assert!(sandbox.ok(&["instances"]).contains("class:Mail::Send,greet=7"));
    assert!(sandbox.ok(&["limits", "list"]).contains("greet"));
    assert!(engine.err().contains("Worker process python: loaded"), "{}", engine.err());
    // One process announced the classes, and one runs the tasks.
    assert_eq!(pids(&sandbox).len(), 2);
    stop(engine);
}

#[test]
fn worker_announces_classes_on_sqlite() {
    if is_here("python3") {
        announced(sandbox());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_announces_classes_on_postgresql() {
    if is_here("python3") {
        announced(sandbox_on(&TestServer::shared().create_database().await));
    }
}

#[test]
fn file_overrides_announced_options() {
    if !is_here("python3") {
        return;
    }
    let greet =
        json!({ "class": "greet", "timeout": "1h", "retry": { "maximum": 0, "factor": 3 } });
    let sandbox = place(sandbox(), &json!({ "protocol": 1, "concurrency": 7, "classes": [greet] }));
    file(
        &sandbox,
        &format!(
            "{COMMAND}concurrency = 2\n[class.greet]\ntimeout = \"100ms\"\nqueue = \"slow\"\nretry = {{ first_delay = \"1h\" }}\n"
        ),
    );
    // `create` knows the queue of the file.
    let id = create(&sandbox, "greet", r#"{"hold": true}"#);
    assert_eq!(sandbox.task(&id)["queue"], "slow");
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &id);
    assert_eq!(error(&task), "Timeout: not finished after 100 ms");
    assert_eq!(task["status"], "failed", "the announced retries count");
    assert!(sandbox.ok(&["instances"]).contains("class:greet=2"));
    stop(engine);
}

#[test]
fn wrong_announcements_are_refused() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place(sandbox(), &json!({}));
    let class =
        |options: &str| format!(r#"{{"protocol": 1, "classes": [{{"class": "a"{options}}}]}}"#);
    for (text, code, why) in [
        ("hello".to_owned(), 1, "printed a line that is not a JSON object: \"hello\""),
        (
            r#"{"id": "1.1", "result": 1}"#.to_owned(),
            1,
            "sent another line before its announcement",
        ),
        (r#"{"classes": []}"#.to_owned(), 1, "its announcement has no \"protocol\": 1"),
        (
            r#"{"protocol": 2, "classes": []}"#.to_owned(),
            1,
            "is for protocol 2, and this engine has protocol 1",
        ),
        (r#"{"protocol": 1}"#.to_owned(), 1, "has no list \"classes\""),
        (r#"{"protocol": 1, "classes": []}"#.to_owned(), 1, "has no class; register a task"),
        (r#"{"protocol": 1, "classes": ["a"]}"#.to_owned(), 1, "a class 1 that is not an object"),
        (r#"{"protocol": 1, "classes": [{}]}"#.to_owned(), 1, "a class 1 without a name"),
        (
            r#"{"protocol": 1, "classes": [{"class": "a"}, {"class": "a"}]}"#.to_owned(),
            1,
            "has the class \"a\" twice",
        ),
        (class(r#", "timout": "1s""#), 1, "unknown option \"timout\"; did you mean timeout?"),
        (class(r#", "command": ["sh"]"#), 1, "unknown option \"command\""),
        (class(r#", "schema": 3"#), 1, "(a) whose schema is not an object"),
        (class(r#", "timeout": "soon""#), 2, "soon"),
        (class(r#", "queue": """#), 2, "queue"),
        (class(r#", "limit": 0"#), 2, "0"),
        (class(r#", "retry": {"maximum": -1}"#), 2, "-1"),
        (
            r#"{"protocol": 1, "concurrency": 0, "classes": [{"class": "a"}]}"#.to_owned(),
            1,
            "has the concurrency 0, which is not a number from 1 to 10000",
        ),
    ] {
        announce(&sandbox, &text);
        let refused = sandbox.run(&["start"]);
        assert_eq!(refused.code, Some(code), "{text}: {refused:?}");
        assert!(refused.err.contains(why), "{text}: {}", refused.err);
        assert!(refused.err.contains("python"), "{text}: {}", refused.err);
    }
}

#[test]
fn worker_that_dies_is_explained() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place(sandbox(), &json!({}));
    for (script, why) in [
        (
            "import nothing_of_this_name",
            "it ended before it had announced its classes (exit code 1); its last log line: ModuleNotFoundError: No module named 'nothing_of_this_name'",
        ),
        ("import os; os.kill(os.getpid(), 9)", "(killed by signal 9 (SIGKILL))"),
    ] {
        fs::write(sandbox.path("worker.py"), script).unwrap();
        let refused = sandbox.run(&["start"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    // A signal while the engine waits for an announcement ends both.
    fs::write(sandbox.path("worker.py"), "open('here', 'w'); input(); input()").unwrap();
    let engine = sandbox.start(&["start"]);
    wait_until("the worker runs", || sandbox.path("here").exists());
    engine.signal("TERM");
    let stopped = engine.end();
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.err.contains("Stopped before"), "{}", stopped.err);
}

#[test]
fn conflicts_with_file_are_refused() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place(sandbox(), &json!({ "protocol": 1, "classes": [{ "class": "greet" }] }));
    for (text, why) in [
        ("[class.greet]\ncommand = [\"sh\"]\n", "announces the class greet, which has a command"),
        (
            "[class.greeet]\ntimeout = \"1s\"\n",
            "class greeet has no command, and no worker announces it; did you mean greet?",
        ),
        (
            "[worker.other]\ncommand = [\"python3\", \"worker.py\"]\n",
            "class greet is served by worker",
        ),
    ] {
        file(&sandbox, &format!("{COMMAND}{text}"));
        let refused = sandbox.run(&["start"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(why), "{text}: {}", refused.err);
    }
}

#[test]
fn changed_classes_are_noticed() {
    if !is_here("python3") {
        return;
    }
    let classes = |names: &[&str]| {
        let classes: Vec<Value> = names.iter().map(|name| json!({ "class": name })).collect();
        json!({ "protocol": 1, "classes": classes })
    };
    let sandbox = place(sandbox(), &classes(&["one", "two"]));
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    announce(&sandbox, &classes(&["two", "three"]).to_string());
    ended(&sandbox, &create(&sandbox, "two", "{}"));
    engine.wait_for_log("no longer has these classes, and their tasks fail: one; restart");
    engine.wait_for_log("has classes that this engine does not know: three; restart");
    stop(engine);
}
