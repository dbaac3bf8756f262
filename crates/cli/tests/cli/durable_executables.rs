//! Durable calls of processes: steps, sleeps, waits and child tasks, over lines.

use std::fs;

use serde_json::{Value, json};
use task_engine::{TaskEngine, TaskId};
use task_engine_test_harness::{RunningProgram, Sandbox, TestServer, wait_until};

use super::executables::{create, ended, error, execution, file, is_here, pids, stop};
use super::support::{sandbox, sandbox_on};

/// A worker in Python. Its tasks name the action: {"do": …}.
const WORKER: &str = r#"
import json, os, time
from durable import ChildFailed, Ended, WaitTimedOut, run, send

open("pids", "a").write(f"{os.getpid()}\n")

def note(file, text):
    with open(file, "a") as out: out.write(f"{text}\n")

def effect(name):
    note("effects", name)
    return os.getpid()

def work(task):
    p = task.parameters
    do = p["do"]
    if do == "pid": return os.getpid()
    if do == "steps":
        first = task.step("a", lambda: effect("a"))
        note("holds", task.id)
        while not os.path.exists("go"): time.sleep(0.01)
        again = task.step("a", lambda: effect("a#2"))
        return [first, again, task.step("b", lambda: effect("b"))]
    if do == "sleep":
        task.step("before", lambda: effect("before"))
        task.sleep("pause", p["for"])
        return task.step("after", lambda: effect("after"))
    if do == "wait":
        try: return {"signal": task.wait_for("approved", p["timeout"])}
        except WaitTimedOut: return "timed out"
    if do == "late":
        try: task.wait_for("approved", "7d")
        except Ended:
            send({"id": task.id, "result": "too late"})
            send({"id": task.id, "step": "late"})
            note("told", task.lines.get())
            raise
    if do == "call":
        children = [{"class": "work", "parameters": {"do": "pid"}},
                    {"class": "work", "parameters": {"do": "fail"}, "priority": 3}]
        return task._ask({"call": "both", "tasks": children})["results"]
    if do == "fail": raise ValueError("as requested")
    if do == "hurry":
        task._ask({"step": "a"})
        send({"id": task.id, "step": "a", "result": 1})
        return "answered before the record"
    if do == "say":
        for line in p["lines"]:
            try: task._ask(line)
            except Ended as end:
                note("told", end)
                raise

run({"work": work})
"#;

const NO_RETRY: &str = "retry = { maximum = 0 }";
const FAST_RETRY: &str = "retry = { maximum = 3, first_delay = \"100ms\" }";

fn place_with(sandbox: Sandbox, settings: &str) -> Sandbox {
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    let helper = include_str!("../../../../examples/executables/durable.py");
    fs::write(sandbox.path("durable.py"), helper).unwrap();
    let command = "command = [\"python3\", \"worker.py\"]";
    file(&sandbox, &format!("[class.work]\nmode = \"lines\"\n{settings}\n{command}"));
    sandbox
}

fn start(sandbox: &Sandbox, parameters: &Value) -> String {
    create(sandbox, "work", &parameters.to_string())
}

pub(super) fn lines(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Runs code on the tasks of a sandbox, also inside of a runtime.
fn with_tasks<T: Send>(sandbox: &Sandbox, code: impl AsyncFnOnce(TaskEngine) -> T + Send) -> T {
    let url = format!("sqlite:{}", sandbox.path("task-engine.db").display());
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async { code(TaskEngine::connect(&url).await.unwrap()).await })
        };
        scope.spawn(run).join().unwrap()
    })
}

pub(super) fn signal(sandbox: &Sandbox, id: &str, payload: &Value) -> &'static str {
    let id = TaskId(id.parse().unwrap());
    let send = async |tasks: TaskEngine| tasks.signal(id, "approved", payload).await.unwrap();
    with_tasks(sandbox, send).status.as_str()
}

pub(super) fn steps(sandbox: &Sandbox, id: &str) -> Vec<String> {
    let id = TaskId(id.parse().unwrap());
    let stored = with_tasks(sandbox, async |tasks| tasks.store().steps(id).await.unwrap());
    stored.steps.into_iter().map(|step| step.name).collect()
}

