//! Steps of durable tasks: each is recorded once, by an attempt that is running.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::step::{
    NewCall, NewStep, SignalStatus, StepContent, StepKind, StepOutcome, StepRow, ended_name,
};
use task_engine_core::task::TaskId;
use task_engine_core::unique::Unique;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::durable::{HOUR, child, held, json};
use crate::fixture::{
    Fixture, TestAttempt, WORK, expect_wait, new_instance, new_task, with_classes,
};

/// A step is loaded as it was recorded, with the times of the database.
pub async fn recorded_step_is_loaded(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    let mut step = hold.step("charge card", 1, StepContent::Value(json(r#"{"paid":[1,null]}"#)));
    step.lasted = Duration::from_secs(90);
    let outcome = fixture.record_step(step).await;
    let StepOutcome::Recorded { now, until: None, signal: None, children } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(children, []);
    let ended = StepContent::ChildrenEnded(vec![3, 1]);
    fixture.must_record(hold.step(&ended_name("mail"), 2, ended)).await;

    let loaded = fixture.steps(hold.task_id()).await;
    assert!(loaded.now >= now && loaded.signals.is_empty(), "{loaded:?}");
    let [row, ended] = &loaded.steps[..] else { panic!("{loaded:?}") };
    let expected = StepRow {
        name: "charge card".to_owned(),
        number: 1,
        kind: StepKind::Step,
        attempt: 1,
        result: row.result.clone(),
        until: None,
        started_at: now - SignedDuration::from_secs(90),
        recorded_at: now,
    };
    assert_eq!(*row, expected);
    assert_eq!(compact(row), r#"{"paid":[1,null]}"#);
    assert_eq!((ended.kind, compact(ended).as_str()), (StepKind::Call, "[3,1]"));
    let nothing = fixture.steps(TaskId(9_000_000)).await;
    assert_eq!((nothing.steps, nothing.signals), (vec![], vec![]));
}

/// PostgreSQL writes JSON with spaces.
fn compact(row: &StepRow) -> String {
    row.result.as_ref().map(Json::as_str).expect("a result").replace(' ', "")
}

/// The first record of a name wins, also within one call and over a later attempt.
pub async fn first_record_of_name_wins(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let batch = [hold.result("pay", 1), hold.result("pay", 2), hold.result("pay#2", 3)];
    let outcomes = fixture.store.record_steps(&batch).await.expect("record_steps");
    assert!(matches!(outcomes[0], StepOutcome::Recorded { .. }), "{outcomes:?}");
    assert_eq!(outcomes[1], StepOutcome::Exists);
    assert!(matches!(outcomes[2], StepOutcome::Recorded { .. }), "{outcomes:?}");
    assert_eq!(fixture.record_step(hold.result("pay", 4)).await, StepOutcome::Exists);
    engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    let again = engine.continues(&hold).await;
    assert_eq!(fixture.record_step(again.result("pay", 4)).await, StepOutcome::Exists);
    // An engine that has lost the reply asks again, also after the end of the attempt.
    assert_eq!(fixture.record_step(hold.result("pay", 1)).await, StepOutcome::Exists);

    let steps = fixture.steps(hold.task_id()).await.steps;
    let facts: Vec<_> =
        steps.iter().map(|one| (one.name.as_str(), one.number, one.attempt)).collect();
    assert_eq!(facts, [("pay", 1, 1), ("pay#2", 3, 1)]);
    assert_eq!(compact(&steps[0]), "1");
}

/// An attempt that has ended, that was reclaimed or that no claim holds records nothing.
pub async fn step_of_ended_attempt_is_refused(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    let refuse = async |step: NewStep| {
        let call = NewCall { claim_id: step.claim_id, ..hold.call("mail", 1, vec![child()]) };
        let call = NewCall { id: step.id, ..call };
        assert_eq!(fixture.record_step(step).await, StepOutcome::AttemptOver);
        let refused = fixture.store.record_call(&call).await.expect("record_call");
        assert_eq!(refused, StepOutcome::AttemptOver);
    };
    let unknown = ClaimId(hold.claim_id.0 + 1000);
    refuse(NewStep { claim_id: unknown, ..hold.result("pay", 1) }).await;
    engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    refuse(hold.result("pay", 1)).await;
    let second = engine.continues(&hold).await;
    refuse(hold.result("pay", 1)).await;
    assert!(fixture.declare_lost(engine.id).await);
    assert_eq!(fixture.recover(engine.id).await.len(), 1);
    refuse(second.result("pay", 1)).await;
    assert_eq!(fixture.steps(id).await.steps, []);
    assert_eq!(fixture.count_of(WORK).await, 1, "no child was created");
}

/// One refused step does not hinder the others of its batch.
pub async fn good_steps_of_batch_are_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(40).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(40).await;
    let ended: Vec<_> = holds.iter().step_by(4).map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&ended).await, []);
    fixture.must_record(holds[1].result("pay", 1)).await;

    let batch: Vec<NewStep> = holds.iter().rev().map(|hold| hold.result("pay", 1)).collect();
    let mut outcomes = fixture.store.record_steps(&batch).await.expect("record_steps");
    outcomes.reverse();
    for (n, outcome) in outcomes.iter().enumerate() {
        let fits = match n {
            1 => *outcome == StepOutcome::Exists,
            n if n % 4 == 0 => *outcome == StepOutcome::AttemptOver,
            _ => matches!(outcome, StepOutcome::Recorded { .. }),
        };
        assert!(fits, "{n}: {outcome:?}");
        let stored = fixture.step_names(ids[n]).await;
        assert_eq!(stored.len(), usize::from(n % 4 != 0), "{n}: {stored:?}");
    }
    assert_eq!(fixture.store.record_steps(&[]).await.expect("record_steps"), []);
}

/// The end of a sleep and the deadline of a wait are times of the database.
pub async fn sleeps_and_waits_have_end(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    let before = fixture.now().await;
    let at: Timestamp = "2031-02-03T04:05:06.789012Z".parse().expect("a time");
    let contents = [
        ("nap", StepContent::SleepFor(Duration::from_millis(1500)), StepKind::Sleep),
        ("paid", StepContent::Wait(HOUR), StepKind::Wait),
        ("monday", StepContent::SleepUntil(at), StepKind::Sleep),
    ];
    for (n, (name, content, kind)) in (1..).zip(contents) {
        let lasts = match &content {
            StepContent::SleepFor(time) | StepContent::Wait(time) => Some(*time),
            _ => None,
        };
        let outcome = fixture.record_step(hold.step(name, n, content)).await;
        let StepOutcome::Recorded { now, until: Some(until), signal: None, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(now >= before && now <= fixture.now().await, "{now}");
        assert_eq!(until, lasts.map_or(at, |time| now + time));
        let row = fixture.steps(hold.task_id()).await.steps.pop().expect("a step");
        assert_eq!((row.kind, row.until, row.result), (kind, Some(until), None));
        assert_eq!((row.started_at, row.recorded_at), (now, now));
    }
}

/// The record of a wait returns a signal that came before it; other steps do not.
pub async fn wait_returns_early_signal(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    assert_eq!(fixture.signal(hold.task_id(), "paid", "[7]").await, SignalStatus::Kept);
    assert_eq!(fixture.signal(hold.task_id(), "nap", "8").await, SignalStatus::Kept);
    let steps = [
        hold.step("nap", 1, StepContent::SleepFor(HOUR)),
        hold.step("paid", 2, StepContent::Wait(HOUR)),
        hold.step("sent", 3, StepContent::Wait(HOUR)),
    ];
    let outcomes = fixture.store.record_steps(&steps).await.expect("record_steps");
    let signals: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            StepOutcome::Recorded { signal, .. } => signal,
            refused => panic!("{refused:?}"),
        })
        .collect();
    assert_eq!((&signals[0], &signals[2]), (&None, &None));
    let signal = signals[1].as_ref().expect("the signal");
    assert_eq!((signal.name.as_str(), signal.payload.as_str()), ("paid", "[7]"));
    assert!(!signal.timed_out);
    assert!(fixture.signals(hold.task_id()).await.contains(signal));
}

