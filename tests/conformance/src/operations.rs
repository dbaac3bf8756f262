//! What operators do: cancel, retry, and retention.

use std::time::Duration;

use task_engine_core::attempt::TaskError;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;

use crate::Database;
use crate::bench::{Bench, Hold, WORK, new_task};
use crate::waiting::eventually;

const HOUR: Duration = Duration::from_secs(3600);
const NOBODY: TaskId = TaskId(987_654_321);

/// A waiting task is cancelled at once, due or not, and nobody gets it any more.
pub async fn cancelling_what_waits(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let due = bench.create_work(1).await[0];
    let later = bench.create(new_task(WORK).after(HOUR)).await;
    let reports = cancel(&bench, &[later, due]).await;
    assert_eq!(reports, [CancelReport::Cancelled; 2]);
    let mut engine = bench.engine("a").await;
    assert_eq!(engine.claim_all(10).await.len(), 0);
    for id in [due, later] {
        let details = bench.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Cancelled);
        assert_eq!(details.row.attempts, 0, "nobody has claimed it");
        let [execution] = &details.executions[..] else {
            panic!("its end is on record: {:?}", details.executions)
        };
        assert_eq!(execution.status, ExecutionStatus::Cancelled, "not a failed attempt");
        assert_eq!((execution.started_at, execution.worker), (None, None));
        assert!(execution.stopped_at.is_some());
        assert_eq!(execution.ends_task, Some(TaskStatus::Cancelled));
        let error = execution.error.as_ref().expect("a reason");
        assert_eq!(error.exception, TaskError::CANCELLED);
    }
}

/// A running task is cancelled by request: its engine is told, and the task
/// runs until its engine says how it ended.
pub async fn cancelling_what_runs(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let ids = bench.create_work(3).await;
    let mut engine = bench.engine("a").await;
    let other = bench.engine("b").await;
    let holds = engine.claim(3).await;
    assert_eq!(cancel(&bench, &ids[..2]).await, [CancelReport::Requested; 2]);
    // A wish that is uttered twice is one wish.
    assert_eq!(cancel(&bench, &ids[..1]).await, [CancelReport::Requested]);
    let mut asked = engine.heartbeat().await.cancel;
    asked.sort();
    assert_eq!(asked, [holds[0].id(), holds[1].id()]);
    assert_eq!(other.heartbeat().await.cancel, [], "not its business");
    for (id, requested) in ids.iter().zip([true, true, false]) {
        let details = bench.details(*id).await;
        assert_eq!(details.row.status, TaskStatus::Running);
        assert_eq!(details.cancel_requested, requested);
    }

    // One is cancelled, the other one was faster.
    let endings = [holds[0].is_cancelled(), holds[1].succeeds()];
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(bench.status(ids[0]).await, TaskStatus::Cancelled);
    assert_eq!(bench.status(ids[1]).await, TaskStatus::Stopped);
    assert_eq!(engine.heartbeat().await.cancel, []);
    assert!(!bench.details(ids[1]).await.cancel_requested);
}

/// A wish that came too late for its attempt, which is to be retried, is for
/// the task: it does not run again.
pub async fn a_wish_that_meets_a_retry_cancels_the_task(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let mut engine = bench.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(cancel(&bench, &[id]).await, [CancelReport::Requested]);
    let ending = hold.fails_and_waits(Duration::ZERO);
    assert_eq!(engine.record(&[ending]).await, []);
    assert_eq!(bench.status(id).await, TaskStatus::Cancelled);
    assert!(engine.claim_all(10).await.is_empty());
    assert_eq!(engine.heartbeat().await.cancel, []);
    let details = bench.details(id).await;
    assert_eq!((details.executions.len(), details.cancel_requested), (1, false));
}

