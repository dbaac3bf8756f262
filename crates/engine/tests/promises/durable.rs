//! A durable task continues where it was: recorded steps do not run again, sleeps and waits
//! hold no worker, and mistakes end the attempt with a clear error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use task_engine::core::attempt::AttemptId;
use task_engine::core::step::StepKind;
use task_engine::core::task::TaskDetails;
use task_engine::durable::ChildFailed;
use task_engine::{
    Context, Engine, Failure, NewTask, RetryRule, SignalStatus, SignalTarget, Task, TaskEngine,
    TaskId, TaskOptions, TaskStatus, Unique,
};

use crate::store::{Fresh, RunningEngine, nothing, on_every_store, start, task};

const LONG: Duration = Duration::from_secs(3600);

/// What the code of the tasks has done, in order.
#[derive(Debug, Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    async fn add(&self, what: impl Into<String>) -> Result<usize, Failure> {
        let mut effects = self.0.lock().unwrap();
        effects.push(what.into());
        Ok(effects.len())
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

type Run =
    fn(Value, Context<Effects>) -> futures_util::future::BoxFuture<'static, Result<Value, Failure>>;

/// A running engine with a handler for the class `durable`.
struct Scene {
    fresh: Fresh,
    effects: Effects,
    tasks: TaskEngine,
}

impl Scene {
    fn new(fresh: Fresh) -> Self {
        let tasks = TaskEngine::new(fresh.store.clone());
        Self { fresh, effects: Effects::default(), tasks }
    }

    fn engine(&self, run: Run) -> Engine<Effects> {
        let options = TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 3));
        let handler = move |parameters: Value, cx: Context<Effects>| run(parameters, cx);
        let engine = self.tasks.engine(self.effects.clone()).instance("test");
        engine.handle_class("durable", options, handler)
    }

    fn start(&self, run: Run) -> RunningEngine {
        start(self.engine(run))
    }

    async fn create(&self) -> TaskId {
        self.fresh.create("durable", nothing()).await
    }

    /// Runs one task to its end.
    async fn run(&self, run: Run) -> TaskDetails {
        let engine = self.start(run);
        let id = self.create().await;
        let ended = self.fresh.until_ended(id).await;
        engine.stop().await;
        self.fresh.assert_sound().await;
        ended
    }

    /// Waits until the task is suspended.
    async fn until_suspended(&self, id: TaskId) -> TaskDetails {
        let is_suspended = |task: &TaskDetails| {
            let last = task.executions.last().and_then(|last| last.error.as_ref());
            task.row.status == TaskStatus::Waiting
                && last.is_some_and(|error| error.exception == "Snoozed")
        };
        self.fresh.until(id, is_suspended).await
    }
}

fn result(task: &TaskDetails) -> Value {
    task.executions.last().unwrap().result.as_ref().unwrap().decode().unwrap()
}

fn error(task: &TaskDetails) -> String {
    task.executions.last().unwrap().error.as_ref().unwrap().to_string()
}

/// Writes a handler as a block.
macro_rules! handler {
    (|$cx:ident| $body:block) => {
        |_, $cx| Box::pin(async move { $body })
    };
}

async fn recorded_step_runs_once(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let first = cx.step("first", || cx.state().add("first")).await?;
            if cx.attempt() < 3 {
                return Err(Failure::named("Closed", "not yet"));
            }
            let second = cx.step("second", || cx.state().add("second")).await?;
            Ok(json!([first, second]))
        }))
        .await;
    assert_eq!(scene.effects.all(), ["first", "second"]);
    assert_eq!(result(&task), json!([1, 2]));
    let steps = scene.fresh.store.steps(task.row.id).await.unwrap().steps;
    let recorded: Vec<_> = steps.iter().map(|s| (&*s.name, s.number, s.attempt)).collect();
    assert_eq!(recorded, [("first", 1, 1), ("second", 2, 3)]);
}

