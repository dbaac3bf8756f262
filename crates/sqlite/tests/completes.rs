//! Completion in the application's transaction, attacked in the ways that only
//! a file has.

mod common;

use std::time::Instant;

use common::{Engine, File, task};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::{Completion, SettleOutcome};
use task_engine_core::json::Json;
use task_engine_core::recovery::Reclaim;
use task_engine_core::task::TaskStatus;
use task_engine_sqlite::{SqliteStore, complete_in};
use task_engine_store::claim::ClaimedTask;
use task_engine_store::error::StoreError;

struct Scene {
    file: File,
    store: SqliteStore,
    engine: Engine,
    claim: ClaimId,
    task: ClaimedTask,
}

async fn scene() -> Scene {
    let file = File::with_tables().await;
    let store = file.open();
    store.create(&[task("work")]).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    let (claim, mut tasks) = engine.claim(1).await;
    file.connect().execute_batch("CREATE TABLE effects (task_id INTEGER)").unwrap();
    Scene { file, store, engine, claim, task: tasks.tasks.remove(0) }
}

impl Scene {
    fn completion(&self) -> Completion {
        Completion {
            id: self.task.id,
            claim_id: self.claim,
            worker: None,
            began: Instant::now(),
            result: Json::null(),
            schema: self.store.schema_name().to_owned(),
        }
    }

    async fn status(&self) -> TaskStatus {
        self.store.task(self.task.id.task_id).await.unwrap().unwrap().row.status
    }
}

#[tokio::test]
async fn completion_opens_its_own_transaction() {
    let scene = scene().await;
    let connection = scene.file.connect();
    complete_in(&connection, &scene.completion()).unwrap();
    assert!(connection.is_autocommit());
    assert_eq!(scene.status().await, TaskStatus::Stopped);
    let ending = scene.engine.success(scene.claim, &scene.task);
    assert_eq!(scene.store.settle(&[ending]).await.unwrap(), [SettleOutcome::Completed]);
    let again = complete_in(&connection, &scene.completion());
    assert!(matches!(again, Err(StoreError::AttemptOver(_))), "{again:?}");
    assert_eq!(scene.store.verify().await.unwrap(), []);
}

/// A transaction that has read before the recovery cannot write any more: SQLite reports
/// that its snapshot is out of date.
#[tokio::test]
async fn old_snapshot_cannot_complete_reclaimed_attempt() {
    let scene = scene().await;
    let mut connection = scene.file.connect();
    let transaction = connection.transaction().unwrap();
    let seen: i64 =
        transaction.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 0);
    assert!(scene.store.declare_lost(scene.engine.id, true).await.unwrap());
    let taken = scene.store.reclaim(Reclaim::Lost(scene.engine.id)).await.unwrap();
    assert_eq!(taken.len(), 1);
    let completed = complete_in(&transaction, &scene.completion());
    assert!(completed.as_ref().is_err_and(StoreError::is_temporary), "{completed:?}");
    drop(transaction);
    assert_eq!(scene.status().await, TaskStatus::Waiting);
    assert_eq!(scene.store.verify().await.unwrap(), []);
}

/// After an error that is not about the attempt, the transaction is still open, and the
/// application decides.
#[tokio::test]
async fn other_error_keeps_transaction_open() {
    let scene = scene().await;
    let mut connection = scene.file.connect();
    connection.execute_batch("PRAGMA query_only = ON").unwrap();
    let transaction = connection.transaction().unwrap();
    let completed = complete_in(&transaction, &scene.completion());
    assert!(matches!(completed, Err(StoreError::Refused(_))), "{completed:?}");
    assert!(!transaction.is_autocommit());
    transaction.commit().unwrap();
    assert_eq!(scene.status().await, TaskStatus::Running);
}

#[tokio::test]
async fn missing_tables_name_the_remedy() {
    let scene = scene().await;
    let other = File::new();
    let error = complete_in(&other.connect(), &scene.completion()).unwrap_err();
    assert!(matches!(&error, StoreError::Version(why) if why.contains("migrate")), "{error}");
}
