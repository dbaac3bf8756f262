//! What a person watches, and what they see while they type.

use crate::{Browser, Place, Served, nothing_to_complain};

#[test]
fn schedule_preview_updates_while_typing() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let web = Served::by(&place, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/schedules/new"));
    let shown = "document.querySelector('#preview').textContent";
    assert!(browser.text("#preview").contains("shown here"));
    browser.fill("input[name=rule]", "30 2 * * *");
    browser.wait(&format!("{shown}.includes('every day at 02:30')"));
    browser.fill("input[name=zone]", "Mars/Base");
    browser.wait(&format!("{shown}.includes('unknown time zone')"));
    browser.fill("input[name=zone]", "Europe/Paris");
    browser.wait(&format!("{shown}.includes('Europe/Paris')"));
    browser.fill("input[name=name]", "nightly");
    browser.fill("input[name=class]", "WaitingTask");
    browser.follow(|browser| browser.press("Enter"));
    assert!(browser.page_text().contains("nightly: written."), "{}", browser.page_text());
    nothing_to_complain(&mut browser);
}

#[test]
fn first_day_updates_without_reload() {
    let place = Place::new();
    place.ok(&["migrate"]);
    let web = Served::by(&place, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/"));
    assert!(browser.page_text().contains("Nothing has happened here yet"));
    place.ok(&["create", "WaitingTask", r#"{"waiting_time": 1}"#]);
    browser.wait("!document.querySelector('#begin') && document.querySelector('#charts')");
    browser.wait("document.querySelector('#tiles').textContent.startsWith('1due')");
    nothing_to_complain(&mut browser);
}
