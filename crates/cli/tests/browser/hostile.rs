//! Text that would like to be more than text, in every field that is shown.

use serde_json::json;

use crate::support::eventually;
use crate::{Browser, Place, Served, nothing_to_complain};

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

/// What turns the text beside it round, in the text of a page.
const TURNED: &str = "document.body.innerText.match(/[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\u0080-\\u009f]/g)?.length ?? 0";

/// Everything that came from data and became a part of a page.
const INJECTED: &str = "document.querySelectorAll('#injected, main script, main img[src=x], [onerror], [onload], a[href^=javascript]').length";

#[test]
fn text_is_escaped_in_pages() {
    let place = Place::new();
    let mut queues = Vec::new();
    for text in HOSTILE {
        let parameters = json!({ text: text, "waiting_time": text }).to_string();
        place.ok(&[
            "create",
            text,
            &parameters,
            "--queue",
            text,
            "--unique",
            text,
            "--correlation",
            text,
            "--in",
            "1h",
        ]);
        place.ok(&["queues", "pause", text, "--reason", text]);
        queues.push(text);
        // The class exists, its parameters are wrong: the error repeats them.
        place.ok(&["create", "WaitingTask", &parameters]);
        place.ok(&["schedules", "add", text, "--cron", "30 2 * * *", text, &parameters]);
        place.ok(&["tokens", "create", text, "--role", "viewer"]);
    }
    let engine = Served::by(&place, &["start", "--web", "127.0.0.1:0", "--instance", HOSTILE[1]]);
    eventually("the tasks have failed", || {
        place.ok(&["tasks", "class=WaitingTask", "status!=waiting", "--json"]).lines().count()
            + place.ok(&["tasks", "class=WaitingTask", "retries>0", "--json"]).lines().count()
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
            "/schedules/preview?zone=UTC&rule=",
            "/tasks/preview?verb=retry&filter=",
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
        // Some of these are not found, or wrong, which the network log tells.
        let complaints: Vec<_> = browser
            .complaints()
            .into_iter()
            .filter(|it| !it.contains("Failed to load resource"))
            .collect();
        assert!(complaints.is_empty(), "{path}: {complaints:?}");
    }
    nothing_to_complain(&mut browser);
}