async fn repeated_names_are_numbered(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let mut sum = 0;
            for _ in 0..3 {
                sum += cx.step("add", || cx.state().add("add")).await?;
            }
            if cx.attempt() == 1 { Err("once more".into()) } else { Ok(json!(sum)) }
        }))
        .await;
    assert_eq!(result(&task), json!(6));
    let steps = scene.fresh.store.steps(task.row.id).await.unwrap().steps;
    let names: Vec<_> = steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["add", "add#2", "add#3"]);
}

async fn failed_step_is_not_recorded(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let attempt = cx.attempt();
            let outcome: Result<i32, std::io::Error> = cx
                .step("fetch", || async move {
                    if attempt == 1 { Err(std::io::Error::other("closed")) } else { Ok(attempt) }
                })
                .await;
            Ok(json!(outcome?))
        }))
        .await;
    assert_eq!(result(&task), json!(2));
    assert_eq!(task.executions[0].error.as_ref().unwrap().exception, "std::io::error::Error");
}

async fn retries_restart_after_progress(fresh: Fresh) {
    let scene = Scene::new(fresh);
    // Ten failures with three retries: each attempt records one more step.
    let task = scene
        .run(handler!(|cx| {
            for n in 0..10 {
                let new = cx.step(&format!("step {n}"), || cx.state().add("x")).await?;
                if new == usize::try_from(cx.attempt()).unwrap() {
                    return Err(Failure::named("Closed", format!("after step {n}")));
                }
            }
            Ok(Value::Null)
        }))
        .await;
    assert_eq!(task.row.status, TaskStatus::Stopped);
    assert_eq!(task.executions.len(), 11);
}

async fn retries_are_counted_without_progress(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            cx.step("only", || cx.state().add("x")).await?;
            Err(Failure::named("Closed", "always"))
        }))
        .await;
    assert_eq!(task.row.status, TaskStatus::Failed);
    // The first attempt made progress; three retries follow.
    assert_eq!(task.executions.len(), 4);
}

async fn sleep_holds_no_worker(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let run: Run = handler!(|cx| {
        cx.state().add("before").await?;
        cx.sleep("pause", LONG).await;
        Ok(Value::Null)
    });
    let engine = start(scene.engine(run).workers(1));
    let sleeper = scene.create().await;
    let task = scene.until_suspended(sleeper).await;
    assert!(error(&task).contains("sleeping until"), "{}", error(&task));
    assert_eq!(task.row.retry_number, 0);
    // The only worker is free.
    let other = scene.create().await;
    scene.until_suspended(other).await;
    assert_eq!(scene.effects.all(), ["before", "before"]);
    engine.stop().await;
    scene.fresh.assert_sound().await;
}

async fn short_sleep_waits_in_place(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            cx.sleep("moment", Duration::from_millis(50)).await;
            Ok(json!(cx.attempt()))
        }))
        .await;
    assert_eq!(result(&task), json!(1));
    let ran = &task.executions[0];
    let lasted = ran.stopped_at.unwrap().duration_since(ran.started_at.unwrap());
    assert!(lasted.as_millis() >= 50, "{lasted:?}");
}

async fn sleep_until_past_time_returns(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            cx.sleep_until("past", task_engine::jiff::Timestamp::UNIX_EPOCH).await;
            Ok(json!(cx.attempt()))
        }))
        .await;
    assert_eq!(result(&task), json!(1));
}

const WAITS: Run = handler!(|cx| {
    let by: Result<String, _> = cx.wait_for("approved", LONG).await;
    Ok(json!(by?))
});

async fn signal_continues_waiting_task(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.start(WAITS);
    let id = scene.create().await;
    let task = scene.until_suspended(id).await;
    assert!(error(&task).contains("waiting for signal approved until"), "{}", error(&task));
    let sent = scene.tasks.signal(id, "approved", &"ada").await.unwrap();
    assert_eq!((sent.task_id, sent.status), (Some(id), SignalStatus::Delivered));
    let again = scene.tasks.signal(id, "approved", &"eve").await.unwrap();
    assert_eq!(again.status, SignalStatus::Duplicate);
    let task = scene.fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(result(&task), json!("ada"));
    assert_eq!(task.executions.len(), 2, "it resumes once");
    let late = scene.tasks.signal(id, "other", &1).await.unwrap();
    assert_eq!(late.status, SignalStatus::TaskEnded);
    engine.stop().await;
    scene.fresh.assert_sound().await;
}

