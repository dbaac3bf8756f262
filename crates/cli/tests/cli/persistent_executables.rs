//! Processes that stay, and take a line a task.

use std::fs;

use serde_json::json;
use task_engine_test_harness::TestServer;

use super::executables::{create, ended, error, execution, file, is_here, lives, pids, stop};
use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// A worker in Python. Its tasks name the action: {"do": …}.
const WORKER: &str = r#"
import json, os, sys, threading, time

open("pids", "a").write(f"{os.getpid()}\n")
out = threading.Lock()
cancelled = set()
def say(**words):
    with out:
        print(json.dumps(words), flush=True)

def work(task):
    id, do = task["id"], task["parameters"].get("do")
    if do == "echo": say(id=id, result=task)
    elif do == "pid": say(id=id, result=os.getpid())
    elif do == "wait":
        # Done when as many wait as the first one asked for.
        waiting.append(id)
        while len(waiting) < task["parameters"]["all"]: time.sleep(0.01)
        say(id=id, result=len(waiting))
    elif do == "talk":
        print("to stderr", file=sys.stderr, flush=True)
        say(id=id, log="to the log")
        say(id=id, progress=40, message="nearly half")
        say(id=id, result=None)
    elif do == "fail": say(id=id, error="no luck", retry=False)
    elif do == "raise":
        say(id=id, error={"exception": "Boom", "message": "bang", "backtrace": ["a.py:1"]}, retry="1h")
    elif do == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    elif do == "nonsense": print("hello", flush=True)
    elif do == "other": say(id="7.7", result=1)
    elif do == "obey":
        say(id=id, log="ready")
        while id not in cancelled: time.sleep(0.01)
        say(id=id, error="as requested")
    elif do == "hang":
        say(id=id, log="ready")
        while True: time.sleep(1)

waiting = []
if len(sys.argv) > 1: say(concurrency=int(sys.argv[1]))
for line in sys.stdin:
    task = json.loads(line)
    if "cancel" in task: cancelled.add(task["cancel"])
    else: threading.Thread(target=work, args=[task], daemon=True).start()
"#;

fn place_with(sandbox: Sandbox, settings: &str, arguments: &str) -> Sandbox {
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    let command = format!("command = [\"python3\", \"worker.py\"{arguments}]");
    file(
        &sandbox,
        &format!(
            "[class.work]\nmode = \"lines\"\nretry = {{ maximum = 0 }}\n{settings}\n{command}"
        ),
    );
    sandbox
}

fn run(sandbox: &Sandbox, what: &str) -> serde_json::Value {
    ended(sandbox, &create(sandbox, "work", &json!({ "do": what }).to_string()))
}

