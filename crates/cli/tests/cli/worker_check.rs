//! `check --worker`: workers that keep the protocol pass, and each deviation is found.

use std::fs;

use serde_json::Value;
use task_engine_test_harness::{CommandOutput, Sandbox};

use super::executables::is_here;
use super::support::sandbox;

/// A worker with all classes of the check, one task after the other but for those that
/// wait. Its argument breaks one rule.
const WORKER: &str = r##"
import json, os, sys

broken = sys.argv[1]
names = """echo info dependencies fail fail_for_good fail_later snooze rate_limited log print
progress wait_for_cancel step sleep wait call exit""".split()
if broken == "prints": print("starting up")
if broken == "silent": sys.exit("no such module")
waiting, steps = {}, {}

def send(line): print(json.dumps(line, ensure_ascii=False), flush=True)

def step(id, task):
    if len(task["results"]) == len(task["values"]):
        steps.pop(id)
        return send({"id": id, "result": task["results"]})
    send({"id": id, "step": "value"})

send({"protocol": 1, "concurrency": 4,
      "classes": [{"class": f"check.{name}"} for name in names] +
                 ([{"class": "x", "timeout": "never"}] if broken == "options" else [])})
for line in map(json.loads, sys.stdin):
    id = line.get("id")
    if line.get("cancel") in waiting:
        if broken != "cancel":
            send({"id": waiting.pop(line["cancel"]), "result": "cancelled"})
    elif "parameters" in line:
        p, kind = line["parameters"], line["class"].removeprefix("check.")
        if kind == "echo":
            value = p["value"]
            if broken == "ascii" and isinstance(value, str): value = value.encode("ascii", "replace").decode()
            if broken == "large" and len(str(value)) > 100_000: value = value[:100_000]
            send({"id": id, "result": value})
            if broken == "twice" and value == []: send({"id": id, "result": value})
        elif kind == "info":
            keys = ["task_id", "attempt", "retry_number", "class", "correlation_id"]
            send({"id": id, "result": {key: line[key] for key in keys}})
        elif kind == "dependencies": send({"id": id, "result": line.get("dependencies")})
        elif kind.startswith("fail"):
            error = {"exception": "E", "message": p["message"], "backtrace": "  at line 1"}
            if broken == "backtrace": del error["backtrace"]
            retry = {"fail_for_good": {"retry": False}, "fail_later": {"retry": p.get("time")}}.get(kind, {})
            if broken == "retry": retry = {}
            send({"id": id, "error": error, **retry})
        elif kind in ("snooze", "rate_limited"):
            send({"id": id, kind: p["time"], "message": p["message"]})
        elif kind == "log":
            lines = [f"line {n + 1}" for n in range(p["lines"])]
            if broken == "log": lines = lines[:9_999]
            send({"id": id, "log": lines})
            send({"id": id, "result": p["lines"]})
        elif kind == "print":
            print(p["text"], file=sys.stdout if broken == "stdout" else sys.stderr, flush=True)
            send({"id": id, "result": None})
        elif kind == "progress":
            send({"id": id, "progress": p["percent"], "message": p["message"]})
            send({"id": id, "result": None})
        elif kind == "wait_for_cancel": waiting[id] = id
        elif kind == "step":
            steps[id] = {"values": p["values"], "results": []}
            step(id, steps[id])
        elif kind == "sleep": send({"id": id, "sleep": "pause", "for": p["time"]})
        elif kind == "wait": send({"id": id, "wait": "approved", "timeout": p["timeout"]})
        elif kind == "call": send({"id": id, "call": p["class"], "tasks": [p]})
        elif kind == "exit": sys.exit(p["code"])
        elif broken != "unknown": send({"id": id, "error": f"no class {line['class']}", "retry": False})
    elif "step" in line and id in steps:
        task = steps[id]
        if "recorded" in line:
            task["results"].append(line["recorded"])
            step(id, task)
        else:
            result = task["values"][len(task["results"])]
            send({"id": id, "step": "value" if broken == "step" else line["step"], "result": result})
    elif "sleep" in line: send({"id": id, "result": "awake"})
    elif "wait" in line: send({"id": id, "result": "timed out" if line.get("timed_out") else line["signal"]})
    elif "call" in line:
        child = line["results"][0]
        send({"id": id, "result": child["result"] if "result" in child else "failed: " + child["error"]["message"]})
    elif "ended" in line:
        steps.pop(id, None)
        if broken == "ended": send({"id": id, "result": "too late"})
    elif broken == "unknown lines": sys.exit(f"unknown line {line}")
