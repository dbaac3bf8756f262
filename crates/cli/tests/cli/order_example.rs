//! The order in Python, whose engine is killed between all its steps.

use std::fs;

use serde_json::{Value, json};
use task_engine_test_harness::{Sandbox, wait_until};

use super::durable_executables::{lines, result, signal, steps};
use super::executables::{copy_examples, create, ended, is_here, stop};
use super::support::sandbox;

const START: [&str; 3] = ["start", "--config", "order.toml"];

/// Added to the program: it stops at every point that it reaches for the first time, so
/// that it is killed there. An effect is a point before its record, an answer of the engine
/// one after it.
const POINTS: &str = r#"
import time
import durable

def point(name):
    with open("points", "a+") as points:
        points.seek(0)
        if name in points.read().splitlines():
            return
        points.write(name + "\n")
    time.sleep(3600)

plain_effect, plain_ask = effect, durable.Task._ask

def effect(name, task, details):
    result = plain_effect(name, task, details)
    point(f"effect {name}")
    return result

def ask(task, request):
    answer = plain_ask(task, request)
    if "run" not in answer:
        kind = next(iter(request))
        point(f"{kind} {request[kind]}")
    return answer

durable.Task._ask = ask
"#;

fn place() -> Sandbox {
    let sandbox = sandbox();
    copy_examples(&sandbox);
    let program = fs::read_to_string(sandbox.path("order.py")).unwrap();
    let (code, run) = program.split_at(program.find("\nrun(").unwrap());
    fs::write(sandbox.path("order.py"), format!("{code}{POINTS}{run}")).unwrap();
    sandbox
}

/// The names of the effects, in their order.
fn effects(sandbox: &Sandbox) -> Vec<String> {
    let name = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
    lines(sandbox, "effects.txt").into_iter().map(name).collect()
}

/// Kills the engine at every point, until the order ends. Returns its result and its
/// points. Every effect happens twice, because the engine was killed once before its
/// record, and never after it.
fn complete(item: &str, approve_within: &str, answer: Option<bool>) -> (Value, Vec<String>) {
    let sandbox = place();
    let order = json!({"item": item, "cents": 4200, "approve_within": approve_within});
    let id = create(&sandbox, "order", &order.to_string());
    let mut answer = answer;
    loop {
        let reached = lines(&sandbox, "points").len();
        let engine = sandbox.start(&START);
        let has_ended = || matches!(sandbox.status(&id).as_str(), "stopped" | "failed");
        wait_until("the next point or the end", || {
            let waits = || steps(&sandbox, &id).iter().any(|name| name == "approved");
            if answer.is_some() && waits() {
                let answer = json!({"yes": answer.take(), "by": "ada"});
                let sent = signal(&sandbox, &id, &answer);
                assert!(["delivered", "kept"].contains(&sent), "{sent}");
            }
            lines(&sandbox, "points").len() > reached || has_ended()
        });
        if has_ended() {
            stop(engine);
            break;
        }
        engine.signal("KILL");
        engine.end();
    }
    let points = lines(&sandbox, "points");
    let happened = points.iter().filter_map(|point| point.strip_prefix("effect "));
    let twice: Vec<&str> = happened.flat_map(|name| [name, name]).collect();
    assert_eq!(effects(&sandbox), twice);
    (result(&ended(&sandbox, &id)).clone(), points)
}

const PAID: [&str; 4] = ["effect reserve", "step reserve", "effect charge", "step charge"];
const UNDONE: [&str; 6] = [
    "effect refund",
    "step refund",
    "effect release",
    "step release",
    "effect notify",
    "step notify",
];

#[test]
fn approved_order_survives_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, points) = complete("lamp", "7d", Some(true));
    let shipped = ["effect ship", "call ship", "sleep delivery", "effect notify", "step notify"];
    assert_eq!(points, [&PAID[..], &["wait approved"], &shipped].concat());
    assert!(result.as_str().unwrap().starts_with("shipped as parcel ship-"), "{result}");
}

#[test]
fn refused_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, points) = complete("lamp", "7d", Some(false));
    assert_eq!(points, [&PAID[..], &["wait approved"], &UNDONE].concat());
    assert_eq!(result, "cancelled: refused by ada");
}

#[test]
fn unanswered_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, points) = complete("lamp", "1s", None);
    assert_eq!(points, [&PAID[..], &["wait approved"], &UNDONE].concat());
    assert_eq!(result, "cancelled: not approved in time");
}

#[test]
fn unshippable_order_is_undone_despite_kills() {
    if !is_here("python3") {
        return;
    }
    let (result, points) = complete("piano", "7d", Some(true));
    assert_eq!(points, [&PAID[..], &["wait approved", "call ship"], &UNDONE].concat());
    let result = result.as_str().unwrap();
    assert!(result.ends_with("failed: too heavy for the courier"), "{result}");
}
