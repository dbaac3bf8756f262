//! Completion in a transaction of the application: the effects of a task and its end
//! commit together, or neither does.

use std::pin::Pin;
use std::time::{Duration, Instant};

use task_engine_core::attempt::AttemptRecord;
use task_engine_core::completion::{Completion, SettleOutcome};
use task_engine_core::json::Json;
use task_engine_core::recovery::Reclaim;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_core::unique::{Creation, Unique};
use task_engine_store::contract::CancelReport;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{
    Fixture, TestAttempt, TestEngine, WORK, new_instance, new_task, with_classes,
};

/// A transaction on the application's own connection.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A transaction of the application's own, in the database of the store.
pub trait TestTransaction {
    /// The effect of the task: inserts a row into a table of the application.
    fn effect(&mut self, task: TaskId) -> Local<'_, ()>;
    /// Completes the task.
    fn complete<'a>(&'a mut self, completion: &'a Completion) -> Local<'a, Result<(), StoreError>>;
    /// Commits, regardless of earlier errors.
    fn commit(self: Box<Self>) -> Local<'static, ()>;
    /// Rolls back.
    fn rollback(self: Box<Self>) -> Local<'static, ()>;
}

/// The completion of an attempt by its holder.
#[must_use]
pub fn completion(hold: &TestAttempt) -> Completion {
    Completion {
        id: hold.id(),
        claim_id: hold.claim_id,
        worker: Some(3),
        began: Instant::now(),
        result: Json::parse(r#"{"done": true}"#).expect("JSON"),
        schema: "task_engine".to_owned(),
    }
}

async fn one(db: &dyn TestDatabase) -> (Fixture, TestEngine, TestAttempt) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(1).await;
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    (fixture, engine, hold)
}

/// The task's work, up to but without the commit.
async fn work(
    db: &dyn TestDatabase,
    hold: &TestAttempt,
) -> (Box<dyn TestTransaction>, Result<(), StoreError>) {
    let mut transaction = db.begin().await;
    transaction.effect(hold.task_id()).await;
    let completed = transaction.complete(&completion(hold)).await;
    (transaction, completed)
}

async fn settle(fixture: &Fixture, ending: AttemptRecord) -> SettleOutcome {
    fixture.store.settle(&[ending]).await.expect("settle")[0]
}

fn assert_over(completed: &Result<(), StoreError>, hold: &TestAttempt) {
    assert!(
        matches!(completed, Err(StoreError::AttemptOver(id)) if *id == hold.id()),
        "{completed:?}"
    );
}

