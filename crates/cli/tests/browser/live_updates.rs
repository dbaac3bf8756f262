//! Live updates and previews.

use crate::{Browser, Served, no_page_errors, sandbox};

#[test]
fn schedule_preview_follows_input() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/schedules/new"));
    let shown = "document.querySelector('#preview').textContent";
    assert!(browser.text("#preview").contains("shown here"));
    browser.fill("input[name=rule]", "30 2 * * *");
    browser.wait(&format!("{shown}.includes('every day at 02:30')"));
    browser.fill("input[name=time_zone]", "Mars/Base");
    browser.wait(&format!("{shown}.includes('unknown time zone')"));
    browser.fill("input[name=time_zone]", "Europe/Paris");
    browser.wait(&format!("{shown}.includes('Europe/Paris')"));
    browser.fill("input[name=name]", "nightly");
    browser.fill("input[name=class]", "WaitingTask");
    browser.follow(|browser| browser.press("Enter"));
    assert!(browser.page_text().contains("Schedule nightly was added."), "{}", browser.page_text());
    no_page_errors(&mut browser);
}

#[test]
fn start_help_disappears_without_reload() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/"));
    assert!(browser.page_text().contains("There are no tasks yet"));
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 1}"#]);
    browser.wait("!document.querySelector('#start') && document.querySelector('#charts')");
    browser.wait("document.querySelector('#tiles').textContent.startsWith('1Backlog')");
    no_page_errors(&mut browser);
}
