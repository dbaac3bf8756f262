//! Hooks run around tasks in their order, and cannot harm the engine.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine::hooks::Budget;
use task_engine::hooks::Next;
use task_engine::{
    Context, Engine, Failure, Hook, Json, RetryRule, Task, TaskEngine, TaskOptions, TaskStatus,
};

use crate::store::{Fresh, nothing, on_every_store, start};

on_every_store! {
    hooks_run_in_order
    hooks_wrap_blocking_tasks
    hook_extends_handler_input
    hook_refuses_attempt
    refusal_is_retried_by_rule
    hook_replaces_results_and_errors
    panicking_hook_is_named
    hanging_hook_is_named
    hook_limit_excludes_inner_time
    class_timeout_includes_hooks
    budget_fails_task
    budget_warns_and_waits
    worker_waits_for_blocking_thread
    handler_panic_names_handler
    hook_for_unknown_class_is_refused
}

fn once() -> TaskOptions {
    TaskOptions::default().retry(RetryRule::never())
}

/// Writes down what happens.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, words: impl Into<String>) {
        self.0.lock().unwrap().push(words.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Noting(&'static str, Notes);

impl Hook<()> for Noting {
    async fn before(&self, cx: &Context<()>) -> Result<(), Failure> {
        self.1.add(format!("{} before {}", self.0, cx.class()));
        Ok(())
    }

    async fn around(&self, _: &Context<()>, next: Next<'_, ()>) -> Result<Json, Failure> {
        self.1.add(format!("{} in", self.0));
        let outcome = next.run().await;
        self.1.add(format!("{} out", self.0));
        outcome
    }

    async fn after(
        &self,
        _: &Context<()>,
        outcome: Result<Json, Failure>,
    ) -> Result<Json, Failure> {
        self.1.add(format!("{} after", self.0));
        outcome
    }
}

async fn hooks_run_in_order(fresh: Fresh) {
    let notes = Notes::default();
    let inside = notes.clone();
    // Registered before and after the handlers: it makes no difference.
    let engine = fresh
        .engine()
        .workers(1)
        .hook(Noting("one", notes.clone()))
        .handle_class("a", once(), move |_: serde_json::Value, _: Context<()>| {
            let inside = inside.clone();
            async move {
                inside.add("handler");
                Ok::<_, Failure>(())
            }
        })
        .handle_class("b", once(), |_: serde_json::Value, _: Context<()>| async {
            Ok::<_, Failure>(())
        })
        .hook_for(["a"], Noting("two", notes.clone()));
    let engine = start(engine);
    let a = fresh.create("a", nothing()).await;
    fresh.until_status(a, TaskStatus::Stopped).await;
    let words = [
        "one before a",
        "one in",
        "two before a",
        "two in",
        "handler",
        "two out",
        "two after",
        "one out",
        "one after",
    ];
    assert_eq!(notes.take(), words);
    let b = fresh.create("b", nothing()).await;
    fresh.until_status(b, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(notes.take(), ["one before b", "one in", "one out", "one after"]);
    fresh.assert_sound().await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl Task for Blocks {
    const CLASS: &'static str = "blocks";

    fn options() -> TaskOptions {
        once()
    }
}

async fn hooks_wrap_blocking_tasks(fresh: Fresh) {
    let notes = Notes::default();
    let inside = notes.clone();
    let engine = fresh.engine().hook(Noting("one", notes.clone())).handle_blocking(
        move |_: Blocks, _: Context<()>| {
            inside.add("handler");
            Ok::<_, Failure>(7)
        },
    );
    let engine = start(engine);
    let id = fresh.create("blocks", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), "7");
    assert_eq!(notes.take(), ["one before blocks", "one in", "handler", "one out", "one after"]);
}

struct Tenant(String);

struct FindTenant;

impl Hook<String> for FindTenant {
    async fn before(&self, cx: &Context<String>) -> Result<(), Failure> {
        cx.extensions().insert(Tenant(format!("{}/{}", cx.state(), cx.class())));
        Ok(())
    }
}

async fn hook_extends_handler_input(fresh: Fresh) {
    let seen = |cx: &Context<String>| {
        let tenant = cx.extensions().get::<Tenant>().ok_or("no tenant")?;
        Ok::<_, Failure>(tenant.0.clone())
    };
    let engine = TaskEngine::new(fresh.store.clone())
        .engine("state".to_owned())
        .instance("test")
        .hook(FindTenant)
        .handle_class("a", once(), move |_: serde_json::Value, cx: Context<String>| async move {
            seen(&cx)
        })
        .handle_blocking(move |_: Blocks, cx: Context<String>| seen(&cx));
    let engine = start(engine);
    for class in ["a", "blocks"] {
        let id = fresh.create(class, nothing()).await;
        let task = fresh.until(id, |task| !task.executions.is_empty()).await;
        let task = if task.row.status == TaskStatus::Running {
            fresh.until_status(id, TaskStatus::Stopped).await
        } else {
            task
        };
        let result = task.executions[0].result.as_ref().unwrap();
        assert_eq!(result.as_str(), format!("\"state/{class}\""));
    }
    engine.stop().await;
}

/// Fails in one of its steps, in some way.
struct Bad {
    step: &'static str,
    how: fn() -> Result<(), Failure>,
    hangs: bool,
    limit: Duration,
}

impl Bad {
    fn at(step: &'static str, how: fn() -> Result<(), Failure>) -> Self {
        Self { step, how, hangs: false, limit: Duration::from_secs(10) }
    }

    async fn reach(&self, step: &str) -> Result<(), Failure> {
        if step != self.step {
            return Ok(());
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.how)()
    }
}

impl Hook<()> for Bad {
    fn name(&self) -> Cow<'static, str> {
        "bad hook".into()
    }

    fn time_limit(&self) -> Duration {
        self.limit
    }

    async fn before(&self, _: &Context<()>) -> Result<(), Failure> {
        self.reach("before").await
    }

    async fn around(&self, _: &Context<()>, next: Next<'_, ()>) -> Result<Json, Failure> {
        let outcome = next.run().await;
        self.reach("around").await?;
        outcome
    }

    async fn after(
        &self,
        _: &Context<()>,
        outcome: Result<Json, Failure>,
    ) -> Result<Json, Failure> {
        self.reach("after").await?;
        outcome
    }
}

/// An engine with this hook, whose handler notes that it ran.
fn with_hook(fresh: &Fresh, options: TaskOptions, hook: impl Hook<()>) -> (Engine<()>, Notes) {
    let notes = Notes::default();
    let inside = notes.clone();
    let engine = fresh.engine().workers(1).hook(hook).handle_class(
        "a",
        options,
        move |_: serde_json::Value, _: Context<()>| {
            let inside = inside.clone();
            async move {
                inside.add("ran");
                Ok::<_, Failure>("result")
            }
        },
    );
    (engine, notes)
}

async fn hook_refuses_attempt(fresh: Fresh) {
    let refuse = || Err(Failure::no_retry("not today"));
    let (engine, notes) = with_hook(&fresh, TaskOptions::default(), Bad::at("before", refuse));
    let outer = Notes::default();
    let engine = start(engine.hook(Noting("inner", outer.clone())));
    let id = fresh.create("a", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.row.error.unwrap().message, "not today");
    assert_eq!((notes.take(), outer.take()), (vec![], vec![]), "nothing further inside runs");
}

async fn refusal_is_retried_by_rule(fresh: Fresh) {
    let options = TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 2));
    let refuse = || Err(Failure::named("Closed", "the shop is closed"));
    let (engine, notes) = with_hook(&fresh, options, Bad::at("before", refuse));
    let engine = start(engine);
    let id = fresh.create("a", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.executions.len(), 3);
    assert_eq!(task.row.error.unwrap().exception, "Closed");
    assert_eq!(notes.take(), Vec::<String>::new());
    fresh.assert_sound().await;
}

