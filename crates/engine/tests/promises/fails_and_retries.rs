//! Every execution is recorded; failures are retried by the rule.

use std::time::Duration;

use serde_json::json;
use task_engine::core::retry::RetryOverride;
use task_engine::core::task::{ExecutionStatus, TaskDetails};
use task_engine::samples::handle_samples;
use task_engine::{Context, Failure, RetryRule, Task, TaskError, TaskOptions, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start, task};

on_every_store! {
    sample_tasks_of_book_run
    book_class_names_run
    retries_end_by_rule
    task_rule_overrides_class
    error_advice_overrides_rule
    snooze_uses_no_retry
    retry_function_decides
    panicking_retry_function_is_ignored
    undecodable_parameters_name_field
    unstorable_result_fails_without_retry
    error_keeps_causes_and_place
}

async fn sample_tasks_of_book_run(fresh: Fresh) {
    let waiting = fresh.create("WaitingTask", json!({"waiting_time": 0.01})).await;
    let failing = fresh.create("FailingTask", nothing()).await;
    let never = fresh.create("FailingNotRetryTask", nothing()).await;
    let exception = fresh.create("FailingNotRetryExceptionTask", nothing()).await;
    let engine = start(handle_samples(fresh.engine()));

    let task = fresh.until_status(waiting, TaskStatus::Stopped).await;
    assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), "null");

    let task = fresh
        .until(failing, |t| !t.executions.is_empty() && t.row.status == TaskStatus::Waiting)
        .await;
    assert_eq!((task.row.attempts, task.row.retry_number), (1, 1));
    let execution = &task.executions[0];
    assert_eq!(execution.status, ExecutionStatus::Failure);
    let error = execution.error.as_ref().unwrap();
    assert_eq!(error.exception, "ZeroDivisionError");
    assert_eq!(error.message, "divided by 0");
    assert!(error.backtrace[0].contains("samples.rs"), "{error:?}");
    let wait = execution.retry_at.unwrap().duration_since(execution.stopped_at.unwrap());
    assert!((59.0..62.0).contains(&wait.as_secs_f64()), "2^0 minutes, not {wait}");
    assert_eq!(task.row.scheduled_at, execution.retry_at.unwrap());

    let task = fresh.until_status(never, TaskStatus::Failed).await;
    assert_eq!(task.row.attempts, 1);
    let task = fresh.until_status(exception, TaskStatus::Failed).await;
    let error = task.row.error.unwrap();
    assert!(error.exception.ends_with("FailingNotRetryTaskException"), "{error}");
    assert_eq!(error.message, "Oh no");
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn book_class_names_run(fresh: Fresh) {
    let id = fresh.create("TaskEngine::Tasks::WaitingTask", json!({"waiting_time": 0})).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
}

fn failing(fresh: &Fresh, rule: RetryRule) -> task_engine::Engine<()> {
    let options = TaskOptions::default().retry(rule);
    fresh.engine().handle_class("fail", options, |_: serde_json::Value, _: Context<()>| async {
        Err::<(), _>(Failure::from("no"))
    })
}

async fn retries_end_by_rule(fresh: Fresh) {
    let id = fresh.create("fail", nothing()).await;
    let engine = start(failing(&fresh, RetryRule::every(Duration::from_millis(20), 3)));
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.executions.len(), 4, "the first one and three retries");
    let numbers: Vec<_> = task.executions.iter().map(|e| (e.attempt, e.retry_number)).collect();
    assert_eq!(numbers, [(1, 0), (2, 1), (3, 2), (4, 3)]);
    let last = task.executions.last().unwrap();
    assert_eq!(last.ends_task, Some(TaskStatus::Failed));
    fresh.assert_sound().await;
}

async fn task_rule_overrides_class(fresh: Fresh) {
    let rule = RetryOverride::default().maximum(0);
    let once = fresh.create_task(task("fail", nothing()).retry(rule)).await;
    let engine = start(failing(&fresh, RetryRule::every(Duration::from_millis(1), 50)));
    let task = fresh.until_status(once, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.executions.len(), 1);
}

