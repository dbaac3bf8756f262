//! Progress and logs are visible while a task runs, complete when it has ended,
//! bounded, and never delay its result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::progress::{LINE_BYTES_MAX, LINES_MAX, LOG_BYTES_MAX, LogFilter, LogRow};
use task_engine::postgres::PgStore;
use task_engine::samples::handle_samples;
use task_engine::{
    Context, Failure, LogLevel, RetryRule, Store, Task, TaskEngine, TaskId, TaskOptions, TaskStatus,
};

use task_engine_test_harness::{TestServer, connect};
use tokio::sync::Notify;

use crate::signals::Signals;
use crate::store::{Fresh, TIMEOUT, nothing, on_every_store, start, task};

on_every_store! {
    running_task_shows_progress_and_log
    log_is_complete_at_end
    blocking_code_reports_too
    each_attempt_has_own_log
    log_is_bounded
    silent_task_leaves_no_report
    reports_after_end_are_ignored
}

const ALL: LogFilter =
    LogFilter { attempt: None, after: None, before: None, newest: false, limit: 100_000 };

async fn log(store: &dyn Store, id: TaskId) -> Vec<LogRow> {
    store.logs(id, &ALL).await.unwrap()
}

async fn running_task_shows_progress_and_log(fresh: Fresh) {
    let id = fresh.create("speaks", nothing()).await;
    let goes_on: &'static Notify = Box::leak(Box::default());
    let engine = fresh.engine().handle_class(
        "speaks",
        TaskOptions::default(),
        move |_: serde_json::Value, cx: Context<()>| async move {
            cx.progress(40, "rendering");
            cx.log("begun");
            goes_on.notified().await;
            cx.progress(60.5, String::from("sending"));
            cx.log_at(LogLevel::Warn, format!("slow: {}", cx.task_id()));
            goes_on.notified().await;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    for (percent, message, lines) in [(40.0, "rendering", 1), (60.5, "sending", 2)] {
        let task = fresh
            .until(id, |task| {
                task.executions.first().is_some_and(|execution| execution.log_lines == lines)
            })
            .await;
        assert_eq!(task.row.status, TaskStatus::Running);
        let progress = task.executions[0].progress.as_ref().unwrap();
        assert_eq!((progress.percent, progress.message.as_str()), (percent, message));
        goes_on.notify_one();
    }
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(task.executions[0].progress.as_ref().unwrap().percent, 60.5);
    let log = log(&*fresh.store, id).await;
    assert_eq!((log[0].level, log[0].message.as_str()), (LogLevel::Info, "begun"));
    assert_eq!((log[1].level, log[1].message.clone()), (LogLevel::Warn, format!("slow: {id}")));
    let execution = &task.executions[0];
    for row in &log {
        // Two statements, so two readings of one clock.
        let early = execution.started_at.unwrap().duration_since(row.logged_at);
        let late = row.logged_at.duration_since(execution.stopped_at.unwrap());
        assert!(early.as_secs_f64() < 0.5 && late.as_secs_f64() < 0.5, "{row:?} {execution:?}");
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn log_is_complete_at_end(fresh: Fresh) {
    let tasks: Vec<_> = (0..100).map(|n| task("speaks", json!({ "fails": n % 2 == 0 }))).collect();
    let ids = fresh.store.create(&tasks).await.unwrap();
    let engine = fresh.engine().workers(10).handle_class(
        "speaks",
        TaskOptions::default().retry(RetryRule::never()),
        |parameters: serde_json::Value, cx: Context<()>| async move {
            for line in 1..=20 {
                cx.log(format!("line {line}"));
                tokio::time::sleep(Duration::from_millis(pause_ms(line))).await;
            }
            if parameters["fails"] == true { Err(Failure::no_retry("as asked")) } else { Ok(()) }
        },
    );
    let engine = start(engine);
    for (n, id) in ids.iter().enumerate() {
        let wanted = if n % 2 == 0 { TaskStatus::Failed } else { TaskStatus::Stopped };
        fresh.until_status(*id, wanted).await;
        // At once: nothing may come after its end.
        let log = log(&*fresh.store, *id).await;
        let texts: Vec<_> = log.iter().map(|row| row.message.clone()).collect();
        assert_eq!(texts, (1..=20).map(|n| format!("line {n}")).collect::<Vec<_>>(), "task {id}");
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

/// Some of these tasks meet the writer between two of their lines.
fn pause_ms(line: u64) -> u64 {
    line * 7 % 13
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl Task for Blocks {
    const CLASS: &'static str = "blocks";
}

async fn blocking_code_reports_too(fresh: Fresh) {
    let id = fresh.create("blocks", nothing()).await;
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let receive = std::sync::Mutex::new(receive);
    let engine = fresh.engine().handle_blocking(move |_: Blocks, cx: Context<()>| {
        cx.log("begun");
        cx.progress(1, "");
        receive.lock().unwrap().recv().unwrap();
        cx.log("done");
        Ok::<_, Failure>(())
    });
    let engine = start(engine);
    let seen = fresh.until(id, |task| task.executions.iter().any(|e| e.log_lines == 1)).await;
    assert_eq!(seen.executions[0].progress.as_ref().unwrap().percent, 1.0);
    send.send(()).unwrap();
    fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(log(&*fresh.store, id).await.len(), 2);
    engine.stop().await;
}

async fn each_attempt_has_own_log(fresh: Fresh) {
    let id = fresh.create("fails_once", nothing()).await;
    let engine = fresh.engine().handle_class(
        "fails_once",
        TaskOptions::default().retry(RetryRule::every(Duration::ZERO, 1)),
        |_: serde_json::Value, cx: Context<()>| async move {
            cx.log(format!("attempt {}", cx.attempt()));
            if cx.attempt() == 1 { Err(Failure::from("once")) } else { Ok(()) }
        },
    );
    let engine = start(engine);
    fresh.until_status(id, TaskStatus::Stopped).await;
    let log = log(&*fresh.store, id).await;
    let lines: Vec<_> = log.iter().map(|row| (row.attempt, row.line, &*row.message)).collect();
    assert_eq!(lines, [(1, 1, "attempt 1"), (2, 1, "attempt 2")]);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn log_is_bounded(fresh: Fresh) {
    let many = fresh.create("many", nothing()).await;
    let long = fresh.create("long", nothing()).await;
    let engine = fresh
        .engine()
        .handle_class(
            "many",
            TaskOptions::default(),
            |_: serde_json::Value, cx: Context<()>| async move {
                for line in 1..=5000 {
                    cx.log(format!("line {line}"));
                    cx.progress(f64::from(line), "too far");
                }
                Ok::<_, Failure>(())
            },
        )
        .handle_class(
            "long",
            TaskOptions::default(),
            |_: serde_json::Value, cx: Context<()>| async move {
                for _ in 0..100 {
                    cx.log("é".repeat(LINE_BYTES_MAX));
                }
                Ok::<_, Failure>(())
            },
        );
    let engine = start(engine);
    let task = fresh.until_status(many, TaskStatus::Stopped).await;
    let kept = log(&*fresh.store, many).await;
    assert_eq!((kept.len(), task.executions[0].log_lines), (LINES_MAX, 5000));
    let half = LINES_MAX / 2;
    assert_eq!(kept[half - 1].message, format!("line {half}"));
    assert_eq!(kept[half].message, format!("line {}", 5000 - half + 1));
    assert_eq!(kept[LINES_MAX - 1].message, "line 5000");
    assert_eq!(task.executions[0].progress.as_ref().unwrap().percent, 100.0);
    let task = fresh.until_status(long, TaskStatus::Stopped).await;
    let kept = log(&*fresh.store, long).await;
    // Half of the bytes are for the first lines, half for the last ones.
    let lines = LOG_BYTES_MAX / 2 / kept[0].message.len() * 2;
    assert_eq!((kept.len(), task.executions[0].log_lines), (lines, 100));
    assert!(kept[0].message.len() < LINE_BYTES_MAX + 50);
    assert!(kept[0].message.ends_with("bytes in all)"));
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn silent_task_leaves_no_report(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let engine = start(handle_samples(fresh.engine()));
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!((task.executions[0].progress.clone(), task.executions[0].log_lines), (None, 0));
    assert_eq!(log(&*fresh.store, id).await, []);
    engine.stop().await;
}

async fn reports_after_end_are_ignored(fresh: Fresh) {
    let id = fresh.create("leaves", nothing()).await;
    let (ended, spoken) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, done) = (ended.clone(), spoken.clone());
    let engine = fresh.engine().handle_class(
        "leaves",
        TaskOptions::default(),
        move |_: serde_json::Value, cx: Context<()>| {
            let (wait, done) = (wait.clone(), done.clone());
            async move {
                let left = cx.clone();
                tokio::spawn(async move {
                    wait.notified().await;
                    left.log("too late");
                    left.progress(100, "too late");
                    done.notify_one();
                });
                cx.log("in time");
                Ok::<_, Failure>(())
            }
        },
    );
    let engine = start(engine);
    fresh.until_status(id, TaskStatus::Stopped).await;
    ended.notify_one();
    spoken.notified().await;
    engine.stop().await;
    let task = fresh.details(id).await;
    assert_eq!((task.executions[0].log_lines, &task.executions[0].progress), (1, &None));
    assert_eq!(log(&*fresh.store, id).await.len(), 1);
}

/// The database is killed and comes back while a task speaks: its result and all
/// that it has said are there in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_crash_loses_no_line() {
    let server = Arc::new(tokio::task::spawn_blocking(TestServer::start).await.unwrap());
    let url = server.create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut signals = Signals::listen();
    let id = store.create(&[task("speaks", nothing())]).await.unwrap()[0];
    let goes_on: &'static Notify = Box::leak(Box::default());
    let engine = start(TaskEngine::new(store.clone()).engine(()).instance("a").handle_class(
        "speaks",
        TaskOptions::default(),
        move |_: serde_json::Value, cx: Context<()>| async move {
            cx.log("before");
            for line in ["while it is away", "after"] {
                goes_on.notified().await;
                cx.log(line);
                cx.progress(50, line);
            }
            goes_on.notified().await;
            Ok::<_, Failure>("worked for")
        },
    ));
    until_lines(&store, id, 1).await;
    let away = server.clone();
    tokio::task::spawn_blocking(move || away.stop_immediate()).await.unwrap();
    goes_on.notify_one();
    // No other test of this process loses its database while it logs.
    signals.wait_for(&["progress and logs of tasks cannot be written; they are kept"]).await;
    let back = server.clone();
    tokio::task::spawn_blocking(move || back.start_again()).await.unwrap();
    until_lines(&store, id, 2).await;
    goes_on.notify_one();
    until_lines(&store, id, 3).await;
    goes_on.notify_one();
    let begun = Instant::now();
    loop {
        let task = store.task(id).await.unwrap().unwrap();
        if task.row.status == TaskStatus::Stopped {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{task:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let texts: Vec<_> = log(&*store, id).await.into_iter().map(|row| row.message).collect();
    assert_eq!(texts, ["before", "while it is away", "after"]);
    engine.stop().await;
    assert_eq!(store.verify().await.unwrap(), []);
}

async fn until_lines(store: &PgStore, id: TaskId, lines: usize) {
    let begun = Instant::now();
    loop {
        // The store may be on its way back.
        if store.logs(id, &ALL).await.is_ok_and(|log| log.len() == lines) {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{lines} lines do not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Somebody has locked the logs, and does not let go: results are written all
/// the same, and the logs when they can be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwritable_logs_do_not_delay_results() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut other = connect(&url).await;
    let lock = other.transaction().await.unwrap();
    let logs = "LOCK TABLE task_engine.execution_logs IN ACCESS EXCLUSIVE MODE";
    lock.batch_execute(logs).await.unwrap();
    let tasks: Vec<_> = (0..20).map(|_| task("speaks", nothing())).collect();
    let ids = store.create(&tasks).await.unwrap();
    let engine = start(TaskEngine::new(store.clone()).engine(()).instance("a").handle_class(
        "speaks",
        TaskOptions::default(),
        |_: serde_json::Value, cx: Context<()>| async move {
            cx.log("one");
            Ok::<_, Failure>(())
        },
    ));
    let begun = Instant::now();
    while !store.tasks(&stopped()).await.is_ok_and(|rows| rows.len() == ids.len()) {
        assert!(begun.elapsed() < TIMEOUT, "no results");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    lock.rollback().await.unwrap();
    for id in &ids {
        until_lines(&store, *id, 1).await;
    }
    engine.stop().await;
    assert_eq!(store.verify().await.unwrap(), []);
}

fn stopped() -> task_engine::core::task::TaskListQuery {
    let status = Some(TaskStatus::Stopped);
    task_engine::core::task::TaskListQuery { status, limit: 1000, ..Default::default() }
}
