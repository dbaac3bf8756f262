//! The steps of a durable task on its page.

use std::time::Duration;

use axum::http::StatusCode;
use task_engine_conformance::fixture::{TestAttempt, TestEngine};
use task_engine_core::json::Json;
use task_engine_core::step::{NewCall, NewStep, StepContent, StepOutcome};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_web::Role;

use crate::site::{Site, has, has_not, rows};

const HOUR: Duration = Duration::from_secs(3600);

fn step(attempt: &TestAttempt, number: u32, name: &str, content: StepContent) -> NewStep {
    let (id, claim_id) = (attempt.id(), attempt.claim_id);
    NewStep { id, claim_id, name: name.to_owned(), number, content, lasted: Duration::ZERO }
}

fn result(json: &str) -> StepContent {
    StepContent::Value(Json::parse(json).unwrap())
}

async fn record(site: &Site, steps: &[NewStep]) {
    let outcomes = site.fixture.store.record_steps(steps).await.unwrap();
    let recorded = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Recorded { .. });
    assert!(outcomes.iter().all(recorded), "{outcomes:?}");
}

/// A running task.
async fn claimed(site: &Site) -> (TestEngine, TestAttempt, TaskId) {
    let mut engine = site.engine("order").await;
    let id = site.create("order", "{}").await;
    let attempt = engine.claim_one().await;
    (engine, attempt, id)
}

#[tokio::test]
async fn task_without_steps_has_no_section() {
    let site = Site::open().await;
    let id = site.create("mail", "{}").await;
    has_not(&site.get(&format!("/tasks/{id}")).await.ok(), "<h2>Steps</h2>");
}

