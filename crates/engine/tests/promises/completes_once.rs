//! Exactly-once effects: engines are killed, suspended and taken for dead at random
//! moments, transactions are rolled back and left open, handlers fail, panic and
//! are dropped around the commit. In the end each task has had its effect once.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use task_engine::postgres::PgStore;
use task_engine::sqlite::{SqliteStore, rusqlite};
use task_engine::{
    Context, Failure, NewTask, Recovery, RetryRule, Store, Task, TaskEngine, TaskOptions,
    TaskStatus,
};

use task_engine_test_harness::{TestServer, connect};

use crate::completes_in_transactions::{App, PG_TABLE, SQLITE_TABLE, effects};

#[derive(Debug, Serialize, Deserialize)]
struct Once;

impl Task for Once {
    const CLASS: &'static str = "once";

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(Duration::from_millis(5), 1_000_000))
    }
}

fn a_moment() -> Duration {
    Duration::from_micros(fastrand::u64(0..15_000))
}

async fn in_postgres(_: Once, cx: Context<Arc<App>>) -> Result<(), Failure> {
    let App::Postgres(url) = &**cx.state() else { unreachable!() };
    let work = async {
        let mut client = connect(url).await;
        let repeatable = fastrand::u8(..3) == 0;
        let begin = client.build_transaction();
        let begin = if repeatable {
            begin.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        } else {
            begin
        };
        let transaction = begin.start().await?;
        let insert = "INSERT INTO effects VALUES ($1, $2)";
        transaction.execute(insert, &[&cx.task_id().0, &cx.attempt()]).await?;
        tokio::time::sleep(a_moment()).await;
        cx.complete_in(&transaction, &()).await?;
        tokio::time::sleep(a_moment()).await;
        if fastrand::u8(..10) == 0 {
            return Ok(()); // Dropped without a commit.
        }
        transaction.commit().await?;
        tokio::time::sleep(a_moment()).await;
        Ok::<_, Failure>(())
    };
    if fastrand::u8(..5) == 0 {
        // Dropped anywhere.
        let limit = Duration::from_micros(fastrand::u64(0..40_000));
        tokio::time::timeout(limit, work).await??;
    } else {
        work.await?;
    }
    whatever()
}

#[allow(clippy::needless_pass_by_value)] // As the engine calls it.
fn in_sqlite(_: Once, cx: Context<Arc<App>>) -> Result<(), Failure> {
    let App::Sqlite(path) = &**cx.state() else { unreachable!() };
    let mut connection = rusqlite::Connection::open(path)?;
    let transaction = connection.transaction()?;
    let insert = "INSERT INTO effects VALUES (?1, ?2)";
    transaction.execute(insert, [cx.task_id().0, cx.attempt().into()])?;
    std::thread::sleep(a_moment() / 5);
    cx.complete_in(&transaction, &())?;
    std::thread::sleep(a_moment() / 5);
    if fastrand::u8(..10) == 0 {
        return Ok(());
    }
    transaction.commit()?;
    std::thread::sleep(a_moment());
    whatever()
}

fn whatever() -> Result<(), Failure> {
    match fastrand::u8(..20) {
        0 => Err(Failure::from("after the commit")),
        1 => panic!("after the commit"),
        _ => Ok(()),
    }
}

const PLACE: &str = "TASK_ENGINE_TEST_ONCE";
const NAME: &str = "TASK_ENGINE_TEST_ONCE_NAME";

/// Not a test: the program that the tests below run as engines, which
/// is this one again.
#[test]
fn engine_process() {
    let (Ok(place), Ok(name)) = (std::env::var(PLACE), std::env::var(NAME)) else {
        return;
    };
    std::panic::set_hook(Box::new(|_| {}));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, app) = open(&place).await;
        let engine = TaskEngine::new(store)
            .engine(app.clone())
            .instance(name)
            .workers(6)
            .recovery(Recovery::Auto)
            .migrate_at_start(false)
            .poll(Duration::from_millis(200))
            .heartbeat(Duration::from_millis(100), Duration::from_millis(700));
        let engine = match *app {
            App::Postgres(_) => engine.handle(in_postgres),
            App::Sqlite(_) => engine.handle_blocking(in_sqlite),
        };
        let _ = engine.run_until(std::future::pending()).await;
    });
}