async fn early_signal_is_received(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let unique = task("durable", nothing()).unique(Unique::by("order 7")).unwrap();
    let id = scene.fresh.create_task(unique).await;
    let target = |key: &str| SignalTarget::UniqueKey { class: "durable".into(), key: key.into() };
    let sent = scene.tasks.signal(target("order 7"), "approved", &"bob").await.unwrap();
    assert_eq!((sent.task_id, sent.status), (Some(id), SignalStatus::Kept));
    let unknown = scene.tasks.signal(target("order 8"), "approved", &"bob").await.unwrap();
    assert_eq!((unknown.task_id, unknown.status), (None, SignalStatus::NotFound));
    let engine = scene.start(WAITS);
    let task = scene.fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!((result(&task), task.executions.len()), (json!("bob"), 1));
    engine.stop().await;
}

async fn wait_times_out_once(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let waited = cx.wait_for::<String>("approved", Duration::from_millis(30)).await;
            let message = waited.unwrap_err().to_string();
            // A later attempt sees the same.
            if cx.attempt() < 4 {
                return Err(Failure::named("Closed", message));
            }
            Ok(json!(message))
        }))
        .await;
    assert_eq!(result(&task), json!("signal \"approved\" did not arrive within 30 ms"));
    let signals = scene.fresh.store.steps(task.row.id).await.unwrap().signals;
    assert!(signals.len() == 1 && signals[0].timed_out, "{signals:?}");
}

async fn invalid_signal_name_is_refused(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let id = scene.create().await;
    for name in ["", "a\nb", "approved#", "approved#1"] {
        let refused = scene.tasks.signal(id, name, &1).await.unwrap_err().to_string();
        assert!(refused.contains("invalid name of a signal"), "{name:?}: {refused}");
    }
}

#[derive(Serialize, Deserialize, Task)]
#[task(class = "double", retries = 0)]
struct Double {
    of: i64,
}

async fn double(task: Double, cx: Context<Effects>) -> Result<i64, Failure> {
    cx.state().add(format!("double {}", task.of)).await?;
    if task.of < 0 { Err(Failure::named("Negative", "below zero")) } else { Ok(2 * task.of) }
}

async fn children_run_once(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let run: Run = handler!(|cx| {
        let results = cx.call_all::<_, i64>([1, 2, -3].map(|of| Double { of })).await;
        let failed: ChildFailed = results[2].clone().unwrap_err();
        let one: i64 = cx.call(Double { of: 20 }).await?;
        if cx.attempt() < 4 {
            return Err("once more".into());
        }
        Ok(json!([results[0].as_ref().ok(), results[1].as_ref().ok(), failed.error.exception, one]))
    });
    let engine = start(scene.engine(run).handle(double));
    let id = scene.create().await;
    let task = scene.fresh.until_ended(id).await;
    assert_eq!(result(&task), json!([2, 4, "Negative", 40]));
    let mut effects = scene.effects.all();
    effects.sort();
    assert_eq!(effects, ["double -3", "double 1", "double 2", "double 20"]);
    let steps = scene.fresh.store.steps(id).await.unwrap().steps;
    let child = steps.iter().find(|step| step.name == "double").unwrap().children()[0];
    let child = scene.fresh.details(child).await;
    assert_eq!(child.parent_id, Some(id), "a child belongs to the flow of its parent");
    engine.stop().await;
    scene.fresh.assert_sound().await;
}

async fn cancelled_child_resumes_parent(fresh: Fresh) {
    let scene = Scene::new(fresh);
    // No engine serves the class of the child.
    let run: Run = handler!(|cx| {
        let child: Result<i64, ChildFailed> = cx.call(Double { of: 1 }).await;
        Ok(json!(child.unwrap_err().to_string()))
    });
    let engine = scene.start(run);
    let id = scene.create().await;
    scene.until_suspended(id).await;
    let child = scene.fresh.store.steps(id).await.unwrap().steps[0].children()[0];
    scene.tasks.cancel(child).await.unwrap();
    let task = scene.fresh.until_status(id, TaskStatus::Stopped).await;
    let message = result(&task);
    let message = message.as_str().unwrap();
    assert!(message.contains("(cancelled): Cancelled"), "{message}");
    engine.stop().await;
}

