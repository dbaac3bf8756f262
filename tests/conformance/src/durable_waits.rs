//! Suspended tasks, signals and timeouts: a signal is never lost, and never counts together
//! with a timeout.

use std::time::Duration;

use task_engine_core::change::{Edit, EditReport};
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::step::{
    SignalReport, SignalStatus, SignalTarget, StepContent, SuspendOutcome, Suspension, WaitOutcome,
};
use task_engine_core::task::{ExecutionStatus, TaskId, TaskStatus};
use task_engine_core::unique::Unique;
use task_engine_store::contract::{CancelReport, RetryReport, WakeUp};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::durable::{HOUR, held, held_task, json};
use crate::fixture::{Fixture, WORK, new_task};
use crate::wake_ups::Listener;

const SUSPENDED: SuspendOutcome = SuspendOutcome::Suspended(None);

/// Without its signal a task waits until the given time, or for the time in the record. Its
/// attempt is recorded as snoozed.
pub async fn suspended_task_waits_until_deadline(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let until = fixture.now().await + 2 * HOUR;
    let suspension = Suspension { until: Some(until), ..hold.waits_for(&["paid", "sent"]) };
    assert_eq!(fixture.suspend(suspension).await, SUSPENDED);
    let task = fixture.details(hold.task_id()).await;
    assert_eq!((task.row.status, task.row.scheduled_at), (TaskStatus::Waiting, until));
    assert_eq!((task.row.retry_number, &task.row.error), (0, &None));
    assert_eq!(task.executions[0].status, ExecutionStatus::Snoozed);
    engine.has_no_work().await;
    assert_eq!(engine.held().await, []);

    fixture.create_work(1).await;
    let hold = engine.claim_one().await;
    assert_eq!(fixture.suspend(hold.waits_for(&["paid"])).await, SUSPENDED);
    let due = fixture.details(hold.task_id()).await.row.scheduled_at;
    let wait = due.duration_since(fixture.now().await);
    assert!((wait.as_secs_f64() - 3600.0).abs() < 60.0, "{wait}");

    // A deadline in the past: the task is due.
    fixture.create_work(1).await;
    let hold = engine.claim_one().await;
    let past = Some(fixture.now().await - HOUR);
    assert_eq!(
        fixture.suspend(Suspension { until: past, ..hold.waits_for(&["paid"]) }).await,
        SUSPENDED
    );
    engine.continues(&hold).await;
}

/// A signal that was sent before the suspension makes its task due at once. Another one
/// does not.
pub async fn early_signal_ends_suspension(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    assert_eq!(fixture.signal(hold.task_id(), "other", "1").await, SignalStatus::Kept);
    assert_eq!(fixture.signal(hold.task_id(), "sent", "1").await, SignalStatus::Kept);
    assert_eq!(fixture.suspend(hold.waits_for(&["paid", "sent"])).await, SUSPENDED);
    assert!(!engine.sees_suspended_tasks().await);
    let hold = engine.continues(&hold).await;
    assert_eq!(fixture.suspend(hold.waits_for(&["paid"])).await, SUSPENDED);
    engine.has_no_work().await;
}

/// One call suspends many tasks, and each has its own outcome.
pub async fn one_call_suspends_many_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let mut lost = fixture.engine("lost").await;
    let mut holds = engine.claim(1).await;
    holds.push(lost.claim_one().await);
    holds.push(engine.claim_one().await);
    fixture.signal(ids[2], "paid", "1").await;
    assert!(fixture.declare_lost(lost.id).await);
    assert_eq!(fixture.recover(lost.id).await.len(), 1);
    fixture.store.cancel(&ids[1..2]).await.expect("cancel");
    let all: Vec<_> = holds.iter().rev().map(|hold| hold.waits_for(&["paid"])).collect();
    let outcomes = fixture.store.suspend(&all).await.expect("suspend");
    assert_eq!(outcomes, [SUSPENDED, SuspendOutcome::Late, SUSPENDED]);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Waiting);
    assert_eq!(fixture.status(ids[1]).await, TaskStatus::Cancelled);
    engine.continues(&holds[2]).await;
    assert_eq!(fixture.store.suspend(&[]).await.expect("suspend"), []);
}

/// A cancel request that was made before ends the task.
pub async fn cancel_request_wins_over_suspension(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    let asked = fixture.store.cancel(&[id]).await.expect("cancel");
    assert_eq!(asked, [CancelReport::Requested]);
    for _ in 0..2 {
        assert_eq!(fixture.suspend(hold.waits_for(&["paid"])).await, SUSPENDED, "and again");
    }
    assert_eq!(fixture.status(id).await, TaskStatus::Cancelled);
    assert!(!engine.sees_suspended_tasks().await);
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::TaskEnded);
    engine.has_no_work().await;
}

