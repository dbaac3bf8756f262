//! Cancel requests for running attempts are recorded with the reaction of the attempt.

use std::time::{Duration, Instant};

use task_engine_core::attempt::AttemptRecord;
use task_engine_core::cancel::{CancelOutcome, CancelReaction, CancelResponse, CancelRow};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::CancelReport;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, TestEngine};
use crate::waiting::race;

/// A cancel request is pending while its attempt runs. After the end, the record has the
/// time of the request, the time of its delivery and the reaction. It does not change
/// later.
pub async fn cancel_response_is_recorded_with_end(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(4).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(4).await;
    let outcomes = cancel(&fixture, &ids[..3]).await;
    assert_eq!(outcomes, [CancelReport::Requested; 3]);
    let pending = cancel_request(&fixture, ids[0]).await.expect("a cancel_request");
    assert_eq!((pending.outcome, pending.delivered_at), (CancelOutcome::Pending, None));
    let answers = [
        (CancelReaction::Acknowledged, CancelOutcome::Acknowledged, TaskStatus::Cancelled),
        (CancelReaction::Killed, CancelOutcome::Killed, TaskStatus::Cancelled),
        (CancelReaction::Ignored, CancelOutcome::Ignored, TaskStatus::Stopped),
    ];
    let mut endings = vec![
        answered(&holds[0], holds[0].is_cancelled(), answers[0].0),
        answered(&holds[1], holds[1].is_cancelled(), answers[1].0),
        answered(&holds[2], holds[2].succeeds(), answers[2].0),
    ];
    endings.push(holds[3].succeeds());
    // The second time is after a lost answer.
    for _ in 0..2 {
        assert_eq!(engine.record(&endings).await, []);
    }
    // Heartbeats delete the cancel requests of ended attempts.
    for _ in 0..2 {
        for (id, (_, outcome, status)) in ids.iter().zip(answers) {
            let details = fixture.details(*id).await;
            assert_eq!(details.row.status, status);
            assert!(!details.cancel_requested);
            let cancel = details.executions[0].cancel.expect("a cancel_request");
            assert_eq!(cancel.outcome, outcome);
            assert_eq!(cancel.requested_at.max(pending.requested_at), cancel.requested_at);
            let delivered = cancel.delivered_at.expect("its engine said when");
            let stopped = details.executions[0].stopped_at.expect("ended");
            let after = stopped.duration_since(delivered).as_secs_f64();
            assert!((after - 3.0).abs() < 0.5, "delivered 3 s before its end: {after}");
        }
        assert_eq!(cancel_request(&fixture, ids[3]).await, None, "no cancel request");
        assert_eq!(engine.heartbeat().await.cancel, []);
    }
    remove_all(&fixture, &engine, &holds).await;
}

/// An attempt that ended before it got the cancel request has no delivery time, however
/// it ended.
pub async fn unanswered_cancel_request_is_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(2).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(2).await;
    cancel(&fixture, &ids).await;
    let asked = cancel_request(&fixture, ids[0]).await.expect("a cancel_request").requested_at;
    let endings = [holds[0].succeeds(), holds[1].fails_and_retries(Duration::ZERO)];
    assert_eq!(engine.record(&endings).await, []);
    for _ in 0..2 {
        for (id, status) in ids.iter().zip([TaskStatus::Stopped, TaskStatus::Cancelled]) {
            assert_eq!(fixture.status(*id).await, status);
            let cancel = cancel_request(&fixture, *id).await.expect("a cancel_request");
            assert_eq!((cancel.outcome, cancel.delivered_at), (CancelOutcome::Unanswered, None));
        }
        let kept = cancel_request(&fixture, ids[0]).await.expect("a cancel_request");
        assert_eq!(kept.requested_at, asked, "it keeps its time");
        engine.heartbeat().await;
    }
    remove_all(&fixture, &engine, &holds).await;
}

