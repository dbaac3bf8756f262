//! What became of wishes to cancel running attempts is on record, and true.

use std::time::{Duration, Instant};

use task_engine_core::attempt::Ending;
use task_engine_core::cancel::{CancelOutcome, CancelReaction, CancelResponse, CancelRow};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::CancelReport;

use crate::Database;
use crate::bench::{Bench, Hold, Player};
use crate::waiting::at_once;

/// While an attempt runs its wish is pending; when it has ended, its record says
/// when it was asked, when its code was told, and how it took it. It stays so.
pub async fn an_answer_is_on_record_with_the_end(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let ids = bench.create_work(4).await;
    let mut engine = bench.engine("a").await;
    let holds = engine.claim(4).await;
    let wished = cancel(&bench, &ids[..3]).await;
    assert_eq!(wished, [CancelReport::Requested; 3]);
    let pending = wish(&bench, ids[0]).await.expect("a wish");
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
    // Heartbeats put wishes out of the way.
    for _ in 0..2 {
        for (id, (_, outcome, status)) in ids.iter().zip(answers) {
            let details = bench.details(*id).await;
            assert_eq!(details.row.status, status);
            assert!(!details.cancel_requested);
            let cancel = details.executions[0].cancel.expect("a wish");
            assert_eq!(cancel.outcome, outcome);
            assert_eq!(cancel.requested_at.max(pending.requested_at), cancel.requested_at);
            let told = cancel.delivered_at.expect("its engine said when");
            let stopped = details.executions[0].stopped_at.expect("ended");
            let after = stopped.duration_since(told).as_secs_f64();
            assert!((after - 3.0).abs() < 0.5, "told 3 s before its end: {after}");
        }
        assert_eq!(wish(&bench, ids[3]).await, None, "nobody asked");
        assert_eq!(engine.heartbeat().await.cancel, []);
    }
    remove_all(&bench, &engine, &holds).await;
}

/// An attempt that ended before its code was told says so, whichever way.
pub async fn a_wish_without_an_answer_says_so(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let ids = bench.create_work(2).await;
    let mut engine = bench.engine("a").await;
    let holds = engine.claim(2).await;
    cancel(&bench, &ids).await;
    let asked = wish(&bench, ids[0]).await.expect("a wish").requested_at;
    let endings = [holds[0].succeeds(), holds[1].fails_and_waits(Duration::ZERO)];
    assert_eq!(engine.record(&endings).await, []);
    for _ in 0..2 {
        for (id, status) in ids.iter().zip([TaskStatus::Stopped, TaskStatus::Cancelled]) {
            assert_eq!(bench.status(*id).await, status);
            let cancel = wish(&bench, *id).await.expect("a wish");
            assert_eq!((cancel.outcome, cancel.delivered_at), (CancelOutcome::Unanswered, None));
        }
        let kept = wish(&bench, ids[0]).await.expect("a wish");
        assert_eq!(kept.requested_at, asked, "it keeps its time");
        engine.heartbeat().await;
    }
    remove_all(&bench, &engine, &holds).await;
}

/// Recovery grants the wish; what the lost engine says of it changes nothing.
pub async fn a_wish_that_recovery_granted_has_no_answer(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let id = bench.create_work(1).await[0];
    let mut engine = bench.engine("a").await;
    let hold = engine.claim_one().await;
    cancel(&bench, &[id]).await;
    assert!(bench.lose(engine.id).await);
    assert_eq!(bench.recover(engine.id).await.len(), 1);
    let other = bench.engine("b").await;
    let late = answered(&hold, hold.succeeds(), CancelReaction::Ignored);
    assert_eq!(engine.record(&[late]).await, [hold.id()]);
    for _ in 0..2 {
        assert_eq!(bench.status(id).await, TaskStatus::Cancelled);
        let cancel = wish(&bench, id).await.expect("a wish");
        assert_eq!((cancel.outcome, cancel.delivered_at), (CancelOutcome::Unanswered, None));
        assert!(other.heartbeat().await.alive);
    }
}

/// A wish and an end at the same moment: whoever was told that it was requested
/// finds it on record, never pending once the attempt has ended.
pub async fn a_wish_raced_by_an_end_is_never_forgotten(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let other = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for round in 0..40 {
        let id = bench.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let ending = match round % 3 {
            0 => hold.succeeds(),
            1 => hold.fails(),
            _ => answered(&hold, hold.succeeds(), CancelReaction::Ignored),
        };
        let (recorder, operator) = (bench.clone(), other.clone());
        let keeper = bench.clone();
        let instance = engine.id;
        let (late, (reports, ())) = at_once(
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
            let wish = wish(&bench, id).await;
            if reports == [CancelReport::Requested] {
                let outcome = wish.expect("it was requested").outcome;
                let true_ones = [CancelOutcome::Unanswered, CancelOutcome::Ignored];
                assert!(true_ones.contains(&outcome), "round {round}: {outcome:?}");
            }
            assert_eq!(engine.heartbeat().await.cancel, []);
        }
        engine.finish(hold.claim_id).await;
    }
}

/// Retention at the moment when a heartbeat puts wishes out of the way.
pub async fn wishes_raced_by_retention_leave_no_halves(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let other = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for round in 0..40 {
        let ids = bench.create_work(5).await;
        let holds = engine.claim(5).await;
        cancel(&bench, &ids).await;
        let endings: Vec<_> = holds.iter().map(Hold::is_cancelled).collect();
        assert_eq!(engine.record(&endings).await, []);
        engine.finish(holds[0].claim_id).await;
        let (keeper, instance, beating) = (other.clone(), engine.id, bench.clone());
        let (removed, _) = at_once(
            async move {
                let pruned = keeper.store.prune(TaskStatus::Cancelled, Duration::ZERO, 1000);
                pruned.await.expect("prune")
            },
            async move { beating.store.heartbeat(instance).await.expect("heartbeat") },
        )
        .await;
        assert_eq!(removed, 5, "round {round}");
        assert_eq!(bench.store.verify().await.expect("verify"), Vec::<String>::new());
    }
}

async fn cancel(bench: &Bench, ids: &[TaskId]) -> Vec<CancelReport> {
    bench.store.cancel(ids).await.expect("cancel")
}

/// The wish to cancel the first attempt of a task.
async fn wish(bench: &Bench, id: TaskId) -> Option<CancelRow> {
    bench.details(id).await.executions[0].cancel
}

/// Its code was told 3 s before its end.
fn answered(hold: &Hold, ending: Ending, answer: CancelReaction) -> Ending {
    assert_eq!(hold.id(), ending.id);
    let at = Instant::now() - Duration::from_secs(3);
    let cancel_response = Some(CancelResponse { delivered: at, reaction: answer });
    Ending { cancel_response, ..ending }
}

async fn remove_all(bench: &Bench, engine: &Player, holds: &[Hold]) {
    engine.finish(holds[0].claim_id).await;
    for status in [TaskStatus::Stopped, TaskStatus::Cancelled] {
        bench.store.prune(status, Duration::ZERO, 100).await.expect("prune");
    }
    assert_eq!(bench.list(None).await, [], "retention removes the wishes, too");
}
