//! Completion in the application's transaction. Each case is an order of events between
//! sessions in which an effect could be committed twice, or another session could wait
//! for the application.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine_conformance::completions::completion;
use task_engine_conformance::fixture::{
    Fixture, TestAttempt, WORK, new_instance, new_task, with_classes,
};
use task_engine_core::completion::SettleOutcome;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::TaskStatus;
use task_engine_core::unique::{Creation, Unique};
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

struct Scene {
    url: String,
    fixture: Fixture,
    engine: InstanceId,
    hold: TestAttempt,
}

/// An engine with one attempt; its task fails for good if it is lost.
async fn scene() -> Scene {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let fixture = Fixture { store: Arc::new(store) };
    fixture.create_work(1).await;
    let new = with_classes(new_instance("a"), &[(WORK, RetryRule::never())]);
    let mut engine = fixture.register(new).await;
    let hold = engine.claim_one().await;
    connect(&url).await.batch_execute("CREATE TABLE effects (task_id bigint)").await.unwrap();
    Scene { url, fixture, engine: engine.id, hold }
}

impl Scene {
    /// A transaction that has done its work, and has its snapshot.
    async fn begin(&self, begin: &str) -> Client {
        let client = connect(&self.url).await;
        client.batch_execute(begin).await.unwrap();
        client.execute("INSERT INTO effects VALUES ($1)", &[&self.hold.task_id().0]).await.unwrap();
        client
    }

    async fn complete(&self, client: &Client) -> Result<(), StoreError> {
        Schema::default().complete_in(client, &completion(&self.hold)).await
    }

    async fn reclaim(&self) {
        assert!(self.fixture.declare_lost(self.engine).await);
        assert_eq!(self.fixture.recover(self.engine).await.len(), 1);
    }

    async fn effects(&self) -> usize {
        let client = connect(&self.url).await;
        client.query("SELECT FROM effects", &[]).await.unwrap().len()
    }

    async fn assert_sound(&self) {
        assert_eq!(self.fixture.store.verify().await.unwrap(), []);
    }