/// After the commit the task has ended. Its engine learns that, and its own record
/// changes nothing.
pub async fn commit_completes_task(db: &dyn TestDatabase) {
    let (fixture, engine, hold) = one(db).await;
    let id = hold.task_id();
    let before = fixture.now().await;
    let (transaction, completed) = work(db, &hold).await;
    completed.expect("complete");
    assert_eq!(fixture.status(id).await, TaskStatus::Running, "nothing before the commit");
    transaction.commit().await;
    let details = fixture.details(id).await;
    assert_eq!(details.row.status, TaskStatus::Stopped);
    let [execution] = &details.executions[..] else { panic!("{details:?}") };
    assert_eq!(execution.status, ExecutionStatus::Success);
    assert_eq!(execution.result.as_ref().map(Json::as_str), Some(r#"{"done": true}"#));
    assert_eq!(execution.instance.as_deref(), Some("a"));
    assert_eq!(execution.worker, Some(3));
    assert!(execution.stopped_at.expect("an end") >= before - Duration::from_millis(5));
    assert_eq!(db.effects().await, [id]);
    assert_eq!(engine.held().await, []);
    // The engine does not know yet, whatever the handler has returned.
    for _ in 0..2 {
        assert_eq!(settle(&fixture, hold.fails()).await, SettleOutcome::Completed);
    }
    engine.finish(hold.claim_id).await;
    assert_eq!(engine.heartbeat().await.claims, []);
    assert_eq!(fixture.status(id).await, TaskStatus::Stopped);
    assert!(fixture.details(id).await.late_results.is_empty());
}

/// Without a commit there is no effect, and the attempt ends as its engine records it.
pub async fn rollback_completes_nothing(db: &dyn TestDatabase) {
    let (fixture, engine, hold) = one(db).await;
    let id = hold.task_id();
    let (transaction, completed) = work(db, &hold).await;
    completed.expect("complete");
    transaction.rollback().await;
    assert_eq!(fixture.status(id).await, TaskStatus::Running);
    // A handler may try again by itself.
    let (transaction, completed) = work(db, &hold).await;
    completed.expect("complete again");
    transaction.rollback().await;
    // Its answer may be lost.
    for _ in 0..2 {
        let ending = hold.fails_and_retries(Duration::from_secs(60));
        assert_eq!(settle(&fixture, ending).await, SettleOutcome::Recorded);
    }
    engine.finish(hold.claim_id).await;
    let details = fixture.details(id).await;
    assert_eq!((details.row.status, details.executions.len()), (TaskStatus::Waiting, 1));
    assert!(details.late_results.is_empty());
    assert_eq!(db.effects().await, []);
    // From here on it is too late.
    let (transaction, completed) = work(db, &hold).await;
    assert_over(&completed, &hold);
    transaction.commit().await;
    assert_eq!(db.effects().await, [], "an error is not committed");
}

/// An engine dies right after the commit: the task is not run again.
pub async fn completion_survives_engine_loss(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(2).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(2).await;
    let (transaction, completed) = work(db, &holds[0]).await;
    completed.expect("complete");
    transaction.commit().await;
    assert!(fixture.declare_lost(engine.id).await);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken.iter().map(|one| one.id).collect::<Vec<_>>(), [holds[1].id()]);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Stopped);
    assert_eq!(fixture.status(ids[1]).await, TaskStatus::Waiting);
    assert_eq!(fixture.instances(Some("a")).await[0].held, 0);
    // The lost engine settles the attempt.
    assert_eq!(settle(&fixture, holds[0].fails()).await, SettleOutcome::Completed);
    assert_eq!(settle(&fixture, holds[1].fails()).await, SettleOutcome::Late);
    assert_eq!(db.effects().await, [ids[0]]);
}

/// An attempt that was reclaimed cannot complete its task, whether the task waits, runs
/// again, has ended or was removed. Its transaction cannot be committed.
pub async fn reclaimed_attempt_cannot_complete(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let rules = [(WORK, RetryRule::every(Duration::ZERO, 1))];
    let id = fixture.create_work(1).await[0];
    let mut zombie = fixture.register(with_classes(new_instance("a"), &rules)).await;
    let first = zombie.claim_one().await;
    fixture.declare_lost(zombie.id).await;
    assert_eq!(fixture.recover(zombie.id).await.len(), 1);
    let zombie_fails = async |when: &str| {
        let (transaction, completed) = work(db, &first).await;
        assert_over(&completed, &first);
        transaction.commit().await;
        assert_eq!(db.effects().await, [], "{when}");
    };
    zombie_fails("it waits").await;
    let mut heir = fixture.register(with_classes(new_instance("b"), &rules)).await;
    let second = heir.claim_one().await;
    assert_eq!((second.task_id(), second.id().attempt), (id, 2));
    zombie_fails("it runs again").await;
    fixture.declare_lost(heir.id).await;
    fixture.recover(heir.id).await;
    assert_eq!(fixture.status(id).await, TaskStatus::Failed);
    zombie_fails("it has ended").await;
    fixture.store.delete(&[id]).await.expect("remove");
    zombie_fails("it is gone").await;
    // The engine settles the attempt, and nothing is recorded.
    settle(&fixture, first.fails()).await;
    assert_eq!(fixture.store.task(id).await.expect("task").map(|task| task.row.status), None);
}

