//! The whole API, on both stores.

use serde_json::{Value, json};
use task_engine::{Engine, Failure};
use task_engine_conformance::waiting::wait_for;

use crate::client::{Client, Tables, postgres, sqlite};

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_on_sqlite() {
    all_of_it(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_on_postgres() {
    all_of_it(postgres().await).await;
}

async fn all_of_it(tables: Tables) {
    let client = tables.open();
    tasks_by_hand(&client).await;
    many_at_once(&client).await;
    queues_and_schedules(&client).await;
    tokens_and_audit(&client).await;
    work_is_seen(&tables, &client).await;
}

/// `id` of the task that was created.
fn id_of(created: &Value) -> i64 {
    created["tasks"][0]["id"].as_i64().expect("an id")
}

async fn tasks_by_hand(client: &Client) {
    // Numbers of any length, and any order of fields, come back as they went in.
    let parameters = r#"{"n":123456789012345678901234567890,"f":1.50,"e":1e400,"z":"é","a":[]}"#;
    let body = format!(
        r#"{{"class":"mail","parameters":{parameters},"queue":"slow lane","priority":-3,
            "scheduled_at":"2126-12-24T18:00:00Z","correlation_id":"order/7 ü","retry":{{"maximum":2}}}}"#
    );
    let created = client.ask("POST", "/api/v1/tasks", Some(&body)).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let place = created.header("location").to_owned();
    let created = created.json();
    assert_eq!(created["tasks"][0]["new"], true);
    let id = id_of(&created);
    assert_eq!(place, format!("/api/v1/tasks/{id}"));

    let shown = client.get(&place).await;
    for number in ["123456789012345678901234567890", "1.50", "1e400"] {
        assert!(is_lossless(&shown.text, number), "{number} in {}", shown.text);
    }
    let shown: Value = serde_json::from_str(&without_huge(&shown.text)).expect("JSON");
    assert_eq!(shown["status"], "waiting");
    assert_eq!((&shown["queue"], &shown["priority"]), (&json!("slow lane"), &json!(-3)));
    assert_eq!(shown["correlation_id"], "order/7 ü");
    assert_eq!(shown["context"]["retry"], json!({"maximum": 2}));

    let why = client.get(&format!("{place}/why")).await.ok();
    assert_eq!(why["reasons"][0]["reason"], "not_due");
    assert!(why["reasons"][0]["message"].as_str().unwrap().starts_with("it is not due"), "{why}");
    assert_eq!(client.get(&format!("{place}/logs")).await.ok(), json!({"lines": [], "next": null}));
    let flow = client.get("/api/v1/flows/order%2F7%20%C3%BC").await.ok();
    assert_eq!(flow["tasks"][0]["id"], id);
    client.get("/api/v1/flows/nobody").await.problem(404);

    let list = client.get("/api/v1/tasks?filter=class%3Dmail").await;
    assert!(!list.text.contains("1234567890123"), "no parameters in lists: {}", list.text);
    assert_eq!(list.ok()["tasks"][0]["id"], id);

    let edit = r#"{"parameters":{"n":98765432109876543210},"after":"2h","priority":7}"#;
    client.ask("PATCH", &place, Some(edit)).await.ok();
    let edited = client.get(&place).await;
    assert!(edited.text.contains("98765432109876543210"), "{}", edited.text);
    assert_eq!(edited.ok()["priority"], 7);

    client.delete(&place).await.ok();
    assert_eq!(client.get(&place).await.ok()["status"], "waiting", "only ended tasks go");
    let done = client.post(&format!("{place}/cancel"), &json!({"reason": "not needed"})).await.ok();
    assert_eq!(done["counts"], json!({"cancelled": 1}));
    client.ask("PATCH", &place, Some(r#"{"priority":1}"#)).await.problem(409);
    let again = client.ask("POST", &format!("{place}/rerun"), None).await;
    assert_eq!(again.status, 403, "no page of another site can be this, but a form could");
    let again = client.post(&format!("{place}/rerun"), &json!({})).await.ok();
    let copy = again["task_ids"][0].as_i64().expect("an id");
    assert!(copy > id);
    let copy = client.get(&format!("/api/v1/tasks/{copy}")).await;
    assert!(copy.text.contains("98765432109876543210"), "{}", copy.text);
    client.post(&format!("{place}/retry"), &json!({})).await.ok();
    assert_eq!(client.get(&place).await.ok()["status"], "waiting");
    client.post(&format!("{place}/cancel"), &json!({})).await.ok();
    client.delete(&format!("{place}?reason=tidy")).await.ok();
    client.get(&place).await.problem(404);
    for (method, rest) in [("GET", ""), ("GET", "/why"), ("GET", "/logs"), ("POST", "/retry")] {
        let body = (method == "POST").then_some("{}");
        client.ask(method, &format!("{place}{rest}"), body).await.problem(404);
    }
}

/// PostgreSQL writes 1e400 in full; SQLite leaves the text alone.
fn is_lossless(text: &str, number: &str) -> bool {
    let zeros = format!("1{}", "0".repeat(400));
    text.contains(number) || (number == "1e400" && text.contains(&zeros))
}

/// Numbers that the parser of this test cannot read, and every store keeps.
fn without_huge(text: &str) -> String {
    text.replace("1e400", "1").replace(&"0".repeat(400), "")
}

async fn many_at_once(client: &Client) {
    let tasks: Vec<_> = (0..20).map(|n| json!({"class": "bulk", "parameters": {"n": n}})).collect();
    let created = client.post("/api/v1/tasks", &json!({"tasks": tasks})).await.ok();
    let ids: Vec<i64> =
        created["tasks"].as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), 20);
    assert!(ids.is_sorted());
    let list = client.post("/api/v1/tasks", &json!([{"class": "other"}])).await.ok();
    assert_eq!(list["tasks"][0]["outcome"], "created");

    let dry = json!({"filter": "class=bulk", "dry_run": true});
    let dry = client.post("/api/v1/tasks/cancel", &dry).await.ok();
    assert_eq!((&dry["count"], &dry["and_more"]), (&json!(20), &json!(false)));
    assert_eq!(dry["sample"].as_array().unwrap().len(), 10);
    let waiting = client.get("/api/v1/tasks?filter=class%3Dbulk+status%3Dwaiting").await.ok();
    assert_eq!(waiting["tasks"].as_array().unwrap().len(), 20, "nothing was done");

    // Ids as numbers and as texts.
    let some = json!({"ids": [ids[0], ids[1].to_string()], "reason": "two"});
    let done = client.post("/api/v1/tasks/cancel", &some).await.ok();
    assert_eq!(done["counts"], json!({"cancelled": 2}));
    let rest = json!({"filter": "class=bulk"});
    let done = client.post("/api/v1/tasks/cancel", &rest).await.ok();
    assert_eq!(done["counts"], json!({"cancelled": 18}));
    let back = json!({"filter": "class=bulk status=cancelled"});
    let done = client.post("/api/v1/tasks/retry", &back).await.ok();
    assert_eq!(done["counts"], json!({"retried": 20}));
    client.post("/api/v1/tasks/cancel", &rest).await.ok();
    let again = client.post("/api/v1/tasks/rerun", &json!({"ids": [ids[0]]})).await.ok();
    assert_eq!(again["task_ids"].as_array().unwrap().len(), 1);
    let gone = client.post("/api/v1/tasks/delete", &rest).await.ok();
    assert_eq!(gone["counts"], json!({"deleted": 20}));
}

