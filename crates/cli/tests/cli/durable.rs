//! Durable tasks by commands: signals, steps, and running again from a step. The engine is in
//! the test, the commands are the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use task_engine::{Context, Failure, RunningEngine, Task, TaskEngine};
use task_engine_test_harness::{Sandbox, TestServer, wait_until};

use super::support::{sandbox, sandbox_on};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    #[serde(default)]
    card: String,
}

impl Task for Order {
    const CLASS: &'static str = "order";
    const SECRETS: &'static [&'static str] = &["card"];
}

/// How often the code of the step `charge` ran.
type Charged = Arc<AtomicU32>;

async fn order(order: Order, cx: Context<Charged>) -> Result<String, Failure> {
    cx.step("charge", || async {
        cx.state().fetch_add(1, Ordering::Relaxed);
        Ok::<_, Failure>(format!("charged {}", order.card))
    })
    .await?;
    let by: Result<String, _> = cx.wait_for("approved", HOUR).await;
    let by = by.map_err(|_| Failure::no_retry("not approved"))?;
    cx.step("ship", || async { Ok::<_, Failure>(format!("shipped for {by}")) }).await
}

/// Waits for a signal that is late, then for another one.
#[derive(Debug, Serialize, Deserialize)]
struct Late {}

impl Task for Late {
    const CLASS: &'static str = "late";
}

async fn late(cx: Context<Charged>) -> Result<bool, Failure> {
    let timed_out = cx.wait_for::<Value>("paid", Duration::from_millis(1)).await.is_err();
    let _ = cx.wait_for::<Value>("approved", HOUR).await;
    Ok(timed_out)
}

/// No engine has a handler for it.
#[derive(Debug, Serialize, Deserialize)]
struct Child {}

impl Task for Child {
    const CLASS: &'static str = "child";
}

#[derive(Debug, Serialize, Deserialize)]
struct Parent {}

impl Task for Parent {
    const CLASS: &'static str = "parent";
}

async fn parent(cx: Context<Charged>) -> Result<usize, Failure> {
    Ok(cx.call_all::<_, Value>([Child {}, Child {}]).await.len())
}

struct Scene {
    sandbox: Sandbox,
    engine: RunningEngine,
    charged: Charged,
}

impl Scene {
    async fn sqlite() -> Self {
        let sandbox = sandbox();
        let url = format!("sqlite:{}", sandbox.path("task-engine.db").display());
        Self::new(sandbox, &url).await
    }

    async fn new(sandbox: Sandbox, url: &str) -> Self {
        sandbox.ok(&["migrate"]);
        let charged = Charged::default();
        let engine = TaskEngine::connect(url)
            .await
            .unwrap()
            .engine(Arc::clone(&charged))
            .handle(order)
            .handle::<Late, _>(late)
            .handle::<Parent, _>(parent)
            .start()
            .await
            .unwrap();
        Self { sandbox, engine, charged }
    }

    fn ok(&self, args: &[&str]) -> String {
        self.sandbox.ok(args)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Waits until the last step has this state, and the task this status.
    fn until(&self, id: &str, state: &str, status: &str) -> Value {
        let mut steps = Value::Null;
        wait_until(format!("task {id} is {status}, its last step {state}"), || {
            steps = self.json(&["steps", id]);
            let last = steps["steps"].as_array().unwrap().last();
            last.is_some_and(|last| last["state"] == state) && steps["status"] == status
        });
        steps
    }

    async fn end(self) {
        self.engine.stop();
        self.engine.join().await.unwrap();
        self.sandbox.ok(&["verify"]);
    }
}

#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str], code: i32, message: &str) {
    let output = sandbox.run(args);
    assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
    assert!(output.err.contains(message), "{args:?}: {output:?}");
}

