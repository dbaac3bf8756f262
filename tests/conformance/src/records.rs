//! Records: an attempt ends once, with all its fields, and the next state of its task is
//! stored in the same transaction.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use task_engine_core::attempt::RunSpan;
use task_engine_core::attempt::{AttemptEnd, AttemptId, NextState, TaskError};
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::TaskStatus;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, sample_error};

/// A success is recorded with its times, worker, engine and result.
pub async fn success_is_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;

    let running = fixture.details(id).await;
    assert_eq!(running.row.status, TaskStatus::Running);
    let [execution] = &running.executions[..] else {
        panic!("one execution, not {:?}", running.executions)
    };
    assert_eq!(execution.status, ExecutionStatus::Running);
    assert_eq!((execution.attempt, execution.retry_number), (1, 0));
    assert_eq!(execution.instance.as_deref(), Some("a"));
    assert_eq!((execution.stopped_at, execution.ends_task), (None, None), "it has not ended");

    let claimed_by = fixture.now().await;
    let begun = Instant::now();
    // The work itself.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let ran = RunSpan { worker: Some(4), lasted: begun.elapsed(), ended: Instant::now() };
    // The time between the end and its record is not part of the attempt. It is long, so
    // that a slow machine does not hide the difference.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let recorded_after = fixture.now().await;
    let result = Json::parse(r#"{"pages":12}"#).unwrap();
    let mut ending = hold.ends(AttemptEnd::Success(result.clone()), &RetryRule::default());
    ending.ran = Some(ran);
    assert_eq!(engine.record(&[ending]).await, []);

    let details = fixture.details(id).await;
    assert_eq!(details.row.status, TaskStatus::Stopped);
    assert_eq!((details.row.attempts, &details.row.error), (1, &None));
    assert_eq!(details.row.instance.as_deref(), Some("a"));
    let [execution] = &details.executions[..] else {
        panic!("one execution, not {:?}", details.executions)
    };
    assert_eq!(execution.status, ExecutionStatus::Success);
    assert_eq!((execution.attempt, execution.retry_number), (1, 0));
    assert_eq!(execution.instance.as_deref(), Some("a"));
    assert_eq!(execution.worker, Some(4));
    let found = execution.result.as_ref().expect("a result");
    assert_eq!(
        found.decode::<serde_json::Value>().unwrap(),
        result.decode::<serde_json::Value>().unwrap()
    );
    assert_eq!((&execution.error, execution.retry_at), (&None, None));
    assert_eq!(execution.ends_task, Some(TaskStatus::Stopped));
    let started_at = execution.started_at.expect("it started");
    let stopped_at = execution.stopped_at.expect("it stopped");
    let lasted = SignedDuration::try_from(ran.lasted).unwrap();
    let off = (stopped_at.duration_since(started_at) - lasted).abs();
    assert!(off < SignedDuration::from_millis(3), "length {off} off");
    // The engine's monotonic clock, converted to the database's time, within the duration
    // of a call.
    let tolerance = SignedDuration::from_millis(15);
    assert!(started_at >= claimed_by - tolerance, "started too early");
    assert!(stopped_at < recorded_after, "stopped when it was recorded");
}

/// A failure is recorded with the whole error, and may end the task.
pub async fn failure_is_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    let frames = vec!["print at src/main.rs:7".into(), String::new(), "'main'".into()];
    let error = TaskError::new("std::io::Error", "no \"paper\"\nin tray 2 – 紙がない 🖨")
        .with_backtrace(frames);
    let mut ending = hold.fails();
    ending.error = Some(error.clone());
    assert_eq!(engine.record(&[ending]).await, []);

    let details = fixture.details(id).await;
    assert_eq!(details.row.status, TaskStatus::Failed);
    assert_eq!(details.row.error, Some(error.clone()));
    let [execution] = &details.executions[..] else {
        panic!("one execution, not {:?}", details.executions)
    };
    assert_eq!(execution.status, ExecutionStatus::Failure);
    assert_eq!(execution.error, Some(error));
    assert_eq!(execution.result, None);
    assert_eq!(execution.ends_task, Some(TaskStatus::Failed));
    assert!(execution.stopped_at.is_some());
}

