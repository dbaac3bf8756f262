//! Actions of a user: forms, buttons and keys.

use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::wait_until;

#[test]
fn demo_is_watched_live() {
    let sandbox = sandbox();
    let demo = Served::by(&sandbox, &["demo", "--stay", "--web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&demo.at("/tasks"));
    // The page is never loaded again: what it shows comes by itself.
    browser.eval("window.stayed = true");
    let row = "document.querySelector('tr[data-key=\"100\"]')";
    browser.wait(&format!("{row}.innerText.includes('stopped')"));
    browser.wait("document.querySelector('tr[data-key=\"104\"]').innerText.includes('failed')");
    assert_eq!(browser.eval("window.stayed"), true);
    no_page_errors(&mut browser);
    demo.running.wait_for_log("The dashboard stays at");
    demo.running.signal("TERM");
    assert_eq!(demo.running.end().code, Some(0));
}

#[test]
fn failed_task_is_found_and_retried() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let engine = Served::by(&sandbox, &["start", "--web", "127.0.0.1:0"]);
    wait_until("both have ended", || {
        sandbox.status("1") == "failed" && sandbox.status("2") == "stopped"
    });
    let mut browser = Browser::start();
    browser.go(&engine.at("/"));
    // By keys alone: to the tasks, to the filter, and to the first row.
    browser.press("g");
    browser.follow(|browser| browser.press("t"));
    browser.press("/");
    browser.fill("[data-filter]", "status=failed");
    browser.follow(|browser| browser.press("Enter"));
    assert_eq!(browser.eval("document.querySelectorAll('tr[data-key]').length"), 1);
    browser.eval("document.activeElement.blur()");
    browser.press("j");
    browser.follow(|browser| browser.press("Enter"));
    let text = browser.page_text();
    assert!(text.contains("ZeroDivisionError") && text.contains("divided by 0"), "{text}");
    browser.click("#executions details summary");
    assert!(browser.page_text().contains("samples.rs"), "a backtrace: {}", browser.page_text());
    browser.follow(|browser| browser.click("[data-act=retry]"));
    let flash = browser.text(".flash");
    assert!(flash.contains("was retried"), "{flash}");
    // Its second attempt comes by itself.
    browser.wait("document.body.innerText.includes('attempt 2') || document.querySelectorAll('#executions tbody tr').length === 2");
    no_page_errors(&mut browser);
    assert_eq!(sandbox.task("1")["executions"].as_array().map(Vec::len), Some(2));
}

#[test]
fn filter_error_and_suggestions_are_shown() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks?filter=statu%3Dfailed"));
    let text = browser.page_text();
    assert!(text.contains("status"), "{text}");
    // The answer is 400, which Chromium notes as an error of the network.
    let others: Vec<_> = browser.errors().into_iter().filter(|it| !it.contains("400")).collect();
    assert!(others.is_empty(), "{others:?}");
    browser.go(&web.at("/tasks"));
    browser.fill("[data-filter]", "sta");
    browser.wait("document.querySelector('#suggestions li')?.innerText.includes('status')");
    browser.press("ArrowDown");
    browser.press("Enter");
    browser.wait("document.querySelector('[data-filter]').value.startsWith('status')");
    no_page_errors(&mut browser);
}

#[test]
fn tasks_are_cancelled_after_preview() {
    let sandbox = sandbox();
    for _ in 0..3 {
        sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    }
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks"));
    browser.click("[data-select-all]");
    browser.wait("document.querySelector('[data-selected-count]').innerText === '3'");
    browser.follow(|browser| browser.click("[data-bulk=cancel]"));
    assert!(browser.page_text().contains("never run"), "{}", browser.page_text());
    assert_eq!(sandbox.status("1"), "waiting", "a preview does nothing");
    browser.fill("[name=reason]", "a try");
    browser.follow(|browser| browser.click("form[action$='/operations/cancel'] button"));
    assert!(
        browser.text(".flash").contains("3 tasks were cancelled"),
        "{}",
        browser.text(".flash")
    );
    assert_eq!(sandbox.status("2"), "cancelled");
    assert!(sandbox.ok(&["audit"]).contains("a try"));
    no_page_errors(&mut browser);
}

