//! Durable tasks and transactions of applications. Each case is an order of events between
//! two sessions in which a signal or the end of a child could be lost, or an engine could
//! wait for the application.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine_conformance::durable::{child, json};
use task_engine_conformance::fixture::{Fixture, TestAttempt, TestEngine, WORK};
use task_engine_core::json::Json;
use task_engine_core::step::{
    SignalReport, SignalStatus, SignalTarget, StepContent, SuspendOutcome, Suspension, WaitOutcome,
};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

const DURABLE: &str = include_str!("../sql/engine/durable.sql");
const TASKS: &str = include_str!("../sql/operators/tasks.sql");
const SUSPENDED: SuspendOutcome = SuspendOutcome::Suspended(None);

/// An engine that holds one attempt.
struct Scene {
    url: String,
    fixture: Fixture,
    engine: TestEngine,
    hold: TestAttempt,
}

async fn scene() -> Scene {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let fixture = Fixture { store: Arc::new(store) };
    fixture.create_work(1).await;
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    connect(&url).await.batch_execute("CREATE TABLE effects (task_id bigint)").await.unwrap();
    Scene { url, fixture, engine, hold }
}

/// As SQL, the way an application without this library sends it.
async fn signal(client: &Client, id: TaskId, name: &str) -> String {
    let sql = "SELECT task_engine.signal($1, $2, '7')";
    client.query_one(sql, &[&id.0, &name]).await.unwrap().get(0)
}

impl Scene {
    fn id(&self) -> TaskId {
        self.hold.task_id()
    }

    async fn begin(&self, begin: &str) -> Client {
        let client = connect(&self.url).await;
        client.batch_execute(begin).await.unwrap();
        client
    }

    /// A transaction that has sent the signal `paid`, and has not ended.
    async fn signalling(&self) -> Client {
        let client = self.begin("BEGIN").await;
        assert_eq!(signal(&client, self.id(), "paid").await, "kept");
        client
    }

    /// A child that runs, and its parent that waits for it.
    async fn suspend_parent(&mut self) -> TestAttempt {
        let ids = self.fixture.call(&self.hold.call(WORK, 1, vec![child()])).await;
        let child = self.engine.claim_one().await;
        assert_eq!([child.task_id()], ids[..]);
        let outcome = self.fixture.suspend(self.hold.waits_for_children()).await;
        assert_eq!(outcome, SuspendOutcome::Suspended(Some(ids[0])));
        child
    }

    async fn continues(&mut self) {
        self.engine.continues(&self.hold).await;
        assert!(!self.engine.sees_suspended_tasks().await);
        self.assert_sound().await;
    }

    async fn assert_sound(&self) {
        assert_eq!(self.fixture.store.verify().await.unwrap(), []);
    }

    async fn effects(&self) -> usize {
        connect(&self.url).await.query("SELECT FROM effects", &[]).await.unwrap().len()
    }

