//! Error groups.

use std::time::Duration;

use axum::http::StatusCode;
use task_engine_core::attempt::TaskError;
use task_engine_core::task::TaskStatus;

use crate::site::{Site, has, rows};

/// The address of the first group.
fn group(page: &str) -> String {
    let key = page.split("<tr data-key=\"").nth(1).unwrap().split('"').next().unwrap();
    format!("/errors/{key}")
}

#[tokio::test]
async fn no_errors_is_explained() {
    let site = Site::open().await;
    has(&site.get("/errors").await.ok(), "No task has failed.");
    has(&site.get("/errors?status=waiting").await.ok(), "No task waits for a retry.");
    assert_eq!(site.get("/errors?status=stopped").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(site.get("/errors/nonsense").await.status, StatusCode::NOT_FOUND);
    let page = site.get("/errors/0123456789abcdef").await.ok();
    has(&page, "No failed task with this error");
}

#[tokio::test]
async fn trial_precedes_the_rest() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let error = TaskError::new("Http", format!("user {n}: 429 Too Many"))
            .with_backtrace(vec![format!("frame of {n}")]);
        ids.push(site.failed(&mut engine, "mail", error).await);
    }
    site.failed(&mut engine, "mail", TaskError::new("Disk", "full")).await;
    let page = site.get("/errors").await.ok();
    assert_eq!(rows(&page), 2);
    has(&page, "user &lt;n&gt;: &lt;n&gt; Too Many");
    has(&page, "61 tasks with an error: all there are.");
    has(&page, "60 in the last hour");
    let path = group(&page);
    let newest = ids.last().unwrap().to_string();
    let page = site.get(&path).await.ok();
    has(&page, "frame of 59");
    has(&page, "The newest 50 of its tasks");
    has(&page, "60 of 61 tasks with an error have this error: all there are.");
    assert_eq!(rows(&page), 50);
    has(&page, &format!("name=\"ids\" value=\"{newest}\""));
    has(&page, "Retry the rest");

    let back = format!("{path}?status=failed&trial={newest}");
    let done = site.post("/operations/retry", &[("ids", &newest), ("back", &back)]).await;
    let page = site.get(done.goes_to()).await.ok();
    has(&page, "It has not ended yet.");
    engine.wake();
    let hold = engine.claim_one().await;
    engine.record(&[hold.succeeds()]).await;
    let page = site.get(&back).await.ok();
    has(&page, "It succeeded");

    let preview = page.split("href=\"").find(|it| it.starts_with("/tasks/preview?operation=retry"));
    let preview = preview.unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let page = site.get(&preview).await.ok();
    has(&page, "Retry 59 tasks?");
    let filter = r#"status=failed class=mail error=Http error~"Too Many""#;
    site.post("/operations/retry", &[("filter", filter), ("back", &path)]).await.goes_to();
    assert_eq!(site.fixture.list(Some(TaskStatus::Waiting)).await.len(), 59);
    assert_eq!(site.fixture.list(Some(TaskStatus::Failed)).await.len(), 1);
    has(&site.get(&path).await.ok(), "No failed task with this error");
}

#[tokio::test]
async fn retried_errors_have_a_page() {
    for site in [Site::open().await, Site::on_postgres().await] {
        let mut engine = site.engine("mail").await;
        site.create("mail", "{}").await;
        let hold = engine.claim_one().await;
        engine.record(&[hold.fails_and_retries(Duration::from_secs(600))]).await;
        site.create("mail", "{}").await;
        let page = site.get("/errors?status=waiting").await.ok();
        assert_eq!(rows(&page), 1);
        has(&page, "OutOfPaper: the printer is empty");
        has(&page, "1 task with an error: all there are.");
        let page = site.get(&format!("{}?status=waiting", group(&page))).await.ok();
        has(&page, "Cancel all");
    }
}

#[tokio::test]
async fn large_error_lists_are_paged() {
    let site = Site::open().await;
    let mut engine = site.engine("work").await;
    site.fixture.create_work(5_010).await;
    let holds = engine.claim_all(500).await;
    let endings: Vec<_> = holds.iter().map(|hold| hold.fails()).collect();
    for batch in endings.chunks(500) {
        engine.record(batch).await;
    }
    let (mut path, mut counted, mut pages) = ("/errors".to_owned(), 0, 0);
    loop {
        let page = site.get(&path).await.ok();
        let (head, _) = page.split_once(" tasks with an error: ").unwrap();
        counted += head.rsplit('>').next().unwrap().parse::<usize>().unwrap();
        pages += 1;
        let Some(next) = page.split("rel=\"next\" href=\"").nth(1) else {
            has(&page, "all there are below that task");
            break;
        };
        has(&page, "older ones are not counted");
        path = next.split('"').next().unwrap().replace("&amp;", "&");
    }
    assert_eq!(counted, 5_010);
    assert!(pages > 1, "{pages}");
}