#[test]
fn queue_is_paused_and_resumed() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--queue", "mail"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/queues"));
    browser.click("tr[data-key=mail] summary");
    browser.fill("tr[data-key=mail] [name=reason]", "the provider is down");
    browser.follow(|browser| browser.click("tr[data-key=mail] form button"));
    let row = browser.text("tr[data-key=mail]");
    assert!(row.contains("paused") && row.contains("the provider is down"), "{row}");
    assert!(sandbox.ok(&["queues", "list"]).contains("paused"));
    browser.follow(|browser| browser.click("tr[data-key=mail] form button"));
    assert!(browser.text("tr[data-key=mail]").contains("open"));
    no_page_errors(&mut browser);
}

#[test]
fn schedule_is_created_with_preview() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/schedules/new"));
    browser.fill("[name=name]", "night shift");
    browser.fill("[name=time_zone]", "Europe/Paris");
    browser.fill("[name=rule]", "30 2 * * *");
    // The last Sunday of March has no half past two there.
    browser.wait("document.querySelector('#preview').innerText.includes('02:30')");
    browser.fill("[name=class]", "WaitingTask");
    browser.fill("[name=parameters]", r#"{"waiting_time": 1}"#);
    browser.follow(|browser| {
        browser.click("main form[data-preview] button:not([formmethod=get]):not([name=preview])");
    });
    let text = browser.page_text();
    assert!(text.contains("night shift") && text.contains("Europe/Paris"), "{text}");
    assert!(sandbox.ok(&["schedules", "list"]).contains("night shift"));
    no_page_errors(&mut browser);
}

#[test]
fn tasks_of_dead_engine_are_recovered() {
    let sandbox = sandbox();
    let (engine, _) = sandbox.start_on_witness(
        600_000,
        &["start", "--instance", "doomed", "--heartbeat", "1s", "--dead-after", "3s"],
    );
    engine.signal("KILL");
    drop(engine);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    // Its lease must run out first, unless its process is seen to be gone.
    browser.go(&web.at("/instances"));
    browser.wait("document.querySelector('#orphans').innerText.includes('doomed')");
    browser.follow(|browser| browser.click("#orphans form button"));
    assert!(browser.text(".flash").contains("recovered"), "{}", browser.text(".flash"));
    assert_eq!(sandbox.status("1"), "waiting");
    no_page_errors(&mut browser);
}

#[test]
fn pages_work_without_scripts() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.scripts(false);
    browser.go(&web.at("/tasks/1"));
    browser.follow(|browser| browser.click("form[action$='/operations/cancel'] button"));
    assert!(browser.text(".flash").contains("cancelled"));
    assert_eq!(sandbox.status("1"), "cancelled");
    for path in ["/", "/tasks", "/errors", "/queues", "/schedules", "/instances", "/health"] {
        browser.go(&web.at(path));
        assert_eq!(browser.eval("document.querySelectorAll('h1').length"), 1, "{path}");
    }
    no_page_errors(&mut browser);
}

#[test]
fn row_under_pointer_stays() {
    let sandbox = sandbox();
    for _ in 0..3 {
        sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    }
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks"));
    browser.point_at("tr[data-key=\"2\"] td:nth-child(4)");
    let before =
        browser.eval("document.querySelector('tr[data-key=\"2\"]').getBoundingClientRect().y");
    sandbox.ok(&["create", "WaitingTask", "--after", "1h"]);
    sandbox.ok(&["cancel", "2"]);
    // Shown rows change in place. New rows are announced, not inserted.
    browser.wait("document.querySelector('tr[data-key=\"2\"]').innerText.includes('cancelled')");
    browser.wait("!document.querySelector('[data-pill]').hidden");
    assert_eq!(
        browser.eval("document.querySelector('tr[data-key=\"4\"]')"),
        serde_json::Value::Null
    );
    let after =
        browser.eval("document.querySelector('tr[data-key=\"2\"]').getBoundingClientRect().y");
    // The button itself takes no room from the row that is pointed at.
    assert_eq!(before, after);
    browser.click("[data-pill]");
    browser.wait("document.querySelector('tr[data-key=\"4\"]')");
    no_page_errors(&mut browser);
}