    /// Waits until a session of this database waits for a lock.
    async fn until_session_waits(&self) {
        let client = connect(&self.url).await;
        let waits = "SELECT FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let begun = Instant::now();
        while client.query(waits, &[]).await.unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(8), "no session waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The attempt stays running until the sender's transaction ends; then it is suspended with
/// the signal, or without.
#[tokio::test]
async fn suspension_is_open_during_signal() {
    for commits in [true, false] {
        let mut scene = scene().await;
        let other = scene.fixture.create_work(1).await[0];
        let other_hold = scene.engine.claim_one().await;
        let sender = scene.signalling().await;
        let begun = Instant::now();
        let both = [scene.hold.waits_for(&["paid"]), other_hold.waits_for(&["paid"])];
        let outcomes = scene.fixture.store.suspend(&both).await.unwrap();
        assert_eq!(outcomes, [SuspendOutcome::Open, SUSPENDED], "only its own task");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(scene.fixture.status(scene.id()).await, TaskStatus::Running);
        assert_eq!(scene.fixture.status(other).await, TaskStatus::Waiting);
        assert_eq!(scene.engine.held().await, [scene.hold.id()]);

        sender.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        assert_eq!(scene.fixture.suspend(scene.hold.waits_for(&["paid"])).await, SUSPENDED);
        if commits {
            scene.engine.continues(&scene.hold).await;
            assert_eq!(scene.fixture.signals(scene.id()).await[0].payload, json("7"));
        } else {
            scene.engine.has_no_work().await;
            assert_eq!(scene.fixture.signals(scene.id()).await, []);
        }
        scene.assert_sound().await;
    }
}

/// A wait is not timed out while its signal is being sent.
#[tokio::test]
async fn timeout_is_open_during_signal() {
    for commits in [true, false] {
        let scene = scene().await;
        let sender = scene.signalling().await;
        assert_eq!(scene.fixture.time_out(&scene.hold, "paid").await, WaitOutcome::Open);
        sender.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        let decided = scene.fixture.time_out(&scene.hold, "paid").await;
        let signals = scene.fixture.signals(scene.id()).await;
        assert_eq!(decided, WaitOutcome::Decided(signals[0].clone()));
        assert_eq!(signals[0].timed_out, !commits);
        let later = scene.fixture.signal(scene.id(), "paid", "1").await;
        let expected = if commits { SignalStatus::Duplicate } else { SignalStatus::TimedOut };
        assert_eq!(later, expected);
        scene.assert_sound().await;
    }
}

/// The second of two transactions that send the same signal waits for the first.
#[tokio::test]
async fn second_signal_waits_for_first() {
    for commits in [true, false] {
        let mut scene = scene().await;
        scene.fixture.suspend(scene.hold.waits_for(&["paid"])).await;
        let first = scene.begin("BEGIN").await;
        assert_eq!(signal(&first, scene.id(), "paid").await, "delivered");
        scene.engine.has_no_work().await;
        let second = connect(&scene.url).await;
        let id = scene.id();
        let second = tokio::spawn(async move { signal(&second, id, "paid").await });
        scene.until_session_waits().await;
        first.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        let expected = if commits { "duplicate" } else { "delivered" };
        assert_eq!(second.await.unwrap(), expected);
        assert_eq!(scene.fixture.signals(id).await.len(), 1);
        scene.continues().await;
    }
}

/// Nothing but the suspension of the task and other signals to it waits for the sender.
#[tokio::test]
async fn open_signal_blocks_no_engine() {
    let mut scene = scene().await;
    let sender = scene.signalling().await;
    let begun = Instant::now();
    scene.fixture.must_record(scene.hold.result("pay", 1)).await;
    scene.fixture.must_record(scene.hold.step("paid", 2, StepContent::Wait(Duration::ZERO))).await;
    assert_eq!(scene.engine.record(&[scene.hold.fails_and_retries(Duration::ZERO)]).await, []);
    let again = scene.engine.continues(&scene.hold).await;
    assert!(scene.fixture.declare_lost(scene.engine.id).await);
    assert_eq!(scene.fixture.recover(scene.engine.id).await.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    sender.batch_execute("COMMIT").await.unwrap();
    assert_eq!(scene.fixture.signals(again.task_id()).await.len(), 1);
    scene.assert_sound().await;
}

/// A transaction with one snapshot, from before the suspension, cannot see that the task
/// waits. The signal is stored, and the next heartbeat finds it.
#[tokio::test]
async fn signal_with_old_snapshot_is_found() {
    let mut scene = scene().await;
    let sender = scene.begin("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    sender.query("SELECT FROM effects", &[]).await.unwrap();
    scene.fixture.suspend(scene.hold.waits_for(&["paid"])).await;
    assert_eq!(signal(&sender, scene.id(), "paid").await, "kept");
    sender.batch_execute("COMMIT").await.unwrap();
    scene.engine.has_no_work().await;
    scene.fixture.resume_missed().await;
    scene.continues().await;
}

/// Two engines tell about the end of the last child: the second leaves the parent to the
/// first. If that one fails, the next heartbeat resumes the parent.
#[tokio::test]
async fn second_resume_leaves_parent_to_first() {
    for commits in [true, false] {
        let mut scene = scene().await;
        let child = scene.suspend_parent().await;
        scene.engine.record(&[child.succeeds()]).await;
        let first = scene.begin("BEGIN").await;
        let parents = vec![scene.id().0];
        first.query(statement(DURABLE, "lock_suspended"), &[&parents]).await.unwrap();
        let row = first.query_one(statement(DURABLE, "resume"), &[&parents]).await.unwrap();
        assert_eq!(row.get::<_, i64>("resumed"), 1);
        let begun = Instant::now();
        assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 0);
        scene.fixture.resume_missed().await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        first.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        if !commits {
            scene.engine.has_no_work().await;
            scene.fixture.resume_missed().await;
        }
        scene.continues().await;
    }
}

/// An engine looks at a parent while its last child ends: the engine of the child leaves the
/// parent to it, so it has to look again after its commit.
#[tokio::test]
async fn resume_looks_again_after_commit() {
    let mut scene = scene().await;
    let child = scene.suspend_parent().await;
    let first = scene.begin("BEGIN").await;
    let parents = vec![scene.id().0];
    first.query(statement(DURABLE, "lock_suspended"), &[&parents]).await.unwrap();
    let row = first.query_one(statement(DURABLE, "resume"), &[&parents]).await.unwrap();
    assert_eq!(row.get::<_, i64>("resumed"), 0);
    scene.engine.record(&[child.succeeds()]).await;
    assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 0);
    first.batch_execute("COMMIT").await.unwrap();
    let again: Vec<i64> = row.get("watching");
    assert_eq!(again, [child.task_id().0]);
    assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 1);
    scene.continues().await;
}

/// The last child ends while a signal wakes its parent in a transaction that rolls back: the
/// next heartbeat resumes the parent.
#[tokio::test]
async fn parent_is_resumed_after_rolled_back_signal() {
    let mut scene = scene().await;
    let ids = scene.fixture.call(&scene.hold.call(WORK, 1, vec![child()])).await;
    let child = scene.engine.claim_one().await;
    let both = Suspension { children_from: Some(ids[0]), ..scene.hold.waits_for(&["stop"]) };
    scene.fixture.suspend(both).await;
    let sender = scene.begin("BEGIN").await;
    assert_eq!(signal(&sender, scene.id(), "stop").await, "delivered");
    scene.engine.record(&[child.succeeds()]).await;
    assert_eq!(scene.fixture.resume_parents(&ids).await, 0);
    sender.batch_execute("ROLLBACK").await.unwrap();
    scene.engine.has_no_work().await;
    scene.fixture.resume_missed().await;
    scene.continues().await;
}

/// An edit replaces the waiting row while the last child ends. The end does not wait for
/// it, and the next heartbeat resumes the parent.
#[tokio::test]
async fn parent_is_resumed_after_edit() {
    for commits in [true, false] {
        let mut scene = scene().await;
        let child = scene.suspend_parent().await;
        let editor = scene.begin("BEGIN").await;
        let ids = vec![scene.id().0];
        editor.query(statement(TASKS, "lock_tasks"), &[&ids]).await.unwrap();
        let edit = format!("PREPARE edit AS {}", statement(TASKS, "edit"));
        editor.batch_execute(&edit).await.unwrap();
        let edit = format!("EXECUTE edit({}, NULL, NULL, NULL, 7, NULL)", scene.id());
        editor.batch_execute(&edit).await.unwrap();
        scene.engine.record(&[child.succeeds()]).await;
        let begun = Instant::now();
        assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 0);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        editor.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        scene.engine.has_no_work().await;
        scene.fixture.resume_missed().await;
        let again = scene.engine.continues(&scene.hold).await;
        assert_eq!(again.task.priority, if commits { 7 } else { 0 });
        assert!(!scene.engine.sees_suspended_tasks().await);
        scene.assert_sound().await;
    }
}

