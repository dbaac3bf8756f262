//! Races, in both orders and at the same time: one side wins, the other one learns it,
//! and a task is always in exactly one state.

use std::collections::BTreeSet;
use std::time::Duration;

use task_engine_core::attempt::AttemptId;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, new_instance, task_ids};
use crate::waiting::{race, run_concurrently};

/// How often a race is run.
const ROUNDS: usize = 25;

/// The engine and recovery end an attempt at the same time: one decides, and the second
/// is kept as evidence.
pub async fn end_and_recovery_have_one_winner(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(6).await;
        let mut engine = fixture.engine(&format!("engine-{round}")).await;
        let holds = [engine.claim(3).await, engine.claim(3).await].concat();
        let id = engine.id;
        let recovery = other.clone();
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        let (late, taken) = race(
            async move {
                // Two records, so that recovery can run between them.
                let mut late = engine.record(&endings[..3]).await;
                late.extend(engine.record(&endings[3..]).await);
                late
            },
            async move {
                assert!(recovery.declare_lost(id).await);
                recovery.recover(id).await
            },
        )
        .await;
        let late: BTreeSet<_> = late.into_iter().collect();
        let taken: BTreeSet<_> = taken.into_iter().map(|one| one.id).collect();
        assert_eq!(late, taken, "round {round}: what one lost, the other won");
        for hold in &holds {
            let lost = taken.contains(&hold.id());
            let details = fixture.details(hold.task_id()).await;
            assert_eq!(details.executions.len(), 1, "{}", hold.id());
            let (status, task_status) = if lost {
                (ExecutionStatus::Failure, TaskStatus::Waiting)
            } else {
                (ExecutionStatus::Success, TaskStatus::Stopped)
            };
            assert_eq!(details.executions[0].status, status, "{}", hold.id());
            assert_eq!(details.row.status, task_status, "{}", hold.id());
            assert_eq!(details.late_results.len(), usize::from(lost));
        }
        fixture.store.cancel(&ids).await.expect("cancel");
    }
}

/// Two engines recover the same instance: one declares it lost, and each attempt is
/// reclaimed once.
pub async fn two_recoveries_reclaim_each_attempt_once(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(20).await;
        let mut engine = fixture.engine(&format!("engine-{round}")).await;
        let holds = [engine.claim(10).await, engine.claim(10).await].concat();
        let id = engine.id;
        let mut recoveries = Vec::new();
        for _ in 0..3 {
            let fixture = Fixture::open(db).await;
            recoveries
                .push(async move { (fixture.declare_lost(id).await, fixture.recover(id).await) });
        }
        let results = run_concurrently(recoveries).await;
        let declared = results.iter().filter(|(declared, _)| *declared).count();
        assert_eq!(declared, 1, "round {round}");
        let mut taken: Vec<_> =
            results.into_iter().flat_map(|(_, taken)| taken).map(|one| one.id).collect();
        // The second one may have read before the declaration.
        taken.extend(fixture.recover(id).await.into_iter().map(|one| one.id));
        taken.sort();
        let mut held: Vec<_> = holds.iter().map(TestAttempt::id).collect();
        held.sort();
        assert_eq!(taken, held, "round {round}");
        fixture.store.cancel(&ids).await.expect("cancel");
        if round % 5 == 4 {
            prune_cancelled(&fixture).await;
        }
    }
}

/// A claim that commits while its engine is declared lost is refused, reclaimed, or
/// reported as orphaned by the next heartbeat of other engines.
pub async fn claim_of_dying_engine_is_recovered(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let witness = fixture.engine("witness").await;
    let recoverer = Fixture::open(db).await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(30).await;
        let mut engine = fixture.engine(&format!("engine-{round}")).await;
        let id = engine.id;
        let recoverer = recoverer.clone();
        let (claimed, taken) = race(
            async move {
                let mut claimed = BTreeSet::new();
                loop {
                    match engine.try_claim(3).await {
                        Ok((holds, _)) if holds.is_empty() => break claimed,
                        Ok((holds, _)) => claimed.extend(holds.iter().map(TestAttempt::id)),
                        Err(StoreError::InstanceOver) => break claimed,
                        Err(other) => panic!("{other}"),
                    }
                }
            },
            async move {
                assert!(recoverer.declare_lost(id).await);
                recoverer.recover(id).await
            },
        )
        .await;
        let mut taken: BTreeSet<_> = taken.into_iter().map(|one| one.id).collect();
        for orphaned in witness.heartbeat().await.orphaned {
            assert_eq!(orphaned, id, "round {round}");
            taken.extend(fixture.recover(id).await.into_iter().map(|one| one.id));
        }
        assert_eq!(taken, claimed, "round {round}");
        assert_eq!(witness.heartbeat().await.orphaned, []);
        let waiting = fixture.list(Some(TaskStatus::Waiting)).await;
        assert_eq!(waiting.len(), ids.len(), "round {round}");
        fixture.store.cancel(&ids).await.expect("cancel");
    }
}

