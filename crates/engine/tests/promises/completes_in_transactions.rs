//! A task that is completed in a transaction of the application is done if the
//! transaction commits, and only then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use task_engine::core::completion::Completion;
use task_engine::core::json::Json;
use task_engine::core::task::TaskDetails;
use task_engine::postgres::{PgStore, tokio_postgres};
use task_engine::sqlite::{SqliteStore, rusqlite};
use task_engine::{
    CancelReport, Context, Engine, Failure, Hook, Recovery, RetryRule, StoreError, Task,
    TaskEngine, TaskError, TaskId, TaskOptions, TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};

use crate::store::{Fresh, TIMEOUT, nothing, start, task};

/// What the transaction of an attempt comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Commit,
    RollBackOnce,
    ForgetOnce,
    CommitThenFail,
    CommitThenPanic,
    SwallowAnError,
    TryAgain,
}

#[derive(Debug, Serialize, Deserialize)]
struct Effect {
    act: Act,
}

impl Task for Effect {
    const CLASS: &'static str = "effect";

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(Duration::from_millis(5), 1_000_000))
    }
}

/// Where the application has its own tables: where the store is.
pub(crate) enum App {
    Postgres(String),
    Sqlite(PathBuf),
}

pub(crate) const PG_TABLE: &str =
    "CREATE TABLE effects (task_id bigint NOT NULL, attempt integer NOT NULL)";
pub(crate) const SQLITE_TABLE: &str =
    "CREATE TABLE effects (task_id INTEGER NOT NULL, attempt INTEGER NOT NULL)";

const INSERT: &str = "INSERT INTO effects VALUES ($1, $2)";

async fn in_postgres(task: Effect, cx: Context<Arc<App>>) -> Result<&'static str, Failure> {
    let App::Postgres(url) = &**cx.state() else { unreachable!() };
    let mut client = connect(url).await;
    let first = cx.attempt() == 1;
    loop {
        let mut transaction = client.transaction().await?;
        transaction.execute(INSERT, &[&cx.task_id().0, &cx.attempt()]).await?;
        if task.act == Act::SwallowAnError && first {
            let mut completion = cx.completion(&"mine")?;
            completion.id.attempt += 1;
            let schema = task_engine::postgres::Schema::default();
            let over = schema.complete_in(&transaction, &completion).await;
            assert!(matches!(over, Err(StoreError::AttemptOver(_))), "{over:?}");
            transaction.commit().await?;
            return Ok("swallowed");
        }
        cx.complete_in(&mut transaction, &"mine").await?;
        match task.act {
            Act::RollBackOnce if first => transaction.rollback().await?,
            Act::ForgetOnce if first => drop(transaction),
            Act::TryAgain if fastrand::bool() => {
                transaction.rollback().await?;
                continue;
            }
            _ => transaction.commit().await?,
        }
        return after(task.act);
    }
}

#[allow(clippy::needless_pass_by_value)] // As the engine calls it.
fn in_sqlite(task: Effect, cx: Context<Arc<App>>) -> Result<&'static str, Failure> {
    let App::Sqlite(path) = &**cx.state() else { unreachable!() };
    let mut connection = rusqlite::Connection::open(path)?;
    let first = cx.attempt() == 1;
    loop {
        let transaction = connection.transaction()?;
        transaction.execute(INSERT, [cx.task_id().0, cx.attempt().into()])?;
        if task.act == Act::SwallowAnError && first {
            let mut completion = cx.completion(&"mine")?;
            completion.id.attempt += 1;
            let over = task_engine::sqlite::complete_in(&transaction, &completion);
            assert!(matches!(over, Err(StoreError::AttemptOver(_))), "{over:?}");
            let gone = transaction.commit().unwrap_err();
            assert!(gone.to_string().contains("no transaction is active"), "{gone}");
            return Ok("swallowed");
        }
        cx.complete_in(&transaction, &"mine")?;
        match task.act {
            Act::RollBackOnce if first => transaction.rollback()?,
            Act::ForgetOnce if first => drop(transaction),
            Act::TryAgain if fastrand::bool() => {
                transaction.rollback()?;
                continue;
            }
            _ => transaction.commit()?,
        }
        return after(task.act);
    }
}