/// A wish that was granted is over: it does not undo an operator's retry.
pub async fn a_granted_wish_does_not_undo_a_retry(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let mut engine = bench.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(cancel(&bench, &[id]).await, [CancelReport::Requested]);
    assert_eq!(engine.record(&[hold.is_cancelled()]).await, []);
    assert_eq!(retry(&bench, &[id]).await, [RetryReport::Waiting]);
    for _ in 0..2 {
        assert_eq!(engine.heartbeat().await.cancel, []);
        assert_eq!(bench.status(id).await, TaskStatus::Waiting);
    }
    let again = engine.claim_one().await;
    assert_eq!((again.task_id(), again.id().attempt), (id, 2));
    assert_eq!(engine.heartbeat().await.cancel, []);
    assert_eq!(bench.status(id).await, TaskStatus::Running);
}

/// What has ended, or never was, cannot be cancelled, and the answer says so;
/// there is one answer for each id, in their order.
pub async fn cancelling_what_has_ended_or_never_was(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let [stopped, failed, cancelled] = ended_tasks(&bench).await;
    let waiting = bench.create_work(1).await[0];
    let before = bench.details(failed).await;
    let ids = [failed, NOBODY, waiting, stopped, cancelled];
    assert_eq!(
        cancel(&bench, &ids).await,
        [
            CancelReport::Ended(TaskStatus::Failed),
            CancelReport::NotFound,
            CancelReport::Cancelled,
            CancelReport::Ended(TaskStatus::Stopped),
            CancelReport::Ended(TaskStatus::Cancelled),
        ]
    );
    assert_eq!(bench.details(failed).await, before, "history stays");
    assert_eq!(cancel(&bench, &[]).await, []);
}

/// The same id twice in one call is answered twice and done once.
pub async fn the_same_task_twice_in_one_call(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let reports = cancel(&bench, &[id, NOBODY, id]).await;
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[1], CancelReport::NotFound);
    assert!(reports.contains(&CancelReport::Cancelled), "{reports:?}");
    assert_eq!(bench.details(id).await.executions.len(), 1);
    let reports = retry(&bench, &[id, NOBODY, id]).await;
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[1], RetryReport::NotFound);
    assert!(reports.contains(&RetryReport::Waiting), "{reports:?}");
    let mut engine = bench.engine("a").await;
    assert_eq!(engine.claim_all(10).await.len(), 1);
}

/// What failed or was cancelled waits again, due at once, as its next attempt,
/// with its history.
pub async fn retrying_what_failed_or_was_cancelled(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let [_, failed, cancelled] = ended_tasks(&bench).await;
    let never_ran = bench.create_work(1).await[0];
    assert_eq!(cancel(&bench, &[never_ran]).await, [CancelReport::Cancelled]);
    let ids = [failed, cancelled, never_ran];
    assert_eq!(retry(&bench, &ids).await, [RetryReport::Waiting; 3]);
    for id in ids {
        let details = bench.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Waiting);
        assert_eq!(details.executions.len(), 1);
    }
    let mut engine = bench.engine("b").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 3);
    assert!(holds.iter().all(|hold| hold.id().attempt == 2));
    let endings: Vec<_> = holds.iter().map(Hold::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    for id in ids {
        let details = bench.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Stopped);
        assert_eq!(details.row.error, None, "the last attempt succeeded");
        assert_eq!(details.executions.len(), 2);
    }
}

/// A retry that an operator asked for starts over: all retries are open again.
pub async fn an_operators_retry_starts_over(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let mut engine = bench.engine("a").await;
    for _ in 0..3 {
        let hold = engine.claim_one().await;
        let ending = hold.fails_and_waits(Duration::ZERO);
        assert_eq!(engine.record(&[ending]).await, []);
    }
    let hold = engine.claim_one().await;
    assert_eq!(hold.task.retry_number, 3);
    assert_eq!(engine.record(&[hold.fails()]).await, []);
    assert_eq!(retry(&bench, &[id]).await, [RetryReport::Waiting]);
    let hold = engine.claim_one().await;
    assert_eq!((hold.id().attempt, hold.task.retry_number), (5, 0));
}

