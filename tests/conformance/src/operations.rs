//! Operations: cancel, retry, and retention.

use std::time::Duration;

use task_engine_core::attempt::TaskError;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, WORK, new_task};
use crate::waiting::wait_for;

const HOUR: Duration = Duration::from_secs(3600);
const UNKNOWN_TASK: TaskId = TaskId(987_654_321);

/// A waiting task is cancelled at once, due or not, and cannot be claimed any more.
pub async fn cancel_waiting_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let due = fixture.create_work(1).await[0];
    let later = fixture.create(new_task(WORK).after(HOUR)).await;
    let reports = cancel(&fixture, &[later, due]).await;
    assert_eq!(reports, [CancelReport::Cancelled; 2]);
    let mut engine = fixture.engine("a").await;
    assert_eq!(engine.claim_all(10).await.len(), 0);
    for id in [due, later] {
        let details = fixture.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Cancelled);
        assert_eq!(details.row.attempts, 0, "it was never claimed");
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

/// A running task is cancelled by request: its engine gets the request, and the task runs
/// until its engine records the end.
pub async fn cancel_running_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let other = fixture.engine("b").await;
    let holds = engine.claim(3).await;
    assert_eq!(cancel(&fixture, &ids[..2]).await, [CancelReport::Requested; 2]);
    // A repeated cancel request has no effect.
    assert_eq!(cancel(&fixture, &ids[..1]).await, [CancelReport::Requested]);
    let mut asked = engine.heartbeat().await.cancel;
    asked.sort();
    assert_eq!(asked, [holds[0].id(), holds[1].id()]);
    assert_eq!(other.heartbeat().await.cancel, [], "not its business");
    for (id, requested) in ids.iter().zip([true, true, false]) {
        let details = fixture.details(*id).await;
        assert_eq!(details.row.status, TaskStatus::Running);
        assert_eq!(details.cancel_requested, requested);
    }

    // One is cancelled, the other one was faster.
    let endings = [holds[0].is_cancelled(), holds[1].succeeds()];
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Cancelled);
    assert_eq!(fixture.status(ids[1]).await, TaskStatus::Stopped);
    assert_eq!(engine.heartbeat().await.cancel, []);
    assert!(!fixture.details(ids[1]).await.cancel_requested);
}

/// If the attempt fails before it gets the cancel request, the request cancels the task
/// instead of a retry.
pub async fn cancel_request_before_retry_cancels_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(cancel(&fixture, &[id]).await, [CancelReport::Requested]);
    let ending = hold.fails_and_retries(Duration::ZERO);
    assert_eq!(engine.record(&[ending]).await, []);
    assert_eq!(fixture.status(id).await, TaskStatus::Cancelled);
    assert!(engine.claim_all(10).await.is_empty());
    assert_eq!(engine.heartbeat().await.cancel, []);
    let details = fixture.details(id).await;
    assert_eq!((details.executions.len(), details.cancel_requested), (1, false));
}

/// A cancel request is applied once. It does not affect a later retry by an operator.
pub async fn applied_cancel_request_allows_retry(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(cancel(&fixture, &[id]).await, [CancelReport::Requested]);
    assert_eq!(engine.record(&[hold.is_cancelled()]).await, []);
    assert_eq!(retry(&fixture, &[id]).await, [RetryReport::Waiting]);
    for _ in 0..2 {
        assert_eq!(engine.heartbeat().await.cancel, []);
        assert_eq!(fixture.status(id).await, TaskStatus::Waiting);
    }
    let again = engine.claim_one().await;
    assert_eq!((again.task_id(), again.id().attempt), (id, 2));
    assert_eq!(engine.heartbeat().await.cancel, []);
    assert_eq!(fixture.status(id).await, TaskStatus::Running);
}

/// An ended or missing task cannot be cancelled. The report has one outcome for each id,
/// in order.
pub async fn cancel_ended_or_missing_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let [stopped, failed, cancelled] = ended_tasks(&fixture).await;
    let waiting = fixture.create_work(1).await[0];
    let before = fixture.details(failed).await;
    let ids = [failed, UNKNOWN_TASK, waiting, stopped, cancelled];
    assert_eq!(
        cancel(&fixture, &ids).await,
        [
            CancelReport::Ended(TaskStatus::Failed),
            CancelReport::NotFound,
            CancelReport::Cancelled,
            CancelReport::Ended(TaskStatus::Stopped),
            CancelReport::Ended(TaskStatus::Cancelled),
        ]
    );
    assert_eq!(fixture.details(failed).await, before, "history stays");
    assert_eq!(cancel(&fixture, &[]).await, []);
}

/// The same id twice in one call is answered twice and done once.
pub async fn duplicate_id_in_one_call(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let reports = cancel(&fixture, &[id, UNKNOWN_TASK, id]).await;
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[1], CancelReport::NotFound);
    assert!(reports.contains(&CancelReport::Cancelled), "{reports:?}");
    assert_eq!(fixture.details(id).await.executions.len(), 1);
    let reports = retry(&fixture, &[id, UNKNOWN_TASK, id]).await;
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[1], RetryReport::NotFound);
    assert!(reports.contains(&RetryReport::Waiting), "{reports:?}");
    let mut engine = fixture.engine("a").await;
    assert_eq!(engine.claim_all(10).await.len(), 1);
}

