//! How an engine stops, and its exit codes.

use super::support::sandbox;
use task_engine_test_harness::Sandbox;

#[test]
fn first_signal_lets_tasks_finish() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(700, &["start"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--after", "1h"]);
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.events(), ["begin", "end"]);
    assert_eq!(sandbox.status("1"), "stopped");
    assert_eq!(sandbox.status("2"), "waiting");
}

#[test]
fn sighup_stops_gracefully() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(700, &["start"]);
    // A shell sends it again to what it has started.
    engine.signal("HUP");
    engine.wait_for_log("SIGHUP: no new task starts");
    engine.signal("HUP");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.events(), ["begin", "end"]);
    assert_eq!(sandbox.status("1"), "stopped");
}

#[test]
fn nohup_ignores_sighup() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let engine = sandbox.start_under(&["nohup"], &["start"]);
    engine.wait_for_log("started with");
    engine.signal("HUP");
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    engine.wait_for_log("finished task 1");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!ended.err.contains("SIGHUP"), "{}", ended.err);
}

#[test]
fn second_signal_releases_tasks() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(60_000, &["start"]);
    engine.signal("TERM");
    engine.wait_for_log("SIGTERM: no new task starts");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(9), "{}", ended.err);
    assert!(ended.err.contains("released to wait again"), "{}", ended.err);
    assert_eq!(witness.events(), ["begin"]);
    released(&sandbox);
}

#[test]
fn stop_timeout_releases_tasks() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(60_000, &["start", "--stop-timeout", "100ms"]);
    engine.signal("INT");
    assert_eq!(engine.end().code, Some(9));
    assert_eq!(witness.events(), ["begin"]);
    released(&sandbox);
}

fn released(sandbox: &Sandbox) {
    let task = sandbox.task("1");
    assert_eq!(task["status"], "waiting");
    assert_eq!(task["retry_number"], 0, "no retry was used");
    let attempts = task["executions"].as_array().expect("a list");
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["error"]["exception"], "EngineStopped");
}
