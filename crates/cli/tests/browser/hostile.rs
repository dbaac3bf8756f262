//! Markup in every field that is shown.

use serde_json::json;

use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::wait_until;

const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>",
    "'><svg onload=alert(3)>",
    "javascript:alert(4)",
    "</textarea></title><b id=injected>",
    "{{constructor.constructor('alert(5)')()}}",
    "&lt;script&gt;alert(6)&lt;/script&gt;",
    "\u{202e}txt.exe \u{2066}<i id=injected>",
];

/// Direction marks in the text of a page.
const TURNED: &str = "document.body.innerText.match(/[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u0080-\\u009f]/g)?.length ?? 0";

/// Elements and attributes that came from data.
const INJECTED: &str = "document.querySelectorAll('#injected, main script, main img[src=x], [onerror], [onload], a[href^=javascript]').length";

#[test]
fn data_never_becomes_markup() {
    let sandbox = sandbox();
    let mut queues = Vec::new();
    for text in HOSTILE {
        let parameters = json!({ text: text, "waiting_time": text }).to_string();
        sandbox.ok(&[
            "create",
            text,
            &parameters,
            "--queue",
            text,
            "--unique",
            text,
            "--correlation",
            text,
            "--after",
            "1h",
        ]);
        sandbox.ok(&["queues", "pause", text, "--reason", text]);
        queues.push(text);
        // The error repeats the invalid parameters.
        sandbox.ok(&["create", "WaitingTask", &parameters]);
        sandbox.ok(&["schedules", "add", text, "--cron", "30 2 * * *", text, &parameters]);
        sandbox.ok(&["tokens", "create", text, "--role", "viewer"]);
    }
    let engine = Served::by(&sandbox, &["start", "--web", "127.0.0.1:0", "--instance", HOSTILE[1]]);
    wait_until("the tasks have failed", || {
        sandbox.ok(&["tasks", "class=WaitingTask", "status!=waiting", "--json"]).lines().count()
            + sandbox.ok(&["tasks", "class=WaitingTask", "retries>0", "--json"]).lines().count()
            >= HOSTILE.len()
    });
    let mut browser = Browser::start();
    let mut paths: Vec<String> = (1..=2 * HOSTILE.len()).map(|id| format!("/tasks/{id}")).collect();
    paths.extend(
        [
            "/",
            "/tasks",
            "/errors",
            "/errors?status=waiting",
            "/queues",
            "/schedules",
            "/instances",
            "/health",
            "/audit",
            "/tokens",
        ]
        .map(str::to_owned),
    );
    for text in HOSTILE {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for path in [
            "/tasks?filter=",
            "/schedules/",
            "/errors/",
            "/login?to=",
            "/schedules/preview?time_zone=UTC&rule=",
            "/tasks/preview?operation=retry&filter=",
        ] {
            paths.push(format!("{path}{encoded}"));
        }
    }
    for path in paths {
        browser.go(&engine.at(&path));
        assert_eq!(
            browser.eval(INJECTED),
            0,
            "{path}: {}",
            browser.eval("document.querySelector('main').innerHTML")
        );
        assert_eq!(browser.eval(TURNED), 0, "{path}: {}", browser.page_text());
        // Some pages are errors, which the log contains.
        let errors: Vec<_> = browser
            .errors()
            .into_iter()
            .filter(|it| !it.contains("Failed to load resource"))
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
    }
    no_page_errors(&mut browser);
}
