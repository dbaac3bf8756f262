//! The order in Python, whose engine is killed between all its steps.

use std::collections::HashSet;

use serde_json::{Value, json};
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

use super::durable_executables::{lines, result, signal, steps};
use super::executables::{copy_examples, create, ended, is_here, stop};
use super::support::sandbox;

const START: [&str; 3] = ["start", "--config", "order.toml"];

/// The steps whose effects must not happen again: those that are recorded. The parcel is
/// sent by a child task.
fn recorded(sandbox: &Sandbox, id: &str) -> HashSet<String> {
    let mut all: HashSet<String> = steps(sandbox, id).into_iter().collect();
    let tasks = sandbox.tasks();
    let is_shipped = |task: &Value| task["class"] == "ship" && task["status"] == "stopped";
    all.retain(|name| name != "ship");
    all.extend(tasks.iter().any(is_shipped).then(|| "ship".to_owned()));
    all
}

/// The names of the effects, in their order.
fn effects(sandbox: &Sandbox) -> Vec<String> {
    let name = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
    lines(sandbox, "effects.txt").into_iter().map(name).collect()
}

/// Kills the engine after every effect and after every record, and starts it again, until
/// the order ends.
fn complete(item: &str, approve_within: &str, answer: Option<bool>) -> (Value, Vec<String>) {
    let sandbox = sandbox();
    copy_examples(&sandbox);
    let order = json!({"item": item, "cents": 4200, "approve_within": approve_within});
    let id = create(&sandbox, "order", &order.to_string());
    let (mut done, mut known, mut kills) = (HashSet::new(), 0, 0);
    for kill_after_effect in [true, false].into_iter().cycle() {
        let engine: RunningProgram = sandbox.start(&START);
        let before = effects(&sandbox).len();
        let has_ended = || matches!(sandbox.status(&id).as_str(), "stopped" | "failed");
        let mut asked = false;
        wait_until("an effect, a record or the end", || {
            let now = recorded(&sandbox, &id);
            if let (Some(yes), true, false) = (answer, now.contains("approved"), asked) {
                signal(&sandbox, &id, &json!({"yes": yes, "by": "ada"}));
                asked = true;
            }
            let has_effect = effects(&sandbox).len() > before;
            has_ended() || if kill_after_effect { has_effect } else { now.len() > known }
        });
        if has_ended() {
            stop(engine);
        } else {
            engine.signal("KILL");
            engine.end();
            kills += 1;
        }
        let all = effects(&sandbox);
        for again in &all[before..] {
            assert!(!done.contains(again), "{again} was recorded, and happened again: {all:?}");
        }
        done = recorded(&sandbox, &id);
        known = done.len();
        if has_ended() {
            break;
        }
    }
    assert!(kills >= 5, "{kills}");
    // Without those that were repeated because the engine was killed before their record.
    let mut all = effects(&sandbox);
    all.dedup();
    (result(&ended(&sandbox, &id)).clone(), all)
}

#[test]
fn approved_order_survives_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, effects) = complete("lamp", "7d", Some(true));
    assert_eq!(effects, ["reserve", "charge", "ship", "notify"]);
    assert!(result.as_str().unwrap().starts_with("shipped as parcel ship-"), "{result}");
}

#[test]
fn refused_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, effects) = complete("lamp", "7d", Some(false));
    assert_eq!(effects, ["reserve", "charge", "refund", "release", "notify"]);
    assert_eq!(result, "cancelled: refused by ada");
}

#[test]
fn unanswered_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, effects) = complete("lamp", "1s", None);
    assert_eq!(effects, ["reserve", "charge", "refund", "release", "notify"]);
    assert_eq!(result, "cancelled: not approved in time");
}

#[test]
fn unshippable_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, effects) = complete("piano", "7d", Some(true));
    assert_eq!(effects, ["reserve", "charge", "refund", "release", "notify"]);
    let result = result.as_str().unwrap();
    assert!(result.ends_with("failed: too heavy for the courier"), "{result}");
}