/// A parent that is being cancelled while its last child ends stays cancelled.
#[tokio::test]
async fn cancelled_parent_is_not_resumed() {
    let mut scene = scene().await;
    let child = scene.suspend_parent().await;
    let operator = scene.begin("BEGIN").await;
    let cancel = format!("PREPARE cancel AS {}", statement(TASKS, "cancel_waiting"));
    operator.batch_execute(&cancel).await.unwrap();
    let cancel = format!("EXECUTE cancel('{{{}}}', '{{}}')", scene.id());
    operator.batch_execute(&cancel).await.unwrap();
    scene.engine.record(&[child.succeeds()]).await;
    assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 0);
    operator.batch_execute("COMMIT").await.unwrap();
    scene.fixture.resume_missed().await;
    scene.engine.has_no_work().await;
    assert_eq!(scene.fixture.status(scene.id()).await, TaskStatus::Cancelled);
    assert!(!scene.engine.sees_suspended_tasks().await);
    scene.assert_sound().await;
}

/// The end of a child that is not committed yet does not resume its parent.
#[tokio::test]
async fn uncommitted_end_resumes_nothing() {
    let mut scene = scene().await;
    let child = scene.suspend_parent().await;
    let application = scene.begin("BEGIN").await;
    let completion = task_engine_conformance::completions::completion(&child);
    Schema::default().complete_in(&application, &completion).await.unwrap();
    assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 0);
    scene.fixture.resume_missed().await;
    scene.engine.has_no_work().await;
    application.batch_execute("COMMIT").await.unwrap();
    assert_eq!(scene.fixture.resume_parents(&[child.task_id()]).await, 1);
    scene.continues().await;
}

