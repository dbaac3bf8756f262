//! Secret parameters appear in no page and no response, except when an admin reveals
//! them.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use serde_json::{Value, json};
use task_engine::sqlite::SqliteStore;
use task_engine::{
    Context, Failure, Json, NewTask, RetryRule, Schedule, TaskEngine, TaskId, TaskOptions,
};

use task_engine_web::{Access, Dashboard, Role};
use tower::ServiceExt as _;

const CANARY: &str = "canary-7f3a91";

async fn ask(store: &SqliteStore, role: Role, request: Request<Body>) -> (StatusCode, String) {
    let dashboard = Dashboard::new(store.clone(), Access::open_to(role));
    let answer = dashboard.router().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap()
}

/// A task whose error contains the secret, and a schedule of its class.
async fn store_with_secret() -> SqliteStore {
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let options = TaskOptions::default().secret(["password"]).retry(RetryRule::never());
    let engine = TaskEngine::new(store.clone()).engine(()).instance("test").handle_class(
        "log_in",
        options,
        |parameters: serde_json::Value, cx: Context<()>| async move {
            let password = parameters["password"].as_str().unwrap_or_default();
            cx.log(format!("I try {password}"));
            cx.step("try", || async { Ok::<_, Failure>(json!({"sent": password})) }).await?;
            Err::<(), _>(Failure::from(format!("{password} is wrong")))
        },
    );
    let parameters =
        || Json::parse(format!(r#"{{"user": "ann", "password": "{CANARY}"}}"#)).unwrap();
    let task = NewTask::new("log_in", parameters()).unwrap();
    let schedule = Schedule::cron("nightly", "0 3 * * *").new_task(task.clone());
    task_engine::TaskEngine::new(store.clone()).schedules().add(&schedule).await.unwrap();
    store.create(&[task]).await.unwrap();
    let payload = Json::encode(&[CANARY]).unwrap();
    store.signal(&TaskId(1).into(), &format!("with {CANARY}"), &payload).await.unwrap();
    let stop = engine.stop_handle();
    let engine = tokio::spawn(engine.run_until(std::future::pending()));
    while store.task(task_engine::TaskId(1)).await.unwrap().unwrap().row.error.is_none() {
        tokio::task::yield_now().await;
    }
    stop.stop();
    engine.await.unwrap().unwrap();
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_redacted_everywhere() {
    let store = store_with_secret().await;
    for route in Dashboard::routes().iter().filter(|route| route.method == "GET") {
        if route.path.ends_with("/events") {
            continue;
        }
        for name in
            ["nightly", "1", "default", "test", "parameters.json", "result-1.json", "step-1.json"]
        {
            let mut path = route.path.replace("{id}", "1").replace("{correlation}", "1");
            path = path.replace("{name}", name).replace("{file}", name).replace("{key}", name);
            let (status, text) = ask(&store, Role::Admin, get(&path)).await;
            assert!(!status.is_server_error(), "{path}: {status} {text}");
            assert!(!text.contains(CANARY), "{path}: {text}");
        }
    }
    let (_, steps) = ask(&store, Role::Viewer, get("/api/v1/tasks/1/steps")).await;
    assert_eq!(read(&steps)["steps"][0]["result"], json!({"sent": "[secret]"}), "{steps}");
    assert_eq!(read(&steps)["signals"][0]["payload"], json!(["[secret]"]), "{steps}");
    let (status, text) = ask(&store, Role::Viewer, get("/tasks/1")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("[secret]") && text.contains("ann"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_cannot_probe_secrets() {
    let store = store_with_secret().await;
    for path in [
        "/tasks?filter=params.password~canary",
        "/api/v1/tasks?filter=params.password~canary",
        "/api/v1/errors?filter=params.password~canary",
        "/tasks/preview?operation=retry&filter=params.password~canary",
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
async fn revealing_a_secret_is_audited() {
    let store = store_with_secret().await;
    let reveal = || {
        Request::post("/operations/reveal")
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
    let entries =
        store.audit_page(&task_engine_store::audit::AuditFilter::newest(10)).await.unwrap();
    assert_eq!(entries.len(), 2, "{entries:?}");
    for entry in entries {
        assert_eq!((entry.action.as_str(), entry.target.as_str()), ("tasks.reveal", "task 1"));
        assert_eq!(entry.reason.as_deref(), Some("a support case"));
    }
}

/// Created by an application before any engine knows the class.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_class_keeps_its_secrets() {
    let store = SqliteStore::open_in_memory().unwrap();
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

fn sent(method: &str, path: &str, body: &Value, key: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    request = request.header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_string())).unwrap()
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn resent_guesses_reveal_nothing() {
    let store = store_with_secret().await;
    let create = async |password: &str, user: &str| {
        let parameters = json!({"user": user, "password": password});
        let body = json!({"class": "log_in", "parameters": parameters, "after": "1h"});
        let request = sent("POST", "/api/v1/tasks", &body, Some("order-17"));
        ask(&store, Role::Operator, request).await
    };
    let (status, first) = create("4711", "ann").await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let id = read(&first)["tasks"][0]["id"].clone();
    // A wrong guess gets the same response and changes nothing.
    for guess in ["4711", "0000", "[secret"] {
        let (status, text) = create(guess, "ann").await;
        assert_eq!((status, &read(&text)["tasks"][0]["id"]), (StatusCode::OK, &id), "{text}");
    }
    assert_eq!(create("4711", "bob").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let stored = store.task(id.as_i64().map(TaskId).unwrap()).await.unwrap().unwrap();
    assert!(stored.parameters.as_str().contains("4711"));
    assert!(stored.context.as_str().contains("order-17"), "{}", stored.context);

    let shown = [
        format!("/api/v1/tasks/{id}"),
        format!("/tasks/{id}"),
        format!("/tasks/{id}/context.json"),
    ];
    for path in shown {
        let (status, text) = ask(&store, Role::Viewer, get(&path)).await;
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        let mark = read(stored.context.as_str())["http_request"].as_str().unwrap().to_owned();
        assert!(!text.contains("order-17") && !text.contains(&mark), "{path}: {text}");
    }
    let by_key = "/api/v1/tasks?filter=context.unique_key~order";
    let found = |text: &str| read(text)["tasks"].as_array().unwrap().len();
    assert_eq!(found(&ask(&store, Role::Viewer, get(by_key)).await.1), 0);
    assert_eq!(found(&ask(&store, Role::Admin, get(by_key)).await.1), 1);
    let by_mark = "/api/v1/tasks?filter=context.http_request~a";
    assert_eq!(ask(&store, Role::Operator, get(by_mark)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(ask(&store, Role::Admin, get(by_mark)).await.0, StatusCode::OK);
    // A task that does the same once more is not of that request.
    let rerun = sent("POST", &format!("/api/v1/tasks/{id}/rerun"), &json!({}), None);
    let (_, text) = ask(&store, Role::Operator, rerun).await;
    let again = TaskId(read(&text)["task_ids"][0].as_i64().unwrap());
    let context = store.task(again).await.unwrap().unwrap().context;
    assert!(!context.as_str().contains("http_request"), "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholders_keep_stored_secrets() {
    let store = store_with_secret().await;
    let (_, text) = ask(&store, Role::Admin, get("/api/v1/schedules/nightly")).await;
    let mut parameters = read(&text)["parameters"].clone();
    assert_eq!(parameters["password"], "[secret]");
    parameters["user"] = json!("bob");
    let schedule = json!({"rule": "0 4 * * *", "class": "log_in", "parameters": parameters});
    let put = |body: &Value| sent("PUT", "/api/v1/schedules/nightly", body, None);
    let (status, text) = ask(&store, Role::Admin, put(&schedule)).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let row = store.schedule("nightly").await.unwrap().0.unwrap();
    let stored = read(row.definition().unwrap().parameters.as_str());
    assert_eq!(stored, json!({"user": "bob", "password": CANARY}));
    // Nothing moves to another class.
    let mut other = schedule.clone();
    other["class"] = json!("print");
    let (status, text) = ask(&store, Role::Admin, put(&other)).await;
    assert_eq!(
        (status, &read(&text)["pointer"]),
        (StatusCode::BAD_REQUEST, &json!("/parameters/password"))
    );

    let task = json!({"class": "log_in", "parameters": {"user": "ann", "password": CANARY}, "after": "1h"});
    let (_, text) = ask(&store, Role::Operator, sent("POST", "/api/v1/tasks", &task, None)).await;
    let id = read(&text)["tasks"][0]["id"].as_i64().unwrap();
    let path = format!("/api/v1/tasks/{id}");
    let (_, text) = ask(&store, Role::Operator, get(&path)).await;
    let mut parameters = read(&text)["parameters"].clone();
    parameters["user"] = json!("eve");
    let edit = sent("PATCH", &path, &json!({"parameters": parameters}), None);
    let (status, text) = ask(&store, Role::Operator, edit).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let stored = store.task(TaskId(id)).await.unwrap().unwrap().parameters;
    assert_eq!(read(stored.as_str()), json!({"user": "eve", "password": CANARY}));

    let copy = json!({"class": "log_in", "parameters": parameters});
    let named = json!({"name": "x", "rule": "@daily", "class": "log_in", "parameters": parameters});
    for (request, pointer) in [
        (
            sent("PATCH", &path, &json!({"parameters": {"user": "[secret]"}}), None),
            "/parameters/user",
        ),
        (sent("POST", "/api/v1/tasks", &copy, None), "/parameters/password"),
        (sent("POST", "/api/v1/tasks", &json!([copy]), None), "/0/parameters/password"),
        (
            sent("POST", "/api/v1/tasks", &json!({"tasks": [copy]}), None),
            "/tasks/0/parameters/password",
        ),
        (sent("POST", "/api/v1/schedules", &named, None), "/parameters/password"),
        (sent("PUT", "/api/v1/schedules/new", &schedule, None), "/parameters/password"),
    ] {
        let (status, text) = ask(&store, Role::Admin, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{pointer}: {text}");
        assert_eq!(read(&text)["pointer"], pointer, "{text}");
    }
}