if broken == "end":
    import time
    time.sleep(60)
if broken == "exit": sys.exit(1)
"##;

fn check(sandbox: &Sandbox, broken: &str, more: &[&str]) -> CommandOutput {
    let command = format!("python3 worker.py '{broken}'");
    sandbox.run(&[&["check", "--worker", &command], more].concat())
}

fn place() -> Sandbox {
    let sandbox = sandbox();
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    sandbox
}

#[test]
fn correct_worker_passes() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place();
    let checked = check(&sandbox, "", &[]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.err.ends_with("29 cases, no problem\n"), "{checked:?}");
    assert!(checked.out.lines().all(|line| line.starts_with("ok ")), "{checked:?}");
    let json: Value =
        serde_json::from_str(&check(&sandbox, "", &["--json"]).out).expect("one document");
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(29));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(0));
    assert!(json["classes"].as_array().unwrap().contains(&"check.echo".into()));
}

#[test]
fn each_deviation_is_found() {
    if !is_here("python3") {
        return;
    }
    let sandbox = place();
    for (broken, problem) in [
        ("prints", "announcement: it printed a line that is not a JSON object: \"starting up\""),
        (
            "silent",
            "announcement: it ended before it had announced its classes; the last line of its standard error: no such module",
        ),
        ("options", "announcement: "),
        ("unknown lines", "unknown lines are ignored: "),
        ("ascii", "values are unchanged: the result: expected"),
        ("large", "1 MiB of parameters: the text has changed"),
        ("twice", "it sent a line about an attempt that has ended"),
        ("backtrace", "an exception is an error: the error has no backtrace"),
        ("retry", "an error without a retry: its retry is not set, and should be false"),
        ("log", "10,000 log lines: it sent 9999 of 10000 log lines before its answer"),
        ("stdout", "printed text is no line of the protocol: it printed a line that is not a JSON"),
        ("step", "steps run once: the name of the step: expected \"value#2\", got \"value\""),
        ("ended", "a suspended task is silent: it sent a line about an attempt that has ended"),
        ("exit", "it ended with exit code 1, and should with exit code 0"),
    ] {
        let checked = check(&sandbox, broken, &[]);
        assert_eq!(checked.code, Some(6), "{broken}: {checked:?}");
        let found = checked
            .out
            .lines()
            .any(|line| line.strip_prefix("FAILED  ").is_some_and(|line| line.contains(problem)));
        assert!(found, "{broken}: {checked:?}");
    }
}

#[test]
fn silent_worker_is_found() {
    if !is_here("python3") {
        return;
    }
    // Each waits for its time limit, so they run at the same time.
    let sandbox = place();
    std::thread::scope(|threads| {
        for (broken, problem) in [
            ("unknown", "an unknown class is an error: it sent no line within 10 s"),
            ("cancel", "a cancelled task ends: it sent no line within 10 s"),
            ("end", "it exits after the end of the input: it sent no line within 10 s"),
        ] {
            let sandbox = &sandbox;
            threads.spawn(move || {
                let checked = check(sandbox, broken, &[]);
                assert_eq!(checked.code, Some(6), "{broken}: {checked:?}");
                assert!(checked.out.contains(problem), "{broken}: {checked:?}");
            });
        }
    });
}

#[test]
fn endless_lines_are_refused() {
    let sandbox = sandbox();
    let announcement = r#"{"protocol":1,"classes":[{"class":"x"}]}"#;
    for (line, problem) in [
        (r#"{"id":"zzz","result":1}"#, "it sent a line about \"zzz\", which it does not have"),
        (r#"{"id":"1.1","log":"x"}"#, "it sent more than 50000 lines instead of an answer"),
        (r#"{"concurrency":1}"#, "it sent more than 50000 lines instead of an answer"),
        ("x", "it printed a line that is not a JSON object: \"x\""),
    ] {
        let command = format!("echo '{announcement}'; yes '{line}'");
        let checked = sandbox.run(&["check", "--worker", &command]);
        assert_eq!(checked.code, Some(6), "{checked:?}");
        assert!(checked.out.contains(problem), "{checked:?}");
    }
}

#[test]
fn missing_program_is_named() {
    let sandbox = sandbox();
    let checked = sandbox.run(&["check", "--worker", "./nothing-of-this-name"]);
    assert_eq!(checked.code, Some(6), "{checked:?}");
    assert!(checked.out.contains("nothing-of-this-name"), "{checked:?}");
    let both = sandbox.run(&["check", "file.toml", "--worker", "x"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