/// A heartbeat and a declaration of loss at the same time: an engine with a positive
/// reply may be lost a moment later. A negative reply is always correct.
pub async fn heartbeat_during_loss_replies_correctly(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    for round in 0..ROUNDS {
        let engine = fixture.engine(&format!("engine-{round}")).await;
        let id = engine.id;
        let other = other.clone();
        let (engine, lost) = race(
            async move {
                engine.heartbeat().await;
                engine
            },
            async move { other.declare_lost(id).await },
        )
        .await;
        assert!(lost, "round {round}: the process is gone");
        assert!(!engine.heartbeat().await.alive, "round {round}");
    }
}

/// A cancel and a claim at the same time: the task is cancelled and never claimed, or
/// claimed and its engine gets a request.
pub async fn cancel_and_claim_have_one_winner(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(8).await;
        let operator = other.clone();
        let wanted = ids.clone();
        let (claimed, reports) = race(
            async move {
                let holds = engine.claim_all(3).await;
                (engine, holds)
            },
            async move { operator.store.cancel(&wanted).await.expect("cancel") },
        )
        .await;
        let (handle, holds) = claimed;
        engine = handle;
        let claimed: BTreeSet<_> = task_ids(&holds).into_iter().collect();
        let asked: BTreeSet<_> = engine.heartbeat().await.cancel.into_iter().collect();
        for (id, report) in ids.iter().zip(reports) {
            let details = fixture.details(*id).await;
            let expected = if claimed.contains(id) {
                let attempt = AttemptId { task_id: *id, attempt: 1 };
                assert!(asked.contains(&attempt), "round {round}, task {id}");
                assert!(details.cancel_requested);
                (CancelReport::Requested, TaskStatus::Running)
            } else {
                (CancelReport::Cancelled, TaskStatus::Cancelled)
            };
            assert_eq!((report, details.row.status), expected, "round {round}");
        }
        let endings: Vec<_> = holds.iter().map(TestAttempt::is_cancelled).collect();
        assert_eq!(engine.record(&endings).await, []);
        assert_eq!(engine.heartbeat().await.cancel, [], "all are granted");
    }
}

/// A cancel and the end of the attempt at the same time: the report and the status agree.
pub async fn cancel_during_end_reports_correctly(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(6).await;
        let holds = engine.claim(6).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        let operator = other.clone();
        let wanted = ids.clone();
        let recorder = fixture.clone();
        let (late, reports) = race(
            async move { recorder.store.record(&endings, &[]).await.expect("record") },
            async move { operator.store.cancel(&wanted).await.expect("cancel") },
        )
        .await;
        assert_eq!(late, [], "a cancel_request ends nothing");
        for (id, report) in ids.iter().zip(reports) {
            assert!(
                matches!(
                    report,
                    CancelReport::Requested | CancelReport::Ended(TaskStatus::Stopped)
                ),
                "round {round}: {report:?}"
            );
            let details = fixture.details(*id).await;
            assert_eq!(details.row.status, TaskStatus::Stopped);
            assert!(!details.cancel_requested, "there is nothing to cancel");
        }
        assert_eq!(engine.heartbeat().await.cancel, []);
    }
}

/// Two callers cancel the same waiting tasks: each task is cancelled once.
pub async fn concurrent_cancels_cancel_once(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(10).await;
        let mut operators = Vec::new();
        for _ in 0..2 {
            let operator = Fixture::open(db).await;
            let mut wanted = ids.clone();
            fastrand::shuffle(&mut wanted);
            operators.push(async move {
                let reports = operator.store.cancel(&wanted).await.expect("cancel");
                wanted.into_iter().zip(reports).collect::<Vec<_>>()
            });
        }
        let reports = run_concurrently(operators).await.concat();
        for id in ids {
            let of_task = reports.iter().filter(|(task, _)| *task == id);
            let (winners, losers): (Vec<_>, Vec<_>) = of_task
                .map(|(_, report)| *report)
                .partition(|report| *report == CancelReport::Cancelled);
            assert_eq!(winners.len(), 1, "round {round}, task {id}");
            assert_eq!(losers, [CancelReport::Ended(TaskStatus::Cancelled)]);
            assert_eq!(fixture.details(id).await.executions.len(), 1);
        }
    }
}