#[tokio::test]
async fn steps_have_chart_and_table() {
    for site in [Site::open().await, Site::on_postgres().await] {
        let (_, attempt, id) = claimed(&site).await;
        let big = r#"{"amount":1970670598291982290123456789,"currency":"EUR","lines":[1,2,3],"customer":"Ada Lovelace of London"}"#;
        record(
            &site,
            &[
                step(&attempt, 1, "reserve", result("\"box 7\"")),
                step(&attempt, 2, "charge", result(big)),
                step(&attempt, 3, "cooldown", StepContent::SleepFor(HOUR)),
            ],
        )
        .await;
        let page = site.get(&format!("/tasks/{id}")).await.ok();
        has(&page, "<h2>Steps</h2>");
        has(&page, "sleeping");
        has(&page, "class=\"run stopped\"");
        has(&page, "<code class=\"name\">&quot;box 7&quot;</code>");
        has(&page, &format!("/tasks/{id}/step-2.json"));
        has_not(&page, "Send signal");
        let file = site.get(&format!("/tasks/{id}/step-2.json")).await.ok();
        assert!(file.contains("1970670598291982290123456789"), "{file}");
        for none in ["step-3.json", "step-9.json", "step-x.json"] {
            let answer = site.get(&format!("/tasks/{id}/{none}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{none}");
        }
        let child = NewTask::new("mail", Json::empty_object()).unwrap();
        let (of, claim_id) = (attempt.id(), attempt.claim_id);
        let (name, children) = ("mail".to_owned(), vec![child]);
        let call = NewCall { id: of, claim_id, name, number: 4, children };
        let called = site.fixture.store.record_call(&call).await.unwrap();
        let StepOutcome::Recorded { children, .. } = called else { panic!("{called:?}") };
        let page = site.get(&format!("/tasks/{id}")).await.ok();
        has(&page, "slept");
        has(&page, &format!("task <a href=\"/tasks/{0}\">{0}</a>", children[0]));
    }
}

#[tokio::test]
async fn signal_is_sent_by_form() {
    for site in [Site::open().await, Site::on_postgres().await] {
        let (_engine, attempt, id) = claimed(&site).await;
        record(&site, &[step(&attempt, 1, "approved", StepContent::Wait(HOUR))]).await;
        let (text, here) = (id.to_string(), format!("/tasks/{id}"));
        let page = site.get(&here).await.ok();
        has(&page, "waiting for signal <b class=\"name\">approved</b> until <time");
        has(&page, "name=\"name\" value=\"approved\"");
        let fields = |payload: &'static str| {
            [
                ("id", text.clone()),
                ("back", here.clone()),
                ("name", "approved".to_owned()),
                ("payload", payload.to_owned()),
            ]
        };
        let post = async |payload| {
            let fields = fields(payload);
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            site.post("/operations/signal", &fields).await
        };
        let wrong = post("{\"by\": ada}").await;
        assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
        has(&wrong.text, "Invalid: not valid JSON");
        has(&wrong.text, "{&quot;by&quot;: ada}");
        assert!(site.audit().await.is_empty());

        let sent = post("{\"by\": \"ada\"}").await;
        let page = site.get(sent.goes_to()).await.ok();
        has(&page, "signal approved");
        has(&page, "received");
        has_not(&page, "Send signal");
        assert_eq!(site.audit().await[0].action, "tasks.signal");
        let signals = site.fixture.store.steps(id).await.unwrap().signals;
        assert_eq!(signals[0].payload.as_str().replace(' ', ""), r#"{"by":"ada"}"#);
        let again = post("").await;
        has(&site.get(again.goes_to()).await.ok(), "the first one counts");

        let site = site.with_role(Role::Viewer);
        let refused = site.post("/operations/signal", &[("id", &text), ("name", "approved")]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn viewer_gets_no_form() {
    let site = Site::open().await;
    let (_engine, attempt, id) = claimed(&site).await;
    record(&site, &[step(&attempt, 1, "approved", StepContent::Wait(HOUR))]).await;
    let site = site.with_role(Role::Viewer);
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "waiting for signal");
    has_not(&page, "Send signal");
}

#[tokio::test]
async fn ended_task_reruns_from_step() {
    let site = Site::open().await;
    let (engine, attempt, id) = claimed(&site).await;
    let steps = [
        step(&attempt, 1, "reserve", result("1")),
        step(&attempt, 2, "charge", result("2")),
        step(&attempt, 3, "ship", result("3")),
    ];
    record(&site, &steps).await;
    let here = format!("/tasks/{id}");
    has_not(&site.get(&here).await.ok(), "Rerun from here");
    engine.record(&[attempt.fails()]).await;
    let page = site.get(&here).await.ok();
    assert_eq!(page.matches("Rerun from here").count(), 3);
    let text = id.to_string();
    let fields = [("ids", text.as_str()), ("name", "ship"), ("then", "created"), ("back", &here)];
    let done = site.post("/operations/rerun-from", &fields).await;
    let copy = done.goes_to().strip_prefix("/tasks/").unwrap().split('?').next().unwrap();
    let kept = site.fixture.store.steps(copy.parse().unwrap()).await.unwrap().steps;
    let names: Vec<_> = kept.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["reserve", "charge"]);
    let page = site.get(done.goes_to()).await.ok();
    has(&page, "it keeps 2 steps and continues from step ship");
    has(&page, "Kept from the task that was rerun");
    let unknown = [("ids", text.as_str()), ("name", "shop"), ("back", &here)];
    let refused = site.post("/operations/rerun-from", &unknown).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn thousand_steps_are_folded() {
    let site = Site::open().await;
    let (_engine, attempt, id) = claimed(&site).await;
    let long = format!("\"{}\"", "x".repeat(10_000));
    let steps: Vec<_> =
        (1..=1000).map(|n| step(&attempt, n, &format!("step-{n}-"), result(&long))).collect();
    record(&site, &steps).await;
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "step-10-");
    has(&page, "step-971-");
    has_not(&page, "step-11-");
    has_not(&page, "step-970-");
    has(&page, "960 steps");
    let folded = page.len();
    assert!(folded < 1_000_000, "{folded} bytes");
    let page = site.get(&format!("/tasks/{id}?steps=all")).await.ok();
    has(&page, "step-500-");
    has(&page, "Show fewer steps");
    assert!(rows(&page) >= 1000 && page.len() < 2_000_000, "{} bytes", page.len());
}

#[tokio::test]
async fn hostile_steps_are_escaped() {
    let site = Site::open().await;
    let (_engine, attempt, id) = claimed(&site).await;
    let hostile = "<script>alert(1)</script>";
    record(
        &site,
        &[
            step(&attempt, 1, hostile, result(&format!("\"{hostile}\""))),
            step(&attempt, 2, "\"><b>", StepContent::Wait(HOUR)),
        ],
    )
    .await;
    site.fixture.store.signal(&id.into(), "<i>early", &Json::null()).await.unwrap();
    let page = site.get(&format!("/tasks/{id}")).await.ok();
    has(&page, "&lt;i&gt;early");
    has(&page, "value=\"&quot;&gt;&lt;b&gt;\"");
    has_not(&page, "<script>alert");
    has_not(&page, "<i>early");
}