/// An open transaction delays only its own task, and only until it ends.
pub async fn recovery_skips_open_transactions(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for (name, commits) in [("a", true), ("b", false)] {
        let ids = fixture.create_work(3).await;
        let mut engine = fixture.engine(name).await;
        let holds = engine.claim(3).await;
        fixture.declare_lost(engine.id).await;
        let (transaction, completed) = work(db, &holds[1]).await;
        completed.expect("complete");
        let begun = Instant::now();
        match fixture.store.reclaim(Reclaim::Lost(engine.id)).await {
            Ok(taken) => {
                let mut taken: Vec<_> = taken.iter().map(|one| one.id).collect();
                taken.sort_unstable();
                assert_eq!(taken, [holds[0].id(), holds[2].id()], "the others do not wait");
                assert_eq!(fixture.status(ids[1]).await, TaskStatus::Running);
                assert_eq!(engine.held().await, [holds[1].id()]);
            }
            // A store with one writer tries again later.
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        if commits {
            transaction.commit().await;
        } else {
            transaction.rollback().await;
        }
        fixture.recover(engine.id).await;
        let ended = if commits { TaskStatus::Stopped } else { TaskStatus::Waiting };
        assert_eq!(fixture.status(ids[1]).await, ended);
        assert_eq!(fixture.status(ids[0]).await, TaskStatus::Waiting);
        assert_eq!(fixture.status(ids[2]).await, TaskStatus::Waiting);
        assert_eq!(fixture.instances(Some(name)).await[0].held, 0);
        assert_eq!(fixture.recover(engine.id).await, []);
        assert_eq!(db.effects().await.contains(&ids[1]), commits);
    }
}

/// While the transaction is open, the engine gets no outcome and tries again.
pub async fn open_transaction_is_not_settled(db: &dyn TestDatabase) {
    for commits in [true, false] {
        let fixture = Fixture::open(db).await;
        fixture.create_work(1).await;
        let mut engine = fixture.engine(if commits { "a" } else { "b" }).await;
        let hold = engine.claim_one().await;
        let (transaction, completed) = work(db, &hold).await;
        completed.expect("complete");
        let begun = Instant::now();
        match fixture.store.settle(&[hold.fails()]).await {
            Ok(settled) => assert_eq!(settled, [SettleOutcome::Open]),
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let wanted = if commits {
            transaction.commit().await;
            SettleOutcome::Completed
        } else {
            transaction.rollback().await;
            SettleOutcome::Recorded
        };
        assert_eq!(settle(&fixture, hold.fails()).await, wanted);
    }
}

/// A completion wins over a cancel request.
pub async fn completion_wins_over_cancel_request(db: &dyn TestDatabase) {
    let (fixture, engine, hold) = one(db).await;
    let id = hold.task_id();
    let reports = fixture.store.cancel(&[id]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Requested]);
    let (transaction, completed) = work(db, &hold).await;
    completed.expect("complete");
    transaction.commit().await;
    assert_eq!(settle(&fixture, hold.is_cancelled()).await, SettleOutcome::Completed);
    assert_eq!(fixture.status(id).await, TaskStatus::Stopped);
    let pulse = engine.heartbeat().await;
    assert_eq!((pulse.cancel, pulse.lingering), (vec![], vec![]));
    let reports = fixture.store.cancel(&[id]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Ended(TaskStatus::Stopped)]);
}

/// A key is free for the next task from the commit on, and not before.
pub async fn completion_frees_unique_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let task = new_task(WORK).unique(Unique::by("k")).expect("a key");
    let create = async || fixture.store.create_each(std::slice::from_ref(&task)).await;
    let first = create().await.expect("create")[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(create().await.expect("create")[0], Creation::Kept(first.id()));
    let (transaction, completed) = work(db, &hold).await;
    completed.expect("complete");
    transaction.commit().await;
    let next = create().await.expect("create")[0];
    assert!(matches!(next, Creation::Created(id) if id != first.id()), "{next:?}");
    engine.finish(hold.claim_id).await;
    let gone = fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await.expect("prune");
    assert_eq!(gone, 1);
}
