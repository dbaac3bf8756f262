//! The list of tasks.

use axum::http::StatusCode;
use task_engine_conformance::fixture::new_task;
use task_engine_core::attempt::TaskError;
use task_engine_core::task::TaskStatus;
use task_engine_web::Role;

use crate::site::{Site, has, has_not, rows};

#[tokio::test]
async fn empty_list_shows_a_command() {
    let site = Site::open().await;
    let page = site.get("/tasks").await.ok();
    has(&page, "There are no tasks yet");
    has(&page, "task-engine create");
    let page = site.get("/tasks?filter=status%3Dfailed").await.ok();
    has(&page, "No tasks match");
}

#[tokio::test]
async fn filter_stays_in_links() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let failed = site.failed(&mut engine, "mail", TaskError::new("Http", "429")).await;
    let waiting = site.create("tidy", r#"{"user":{"id":42}}"#).await;
    let page = site.get("/tasks").await.ok();
    assert_eq!(rows(&page), 2);
    let page = site.get("/tasks?filter=class%3Dmail%20error~429").await.ok();
    assert_eq!(rows(&page), 1);
    has(&page, &format!("data-key=\"{failed}\""));
    has(&page, "value=\"class=mail error~429\"");
    has(&page, "filter=status%3Dfailed%20class%3Dmail%20error~429");
    let page = site.get("/tasks?filter=params.user.id%3D42").await.ok();
    has(&page, &format!("data-key=\"{waiting}\""));
    assert_eq!(rows(&page), 1);
}

#[tokio::test]
async fn statuses_are_counted_and_marked() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    for n in 0..3 {
        site.failed(&mut engine, "mail", TaskError::new("Http", format!("{n}"))).await;
    }
    site.fixture.create_work(4).await;
    let page = site.get("/tasks?filter=class%3Dmail%20status%3Dfailed").await.ok();
    has(&page, r#"aria-current="true">Failed<small class="number">3</small>"#);
    has(&page, r#">Waiting<small class="number">4</small>"#);
    has(&page, ">Stopped (succeeded)</a>");
    assert_eq!(page.matches(r#"aria-current="true""#).count(), 1);
    let page = site.get("/tasks?filter=status%3Dfailed%2Cwaiting").await.ok();
    has_not(&page, r#"aria-current="true""#);
}

#[tokio::test]
async fn invalid_filter_is_explained() {
    let site = Site::open().await;
    site.fixture.create_work(1).await;
    let page = site.get("/tasks?filter=clas%3Da").await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "at character 1: there is no field");
    has(&page.text, "did you mean class?");
    has(&page.text, "aria-invalid=\"true\"");
    assert_eq!(rows(&page.text), 0, "no results");
    assert_eq!(site.get("/tasks?before=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn pages_contain_every_task() {
    for site in [Site::open().await, Site::on_postgres().await] {
        let mut ids = site.fixture.create_work(120).await;
        ids.sort();
        let mut path = "/tasks".to_owned();
        let mut seen = Vec::new();
        loop {
            let page = site.get(&path).await.ok();
            let keys = page.split("<tr data-key=\"").skip(1);
            seen.extend(keys.map(|row| row.split('"').next().unwrap().parse::<i64>().unwrap()));
            let next = page.split("rel=\"next\" href=\"").nth(1);
            let Some(next) = next.map(|rest| rest.split('"').next().unwrap()) else { break };
            path = next.replace("&amp;", "&");
        }
        seen.reverse();
        assert_eq!(seen, ids.iter().map(|id| id.0).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn bulk_actions_need_a_role() {
    let site = Site::open().await;
    site.fixture.create(new_task("tidy")).await;
    let path = "/tasks?filter=status%3Dwaiting";
    let page = site.get(path).await.ok();
    has(&page, "name=\"ids\"");
    has(&page, "Delete all matching");
    let site = site.with_role(Role::Operator);
    let page = site.get(path).await.ok();
    has(&page, "Cancel all matching");
    has_not(&page, "Delete all matching");
    let site = site.with_role(Role::Viewer);
    let page = site.get(path).await.ok();
    has_not(&page, "name=\"ids\"");
    has_not(&page, "/tasks/preview");
}

#[tokio::test]
async fn suggestions_contain_known_names() {
    let site = Site::open().await;
    let _engine = site.engine("send_mail").await;
    let page = site.get("/suggestions?text=class%3Dsen&at=9").await.ok();
    let read: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!(read["suggestions"][0]["text"], "send_mail");
    assert_eq!((&read["from"], &read["to"]), (&6.into(), &9.into()));
}

#[tokio::test]
async fn preview_shows_matching_tasks() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    for n in 0..12 {
        site.failed(&mut engine, "mail", TaskError::new("Http", format!("{n}"))).await;
    }
    let waiting = site.create("mail", "{}").await;
    let page = site.get("/tasks/preview?operation=retry&filter=class%3Dmail").await.ok();
    has(&page, "Retry 12 tasks?");
    has(&page, "class=mail status=failed");
    has(&page, "action=\"/operations/retry\"");
    assert_eq!(rows(&page), 10, "a sample");
    let page = site.get(&format!("/tasks/preview?operation=cancel&ids={waiting}")).await.ok();
    has(&page, "Cancel 1 task?");
    has(&page, "Waiting tasks never run.");
    let none = site.get("/tasks/preview?operation=retry&filter=class%3Dother").await.ok();
    has(&none, "No task matches.");
    for bad in [
        "operation=retry",
        "operation=retry&filter=%20",
        "operation=burn&ids=1",
        "operation=retry&ids=x",
    ] {
        let page = site.get(&format!("/tasks/preview?{bad}")).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(site.status(waiting).await, TaskStatus::Waiting, "nothing was done");
    let site = site.with_role(Role::Operator);
    let page = site.get(&format!("/tasks/preview?operation=delete&ids={waiting}")).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    let site = site.with_role(Role::Viewer);
    let page = site.get(&format!("/tasks/preview?operation=retry&ids={waiting}")).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}
