//! Actions on tasks, and their audit entries.

use std::time::Duration;

use axum::http::StatusCode;
use task_engine_conformance::fixture::new_task;
use task_engine_core::attempt::TaskError;
use task_engine_core::task::TaskStatus;
use task_engine_store::audit::AuditOutcome;
use task_engine_web::Role;

use crate::site::{Site, has};

/// The newest audit entry.
async fn last(site: &Site) -> (String, String, AuditOutcome) {
    let entry = site.audit().await.remove(0);
    (entry.action, entry.target, entry.outcome)
}

#[tokio::test]
async fn task_actions_are_audited() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let id = site.failed(&mut engine, "mail", TaskError::new("Http", "429")).await;
    let text = id.to_string();
    let here = format!("/tasks/{id}");
    let done = |action: &str| (action.to_owned(), format!("task {id}"), AuditOutcome::Done);

    let page = site.post("/operations/retry", &[("ids", &text), ("back", &here)]).await;
    assert!(page.goes_to().starts_with(&format!("{here}?done=")), "{}", page.goes_to());
    assert_eq!(site.status(id).await, TaskStatus::Waiting);
    assert_eq!(last(&site).await, done("tasks.retry"));
    let flash = site.get(page.goes_to()).await.ok();
    has(&flash, &format!("Task {id} was retried"));

    site.post("/operations/cancel", &[("ids", &text), ("reason", "no longer")]).await.goes_to();
    assert_eq!(site.status(id).await, TaskStatus::Cancelled);
    assert_eq!(last(&site).await, done("tasks.cancel"));
    assert_eq!(site.audit().await[0].reason.as_deref(), Some("no longer"));

    let fields = [("ids", text.as_str()), ("back", &here), ("then", "created")];
    let page = site.post("/operations/rerun", &fields).await;
    let new = page.goes_to().strip_prefix("/tasks/").unwrap().split('?').next().unwrap();
    assert_ne!(new, text, "it leads to the new one");
    let copy = site.fixture.details(new.parse().unwrap()).await;
    assert_eq!((copy.row.status, copy.row.class.as_str()), (TaskStatus::Waiting, "mail"));
    assert_eq!(last(&site).await, done("tasks.rerun"));

    site.post("/operations/delete", &[("ids", &text), ("back", "/tasks")]).await.goes_to();
    assert!(site.fixture.store.task(id).await.unwrap().is_none());
    assert_eq!(last(&site).await, done("tasks.delete"));
}

#[tokio::test]
async fn filter_acts_on_all_matches() {
    let site = Site::open().await;
    let ids = site.fixture.create_work(30).await;
    let other = site.create("tidy", "{}").await;
    let page = site.post("/operations/cancel", &[("filter", "class=work")]).await;
    page.goes_to();
    for id in ids {
        assert_eq!(site.status(id).await, TaskStatus::Cancelled);
    }
    assert_eq!(site.status(other).await, TaskStatus::Waiting);
}

#[tokio::test]
async fn viewer_cannot_change_tasks() {
    let site = Site::open().await;
    let id = site.fixture.create(new_task("tidy").after(Duration::from_secs(60))).await;
    let site = site.with_role(Role::Viewer);
    let text = id.to_string();
    for path in ["retry", "cancel", "rerun", "delete", "edit", "create"] {
        let fields = [("ids", text.as_str()), ("id", &text), ("priority", "7"), ("class", "a")];
        let page = site.post(&format!("/operations/{path}"), &fields).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}");
    }
    for path in ["/tasks/new".to_owned(), format!("/tasks/{id}/edit")] {
        assert_eq!(site.get(&path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let task = site.fixture.details(id).await;
    assert_eq!((task.row.status, task.row.priority), (TaskStatus::Waiting, 0));
    assert!(site.audit().await.is_empty());
    let site = site.with_role(Role::Operator);
    let page = site.post("/operations/delete", &[("ids", &text)]).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN, "an operator does not delete");
}
