//! As process 1, as in a container: there a signal without a handler is
//! ignored, so the handlers must be the engine's own.

use std::fs;
use std::process::Command;

use super::support::sandbox;
use task_engine_test_harness::{not_run, wait_until};

/// With a user namespace, this needs no root.
const NAMESPACE: [&str; 6] =
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];

#[test]
fn process_one_stops_on_sigterm() {
    let tried = Command::new("unshare").args(&NAMESPACE[1..]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return not_run("process_one_stops_on_sigterm", "user namespaces are not allowed here");
    }
    let sandbox = sandbox();
    sandbox.ok(&["create", "WitnessTask", r#"{"ms": 300}"#]);
    let witness = sandbox.witness();
    let engine = sandbox.start_under(&NAMESPACE, &["start", "--config", "witness.toml"]);
    wait_until("the task begins", || witness.events() == ["begin"]);
    let instances: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["instances", "--json"])).unwrap();
    assert_eq!(instances["pid"], 1);
    let children = format!("/proc/{0}/task/{0}/children", engine.id());
    let inner = fs::read_to_string(children).unwrap().trim().to_owned();
    let sent = Command::new("kill").args(["-TERM", &inner]).status().unwrap();
    assert!(sent.success());
    let ended = engine.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(witness.events(), ["begin", "end"]);
}
