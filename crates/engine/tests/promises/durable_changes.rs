//! Code that changes under running tasks: a task that was suspended by the old code
//! continues with the new code. The rules are those of docs/durable-tasks.md.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use task_engine::{Context, Failure, TaskEngine, TaskId, TaskOptions, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start};

type Run =
    fn(Value, Context<Effects>) -> futures_util::future::BoxFuture<'static, Result<(), Failure>>;

#[derive(Debug, Clone, Default)]
struct Effects(Arc<Mutex<Vec<&'static str>>>);

impl Effects {
    async fn add(&self, what: &'static str) -> Result<String, Failure> {
        self.0.lock().unwrap().push(what);
        Ok(what.to_owned())
    }
}

macro_rules! version {
    (|$cx:ident| $body:block) => {
        |_, $cx| {
            Box::pin(async move {
                $body;
                Ok(())
            })
        }
    };
}

/// Where both versions of the code wait.
async fn pause(cx: &Context<Effects>) {
    let waited = cx.wait_for::<Value>("go", Duration::from_secs(3600)).await;
    assert!(waited.is_ok());
}

/// Runs a task with the old code until it waits, and to its end with the new code.
async fn upgrade(fresh: &Fresh, old: Run, new: Run) -> (Vec<&'static str>, TaskStatus) {
    let tasks = TaskEngine::new(fresh.store.clone());
    let effects = Effects::default();
    let engine = |run: Run| {
        let handler = move |parameters: Value, cx: Context<Effects>| run(parameters, cx);
        let engine = tasks.engine(effects.clone()).instance("test");
        start(engine.handle_class("order", TaskOptions::default(), handler))
    };
    let id: TaskId = fresh.create("order", nothing()).await;
    let first = engine(old);
    fresh.until_requeued(id).await;
    first.stop().await;
    tasks.signal(id, "go", &()).await.unwrap();
    let second = engine(new);
    let task = fresh.until_ended(id).await;
    second.stop().await;
    fresh.assert_sound().await;
    let effects = effects.0.lock().unwrap().clone();
    (effects, task.row.status)
}

const OLD: Run = version!(|cx| {
    cx.step("reserve", || cx.state().add("reserve")).await?;
    cx.step("charge", || cx.state().add("charge")).await?;
    pause(&cx).await;
    cx.step("ship", || cx.state().add("ship")).await?
});

async fn added_step_runs(fresh: Fresh) {
    let new: Run = version!(|cx| {
        cx.step("reserve", || cx.state().add("reserve")).await?;
        cx.step("insure", || cx.state().add("insure")).await?;
        cx.step("charge", || cx.state().add("charge")).await?;
        pause(&cx).await;
        cx.step("ship", || cx.state().add("ship")).await?
    });
    let (effects, status) = upgrade(&fresh, OLD, new).await;
    assert_eq!(effects, ["reserve", "charge", "insure", "ship"]);
    assert_eq!(status, TaskStatus::Stopped);
}

async fn removed_step_is_ignored(fresh: Fresh) {
    let new: Run = version!(|cx| {
        cx.step("reserve", || cx.state().add("reserve")).await?;
        pause(&cx).await;
        cx.step("ship", || cx.state().add("ship")).await?
    });
    let (effects, status) = upgrade(&fresh, OLD, new).await;
    assert_eq!(effects, ["reserve", "charge", "ship"]);
    assert_eq!(status, TaskStatus::Stopped);
}

async fn renamed_step_runs_again(fresh: Fresh) {
    let new: Run = version!(|cx| {
        cx.step("reserve", || cx.state().add("reserve")).await?;
        cx.step("charge card", || cx.state().add("charge")).await?;
        pause(&cx).await;
        cx.step("ship", || cx.state().add("ship")).await?
    });
    let (effects, _) = upgrade(&fresh, OLD, new).await;
    assert_eq!(effects, ["reserve", "charge", "charge", "ship"]);
}

async fn reordered_steps_keep_results(fresh: Fresh) {
    let new: Run = version!(|cx| {
        cx.step("charge", || cx.state().add("charge")).await?;
        cx.step("reserve", || cx.state().add("reserve")).await?;
        pause(&cx).await;
        cx.step("ship", || cx.state().add("ship")).await?
    });
    let (effects, status) = upgrade(&fresh, OLD, new).await;
    assert_eq!(effects, ["reserve", "charge", "ship"]);
    assert_eq!(status, TaskStatus::Stopped);
}

/// Repeated names are numbered, so a new use of a name takes the results of later ones.
async fn repeated_name_shifts_results(fresh: Fresh) {
    let old: Run = version!(|cx| {
        cx.step("mail", || cx.state().add("mail the customer")).await?;
        pause(&cx).await;
    });
    let new: Run = version!(|cx| {
        cx.step("mail", || cx.state().add("mail the shop")).await?;
        cx.step("mail", || cx.state().add("mail the customer")).await?;
        pause(&cx).await;
    });
    let (effects, _) = upgrade(&fresh, old, new).await;
    assert_eq!(effects, ["mail the customer", "mail the customer"]);
}

/// A result whose type has changed is read in both forms.
async fn changed_result_is_read_in_both_forms(fresh: Fresh) {
    #[derive(Deserialize, serde::Serialize)]
    #[serde(untagged)]
    enum Charged {
        Receipt { number: String },
        OnlyNumber(String),
    }
    let new: Run = version!(|cx| {
        cx.step("reserve", || cx.state().add("reserve")).await?;
        let charge = || async {
            let number = cx.state().add("charge").await?;
            Ok::<_, Failure>(Charged::Receipt { number })
        };
        let charged = cx.step("charge", charge).await?;
        assert!(matches!(charged, Charged::OnlyNumber(number) if number == "charge"));
        pause(&cx).await;
        cx.step("ship", || cx.state().add("ship")).await?
    });
    let (effects, status) = upgrade(&fresh, OLD, new).await;
    assert_eq!(effects, ["reserve", "charge", "ship"]);
    assert_eq!(status, TaskStatus::Stopped);
}

/// Tasks of the old class stay with engines that know it.
async fn versioned_class_drains_on_old_engines(fresh: Fresh) {
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = |class: &'static str, name: &'static str| {
        let handler = move |_: Value, cx: Context<&'static str>| async move {
            cx.step("run", || async { Ok::<_, Failure>(*cx.state()) }.map_text()).await
        };
        let engine = tasks.engine(name).instance(name);
        start(engine.handle_class(class, TaskOptions::default(), handler))
    };
    let (old, new) = (engine("order", "old"), engine("order_v2", "new"));
    let first = fresh.create("order", nothing()).await;
    let second = fresh.create("order_v2", nothing()).await;
    for (id, result) in [(first, "\"old\""), (second, "\"new\"")] {
        let task = fresh.until_status(id, TaskStatus::Stopped).await;
        let stored = task.executions.last().unwrap().result.as_ref().unwrap().as_str().to_owned();
        assert_eq!(stored, result);
    }
    old.stop().await;
    new.stop().await;
}

trait MapText: Sized {
    async fn map_text(self) -> Result<String, Failure>;
}

impl<F: Future<Output = Result<&'static str, Failure>>> MapText for F {
    async fn map_text(self) -> Result<String, Failure> {
        self.await.map(str::to_owned)
    }
}

on_every_store! {
    added_step_runs
    removed_step_is_ignored
    renamed_step_runs_again
    reordered_steps_keep_results
    repeated_name_shifts_results
    changed_result_is_read_in_both_forms
    versioned_class_drains_on_old_engines
}