fn after(act: Act) -> Result<&'static str, Failure> {
    match act {
        Act::CommitThenFail => Err(Failure::from("after all was done")),
        Act::CommitThenPanic => panic!("after all was done"),
        _ => Ok("what the handler returns"),
    }
}

struct Scene {
    fresh: Fresh,
    app: Arc<App>,
    _folder: tempfile::TempDir,
}

async fn postgres() -> Scene {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    connect(&url).await.batch_execute(PG_TABLE).await.unwrap();
    let app = Arc::new(App::Postgres(url));
    Scene { fresh: Fresh::on(store), app, _folder: tempfile::tempdir().unwrap() }
}

async fn sqlite() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch(SQLITE_TABLE).unwrap();
    Scene { fresh: Fresh::on(store), app: Arc::new(App::Sqlite(path)), _folder: folder }
}

impl Scene {
    fn engine(&self) -> Engine<Arc<App>> {
        let engine =
            TaskEngine::new(self.fresh.store.clone()).engine(self.app.clone()).instance("test");
        match *self.app {
            App::Postgres(_) => engine.handle(in_postgres),
            App::Sqlite(_) => engine.handle_blocking(in_sqlite),
        }
    }

    /// The tasks that had an effect, with the attempt that had it.
    async fn effects(&self) -> Vec<(i64, i32)> {
        effects(&self.app).await
    }

    /// Runs tasks of this act, and checks what holds of all of them.
    async fn play(&self, act: Act) -> Vec<TaskDetails> {
        let client = TaskEngine::new(self.fresh.store.clone());
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(client.create(Effect { act }).await.unwrap());
        }
        let engine = start(self.engine());
        let mut tasks = Vec::new();
        for id in &ids {
            tasks.push(self.fresh.until_status(*id, TaskStatus::Stopped).await);
        }
        engine.stop().await;
        for task in &tasks {
            let last = task.executions.last().unwrap();
            assert_eq!(last.result.as_ref().unwrap().as_str(), "\"mine\"", "{act:?}");
            assert!(task.late_results.is_empty(), "{task:?}");
            let theirs = (task.row.id.0, last.attempt);
            assert!(self.effects().await.contains(&theirs), "{act:?}: {theirs:?}");
        }
        assert_eq!(self.effects().await.len(), ids.len(), "{act:?}: one effect a task");
        let instances = self.fresh.store.instances(None).await.unwrap();
        assert!(instances.iter().all(|instance| instance.held == 0), "{instances:?}");
        self.fresh.assert_sound().await;
        tasks
    }
}

pub(crate) async fn effects(app: &App) -> Vec<(i64, i32)> {
    let ask = "SELECT task_id, attempt FROM effects ORDER BY 1, 2";
    match app {
        App::Postgres(url) => {
            let rows = connect(url).await.query(ask, &[]).await.unwrap();
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        }
        App::Sqlite(path) => {
            let connection = rusqlite::Connection::open(path).unwrap();
            let mut ask = connection.prepare(ask).unwrap();
            let rows = ask.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect()
        }
    }
}

macro_rules! scenes {
    ($($name:ident)*) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::postgres().await).await; })*
        }
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::sqlite().await).await; })*
        }
    };
}

scenes! {
    commit_ends_task
    commit_wins_over_later_error
    attempt_without_commit_is_retried
    swallowed_error_commits_nothing
    handler_can_retry_its_transaction
}

async fn commit_ends_task(scene: Scene) {
    for task in scene.play(Act::Commit).await {
        assert_eq!(task.executions.len(), 1);
        assert!(task.executions[0].worker.is_some());
    }
}

async fn commit_wins_over_later_error(scene: Scene) {
    assert!(scene.play(Act::CommitThenFail).await.iter().all(|task| task.executions.len() == 1));
    let second = start_over(scene).await;
    assert!(second.play(Act::CommitThenPanic).await.iter().all(|task| task.executions.len() == 1));
}

/// The same kind of store, empty.
async fn start_over(scene: Scene) -> Scene {
    match *scene.app {
        App::Postgres(_) => postgres().await,
        App::Sqlite(_) => sqlite().await,
    }
}

