//! The layout of every page: empty and filled, light and dark, narrow and wide.
//! Screenshots are kept in `target/screenshots`.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;

use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::wait_until;

/// Each page and the name of its screenshot.
const PAGES: [(&str, &str); 15] = [
    ("/", "overview"),
    ("/?span=day", "overview-day"),
    ("/tasks", "tasks"),
    ("/tasks?filter=status%3Dfailed", "tasks-failed"),
    ("/tasks/new", "tasks-new"),
    ("/tasks/101", "task"),
    ("/errors", "errors"),
    ("/queues", "queues"),
    ("/limits", "limits"),
    ("/schedules", "schedules"),
    ("/schedules/new", "schedules-new"),
    ("/instances", "instances"),
    ("/health", "health"),
    ("/audit", "audit"),
    ("/tokens", "tokens"),
];

#[test]
fn filled_pages_fit_the_window() {
    let sandbox = sandbox();
    let demo = Served::by(&sandbox, &["demo", "--stay", "--web", "127.0.0.1:0"]);
    demo.running.wait_for_log("The dashboard stays at");
    let database = &["--database", "sqlite:task-engine-demo.db"];
    let run = |args: &[&str]| sandbox.ok(&[args, database].concat());
    run(&[
        "schedules",
        "add",
        "nightly",
        "--cron",
        "30 2 * * *",
        "--time-zone",
        "Europe/Paris",
        "WaitingTask",
        r#"{"waiting_time": 1}"#,
    ]);
    run(&["queues", "pause", "mail", "--reason", "the provider is down"]);
    run(&["cancel", "101", "--yes"]);
    run(&["tokens", "create", "grafana", "--role", "viewer"]);
    check_all(&demo, "demo");
}

#[test]
fn empty_pages_fit_the_window() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let empty = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    check_all(&empty, "empty");
}

fn check_all(served: &Served, kind: &str) {
    let mut browser = Browser::start();
    for (width, height) in [(1440, 900), (390, 844)] {
        for dark in [false, true] {
            browser.size(width, height);
            browser.dark(dark);
            for (path, name) in PAGES {
                if kind == "empty" && path == "/tasks/101" {
                    continue;
                }
                browser.go(&served.at(path));
                let theme = if dark { "dark" } else { "light" };
                keep(&browser.screenshot(), &format!("{kind}-{name}-{theme}-{width}"));
                fits(&mut browser, path, width);
                is_named(&mut browser, path);
                no_page_errors(&mut browser);
            }
        }
    }
}

/// No horizontal scrolling.
pub(crate) fn fits(browser: &mut Browser, path: &str, width: u32) {
    let wide = browser.eval("document.documentElement.scrollWidth").as_u64().unwrap_or(0);
    let out = browser.eval(
        "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, pre, nav, .json')).slice(0, 3).map(e => e.outerHTML.slice(0, 120))",
    );
    assert!(wide <= u64::from(width), "{path} is {wide} wide in a window of {width}: {out}");
}

/// For screen readers: one first heading, and a label for every field.
pub(crate) fn is_named(browser: &mut Browser, path: &str) {
    let nameless = browser.eval(
        "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')]
            .filter(e => !e.closest('[hidden]') && !(e.labels?.length || e.ariaLabel || e.textContent.trim() || e.title
                || e.querySelector('img[alt]'))).map(e => e.outerHTML.slice(0, 120))",
    );
    assert_eq!(nameless, serde_json::json!([]), "{path}");
    let headings = browser.eval("document.querySelectorAll('h1').length");
    assert_eq!(headings, 1, "{path}");
    let doubled = browser.eval(
        "[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, at, all) => all.indexOf(id) !== at)",
    );
    assert_eq!(doubled, serde_json::json!([]), "{path}: ids that are there twice");
}

pub(crate) fn keep(png: &str, name: &str) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../screenshots");
    fs::create_dir_all(&folder).unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(png).unwrap();
    fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
}

/// Text that is cut off.
const CUT_OFF: &str = "[...document.querySelectorAll('.card')].filter((card) => {
  const walker = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
  const edge = card.getBoundingClientRect().right + 1;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const scrolls = node.parentElement.closest('.scroll, pre, .cut, td.name, td.queue, .visually-hidden');
    if (!node.data.trim() || scrolls || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    if (range.getBoundingClientRect().right > edge) return true;
  }
  return false;
}).map((card) => card.innerText.slice(0, 200)).join('|')";

#[test]
fn long_exceptions_are_wrapped() {
    let sandbox = sandbox();
    let name = "Very".repeat(80) + "LongError";
    let script = format!(
        "import json, sys
for line in sys.stdin:
    error = {{'exception': '{name}', 'message': 'm' * 300}}
    print(json.dumps({{'id': json.loads(line)['id'], 'error': error, 'retry': False}}), flush=True)"
    );
    let class = format!(
        "[class.long]\nmode = \"lines\"\ncommand = [\"python3\", \"-c\", {}]\n",
        serde_json::Value::from(script)
    );
    fs::write(sandbox.path("task-engine.toml"), class).expect("a file");
    sandbox.ok(&["create", "long"]);
    let engine = Served::by(&sandbox, &["start", "--web", "127.0.0.1:0"]);
    wait_until("it has failed", || sandbox.status("1") == "failed");
    let mut browser = Browser::start();
    for path in ["/tasks/1", "/", "/errors", "/tasks"] {
        browser.go(&engine.at(path));
        browser.wait("document.body.innerText.includes('long')");
        assert_eq!(browser.eval(CUT_OFF), "", "{path}");
    }
}