const ODD: [(&str, &str); 5] = [
    ("a/b", "a%2Fb"),
    ("with space & more", "with%20space%20%26%20more"),
    ("ü%20?#", "%C3%BC%2520%3F%23"),
    ("preview", "preview"),
    ("'; DROP TABLE schedules; --", "'%3B%20DROP%20TABLE%20schedules%3B%20--"),
];

async fn queues_and_schedules(client: &Client) {
    for (name, encoded) in ODD {
        let path = format!("/api/v1/queues/{encoded}");
        let because = json!({"reason": "provider is down"});
        client.post(&format!("{path}/pause"), &because).await.ok();
        let queues = client.get("/api/v1/queues").await.ok();
        let of = |queues: &Value| {
            let all = queues["queues"].as_array().unwrap().clone();
            all.into_iter().find(|queue| queue["name"] == name)
        };
        assert_eq!(of(&queues).expect(name)["paused"]["reason"], "provider is down");
        client.post(&format!("{path}/resume"), &json!({})).await.ok();

        let path = format!("/api/v1/schedules/{encoded}");
        client.get(&path).await.problem(404);
        let mut says = json!({"name": name, "rule": "0 3 * * *", "class": "nightly",
            "time_zone": "Europe/Paris", "parameters": {"deep": 5}, "missed": "all:7",
            "overlap": "wait", "jitter": "5s", "queue": name});
        let added = client.post("/api/v1/schedules", &says).await;
        assert_eq!(added.status, 201, "{}", added.text);
        client.post("/api/v1/schedules", &says).await.problem(409);
        let shown = client.get(&path).await.ok();
        assert_eq!((&shown["name"], &shown["missed"]), (&json!(name), &json!("all:7")));
        assert_eq!(shown["parameters"], json!({"deep": 5}));
        let list = client.get("/api/v1/schedules").await;
        assert!(!list.text.contains("deep"), "no parameters in lists: {}", list.text);
        says.as_object_mut().unwrap().remove("name");
        says["rule"] = json!("every 15m");
        let text = says.to_string();
        assert_eq!(client.ask("PUT", &path, Some(&text)).await.status, 200);
        assert_eq!(client.get(&path).await.ok()["rule"], "every 15m");
        client.post(&format!("{path}/pause"), &json!({"reason": "audit"})).await.ok();
        assert_eq!(client.get(&path).await.ok()["paused"]["reason"], "audit");
        client.post(&format!("{path}/resume"), &json!({})).await.ok();
        let ran = client.post(&format!("{path}/run"), &json!({})).await.ok();
        let task = ran["task_ids"][0].as_i64().unwrap();
        let task = client.get(&format!("/api/v1/tasks/{task}")).await.ok();
        assert_eq!(task["context"]["schedule"], name);
        client.delete(&format!("{path}?reason=over")).await.ok();
        client.delete(&path).await.problem(404);
        assert_eq!(client.ask("PUT", &path, Some(&text)).await.status, 201, "it begins anew");
        client.delete(&path).await.ok();
    }
    let rule = "/api/v1/schedule-preview?rule=30+2+*+*+*&time_zone=Europe/Paris&count=3";
    let times = client.get(rule).await.ok();
    assert_eq!(times["times"].as_array().unwrap().len(), 3);
}

