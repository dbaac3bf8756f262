//! Limits: set, listed, explained and cleared from outside.

use serde_json::{Value, json};
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

fn json_of(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    serde_json::from_str(&sandbox.ok(arguments)).expect("JSON")
}

fn limit(sandbox: &Sandbox, name: &str) -> Value {
    json_of(sandbox, &["limits", "show", name, "--json"])
}

fn sets_explains_and_clears(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    let nothing = sandbox.run(&["limits"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("There is no limit"), "{}", nothing.err);

    let set = ["limits", "set", "wait", "--class", "WaitingTask", "--max", "1"];
    let added = sandbox.run(&set);
    assert_eq!(added.code, Some(0), "{}", added.err);
    assert_eq!(added.out, "Limit wait was added: for class WaitingTask, at most 1 running.\n");
    assert!(added.err.contains("limits clear wait"), "{}", added.err);
    let again = sandbox.ok(&set);
    assert!(again.starts_with("Limit wait was so already"), "{again}");

    for _ in 0..3 {
        sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 60}"#]);
    }
    let engine = sandbox.start(&["start", "--workers", "3"]);
    wait_until("one runs and two are blocked", || {
        let found = limit(sandbox, "wait");
        found["running"] == 1 && found["blocked"]["counted"] == 2
    });
    let found = limit(sandbox, "wait");
    let key = &found["keys"][0];
    assert_eq!((&key["key"], &key["waits_for"]), (&json!(""), &json!("running")), "{found}");
    let holder = key["holders"][0]["task_id"].to_string();
    assert_eq!(sandbox.status(&holder), "running");
    assert!(key["blocked_since"].is_string() && key["holders"][0]["since"].is_string(), "{key}");

    let blocked = if holder == "1" { "2" } else { "1" };
    let why = sandbox.ok(&["why", blocked]);
    let first = format!("1. limit wait allows 1 running, and task {holder} runs on ");
    assert!(why.contains(&first), "{why}");
    assert!(why.contains("this one may start when it ends"), "{why}");
    let reasons = json_of(sandbox, &["why", blocked, "--json"]);
    assert_eq!(reasons["reasons"][0]["reason"], "limited");
    assert_eq!(reasons["reasons"][0]["waits_for"], "running");

    let listed = sandbox.ok(&["limits", "list"]);
    let line = listed.lines().nth(1).expect("a limit");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["wait", "class", "WaitingTask", "-", "1", "-", "1", "2", "0", "operator"]);
    let shown = sandbox.ok(&["limits", "show", "wait"]);
    for words in ["at most 1 running", "class WaitingTask", "until an attempt ends", "(none)"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }

    let report = json_of(sandbox, &["limits", "set", "wait", "--max", "2", "--json"]);
    assert_eq!(report["counts"], json!({"changed": 1}));
    wait_until("two run", || limit(sandbox, "wait")["running"] == 2);
    assert_eq!(limit(sandbox, "wait")["target"], json!({"class": "WaitingTask"}));

    let cleared = sandbox.run(&["limits", "clear", "wait", "--reason", "no longer needed"]);
    assert_eq!((cleared.code, cleared.out.as_str()), (Some(0), "Limit wait was removed.\n"));
    let undo = "limits set wait --class WaitingTask --max 2";
    assert!(cleared.err.contains(undo), "{}", cleared.err);
    wait_until("all run", || ["1", "2", "3"].iter().all(|id| sandbox.status(id) == "running"));
    let audit = sandbox.ok(&["audit"]);
    for words in ["limits.set", "limits.clear", "no longer needed", "Limit wait was added"] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
    sandbox.ok(&["cancel", "1", "2", "3"]);
    wait_until("all have ended", || {
        ["1", "2", "3"].iter().all(|id| sandbox.status(id) == "cancelled")
    });
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn limits_are_set_and_cleared_on_sqlite() {
    sets_explains_and_clears(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_and_cleared_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    tokio::task::spawn_blocking(move || sets_explains_and_clears(&sandbox_on(&url))).await.unwrap();
}

#[test]
fn wrong_limits_are_refused() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["limits", "set", "sync", "--class", "sync", "--max", "2"]);
    for (arguments, code, words) in [
        (&["limits", "set", "sync"][..], 2, "nothing to set"),
        (&["limits", "set", "sync", "--class", "sync"], 2, "nothing to set"),
        (&["limits", "set", "sync", "--max", "0"], 2, "1 to 10000, not 0"),
        (&["limits", "set", "sync", "--max", "-1"], 2, "--max"),
        (&["limits", "set", "sync", "--rate", "100"], 2, "like 100/1s"),
        (&["limits", "set", "sync", "--rate", "0/1s"], 2, "1 to 1000000 starts"),
        (&["limits", "set", "sync", "--even"], 2, "no rate to spread"),
        (&["limits", "set", "sync", "--in-order", "--max", "5"], 2, "omit max"),
        (&["limits", "set", "sync", "--weight", "acme"], 2, "KEY=N"),
        (&["limits", "set", "sync", "--weight", "acme=2"], 2, "needs a key"),
        (&["limits", "set", "sync", "--without", "max"], 2, "has no effect"),
        (&["limits", "set", "sync", "--queue", "mail", "--max", "1"], 4, "applies to class sync"),
        (&["limits", "show", "sycn"], 3, "there is no limit sycn; did you mean sync?"),
        (&["limits", "clear", "sycn"], 3, "did you mean sync?"),
        (&["limits", "open", "sycn"], 3, "did you mean sync?"),
    ] {
        let done = sandbox.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(words), "{arguments:?}: {words}: {}", done.err);
    }
    let left = limit(&sandbox, "sync");
    assert_eq!((&left["max"], &left["rate"]), (&json!(2), &Value::Null));
    let open = sandbox.ok(&["limits", "open", "sync"]);
    assert_eq!(open, "Limit sync was not closed.\n");
}

