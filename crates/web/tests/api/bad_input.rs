//! Invalid requests name the field or parameter, and change nothing.

use serde_json::{Value, json};

use crate::client::{Client, Tables, postgres, sqlite};

#[tokio::test]
async fn invalid_fields_have_a_pointer() {
    let tables = sqlite().await;
    let client = tables.open();
    let deep =
        format!(r#"{{"class":"a","parameters":{{"x":{}{}}}}}"#, "[".repeat(500), "]".repeat(500));
    let deeper = "[".repeat(200_000);
    let long = format!(r#"{{"class":"a","parameters":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
    let many = json!(vec![json!({"class": "a"}); 1001]).to_string();
    let last =
        json!({"tasks": [{"class": "a"}, {"class": "b"}, {"class": "c", "priority": "high"}]});
    for (body, pointer, text) in [
        ("", "/class", "missing"),
        ("{", "", "not JSON"),
        ("nonsense", "", "not JSON"),
        ("7", "", "Expected an object"),
        ("null", "", "Expected an object"),
        ("[]", "", "1 to 1000 tasks"),
        (&many, "", "1 to 1000 tasks"),
        (&deeper, "", "not JSON"),
        (&deep, "/parameters", "deeper than 64"),
        (&long, "/parameters", "too many"),
        (r#"{"tasks":7}"#, "/tasks", "expected a list"),
        (r#"{"tasks":[],"class":"a"}"#, "/class", "Unknown field"),
        (r#"{"tasks":[7]}"#, "/tasks/0", "Expected an object"),
        (&last.to_string(), "/tasks/2/priority", "found a string"),
        ("{}", "/class", "missing"),
        (r#"{"class":""}"#, "/class", "1 to 200 bytes"),
        (r#"{"class":"a\nb"}"#, "/class", "control characters"),
        (r#"{"class":7}"#, "/class", "found a number"),
        (r#"{"Class":"a"}"#, "/Class", "did you mean class?"),
        (r#"{"class":"a","paramters":{}}"#, "/paramters", "did you mean parameters?"),
        (r#"{"class":"a","parameters":[1]}"#, "/parameters", "a JSON object is needed"),
        (r#"{"class":"a","parameters":"{}"}"#, "/parameters", "a JSON object is needed"),
        (r#"{"class":"a","parameters":{"a":"\u0000"}}"#, "/parameters", "cannot be stored"),
        (r#"{"class":"a","queue":""}"#, "/queue", "1 to 200 bytes"),
        (r#"{"class":"a","queue":["x"]}"#, "/queue", "found a list"),
        (r#"{"class":"a","priority":1.5}"#, "/priority", "whole number"),
        (r#"{"class":"a","priority":3000000000}"#, "/priority", "32 bits"),
        (r#"{"class":"a","scheduled_at":"tomorrow"}"#, "/scheduled_at", "not a time"),
        (r#"{"class":"a","scheduled_at":"1969-01-01T00:00:00Z"}"#, "/scheduled_at", "before 1970"),
        (r#"{"class":"a","after":"soon"}"#, "/after", "not a duration"),
        (r#"{"class":"a","after":"-5s"}"#, "/after", "negative"),
        (r#"{"class":"a","after":"200 years"}"#, "/after", "in days"),
        (r#"{"class":"a","after":5}"#, "/after", "expected a string"),
        (
            r#"{"class":"a","scheduled_at":"2126-01-01T00:00:00Z","after":"5s"}"#,
            "/after",
            "not both",
        ),
        (r#"{"class":"a","limits":["api"]}"#, "/limits", "names of limits with their keys"),
        (r#"{"class":"a","limits":{"api":7}}"#, "/limits", "names of limits with their keys"),
        (r#"{"class":"a","limits":{"":"x"}}"#, "/limits", "a limit needs a name"),
        (
            r#"{"class":"a","limits":{"a":"x","b":"x","c":null,"d":"x"}}"#,
            "/limits",
            "at most 3 limits",
        ),
        (r#"{"class":"a","scope":"active"}"#, "/scope", "needs a `key`"),
        (r#"{"class":"a","key":""}"#, "/key", "1 to 500 bytes"),
        (r#"{"class":"a","key":"k","scope":"ever"}"#, "/scope", "not waiting, active"),
        (r#"{"class":"a","key":"k","on_conflict":"drop"}"#, "/on_conflict", "use keep"),
        (r#"{"class":"a","correlation_id":""}"#, "/correlation_id", "1 to 200 bytes"),
        (r#"{"class":"a","traceparent":"x"}"#, "/traceparent", "traceparent"),
        (r#"{"class":"a","retry":3}"#, "/retry", "Expected an object"),
        (r#"{"class":"a","retry":{"maximum":-1}}"#, "/retry/maximum", "from 0 up"),
        (r#"{"class":"a","retry":{"max":1}}"#, "/retry/max", "known: maximum"),
        (r#"{"class":"a","retry":{"jitter":2}}"#, "/retry/jitter", "from 0 to 1"),
        (
            r#"{"class":"a","retry":{"restart_after_progress":1}}"#,
            "/retry/restart_after_progress",
            "true or false",
        ),
        (r#"{"class":"a","retry":{"factor":"2"}}"#, "/retry/factor", "found a string"),
        (r#"{"class":"a","reason":"x"}"#, "/reason", "Unknown field"),
    ] {
        is_refused(&client, "POST", "/api/v1/tasks", body, pointer, text).await;
    }
    nothing_changed(&client).await;
}

#[tokio::test]
async fn other_bodies_have_pointers_too() {
    let tables = sqlite().await;
    let client = tables.open();
    for (method, path, body, pointer, text) in [
        ("POST", "/tasks/retry", "{}", "/filter", "missing"),
        ("POST", "/tasks/retry", r#"{"filter":""}"#, "/filter", "every task"),
        ("POST", "/tasks/retry", r#"{"filter":"statsu=failed"}"#, "/filter", "status"),
        ("POST", "/tasks/cancel", r#"{"ids":[]}"#, "/ids", "empty"),
        ("POST", "/tasks/cancel", r#"{"ids":7}"#, "/ids", "a list of task ids"),
        ("POST", "/tasks/cancel", r#"{"ids":[1,"x"]}"#, "/ids/1", "whole number"),
        ("POST", "/tasks/cancel", r#"{"ids":[1,1.5]}"#, "/ids/1", "whole number"),
        ("POST", "/tasks/cancel", r#"{"ids":[0]}"#, "/ids/0", "whole number from 1"),
        ("POST", "/tasks/delete", r#"{"ids":[1],"filter":"id=1"}"#, "/filter", "give one"),
        (
            "POST",
            "/tasks/rerun",
            r#"{"filter":"id=1","dry_run":"yes"}"#,
            "/dry_run",
            "true or false",
        ),
        ("POST", "/tasks/1/retry", r#"{"reson":"x"}"#, "/reson", "did you mean reason?"),
        ("PATCH", "/tasks/1", "{}", "", "Nothing to change"),
        ("PATCH", "/tasks/1", r#"{"parameters":[]}"#, "/parameters", "object"),
        ("PATCH", "/tasks/1", r#"{"queue":""}"#, "/queue", "1 to 200"),
        ("PATCH", "/tasks/1", r#"{"class":"b"}"#, "/class", "Unknown field"),
        ("POST", "/queues/a/pause", r#"{"reason":7}"#, "/reason", "expected a string"),
        ("POST", "/schedules", "{}", "/name", "missing"),
        ("PUT", "/schedules/n", "{}", "/rule", "missing"),
        ("POST", "/schedules", r#"{"rule":"* * *","class":"a","name":"n"}"#, "/rule", "5 fields"),
        ("POST", "/schedules", r#"{"rule":"@daily","name":"n"}"#, "/class", "missing"),
        ("POST", "/schedules", r#"{"rule":"@daily","class":"a"}"#, "/name", "missing"),
        ("PUT", "/schedules/n", r#"{"rule":"0 0 31 2 *","class":"a"}"#, "", "never fires"),
        (
            "PUT",
            "/schedules/n",
            r#"{"rule":"@daily","class":"a","time_zone":"Mars/Base"}"#,
            "/time_zone",
            "not known",
        ),
        (
            "PUT",
            "/schedules/n",
            r#"{"rule":"@daily","class":"a","missed":"some"}"#,
            "/missed",
            "skip, last",
        ),
        (
            "PUT",
            "/schedules/n",
            r#"{"rule":"@daily","class":"a","overlap":"no"}"#,
            "/overlap",
            "allow, skip",
        ),
        (
            "PUT",
            "/schedules/n",
            r#"{"rule":"@daily","class":"a","jitter":"2 days"}"#,
            "",
            "longer than a day",
        ),
        (
            "PUT",
            "/schedules/n",
            r#"{"rule":"@daily","class":"a","key":"k"}"#,
            "/key",
            "Unknown field",
        ),
        ("POST", "/tokens", r#"{"role":"admin"}"#, "/name", "missing"),
        ("POST", "/tokens", r#"{"name":"a"}"#, "/role", "missing"),
        ("POST", "/tokens", r#"{"name":"a","role":"root"}"#, "/role", "viewer, operator, admin"),
        ("POST", "/tokens", r#"{"name":"a\nb","role":"admin"}"#, "/name", "control"),
        (
            "POST",
            "/tokens",
            r#"{"name":"a","role":"admin","expires_in":"0s"}"#,
            "/expires_in",
            "longer than zero",
        ),
    ] {
        is_refused(&client, method, &format!("/api/v1{path}"), body, pointer, text).await;
    }
    nothing_changed(&client).await;
}

async fn is_refused(
    client: &Client,
    method: &str,
    path: &str,
    body: &str,
    pointer: &str,
    text: &str,
) {
    let shown: String = body.chars().take(100).collect();
    let response = client.ask(method, path, Some(body)).await;
    let problem = response.problem(400);
    assert_eq!(problem["pointer"], pointer, "{shown}: {problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(text), "{shown}: {detail}");
    let ends_once =
        detail.ends_with(['.', '?']) && !detail.ends_with("?.") && !detail.ends_with("..");
    assert!(ends_once, "a sentence: {detail}");
}

async fn nothing_changed(client: &Client) {
    assert_eq!(client.get("/api/v1/tasks").await.ok()["tasks"], json!([]));
    assert_eq!(client.get("/api/v1/schedules").await.ok()["schedules"], json!([]));
    assert_eq!(client.get("/api/v1/tokens").await.ok()["tokens"], json!([]));
    assert_eq!(client.get("/api/v1/queues").await.ok()["queues"], json!([]));
    assert_eq!(client.get("/api/v1/audit").await.ok()["entries"], json!([]), "not even requested");
}

#[tokio::test]
async fn other_errors_are_problem_details() {
    let tables = sqlite().await;
    let client = tables.open();
    client.get("/api/v1/nothing").await.problem(404);
    client.get("/api/v1/tasks/7").await.problem(404);
    let wrong = client.ask("PUT", "/api/v1/tasks", Some("{}")).await;
    let allow = wrong.header("allow").to_owned();
    wrong.problem(405);
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow:?}");
    let large = format!(r#"{{"class":"{}"}}"#, "x".repeat(17 << 20));
    client.ask("POST", "/api/v1/tasks", Some(&large)).await.problem(413);
    let problem = client.get("/api/v1/tasks/x").await.problem(400);
    assert_eq!(problem["parameter"], "id");
    client.get("/api/v1/queues/%FF").await.problem(404);
    client.post("/api/v1/queues/%FF/pause", &json!({})).await.problem(400);
    client.post("/api/v1/queues/a%00b/pause", &json!({})).await.problem(404);
    nothing_changed(&client).await;
    let token = tables.token("ci", task_engine_web::Role::Admin).await;
    let plain = client.token(&token).header("content-type", "text/plain");
    plain.ask("POST", "/api/v1/tasks", Some(r#"{"class":"a"}"#)).await.problem(415);
    assert_eq!(client.get("/api/v1/tasks").await.ok()["tasks"], json!([]));
}

const QUERIES: [(&str, &[&str]); 12] = [
    ("/tasks", &["filter", "before", "limit"]),
    ("/tasks/1", &[]),
    ("/tasks/1/logs", &["attempt", "after", "limit"]),
    ("/tasks/1/why", &[]),
    ("/tasks/1/steps", &[]),
    ("/flows/a", &["after", "limit"]),
    ("/errors", &["filter", "before", "limit"]),
    ("/checks", &["depth"]),
    ("/schedules", &["after", "limit"]),
    ("/schedule-preview", &["rule", "time_zone", "count"]),
    ("/audit", &["before", "limit"]),
    ("/stats", &[]),
];

const HOSTILE: [&str; 26] = [
    "",
    "-1",
    "0",
    "abc",
    "1e9",
    "1.5",
    "99999999999999999999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "%00",
    "%FF",
    "%",
    "%F0%9F%98%80",
    "%E2%80%AE",
    "%0A",
    "'%20OR%201=1;--",
    "class=%00",
    "class=%22%22",
    "correlation=%00",
    "params.a=%00",
    "created%3E99999999999d",
    "id=99999999999999999999",
    "status=",
    "../../etc/passwd",
    "$1",
    "%25s%25n",
];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_queries_on_sqlite() {
    hostile_queries(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_queries_on_postgres() {
    hostile_queries(postgres().await).await;
}

async fn hostile_queries(tables: Tables) {
    let client = tables.open();
    client.post("/api/v1/tasks", &json!({"class": "a", "correlation_id": "a"})).await.ok();
    let long = "x".repeat(10_000);
    let values: Vec<&str> = HOSTILE.into_iter().chain([long.as_str()]).collect();
    for (path, names) in QUERIES {
        for value in &values {
            for name in names.iter().chain(&["other"]) {
                is_harmless(&client, &format!("/api/v1{path}?{name}={value}")).await;
            }
        }
    }
    for value in values {
        for path in ["tasks/", "flows/", "schedules/"] {
            is_harmless(&client, &format!("/api/v1/{path}{value}")).await;
        }
    }
    let twice = client.get("/api/v1/tasks?limit=1&limit=2").await.problem(400);
    assert_eq!(twice["parameter"], "limit");
    let typo = client.get("/api/v1/tasks?limt=1").await.problem(400);
    assert!(typo["detail"].as_str().unwrap().contains("did you mean limit?"), "{typo}");
}

async fn is_harmless(client: &Client, path: &str) {
    let shown: String = path.chars().take(120).collect();
    let response = client.get(path).await;
    assert!(
        response.status.is_success() || response.status.is_client_error(),
        "{shown}: {response:?}"
    );
    let body: Value = response.json();
    assert!(body.is_object(), "{shown}: {body}");
    let text = body.to_string().to_lowercase();
    for leak in ["select ", "postgres://", "sqlite", "syntax error at", "panicked"] {
        assert!(!text.contains(leak), "{shown}: {body}");
    }
}