/// After a failure the next attempt waits with the next number and the given retry
/// number, and is not claimed before it is due.
pub async fn retry_waits_until_due(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    let wait = Duration::from_secs(1800);
    let before = fixture.now().await;
    assert_eq!(engine.record(&[hold.fails_and_retries(wait)]).await, []);
    let after = fixture.now().await;

    let details = fixture.details(id).await;
    assert_eq!(details.row.status, TaskStatus::Waiting);
    assert_eq!((details.row.attempts, details.row.retry_number), (1, 1));
    assert_eq!(details.row.error, Some(sample_error()));
    assert_eq!(details.executions[0].ends_task, None);
    let wait = SignedDuration::try_from(wait).unwrap();
    let a_bit = SignedDuration::from_millis(5);
    assert!(details.row.scheduled_at >= before + wait - a_bit);
    assert!(details.row.scheduled_at <= after + wait + a_bit);
    assert_eq!(details.executions[0].retry_at, Some(details.row.scheduled_at));
    engine.wake();
    assert_eq!(engine.claim_all(10).await.len(), 0, "before its time");
}

/// The attempt number grows by one a claim; the retry number is as recorded.
pub async fn attempt_numbers_increase(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    for (attempt, retry_number, next) in [(1, 0, 1), (2, 1, 1), (3, 1, 7), (4, 7, 0), (5, 0, 0)] {
        let hold = engine.claim_one().await;
        assert_eq!(
            (hold.id(), hold.task.retry_number),
            (AttemptId { task_id: id, attempt }, retry_number)
        );
        let mut ending = hold.fails();
        ending.next = NextState::Wait { after: Duration::ZERO, retry_number: next };
        assert_eq!(engine.record(&[ending]).await, []);
    }
    let details = fixture.details(id).await;
    let numbers: Vec<_> = details
        .executions
        .iter()
        .map(|execution| (execution.attempt, execution.retry_number))
        .collect();
    assert_eq!(numbers, [(1, 0), (2, 1), (3, 1), (4, 7), (5, 0)]);
}

/// A released task keeps its retry number and gets the next attempt number.
pub async fn release_uses_no_retry(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await, []);
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.is_released()]).await, []);
    let hold = engine.claim_one().await;
    assert_eq!((hold.id().attempt, hold.task.retry_number), (3, 1));

    let details = fixture.details(id).await;
    let back = &details.executions[1];
    assert_eq!((back.attempt, back.started_at, back.worker), (2, None, None));
    assert_eq!(back.status, ExecutionStatus::Failure);
    let error = back.error.as_ref().expect("a reason");
    assert_eq!(error.exception, TaskError::NEVER_STARTED);
}

/// A batch that is sent again, because its reply was lost, changes nothing and is not
/// late, whatever has happened to its tasks since.
pub async fn repeated_record_changes_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(5).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(5).await;
    let batch = [
        holds[0].succeeds(),
        holds[1].fails(),
        holds[2].fails_and_retries(Duration::ZERO),
        holds[3].is_released(),
        holds[4].is_cancelled(),
    ];
    assert_eq!(engine.record(&batch).await, []);
    send_again(&fixture, &holds, async || engine.record(&batch).await).await;
    engine.finish(holds[0].claim_id).await;
    send_again(&fixture, &holds, async || engine.record(&batch).await).await;
    let mut other = fixture.engine("b").await;
    assert_eq!(other.claim_all(10).await.len(), 2);
    send_again(&fixture, &holds, async || engine.record(&batch).await).await;
    assert_eq!(fixture.list(Some(TaskStatus::Running)).await.len(), 2);
}

async fn send_again(
    fixture: &Fixture,
    holds: &[TestAttempt],
    send: impl AsyncFn() -> Vec<AttemptId>,
) {
    let mut before = Vec::new();
    for hold in holds {
        before.push(fixture.details(hold.task_id()).await);
    }
    assert_eq!(send().await, [], "its own attempts are not late");
    for (hold, before) in holds.iter().zip(before) {
        assert_eq!(fixture.details(hold.task_id()).await, before);
    }
}