    /// Waits until a session of this database waits for a lock.
    async fn until_somebody_waits(&self) {
        let client = connect(&self.url).await;
        let waits = "SELECT FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let begun = Instant::now();
        while client.query(waits, &[]).await.unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(8), "nobody waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

const READ_COMMITTED: &str = "BEGIN";
const REPEATABLE_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

/// A snapshot from before the recovery still sees the claim. The completion is refused,
/// whether the row of its end exists or an operator has removed the task.
#[tokio::test]
async fn old_snapshot_cannot_complete_reclaimed_attempt() {
    for begin in [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE] {
        for removed in [false, true] {
            let scene = scene().await;
            let client = scene.begin(begin).await;
            scene.reclaim().await;
            if removed {
                scene.fixture.store.delete(&[scene.hold.task_id()]).await.unwrap();
            }
            let error = scene.complete(&client).await.unwrap_err();
            match begin {
                READ_COMMITTED => {
                    assert!(matches!(error, StoreError::AttemptOver(_)), "{error:?}");
                }
                _ => assert!(error.is_temporary(), "a serialisation failure, not {error:?}"),
            }
            client.batch_execute("COMMIT").await.unwrap();
            assert_eq!(scene.effects().await, 0, "{begin}, removed: {removed}");
            scene.assert_sound().await;
        }
    }
}

#[tokio::test]
async fn completes_at_every_isolation_level() {
    for begin in [READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE] {
        let scene = scene().await;
        let client = scene.begin(begin).await;
        scene.complete(&client).await.unwrap();
        // Recovery skips the attempt, even if the transaction has locked the claim.
        assert!(scene.fixture.declare_lost(scene.engine).await);
        let begun = Instant::now();
        assert_eq!(scene.fixture.recover(scene.engine).await, []);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(scene.fixture.recover(scene.engine).await, []);
        assert_eq!(scene.fixture.status(scene.hold.task_id()).await, TaskStatus::Stopped);
        assert_eq!(scene.fixture.instances(Some("a")).await[0].held, 0);
        assert_eq!(scene.effects().await, 1);
        scene.assert_sound().await;
    }
}

/// The insert waits. When it continues, the claim of its snapshot has been removed, and
/// also the row that would conflict. Without the second check, it would complete an
/// attempt that was reclaimed.
#[tokio::test]
async fn reclaim_during_wait_is_noticed() {
    for begin in [READ_COMMITTED, REPEATABLE_READ] {
        let scene = scene().await;
        let other = connect(&scene.url).await;
        let id = scene.hold.task_id().0;
        let ended = format!(
            "BEGIN; INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task, error)
             VALUES ({id}, 1, 0, now(), 'failed', '{{}}')"
        );
        other.batch_execute(&ended).await.unwrap();
        let client = scene.begin(begin).await;
        let completing = scene.complete(&client);
        let meanwhile = async {
            scene.until_somebody_waits().await;
            let gone = format!(
                "DELETE FROM task_engine.claims;
                 DELETE FROM task_engine.created_tasks WHERE id = {id}"
            );
            connect(&scene.url).await.batch_execute(&gone).await.unwrap();
            other.batch_execute("ROLLBACK").await.unwrap();
        };
        let (completed, ()) = tokio::join!(completing, meanwhile);
        let error = completed.unwrap_err();
        let seen = matches!(error, StoreError::AttemptOver(_)) || error.is_temporary();
        assert!(seen, "{error:?}");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(scene.effects().await, 0, "{begin}");
        scene.assert_sound().await;
    }
}

/// A completion and a recovery at the same time: the first decides, and the completion
/// waits for the end of the recovery.
#[tokio::test]
async fn completion_waits_for_running_recovery() {
    for commits in [true, false] {
        let scene = scene().await;
        let recovery = connect(&scene.url).await;
        let id = scene.hold.task_id().0;
        let ended = format!(
            "BEGIN; DELETE FROM task_engine.claims;
             INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task, error)
             VALUES ({id}, 1, 0, now(), 'failed', '{{}}')"
        );
        recovery.batch_execute(&ended).await.unwrap();
        let client = scene.begin(READ_COMMITTED).await;
        let meanwhile = async {
            scene.until_somebody_waits().await;
            recovery.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        };
        let (completed, ()) = tokio::join!(scene.complete(&client), meanwhile);
        assert_eq!(completed.is_err(), commits, "{completed:?}");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(scene.effects().await, usize::from(!commits));
        scene.assert_sound().await;
    }
}

/// A rolled back savepoint also rolls back the completion. The engine learns that,
/// although the transaction has committed.
#[tokio::test]
async fn rolled_back_savepoint_completes_nothing() {
    let scene = scene().await;
    let client = connect(&scene.url).await;
    client.batch_execute("BEGIN; SAVEPOINT one").await.unwrap();
    scene.complete(&client).await.unwrap();
    client.batch_execute("ROLLBACK TO one; COMMIT").await.unwrap();
    let settled = scene.fixture.store.settle(&[scene.hold.fails()]).await.unwrap();
    assert_eq!(settled, [SettleOutcome::Recorded]);
    scene.assert_sound().await;
}

/// A connection that dies in the middle, with the commit or without it.
#[tokio::test]
async fn terminated_session_completes_nothing() {
    let scene = scene().await;
    let client = scene.begin(READ_COMMITTED).await;
    scene.complete(&client).await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let admin = connect(&scene.url).await;
    admin.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let begun = Instant::now();
    let settled = loop {
        let settled = scene.fixture.store.settle(&[scene.hold.fails()]).await.unwrap()[0];
        if settled != SettleOutcome::Open {
            break settled;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    };
    assert_eq!(settled, SettleOutcome::Recorded);
    assert_eq!(scene.effects().await, 0);
    scene.assert_sound().await;
}

/// Many attempts of which some are in open transactions: those alone are left.
#[tokio::test]
async fn settling_skips_open_transactions() {
    let scene = scene().await;
    scene.fixture.create_work(30).await;
    let mut engine = scene.fixture.engine("b").await;
    let holds = engine.claim(30).await;
    let mut open = Vec::new();
    for hold in holds.iter().step_by(3) {
        let client = connect(&scene.url).await;
        client.batch_execute("BEGIN").await.unwrap();
        Schema::default().complete_in(&client, &completion(hold)).await.unwrap();
        open.push(client);
    }
    let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
    let begun = Instant::now();
    let settled = scene.fixture.store.settle(&endings).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for (place, settled) in settled.into_iter().enumerate() {
        let wanted = if place % 3 == 0 { SettleOutcome::Open } else { SettleOutcome::Recorded };
        assert_eq!(settled, wanted, "{place}");
    }
    for client in open {
        client.batch_execute("COMMIT").await.unwrap();
    }
    let settled = scene.fixture.store.settle(&endings).await.unwrap();
    let done = settled.iter().filter(|one| **one == SettleOutcome::Completed).count();
    assert_eq!(done, 10);
    scene.assert_sound().await;
}

/// Creators with the key of a task that is about to be completed do not wait for
/// it; and its own transaction may create the next one with that key.
#[tokio::test]
async fn completion_locks_no_unique_key() {
    let mut scene = scene().await;
    let task = new_task(WORK).unique(Unique::by("k")).unwrap();
    let first = scene.fixture.store.create_each(std::slice::from_ref(&task)).await.unwrap()[0];
    let mut engine = scene.fixture.engine("b").await;
    scene.hold = engine.claim_one().await;
    let client = scene.begin(READ_COMMITTED).await;
    scene.complete(&client).await.unwrap();
    let begun = Instant::now();
    let kept = scene.fixture.store.create_each(std::slice::from_ref(&task)).await.unwrap()[0];
    assert_eq!(kept, Creation::Kept(first.id()), "it still runs, for all that others know");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let next = Schema::default().create_each_in(&client, std::slice::from_ref(&task)).await;
    let next = next.unwrap()[0];
    assert!(matches!(next, Creation::Created(_)), "it has ended, for its own transaction");
    client.batch_execute("COMMIT").await.unwrap();
    let kept = scene.fixture.store.create_each(std::slice::from_ref(&task)).await.unwrap()[0];
    assert_eq!(kept, Creation::Kept(next.id()));
    scene.assert_sound().await;
}

/// Another claim, another attempt, another task: none of it is its own.
#[tokio::test]
async fn foreign_attempt_cannot_be_completed() {
    let scene = scene().await;
    let mut forged = [completion(&scene.hold), completion(&scene.hold), completion(&scene.hold)];
    forged[0].claim_id.0 += 1;
    forged[1].id.attempt += 1;
    forged[2].id.task_id.0 += 1;
    for completion in forged {
        let client = scene.begin(READ_COMMITTED).await;
        let completed = Schema::default().complete_in(&client, &completion).await;
        let id = completion.id;
        assert!(matches!(completed, Err(StoreError::AttemptOver(over)) if over == id));
        client.batch_execute("COMMIT").await.unwrap();
    }
    assert_eq!(scene.effects().await, 0);
    assert_eq!(scene.fixture.status(scene.hold.task_id()).await, TaskStatus::Running);
}

/// A value that the database cannot store is reported, and aborts the transaction.
#[tokio::test]
async fn invalid_result_completes_nothing() {
    let scene = scene().await;
    let client = scene.begin(READ_COMMITTED).await;
    let mut completion = completion(&scene.hold);
    completion.result = Json::from_store("\"a\\u0000b\"".to_owned());
    let error = Schema::default().complete_in(&client, &completion).await.unwrap_err();
    assert!(matches!(error, StoreError::InvalidData(_)), "{error:?}");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(scene.effects().await, 0);
}

/// From any driver, by the function.
#[tokio::test]
async fn plain_sql_completes_task() {
    let scene = scene().await;
    let client = scene.begin(READ_COMMITTED).await;
    let (id, claim) = (scene.hold.task_id().0, scene.hold.claim_id.0);
    let call = format!("SELECT task_engine.complete_attempt({id}, 1, {claim}, '{{\"n\": 1}}')");
    client.batch_execute(&call).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let task = scene.fixture.details(scene.hold.task_id()).await;
    assert_eq!(task.row.status, TaskStatus::Stopped);
    assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), "{\"n\": 1}");
    // An engine that does not know of the completion records another end. It is not late,
    // because the same holder completed the attempt.
    let late = scene.fixture.store.record(&[scene.hold.fails()], &[]).await.unwrap();
    assert_eq!(late, []);
    assert!(scene.fixture.details(scene.hold.task_id()).await.late_results.is_empty());
    scene.assert_sound().await;
    let again = connect(&scene.url).await.batch_execute(&call).await.unwrap_err();
    assert_eq!(again.code().unwrap().code(), "TE001");
}