async fn open(place: &str) -> (Arc<dyn Store>, Arc<App>) {
    if place.starts_with("postgres") {
        let store = PgStore::connect(place).await.unwrap();
        (Arc::new(store), Arc::new(App::Postgres(place.to_owned())))
    } else {
        let path = PathBuf::from(place);
        (Arc::new(SqliteStore::open(&path).unwrap()), Arc::new(App::Sqlite(path)))
    }
}

struct Process(Child);

impl Process {
    fn start(place: &str, name: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "completes_once::engine_process", "--nocapture"])
            .env(PLACE, place)
            .env(NAME, name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_effects_happen_once_despite_kills() {
    let url = TestServer::shared().create_database().await;
    let (store, app) = open(&url).await;
    store.migrate().await.unwrap();
    connect(&url).await.batch_execute(PG_TABLE).await.unwrap();
    play(&url, &store, &app, 3, rounds(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_effects_happen_once_despite_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let place = path.to_str().unwrap();
    let (store, app) = open(place).await;
    store.migrate().await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch(SQLITE_TABLE).unwrap();
    play(place, &store, &app, 2, rounds(50)).await;
}

const TIMEOUT: Duration = Duration::from_secs(120);

/// All of them in a soak, a part of them every day.
fn rounds(all: usize) -> usize {
    if std::env::var("FAULTS").is_ok_and(|word| word == "soak") { all } else { all / 4 }
}

async fn play(place: &str, store: &Arc<dyn Store>, app: &App, engines: usize, kills: usize) {
    let client = TaskEngine::new(store.clone());
    let name = |n: usize| format!("engine-{n}");
    let mut running: Vec<_> = (0..engines).map(|n| Process::start(place, &name(n))).collect();
    let mut created = 0;
    let mut suspended = 0;
    for kill in 0..kills {
        let tasks: Vec<_> = (0..10).map(|_| NewTask::of(&Once).unwrap()).collect();
        created += client.create_many(&tasks).await.unwrap().len();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..250))).await;
        let victim = &mut running[kill % engines];
        if fastrand::u8(..12) == 0 {
            // Taken for dead, and comes back: a zombie with open transactions.
            victim.signal("-STOP");
            tokio::time::sleep(Duration::from_millis(fastrand::u64(700..1500))).await;
            victim.signal("-CONT");
            suspended += 1;
        } else {
            *victim = Process::start(place, &name(kill % engines));
        }
    }
    let begun = Instant::now();
    loop {
        let left = unended(&**store).await;
        if left == 0 {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{left} tasks of {created} are open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(running);
    let effects = effects(app).await;
    let mut tasks: Vec<i64> = effects.iter().map(|effect| effect.0).collect();
    tasks.dedup();
    assert_eq!(tasks.len(), effects.len(), "an effect happened twice");
    assert_eq!(effects.len(), created, "each task had its effect");
    let mut retried = 0;
    for (task_id, attempt) in &effects {
        let task = store.task(task_engine::TaskId(*task_id)).await.unwrap().unwrap();
        assert_eq!(task.row.status, TaskStatus::Stopped);
        let last = task.executions.last().unwrap();
        assert_eq!(last.attempt, *attempt, "the effect is that of the recorded attempt");
        retried += usize::from(*attempt > 1);
    }
    assert_eq!(store.verify().await.unwrap(), []);
    println!("{created} tasks, {retried} of them retried, {suspended} engines suspended");
}

async fn unended(store: &dyn Store) -> i64 {
    let counts = store.inventory().await.unwrap();
    counts.waiting + counts.running
}