async fn tokens_and_audit(client: &Client) {
    let wanted = json!({"name": "ci/deploy", "role": "operator", "expires_in": "30 days"});
    let made = client.post("/api/v1/tokens", &wanted).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("te_"));
    client.post("/api/v1/tokens", &wanted).await.problem(409);
    let list = client.get("/api/v1/tokens").await;
    assert!(!list.text.contains(&token[3..]), "a token is seen once");
    assert_eq!(list.ok()["tokens"][0]["name"], "ci/deploy");
    client.token(&token).get("/api/v1/tasks").await.ok();
    client.token(&token).get("/api/v1/audit").await.problem(403);
    client.delete("/api/v1/tokens/ci%2Fdeploy?reason=left").await.ok();
    client.token(&token).get("/api/v1/tasks").await.problem(401);
    client.delete("/api/v1/tokens/ci%2Fdeploy").await.problem(404);

    let audit = client.get("/api/v1/audit?limit=500").await;
    assert!(!audit.text.contains(&token[3..]), "nor in the audit");
    let audit = audit.ok();
    let entries = audit["entries"].as_array().unwrap();
    for (action, reason) in [("tasks.cancel", "not needed"), ("tokens.revoke", "left")] {
        let of = |outcome: &str| {
            entries.iter().any(|entry| {
                entry["action"] == action
                    && entry["reason"] == reason
                    && entry["outcome"] == outcome
            })
        };
        assert!(of("started") && of("done"), "{action}");
    }
    let created = entries.iter().filter(|entry| entry["action"] == "tasks.create").count();
    assert_eq!(created, 0, "tasks say themselves who created them");
    let first = client.get("/api/v1/audit?limit=1").await.ok();
    let next = first["next"].as_i64().unwrap();
    let second = client.get(&format!("/api/v1/audit?limit=1&before={next}")).await.ok();
    assert!(second["entries"][0]["id"].as_i64().unwrap() < next);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Fails {}

impl task_engine::Task for Fails {
    const CLASS: &'static str = "fails";
}

async fn work_is_seen(tables: &Tables, client: &Client) {
    async fn fails(_: Fails, cx: task_engine::Context<()>) -> Result<(), Failure> {
        cx.log("about to fail");
        Err(Failure::no_retry("user 7 is not there"))
    }
    let created = client.post("/api/v1/tasks", &json!({"class": "fails"})).await.ok();
    let id = id_of(&created);
    let engine = Engine::new(tables.store.clone(), ()).instance("a/b").handle(fails);
    let stop = engine.stop_handle();
    let running = tokio::spawn(engine.run_until_stopped());
    let path = format!("/api/v1/tasks/{id}");
    wait_for("it fails", async || {
        (client.get(&path).await.ok()["status"] == "failed").then_some(())
    })
    .await;
    // The answer is cached for a moment.
    wait_for("the engine is seen", async || {
        let instances = client.get("/api/v1/instances").await.ok();
        (instances["instances"][0]["name"] == "a/b").then_some(())
    })
    .await;
    client.post("/api/v1/instances/a%2Fb/recover", &json!({})).await.problem(409);
    client.post("/api/v1/instances/nobody/recover", &json!({})).await.problem(404);
    stop.stop();
    running.await.expect("no panic").expect("a good end");

    let shown = client.get(&path).await.ok();
    assert_eq!(shown["executions"][0]["error"]["message"], "user 7 is not there");
    let logs = client.get(&format!("{path}/logs?attempt=1")).await.ok();
    assert_eq!(logs["lines"][0]["message"], "about to fail");
    let errors = client.get("/api/v1/errors?filter=class%3Dfails").await.ok();
    assert_eq!(errors["groups"][0]["message"], "user <n> is not there");
    assert_eq!(errors["groups"][0]["newest_task"], id);
    wait_for("the failure is counted", async || {
        let stats = client.get("/api/v1/stats").await.ok();
        assert!(stats["failed"]["counted"].as_i64().unwrap() >= 1, "{stats}");
        (stats["last_hour"]["failed"] == 1).then_some(())
    })
    .await;
    let failures = r#"task_engine_attempts_ended_last_hour{class="fails",outcome="failure"} 1"#;
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.lines().any(|line| line == failures), "{metrics}");
    for depth in ["quick", "standard"] {
        let checks = client.get(&format!("/api/v1/checks?depth={depth}")).await.ok();
        assert!(!checks["checks"].as_array().unwrap().is_empty(), "{checks}");
    }
}