/// Two operators send the same failed tasks back while an engine claims them:
/// one new attempt each, and never two with the same number.
pub async fn concurrent_retries_make_one_attempt(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(8).await;
        let holds = engine.claim(8).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
        assert_eq!(engine.record(&endings).await, []);

        let operator = Fixture::open(db).await;
        let wanted = ids.clone();
        let retries = (0..2).map(move |n| {
            let operator = operator.clone();
            let mut wanted = wanted.clone();
            if n == 1 {
                wanted.reverse();
            }
            async move { operator.store.retry(&wanted).await.expect("retry") }
        });
        let (claimed, reports) = race(
            async move {
                // Claims until the first tasks come; the others are claimed later.
                let mut holds = Vec::new();
                while holds.is_empty() {
                    holds = engine.claim_all(3).await;
                }
                (engine, holds)
            },
            run_concurrently(retries),
        )
        .await;
        let (handle, mut again) = claimed;
        engine = handle;
        engine.wake();
        again.extend(engine.claim_all(3).await);
        let mut claimed = task_ids(&again);
        claimed.sort();
        assert_eq!(claimed, ids, "round {round}: each once");
        assert!(again.iter().all(|hold| hold.id().attempt == 2));
        let sent_back = reports.concat();
        let sent_back = sent_back.iter().filter(|report| **report == RetryReport::Waiting).count();
        assert_eq!(sent_back, ids.len(), "round {round}: one sends it back");
        let endings: Vec<_> = again.iter().map(TestAttempt::succeeds).collect();
        assert_eq!(engine.record(&endings).await, []);
    }
}

/// Retention and a retry by an operator at the same time: each task is removed, or waits
/// with its whole history.
pub async fn prune_and_retry_leave_whole_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..ROUNDS {
        let ids = fixture.create_work(10).await;
        let holds = engine.claim(10).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
        assert_eq!(engine.record(&endings).await, []);
        engine.finish(holds[0].claim_id).await;
        let (operator, keeper) = (fixture.clone(), other.clone());
        let wanted = ids.clone();
        let (reports, removed) =
            race(async move { operator.store.retry(&wanted).await.expect("retry") }, async move {
                let pruned = keeper.store.prune(TaskStatus::Failed, Duration::ZERO, 1000);
                pruned.await.expect("prune")
            })
            .await;
        let mut gone = 0;
        for (id, report) in ids.iter().zip(reports) {
            match fixture.store.task(*id).await.expect("task") {
                None => {
                    assert_eq!(report, RetryReport::NotFound, "round {round}");
                    gone += 1;
                }
                Some(details) => {
                    assert_eq!(report, RetryReport::Waiting, "round {round}");
                    assert_eq!(details.row.status, TaskStatus::Waiting);
                    assert_eq!(details.executions.len(), 1);
                }
            }
        }
        assert_eq!(removed, gone, "round {round}");
        fixture.store.cancel(&ids).await.expect("cancel");
        prune_cancelled(&fixture).await;
        assert_eq!(fixture.list(None).await, [], "round {round}");
    }
}

/// Many engines that start under one name: one is registered.
pub async fn one_instance_gets_a_name(db: &dyn TestDatabase) {
    for round in 0..10 {
        let name = format!("name-{round}");
        let mut engines = Vec::new();
        for _ in 0..5 {
            let fixture = Fixture::open(db).await;
            let new = new_instance(&name);
            engines.push(async move { fixture.store.register(&new).await });
        }
        let results = run_concurrently(engines).await;
        let registered = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(registered, 1, "{results:?}");
        for result in results {
            match result {
                Ok(_) => {}
                Err(StoreError::NameTaken(taken)) => assert_eq!(taken, name),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// The invariants hold at every moment, not only when all is quiet.
pub async fn invariants_hold_under_load(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(600).await;
    let mut engines = Vec::new();
    for n in 0..3 {
        let fixture = Fixture::open(db).await;
        let mut engine = fixture.engine(&format!("engine-{n}")).await;
        engines.push(tokio::spawn(async move {
            loop {
                let holds = engine.claim_up_to(10).await.0;
                let Some(first) = holds.first() else { return };
                let ends = |hold: &TestAttempt| match (hold.id().attempt, hold.task_id().0 % 3) {
                    (1, 0) => hold.fails_and_retries(Duration::ZERO),
                    (1, 1) => hold.is_released(),
                    _ => hold.succeeds(),
                };
                let endings: Vec<_> = holds.iter().map(ends).collect();
                assert_eq!(engine.record(&endings).await, []);
                engine.finish(first.claim_id).await;
            }
        }));
    }
    let mut looks = 0;
    while looks < 3 || engines.iter().any(|engine| !engine.is_finished()) {
        let violations = fixture.store.verify().await.expect("verify");
        assert_eq!(violations, [], "look {looks}");
        looks += 1;
    }
    for engine in engines {
        engine.await.expect("an engine");
    }
    let mut last = fixture.engine("last").await;
    let holds = last.claim_all(50).await;
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(last.record(&endings).await, []);
    assert_eq!(fixture.list(Some(TaskStatus::Stopped)).await.len(), 600);
}

async fn prune_cancelled(fixture: &Fixture) {
    let pruned = fixture.store.prune(TaskStatus::Cancelled, Duration::ZERO, 10_000);
    pruned.await.expect("prune");
}