async fn signal_wakes_task(scene: Scene) {
    scene.ok(&["create", "order", r#"{"card": "4711-0815"}"#]);
    scene.until("1", "waiting", "waiting");
    let why = scene.ok(&["why", "1"]);
    assert!(why.contains("it waits for signal approved until"), "{why}");
    assert!(why.contains("`task-engine signal 1 approved 'JSON'`"), "{why}");
    let reason = &scene.json(&["why", "1"])["reasons"][0];
    assert_eq!(
        (&reason["reason"], &reason["signal"]),
        (&"waiting_for_signal".into(), &"approved".into())
    );

    let kept = scene.ok(&["signal", "1", "aproved"]);
    assert_eq!(
        kept,
        "Task 1 keeps signal aproved until it waits for it; now it waits for signal approved.\n"
    );
    let sent = scene.ok(&["signal", "1", "approved", r#""ada""#]);
    assert_eq!(sent, "Task 1 got signal approved and continues.\n");
    let steps = scene.until("1", "recorded", "stopped");
    let names: Vec<_> = steps["steps"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["charge", "approved", "ship"]);
    assert_eq!(steps["steps"][1]["result"], "ada");
    assert_eq!(steps["kept_signals"][0]["name"], "aproved");
    refused(
        &scene.sandbox,
        &["signal", "1", "approved"],
        4,
        "Task 1 has ended (stopped): signals are refused",
    );
    let audit = scene.ok(&["audit", "--json"]);
    for sentence in [
        "Task 1 got signal approved and continues.",
        "Task 1 keeps signal aproved until",
        "Task 1 has ended (stopped): signals are refused.",
    ] {
        assert!(audit.contains(sentence), "{audit}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_wakes_task_on_sqlite() {
    signal_wakes_task(Scene::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_wakes_task_on_postgres() {
    let url = TestServer::shared().create_database().await;
    signal_wakes_task(Scene::new(sandbox_on(&url), &url).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_printed_without_secrets() {
    let scene = Scene::sqlite().await;
    scene.ok(&["create", "order", r#"{"card": "4711-0815"}"#]);
    scene.until("1", "waiting", "waiting");
    scene.ok(&["signal", "1", "approved", r#""4711-0815""#]);
    scene.until("1", "recorded", "stopped");
    let table = scene.ok(&["steps", "1"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("#  NAME") && lines[0].ends_with("ATTEMPT  RESULT"), "{table}");
    assert!(lines[1].starts_with("1  charge    step  recorded"), "{table}");
    assert!(lines[1].ends_with(r#"1  "charged [secret]""#), "{table}");
    assert!(lines[2].starts_with("2  approved  wait  received"), "{table}");
    let shown = scene.ok(&["show", "1"]);
    assert!(shown.contains("\n3 steps\n    1  charge: step recorded, took "), "{shown}");
    let json = scene.ok(&["show", "1", "--json"]);
    assert!(json.contains(r#""state":"received""#), "{json}");
    for text in [table, shown, json, scene.ok(&["steps", "1", "--json"])] {
        assert!(!text.contains("4711-0815"), "{text}");
    }
    let revealed = scene.ok(&["show", "1", "--reveal"]);
    assert!(revealed.contains("charged 4711-0815"), "{revealed}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_keeps_earlier_steps() {
    let scene = Scene::sqlite().await;
    scene.ok(&["create", "order", "--priority", "5"]);
    scene.until("1", "waiting", "waiting");
    scene.ok(&["signal", "1", "approved", r#""ada""#]);
    scene.until("1", "recorded", "stopped");

    let again = scene.ok(&["rerun", "1", "--from", "ship"]);
    assert_eq!(
        again,
        "Task 1 was created again as task 2: it keeps 2 steps and continues from step ship.\n"
    );
    let steps = scene.until("2", "recorded", "stopped");
    assert_eq!(steps["steps"][2]["result"], "shipped for ada");
    let task = scene.json(&["show", "2"]);
    let (context, priority) = (&task["context"], &task["priority"]);
    assert_eq!(
        (&context["kept_steps"], &context["rerun_of"], priority),
        (&1.into(), &1.into(), &5.into())
    );

    let again = scene.json(&["rerun", "2", "--from", "approved"]);
    assert_eq!((&again["outcome"], &again["created_id"]), (&"rerun".into(), &3.into()));
    let steps = scene.until("3", "waiting", "waiting");
    assert_eq!(steps["steps"][0]["attempt"], 0);
    assert!(scene.ok(&["steps", "3"]).contains(" kept  "));
    assert_eq!(scene.charged.load(Ordering::Relaxed), 1, "the step ran once");
    let audit = scene.ok(&["audit", "--json"]);
    assert!(audit.contains("Task 2 was created again as task 3"), "{audit}");
    assert!(scene.json(&["show", "3"])["context"]["kept_steps"] == 2);

    // A task without kept steps has nothing to load.
    scene.ok(&["rerun", "3"]);
    assert_eq!(scene.json(&["show", "4"])["context"]["kept_steps"], Value::Null);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_from_unknown_step_is_refused() {
    let scene = Scene::sqlite().await;
    let sandbox = &scene.sandbox;
    scene.ok(&["create", "order"]);
    scene.until("1", "waiting", "waiting");
    scene.ok(&["create", "child"]);
    for (args, code, message) in [
        (
            &["rerun", "1", "--from", "chrage"][..],
            2,
            r#"task 1 has no step "chrage"; did you mean charge? Its steps are: charge, approved"#,
        ),
        (&["rerun", "1", "--from", "xyz"], 2, r#"no step "xyz"; its steps are: charge, approved"#),
        (&["rerun", "2", "--from", "ship"], 4, "task 2 has no recorded steps"),
        (&["rerun", "9", "--from", "ship"], 3, "there is no task 9"),
        (&["rerun", "1", "2", "--from", "ship"], 2, "--from is for one task"),
        (&["rerun", "status=failed", "--from", "ship"], 2, "--from is for one task"),
        (&["rerun", "1", "--from", "charge", "--dry-run"], 2, "cannot be used with"),
    ] {
        refused(sandbox, args, code, message);
    }
    assert_eq!(sandbox.tasks().len(), 2);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_signal_is_refused() {
    let scene = Scene::sqlite().await;
    scene.ok(&["create", "late"]);
    scene.until("1", "waiting", "waiting");
    let message = "The wait of task 1 for signal paid has timed out";
    refused(&scene.sandbox, &["signal", "1", "paid"], 4, message);
    let output = scene.sandbox.run(&["signal", "1", "paid", "--json"]);
    let json: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &json["status"]), (Some(4), &"timed_out".into()));
    scene.ok(&["cancel", "1"]);
    let steps = scene.json(&["steps", "1"]);
    let states: Vec<_> =
        steps["steps"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["timed_out", "unfinished"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_children_are_named() {
    let scene = Scene::sqlite().await;
    scene.ok(&["create", "parent"]);
    scene.until("1", "running", "waiting");
    let why = scene.ok(&["why", "1"]);
    assert!(
        why.contains("it waits for 2 child tasks, 2 not ended: 2 (waiting), 3 (waiting)"),
        "{why}"
    );
    scene.ok(&["cancel", "2"]);
    let why = scene.ok(&["why", "1"]);
    assert!(why.contains("it waits for 2 child tasks, 1 not ended: 3 (waiting)"), "{why}");
    scene.ok(&["cancel", "3"]);
    let steps = scene.until("1", "ended", "stopped");
    assert_eq!(steps["steps"].as_array().unwrap().len(), 1, "{steps}");
    assert!(scene.ok(&["steps", "1"]).contains("2 child tasks: 2, 3"));
    scene.end().await;
}

#[test]
fn second_signal_is_refused() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "order", "--unique", "17"]);
    let kept = sandbox.ok(&["signal", "1", "approved", r#"{"by": "ada"}"#]);
    assert_eq!(kept, "Task 1 keeps signal approved until it waits for it.\n");
    let second = ["signal", "1", "approved"];
    refused(&sandbox, &second, 4, "Task 1 got signal approved before; the first one counts");
    let by_key = ["signal", "--class", "order", "--key", "17", "paid", "7"];
    assert_eq!(sandbox.ok(&by_key), "Task 1 keeps signal paid until it waits for it.\n");
    refused(&sandbox, &by_key, 4, "Task 1 got signal paid before");
    let payload = sandbox.run_with_input(&["signal", "1", "read", "-"], b"[1]\n");
    assert_eq!(payload.code, Some(0), "{payload:?}");
    let steps: Value = serde_json::from_str(&sandbox.ok(&["steps", "1", "--json"])).unwrap();
    let payloads: Vec<_> = steps["kept_signals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["payload"].to_string())
        .collect();
    assert_eq!(payloads, [r#"{"by":"ada"}"#, "7", "[1]"]);
    let steps = sandbox.run(&["steps", "1"]);
    assert!(steps.err.contains("Task 1 has recorded no steps."), "{steps:?}");
    assert!(steps.out.contains("Signal approved was sent"), "{steps:?}");
}

#[test]
fn invalid_signals_are_refused() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "order"]);
    for (args, code, message) in [
        (&["signal", "9", "approved"][..], 3, "there is no task 9"),
        (&["steps", "9"], 3, "there is no task 9"),
        (
            &["signal", "--class", "order", "--key", "x", "approved"],
            3,
            r#"there is no task of class order with the key "x""#,
        ),
        (&["signal", "1"], 2, "give the id of the task and the name of the signal"),
        (&["signal", "approved", "1"], 2, "whole number from 1"),
        (&["signal", "1", "a", "{}", "b"], 2, "unexpected"),
        (&["signal", "1", ""], 2, "invalid name of a signal"),
        (&["signal", "1", "approved#1"], 2, "invalid name of a signal"),
        (&["signal", "1", "approved", "ada"], 2, "payload: "),
        (&["signal", "1", "approved", "ada"], 2, r#"'"text"'"#),
        (&["signal", "1", "approved", "@missing.json"], 2, "cannot be opened"),
        (&["signal", "--class", "order", "approved"], 2, "--key"),
        (&["signal", "--class", "a", "--key", "b", "1", "approved", "1"], 2, "and no id"),
    ] {
        refused(&sandbox, args, code, message);
    }
    assert!(!sandbox.ok(&["audit"]).contains("task 1"), "nothing was changed");
}