/// After an attempt that recorded a step, retries count from the first again, if the
/// rule says so.
pub async fn recovery_restarts_retries_after_step(db: &dyn TestDatabase) {
    let rules =
        |restart| [(WORK, RetryRule::every(Duration::ZERO, 3).restart_after_progress(restart))];
    for (name, restart, expected) in [("a", true, [1, 1, 2]), ("b", false, [1, 2, 3])] {
        let fixture = Fixture::open(db).await;
        let id = fixture.create_work(1).await[0];
        let mut numbers = Vec::new();
        for n in 0..3 {
            let new = with_classes(new_instance(&format!("{name}{n}")), &rules(restart));
            let mut engine = fixture.register(new).await;
            let hold = engine.claim_one().await;
            assert_eq!(hold.task_id(), id);
            if n == 1 {
                fixture.must_record(hold.result("pay", 1)).await;
            }
            assert!(fixture.declare_lost(engine.id).await);
            let lost = fixture.recover(engine.id).await;
            numbers.push(expect_wait(lost[0].next).1);
        }
        assert_eq!(numbers, expected, "restarts: {restart}");
        assert!(matches!(fixture.store.cancel(&[id]).await, Ok(reports) if reports.len() == 1));
    }
}

/// A task can be created with the steps of another one that have lower numbers, the
/// signals of these, and their children.
pub async fn task_is_created_with_steps(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let id = hold.task_id();
    fixture.must_record(hold.result("pay", 1)).await;
    for name in ["paid", "sent"] {
        assert_eq!(fixture.signal(id, name, "[1]").await, SignalStatus::Kept);
    }
    fixture.must_record(hold.step("paid", 2, StepContent::Wait(HOUR))).await;
    let children = fixture.call(&hold.call("mail", 3, vec![child(), child()])).await;
    fixture.must_record(hold.step("sent", 4, StepContent::Wait(HOUR))).await;

    let new = new_task("copy").unique(Unique::by("copy")).expect("a key");
    let copy = fixture.store.create_with_steps(&new, id, 4).await.expect("create_with_steps");
    let (old, new_steps) = (fixture.steps(id).await, fixture.steps(copy).await);
    let copied: Vec<StepRow> =
        old.steps[..3].iter().map(|step| StepRow { attempt: 0, ..step.clone() }).collect();
    assert_eq!(new_steps.steps, copied);
    let signals: Vec<_> = old.signals.into_iter().filter(|one| one.name == "paid").collect();
    assert_eq!(new_steps.signals, signals);
    // A unique task that exists is no copy.
    let refused = fixture.store.create_with_steps(&new, id, 5).await;
    let Err(StoreError::Refused(message)) = refused else { panic!("{refused:?}") };
    assert_eq!(message, format!("task {copy} has the unique key of the new task"));
    assert_eq!(fixture.steps(copy).await.steps.len(), 3);

    // The copy waits for the children, too.
    let ids: Vec<_> = engine.claim(2).await;
    let new = with_classes(new_instance("copier"), &[("copy", RetryRule::never())]);
    let mut copier = fixture.register(new).await;
    let copied = copier.claim_one().await;
    fixture.suspend(copied.waits_for_children()).await;
    assert_eq!(engine.record(&[ids[1].succeeds()]).await, []);
    assert_eq!(fixture.resume_parents(&children[1..]).await, 0);
    assert_eq!(engine.record(&[ids[0].succeeds()]).await, []);
    assert_eq!(fixture.resume_parents(&children[..1]).await, 1);
    copier.continues(&copied).await;
}