/// Recovery applies the cancel request. A later report of the lost engine changes
/// nothing.
pub async fn recovered_cancel_request_has_no_response(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    cancel(&fixture, &[id]).await;
    assert!(fixture.declare_lost(engine.id).await);
    assert_eq!(fixture.recover(engine.id).await.len(), 1);
    let other = fixture.engine("b").await;
    let late = answered(&hold, hold.succeeds(), CancelReaction::Ignored);
    assert_eq!(engine.record(&[late]).await, [hold.id()]);
    for _ in 0..2 {
        assert_eq!(fixture.status(id).await, TaskStatus::Cancelled);
        let cancel = cancel_request(&fixture, id).await.expect("a cancel_request");
        assert_eq!((cancel.outcome, cancel.delivered_at), (CancelOutcome::Unanswered, None));
        assert!(other.heartbeat().await.alive);
    }
}

/// A cancel request and the end of its attempt at the same moment: if the caller was informed
/// "requested", the request is recorded, and it is not pending after the end.
pub async fn cancel_request_during_end_is_kept(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..40 {
        let id = fixture.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let ending = match round % 3 {
            0 => hold.succeeds(),
            1 => hold.fails(),
            _ => answered(&hold, hold.succeeds(), CancelReaction::Ignored),
        };
        let (recorder, operator) = (fixture.clone(), other.clone());
        let keeper = fixture.clone();
        let instance = engine.id;
        let (late, (reports, ())) = race(
            async move { recorder.store.record(&[ending], &[]).await.expect("record") },
            async move {
                tokio::join!(async { cancel(&operator, &[id]).await }, async {
                    keeper.store.heartbeat(instance).await.expect("heartbeat");
                })
            },
        )
        .await;
        assert_eq!(late, []);
        for _ in 0..2 {
            let cancel_request = cancel_request(&fixture, id).await;
            if reports == [CancelReport::Requested] {
                let outcome = cancel_request.expect("it was requested").outcome;
                let true_ones = [CancelOutcome::Unanswered, CancelOutcome::Ignored];
                assert!(true_ones.contains(&outcome), "round {round}: {outcome:?}");
            }
            assert_eq!(engine.heartbeat().await.cancel, []);
        }
        engine.finish(hold.claim_id).await;
    }
}

/// Retention runs while a heartbeat deletes cancel requests.
pub async fn cancel_and_retention_leave_whole_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..40 {
        let ids = fixture.create_work(5).await;
        let holds = engine.claim(5).await;
        cancel(&fixture, &ids).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::is_cancelled).collect();
        assert_eq!(engine.record(&endings).await, []);
        engine.finish(holds[0].claim_id).await;
        let (keeper, instance, beating) = (other.clone(), engine.id, fixture.clone());
        let (removed, _) = race(
            async move {
                let pruned = keeper.store.prune(TaskStatus::Cancelled, Duration::ZERO, 1000);
                pruned.await.expect("prune")
            },
            async move { beating.store.heartbeat(instance).await.expect("heartbeat") },
        )
        .await;
        // Tasks that the heartbeat had locked are left for the next time.
        let rest = other.store.prune(TaskStatus::Cancelled, Duration::ZERO, 1000).await;
        assert_eq!(removed + rest.expect("prune"), 5, "round {round}");
        assert_eq!(fixture.store.verify().await.expect("verify"), []);
    }
}

async fn cancel(fixture: &Fixture, ids: &[TaskId]) -> Vec<CancelReport> {
    fixture.store.cancel(ids).await.expect("cancel")
}

/// The cancel request for the first attempt of a task.
async fn cancel_request(fixture: &Fixture, id: TaskId) -> Option<CancelRow> {
    fixture.details(id).await.executions[0].cancel
}

/// The code got the request 3 s before the end.
fn answered(hold: &TestAttempt, ending: AttemptRecord, answer: CancelReaction) -> AttemptRecord {
    assert_eq!(hold.id(), ending.id);
    let at = Instant::now() - Duration::from_secs(3);
    let cancel_response = Some(CancelResponse { delivered: at, reaction: answer });
    AttemptRecord { cancel_response, ..ending }
}

async fn remove_all(fixture: &Fixture, engine: &TestEngine, holds: &[TestAttempt]) {
    engine.finish(holds[0].claim_id).await;
    for status in [TaskStatus::Stopped, TaskStatus::Cancelled] {
        fixture.store.prune(status, Duration::ZERO, 100).await.expect("prune");
    }
    assert_eq!(fixture.list(None).await, [], "retention removes the requests, too");
}