#[test]
fn user_logs_in() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let token = sandbox.ok(&["tokens", "create", "ann", "--role", "viewer"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0", "--web-role", "none"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks?filter=status%3Dfailed"));
    browser.fill("[name=secret]", "te_wrong");
    browser.follow(|browser| browser.click("main form button"));
    assert!(browser.page_text().contains("Wrong password or token"));
    browser.errors();
    browser.fill("[name=secret]", token.trim());
    browser.follow(|browser| browser.click("main form button"));
    // To where they wanted to go, and no further than they may.
    assert_eq!(browser.eval("location.search"), "?filter=status%3Dfailed");
    assert!(browser.page_text().contains("ann · viewer"));
    assert_eq!(browser.eval("document.cookie"), "", "scripts cannot read the session");
    sandbox.ok(&["tokens", "revoke", "ann"]);
    browser.go(&web.at("/tasks"));
    assert!(browser.eval("location.pathname").as_str().is_some_and(|path| path == "/login"));
}

#[test]
fn double_click_acts_once() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks/1"));
    let sent = "(form => [1, 2].map(() => form.dispatchEvent(new SubmitEvent('submit', { bubbles: true, cancelable: true }))))";
    let form = "document.querySelector('form[action=\"/operations/cancel\"]')";
    assert_eq!(browser.eval(&format!("{sent}({form}).join()")), "true,false");
    // A form that only reads may be sent repeatedly.
    browser.go(&web.at("/tasks"));
    let form = "document.querySelector('form[role=search]')";
    assert_eq!(browser.eval(&format!("{sent}({form}).join()")), "true,true");
    no_page_errors(&mut browser);
}

/// Without HTTPS, a browser sends less about the origin of a request. (It also reports
/// that it applies one of the headers over HTTPS only.)
#[test]
fn forms_work_over_plain_http() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://tasks.test:{}", free.port());
    let args = ["web", &free.to_string(), "--web-url", &url, "--web-role", "admin"];
    let web = Served::by(&sandbox, &args);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks/1"));
    browser.follow(|browser| browser.click("form[action='/operations/cancel'] button"));
    let flash = browser.text(".flash");
    assert!(flash.contains("cancelled"), "{flash}");
}

/// A proxy on this machine brings everybody.
#[test]
fn public_url_needs_login() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://tasks.test:{}", free.port());
    let web = Served::by(&sandbox, &["web", &free.to_string(), "--web-url", &url]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks/1"));
    let text = browser.page_text();
    assert!(text.contains("Password or token") && !text.contains("WaitingTask"), "{text}");
}

/// On the page of a task, whatever attempts it has had.
#[test]
fn keys_act_on_task() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--after", "1h"]);
    let engine = Served::by(&sandbox, &["start", "--web", "127.0.0.1:0"]);
    wait_until("the first has failed", || sandbox.status("1") == "failed");
    let mut browser = Browser::start();
    browser.go(&engine.at("/tasks/1"));
    browser.follow(|browser| browser.press("r"));
    assert!(browser.text(".flash").contains("was retried"), "{}", browser.text(".flash"));

    browser.go(&engine.at("/tasks/2"));
    browser.press("c");
    browser.wait("document.querySelector('dialog#confirm[open]') !== null");
    assert!(browser.text("dialog#confirm").contains("never runs"));
    browser.press("Escape");
    browser.wait("document.querySelector('dialog#confirm') === null");
    assert_eq!(sandbox.status("2"), "waiting", "a key alone cancels nothing");
    browser.press("c");
    browser.wait("document.querySelector('dialog#confirm[open]') !== null");
    browser.follow(|browser| browser.press("Enter"));
    assert!(browser.text(".flash").contains("cancelled"), "{}", browser.text(".flash"));
    assert_eq!(sandbox.status("2"), "cancelled");
    no_page_errors(&mut browser);
}