/// What waits for a later time is due at once; what is due stays as it is.
pub async fn retrying_what_waits(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let scheduled = bench.create(new_task(WORK).after(HOUR)).await;
    let mut engine = bench.engine("a").await;
    let failed_once = bench.create_work(1).await[0];
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_waits(HOUR)]).await, []);
    let due = bench.create_work(1).await[0];
    let before = bench.details(due).await;
    let ids = [scheduled, due, failed_once];
    assert_eq!(
        retry(&bench, &ids).await,
        [RetryReport::Advanced, RetryReport::AlreadyDue, RetryReport::Advanced]
    );
    assert_eq!(bench.details(due).await, before);
    assert_eq!(retry(&bench, &ids).await, [RetryReport::AlreadyDue; 3]);
    let mut claimed: Vec<_> = engine
        .claim_all(10)
        .await
        .iter()
        .map(|hold| (hold.task_id(), hold.id().attempt, hold.task.retry_number))
        .collect();
    claimed.sort();
    let mut expected = [(scheduled, 1, 0), (due, 1, 0), (failed_once, 2, 1)];
    expected.sort();
    assert_eq!(claimed, expected);
}

/// What runs, did its work, or never was is left alone.
pub async fn retrying_what_cannot_be(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let [stopped, ..] = ended_tasks(&bench).await;
    let running = bench.create_work(1).await[0];
    let mut engine = bench.engine("b").await;
    engine.claim_one().await;
    let reports = retry(&bench, &[NOBODY, running, stopped]).await;
    assert_eq!(reports, [RetryReport::NotFound, RetryReport::Running, RetryReport::Stopped]);
    // Neither is what was asked to be cancelled, until it has ended.
    assert_eq!(cancel(&bench, &[running]).await, [CancelReport::Requested]);
    assert_eq!(retry(&bench, &[running]).await, [RetryReport::Running]);
    assert_eq!(engine.claim_all(10).await.len(), 0);
    assert_eq!(bench.status(running).await, TaskStatus::Running);
    assert_eq!(bench.status(stopped).await, TaskStatus::Stopped);
    assert_eq!(retry(&bench, &[]).await, []);
}

/// Retention removes what ended in this status, long enough ago, and nothing
/// else.
pub async fn retention_removes_what_it_was_asked_to(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let [stopped, failed, cancelled] = ended_tasks(&bench).await;
    let waiting = bench.create(new_task(WORK).after(HOUR)).await;
    let running = bench.create_work(1).await[0];
    let mut engine = bench.engine("b").await;
    engine.claim_one().await;
    // It failed once, but that is not how it ended.
    let failed_before = bench.create_work(1).await[0];
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails()]).await, []);
    engine.finish(hold.claim_id).await;
    assert_eq!(retry(&bench, &[failed_before]).await, [RetryReport::Waiting]);

    for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
        assert_eq!(prune(&bench, status, HOUR, 100).await, 0, "{status}: young");
    }
    for status in [TaskStatus::Waiting, TaskStatus::Running] {
        match bench.store.prune(status, Duration::ZERO, 100).await {
            Ok(removed) => assert_eq!(removed, 0, "{status} tasks have not ended"),
            Err(StoreError::Refused(_)) => {}
            Err(other) => panic!("{status}: {other:?}"),
        }
    }
    assert_eq!(bench.list(None).await.len(), 6);
    let mut left = vec![stopped, failed, cancelled, waiting, running, failed_before];
    for (status, id) in [
        (TaskStatus::Failed, failed),
        (TaskStatus::Stopped, stopped),
        (TaskStatus::Cancelled, cancelled),
    ] {
        assert_eq!(prune(&bench, status, Duration::ZERO, 100).await, 1);
        assert_eq!(bench.store.task(id).await.expect("task"), None);
        left.retain(|one| *one != id);
        for id in &left {
            assert!(bench.store.task(*id).await.expect("task").is_some());
        }
    }
    let hold = engine.claim_one().await;
    assert_eq!((hold.task_id(), hold.id().attempt), (failed_before, 2));
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    engine.finish(hold.claim_id).await;
    let failed = prune(&bench, TaskStatus::Failed, Duration::ZERO, 100).await;
    assert_eq!(failed, 0, "it did its work");
    let stopped = prune(&bench, TaskStatus::Stopped, Duration::ZERO, 100).await;
    assert_eq!(stopped, 1);
}