/// A suspended task can be cancelled, and its signals are refused then.
pub async fn suspended_task_can_be_cancelled(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    fixture.suspend(hold.waits_for(&["paid"])).await;
    let cancelled = fixture.store.cancel(&[hold.task_id()]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled]);
    assert_eq!(fixture.signal(hold.task_id(), "paid", "1").await, SignalStatus::TaskEnded);
    assert_eq!(fixture.signals(hold.task_id()).await, []);
    fixture.resume_missed().await;
    assert!(!engine.sees_suspended_tasks().await, "its row is removed");
    // An operator retries it. It is due, and a signal is kept for it.
    let retried = fixture.store.retry(&[hold.task_id()]).await.expect("retry");
    assert_eq!(retried, [RetryReport::Waiting]);
    assert_eq!(fixture.signal(hold.task_id(), "paid", "1").await, SignalStatus::Kept);
    assert_eq!(engine.claim_one().await.id().attempt, 3);
}

/// A suspension of a reclaimed attempt changes nothing, and is kept as evidence.
pub async fn late_suspension_is_kept_as_evidence(db: &dyn TestDatabase) {
    let (fixture, zombie, hold) = held(db).await;
    let id = hold.task_id();
    assert!(fixture.declare_lost(zombie.id).await);
    assert_eq!(fixture.recover(zombie.id).await.len(), 1);
    let before = fixture.details(id).await;
    for _ in 0..2 {
        assert_eq!(fixture.suspend(hold.waits_for(&["paid"])).await, SuspendOutcome::Late);
    }
    let after = fixture.details(id).await;
    assert_eq!((&after.row, &after.executions), (&before.row, &before.executions));
    let [late] = &after.late_results[..] else { panic!("{:?}", after.late_results) };
    assert_eq!(late.attempt, 1);
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Kept);
    // Nothing is left of a removed task.
    fixture.store.cancel(&[id]).await.expect("cancel");
    fixture.store.delete(&[id]).await.expect("delete");
    assert_eq!(fixture.suspend(hold.waits_for(&["paid"])).await, SuspendOutcome::Late);
    assert!(fixture.store.task(id).await.expect("task").is_none());
}

/// An engine that has lost the reply suspends again: the same outcome, and one attempt.
pub async fn repeated_suspension_changes_nothing(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let suspension = hold.waits_for(&["paid"]);
    for _ in 0..3 {
        assert_eq!(fixture.suspend(suspension.clone()).await, SUSPENDED);
    }
    let task = fixture.details(hold.task_id()).await;
    assert_eq!((task.executions.len(), task.late_results.len()), (1, 0));
    assert_eq!(fixture.signal(hold.task_id(), "paid", "1").await, SignalStatus::Delivered);
    assert_eq!(fixture.suspend(suspension).await, SUSPENDED);
    engine.continues(&hold).await;
    assert!(!engine.sees_suspended_tasks().await);
}

/// A signal makes the task that waits for it due at once, and wakes engines.
pub async fn signal_wakes_suspended_task(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    assert!(!engine.sees_suspended_tasks().await);
    fixture.must_record(hold.step("paid", 1, StepContent::Wait(HOUR))).await;
    fixture.suspend(hold.waits_for(&["paid", "paid#2"])).await;
    assert!(engine.sees_suspended_tasks().await);
    engine.has_no_work().await;
    assert_eq!(fixture.signal(hold.task_id(), "other", "0").await, SignalStatus::Kept);
    engine.has_no_work().await;

    let listener = Listener::begin(db.open().await).await;
    listener.forget();
    let before = fixture.now().await;
    assert_eq!(fixture.signal(hold.task_id(), "paid#2", "[7]").await, SignalStatus::Delivered);
    listener.hears(WakeUp::Work).await;
    engine.wake();
    let again = engine.continues(&hold).await;
    assert_eq!(again.task.retry_number, 0);
    assert!(!engine.sees_suspended_tasks().await);
    let signals = fixture.signals(hold.task_id()).await;
    let names: Vec<_> = signals.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["other", "paid#2"], "in the order of their times");
    assert!(signals[1].sent_at >= before && !signals[1].timed_out, "{signals:?}");
    assert_eq!(signals[1].payload, json("[7]"));
}

