//! As process 1, as in a container: there a signal without a handler is
//! ignored, so the handlers must be the engine's own.

use std::fs;

use super::support::{Place, eventually};

#[test]
fn process_one_stops_on_sigterm() {
    let place = Place::new();
    place.ok(&["create", "WitnessTask", r#"{"ms": 300}"#]);
    // A user namespace lets everybody have a process 1 of their own.
    let namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let engine = place.start_under(&namespace, &["start", "--witness", "witness"]);
    let witness = place.path("witness");
    let said = || fs::read_to_string(&witness).unwrap_or_default();
    eventually("the task begins as process 1", || said().starts_with("begin 1 1 1 "));
    let children = format!("/proc/{0}/task/{0}/children", engine.id());
    let inner = fs::read_to_string(children).unwrap().trim().to_owned();
    let sent = std::process::Command::new("kill").args(["-TERM", &inner]).status().unwrap();
    assert!(sent.success());
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(said().contains("end 1 1 1 "), "it was let finish: {}", said());
}