struct Replace;

impl Hook<()> for Replace {
    async fn after(
        &self,
        cx: &Context<()>,
        outcome: Result<Json, Failure>,
    ) -> Result<Json, Failure> {
        match (cx.class(), outcome) {
            ("good", Ok(result)) => Err(Failure::no_retry(format!("not good enough: {result}"))),
            ("bad", Err(failure)) => {
                assert_eq!(failure.exception(), "Failure");
                Json::encode(&format!("never mind: {}", failure.message())).map_err(Into::into)
            }
            (_, other) => other,
        }
    }
}

async fn hook_replaces_results_and_errors(fresh: Fresh) {
    let engine = fresh
        .engine()
        .hook(Replace)
        .handle_class("good", once(), |_: serde_json::Value, _: Context<()>| async {
            Ok::<_, Failure>(1)
        })
        .handle_class("bad", once(), |_: serde_json::Value, _: Context<()>| async {
            Err::<(), _>(Failure::from("no"))
        });
    let engine = start(engine);
    let good = fresh.create("good", nothing()).await;
    let bad = fresh.create("bad", nothing()).await;
    let task = fresh.until_status(good, TaskStatus::Failed).await;
    assert_eq!(task.row.error.unwrap().message, "not good enough: 1");
    let task = fresh.until_status(bad, TaskStatus::Stopped).await;
    assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), "\"never mind: no\"");
    engine.stop().await;
}

async fn panicking_hook_is_named(fresh: Fresh) {
    for step in ["before", "around", "after"] {
        let (engine, _) = with_hook(&fresh, once(), Bad::at(step, || panic!("oh no")));
        let engine = start(engine);
        for _ in 0..2 {
            let id = fresh.create("a", nothing()).await;
            let task = fresh.until_status(id, TaskStatus::Failed).await;
            let error = task.row.error.unwrap();
            assert_eq!(error.exception, "HookPanicked");
            assert_eq!(error.message, format!("hook bad hook in `{step}`: oh no"));
            assert!(error.backtrace[0].contains("hooks.rs"), "{error:?}");
        }
        engine.stop().await;
    }
    fresh.assert_sound().await;
}