/// The first signal of a name counts.
pub async fn first_signal_of_name_counts(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Kept);
    assert_eq!(fixture.signal(id, "paid", "2").await, SignalStatus::Duplicate);
    assert_eq!(fixture.signal(id, "paid#2", "3").await, SignalStatus::Kept);
    fixture.suspend(hold.waits_for(&["sent"])).await;
    assert_eq!(fixture.signal(id, "sent", "4").await, SignalStatus::Delivered);
    assert_eq!(fixture.signal(id, "sent", "5").await, SignalStatus::Duplicate);
    let signals = fixture.signals(id).await;
    let payloads: Vec<_> = signals.iter().map(|one| one.payload.as_str()).collect();
    assert_eq!(payloads, ["1", "3", "4"]);

    let hold = engine.continues(&hold).await;
    engine.record(&[hold.succeeds()]).await;
    assert_eq!(fixture.signal(id, "late", "6").await, SignalStatus::TaskEnded);
    assert_eq!(fixture.signal(TaskId(9_000_000), "paid", "1").await, SignalStatus::NotFound);
    assert_eq!(fixture.signals(id).await.len(), 3);
}

/// A signal can name its task by class and unique key: the last one that was created.
pub async fn signal_finds_task_by_key(db: &dyn TestDatabase) {
    let unique = || new_task(WORK).unique(Unique::by("order-1")).expect("a key");
    let (fixture, mut engine, hold) = held_task(db, unique()).await;
    let send = async |class: &str, key: &str, name: &str| {
        let target = SignalTarget::UniqueKey { class: class.to_owned(), key: key.to_owned() };
        fixture.store.signal(&target, name, &Json::null()).await.expect("signal")
    };
    let none = SignalReport { task_id: None, status: SignalStatus::NotFound };
    assert_eq!(send(WORK, "order-2", "paid").await, none);
    assert_eq!(send("other", "order-1", "paid").await, none);
    fixture.suspend(hold.waits_for(&["paid"])).await;
    let to = |id, status| SignalReport { task_id: Some(id), status };
    assert_eq!(send(WORK, "order-1", "paid").await, to(hold.task_id(), SignalStatus::Delivered));
    let hold = engine.continues(&hold).await;
    engine.record(&[hold.succeeds()]).await;
    assert_eq!(send(WORK, "order-1", "sent").await, to(hold.task_id(), SignalStatus::TaskEnded));
    let next = fixture.create(unique()).await;
    assert_eq!(send(WORK, "order-1", "sent").await, to(next, SignalStatus::Kept));
    // A removed task frees its key.
    fixture.store.cancel(&[next]).await.expect("cancel");
    fixture.store.delete(&[next]).await.expect("delete");
    assert_eq!(send(WORK, "order-1", "sent").await, none);
}

/// A name that no wait can have is refused, and nothing is stored.
pub async fn invalid_signal_name_is_refused(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    let target = SignalTarget::Id(hold.task_id());
    let long = "n".repeat(201);
    for name in ["", "#2", "a#1", "a#x", "a#2#3", "a\nb", "a\u{0}", &long] {
        let refused = fixture.store.signal(&target, name, &Json::null()).await;
        let Err(StoreError::Refused(message)) = refused else { panic!("{name:?}: {refused:?}") };
        let expected = format!("invalid name of a signal: {name:?}");
        let expected: String = expected.chars().take(100).collect();
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains("a name has 1 to 200 bytes"), "{message}");
    }
    assert_eq!(fixture.signals(hold.task_id()).await, []);
    let name = format!("{}é\u{202e} '\"", "n".repeat(190));
    assert_eq!(fixture.signal(hold.task_id(), &name, "null").await, SignalStatus::Kept);
    assert_eq!(fixture.signals(hold.task_id()).await[0].name, name);
}

/// A signal does not bring a retry forward: also not if the task was suspended until
/// this signal before.
pub async fn signal_keeps_time_of_retry(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    fixture.suspend(hold.waits_for(&["paid"])).await;
    // An operator continues it; then it fails.
    fixture.store.retry(&[id]).await.expect("retry");
    let hold = engine.continues(&hold).await;
    engine.record(&[hold.fails_and_retries(HOUR)]).await;
    let due = fixture.details(id).await.row.scheduled_at;
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Kept);
    engine.has_no_work().await;
    fixture.resume_missed().await;
    assert_eq!(fixture.resume_parents(&[id]).await, 0);
    engine.has_no_work().await;
    assert_eq!(fixture.details(id).await.row.scheduled_at, due);
    assert!(!engine.sees_suspended_tasks().await, "the old row is removed");
}