/// SQL has the same rules about names and keys as the library.
#[tokio::test]
async fn sql_signal_follows_contract() {
    let scene = scene().await;
    let client = connect(&scene.url).await;
    let long = "n".repeat(201);
    for name in ["", "#2", "a#1", "a#0", "a#x", "a#2#3", "a\nb", &long] {
        let sql = "SELECT task_engine.signal($1, $2)";
        let error = client.query_one(sql, &[&scene.id().0, &name]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{name:?}");
        assert!(error.message().starts_with("invalid name of a signal: "), "{error}");
    }
    assert_eq!(signal(&client, scene.id(), "a#2").await, "kept");
    assert_eq!(signal(&client, TaskId(9_000_000), "a").await, "not_found");
    let sql = "SELECT task_engine.create_task('mail', unique_key => 'k')";
    let mail: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    for (key, expected) in [("k", "kept"), ("k", "duplicate"), ("other", "not_found")] {
        let sql = "SELECT task_id, status FROM task_engine.signal_unique('mail', $1, 'sent', '1')";
        let answer = client.query_one(sql, &[&key]).await.unwrap();
        assert_eq!(answer.get::<_, String>("status"), expected);
        let found = (key == "k").then_some(mail);
        assert_eq!(answer.get::<_, Option<i64>>("task_id"), found);
    }
    assert_eq!(scene.fixture.signals(TaskId(mail)).await.len(), 1);
    scene.assert_sound().await;
}

/// The library sends in the application's transaction.
#[tokio::test]
async fn signal_commits_with_application() {
    let mut scene = scene().await;
    scene.fixture.suspend(scene.hold.waits_for(&["paid"])).await;
    let target = SignalTarget::Id(scene.id());
    let delivered = SignalReport { task_id: Some(scene.id()), status: SignalStatus::Delivered };
    for end in ["ROLLBACK", "COMMIT"] {
        scene.engine.has_no_work().await;
        let client = scene.begin("BEGIN").await;
        let sent = Schema::default().signal_in(&client, &target, "paid", &Json::null()).await;
        assert_eq!(sent.unwrap(), delivered);
        client.batch_execute(end).await.unwrap();
    }
    scene.continues().await;
}

/// A step commits with the effects of its transaction.
#[tokio::test]
async fn step_commits_with_application() {
    let scene = scene().await;
    let schema = Schema::default();
    let step = scene.hold.result("pay", 1);
    let work = async |end: &str| {
        let client = scene.begin("BEGIN").await;
        client.execute("INSERT INTO effects VALUES (1)", &[]).await.unwrap();
        let recorded = schema.record_step_in(&client, &step).await;
        client.batch_execute(end).await.unwrap();
        recorded
    };
    work("ROLLBACK").await.unwrap();
    assert_eq!(scene.fixture.step_names(scene.id()).await.len(), scene.effects().await);
    work("COMMIT").await.unwrap();
    assert_eq!(scene.fixture.step_names(scene.id()).await, ["pay"]);
    assert_eq!(scene.effects().await, 1);

    let again = work("COMMIT").await;
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
    assert_eq!(scene.effects().await, 1, "nothing of the second transaction");
}

/// A transaction whose attempt was reclaimed cannot record a step, at any isolation level.
#[tokio::test]
async fn reclaimed_attempt_cannot_record_step() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let scene = scene().await;
        let client = scene.begin(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        client.execute("INSERT INTO effects VALUES (1)", &[]).await.unwrap();
        assert!(scene.fixture.declare_lost(scene.engine.id).await);
        assert_eq!(scene.fixture.recover(scene.engine.id).await.len(), 1);
        let refused = Schema::default().record_step_in(&client, &scene.hold.result("pay", 1)).await;
        match refused {
            Err(StoreError::AttemptOver(id)) => assert_eq!(id, scene.hold.id()),
            Err(error) if level != "READ COMMITTED" => assert!(error.is_temporary(), "{error}"),
            other => panic!("{level}: {other:?}"),
        }
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(scene.effects().await, 0, "{level}");
        assert_eq!(scene.fixture.steps(scene.id()).await.steps, []);
        scene.assert_sound().await;
    }
}
