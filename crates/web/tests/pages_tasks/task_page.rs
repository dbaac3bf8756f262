//! The page of one task.

use std::time::Duration;

use axum::http::StatusCode;
use task_engine_conformance::fixture::new_task;
use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{AttemptEnd, TaskError};
use task_engine_core::json::Json;
use task_engine_core::progress::{LogLevel, LogLine, ProgressReport, Report};
use task_engine_core::retry::RetryRule;
use task_engine_web::Role;

use crate::site::{Site, has, has_not};

#[tokio::test]
async fn missing_task_is_not_found() {
    let site = Site::open().await;
    for path in ["/tasks/17", "/tasks/0", "/tasks/x", "/tasks/17/edit", "/tasks/17/context.json"] {
        assert_eq!(site.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let id = site.create("a", "{}").await;
    for file in ["other.json", "result-1.json", "result-x.json", "parameters"] {
        let page = site.get(&format!("/tasks/{id}/{file}")).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{file}");
    }
}

#[tokio::test]
async fn waiting_task_shows_reasons() {
    let site = Site::open().await;
    let id = site.fixture.create(new_task("tidy").after(Duration::from_secs(3600))).await;
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "It is not due");
    has(&page, "No engine is alive");
    has(&page, "The task has not run yet.");
    has(&page, "waiting until due");
    has(&page, "Run now");
    let site = site.with_role(Role::Viewer);
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "Changes need the role operator.");
    has_not(&page, "/operations/retry");
}

#[tokio::test]
async fn attempts_have_chart_and_table() {
    for site in [Site::open().await, Site::on_postgres().await] {
        let mut engine = site.engine("mail").await;
        let id = site.create("mail", "{}").await;
        let hold = engine.claim_one().await;
        engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
        engine.wake();
        let hold = engine.claim_one().await;
        let big = Json::parse(r#"{"n":1970670598291982290123456789,"list":[1,2]}"#).unwrap();
        engine.record(&[hold.ends(AttemptEnd::Success(big), &RetryRule::default())]).await;
        let page = site.get(&format!("/tasks/{id}")).await.ok();
        has(&page, "running, 2 times");
        has(&page, "class=\"run failed\"");
        has(&page, "class=\"run stopped\"");
        has(&page, "OutOfPaper");
        has(&page, "1970670598291982290123456789");
        has(&page, "web-1, worker 3");
        has(&page, "It has succeeded");
        let file = site.get(&format!("/tasks/{id}/result-2.json")).await;
        assert_eq!(file.headers["content-type"], "application/json");
        assert_eq!(
            file.headers["content-disposition"],
            format!("attachment; filename=\"task-{id}-result-2.json\"")
        );
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        has(&file.ok(), "1970670598291982290123456789");
    }
}

#[tokio::test]
async fn backtrace_and_late_result_are_shown() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let id = site.create("mail", "{}").await;
    let hold = engine.claim_one().await;
    assert!(site.fixture.declare_lost(engine.id).await);
    site.fixture.recover(engine.id).await;
    let error = TaskError::new("Late", "too late").with_backtrace(vec!["main.rs:7".into()]);
    let outcome = AttemptEnd::Failure(error, RetryAdvice::NoRetry);
    engine.record(&[hold.ends(outcome, &RetryRule::default())]).await;
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "InstanceLost");
    has(&page, "Late result");
    has(&page, "main.rs:7");
    has(&page, "class=\"late\"");
    has(&page, "waiting for retry 1");
}

#[tokio::test]
async fn logs_are_paged_with_progress() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let id = site.create("mail", "{}").await;
    let hold = engine.claim_one().await;
    let lines: Vec<_> =
        (1..=450).map(|n| LogLine::new(n, LogLevel::Warn, &format!("said no. {n}."))).collect();
    let progress = Some(ProgressReport::new(40.0, "half way"));
    let report = Report { id: hold.id(), version: 1, lines_total: 450, progress, lines };
    site.fixture.store.report(&[report]).await.unwrap();
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "40 %, half way");
    has(&page, "said no. 450.");
    has(&page, "said no. 251.");
    has_not(&page, "said no. 250.");
    has(&page, "log=1.251#log");
    let page = site.get(&format!("/tasks/{id}?log=1.251")).await.ok();
    has(&page, "said no. 250.");
    has(&page, "said no. 51.");
    has_not(&page, "said no. 251.");
    let page = site.get(&format!("/tasks/{id}?log=1.51")).await.ok();
    has(&page, "said no. 1.");
    has_not(&page, "Older lines");
    assert_eq!(site.get(&format!("/tasks/{id}?log=x")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn flow_is_a_tree() {
    let site = Site::open().await;
    let parent = site.create("order", "{}").await;
    let mut child = new_task("mail").correlation(parent.to_string()).unwrap();
    child.add_context("parent_id", &parent).unwrap();
    let child = site.fixture.create(child).await;
    let page = site.get(&format!("/tasks/{child}")).await.ok();
    has(&page, "<h2>Flow</h2>");
    has(&page, &format!("<li class=\"depth-0\" data-key=\"{parent}\">"));
    has(&page, &format!("<li class=\"depth-1\" data-key=\"{child}\" aria-current=\"true\">"));
    has(&page, &format!("filter=correlation%3D{parent}"));
    has_not(&site.get("/tasks/1").await.ok(), "Created by");
}

#[tokio::test]
async fn huge_parameters_are_downloaded() {
    let site = Site::open().await;
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(300_000));
    let id = site.create("a", &huge).await;
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    assert!(page.len() < 60_000, "{} bytes", page.len());
    has(&page, "Too large to be shown here");
    has(&page, "300.0 kB");
    let file = site.get(&format!("/tasks/{id}/parameters.json")).await.ok();
    assert_eq!(file, huge);
}
