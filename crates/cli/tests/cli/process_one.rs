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
    let witness = place.witness();
    let engine = place.start_under(&namespace, &["start", "--config", "witness.toml"]);
    eventually("the task begins", || witness.words() == ["begin"]);
    let instances: serde_json::Value =
        serde_json::from_str(&place.ok(&["instances", "--json"])).unwrap();
    assert_eq!(instances["pid"], 1);
    let children = format!("/proc/{0}/task/{0}/children", engine.id());
    let inner = fs::read_to_string(children).unwrap().trim().to_owned();
    let sent = std::process::Command::new("kill").args(["-TERM", &inner]).status().unwrap();
    assert!(sent.success());
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.words(), ["begin", "end"]);
}