async fn error_advice_overrides_rule(fresh: Fresh) {
    let id = fresh.create("fail", nothing()).await;
    let engine = fresh.engine().handle_class(
        "fail",
        TaskOptions::default(),
        |_: serde_json::Value, cx: Context<()>| async move {
            match cx.attempt() {
                1 => Err::<(), _>(Failure::retry_after("busy", Duration::from_millis(10))),
                _ => Err(Failure::no_retry("closed")),
            }
        },
    );
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    let messages: Vec<_> =
        task.executions.iter().map(|e| e.error.as_ref().unwrap().message.clone()).collect();
    assert_eq!(messages, ["busy", "closed"]);
}

async fn snooze_uses_no_retry(fresh: Fresh) {
    let id = fresh.create("limited", nothing()).await;
    // No retry is allowed, and none is needed.
    let options = TaskOptions::default().retry(RetryRule::never());
    let engine =
        fresh.engine().handle_class("limited", options, |_: serde_json::Value, cx: Context<()>| {
            let (attempt, retry) = (cx.attempt(), cx.retry_number());
            async move {
                match attempt {
                    1 => Err(Failure::snooze(Duration::from_millis(10))),
                    2 => Err(Failure::snooze_because(Duration::from_millis(10), "rate limit")),
                    _ => Ok(retry),
                }
            }
        });
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    let statuses: Vec<_> = task.executions.iter().map(|e| e.status).collect();
    use ExecutionStatus::{Snoozed, Success};
    assert_eq!(statuses, [Snoozed, Snoozed, Success]);
    let reasons = task.executions.iter().filter_map(|e| Some(e.error.as_ref()?.message.as_str()));
    assert_eq!(reasons.collect::<Vec<_>>(), ["postponed by 10 ms", "rate limit"]);
    assert_eq!(task.executions[2].result.as_ref().unwrap().as_str(), "0", "the retry number");
    fresh.assert_sound().await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Ticking;

impl Task for Ticking {
    const CLASS: &'static str = "ticking";
}

async fn retry_function_decides(fresh: Fresh) {
    let client = task_engine::TaskEngine::new(fresh.store.clone());
    let id = client.create(Ticking).await.unwrap();
    let engine = fresh
        .engine()
        .retry_with::<Ticking>(|retry, error| {
            assert_eq!(error.message, "tick");
            (retry < 2).then_some(Duration::from_millis(5))
        })
        .handle(|_: Ticking, _| async { Err::<(), _>(Failure::from("tick")) });
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    assert_eq!(task.executions.len(), 3);
}

async fn panicking_retry_function_is_ignored(fresh: Fresh) {
    let client = task_engine::TaskEngine::new(fresh.store.clone());
    let id = client.create(Ticking).await.unwrap();
    let engine = fresh
        .engine()
        .workers(1)
        .handle(|_: Ticking, _| async { Err::<(), _>(Failure::from("tick")) })
        .retry_with::<Ticking>(|_, _| panic!("no rule"));
    let engine = start(engine);
    let task =
        fresh.until(id, |t| !t.executions.is_empty() && t.row.status == TaskStatus::Waiting).await;
    assert_eq!(task.row.retry_number, 1, "the plain rule of the class");
    engine.stop().await;
}

async fn undecodable_parameters_name_field(fresh: Fresh) {
    let bad = fresh.create("WaitingTask", json!({"waiting": 1})).await;
    let good = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let engine = start(handle_samples(fresh.engine().workers(1)));
    fresh.until_status(good, TaskStatus::Stopped).await;
    let task = fresh.until(bad, |t| !t.executions.is_empty()).await;
    engine.stop().await;
    let error = task.executions[0].error.as_ref().unwrap();
    assert_eq!(error.exception, "ParametersNotDecodable");
    assert!(error.message.contains("missing field `waiting_time`"), "{error}");
    assert!(error.message.contains("class WaitingTask"), "{error}");
}

/// Has the store refuse the result `"refused"`, which can be encoded.
async fn refuse_a_result(fresh: &Fresh) {
    match fresh.path() {
        Some(path) => {
            let file = task_engine::sqlite::rusqlite::Connection::open(path).unwrap();
            let trigger =
                "CREATE TRIGGER refuse_result BEFORE INSERT ON task_engine_ended_executions
                WHEN NEW.result = '\"refused\"'
                BEGIN SELECT RAISE(ABORT, 'refused by the test'); END";
            file.execute_batch(trigger).unwrap();
        }
        None => {
            let constraint = "ALTER TABLE task_engine.ended_executions ADD CONSTRAINT refuse_result
                CHECK (result IS DISTINCT FROM '\"refused\"')";
            fresh.client().await.batch_execute(constraint).await.unwrap();
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Nul;

impl Task for Nul {
    const CLASS: &'static str = "nul";
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Refused;

impl Task for Refused {
    const CLASS: &'static str = "refused_with_function";
}

/// Whether encoding or the store detects it, and whatever the options say: the work was
/// done, and another attempt would repeat its effects.
async fn unstorable_result_fails_without_retry(fresh: Fresh) {
    refuse_a_result(&fresh).await;
    let options = || TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 5));
    let again = |_: u32, _: &TaskError| Some(Duration::from_millis(1));
    let refused = |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>("refused") };
    let engine = handle_samples(fresh.engine())
        .handle_class("nul", options(), |_: serde_json::Value, _: Context<()>| async {
            Ok::<_, Failure>("a\0b")
        })
        .handle_class("huge", options(), |_: serde_json::Value, _: Context<()>| async {
            Ok::<_, Failure>("x".repeat(2_000_000))
        })
        // Valid JSON, but more digits than PostgreSQL can store.
        .handle_class("number", options(), |_: serde_json::Value, _: Context<()>| async {
            let number = serde_json::value::RawValue::from_string("1e200000".to_owned());
            Ok::<_, Failure>(number?)
        })
        .handle_class("refused", options(), refused)
        .handle_class("refused_with_function", options(), refused)
        .retry_with::<Nul>(again)
        .retry_with::<Refused>(again);
    let by_encoding = ["nul", "huge", "number"];
    let by_store = ["refused", "refused_with_function"];
    let mut ids = Vec::new();
    for class in by_encoding.into_iter().chain(by_store) {
        ids.push((class, fresh.create(class, nothing()).await));
    }
    let good = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let engine = start(engine);
    fresh.until_status(good, TaskStatus::Stopped).await;
    for (class, id) in ids {
        let has_ended = |task: &TaskDetails| task.executions.iter().any(|e| e.stopped_at.is_some());
        let task = fresh.until(id, has_ended).await;
        assert_eq!((task.row.status, task.row.attempts), (TaskStatus::Failed, 1), "{task:?}");
        let error = task.row.error.unwrap();
        assert_eq!(error.exception, TaskError::RESULT_NOT_STORABLE, "{class}");
        assert!(error.message.starts_with("the result cannot be stored: "), "{error}");
        let reason = by_store.contains(&class).then_some("refuse");
        assert!(reason.is_none_or(|reason| error.message.contains(reason)), "{class}: {error}");
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn error_keeps_causes_and_place(fresh: Fresh) {
    #[derive(Debug, thiserror::Error)]
    #[error("mail not sent")]
    struct NotSent(#[source] std::io::Error);
    let id = fresh.create("mail", nothing()).await;
    let options = TaskOptions::default().retry(RetryRule::never());
    let engine = fresh.engine().handle_class(
        "mail",
        options,
        |_: serde_json::Value, _: Context<()>| async {
            Err::<(), _>(NotSent(std::io::Error::other("connection reset")))?;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    let error = task.row.error.unwrap();
    assert!(error.exception.ends_with("NotSent"), "{error}");
    assert_eq!(error.message, "mail not sent: connection reset");
    assert!(error.backtrace[0].contains("fails_and_retries.rs"), "{error:?}");
    // Frames of this very function, and none of the engine, tokio or std.
    let frames = &error.backtrace[1..];
    assert!(!frames.is_empty(), "{error:#?}");
    let others = frames.iter().filter(|frame| !frame.contains("fails_and_retries.rs"));
    assert_eq!(others.count(), 0, "{error:#?}");
}
