//! Reports on a real server: they do not wait for locks, and `verify` finds leftover
//! rows.

use std::time::{Duration, Instant};

use task_engine_conformance::fixture::new_instance;
use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::json::Json;
use task_engine_core::progress::{LogFilter, LogLevel, LogLine, Report};
use task_engine_core::queue::Lanes;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_postgres::PgStore;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

/// A store, another connection to its database, and two attempts under way.
async fn two_attempts() -> (PgStore, Client, [AttemptId; 2]) {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    let task = NewTask::new("work", Json::empty_object()).unwrap();
    store.create(&[task.clone(), task]).await.unwrap();
    let id = store.register(&new_instance("a")).await.unwrap();
    let mut claimer =
        store.claimer(id, Lanes::new(vec!["default".to_owned()], vec!["work".to_owned()]));
    let claim = claimer.claim(ClaimIds::new(id).take(), 2).await.unwrap();
    (store, client, [claim.tasks[0].id, claim.tasks[1].id])
}

fn report(id: AttemptId) -> Report {
    let lines = vec![LogLine::new(1, LogLevel::Info, "one")];
    Report { id, version: 1, lines_total: 1, progress: None, lines }
}

async fn lines(store: &PgStore, id: TaskId) -> usize {
    let filter = LogFilter { limit: 10, ..LogFilter::default() };
    store.logs(id, &filter).await.unwrap().len()
}

#[tokio::test]
async fn report_skips_locked_task() {
    let (store, mut client, ids) = two_attempts().await;
    let lock = client.transaction().await.unwrap();
    let one = "SELECT FROM task_engine.created_tasks WHERE id = $1 FOR UPDATE";
    lock.query(one, &[&ids[0].task_id.0]).await.unwrap();
    let reports = ids.map(report);
    let begun = Instant::now();
    assert_eq!(store.report(&reports).await.unwrap(), [ids[0]]);
    assert!(begun.elapsed() < Duration::from_secs(5), "it does not wait for the lock");
    assert_eq!([lines(&store, ids[0].task_id).await, lines(&store, ids[1].task_id).await], [0, 1]);
    lock.rollback().await.unwrap();
    assert_eq!(store.report(&reports).await.unwrap(), []);
    assert_eq!([lines(&store, ids[0].task_id).await, lines(&store, ids[1].task_id).await], [1, 1]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn verify_finds_leftover_reports() {
    let (store, client, [id, _]) = two_attempts().await;
    assert_eq!(store.verify().await.unwrap(), []);
    let task = id.task_id;
    for (harm, complaint) in [
        (
            "INSERT INTO task_engine.execution_progress (task_id, attempt, version, lines) VALUES (77, 1, 1, 0)".to_owned(),
            "attempt 1 of task 77 has said something, but is neither held nor ended".to_owned(),
        ),
        (
            format!("INSERT INTO task_engine.execution_logs VALUES ({task}, 1, 3, now(), 'info', '')"),
            format!("attempt 1 of task {task} has line 3, but has said 0 lines"),
        ),
        (
            format!("INSERT INTO task_engine.cancellations VALUES ({task}, 1, now())"),
            format!("attempt 1 of task {task} was to be cancelled, but has not ended"),
        ),
    ] {
        client.batch_execute(&harm).await.unwrap();
        let complaints = store.verify().await.unwrap();
        assert!(complaints.iter().any(|it| it.message == complaint), "{harm}: {complaints:?}");
    }
}
