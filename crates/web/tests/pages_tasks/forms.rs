//! Forms that create and edit tasks.

use std::time::Duration;

use axum::http::StatusCode;
use task_engine_conformance::fixture::new_task;
use task_engine_core::schedule::Schedule;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::schedules::Schedules;

use crate::site::{Site, has};

fn created(to: &str) -> TaskId {
    to.strip_prefix("/tasks/").unwrap().split('?').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn form_creates_a_task() {
    let site = Site::open().await;
    let _engine = site.engine("send_mail").await;
    has(&site.get("/tasks/new").await.ok(), "<option value=\"send_mail\">");
    let fields = [
        ("then", "created"),
        ("class", "send_mail"),
        ("parameters", "{\r\n \"n\": 1970670598291982290123456789}"),
        ("queue", "mail"),
        ("priority", "-3"),
        ("after", "1h"),
        ("unique", "ann"),
    ];
    let page = site.post("/operations/create", &fields).await;
    let id = created(page.goes_to());
    let task = site.fixture.details(id).await;
    assert_eq!(task.parameters.as_str(), "{\n \"n\": 1970670598291982290123456789}");
    assert_eq!((task.row.queue.as_str(), task.row.priority), ("mail", -3));
    let wait = task.row.scheduled_at.duration_since(task.row.created_at);
    assert_eq!(wait.as_secs(), 3600);
    let again = site.post("/operations/create", &fields).await;
    assert_eq!(created(again.goes_to()), id, "its key is taken");
    has(&site.get(again.goes_to()).await.ok(), "existed already");
    let audit = site.audit().await;
    assert_eq!((audit[0].action.as_str(), audit[0].target.as_str()), ("tasks.create", "send_mail"));
    assert!(!audit.iter().any(|entry| entry.detail.as_str().contains("19706")), "may be secret");
}

#[tokio::test]
async fn form_shows_and_checks_the_schema() {
    let site = Site::open().await;
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "<b>Who</b> gets it"},
            "copies": {"type": "integer", "default": 2},
        },
        "required": ["to"],
    });
    site.engine_with_schema("send <mail>", schema).await;
    let page = site.get("/tasks/new").await.ok();
    has(&page, "href=\"/tasks/new?class=send%20%3Cmail%3E\"");
    has(&page, "send &lt;mail&gt;</a>");
    let page = site.get("/tasks/new?class=send+%3Cmail%3E").await.ok();
    has(&page, "<code>to</code> <strong>required</strong>");
    has(&page, "&lt;b&gt;Who&lt;/b&gt; gets it");
    has(&page, "Default: 2.");
    has(&page, "{\n  &quot;to&quot;: &quot;&quot;\n}");
    assert!(!page.contains("name=\"check\""), "{page}");

    let with = |parameters| [("class", "send <mail>"), ("parameters", parameters)];
    let shown = [&with(" {\"to\": 1}")[..], &[("do", "fields")]].concat();
    let page = site.post("/operations/create", &shown).await.ok();
    has(&page, "{&quot;to&quot;: 1}");
    let page = site.post("/operations/create", &with("{\"to\": 1}")).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "/to: expected a string, found a number.");
    has(&page.text, "type=\"checkbox\" name=\"check\" value=\"no\">");
    let anyway = [&with("{\"to\": 1}")[..], &[("check", "no"), ("then", "created")]].concat();
    let id = created(site.post("/operations/create", &anyway).await.goes_to());

    let id = id.to_string();
    has(&site.get(&format!("/tasks/{id}/edit")).await.ok(), "<code>copies</code>");
    let edit = [("id", id.as_str()), ("parameters", "{\"to\": 2}")];
    let page = site.post("/operations/edit", &edit).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "/to: expected a string");
    let page = site.post("/operations/edit", &[&edit[..], &[("check", "no")]].concat()).await;
    assert!(page.goes_to().contains("done="), "{}", page.text);

    let schedule = [
        ("name", "s"),
        ("rule", "every 1h"),
        ("time_zone", "UTC"),
        ("class", "send <mail>"),
        ("parameters", "{}"),
        ("queue", "default"),
        ("priority", "0"),
        ("missed", "last"),
        ("overlap", "allow"),
        ("jitter", "0s"),
    ];
    let page = site.post("/schedules/new", &schedule).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "/to: the field is missing");
    let page = site.post("/schedules/new", &[&schedule[..], &[("check", "no")]].concat()).await;
    assert!(page.goes_to().contains("done="), "{}", page.text);
}