/// A failed or cancelled task waits again, due at once, as its next attempt, and keeps
/// its history.
pub async fn retry_failed_or_cancelled_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let [_, failed, cancelled] = ended_tasks(&fixture).await;
    let never_ran = fixture.create_work(1).await[0];
    assert_eq!(cancel(&fixture, &[never_ran]).await, [CancelReport::Cancelled]);
    let ids = [failed, cancelled, never_ran];
    assert_eq!(retry(&fixture, &ids).await, [RetryReport::Waiting; 3]);
    for id in ids {
        let details = fixture.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Waiting);
        assert_eq!(details.executions.len(), 1);
    }
    let mut engine = fixture.engine("b").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 3);
    assert!(holds.iter().all(|hold| hold.id().attempt == 2));
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    for id in ids {
        let details = fixture.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Stopped);
        assert_eq!(details.row.error, None, "the last attempt succeeded");
        assert_eq!(details.executions.len(), 2);
    }
}

/// A task that was cancelled before its time waits for it again; a second retry brings it
/// forward.
pub async fn retry_keeps_time_of_cancelled_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create(new_task(WORK).after(HOUR)).await;
    let time = fixture.details(id).await.row.scheduled_at;
    assert_eq!(cancel(&fixture, &[id]).await, [CancelReport::Cancelled]);
    assert_eq!(retry(&fixture, &[id]).await, [RetryReport::Waiting]);
    assert_eq!(fixture.details(id).await.row.scheduled_at, time);
    assert_eq!(retry(&fixture, &[id]).await, [RetryReport::Advanced]);
    // Once it has run, its first time does not count any more.
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails()]).await, []);
    assert_eq!(retry(&fixture, &[id]).await, [RetryReport::Waiting]);
    assert_eq!(engine.claim_one().await.task_id(), id);
}

/// A retry by an operator resets the retry number.
pub async fn manual_retry_resets_retry_number(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    for _ in 0..3 {
        let hold = engine.claim_one().await;
        let ending = hold.fails_and_retries(Duration::ZERO);
        assert_eq!(engine.record(&[ending]).await, []);
    }
    let hold = engine.claim_one().await;
    assert_eq!(hold.task.retry_number, 3);
    assert_eq!(engine.record(&[hold.fails()]).await, []);
    assert_eq!(retry(&fixture, &[id]).await, [RetryReport::Waiting]);
    let hold = engine.claim_one().await;
    assert_eq!((hold.id().attempt, hold.task.retry_number), (5, 0));
}

/// A task that waits for a later time becomes due at once. A due task is not changed.
pub async fn retry_waiting_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let scheduled = fixture.create(new_task(WORK).after(HOUR)).await;
    let mut engine = fixture.engine("a").await;
    let failed_once = fixture.create_work(1).await[0];
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_retries(HOUR)]).await, []);
    let due = fixture.create_work(1).await[0];
    let before = fixture.details(due).await;
    let ids = [scheduled, due, failed_once];
    assert_eq!(
        retry(&fixture, &ids).await,
        [RetryReport::Advanced, RetryReport::AlreadyDue, RetryReport::Advanced]
    );
    assert_eq!(fixture.details(due).await, before);
    assert_eq!(retry(&fixture, &ids).await, [RetryReport::AlreadyDue; 3]);
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

/// A running, succeeded or missing task is not retried.
pub async fn retry_is_refused_when_impossible(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let [stopped, ..] = ended_tasks(&fixture).await;
    let running = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("b").await;
    engine.claim_one().await;
    let reports = retry(&fixture, &[UNKNOWN_TASK, running, stopped]).await;
    assert_eq!(reports, [RetryReport::NotFound, RetryReport::Running, RetryReport::Stopped]);
    // A task with a cancel request is not retried until it has ended.
    assert_eq!(cancel(&fixture, &[running]).await, [CancelReport::Requested]);
    assert_eq!(retry(&fixture, &[running]).await, [RetryReport::Running]);
    assert_eq!(engine.claim_all(10).await.len(), 0);
    assert_eq!(fixture.status(running).await, TaskStatus::Running);
    assert_eq!(fixture.status(stopped).await, TaskStatus::Stopped);
    assert_eq!(retry(&fixture, &[]).await, []);
}