async fn hanging_hook_is_named(fresh: Fresh) {
    for step in ["before", "around", "after"] {
        let hanging =
            Bad { hangs: true, limit: Duration::from_millis(30), ..Bad::at(step, || Ok(())) };
        let (engine, _) = with_hook(&fresh, once(), hanging);
        let engine = start(engine);
        let id = fresh.create("a", nothing()).await;
        let task = fresh.until_status(id, TaskStatus::Failed).await;
        engine.stop().await;
        let error = task.row.error.unwrap();
        assert_eq!(error.exception, "HookTimedOut");
        assert_eq!(error.message, format!("hook bad hook: `{step}` was not finished after 30ms"));
    }
}

async fn hook_limit_excludes_inner_time(fresh: Fresh) {
    let quick = Bad { limit: Duration::from_millis(30), ..Bad::at("around", || Ok(())) };
    let sleep = Duration::from_millis(150);
    let engine = fresh
        .engine()
        .hook(quick)
        .handle_class("slow", once(), move |_: serde_json::Value, _: Context<()>| async move {
            tokio::time::sleep(sleep).await;
            Ok::<_, Failure>(())
        })
        .handle_blocking(move |_: Blocks, _: Context<()>| {
            std::thread::sleep(sleep);
            Ok::<_, Failure>(())
        });
    let engine = start(engine);
    for class in ["slow", "blocks"] {
        let id = fresh.create(class, nothing()).await;
        fresh.until_status(id, TaskStatus::Stopped).await;
    }
    engine.stop().await;
}

async fn class_timeout_includes_hooks(fresh: Fresh) {
    for step in ["before", "around", "after"] {
        let hanging = Bad { hangs: true, limit: Duration::MAX, ..Bad::at(step, || Ok(())) };
        let options = once().timeout(Duration::from_millis(50));
        let (engine, _) = with_hook(&fresh, options, hanging);
        let engine = start(engine);
        let id = fresh.create("a", nothing()).await;
        let task = fresh.until_status(id, TaskStatus::Failed).await;
        engine.stop().await;
        assert_eq!(task.row.error.unwrap().exception, "Timeout", "{step}");
    }
}

async fn budget_fails_task(fresh: Fresh) {
    let engine = fresh.engine().hook(Budget::fail(Duration::from_millis(30))).handle_class(
        "slow",
        once(),
        |_: serde_json::Value, _: Context<()>| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let id = fresh.create("slow", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    let error = task.row.error.unwrap();
    assert_eq!(error.exception, "OverBudget");
    assert_eq!(error.message, "not finished within its budget of 30ms");
}

async fn budget_warns_and_waits(fresh: Fresh) {
    let engine = fresh.engine().hook(Budget::warn(Duration::from_millis(10))).handle_class(
        "slow",
        once(),
        |_: serde_json::Value, _: Context<()>| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, Failure>("done")
        },
    );
    let engine = start(engine);
    let id = fresh.create("slow", nothing()).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
}

async fn worker_waits_for_blocking_thread(fresh: Fresh) {
    let engine = fresh.engine().hook(Budget::fail(Duration::from_millis(20))).handle_blocking(
        |_: Blocks, cx: Context<()>| {
            let begun = std::time::Instant::now();
            // It is asked to end, and goes on.
            while !cx.is_cancelled() && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(200));
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let id = fresh.create("blocks", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    let execution = &task.executions[0];
    assert_eq!(execution.error.as_ref().unwrap().exception, "OverBudget");
    let lasted = execution.stopped_at.unwrap().duration_since(execution.started_at.unwrap());
    assert!(
        (220..20_000).contains(&lasted.as_millis()),
        "its thread was busy until then: {lasted}"
    );
}

async fn handler_panic_names_handler(fresh: Fresh) {
    let notes = Notes::default();
    let engine = fresh.engine().hook(Noting("one", notes.clone())).handle_class(
        "panics",
        once(),
        |parameters: serde_json::Value, _: Context<()>| async move {
            parameters.get("something").expect("something");
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let id = fresh.create("panics", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.row.error.unwrap().exception, "Panic");
    assert_eq!(notes.take(), ["one before panics", "one in", "one out", "one after"]);
}

async fn hook_for_unknown_class_is_refused(fresh: Fresh) {
    let engine = fresh.engine().hook_for(["send_mial"], Budget::warn(Duration::ZERO));
    let error = engine.run_until(std::future::pending()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "hook Budget is for class send_mial, which has no handler here; check the name"
    );
    let engine = fresh.engine().retry_with::<Blocks>(|_, _| None);
    let error = engine.run_until(std::future::pending()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "a retry function is for class blocks, which has no handler here; add one with Engine::handle"
    );
}
