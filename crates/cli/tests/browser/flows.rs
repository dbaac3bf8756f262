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

    for width in [1440, 390] {
        browser.size(width, 844);
        browser.go(&engine.at("/flows/nightly"));
        graph_is_drawn(&mut browser);
        graph_is_used_by_keyboard(&mut browser);
    }
    browser.size(1440, 900);
    browser.go(&engine.at("/flows/nightly"));
    assert_eq!(
        browser.eval("document.querySelector('.graph a.failed').getAttribute('aria-label').startsWith('load orders, task ')"),
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

/// The drawing is inside of its frame, which is inside of the window and shows each node by
/// scrolling. Nodes do not overlap, their text is inside, and each status has its own icon.
fn graph_is_drawn(browser: &mut Browser) {
    let wrong = browser.eval(
        "(() => {
            const wrong = [];
            const inside = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1
                && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
            const frame = document.querySelector('.scroll.graph');
            const box = frame.getBoundingClientRect();
            if (box.left < 0 || box.right > innerWidth) wrong.push('the frame is wider than the window');
            const nodes = [...frame.querySelectorAll('a.node')];
            if (nodes.length != 10) wrong.push(nodes.length + ' nodes');
            const drawing = frame.querySelector('svg').getBoundingClientRect();
            const boxes = nodes.map(node => node.querySelector('rect').getBoundingClientRect());
            const icons = {};
            nodes.forEach((node, n) => {
                const name = node.getAttribute('aria-label');
                if (!inside(boxes[n], drawing)) wrong.push(name + ' is outside of the drawing');
                boxes.slice(0, n).forEach(other => {
                    if (other.left < boxes[n].right && boxes[n].left < other.right
                        && other.top < boxes[n].bottom && boxes[n].top < other.bottom) wrong.push(name + ' overlaps another');
                });
                for (const part of node.querySelectorAll('text, .icon'))
                    if (!inside(part.getBoundingClientRect(), boxes[n])) wrong.push(name + ': ' + part.outerHTML);
                const drawn = [...node.querySelectorAll('.icon')].map(icon => icon.getAttribute('d'));
                const status = node.getAttribute('class').replace('node', '').trim();
                (icons[status] ??= new Set()).add(drawn.join());
            });
            for (const node of nodes) {
                node.scrollIntoView({ block: 'nearest', inline: 'nearest' });
                if (!inside(node.querySelector('rect').getBoundingClientRect(), frame.getBoundingClientRect()))
                    wrong.push(node.getAttribute('aria-label') + ' cannot be scrolled to');
            }
            const statuses = Object.keys(icons).sort().join();
            if (statuses != 'blocked,cancelled,failed,running,stopped,waiting') wrong.push('statuses: ' + statuses);
            if (Object.values(icons).some(drawn => drawn.size != 1)) wrong.push('one status, several icons');
            if (new Set(Object.values(icons).flatMap(drawn => [...drawn])).size != 6) wrong.push('one icon, several statuses');
            frame.scrollTo(0, 0);
            return wrong;
        })()",
    );
    assert_eq!(wrong, json!([]));
}

/// Tab visits the frame, then each node, which is scrolled into view and marked; Enter opens it.
fn graph_is_used_by_keyboard(browser: &mut Browser) {
    let focused = |browser: &mut Browser, selector: &str| {
        browser.eval(&format!("document.activeElement.matches({})", json!(selector))) == true
    };
    browser.eval("document.querySelector('#flow-facts a').focus()");
    let mut pressed = 0;
    while !focused(browser, ".scroll.graph") {
        browser.press("Tab");
        pressed += 1;
        assert!(pressed < 50, "Tab does not reach the graph");
    }
    let mut visited = Vec::new();
    for _ in 0..10 {
        browser.press("Tab");
        assert!(focused(browser, ".graph a.node:focus-visible"), "after {visited:?}");
        let state = browser.eval(
            "(() => {
                const node = document.activeElement;
                const inner = node.querySelector('rect').getBoundingClientRect();
                const outer = node.closest('.graph').getBoundingClientRect();
                return [node.getAttribute('href'), inner.left >= outer.left - 1 && inner.right <= outer.right + 1,
                    getComputedStyle(node.querySelector('rect')).strokeWidth];
            })()",
        );
        assert_eq!((&state[1], &state[2]), (&json!(true), &json!("3px")), "{state}");
        visited.push(state[0].as_str().unwrap_or_default().to_owned());
    }
    visited.sort();
    visited.dedup();
    assert_eq!(visited.len(), 10, "{visited:?}");
    let address = browser.eval("document.activeElement.getAttribute('href')");
    browser.follow(|browser| browser.press("Enter"));
    assert_eq!(browser.eval("location.pathname"), address);
}
