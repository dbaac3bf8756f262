//! Task content is never markup.

use task_engine_conformance::fixture::{new_instance, with_classes};
use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{AttemptEnd, TaskError};
use task_engine_core::json::Json;
use task_engine_core::progress::{LogLevel, LogLine, ProgressReport, Report};
use task_engine_core::retry::RetryRule;
use task_engine_core::task::NewTask;

use crate::site::Site;

const EVIL: &str =
    "</pre></textarea></title><script>alert(1)</script>\"'<img src=x onerror=alert(2)>";

/// Only the two scripts of the page itself, and no injected tag.
#[track_caller]
fn is_harmless(page: &str) {
    assert_eq!(page.matches("<script").count(), 2, "{page}");
    assert!(!page.contains("<img src=x"), "{page}");
}

#[tokio::test]
async fn no_field_becomes_markup() {
    let site = Site::open().await;
    let evil_json = Json::encode(&serde_json::json!({ EVIL: [EVIL, { EVIL: EVIL }] })).unwrap();
    let queue = "q<script>alert(1)</script>";
    let mut new = with_classes(new_instance(EVIL), &[(EVIL, RetryRule::default())]);
    new.queues = vec![queue.into()];
    let mut engine = site.fixture.register(new).await;
    let task = || {
        let mut task = NewTask::new(EVIL, evil_json.clone()).unwrap().queue(queue).unwrap();
        task.add_context("note", EVIL).unwrap();
        task.correlation("c<script>").unwrap()
    };
    let failed = site.fixture.create(task()).await;
    let hold = engine.claim_one().await;
    let report = Report {
        id: hold.id(),
        version: 1,
        lines_total: 1,
        progress: Some(ProgressReport::new(10.0, EVIL)),
        lines: vec![LogLine::new(1, LogLevel::Info, EVIL)],
    };
    site.fixture.store.report(&[report]).await.unwrap();
    let error = TaskError::new(EVIL, EVIL).with_backtrace(vec![EVIL.into()]);
    let outcome = AttemptEnd::Failure(error, RetryAdvice::NoRetry);
    engine.record(&[hold.ends(outcome, &RetryRule::default())]).await;
    let done = site.fixture.create(task()).await;
    engine.wake();
    let hold = engine.claim_one().await;
    let outcome = AttemptEnd::Success(evil_json.clone());
    engine.record(&[hold.ends(outcome, &RetryRule::default())]).await;
    let waiting = site.fixture.create(task()).await;

    let encoded: String = form_urlencoded::byte_serialize(EVIL.as_bytes()).collect();
    let errors = site.get("/errors").await.ok();
    let key = errors.split("<tr data-key=\"").nth(1).unwrap().split('"').next().unwrap();
    for path in [
        "/tasks".to_owned(),
        format!("/tasks?filter={encoded}"),
        format!("/tasks?filter=class~{encoded}&before=9"),
        format!("/tasks/{failed}"),
        format!("/tasks/{done}"),
        format!("/tasks/{waiting}"),
        format!("/tasks/{waiting}/edit"),
        format!("/tasks/preview?operation=retry&ids={failed}&back={encoded}"),
        format!("/tasks/preview?operation={encoded}&ids={failed}"),
        format!("/tasks/new?class={encoded}&parameters={encoded}&queue={encoded}&in={encoded}"),
        "/errors".to_owned(),
        format!("/errors/{key}"),
        format!("/errors/{encoded}"),
        format!("/tasks/{encoded}"),
    ] {
        is_harmless(&site.get(&path).await.text);
    }
    let page = site
        .post("/operations/create", &[("class", EVIL), ("parameters", EVIL), ("at", EVIL)])
        .await;
    is_harmless(&page.text);
    let id = waiting.to_string();
    let page =
        site.post("/operations/edit", &[("id", &id), ("parameters", EVIL), ("queue", EVIL)]).await;
    is_harmless(&page.text);
}

#[tokio::test]
async fn redirects_stay_on_this_server() {
    let site = Site::open().await;
    let id = site.create("a", "{}").await.to_string();
    for back in ["https://evil.test/", "//evil.test/", "/\\evil.test", "javascript:alert(1)"] {
        let page = site.post("/operations/cancel", &[("ids", &id), ("back", back)]).await;
        assert!(page.goes_to().starts_with("/?done="), "{}", page.goes_to());
        let encoded: String = form_urlencoded::byte_serialize(back.as_bytes()).collect();
        let page =
            site.get(&format!("/tasks/preview?operation=retry&ids={id}&back={encoded}")).await;
        assert!(!page.text.contains(&format!("href=\"{back}")), "{}", page.text);
    }
}
