//! What a person does.

use crate::{Browser, Place, Served, nothing_to_complain};

#[test]
fn the_demo_is_watched_live() {
    let place = Place::new();
    let demo = Served::by(&place, &["demo", "--stay", "--web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&demo.at("/"));
    assert!(browser.page_text().contains("Overview"));
    nothing_to_complain(&mut browser);
    demo.running.signal("TERM");
    assert_eq!(demo.running.end().code, Some(0));
}
