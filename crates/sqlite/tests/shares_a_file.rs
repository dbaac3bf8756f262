//! Several handles on one file, as several processes would have them.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{Engine, File, task};
use task_engine_core::task::TaskListQuery;
use task_engine_sqlite::create_in;
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::WakeUp;
use tokio::sync::mpsc;

/// Listens on its own handle.
async fn listen(file: &File) -> (mpsc::UnboundedReceiver<WakeUp>, tokio::task::JoinHandle<()>) {
    let store = file.open();
    let (tell, mut heard) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let hear = move |wake_up| {
            let _ = tell.send(wake_up);
        };
        let _ = store.listen(&hear).await;
    });
    assert_eq!(heard.recv().await, Some(WakeUp::Work), "listening has begun");
    assert_eq!(heard.recv().await, Some(WakeUp::Schedule), "whatever was changed before");
    (heard, task)
}

async fn next(heard: &mut mpsc::UnboundedReceiver<WakeUp>) -> WakeUp {
    tokio::time::timeout(Duration::from_secs(10), heard.recv()).await.expect("in time").unwrap()
}

#[tokio::test]
async fn other_handle_creation_wakes() {
    let file = File::with_tables().await;
    let (mut heard, _task) = listen(&file).await;

    file.open().create(&[task("work")]).await.unwrap();
    assert_eq!(next(&mut heard).await, WakeUp::Work);

    let began = Instant::now();
    create_in(&file.connect(), &[task("work")]).unwrap();
    assert_eq!(next(&mut heard).await, WakeUp::Work);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn cancel_request_wakes_other_handle_once() {
    let file = File::with_tables().await;
    let store = file.open();
    let mut engine = Engine::register(&store, "a").await;
    let ids = store.create(&[task("work")]).await.unwrap();
    engine.claim(1).await;
    let (mut heard, _task) = listen(&file).await;

    file.open().cancel(&ids).await.unwrap();
    assert_eq!(next(&mut heard).await, WakeUp::Cancel);
    // No event reports the absence of a wake-up, so this waits for several polls of the file.
    for _ in 0..10 {
        assert_eq!(store.heartbeat(engine.id).await.unwrap().cancel.len(), 1);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(heard.try_recv().is_err(), "nothing new has happened");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn threads_end_with_last_handle() {
    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(Result::ok)
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
            .filter(|name| name.starts_with("task-engine-sql"))
            .count()
    }
    // Other tests of this file run at the same time, so this one runs in its own process.
    if std::env::var_os("TASK_ENGINE_ALONE").is_none() {
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads_end_with_last_handle"])
            .env("TASK_ENGINE_ALONE", "1")
            .status();
        assert!(ended.unwrap().success());
        return;
    }
    let file = File::with_tables().await;
    let (heard, task) = listen(&file).await;
    assert!(threads() >= 3);
    task.abort();
    let _ = task.await;
    drop(heard);
    let deadline = Instant::now() + Duration::from_secs(10);
    while threads() > 0 {
        assert!(Instant::now() < deadline, "{} threads go on", threads());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handles_claim_each_task_once() {
    const TASKS: usize = 2000;
    let file = File::with_tables().await;
    file.open().create(&vec![task("work"); TASKS]).await.unwrap();
    let drain = |name: &'static str| {
        let store = file.open();
        async move {
            let mut engine = Engine::register(&store, name).await;
            let mut ids = Vec::new();
            loop {
                let (claim_id, claim) = engine.claim(10).await;
                let endings: Vec<_> =
                    claim.tasks.iter().map(|task| engine.success(claim_id, task)).collect();
                assert_eq!(store.record(&endings, &[]).await.unwrap(), []);
                store.record(&[], &[claim_id]).await.unwrap();
                ids.extend(endings.iter().map(|ending| ending.id.task_id));
                if let ClaimRest::Nothing { .. } = claim.rest {
                    return ids;
                }
            }
        }
    };
    let (one, other) = tokio::join!(tokio::spawn(drain("a")), tokio::spawn(drain("b")));
    let all: Vec<_> = [one.unwrap(), other.unwrap()].concat();
    assert_eq!(all.len(), TASKS);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), TASKS);
    assert_eq!(file.open().verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creations_share_commits() {
    const TASKS: usize = 1000;
    let file = File::with_tables().await;
    let store = file.open();
    let task = task("work");
    let one = std::slice::from_ref(&task);
    let created = futures_util::future::join_all((0..TASKS).map(|_| store.create(one))).await;
    assert!(created.iter().all(Result::is_ok));

    // One time is taken for each transaction.
    let commits: i64 = file
        .connect()
        .query_row("SELECT count(DISTINCT created_at) FROM task_engine_created_tasks", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(commits <= 20, "{commits} commits for {TASKS} tasks");
    let filter = TaskListQuery { limit: 2000, ..TaskListQuery::default() };
    assert_eq!(store.tasks(&filter).await.unwrap().len(), TASKS);
}

#[tokio::test]
async fn failed_job_leaves_group_intact() {
    let file = File::with_tables().await;
    let store = file.open();
    let mut bad = task("work");
    bad.queue.clear();
    let (good, bad) = ([task("work")], [task("work"), bad]);
    let (first, second, third) =
        tokio::join!(store.create(&good), store.create(&bad), store.create(&good));
    assert!(first.is_ok() && second.is_err() && third.is_ok());
    let filter = TaskListQuery { limit: 10, ..TaskListQuery::default() };
    assert_eq!(store.tasks(&filter).await.unwrap().len(), 2);
}
