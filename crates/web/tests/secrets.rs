//! A parameter that its class has declared secret is in no page and in no answer
//! of the interface, but for who may see it and has asked.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use task_engine::sqlite::SqliteStore;
use task_engine::{ClassRules, Engine, Failure, Json, NewTask, RetryRule, Run, Schedule, Store};
use task_engine_web::{Access, Dashboard, Role};
use tower::ServiceExt as _;

const CANARY: &str = "canary-7f3a91";

async fn ask(store: &Arc<SqliteStore>, role: Role, request: Request<Body>) -> (StatusCode, String) {
    let dashboard = Dashboard::new(store.clone(), Access::open_to(role));
    let answer = dashboard.router().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap()
}

/// A task that failed with the secret in its words, and a schedule of its class.
async fn store_with_secret() -> Arc<SqliteStore> {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    store.migrate().await.unwrap();
    let rules = ClassRules::default().secret(["password"]).retry(RetryRule::never());
    let engine = Engine::new(store.clone(), ()).instance("test").handle_class(
        "log_in",
        rules,
        |parameters: serde_json::Value, run: Run<()>| async move {
            let password = parameters["password"].as_str().unwrap_or_default();
            run.log(format!("I try {password}"));
            Err::<(), _>(Failure::from(format!("{password} is wrong")))
        },
    );
    let parameters =
        || Json::parse(format!(r#"{{"user": "ann", "password": "{CANARY}"}}"#)).unwrap();
    let task = NewTask::new("log_in", parameters()).unwrap();
    let schedule = Schedule::cron("nightly", "0 3 * * *").new_task(task.clone());
    task_engine::Client::new(store.clone()).schedules().add(&schedule).await.unwrap();
    store.create(&[task]).await.unwrap();
    let stop = engine.stop_handle();
    let engine = tokio::spawn(engine.run_until_stopped());
    while store.task(task_engine::TaskId(1)).await.unwrap().unwrap().row.error.is_none() {
        tokio::task::yield_now().await;
    }
    stop.stop();
    engine.await.unwrap().unwrap();
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_shown_nowhere() {
    let store = store_with_secret().await;
    for route in Dashboard::routes().iter().filter(|route| route.method == "GET") {
        if route.path.ends_with("/events") {
            continue;
        }
        for name in ["nightly", "1", "default", "test", "parameters.json", "result-1.json"] {
            let mut path = route.path.replace("{id}", "1").replace("{correlation}", "1");
            path = path.replace("{name}", name).replace("{file}", name).replace("{key}", name);
            let (status, text) = ask(&store, Role::Admin, get(&path)).await;
            assert!(!status.is_server_error(), "{path}: {status} {text}");
            assert!(!text.contains(CANARY), "{path}: {text}");
        }
    }
    let (status, text) = ask(&store, Role::Viewer, get("/tasks/1")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("[secret]") && text.contains("ann"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_guesses_a_secret_by_asking() {
    let store = store_with_secret().await;
    for path in [
        "/tasks?filter=params.password~canary",
        "/api/v1/tasks?filter=params.password~canary",
        "/api/v1/errors?filter=params.password~canary",
        "/tasks/preview?verb=retry&filter=params.password~canary",
    ] {
        for role in [Role::Viewer, Role::Operator] {
            let (status, text) = ask(&store, role, get(path)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} as {role}: {text}");
        }
        let (status, text) = ask(&store, Role::Admin, get(path)).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
    }
    let body = r#"{"filter": "params.password~canary", "dry_run": true}"#;
    let request = Request::post("/api/v1/tasks/retry")
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap();
    let (status, _) = ask(&store, Role::Operator, request).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sees_a_secret_is_on_record() {
    let store = store_with_secret().await;
    let reveal = || {
        Request::post("/actions/reveal")
            .header(header::HOST, "localhost")
            .header(header::ORIGIN, "http://localhost")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from("ids=1&reason=a+support+case"))
            .unwrap()
    };
    let (status, text) = ask(&store, Role::Operator, reveal()).await;
    assert_eq!((status, text.contains(CANARY)), (StatusCode::FORBIDDEN, false));
    let (status, text) = ask(&store, Role::Admin, reveal()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains(CANARY), "{text}");
    let entries = store.audit_page(&task_engine_model::AuditFilter::newest(10)).await.unwrap();
    assert_eq!(entries.len(), 2, "{entries:?}");
    for entry in entries {
        assert_eq!((entry.action.as_str(), entry.target.as_str()), ("tasks.reveal", "task 1"));
        assert_eq!(entry.reason.as_deref(), Some("a support case"));
    }
}

/// As an application creates it that knows the class, before any engine has.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_guesses_the_secret_of_a_task_that_no_engine_knows() {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    store.migrate().await.unwrap();
    let parameters =
        || Json::parse(format!(r#"{{"user": "ann", "password": "{CANARY}"}}"#)).unwrap();
    let mut secret = NewTask::new("log_in", parameters()).unwrap();
    secret.context = Json::parse(r#"{"secret_parameters": ["password"]}"#).unwrap();
    let open = NewTask::new("greet", parameters()).unwrap();
    store.create(&[secret, open]).await.unwrap();
    for letter in ["canary", "zebra"] {
        for field in ["password", "user"] {
            let path = format!("/api/v1/tasks?filter=params.{field}~{letter}");
            let (status, text) = ask(&store, Role::Viewer, get(&path)).await;
            assert_eq!(status, StatusCode::OK, "{text}");
            assert!(!text.contains("log_in"), "{path}: {text}");
            let page = ask(&store, Role::Viewer, get(&path.replace("/api/v1", ""))).await.1;
            assert!(!page.contains("log_in"), "{path}: {page}");
        }
        let cancels = |dry_run: bool| {
            let filter = format!("params.password~{letter} class=log_in");
            let body = serde_json::json!({"filter": filter, "dry_run": dry_run}).to_string();
            let request = Request::post("/api/v1/tasks/cancel").header(header::HOST, "localhost");
            request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap()
        };
        let (_, text) = ask(&store, Role::Operator, cancels(true)).await;
        assert!(text.contains(r#""count":0"#), "{text}");
        let (status, text) = ask(&store, Role::Operator, cancels(false)).await;
        assert!(status.is_success() && text.contains(r#""counts":{}"#), "{text}");
    }
    let (_, text) = ask(&store, Role::Viewer, get("/api/v1/tasks?filter=params.user=ann")).await;
    assert!(text.contains("greet") && !text.contains("log_in"), "{text}");
    let (_, text) = ask(&store, Role::Admin, get("/api/v1/tasks?filter=params.user=ann")).await;
    assert!(text.contains("log_in"), "{text}");
}