#[test]
fn declared_limit_can_be_overridden_only() {
    let sandbox = sandbox();
    let config = "[class.sync]\ncommand = [\"true\"]\nlimit = { max = 2, key = \"customer\" }\n";
    std::fs::write(sandbox.path("task-engine.toml"), config).unwrap();
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    let clear = sandbox.run(&["limits", "clear", "sync"]);
    assert_eq!(clear.code, Some(4), "{}", clear.err);
    assert!(clear.err.contains("set other options, or remove it from the code"), "{}", clear.err);
    sandbox.ok(&["limits", "set", "sync", "--max", "5"]);
    let found = limit(&sandbox, "sync");
    assert_eq!((&found["max"], &found["key"]), (&json!(5), &json!("customer")));
    assert_eq!(found["declared"], json!({"max": 2, "key": "customer"}));
    let check = json_of(&sandbox, &["doctor", "--json"]);
    let check = check["checks"].as_array().unwrap().iter().find(|it| it["name"] == "limits");
    let check = check.expect("a check of limits");
    assert_eq!(check["verdict"], "ok", "{check}");
    let message = check["message"].as_str().unwrap();
    assert!(message.contains("set by an operator: sync has at most 5 running"), "{message}");
    let cleared = sandbox.ok(&["limits", "clear", "sync"]);
    assert_eq!(cleared, "Limit sync has the options that engines declare again.\n");
    assert_eq!(limit(&sandbox, "sync")["max"], 2);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn doctor_finds_missing_named_limit() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let unknown = sandbox.run(&["create", "WaitingTask", "--limit", "api=acme"]);
    assert_ne!(unknown.code, Some(0));
    assert!(unknown.err.contains("api"), "{}", unknown.err);
    let added = sandbox.run(&["limits", "set", "api", "--max", "1"]);
    assert!(added.err.contains("create --limit api=KEY"), "{}", added.err);
    sandbox.ok(&["create", "WaitingTask", "--limit", "api=acme", "--after", "1h"]);
    sandbox.ok(&["limits", "clear", "api"]);
    let doctor = sandbox.run(&["doctor"]);
    assert!(doctor.out.contains("name limits that do not exist"), "{}", doctor.out);
    assert!(doctor.out.contains("api (task 1)"), "{}", doctor.out);
}