/// An attempt that recovery has ended stops at its next step.
async fn step_after_lost_claim_ends_attempt(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let run: Run = handler!(|cx| {
        cx.step("first", || cx.state().add("first")).await?;
        if cx.attempt() == 1 {
            // Another engine declares this one lost, and takes its tasks.
            let store = cx.tasks().store();
            let engines = store.instances(None).await?;
            store.declare_lost(engines[0].id, true).await?;
            let lost = task_engine::core::recovery::Reclaim::Lost(engines[0].id);
            store.reclaim(lost).await?;
        }
        let second = cx.step("second", || cx.state().add("second")).await;
        cx.state().add(format!("after second in attempt {}", cx.attempt())).await?;
        Ok(json!(second?))
    });
    let engine = scene.start(run);
    let id = scene.create().await;
    let task = scene.fresh.until_status(id, TaskStatus::Stopped).await;
    let late = scene.fresh.until(id, |task| !task.late_results.is_empty()).await;
    engine.stop().await;
    let effects = scene.effects.all();
    assert_eq!(effects.iter().filter(|effect| *effect == "first").count(), 1);
    assert!(!effects.contains(&"after second in attempt 1".to_owned()), "{effects:?}");
    assert_eq!(task.executions[0].error.as_ref().unwrap().exception, "InstanceLost");
    assert_eq!(late.late_results.len(), 1);
    scene.fresh.assert_sound().await;
}

/// Mistakes of the code, and the error that each attempt ends with.
async fn mistakes_have_clear_errors(fresh: Fresh) {
    let cases: [(&str, Run); 6] = [
        (
            "StepInsideStep: step \"inner\" was called inside step \"outer\"",
            handler!(|cx| {
                let nested = cx.step("outer", || async {
                    cx.step("inner", || async { Ok::<_, Failure>(1) }).await
                });
                Ok(json!(nested.await.unwrap_or(0)))
            }),
        ),
        (
            "StepInsideStep: sleep \"nap\" was called inside step \"outer\"",
            handler!(|cx| {
                let nested = cx.step("outer", || async {
                    cx.sleep("nap", LONG).await;
                    Ok::<_, Failure>(1)
                });
                Ok(json!(nested.await.unwrap_or(0)))
            }),
        ),
        (
            "InvalidStepName: invalid name of a step: \"a#2\"",
            handler!(|cx| {
                cx.step("a#2", || async { Ok::<_, Failure>(()) }).await?;
                Ok(Value::Null)
            }),
        ),
        (
            "StepNotDecodable: the result of step \"count\" cannot be read",
            handler!(|cx| {
                if cx.attempt() == 1 {
                    cx.step("count", || async { Ok::<_, Failure>("seven") }.map_owned()).await?;
                    return Err("once more".into());
                }
                let count: u64 = cx.step("count", || async { Ok::<_, Failure>(7) }).await?;
                Ok(json!(count))
            }),
        ),
        (
            "StepChanged: \"pause\" was recorded as a sleep and is a step now",
            handler!(|cx| {
                if cx.attempt() == 1 {
                    cx.sleep("pause", Duration::from_millis(1)).await;
                    return Err("once more".into());
                }
                cx.step("pause", || async { Ok::<_, Failure>(1) }).await?;
                Ok(Value::Null)
            }),
        ),
        (
            "StepNotStorable: the result of step \"big\" cannot be stored",
            handler!(|cx| {
                cx.step("big", || async { Ok::<_, Failure>("x".repeat(2 << 20)) }).await?;
                Ok(Value::Null)
            }),
        ),
    ];
    for (expected, run) in cases {
        let scene = Scene::new(Fresh::on(fresh.store.clone()));
        let task = scene.run(run).await;
        assert_eq!(task.row.status, TaskStatus::Failed, "{expected}");
        let message = error(&task);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// A changed order of steps is a warning in the log of the attempt.
async fn changed_order_is_logged(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let order = if cx.attempt() == 1 { ["a", "b"] } else { ["b", "a"] };
            for name in order {
                cx.step(name, || cx.state().add(name)).await?;
            }
            if cx.attempt() == 1 { Err("once more".into()) } else { Ok(Value::Null) }
        }))
        .await;
    assert_eq!(task.row.status, TaskStatus::Stopped);
    let filter = task_engine::core::progress::LogFilter {
        attempt: Some(2),
        after: None,
        before: None,
        newest: false,
        limit: 10,
    };
    let log = scene.fresh.store.logs(task.row.id, &filter).await.unwrap();
    assert!(log[0].message.contains("the order of the steps has changed"), "{log:?}");
}

