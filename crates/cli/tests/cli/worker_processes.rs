//! Workers of the file: several classes in one process, no more tasks than they
//! have slots, and whatever they print.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine_test_harness::TestServer;

use super::executables::{class, create, ended, error, execution, file, is_here, pids, stop};
use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// A worker that answers as its tasks tell it: {"say": […]} are lines to print, in
/// which ID stands for the id.
const WORKER: &str = r#"
import json, os, sys, time

open("pids", "a").write(f"{os.getpid()}\n")
for line in sys.stdin:
    task = json.loads(line)
    if "cancel" in task: continue
    parameters = task["parameters"]
    while parameters.get("hold") and not os.path.exists("go"): time.sleep(0.02)
    if parameters.get("raise"): raise KeyError("no such account")
    for text in parameters.get("say", ['{"id": "ID", "result": "CLASS"}']):
        text = text.replace("ID", task["id"]).replace("CLASS", task["class"])
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")
        sys.stdout.flush()
"#;

fn place_with(sandbox: Sandbox, settings: &str) -> Sandbox {
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    let never = "retry = { maximum = 0 }";
    let worker = format!(
        "[worker.python]\ncommand = [\"python3\", \"worker.py\"]\nclasses = [\"one\", \"two\"]\n{settings}\n[class.one]\n{never}\n[class.two]\n{never}\ntimeout = \"20s\"\n"
    );
    file(&sandbox, &format!("{worker}{}", class("shell", "", "echo 1")));
    sandbox
}