/// Retention goes by the time of the end, and in steps as large as asked for.
pub async fn retention_goes_by_age_and_in_steps(db: &dyn Database) {
    let bench = Bench::open(db).await;
    bench.create_work(10).await;
    let mut engine = bench.engine("a").await;
    let holds = engine.claim(10).await;
    let endings: Vec<_> = holds.iter().map(Hold::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(holds[0].claim_id).await;
    let old = Duration::from_millis(200);
    let first = eventually("they grow old", async || {
        let removed = prune(&bench, TaskStatus::Stopped, old, 4).await;
        (removed > 0).then_some(removed)
    })
    .await;
    assert_eq!(first, 4);
    assert_eq!(bench.list(None).await.len(), 6);
    bench.create_work(1).await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    engine.finish(hold.claim_id).await;
    let young = prune(&bench, TaskStatus::Stopped, HOUR, 100).await;
    assert_eq!(young, 0);
    let mut removed = 0;
    for _ in 0..3 {
        removed += prune(&bench, TaskStatus::Stopped, Duration::ZERO, 4).await;
    }
    assert_eq!(removed, 7);
    assert_eq!(bench.list(None).await, []);
}

/// Retention may meet a task whose claim is still open, because a sibling runs
/// on. It leaves the task for later, or removes it; but then nobody holds it
/// again, and it comes back by no door.
pub async fn retention_under_an_open_claim(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let ids = bench.create_work(3).await;
    let mut engine = bench.engine("a").await;
    let holds = engine.claim(3).await;
    let endings = [holds[0].succeeds(), holds[1].fails()];
    assert_eq!(engine.record(&endings).await, []);
    let mut left = vec![ids[2]];
    for (id, status) in ids.iter().zip([TaskStatus::Stopped, TaskStatus::Failed]) {
        let removed = prune(&bench, status, Duration::ZERO, 100).await;
        match bench.store.task(*id).await.expect("task") {
            None => assert_eq!(removed, 1, "{status}"),
            Some(details) => {
                assert_eq!((removed, details.row.status), (0, status));
                assert_eq!(details.executions.len(), 1);
                left.push(*id);
            }
        }
    }
    let long = holds[2].id();
    assert_eq!(engine.held().await, [long]);
    assert_eq!(bench.lives(Some("a")).await[0].held, 1);
    let running = bench.list(Some(TaskStatus::Running)).await;
    assert_eq!(running.iter().map(|row| row.id).collect::<Vec<_>>(), [long.task_id]);
    for id in &ids[..2] {
        let report = cancel(&bench, &[*id]).await.remove(0);
        let is_left = matches!(report, CancelReport::Ended(_));
        assert_eq!(is_left, left.contains(id), "{report:?}");
    }
    assert_eq!(bench.store.verify().await.expect("verify"), [""; 0]);

    assert!(bench.lose(engine.id).await);
    let taken = bench.recover(engine.id).await;
    assert_eq!(taken.iter().map(|one| one.id).collect::<Vec<_>>(), [long]);
    // With the claim, whatever kept them is gone.
    for status in [TaskStatus::Stopped, TaskStatus::Failed] {
        prune(&bench, status, Duration::ZERO, 100).await;
    }
    let rows = bench.list(None).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [long.task_id]);
}

async fn cancel(bench: &Bench, ids: &[TaskId]) -> Vec<CancelReport> {
    bench.store.cancel(ids).await.expect("cancel")
}

async fn retry(bench: &Bench, ids: &[TaskId]) -> Vec<RetryReport> {
    bench.store.retry(ids).await.expect("retry")
}

async fn prune(bench: &Bench, status: TaskStatus, age: Duration, limit: u32) -> u64 {
    let pruned = bench.store.prune(status, age, limit).await;
    pruned.expect("prune")
}

/// One task that stopped, one that failed, one that was cancelled as it ran.
async fn ended_tasks(bench: &Bench) -> [TaskId; 3] {
    bench.create_work(3).await;
    let mut engine = bench.engine("ended").await;
    let holds = engine.claim(3).await;
    let endings = [holds[0].succeeds(), holds[1].fails(), holds[2].is_cancelled()];
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(holds[0].claim_id).await;
    [0, 1, 2].map(|n: usize| holds[n].task_id())
}
