//! The pages of flows.

use serde_json::{Map, Value, json};

use crate::layout::{fits, is_named, keep};
use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::{Sandbox, wait_until};

fn run(sandbox: &Sandbox, name: &str, tasks: &Map<String, Value>) {
    let flow = json!({"name": name, "correlation_id": name, "tasks": tasks});
    std::fs::write(sandbox.path("flow.json"), flow.to_string()).unwrap();
    sandbox.ok(&["flow", "run", "flow.json"]);
}

fn tasks(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(tasks) => tasks,
        _ => Map::new(),
    }
}

/// Ten tasks: done, failed, cancelled, running, waiting and blocked.
fn ten() -> Map<String, Value> {
    let quick = json!({"waiting_time": 0.01});
    tasks(json!({
        "extract": {"class": "WaitingTask", "parameters": quick},
        "load users": {"class": "WaitingTask", "parameters": quick, "after": "extract"},
        "load orders": {"class": "FailingNotRetryTask", "after": "extract"},
        "load all of the events of yesterday": {"class": "WaitingTask", "parameters": {"waiting_time": 600}, "after": "extract"},
        "join": {"class": "WaitingTask", "after": ["load users", "load orders"]},
        "report": {"class": "WaitingTask", "after": "join"},
        "alert": {"class": "WaitingTask", "parameters": quick, "after_failure": ["load orders"]},
        "clean": {"class": "WaitingTask", "parameters": quick, "after_end": ["load users", "load orders", "load all of the events of yesterday"]},
        "archive": {"class": "WaitingTask", "after": "clean"},
        "tomorrow": {"class": "WaitingTask", "after": "load users", "delay": "1h"},
    }))
}

fn ten_thousand() -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("split".into(), json!({"class": "split"}));
    let names: Vec<_> = (0..9_998).map(|n| format!("part {n}")).collect();
    for name in &names {
        all.insert(name.clone(), json!({"class": "resize_image", "after": "split"}));
    }
    all.insert("join".into(), json!({"class": "join", "after": names}));
    all
}

#[test]
fn flows_are_listed_and_drawn() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let engine =
        Served::by(&sandbox, &["start", "--samples", "--workers", "3", "--web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    look(&mut browser, &engine, "/flows", "flows-empty");
    run(&sandbox, "nightly", &ten());
    run(&sandbox, "images", &ten_thousand());
    let counts = || {
        let lines = sandbox.ok(&["flow", "list", "--json"]);
        let flow = lines.lines().last().unwrap_or_default();
        serde_json::from_str::<Value>(flow).unwrap()["counts"].clone()
    };
    wait_until("only the long one runs", || {
        counts()
            == json!({"blocked": 2, "waiting": 1, "running": 1, "stopped": 3, "failed": 1, "cancelled": 2, "not_needed": 0, "and_more": false})
    });
    for (path, name) in [
        ("/flows", "flows"),
        ("/flows/nightly", "flow-10"),
        ("/flows/images", "flow-10000"),
        ("/tasks/5", "task-in-flow"),
    ] {
        look(&mut browser, &engine, path, name);
    }

    // The nodes are links, by keyboard, too.
    browser.size(1440, 900);
    browser.go(&engine.at("/flows/nightly"));
    assert_eq!(browser.eval("document.querySelectorAll('.graph a.node').length"), 10);
    assert_eq!(
        browser.eval("document.querySelector('.graph a.failed').getAttribute('aria-label').startsWith('load orders, task ')"),
        true
    );
    assert_eq!(
        browser.eval("(() => { const node = document.querySelector('.graph a.blocked'); node.focus(); return document.activeElement === node; })()"),
        true
    );
    // Live: the running task is cancelled, and the page shows it.
    let running = browser
        .eval("document.querySelector('.graph a.running').getAttribute('href').split('/').pop()");
    sandbox.ok(&["cancel", running.as_str().unwrap(), "--yes"]);
    wait_until("the drawing has changed", || {
        browser.eval("document.querySelectorAll('.graph a.running').length") == 0
    });
    // Without scripts.
    browser.scripts(false);
    browser.go(&engine.at("/flows"));
    browser.follow(|browser| browser.click("#flows tr:last-child td a"));
    assert!(browser.text("#flow-tasks").contains("load orders"));
    browser.follow(|browser| browser.click("#flow-facts .button"));
    assert!(browser.page_text().contains("?"), "{}", browser.page_text());
    no_page_errors(&mut browser);
}

fn look(browser: &mut Browser, engine: &Served, path: &str, name: &str) {
    for (width, height) in [(1440, 900), (390, 844)] {
        for dark in [false, true] {
            browser.size(width, height);
            browser.dark(dark);
            browser.go(&engine.at(path));
            let theme = if dark { "dark" } else { "light" };
            keep(&browser.screenshot(), &format!("{name}-{theme}-{width}"));
            fits(browser, path, width);
            is_named(browser, path);
        }
    }
}