pub(super) fn result(task: &Value) -> &Value {
    let last = task["executions"].as_array().unwrap().last().unwrap();
    assert_eq!(task["status"], "stopped", "{task}");
    &last["result"]
}

/// The first step is recorded, then `kill` ends the process; the others run in a new one.
fn steps_survive(sandbox: Sandbox, kill: impl FnOnce(&Sandbox, RunningProgram) -> RunningProgram) {
    let sandbox = place_with(sandbox, FAST_RETRY);
    let engine = sandbox.start(&["start"]);
    let id = start(&sandbox, &json!({"do": "steps"}));
    wait_until("the first step", || lines(&sandbox, "holds").len() == 1);
    let engine = kill(&sandbox, engine);
    wait_until("another attempt", || lines(&sandbox, "holds").len() == 2);
    fs::write(sandbox.path("go"), "").unwrap();
    let task = ended(&sandbox, &id);
    let processes = pids(&sandbox);
    assert_eq!(processes.len(), 2);
    assert_eq!(*result(&task), json!([processes[0], processes[1], processes[1]]));
    assert_eq!(lines(&sandbox, "effects"), ["a", "a#2", "b"]);
    stop(engine);
}

fn kill_process(sandbox: &Sandbox, engine: RunningProgram) -> RunningProgram {
    sandbox.shell(&format!("kill -KILL {}", pids(sandbox)[0]));
    engine
}

fn kill_engine(sandbox: &Sandbox, engine: RunningProgram) -> RunningProgram {
    engine.signal("KILL");
    engine.end();
    sandbox.start(&["start"])
}

#[test]
fn steps_survive_killed_process() {
    if is_here("python3") {
        steps_survive(sandbox(), kill_process);
    }
}

#[test]
fn steps_survive_killed_engine_on_sqlite() {
    if is_here("python3") {
        steps_survive(sandbox(), kill_engine);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_survive_killed_engine_on_postgresql() {
    if is_here("python3") {
        let url = TestServer::shared().create_database().await;
        steps_survive(sandbox_on(&url), kill_engine);
    }
}

#[test]
fn sleep_frees_slot_and_keeps_process() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), NO_RETRY);
    let engine = sandbox.start(&["start"]);
    // Longer than the sleeps that wait in place.
    let id = start(&sandbox, &json!({"do": "sleep", "for": "6s"}));
    wait_until("it sleeps", || steps(&sandbox, &id).len() == 2);
    // There is only one slot.
    let other = ended(&sandbox, &start(&sandbox, &json!({"do": "pid"})));
    assert_eq!(sandbox.status(&id), "waiting");
    let task = ended(&sandbox, &id);
    assert_eq!(task["executions"].as_array().unwrap().len(), 2, "{task}");
    assert_eq!(execution(&task, 0)["status"], "snoozed");
    assert_eq!(result(&task), result(&other), "the same process");
    assert_eq!(lines(&sandbox, "effects"), ["before", "after"]);
    stop(engine);
}

#[test]
fn signal_resumes_waiting_process_task() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), NO_RETRY);
    let engine = sandbox.start(&["start"]);
    let wait = json!({"do": "wait", "timeout": "7d"});
    let id = start(&sandbox, &wait);
    wait_until("it waits", || sandbox.status(&id) == "waiting" && !steps(&sandbox, &id).is_empty());
    let payload = json!({"by": "ada", "lines": "a\nb"});
    assert_eq!(signal(&sandbox, &id, &payload), "delivered");
    assert_eq!(*result(&ended(&sandbox, &id)), json!({ "signal": payload }));
    let timed_out = start(&sandbox, &json!({"do": "wait", "timeout": "0.5s"}));
    assert_eq!(*result(&ended(&sandbox, &timed_out)), json!("timed out"));
    assert_eq!(pids(&sandbox).len(), 1);
    stop(engine);
    // Sent before the wait, and kept for it.
    let early = start(&sandbox, &wait);
    assert_eq!(signal(&sandbox, &early, &Value::Null), "kept");
    let engine = sandbox.start(&["start"]);
    assert_eq!(*result(&ended(&sandbox, &early)), json!({"signal": null}));
    stop(engine);
}