#[tokio::test]
async fn completes_in_named_schema() {
    let url = TestServer::shared().create_database().await;
    let schema = Schema::named("jobs").unwrap();
    let store = PgStore::connect_schema(&url, schema.clone()).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.schema_name(), "jobs");
    let fixture = Fixture { store: Arc::new(store) };
    fixture.create_work(1).await;
    let hold = fixture.engine("a").await.claim_one().await;
    let client = connect(&url).await;
    client.batch_execute("BEGIN").await.unwrap();
    schema.complete_in(&client, &completion(&hold)).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(fixture.status(hold.task_id()).await, TaskStatus::Stopped);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transaction_completes_task() {
    use task_engine_postgres::sqlx::{Connection as _, PgConnection};
    let scene = scene().await;
    let schema = Schema::default();
    let mut connection = PgConnection::connect(&scene.url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    schema.complete_in_sqlx(&mut transaction, &completion(&scene.hold)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(scene.fixture.status(scene.hold.task_id()).await, TaskStatus::Running);
    let mut transaction = connection.begin().await.unwrap();
    schema.complete_in_sqlx(&mut transaction, &completion(&scene.hold)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(scene.fixture.status(scene.hold.task_id()).await, TaskStatus::Stopped);
    let mut transaction = connection.begin().await.unwrap();
    let again = schema.complete_in_sqlx(&mut transaction, &completion(&scene.hold)).await;
    assert!(matches!(again, Err(StoreError::AttemptOver(_))), "{again:?}");
}