async fn attempt_without_commit_is_retried(scene: Scene) {
    let mut scene = scene;
    for act in [Act::RollBackOnce, Act::ForgetOnce] {
        for task in scene.play(act).await {
            assert_eq!(task.executions.len(), 2);
            let error = task.executions[0].error.as_ref().unwrap();
            assert_eq!(error.exception, TaskError::NOT_COMMITTED);
            assert!(error.message.contains("was not committed"), "{error}");
        }
        scene = start_over(scene).await;
    }
}

async fn swallowed_error_commits_nothing(scene: Scene) {
    let tasks = scene.play(Act::SwallowAnError).await;
    assert!(tasks.iter().all(|task| task.executions.len() == 2));
}

async fn handler_can_retry_its_transaction(scene: Scene) {
    let tasks = scene.play(Act::TryAgain).await;
    assert!(tasks.iter().all(|task| task.executions.len() == 1));
}

/// Hooks see the success of the handler, and cannot change what has committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_sees_success() {
    struct Replaces(tokio::sync::mpsc::UnboundedSender<bool>);
    impl Hook<Arc<App>> for Replaces {
        async fn after(
            &self,
            _: &Context<Arc<App>>,
            outcome: Result<Json, Failure>,
        ) -> Result<Json, Failure> {
            self.0.send(outcome.is_ok()).unwrap();
            Ok(Json::parse("\"replaced\"")?)
        }
    }
    let scene = postgres().await;
    let (seen, mut sees) = tokio::sync::mpsc::unbounded_channel();
    let client = TaskEngine::new(scene.fresh.store.clone());
    let id = client.create(Effect { act: Act::Commit }).await.unwrap();
    let engine = start(scene.engine().hook(Replaces(seen)));
    let task = scene.fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(sees.recv().await, Some(true));
    engine.stop().await;
    assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), "\"mine\"");
}

/// An engine whose tasks are completed in transactions that the test ends.
struct Slow {
    scene: Scene,
    engine: crate::store::RunningEngine,
    held: tokio::sync::mpsc::UnboundedReceiver<tokio_postgres::Client>,
}

/// Its handler returns while the transaction is open.
async fn slow() -> Slow {
    let scene = postgres().await;
    let (hold, held) = tokio::sync::mpsc::unbounded_channel();
    let App::Postgres(url) = &*scene.app else { unreachable!() };
    let url = url.clone();
    let engine = TaskEngine::new(scene.fresh.store.clone())
        .engine(())
        .instance("slow")
        .workers(4)
        .handle_class(
            "slow",
            TaskOptions::default().retry(RetryRule::every(Duration::from_millis(5), 10)),
            move |_: serde_json::Value, cx: Context<()>| {
                let (url, hold) = (url.clone(), hold.clone());
                async move {
                    let client = connect(&url).await;
                    client.batch_execute("BEGIN").await?;
                    client.execute(INSERT, &[&cx.task_id().0, &cx.attempt()]).await?;
                    let completion: Completion = cx.completion(&"slow")?;
                    let schema = task_engine::postgres::Schema::default();
                    schema.complete_in(&client, &completion).await?;
                    hold.send(client).unwrap();
                    Ok::<_, Failure>(())
                }
            },
        )
        .handle_class(
            "quick",
            TaskOptions::default(),
            |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
        );
    Slow { engine: start(engine), scene, held }
}

impl Slow {
    async fn is(&self, id: TaskId) -> TaskStatus {
        self.scene.fresh.details(id).await.row.status
    }
}