fn many_tasks_in_one_process(sandbox: Sandbox) {
    let sandbox = place_with(sandbox, "", "");
    let engine = sandbox.start(&["start"]);
    let task = run(&sandbox, "echo");
    let seen = &execution(&task, 0)["result"];
    assert_eq!(
        (&seen["task_id"], &seen["attempt"], &seen["retry_number"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!((&seen["class"], &seen["correlation_id"]), (&json!("work"), &json!("1")));
    assert_eq!(seen["parameters"], json!({"do": "echo"}));
    let pid = execution(&run(&sandbox, "pid"), 0)["result"].clone();
    assert_eq!(execution(&run(&sandbox, "pid"), 0)["result"], pid);

    let task = run(&sandbox, "talk");
    assert_eq!(task["status"], "stopped", "null is a result: {task}");
    assert_eq!(execution(&task, 0)["progress"]["percent"], 40.0);
    let said: Vec<_> =
        task["log"].as_array().unwrap().iter().map(|l| l["message"].clone()).collect();
    assert!(said.contains(&json!("to the log")) && said.contains(&json!("to stderr")), "{said:?}");

    assert_eq!(error(&run(&sandbox, "fail")), "Failure: no luck");
    assert_eq!(error(&run(&sandbox, "raise")), "Boom: bang");
    assert_eq!(execution(&run(&sandbox, "raise"), 0)["error"]["backtrace"], json!(["a.py:1"]));
    assert_eq!(pids(&sandbox).len(), 1);
    stop(engine);
    wait_until("it ends with the engine", || !pids(&sandbox).into_iter().any(lives));
}

#[test]
fn one_process_has_many_tasks_on_sqlite() {
    if !is_here("python3") {
        return;
    }
    many_tasks_in_one_process(sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_has_many_tasks_on_postgresql() {
    if !is_here("python3") {
        return;
    }
    let url = TestServer::shared().create_database().await;
    many_tasks_in_one_process(sandbox_on(&url));
}

#[test]
fn process_may_take_fewer_tasks() {
    if !is_here("python3") {
        return;
    }
    // It says that it takes one at a time, whatever the file says.
    let sandbox = place_with(sandbox(), "concurrency = 3\nprocesses = 2", ", \"1\"");
    let engine = sandbox.start(&["start"]);
    assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    let ids: Vec<String> =
        (0..2).map(|_| create(&sandbox, "work", r#"{"do": "wait", "all": 1}"#)).collect();
    for id in ids {
        assert_eq!(ended(&sandbox, &id)["status"], "stopped");
    }
    stop(engine);
    let sandbox = place_with(crate::support::sandbox(), "", ", \"8\"");
    let engine = sandbox.start(&["start"]);
    assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    engine.wait_for_log("takes 8 tasks at a time and gets 1; write concurrency = 8");
    stop(engine);
}

#[test]
fn more_processes_are_started_on_demand() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "processes = 2", "");
    let waits = create(&sandbox, "work", r#"{"do": "wait", "all": 2}"#);
    let engine = sandbox.start(&["start"]);
    wait_until("the first process", || pids(&sandbox).len() == 1);
    // The first one is busy for good; another process has these.
    for _ in 0..3 {
        assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    }
    assert_eq!(pids(&sandbox).len(), 2);
    assert_eq!(sandbox.status(&waits), "running");
    engine.signal("KILL");
    engine.end();
    wait_until("a killed engine leaves nothing", || !pids(&sandbox).into_iter().any(lives));
}

#[test]
fn dead_process_fails_tasks_and_restarts() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "concurrency = 2", "");
    let engine = sandbox.start(&["start"]);
    let beside = create(&sandbox, "work", r#"{"do": "wait", "all": 2}"#);
    wait_until("it runs", || sandbox.status(&beside) == "running" && pids(&sandbox).len() == 1);
    let dead = run(&sandbox, "die");
    for task in [&dead, &ended(&sandbox, &beside)] {
        let why = error(task);
        assert!(
            why.starts_with("ProcessEnded: its process ended before it had answered (exit code 3)"),
            "{why}"
        );
        assert!(why.ends_with("; its last log line: last words"), "{why}");
    }
    for (what, words) in [
        ("nonsense", "a line that is not a JSON object: \"hello\""),
        ("other", "answered for \"7.7\""),
    ] {
        let why = error(&run(&sandbox, what));
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    assert_eq!(pids(&sandbox).len(), 4);
    wait_until("one is left", || pids(&sandbox).into_iter().filter(|pid| lives(*pid)).count() == 1);
    stop(engine);
}

#[test]
fn failing_process_start_does_not_spin() {
    let sandbox = sandbox();
    file(
        &sandbox,
        "[class.broken]\ncommand = [\"sh\", \"-c\", 'echo . >> starts; echo not today >&2; exit 1']\nmode = \"lines\"\nretry = { maximum = 0 }",
    );
    let engine = sandbox.start(&["start"]);
    for _ in 0..3 {
        let task = ended(&sandbox, &create(&sandbox, "broken", "{}"));
        assert!(error(&task).contains("(exit code 1)"), "{task}");
        assert!(error(&task).ends_with("; its last log line: not today"), "{task}");
    }
    let starts = fs::read_to_string(sandbox.path("starts")).unwrap().lines().count();
    assert_eq!(starts, 3, "once a task, never without one");
    stop(engine);
}

#[test]
fn timed_out_task_kills_its_process() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "timeout = \"2s\"\ngrace = \"1s\"", "");
    let engine = sandbox.start(&["start"]);
    let task = run(&sandbox, "hang");
    assert_eq!(error(&task), "Timeout: not finished after 2 s");
    assert!(!pids(&sandbox).into_iter().any(lives), "the attempt ends when the process has");
    assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    // One that obeys leaves the process as it is.
    assert_eq!(error(&run(&sandbox, "obey")), "Timeout: not finished after 2 s");
    assert_eq!(run(&sandbox, "pid")["status"], "stopped");
    assert_eq!(pids(&sandbox).len(), 2);
    stop(engine);
}

#[test]
fn cancel_sends_line_then_kills() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), "grace = \"1s\"", "");
    let engine = sandbox.start(&["start"]);
    let cancel = |what: &str| {
        let id = create(&sandbox, "work", &json!({ "do": what }).to_string());
        wait_until("it runs", || sandbox.ok(&["logs", &id]).contains("ready"));
        sandbox.run(&["cancel", &id, "--wait"]);
        ended(&sandbox, &id)
    };
    let task = cancel("obey");
    assert_eq!(execution(&task, 0)["cancel"]["outcome"], "acknowledged", "{task}");
    assert!(error(&task).contains("as requested"), "{task}");
    assert_eq!(pids(&sandbox).len(), 1);
    let task = cancel("hang");
    assert_eq!(execution(&task, 0)["cancel"]["outcome"], "killed", "{task}");
    wait_until("it is gone", || !pids(&sandbox).into_iter().any(lives));
    stop(engine);
}