/// Retention removes only tasks that ended in the given status and long enough ago.
pub async fn retention_removes_selected_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let [stopped, failed, cancelled] = ended_tasks(&fixture).await;
    let waiting = fixture.create(new_task(WORK).after(HOUR)).await;
    let running = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("b").await;
    engine.claim_one().await;
    // It failed once, but that is not how it ended.
    let failed_before = fixture.create_work(1).await[0];
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails()]).await, []);
    engine.finish(hold.claim_id).await;
    assert_eq!(retry(&fixture, &[failed_before]).await, [RetryReport::Waiting]);

    for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
        assert_eq!(prune(&fixture, status, HOUR, 100).await, 0, "{status}: young");
    }
    for status in [TaskStatus::Waiting, TaskStatus::Running] {
        match fixture.store.prune(status, Duration::ZERO, 100).await {
            Ok(removed) => assert_eq!(removed, 0, "{status} tasks have not ended"),
            Err(StoreError::Refused(_)) => {}
            Err(other) => panic!("{status}: {other:?}"),
        }
    }
    assert_eq!(fixture.list(None).await.len(), 6);
    let mut left = vec![stopped, failed, cancelled, waiting, running, failed_before];
    for (status, id) in [
        (TaskStatus::Failed, failed),
        (TaskStatus::Stopped, stopped),
        (TaskStatus::Cancelled, cancelled),
    ] {
        assert_eq!(prune(&fixture, status, Duration::ZERO, 100).await, 1);
        assert_eq!(fixture.store.task(id).await.expect("task"), None);
        left.retain(|one| *one != id);
        for id in &left {
            assert!(fixture.store.task(*id).await.expect("task").is_some());
        }
    }
    let hold = engine.claim_one().await;
    assert_eq!((hold.task_id(), hold.id().attempt), (failed_before, 2));
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    engine.finish(hold.claim_id).await;
    let failed = prune(&fixture, TaskStatus::Failed, Duration::ZERO, 100).await;
    assert_eq!(failed, 0, "it did its work");
    let stopped = prune(&fixture, TaskStatus::Stopped, Duration::ZERO, 100).await;
    assert_eq!(stopped, 1);
}

/// Retention uses the time of the end, and removes at most the requested number.
pub async fn retention_respects_age_and_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(10).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(10).await;
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(holds[0].claim_id).await;
    let old = Duration::from_millis(200);
    let first = wait_for("they grow old", async || {
        let removed = prune(&fixture, TaskStatus::Stopped, old, 4).await;
        (removed > 0).then_some(removed)
    })
    .await;
    assert_eq!(first, 4);
    assert_eq!(fixture.list(None).await.len(), 6);
    fixture.create_work(1).await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    engine.finish(hold.claim_id).await;
    let young = prune(&fixture, TaskStatus::Stopped, HOUR, 100).await;
    assert_eq!(young, 0);
    let mut removed = 0;
    for _ in 0..3 {
        removed += prune(&fixture, TaskStatus::Stopped, Duration::ZERO, 4).await;
    }
    assert_eq!(removed, 7);
    assert_eq!(fixture.list(None).await, []);
}

/// Retention may find an ended task whose claim is still open, because another task of
/// the claim runs. It keeps or removes the task. A removed task is not held again and is
/// not created again.
pub async fn retention_during_open_claim(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(3).await;
    let endings = [holds[0].succeeds(), holds[1].fails()];
    assert_eq!(engine.record(&endings).await, []);
    let mut left = vec![ids[2]];
    for (id, status) in ids.iter().zip([TaskStatus::Stopped, TaskStatus::Failed]) {
        let removed = prune(&fixture, status, Duration::ZERO, 100).await;
        match fixture.store.task(*id).await.expect("task") {
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
    assert_eq!(fixture.instances(Some("a")).await[0].held, 1);
    let running = fixture.list(Some(TaskStatus::Running)).await;
    assert_eq!(running.iter().map(|row| row.id).collect::<Vec<_>>(), [long.task_id]);
    for id in &ids[..2] {
        let report = cancel(&fixture, &[*id]).await.remove(0);
        let is_left = matches!(report, CancelReport::Ended(_));
        assert_eq!(is_left, left.contains(id), "{report:?}");
    }
    assert_eq!(fixture.store.verify().await.expect("verify"), []);

    assert!(fixture.declare_lost(engine.id).await);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken.iter().map(|one| one.id).collect::<Vec<_>>(), [long]);
    // When the claim has ended, the tasks can be removed.
    for status in [TaskStatus::Stopped, TaskStatus::Failed] {
        prune(&fixture, status, Duration::ZERO, 100).await;
    }
    let rows = fixture.list(None).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [long.task_id]);
}

async fn cancel(fixture: &Fixture, ids: &[TaskId]) -> Vec<CancelReport> {
    fixture.store.cancel(ids).await.expect("cancel")
}

async fn retry(fixture: &Fixture, ids: &[TaskId]) -> Vec<RetryReport> {
    fixture.store.retry(ids).await.expect("retry")
}

async fn prune(fixture: &Fixture, status: TaskStatus, age: Duration, limit: u32) -> u64 {
    let pruned = fixture.store.prune(status, age, limit).await;
    pruned.expect("prune")
}

/// One task that succeeded, one that failed, one that was cancelled while it ran.
async fn ended_tasks(fixture: &Fixture) -> [TaskId; 3] {
    fixture.create_work(3).await;
    let mut engine = fixture.engine("ended").await;
    let holds = engine.claim(3).await;
    let endings = [holds[0].succeeds(), holds[1].fails(), holds[2].is_cancelled()];
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(holds[0].claim_id).await;
    [0, 1, 2].map(|n: usize| holds[n].task_id())
}