/// Without JavaScript, a double click sends a form twice.
#[tokio::test]
async fn form_sent_twice_creates_one_task() {
    let site = Site::open().await;
    let once = async |page: &str| {
        let page = site.get(page).await.ok();
        let (_, after) = page.split_once("name=\"once\" value=\"").unwrap();
        after.split('"').next().unwrap().to_owned()
    };
    let (key, other) = (once("/tasks/new").await, once("/tasks/new").await);
    assert_ne!(key, other, "each form has its own");
    let send = async |key: &str, parameters: &str| {
        let fields =
            [("then", "created"), ("once", key), ("class", "mail"), ("parameters", parameters)];
        created(site.post("/operations/create", &fields).await.goes_to())
    };
    let first = send(&key, "{}").await;
    assert_eq!(send(&key, "{}").await, first, "the second leads to the task of the first");
    let changed = send(&key, "{\"to\":\"ann\"}").await;
    assert_ne!(changed, first, "a changed form is another request");
    assert_ne!(send(&other, "{}").await, first);
    assert_eq!(site.fixture.list(None).await.len(), 3);

    let schedule = Schedule::every("tidy", Duration::from_secs(3600)).new_task(new_task("mail"));
    Schedules::of(&*site.fixture.store).add(&schedule).await.unwrap();
    let key = once("/schedules").await;
    let fields = [("name", "tidy"), ("once", key.as_str()), ("back", "/schedules")];
    let mut response = String::new();
    for _ in 0..2 {
        let page = site.post("/operations/run-schedule", &fields).await;
        response = site.get(page.goes_to()).await.ok();
    }
    assert_eq!(site.fixture.list(None).await.len(), 4);
    has(&response, "existed already");
}

#[tokio::test]
async fn field_errors_keep_the_input() {
    let site = Site::open().await;
    for (field, value, why) in [
        ("parameters", "{\"a\": oops}", "      ^"),
        ("parameters", "[1]", "this is an array"),
        ("class", "", "a class needs a name"),
        ("queue", "a\u{7}b", "a queue needs a name"),
        ("priority", "high", "is not a priority"),
        ("at", "tomorrow", "this is not a time"),
        ("at", "2020-01-01 10:00", "use a time in the future"),
        ("after", "soon", "this is not a duration"),
        ("unique", &"x".repeat(600), "a unique key needs 1 to 500 bytes"),
    ] {
        let mut fields = vec![("class", "kept_class"), (field, value)];
        if field == "class" {
            fields.remove(0);
        }
        let page = site.post("/operations/create", &fields).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{field}={value}");
        has(&page.text, why);
        has(&page.text, "aria-invalid=\"true\"");
        if field != "class" {
            has(&page.text, "value=\"kept_class\"");
        }
    }
    let both = [("class", "a"), ("at", "18:00"), ("after", "5m")];
    assert_eq!(site.post("/operations/create", &both).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(site.fixture.list(None).await, [], "nothing was created");
}

#[tokio::test]
async fn waiting_task_is_edited() {
    let site = Site::open().await;
    let task = new_task("mail").after(Duration::from_secs(60)).priority(4);
    let id = site.fixture.create(task).await;
    let page = site.get(&format!("/tasks/{id}/edit")).await.ok();
    has(&page, "value=\"4\"");
    let text = id.to_string();
    let back = format!("/tasks/{id}");
    let fields = [
        ("id", text.as_str()),
        ("back", &back),
        ("parameters", "{\"to\":\"ann\"}"),
        ("queue", "default"),
        ("priority", "9"),
        ("after", "2h"),
        ("reason", "asked for"),
    ];
    assert!(site.post("/operations/edit", &fields).await.goes_to().starts_with(&back));
    let task = site.fixture.details(id).await;
    assert_eq!(task.parameters.as_str(), "{\"to\":\"ann\"}");
    assert_eq!((task.row.priority, task.row.queue.as_str()), (9, "default"));
    assert!(task.row.scheduled_at.duration_since(task.row.created_at).as_secs() > 7000);
    let audit = site.audit().await;
    assert_eq!(
        (audit[0].action.as_str(), audit[0].reason.as_deref()),
        ("tasks.edit", Some("asked for"))
    );

    let same = [("id", text.as_str()), ("priority", "9"), ("parameters", "{\"to\":\"ann\"}")];
    let page = site.post("/operations/edit", &same).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "no field was changed");
    let bad = [("id", text.as_str()), ("parameters", "{")];
    let page = site.post("/operations/edit", &bad).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    has(&page.text, "not valid JSON");
}

#[tokio::test]
async fn running_task_cannot_be_edited() {
    let site = Site::open().await;
    let mut engine = site.engine("mail").await;
    let id = site.create("mail", "{}").await;
    let _hold = engine.claim_one().await;
    assert_eq!(site.status(id).await, TaskStatus::Running);
    assert_eq!(site.get(&format!("/tasks/{id}/edit")).await.status, StatusCode::CONFLICT);
    let fields = [("id", id.to_string()), ("priority", "9".to_owned())];
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let page = site.post("/operations/edit", &fields).await;
    assert_eq!(page.status, StatusCode::CONFLICT);
    has(&page.text, "only a waiting task can be edited");
}