/// Transactions that stay open for three seconds after their handlers have
/// returned: the results of others are written as ever, and heartbeats,
/// cancelling, claiming and removing go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transaction_does_not_delay_others() {
    let mut slow = slow().await;
    let fresh = &slow.scene.fresh;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(fresh.create("slow", nothing()).await);
    }
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(slow.held.recv().await.unwrap());
    }
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let quick = fresh.create("quick", nothing()).await;
        fresh.until_status(quick, TaskStatus::Stopped).await;
        assert_eq!(fresh.store.delete(&[quick]).await.unwrap().len(), 1);
        let cancel = fresh.store.cancel(&ids[..1]).await.unwrap();
        assert_eq!(cancel, [CancelReport::Requested]);
        fresh.store.prune(TaskStatus::Stopped, Duration::ZERO, 100).await.unwrap();
        longest = longest.max(asked.elapsed());
    }
    println!("the longest way round took {longest:?} with four open transactions");
    assert!(longest < Duration::from_millis(2500), "{longest:?}");
    for id in &ids {
        assert_eq!(slow.is(*id).await, TaskStatus::Running);
    }
    for client in open {
        client.batch_execute("COMMIT").await.unwrap();
    }
    for id in &ids {
        let task = fresh.until_status(*id, TaskStatus::Stopped).await;
        assert_eq!(task.executions.len(), 1, "the completion wins over the cancel request");
    }
    slow.engine.stop().await;
    assert_eq!(slow.scene.effects().await.len(), ids.len());
    fresh.assert_sound().await;
}

/// An engine that stops waits for a verdict; after a rollback it is a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_waits_for_open_transaction() {
    let mut slow = slow().await;
    let fresh = &slow.scene.fresh;
    let id = fresh.create("slow", nothing()).await;
    let client = slow.held.recv().await.unwrap();
    slow.engine.stop.stop();
    client.batch_execute("ROLLBACK").await.unwrap();
    let stopped = slow.engine.ended().await.unwrap();
    assert_eq!(stopped.unrecorded, 0);
    let task = fresh.details(id).await;
    assert_eq!(task.row.status, TaskStatus::Waiting);
    let error = task.executions[0].error.as_ref().unwrap();
    assert_eq!(error.exception, TaskError::NOT_COMMITTED);
    assert_eq!(slow.scene.effects().await, []);
    fresh.assert_sound().await;
}

/// Recovery of a dead engine's tasks while the server still has their open
/// transactions: each is settled as soon as its transaction is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_waits_for_open_transaction() {
    let scene = postgres().await;
    let App::Postgres(url) = &*scene.app else { unreachable!() };
    let fresh = &scene.fresh;
    // An engine that has died: what it left is three attempts, two in
    // transactions that the server has not ended.
    let fixture = task_engine_conformance::fixture::Fixture { store: fresh.store.clone() };
    let ids = fixture.create_all(&vec![task("quick", nothing()); 3]).await;
    let mut dead = fixture
        .register(task_engine_conformance::fixture::with_classes(
            task_engine_conformance::fixture::new_instance("dead"),
            &[("quick", RetryRule::every(Duration::ZERO, 5))],
        ))
        .await;
    let holds = dead.claim(3).await;
    let mut open = Vec::new();
    for hold in &holds[..2] {
        let client = connect(url).await;
        client.batch_execute("BEGIN").await.unwrap();
        client.execute(INSERT, &[&hold.task_id().0, &1]).await.unwrap();
        let completion = task_engine_conformance::completions::completion(hold);
        let schema = task_engine::postgres::Schema::default();
        schema.complete_in(&client, &completion).await.unwrap();
        open.push(client);
    }
    fixture.declare_lost(dead.id).await;
    let engine = TaskEngine::new(fresh.store.clone())
        .engine(())
        .instance("heir")
        .recovery(Recovery::Auto)
        .heartbeat(Duration::from_millis(100), Duration::from_secs(2))
        .handle_class(
            "quick",
            TaskOptions::default(),
            |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
        );
    let engine = start(engine);
    let begun = Instant::now();
    assert_eq!(fresh.until_status(ids[2], TaskStatus::Stopped).await.executions.len(), 2);
    assert!(begun.elapsed() < TIMEOUT / 3, "{:?}", begun.elapsed());
    open.remove(0).batch_execute("COMMIT").await.unwrap();
    open.remove(0).batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(fresh.until_status(ids[0], TaskStatus::Stopped).await.executions.len(), 1);
    assert_eq!(fresh.until_status(ids[1], TaskStatus::Stopped).await.executions.len(), 2);
    let begun = Instant::now();
    while fresh
        .store
        .instances(Some("dead"))
        .await
        .unwrap()
        .iter()
        .any(|instance| instance.held > 0)
    {
        assert!(begun.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.stop().await;
    assert_eq!(scene.effects().await, [(ids[0].0, 1)]);
    fresh.assert_sound().await;
}