fn slots_are_respected(sandbox: Sandbox) {
    let sandbox = place_with(sandbox, "processes = 2\nconcurrency = 2");
    sandbox.ok(&["create", "one", r#"{"hold": true}"#, "--count", "20"]);
    sandbox.ok(&["create", "two", r#"{"hold": true}"#, "--count", "20"]);
    let engine = sandbox.start(&["start", "--workers", "3", "--instance", "e"]);
    let running = || {
        let tasks = sandbox.tasks();
        tasks.iter().filter(|task| task["status"] == "running").count()
    };
    wait_until("all slots are taken", || running() == 4);
    // The other workers are free, whatever waits for the processes.
    for _ in 0..3 {
        assert_eq!(ended(&sandbox, &create(&sandbox, "shell", "{}"))["status"], "stopped");
    }
    assert_eq!(running(), 4, "no more are claimed than there are slots");
    assert!(sandbox.ok(&["instances"]).contains("class:one,two=4"));
    fs::write(sandbox.path("go"), "").unwrap();
    wait_until("all end", || sandbox.tasks().iter().all(|task| task["status"] == "stopped"));
    assert!(pids(&sandbox).len() <= 2);
    // An idle worker is woken for its own classes, at once.
    let began = Instant::now();
    let task = ended(&sandbox, &create(&sandbox, "two", "{}"));
    assert_eq!(execution(&task, 0)["result"], "two");
    assert!(began.elapsed() < Duration::from_secs(8), "before the next poll");
    stop(engine);
}

#[test]
fn worker_gets_no_more_than_slots_on_sqlite() {
    if is_here("python3") {
        slots_are_respected(sandbox());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_gets_no_more_than_slots_on_postgresql() {
    if is_here("python3") {
        let url = TestServer::shared().create_database().await;
        slots_are_respected(sandbox_on(&url));
    }
}

fn say(sandbox: &Sandbox, class: &str, lines: &[&str]) -> String {
    create(sandbox, class, &json!({ "say": lines }).to_string())
}

#[test]
fn one_process_serves_several_classes() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "");
    let engine = sandbox.start(&["start"]);
    for class in ["one", "two", "one"] {
        let task = ended(&sandbox, &create(&sandbox, class, "{}"));
        assert_eq!(execution(&task, 0)["result"], class);
    }
    assert_eq!(pids(&sandbox).len(), 1);
    stop(engine);
}

#[test]
fn malformed_answer_fails_only_its_task() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "");
    let engine = sandbox.start(&["start"]);
    for (line, why) in [
        (
            r#"{"id": "ID", "resutl": 1}"#,
            "MalformedAnswer: its process answered: it has neither a result nor an error: its answer has an unknown field \"resutl\"; did you mean result?",
        ),
        (
            r#"{"id": "ID", "result": 1, "error": "x"}"#,
            "more than one of result, error, snooze and rate_limited",
        ),
        (
            r#"{"id": "ID", "error": {"message": "m", "exception": "E", "backtrace": "a\n  b"}}"#,
            "E: m",
        ),
        (r#"{"id": "ID", "error": {"exception": "E", "backtrace": 7}}"#, "E: "),
        (r#"{"id": "ID", "error": ["odd"]}"#, "Failure: [\"odd\"]"),
    ] {
        let task =
            ended(&sandbox, &say(&sandbox, "one", &[line, r#"{"id": "ID", "result": "late"}"#]));
        assert!(error(&task).contains(why), "{line}: {task}");
    }
    let task = ended(
        &sandbox,
        &say(
            &sandbox,
            "one",
            &[
                r#"{"id": "ID", "error": {"message": "m", "backtrace": "Traceback:\n  File \"a.py\"\n"}}"#,
            ],
        ),
    );
    assert_eq!(execution(&task, 0)["error"]["backtrace"], json!(["Traceback:", "  File \"a.py\""]));
    assert_eq!(pids(&sandbox).len(), 1, "the process goes on");
    stop(engine);
}

#[test]
fn process_postpones_task() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "");
    let engine = sandbox.start(&["start"]);
    let id = say(&sandbox, "one", &[r#"{"id": "ID", "snooze": "1h", "message": "rate limit"}"#]);
    wait_until("it is postponed", || sandbox.task(&id)["executions"][0]["status"] == "snoozed");
    let task = sandbox.task(&id);
    assert_eq!((&task["status"], &task["retry_number"]), (&json!("waiting"), &json!(0)), "{task}");
    assert!(sandbox.ok(&["why", &id]).contains("rate limit"));
    stop(engine);
}

#[test]
fn fatal_exception_is_named() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "");
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &create(&sandbox, "one", r#"{"raise": true}"#));
    assert_eq!(error(&task), "KeyError: 'no such account'", "{task}");
    let trace = &execution(&task, 0)["error"]["backtrace"];
    assert_eq!(trace[0], "Traceback (most recent call last):", "{task}");
    stop(engine);
}

/// Whatever a process prints, its tasks end, those of other classes go on, and the
/// engine lives. `FUZZ_SECONDS` makes it longer.
#[test]
fn random_output_stops_no_other_task() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "processes = 2");
    let engine = sandbox.start(&["start", "--workers", "2"]);
    let time = std::env::var("FUZZ_SECONDS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(5);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "{\"id\": \"ID\", ",
        "\"result\": 1",
        "\"error\": \"x\"",
        "\"error\": {\"backtrace\": ",
        "}",
        "{",
        "[",
        "]",
        "\"log\": \"a\"",
        ", ",
        "\"progress\": 50",
        "\"snooze\": \"1h\"",
        "null",
        "\"",
        "\\u0000",
        "1e999",
        "\"concurrency\": 5",
        "\u{202e}",
        "\n",
        " ",
        "\"retry\": \"never\"",
        "\"id\": 7",
    ];
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(time) {
        let mut line = || -> String {
            let count = random.usize(1..8);
            (0..count).map(|_| pieces[random.usize(..pieces.len())]).collect()
        };
        let (odd, more) = (line(), line());
        let id = say(&sandbox, "one", &[&odd, &more, r#"{"id": "ID", "result": 1}"#]);
        let beside = create(&sandbox, "shell", "{}");
        assert_eq!(ended(&sandbox, &beside)["status"], "stopped", "{odd:?}");
        wait_until("it ends or is postponed", || {
            let task = sandbox.task(&id);
            let ended = ["stopped", "failed"].contains(&task["status"].as_str().unwrap());
            ended || task["executions"][0]["status"] == "snoozed"
        });
        let whole = sandbox.task(&id).to_string();
        assert!(!whole.contains("untagged") && !whole.contains("serde"), "{whole}");
    }
    assert_eq!(ended(&sandbox, &create(&sandbox, "two", "{}"))["status"], "stopped");
    stop(engine);
}
