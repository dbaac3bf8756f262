//! A durable task that waits for a signal: its page, and the form that sends the signal.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use task_engine::sqlite::SqliteStore;
use task_engine::{Context, Failure, StopHandle, Task, TaskEngine, TaskOptions};

use crate::layout::{fits, is_named, keep};
use crate::support::sandbox;
use crate::{Browser, Served, no_page_errors};
use task_engine_test_harness::{Sandbox, wait_until};

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail {}

impl Task for Mail {
    const CLASS: &'static str = "mail";
}

async fn mail(_: Mail) -> Result<u32, Failure> {
    Ok(1)
}

async fn order(_: Value, cx: Context<()>) -> Result<Value, Failure> {
    let ok = Ok::<Value, Failure>;
    cx.step("reserve", || async { ok(json!("box 7")) }).await?;
    let receipt = json!({
        "provider": "a bank", "amount": 1299, "currency": "EUR",
        "lines": [{"article": "lamp", "count": 1}, {"article": "cable", "count": 2}],
    });
    cx.step("charge", || async { ok(receipt) }).await?;
    cx.call::<_, u32>(Mail {}).await?;
    let approved: Value = cx.wait_for("approved", Duration::from_secs(3 * 86_400)).await?;
    cx.step("ship", || async { ok(approved) }).await
}

/// An engine in this process, on the database of the folder.
struct OrderEngine {
    stop: StopHandle,
    thread: Option<thread::JoinHandle<()>>,
}

impl OrderEngine {
    fn start(sandbox: &Sandbox) -> Self {
        let file = sandbox.path("task-engine.db");
        let store = SqliteStore::open(file).expect("the database");
        let engine = TaskEngine::new(store).engine(()).instance("orders");
        let engine = engine.handle(mail).handle_class("order", TaskOptions::default(), order);
        let stop = engine.stop_handle();
        let run = move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(engine.run_until(std::future::pending())).expect("a good end");
        };
        Self { stop, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for OrderEngine {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            ended.expect("a thread").expect("no panic");
        }
    }
}

#[test]
fn form_sends_awaited_signal() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "order", r#"{"customer": "Ada"}"#]);
    let _engine = OrderEngine::start(&sandbox);
    let web = Served::by(&sandbox, &["web", "127.0.0.1:0"]);
    let mut browser = Browser::start();
    browser.go(&web.at("/tasks/1"));
    // The page was there before the task came to its wait.
    browser
        .wait("document.querySelector('#steps').innerText.includes('waiting for signal approved')");
    wait_until("the task is suspended", || sandbox.status("1") == "waiting");
    keep_all(&mut browser, &web, "waiting");

    browser.go(&web.at("/tasks/1"));
    assert_eq!(browser.eval("document.querySelector('.signal [name=name]').value"), "approved");
    browser.fill(".signal textarea", "{\"by\": oops}");
    browser.follow(|browser| browser.click(".signal form button"));
    assert!(browser.page_text().contains("not valid JSON"), "{}", browser.page_text());
    // The answer is 400, which Chromium notes as an error of the network.
    let others: Vec<_> = browser.errors().into_iter().filter(|it| !it.contains("400")).collect();
    assert!(others.is_empty(), "{others:?}");
    browser.fill("textarea", "{\"by\": \"ada\"}");
    browser.follow(|browser| browser.click("main form button"));
    assert!(browser.text(".flash").contains("signal approved"), "{}", browser.text(".flash"));
    // The end comes by itself.
    browser.wait("document.querySelector('#head').innerText.includes('stopped')");
    browser.wait("document.querySelector('#steps').innerText.includes('Rerun from here')");
    let steps = browser.text("#steps");
    assert!(steps.contains("received") && !steps.contains("Send signal"), "{steps}");
    no_page_errors(&mut browser);
    let task = sandbox.task("1");
    let last = task["executions"].as_array().unwrap().last().unwrap();
    assert_eq!(last["result"], json!({"by": "ada"}));
    keep_all(&mut browser, &web, "ended");

    browser.go(&web.at("/tasks/1"));
    browser.follow(|browser| browser.click("#steps tr:last-child form button"));
    assert!(browser.text(".flash").contains("continues from step ship"));
    browser.wait("document.querySelector('#head').innerText.includes('stopped')");
    no_page_errors(&mut browser);
}

/// Light and dark, wide and narrow.
fn keep_all(browser: &mut Browser, web: &Served, state: &str) {
    for (width, height) in [(390, 844), (1440, 900)] {
        for dark in [true, false] {
            browser.size(width, height);
            browser.dark(dark);
            browser.go(&web.at("/tasks/1"));
            let theme = if dark { "dark" } else { "light" };
            keep(&browser.screenshot(), &format!("steps-{state}-{theme}-{width}"));
            fits(browser, "/tasks/1", width);
            is_named(browser, "/tasks/1");
            no_page_errors(browser);
        }
    }
}
