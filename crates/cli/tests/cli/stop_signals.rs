//! How an engine stops, and its exit codes.

use super::support::Place;

#[test]
fn first_signal_lets_tasks_finish() {
    let place = Place::new();
    let (engine, witness) = place.start_on_witness(700, &["start"]);
    place.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--in", "1h"]);
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.words(), ["begin", "end"]);
    assert_eq!(place.status("1"), "stopped");
    assert_eq!(place.status("2"), "waiting");
}

#[test]
fn sighup_stops_gracefully() {
    let place = Place::new();
    let (engine, witness) = place.start_on_witness(700, &["start"]);
    // A shell sends it again to what it has started.
    engine.signal("HUP");
    engine.says("SIGHUP: no new task starts");
    engine.signal("HUP");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.words(), ["begin", "end"]);
    assert_eq!(place.status("1"), "stopped");
}

#[test]
fn nohup_ignores_sighup() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let engine = place.start_under(&["nohup"], &["start"]);
    engine.says("started with");
    engine.signal("HUP");
    place.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    engine.says("finished task 1");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(!ended.err.contains("SIGHUP"), "{}", ended.err);
}

#[test]
fn second_signal_releases_tasks() {
    let place = Place::new();
    let (engine, witness) = place.start_on_witness(60_000, &["start"]);
    engine.signal("TERM");
    engine.says("SIGTERM: no new task starts");
    engine.signal("TERM");
    let ended = engine.end();
    assert_eq!(ended.code, Some(9), "{}", ended.err);
    assert!(ended.err.contains("released to wait again"), "{}", ended.err);
    assert_eq!(witness.words(), ["begin"]);
    released(&place);
}

#[test]
fn stop_timeout_releases_tasks() {
    let place = Place::new();
    let (engine, witness) = place.start_on_witness(60_000, &["start", "--stop-timeout", "100ms"]);
    engine.signal("INT");
    assert_eq!(engine.end().code, Some(9));
    assert_eq!(witness.words(), ["begin"]);
    released(&place);
}

fn released(place: &Place) {
    let task = place.task("1");
    assert_eq!(task["status"], "waiting");
    assert_eq!(task["retry_number"], 0, "no retry was used");
    let attempts = task["executions"].as_array().expect("a list");
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["error"]["exception"], "EngineStopped");
}