/// A timeout is recorded once, and signals are refused from then on.
pub async fn timeout_refuses_later_signal(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let before = fixture.now().await;
    let decided = fixture.time_out(&hold, "paid").await;
    let WaitOutcome::Decided(timeout) = &decided else { panic!("{decided:?}") };
    assert_eq!((timeout.name.as_str(), timeout.timed_out), ("paid", true));
    assert_eq!(timeout.payload, Json::null());
    assert!(timeout.sent_at >= before && timeout.sent_at <= fixture.now().await);
    assert_eq!(fixture.time_out(&hold, "paid").await, decided, "asked again");
    assert_eq!(fixture.signal(hold.task_id(), "paid", "1").await, SignalStatus::TimedOut);
    assert_eq!(fixture.signals(hold.task_id()).await, std::slice::from_ref(timeout));
    // The timeout is the end of the wait for a later attempt, too.
    engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    let again = engine.continues(&hold).await;
    assert_eq!(fixture.time_out(&again, "paid").await, decided);
    assert_eq!(fixture.suspend(again.waits_for(&["paid"])).await, SUSPENDED);
    engine.continues(&again).await;
}

/// A signal that was sent before its wait timed out wins.
pub async fn earlier_signal_wins_over_timeout(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    assert_eq!(fixture.signal(hold.task_id(), "paid", "[7]").await, SignalStatus::Kept);
    let decided = fixture.time_out(&hold, "paid").await;
    let signals = fixture.signals(hold.task_id()).await;
    assert_eq!(decided, WaitOutcome::Decided(signals[0].clone()));
    assert_eq!((signals[0].payload.as_str(), signals[0].timed_out), ("[7]", false));
}

/// An attempt that has ended, or that no claim holds, times nothing out.
pub async fn ended_attempt_cannot_time_out(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    let unknown = ClaimId(hold.claim_id.0 + 1000);
    let over = fixture.store.time_out(hold.id(), unknown, "paid").await.expect("time_out");
    assert_eq!(over, WaitOutcome::AttemptOver);
    engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    assert_eq!(fixture.time_out(&hold, "paid").await, WaitOutcome::AttemptOver);
    let second = engine.continues(&hold).await;
    assert!(fixture.declare_lost(engine.id).await);
    fixture.recover(engine.id).await;
    assert_eq!(fixture.time_out(&second, "paid").await, WaitOutcome::AttemptOver);
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Kept);
}

/// An operator makes a suspended task due. A signal that comes before the claim or after
/// it does not start it twice.
pub async fn suspended_task_can_be_retried(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    fixture.suspend(hold.waits_for(&["paid"])).await;
    let retried = fixture.store.retry(&[id]).await.expect("retry");
    assert_eq!(retried, [RetryReport::Advanced]);
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Delivered);
    let hold = engine.continues(&hold).await;
    assert!(!engine.sees_suspended_tasks().await);

    fixture.suspend(hold.waits_for(&["sent"])).await;
    fixture.store.retry(&[id]).await.expect("retry");
    let hold = engine.continues(&hold).await;
    assert_eq!(fixture.signal(id, "sent", "1").await, SignalStatus::Kept);
    engine.has_no_work().await;
    // The next suspension replaces what is left of the last one.
    assert_eq!(fixture.suspend(hold.waits_for(&["more"])).await, SUSPENDED);
    engine.has_no_work().await;
    assert!(engine.sees_suspended_tasks().await);
    assert_eq!(fixture.signal(id, "more", "1").await, SignalStatus::Delivered);
    engine.continues(&hold).await;
}

/// A suspended task keeps its due time when it is edited, and its signal still wakes it.
pub async fn edited_task_stays_suspended(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    fixture.suspend(hold.waits_for(&["paid"])).await;
    let due = fixture.details(id).await.row.scheduled_at;
    let edit = Edit { priority: Some(7), ..Edit::default() };
    let edited = fixture.store.edit(id, &edit).await.expect("edit");
    assert_eq!(edited, EditReport::Changed);
    assert_eq!(fixture.details(id).await.row.scheduled_at, due);
    engine.has_no_work().await;
    assert_eq!(fixture.signal(id, "paid", "1").await, SignalStatus::Delivered);
    assert_eq!(engine.continues(&hold).await.task.priority, 7);
}

/// The payload of a signal may be any JSON within the limits, and nothing beyond.
pub async fn hostile_payload_is_kept(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    let big = serde_json::to_string(&"ü\u{1}\"".repeat(50_000)).expect("JSON");
    assert_eq!(fixture.signal(hold.task_id(), "big", &big).await, SignalStatus::Kept);
    let number = "123456789012345678901234567890.5";
    assert_eq!(fixture.signal(hold.task_id(), "number", number).await, SignalStatus::Kept);
    let signals = fixture.signals(hold.task_id()).await;
    assert_eq!(signals[0].payload.as_str(), big);
    assert_eq!(signals[1].payload.as_str(), number);
}
