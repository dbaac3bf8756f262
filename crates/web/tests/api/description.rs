//! The OpenAPI document matches routes, requests and responses.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use task_engine::{Context, Failure, Task, TaskEngine};
use task_engine_conformance::waiting::wait_for;
use task_engine_web::{Dashboard, Role};

use crate::client::{Client, Tables, sqlite};

async fn description(client: &Client) -> Value {
    client.get("/api/v1/openapi.json").await.ok()
}

fn operations(description: &Value) -> impl Iterator<Item = (String, String, &Value)> {
    description["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation))
    })
}

#[tokio::test]
async fn document_lists_every_route() {
    let tables = sqlite().await;
    let description = description(&tables.open()).await;
    assert_eq!(description["openapi"], "3.1.0");
    let described: BTreeSet<_> =
        operations(&description).map(|(method, path, _)| (method, path)).collect();
    let routes: Vec<_> =
        Dashboard::routes().into_iter().filter(|route| route.path.starts_with("/api/")).collect();
    let there: BTreeSet<_> =
        routes.iter().map(|it| (it.method.to_owned(), it.path.to_owned())).collect();
    assert_eq!(described, there);
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&description) {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
        let route = routes.iter().find(|it| it.method == method && it.path == path).unwrap();
        assert_eq!(operation["x-role"].as_str(), route.needs.map(Role::as_str), "{method} {path}");
        let named: Vec<_> = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["in"] == "path")
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        let varies: Vec<_> =
            path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(named, varies, "{method} {path}");
    }
}

#[tokio::test]
async fn references_are_used_and_resolved() {
    let tables = sqlite().await;
    let description = description(&tables.open()).await;
    let mut used = BTreeSet::new();
    references(&description, &mut used);
    for reference in &used {
        assert!(!follow(&description, reference).is_null(), "{reference}");
    }
    for kind in ["schemas", "parameters"] {
        for name in description["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "{reference} is not used");
        }
    }
}

fn references(value: &Value, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                to.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, to));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, to)),
        _ => {}
    }
}

fn follow<'a>(description: &'a Value, reference: &str) -> &'a Value {
    description.pointer(reference.strip_prefix('#').unwrap()).unwrap_or(&Value::Null)
}

/// Each closed list of the document has the tokens of its type, and no others.
#[tokio::test]
async fn enums_list_every_token() {
    use task_engine_core::cancel::CancelOutcome;
    use task_engine_core::dependency::{DependencyCondition, FlowState};
    use task_engine_core::display::StepState;
    use task_engine_core::instance::InstanceState;
    use task_engine_core::progress::LogLevel;
    use task_engine_core::schedule::Overlap;
    use task_engine_core::schedule::history::ScheduleEventKind;
    use task_engine_core::step::{SignalStatus, StepKind};
    use task_engine_core::task::{ExecutionStatus, TaskStatus};
    use task_engine_core::unique::OnConflict;
    use task_engine_operations::OperationOutcome;
    use task_engine_operations::limits::KeyWait;
    use task_engine_operations::why::Reason;
    use task_engine_store::audit::AuditOutcome;
    use task_engine_store::check::{CHECK_NAMES, Verdict};

    fn tokens(list: impl serde::Serialize) -> Vec<String> {
        let mut tokens: Vec<String> =
            serde_json::from_value(serde_json::to_value(list).unwrap()).unwrap();
        tokens.sort();
        tokens
    }
    let executions = [
        ExecutionStatus::Running,
        ExecutionStatus::Success,
        ExecutionStatus::Failure,
        ExecutionStatus::Snoozed,
        ExecutionStatus::Cancelled,
    ];
    let cancels = [
        CancelOutcome::Pending,
        CancelOutcome::Unanswered,
        CancelOutcome::Acknowledged,
        CancelOutcome::Killed,
        CancelOutcome::Ignored,
    ];
    let instances = [
        InstanceState::Alive,
        InstanceState::ProcessGone,
        InstanceState::Dead,
        InstanceState::Stopped,
        InstanceState::Lost,
    ];
    let events = [
        ScheduleEventKind::SkippedMissed,
        ScheduleEventKind::SkippedOverlap,
        ScheduleEventKind::Manual,
    ];
    let creations = [OperationOutcome::Created, OperationOutcome::Kept, OperationOutcome::Replaced];
    let verdicts = [Verdict::Ok, Verdict::Unknown, Verdict::Warning, Verdict::Wrong];
    let (accepted, mut refused): (Vec<_>, Vec<_>) =
        SignalStatus::ALL.into_iter().partition(|status| status.is_accepted());
    // Its status is 404.
    refused.retain(|status| *status != SignalStatus::NotFound);
    let overlaps = [Overlap::Allow, Overlap::Skip, Overlap::Wait];
    // By the schema, or by the end of the pointer.
    let known = [
        ("/Execution/properties/status", tokens(executions)),
        ("/executions/items/properties/status", tokens(executions)),
        ("/cancel/properties/outcome", tokens(cancels)),
        ("/tasks/items/properties/outcome", tokens(creations)),
        ("/entries/items/properties/outcome", tokens(AuditOutcome::ALL)),
        ("/checks/items/properties/name", tokens(CHECK_NAMES.to_vec())),
        ("/counts/propertyNames", tokens(&OperationOutcome::ALL[..])),
        ("/TaskStatus", tokens(TaskStatus::ALL)),
        ("/ends_task", tokens(TaskStatus::ALL)),
        ("/on_conflict", tokens(OnConflict::ALL.map(OnConflict::as_str))),
        ("/level", tokens(LogLevel::ALL)),
        ("/condition", tokens(DependencyCondition::ALL)),
        ("/FlowState", tokens(FlowState::ALL)),
        ("/reason", tokens(Reason::TOKENS.to_vec())),
        ("/verdict", tokens(verdicts)),
        ("/state", tokens(instances)),
        ("/waits_for", tokens(KeyWait::ALL)),
        ("/Overlap", tokens(overlaps)),
        ("/overlap", tokens(overlaps)),
        ("/kind", tokens(events)),
        ("/StepKind", tokens(StepKind::ALL)),
        ("/StepState", tokens(StepState::ALL)),
        ("/SignalReport/properties/status", tokens(accepted)),
        ("/Error/properties/outcome", tokens(refused)),
        ("/Role", tokens(Role::ALL)),
        ("/sampled_fields/items", tokens(["last_error"])),
        ("/depth/schema", tokens(["quick", "standard"])),
    ];
    let tables = sqlite().await;
    let description = description(&tables.open()).await;
    let mut lists = Vec::new();
    enums(&description["components"], "", &mut lists);
    let mut used = BTreeSet::new();
    for (pointer, mut list) in lists {
        let (end, expected) = known
            .iter()
            .find(|(end, _)| pointer.ends_with(end))
            .unwrap_or_else(|| panic!("{pointer}: the test does not know its type"));
        list.sort();
        assert_eq!(list, *expected, "{pointer}");
        used.insert(*end);
    }
    assert_eq!(used.len(), known.len(), "the document uses {used:?}");
}

