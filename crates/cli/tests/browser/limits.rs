//! The pages of limits.

use crate::layout::{fits, is_named, keep};
use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::wait_until;

#[test]
fn limits_are_shown_and_changed() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let class = ["--class", "WaitingTask", "--max", "1", "--key", "customer"];
    sandbox.ok(&[&["limits", "set", "wait"], &class[..]].concat());
    for _ in 0..3 {
        sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 600, "customer": "acme"}"#]);
    }
    let engine =
        Served::by(&sandbox, &["start", "--samples", "--workers", "3", "--web", "127.0.0.1:0"]);
    let shown = || sandbox.ok(&["limits", "show", "wait", "--json"]);
    wait_until("two are blocked", || shown().contains(r#""blocked":{"counted":2,"#));
    let mut browser = Browser::start();
    for (width, height) in [(1440, 900), (390, 844)] {
        for dark in [false, true] {
            browser.size(width, height);
            browser.dark(dark);
            for path in ["/limits", "/limits/wait", "/tasks/2"] {
                browser.go(&engine.at(path));
                browser.eval("document.querySelectorAll('details').forEach(it => it.open = true)");
                let theme = if dark { "dark" } else { "light" };
                keep(
                    &browser.screenshot(),
                    &format!("with{}-{theme}-{width}", path.replace('/', "-")),
                );
                fits(&mut browser, path, width);
                is_named(&mut browser, path);
            }
        }
    }
    browser.size(1440, 900);
    // The forms work without scripts.
    browser.scripts(false);
    browser.go(&engine.at("/limits"));
    browser.follow(|browser| browser.click("#limits td a"));
    let keys = browser.text("#limit-keys");
    for words in ["acme", "until an attempt ends", "task "] {
        assert!(keys.contains(words), "{words}: {keys}");
    }
    browser.click("details.ask summary");
    browser.fill("form[action$='set-limit'] [name=max]", "2");
    browser.follow(|browser| browser.click("form[action$='set-limit'] button"));
    let flash = browser.text(".flash");
    assert_eq!(
        flash,
        "Limit wait was changed: for class WaitingTask, at most 2 running, for each customer."
    );
    wait_until("another one runs", || shown().contains(r#""blocked":{"counted":1,"#));
    browser.click("details.ask:nth-of-type(2) summary");
    browser.follow(|browser| browser.click("form[action$='clear-limit'] button"));
    assert_eq!(browser.text(".flash"), "Limit wait was removed.");
    assert!(browser.page_text().contains("There are no limits"), "{}", browser.page_text());
    browser.click("details.ask summary");
    browser.fill("form[action$='set-limit'] [name=name]", "api");
    browser.fill("form[action$='set-limit'] [name=of]", "call");
    browser.fill("form[action$='set-limit'] [name=rate]", "100/1s");
    browser.follow(|browser| browser.click("form[action$='set-limit'] button"));
    assert!(browser.text("#limits").contains("100/1s"), "{}", browser.text("#limits"));
    no_page_errors(&mut browser);
}
