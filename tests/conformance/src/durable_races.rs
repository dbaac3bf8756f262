//! Races of durable tasks: a suspension, a signal, a timeout and the end of a child at the
//! same time never leave a task waiting for something that has happened.

use std::time::Duration;

use task_engine_core::step::{SignalRow, SignalStatus, StepOutcome, SuspendOutcome, WaitOutcome};
use task_engine_core::task::TaskStatus;

use crate::TestDatabase;
use crate::durable::{child, held, json};
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK};
use crate::waiting::{race, run_concurrently};

const ROUNDS: usize = 25;
const PAUSE: Duration = Duration::from_millis(1);

/// Engines ask again about a task that another transaction holds.
async fn suspend(fixture: &Fixture, hold: &TestAttempt, children: bool) -> SuspendOutcome {
    let suspension = if children { hold.waits_for_children() } else { hold.waits_for(&["paid"]) };
    loop {
        match fixture.suspend(suspension.clone()).await {
            SuspendOutcome::Open => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// The same for a wait whose deadline has passed.
async fn time_out(fixture: &Fixture, hold: &TestAttempt) -> SignalRow {
    loop {
        match fixture.time_out(hold, "paid").await {
            WaitOutcome::Open => tokio::time::sleep(PAUSE).await,
            WaitOutcome::Decided(row) => return row,
            WaitOutcome::AttemptOver => panic!("the attempt has not ended"),
        }
    }
}

async fn next(fixture: &Fixture, engine: &mut TestEngine) -> TestAttempt {
    fixture.create_work(1).await;
    engine.claim_one().await
}

/// A signal and the suspension until it: the task is due, whichever comes first.
pub async fn signal_during_suspension_is_seen(db: &dyn TestDatabase) {
    let (fixture, mut engine, _first) = held(db).await;
    for round in 0..ROUNDS {
        let hold = next(&fixture, &mut engine).await;
        let (a, b) = (Fixture::open(db).await, fixture.clone());
        let (mine, id) = (hold.clone(), hold.task_id());
        let (sent, suspended) = race(async move { a.signal(id, "paid", "1").await }, async move {
            suspend(&b, &mine, false).await
        })
        .await;
        assert!(sent.is_accepted(), "{round}: {sent:?}");
        assert_eq!(suspended, SuspendOutcome::Suspended(None), "{round}");
        let again = engine.continues(&hold).await;
        engine.record(&[again.succeeds()]).await;
    }
}

/// A signal and the timeout of the wait for it have one winner, and both sides know it.
pub async fn signal_and_timeout_have_one_winner(db: &dyn TestDatabase) {
    let (fixture, mut engine, _first) = held(db).await;
    for round in 0..ROUNDS {
        let hold = next(&fixture, &mut engine).await;
        let (a, b) = (Fixture::open(db).await, fixture.clone());
        let (mine, id) = (hold.clone(), hold.task_id());
        let (sent, decided) = race(async move { a.signal(id, "paid", "1").await }, async move {
            time_out(&b, &mine).await
        })
        .await;
        assert_eq!(fixture.signals(id).await, std::slice::from_ref(&decided), "{round}");
        match sent {
            SignalStatus::Kept => assert!(!decided.timed_out, "{round}"),
            SignalStatus::TimedOut => assert!(decided.timed_out, "{round}"),
            other => panic!("{round}: {other:?}"),
        }
        engine.record(&[hold.succeeds()]).await;
    }
}

/// Of signals that are sent at the same time one counts.
pub async fn concurrent_signals_have_one_winner(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    fixture.suspend(hold.waits_for(&["paid"])).await;
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(Fixture::open(db).await);
    }
    let senders = handles
        .into_iter()
        .enumerate()
        .map(|(n, handle)| async move { (n, handle.signal(id, "paid", &n.to_string()).await) });
    let sent = run_concurrently(senders).await;
    let winners: Vec<_> = sent.iter().filter(|one| one.1 == SignalStatus::Delivered).collect();
    let [(winner, _)] = winners[..] else { panic!("{sent:?}") };
    let refused = sent.iter().filter(|one| one.1 == SignalStatus::Duplicate).count();
    assert_eq!(refused, 3, "{sent:?}");
    assert_eq!(fixture.signals(id).await[0].payload, json(&winner.to_string()));
    engine.continues(&hold).await;
}

/// The parent is suspended while its last children end: it is due after both sides have
/// looked, without a heartbeat.
pub async fn child_end_during_suspension_is_seen(db: &dyn TestDatabase) {
    let (fixture, mut engine, _first) = held(db).await;
    for round in 0..ROUNDS {
        let parent = next(&fixture, &mut engine).await;
        let ids = fixture.call(&parent.call(WORK, 1, vec![child(); 3])).await;
        let children = engine.claim(3).await;
        let mut sides = Vec::new();
        for hold in children {
            let handle = Fixture::open(db).await;
            sides.push((handle, hold.task_id(), Some(hold.succeeds())));
        }
        sides.push((fixture.clone(), parent.task_id(), None));
        let parent_hold = parent.clone();
        let looks = sides.into_iter().map(|(handle, id, end)| {
            let parent = parent_hold.clone();
            async move {
                let ended = match end {
                    Some(end) => {
                        handle.store.record(&[end], &[]).await.expect("record");
                        vec![id]
                    }
                    None => match suspend(&handle, &parent, true).await {
                        SuspendOutcome::Suspended(watched) => watched.into_iter().collect(),
                        other => panic!("{other:?}"),
                    },
                };
                handle.resume_parents(&ended).await
            }
        });
        let resumed: u64 = run_concurrently(looks).await.into_iter().sum();
        assert!(resumed <= 1, "{round}: {resumed}");
        assert_eq!(fixture.status(ids[0]).await, TaskStatus::Stopped);
        let again = engine.continues(&parent).await;
        engine.record(&[again.succeeds()]).await;
    }
}

/// Many engines tell about the same ends: each parent is resumed once.
pub async fn concurrent_hints_resume_once(db: &dyn TestDatabase) {
    let (fixture, mut engine, first) = held(db).await;
    let mut parents = vec![first];
    parents.extend({
        fixture.create_work(5).await;
        engine.claim(5).await
    });
    let mut ids = Vec::new();
    for parent in &parents {
        ids.extend(fixture.call(&parent.call(WORK, 1, vec![child(); 4])).await);
    }
    let children = engine.claim(24).await;
    let all: Vec<_> = parents.iter().map(TestAttempt::waits_for_children).collect();
    fixture.store.suspend(&all).await.expect("suspend");
    let ends: Vec<_> = children.iter().map(TestAttempt::succeeds).collect();
    engine.record(&ends).await;
    let mut hints = Vec::new();
    for n in 0..4 {
        let handle = Fixture::open(db).await;
        let mut ids = ids.clone();
        ids.rotate_left(n * 6);
        hints.push(async move {
            if n == 3 {
                handle.resume_missed().await;
                return 0;
            }
            handle.resume_parents(&ids).await
        });
    }
    let resumed: u64 = run_concurrently(hints).await.into_iter().sum();
    assert!(resumed <= 6, "{resumed}");
    let again = engine.claim_all(10).await;
    assert_eq!(again.len(), 6, "each once");
    assert!(again.iter().all(|hold| hold.id().attempt == 2), "{again:?}");
    assert!(!engine.sees_suspended_tasks().await);
}

/// A step of an attempt and its recovery at the same time: a step that was recorded counts
/// as progress or not, and a later attempt finds it.
pub async fn step_and_recovery_agree(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for round in 0..ROUNDS {
        fixture.create_work(1).await;
        let mut engine = fixture.engine(&format!("e{round}")).await;
        let hold = engine.claim_one().await;
        assert!(fixture.declare_lost(engine.id).await);
        let (a, b) = (Fixture::open(db).await, fixture.clone());
        let (mine, lost) = (hold.clone(), engine.id);
        let (step, taken) =
            race(async move { a.record_step(mine.result("pay", 1)).await }, async move {
                b.recover(lost).await
            })
            .await;
        assert_eq!(taken.len(), 1, "{round}");
        let names = fixture.step_names(hold.task_id()).await;
        match step {
            StepOutcome::Recorded { .. } => assert_eq!(names, ["pay"], "{round}"),
            StepOutcome::AttemptOver => assert!(names.is_empty(), "{round}"),
            StepOutcome::Exists => panic!("{round}: it was new"),
        }
        fixture.store.cancel(&[hold.task_id()]).await.expect("cancel");
    }
}