/// A batch in any order ends every attempt in it.
pub async fn large_record_batch_in_any_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(1000).await;
    let mut engine = fixture.engine("a").await;
    let mut holds = engine.claim_all(300).await;
    fastrand::shuffle(&mut holds);
    let endings: Vec<_> = holds
        .iter()
        .enumerate()
        .map(|(n, hold)| match n % 4 {
            0 => hold.succeeds(),
            1 => hold.fails(),
            2 => hold.fails_and_retries(Duration::from_secs(60)),
            _ => hold.is_cancelled(),
        })
        .collect();
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(engine.record(&[]).await, [], "nothing is fine, too");
    assert_eq!(fixture.list(Some(TaskStatus::Running)).await, []);
    for status in
        [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Waiting, TaskStatus::Cancelled]
    {
        assert_eq!(fixture.list(Some(status)).await.len(), 250, "{status}");
    }
}

/// Only attempts that were ended by others are late. The rest of the batch is recorded.
pub async fn only_late_results_are_late(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(4).await;
    let mut engine = fixture.engine("a").await;
    let lost = engine.claim(2).await;
    let kept = engine.claim(2).await;
    let taken = engine.reclaim_unknown(vec![lost[0].claim_id]).await;
    assert_eq!(taken.len(), 2);
    let holds = [&kept[0], &lost[1], &kept[1], &lost[0]];
    let mut late = engine.record(&holds.map(TestAttempt::succeeds)).await;
    late.sort();
    assert_eq!(late, [lost[0].id(), lost[1].id()]);
    for hold in &kept {
        assert_eq!(fixture.status(hold.task_id()).await, TaskStatus::Stopped);
    }
    for hold in &lost {
        let details = fixture.details(hold.task_id()).await;
        assert_eq!(details.row.status, TaskStatus::Waiting);
        assert_eq!(details.executions.len(), 1);
        assert_eq!(details.late_results.len(), 1);
    }
}

/// A claim is removed when all of its attempts have ended.
pub async fn finished_claims_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(4).await;
    let mut engine = fixture.engine("a").await;
    let first = engine.claim(2).await;
    let second = engine.claim(2).await;
    let endings: Vec<_> = first.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(first[0].claim_id).await;
    assert_eq!(engine.heartbeat().await.claims, [second[0].claim_id]);
    engine.finish(first[0].claim_id).await;
    let endings: Vec<_> = second.iter().map(TestAttempt::fails).collect();
    assert_eq!(engine.record(&endings).await, []);
    engine.finish(second[0].claim_id).await;
    assert_eq!(engine.heartbeat().await.claims, []);
}

/// Of a claim with one long task, only that task is running, even if another task of the
/// claim is in its next attempt on another engine.
pub async fn only_unended_attempts_are_running(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(4).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(4).await;
    let late = engine
        .record(&[
            holds[0].succeeds(),
            holds[1].fails_and_retries(Duration::ZERO),
            holds[2].fails(),
        ])
        .await;
    assert_eq!(late, []);
    let long = holds[3].id();
    assert_eq!(engine.held().await, [long]);
    assert_eq!(fixture.instances(Some("a")).await[0].held, 1);
    assert_eq!(fixture.status(long.task_id).await, TaskStatus::Running);

    let mut other = fixture.engine("b").await;
    let again = other.claim_one().await;
    assert_eq!(again.task_id(), holds[1].task_id());
    assert_eq!(engine.held().await, [long]);
    assert_eq!(other.held().await, [again.id()]);
    let running = fixture.list(Some(TaskStatus::Running)).await;
    let running: Vec<_> =
        running.iter().map(|row| (row.id, row.attempts, row.instance.as_deref())).collect();
    assert_eq!(running, [(long.task_id, 1, Some("a")), (again.task_id(), 2, Some("b"))]);
    assert_eq!(fixture.list(None).await.len(), 4, "each task once");
    let executions = fixture.details(again.task_id()).await.executions;
    assert_eq!(executions.len(), 2);
    assert_eq!(executions[1].status, ExecutionStatus::Running);
}

/// A record of a lost engine counts if its tasks have not been reclaimed yet: the first
/// record of an attempt decides.
pub async fn lost_engine_may_record_first(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(2).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(2).await;
    assert!(fixture.declare_lost(engine.id).await);
    assert_eq!(engine.record(&[holds[0].succeeds()]).await, []);
    let taken = fixture.recover(engine.id).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].id, holds[1].id());
    assert_eq!(fixture.status(holds[0].task_id()).await, TaskStatus::Stopped);
}