fn enums(value: &Value, pointer: &str, to: &mut Vec<(String, Vec<String>)>) {
    match value {
        Value::Object(fields) => {
            if let Some(list) = fields.get("enum") {
                to.push((pointer.to_owned(), serde_json::from_value(list.clone()).unwrap()));
            }
            for (name, value) in fields {
                enums(value, &format!("{pointer}/{name}"), to);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                enums(value, &format!("{pointer}/{at}"), to);
            }
        }
        _ => {}
    }
}

/// Exactly the described query parameters are accepted.
#[tokio::test]
async fn query_parameters_match() {
    let tables = sqlite().await;
    let client = tables.open();
    let description = description(&client).await;
    for (method, path, operation) in operations(&description) {
        if !["GET", "DELETE"].contains(&method.as_str())
            || operation["operationId"] == "events"
            || operation["operationId"] == "openapi"
        {
            continue;
        }
        let path = path.replace("{id}", "1").replace(['{', '}'], "");
        let problem = client.ask(&method, &format!("{path}?zzz=1"), None).await.problem(400);
        assert_eq!(problem["parameter"], "zzz", "{path}");
        let detail = problem["detail"].as_str().unwrap();
        for parameter in operation["parameters"].as_array().unwrap() {
            let Some(reference) = parameter["$ref"].as_str() else { continue };
            let name = follow(&description, reference)["name"].as_str().unwrap();
            assert!(detail.contains(name), "{path}: {name} in {detail}");
        }
        let described = operation["parameters"].as_array().unwrap().iter();
        let described = described.filter(|it| it.get("$ref").is_some()).count();
        let taken = detail.split("known: ").nth(1).map_or(0, |names| names.split(", ").count());
        assert_eq!(taken, described, "{path}: {detail}");
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Work {
    fails: bool,
}

impl Task for Work {
    const CLASS: &'static str = "work";
}

/// A store with tasks, executions, a schedule, a pause and a token.
async fn filled() -> (Tables, Client) {
    let tables = sqlite().await;
    let client = tables.open();
    let tasks = json!([
        {"class": "work", "parameters": {"fails": false}, "correlation_id": "flow"},
        {"class": "work", "parameters": {"fails": true}, "correlation_id": "flow"},
        {"class": "later", "after": "1h"},
    ]);
    client.post("/api/v1/tasks", &tasks).await.ok();
    async fn work(work: Work, cx: Context<()>) -> Result<Value, Failure> {
        cx.log("one line");
        cx.step("count", || async { Ok::<_, Failure>(1) }).await?;
        cx.progress(50.0, "half");
        if work.fails { Err(Failure::no_retry("no")) } else { Ok(json!({"n": 1})) }
    }
    let engine = TaskEngine::new(tables.store.clone()).engine(()).instance("one").handle(work);
    let stop = engine.stop_handle();
    let running = tokio::spawn(engine.run_until(std::future::pending()));
    wait_for("both have ended", async || {
        let open = client.get("/api/v1/tasks?filter=class%3Dwork+status%3Dwaiting,running").await;
        open.ok()["tasks"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    stop.stop();
    running.await.unwrap().unwrap();
    let nightly = json!({"name": "name", "rule": "every 1h", "class": "work"});
    client.post("/api/v1/schedules", &nightly).await.ok();
    client.post("/api/v1/queues/name/pause", &json!({"reason": "why"})).await.ok();
    client.post("/api/v1/tokens", &json!({"name": "name", "role": "viewer"})).await.ok();
    (tables, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_match_their_schemas() {
    let (tables, client) = filled().await;
    let description = description(&client).await;
    // The body of each change, in an order in which all of them can be done.
    for (method, path, body) in [
        ("GET", "/tasks", ""),
        ("POST", "/tasks", r#"{"class":"a"}"#),
        ("POST", "/tasks", r#"{"tasks":[{"class":"a","key":"k","retry":{"maximum":1}}]}"#),
        ("POST", "/tasks/retry", r#"{"filter":"class=work","dry_run":true}"#),
        ("POST", "/tasks/retry", r#"{"ids":[999,998]}"#),
        ("POST", "/tasks/cancel", r#"{"ids":["999",998]}"#),
        ("POST", "/tasks/rerun", r#"{"ids":[1]}"#),
        ("POST", "/tasks/delete", r#"{"filter":"class=nothing"}"#),
        ("GET", "/tasks/{id=1}", ""),
        ("GET", "/tasks/{id=2}", ""),
        ("GET", "/tasks/{id=3}", ""),
        ("GET", "/tasks/{id=1}/logs", ""),
        ("GET", "/tasks/{id=1}/why", ""),
        ("GET", "/tasks/{id=3}/why", ""),
        ("GET", "/tasks/{id=1}/steps", ""),
        ("POST", "/tasks/{id=1}/rerun", r#"{"from":"count"}"#),
        ("POST", "/tasks/{id=3}/signals/{name=approved}", r#"{"by":"ada"}"#),
        ("POST", "/signals", r#"{"class":"a","key":"k","name":"approved","payload":1}"#),
        ("GET", "/tasks/{id=3}/steps", ""),
        ("PATCH", "/tasks/{id=3}", r#"{"priority":5}"#),
        ("POST", "/tasks/{id=3}/retry", "{}"),
        ("POST", "/tasks/{id=3}/rerun", r#"{"reason":"again"}"#),
        ("POST", "/tasks/{id=3}/cancel", "{}"),
        ("DELETE", "/tasks/{id=3}", ""),
        ("GET", "/flows/{correlation_id=flow}", ""),
        (
            "POST",
            "/flows",
            r#"{"name":"n","correlation_id":"night","tasks":{"a":{"class":"later","delay":"1h","priority":2},"b":{"class":"later","after":["a",1],"after_end":2}}}"#,
        ),
        ("GET", "/flows", ""),
        ("GET", "/flows/{correlation_id=night}", ""),
        ("GET", "/stats", ""),
        ("GET", "/errors", ""),
        ("GET", "/checks", ""),
        ("GET", "/queues", ""),
        ("POST", "/queues/{name}/pause", "{}"),
        ("POST", "/queues/{name}/resume", "{}"),
        (
            "PUT",
            "/limits/{name=sync}",
            r#"{"class":"work","max":2,"key":"fails","rate":{"max":5,"per":"1m"},"weights":{"true":3}}"#,
        ),
        ("PUT", "/limits/{name=sync}", r#"{"max":1,"rate":{"max":5,"per":"1m","even":true}}"#),
        ("GET", "/limits", ""),
        ("GET", "/limits/{name=sync}", ""),
        ("POST", "/limits/{name=sync}/open", r#"{"key":"true"}"#),
        ("DELETE", "/limits/{name=sync}", ""),
        ("GET", "/instances", ""),
        ("POST", "/instances/{name=one}/recover", "{}"),
        ("GET", "/schedule-preview", "rule=30+2+*+3+*&time_zone=Europe/Paris&count=40"),
        ("GET", "/schedules", ""),
        ("POST", "/schedules", r#"{"name":"other","rule":"@daily","class":"a"}"#),
        ("PUT", "/schedules/{name}", r#"{"rule":"@hourly","class":"a","jitter":"1s"}"#),
        ("POST", "/schedules/{name}/pause", "{}"),
        ("GET", "/schedules/{name}", ""),
        ("POST", "/schedules/{name}/resume", "{}"),
        ("POST", "/schedules/{name}/run", "{}"),
        ("DELETE", "/schedules/{name}", ""),
        ("GET", "/audit", ""),
        ("GET", "/tokens", ""),
        ("POST", "/tokens", r#"{"name":"b","role":"admin","expires_in":"1h"}"#),
        ("DELETE", "/tokens/{name}", ""),
        ("GET", "/openapi.json", ""),
    ] {
        let (template, mut address) = addresses(path);
        if method == "GET" && !body.is_empty() {
            address = format!("{address}?{body}");
        }
        let operation = &description["paths"][&template][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {template}");
        let sent = (method != "GET" && !body.is_empty()).then_some(body);
        if let Some(sent) = sent {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let sent: Value = serde_json::from_str(sent).unwrap();
            fits(&description, schema, &sent).unwrap_or_else(|why| panic!("{template}: {why}"));
        }
        let audited = newest_entry(&tables).await;
        let reply = client.ask(method, &address, sent).await;
        let creates = matches!((method, path), ("POST", "/tasks" | "/flows"));
        let changes = method != "GET" && !body.contains("dry_run") && !creates;
        let entries = newest_entry(&tables).await - audited;
        assert_eq!(entries, if changes { 2 } else { 0 }, "{method} {address}: audited");
        let response = &operation["responses"][reply.status.as_str()];
        assert!(response.is_object(), "{method} {address}: {} {}", reply.status, reply.text);
        let schema = &response["content"]["application/json"]["schema"];
        let answer = reply.ok();
        fits(&description, schema, &answer)
            .unwrap_or_else(|why| panic!("{method} {address}: {why} in {answer}"));
    }
    let problem = client.get("/api/v1/tasks/0").await.problem(400);
    fits(&description, &json!({"$ref": "#/components/schemas/Error"}), &problem).unwrap();
}

async fn newest_entry(tables: &Tables) -> i64 {
    tables
        .store
        .audit_page(&task_engine_store::audit::AuditFilter::newest(1))
        .await
        .unwrap()
        .first()
        .map_or(0, |entry| entry.id)
}

/// `{name=x}` is `{name}` in the description and `x` in the address.
fn addresses(path: &str) -> (String, String) {
    let (mut template, mut address) = (String::from("/api/v1"), String::from("/api/v1"));
    for piece in path.split('/').skip(1) {
        let varies = piece.strip_prefix('{').and_then(|piece| piece.strip_suffix('}'));
        let (name, value) = match varies {
            None => (piece.to_owned(), piece),
            Some(both) => {
                let (name, value) = both.split_once('=').unwrap_or((both, both));
                (format!("{{{name}}}"), value)
            }
        };
        template += &format!("/{name}");
        address += &format!("/{value}");
    }
    (template, address)
}

/// Validates the part of JSON Schema that the document uses. Fields without a
/// description are errors, unless the schema has no properties.
fn fits(description: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(description, follow(description, reference), value)
            .map_err(|why| format!("{why} ({reference})"));
    }
    for any in ["oneOf", "anyOf"] {
        if let Some(options) = schema[any].as_array() {
            let tried: Vec<_> =
                options.iter().map(|option| fits(description, option, value)).collect();
            if !tried.iter().any(Result::is_ok) {
                return Err(format!("none of {tried:?}"));
            }
        }
    }
    if !type_fits(&schema["type"], value) {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    if let Some(tokens) = schema["enum"].as_array()
        && !tokens.contains(value)
        && !value.is_null()
    {
        return Err(format!("{value} is none of {tokens:?}"));
    }
    if schema["format"] == "date-time"
        && let Some(text) = value.as_str()
    {
        text.parse::<jiff::Timestamp>().map_err(|why| format!("{text}: {why}"))?;
    }
    match value {
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                fits(description, &schema["items"], value).map_err(|why| format!("{at}: {why}"))?;
            }
            Ok(())
        }
        Value::Object(fields) => object_fits(description, schema, fields),
        _ => Ok(()),
    }
}

fn object_fits(
    description: &Value,
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Err(format!("{name} is missing"));
        }
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (name, value) in fields {
        match properties.get(name) {
            Some(schema) => {
                fits(description, schema, value).map_err(|why| format!("{name}: {why}"))?;
            }
            None if schema["description"] == "Other fields depend on the reason." => {}
            None => return Err(format!("{name} is not described")),
        }
    }
    Ok(())
}

fn type_fits(wanted: &Value, value: &Value) -> bool {
    let one = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    };
    match wanted {
        Value::Array(names) => names.iter().any(|name| one(name.as_str().unwrap())),
        Value::String(name) => one(name),
        _ => true,
    }
}