/// A step may have a result of any size and text that JSON allows, and a name with the
/// number of a repetition beyond the length of a name.
pub async fn hostile_steps_are_kept(db: &dyn TestDatabase) {
    let (fixture, _engine, hold) = held(db).await;
    let big = serde_json::to_string(&"ü\u{1}\"".repeat(50_000)).expect("JSON");
    let name = format!("{}#1000", "n".repeat(200));
    let step = hold.step(&name, 1, StepContent::Value(json(&big)));
    fixture.must_record(step).await;
    let hostile = "'; DROP TABLE steps; -- \u{202e}{} \\ \u{1F4A5}";
    fixture.must_record(hold.step(hostile, 2, StepContent::Value(Json::null()))).await;
    let steps = fixture.steps(hold.task_id()).await.steps;
    assert_eq!((&steps[0].name, steps[1].name.as_str()), (&name, hostile));
    assert_eq!(steps[0].result.as_ref().map(Json::as_str), Some(big.as_str()));
    assert_eq!(steps[1].result, Some(Json::null()));
    // A name that is too long is refused, and the others of its batch are refused with it.
    let batch = [hold.result("ok", 3), hold.result(&"n".repeat(221), 4)];
    assert!(fixture.store.record_steps(&batch).await.is_err());
    assert_eq!(fixture.steps(hold.task_id()).await.steps.len(), 2);
}