/// A task without durable calls leaves no row in their tables.
async fn plain_task_records_no_steps(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene.run(handler!(|cx| { Ok(json!(cx.attempt())) })).await;
    let all = scene.fresh.store.steps(task.row.id).await.unwrap();
    assert!(all.steps.is_empty() && all.signals.is_empty());
}

async fn steps_of_parallel_code_are_recorded(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let task = scene
        .run(handler!(|cx| {
            let (a, b) = tokio::join!(
                cx.step("a", || cx.state().add("a")),
                cx.step("b", || cx.state().add("b"))
            );
            let sum = a? + b?;
            if cx.attempt() == 1 { Err("once more".into()) } else { Ok(json!(sum)) }
        }))
        .await;
    assert_eq!((result(&task), scene.effects.all().len()), (json!(3), 2));
    let steps = scene.fresh.store.steps(task.row.id).await.unwrap().steps;
    let kinds: HashMap<_, _> = steps.iter().map(|step| (&*step.name, step.kind)).collect();
    assert_eq!(kinds, HashMap::from([("a", StepKind::Step), ("b", StepKind::Step)]));
    let ids: Vec<AttemptId> = steps
        .iter()
        .map(|step| AttemptId { task_id: task.row.id, attempt: step.attempt })
        .collect();
    assert!(ids.iter().all(|id| id.attempt == 1));
}

/// `rerun --from` begins with the steps before the named one.
async fn task_with_kept_steps_begins_there(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let run: Run = handler!(|cx| {
        cx.step("a", || cx.state().add("a")).await?;
        cx.step("b", || cx.state().add("b")).await?;
        Ok(json!(cx.step("c", || cx.state().add("c")).await?))
    });
    let first = scene.run(run).await;
    let mut again: NewTask = task("durable", nothing());
    again.add_context(task_engine::core::step::KEPT_STEPS, &first.row.id).unwrap();
    let id = scene.fresh.store.create_with_steps(&again, first.row.id, 2).await.unwrap();
    let engine = scene.start(run);
    scene.fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(scene.effects.all(), ["a", "b", "c", "b", "c"]);
}

/// A future of a `&str` as one of a `String`, so that both forms have one type.
trait MapOwned: Sized {
    async fn map_owned(self) -> Result<String, Failure>;
}

impl<F: Future<Output = Result<&'static str, Failure>>> MapOwned for F {
    async fn map_owned(self) -> Result<String, Failure> {
        self.await.map(str::to_owned)
    }
}

on_every_store! {
    recorded_step_runs_once
    repeated_names_are_numbered
    failed_step_is_not_recorded
    retries_restart_after_progress
    retries_are_counted_without_progress
    sleep_holds_no_worker
    short_sleep_waits_in_place
    sleep_until_past_time_returns
    signal_continues_waiting_task
    early_signal_is_received
    wait_times_out_once
    invalid_signal_name_is_refused
    children_run_once
    cancelled_child_resumes_parent
    step_after_lost_claim_ends_attempt
    mistakes_have_clear_errors
    changed_order_is_logged
    plain_task_records_no_steps
    steps_of_parallel_code_are_recorded
    task_with_kept_steps_begins_there
}