#[test]
fn late_answer_of_suspended_task_is_ignored() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), NO_RETRY);
    let engine = sandbox.start(&["start"]);
    let id = start(&sandbox, &json!({"do": "late"}));
    wait_until("it is told", || lines(&sandbox, "told").len() == 1);
    assert!(lines(&sandbox, "told")[0].contains("'ended': 'before'"));
    assert_eq!(ended(&sandbox, &start(&sandbox, &json!({"do": "pid"})))["status"], "stopped");
    assert_eq!((sandbox.status(&id).as_str(), pids(&sandbox).len()), ("waiting", 1));
    assert_eq!(steps(&sandbox, &id), ["approved"]);
    stop(engine);
}

#[test]
fn call_returns_outcomes_of_children() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), &format!("queue = \"slow\"\n{NO_RETRY}"));
    let engine = sandbox.start(&["start"]);
    let id = start(&sandbox, &json!({"do": "call"}));
    // One slot: the parent gives it to its children.
    let task = ended(&sandbox, &id);
    let results = result(&task);
    assert_eq!(
        (&results[0]["status"], &results[1]["status"]),
        (&json!("stopped"), &json!("failed"))
    );
    assert_eq!(results[0]["result"], json!(pids(&sandbox)[0]));
    assert_eq!(results[1]["error"]["exception"], "ValueError");
    assert_eq!(results[1]["error"]["message"], "as requested");
    let child = sandbox.task(&results[1]["task_id"].to_string());
    assert_eq!((&child["queue"], &child["priority"]), (&json!("slow"), &json!(3)));
    assert_eq!(sandbox.tasks().len(), 3);
    stop(engine);
}

#[test]
fn malformed_request_fails_only_its_task() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), &format!("result_bytes = 100\n{NO_RETRY}"));
    let engine = sandbox.start(&["start"]);
    let step = |name: &str| json!({ "step": name });
    let cases = [
        (
            vec![json!({"step": "a", "resutl": 1})],
            "MalformedRequest: its process sent a step with an unknown field \"resutl\"; did you mean result?",
        ),
        (
            vec![json!({"wait": "a"})],
            "MalformedRequest: its process sent the wait \"a\" without a timeout",
        ),
        (vec![json!({"step": "a", "result": 1})], "a result of step \"a\", which it does not run"),
        (
            vec![step("a"), json!({"step": "a", "result": "x".repeat(200)})],
            "ResultTooLong: the result of step \"a\" is longer than 100 bytes",
        ),
        (vec![step("a#2")], "InvalidStepName: "),
        (
            vec![json!({"call": "a", "tasks": [{"class": "work", "parameters": 7}]})],
            "MalformedRequest: its process sent a task that cannot be created",
        ),
    ];
    for (nth, (lines_sent, why)) in cases.iter().enumerate() {
        let task = ended(&sandbox, &start(&sandbox, &json!({"do": "say", "lines": lines_sent})));
        assert!(error(&task).contains(why), "{lines_sent:?}: {}", error(&task));
        wait_until("the process is told", || lines(&sandbox, "told").len() == nth + 1);
        assert!(lines(&sandbox, "told")[nth].contains(why));
    }
    assert_eq!(ended(&sandbox, &start(&sandbox, &json!({"do": "pid"})))["status"], "stopped");
    assert_eq!(pids(&sandbox).len(), 1);
    stop(engine);
}

#[test]
fn sleeping_task_does_not_block_others() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), &format!("concurrency = 2\n{NO_RETRY}"));
    let engine = sandbox.start(&["start"]);
    // Waits in place.
    let id = start(&sandbox, &json!({"do": "sleep", "for": "4s"}));
    wait_until("it sleeps", || steps(&sandbox, &id).len() == 2);
    fs::write(sandbox.path("go"), "").unwrap();
    let other = ended(&sandbox, &start(&sandbox, &json!({"do": "steps"})));
    assert_eq!(sandbox.status(&id), "running");
    assert_eq!(result(&ended(&sandbox, &id)), &result(&other)[0], "the same process");
    stop(engine);
}

#[test]
fn step_before_answer_is_recorded() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place_with(sandbox(), NO_RETRY);
    let engine = sandbox.start(&["start"]);
    let id = start(&sandbox, &json!({"do": "hurry"}));
    assert_eq!(*result(&ended(&sandbox, &id)), json!("answered before the record"));
    assert_eq!(steps(&sandbox, &id), ["a"]);
    stop(engine);
}
