//! A store with all kinds of rows: tasks in every state with their history, durable tasks, tasks
//! with limits, flows, schedules and paused queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::attempt::{AttemptEnd, RetryAdvice};
use task_engine_core::cancel::{CancelReaction, CancelResponse};
use task_engine_core::dependency::Flow;
use task_engine_core::json::Json;
use task_engine_core::limit::{ClosedKey, Limit, LimitOptions, Rate};
use task_engine_core::progress::{LogLevel, LogLine, ProgressReport, Report};
use task_engine_core::queue::QueuePause;
use task_engine_core::retry::RetryRule;
use task_engine_core::schedule::decision::firing;
use task_engine_core::schedule::{Overlap, Schedule};
use task_engine_core::step::{KEPT_STEPS, StepContent, SuspendOutcome, WaitOutcome, ended_name};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Unique;
use task_engine_store::contract::Store;
use task_engine_store::schedules::Schedules;

use crate::durable::{HOUR, child, json};
use crate::fixture::{
    Fixture, LONG_LEASE, TestEngine, WORK, new_instance, new_task, sample_error, with_classes,
};

/// The class that must not be tried twice.
pub const ONCE: &str = "once";

/// Tasks that run when this returns: one that may be retried, one of [`ONCE`], and one
/// with a cancel request. Their engine is dead.
#[derive(Debug)]
pub struct Left {
    /// It may be retried.
    pub retried: TaskId,
    /// It may not.
    pub once: TaskId,
    /// It is to be cancelled.
    pub cancelled: TaskId,
}

/// Fills an empty store.
pub async fn fill(store: Arc<dyn Store>) -> Left {
    let fixture = Fixture { store };
    let mut engine = fixture.engine("worker-1").await;
    successes(&fixture, &mut engine).await;
    failures(&fixture, &mut engine).await;
    cancellations(&fixture, &mut engine).await;
    durable_tasks(&fixture, &mut engine).await;
    late_results(&fixture).await;
    flow(&fixture, &mut engine).await;
    engine.unregister().await;
    limited_tasks(&fixture).await;
    unique_and_correlated(&fixture).await;
    schedules(&fixture).await;
    let pause =
        QueuePause::new("held up", Some("provider's \u{1F4A5} down".to_owned())).expect("a pause");
    assert!(fixture.store.pause_queue(&pause).await.expect("pause"));
    fixture.create(new_task(WORK).queue("held up").expect("a queue")).await;
    fixture.create(new_task(WORK).after(Duration::from_secs(3600)).priority(-7)).await;
    left(&fixture).await
}

async fn successes(fixture: &Fixture, engine: &mut TestEngine) {
    let odd = Json::parse(
        "{\n \"text\": \"a \\\"b\\\" \\\\ \u{202e}\",\t\"big\": 123456789012345678901234567890, \"small\": 1.50, \"list\": [ ] }",
    );
    let parameters = odd.expect("JSON");
    let ids = [
        fixture.create(NewTask::new(WORK, parameters).expect("a task")).await,
        fixture.create(new_task(WORK)).await,
    ];
    let holds = engine.claim(2).await;
    let say = |n: usize| Report {
        id: holds[n].id(),
        version: 3,
        lines_total: 3,
        progress: Some(ProgressReport::new(100.0 / 3.0, "a third")),
        // The second was dropped.
        lines: vec![
            LogLine::new(1, LogLevel::Info, "begins"),
            LogLine::new(3, LogLevel::Warn, "a\nb"),
        ],
    };
    assert_eq!(fixture.store.report(&[say(0)]).await.expect("report"), []);
    let null = holds[1].ends(AttemptEnd::Success(Json::null()), &RetryRule::default());
    assert_eq!(engine.record(&[holds[0].succeeds(), null]).await, []);
    assert_eq!(ids.len(), holds.len());
}

async fn failures(fixture: &Fixture, engine: &mut TestEngine) {
    fixture.create_work(3).await;
    let holds = engine.claim(3).await;
    let endings = [
        holds[0].fails(),
        holds[1].fails_and_retries(Duration::ZERO),
        holds[2].fails_and_retries(Duration::from_secs(7200)),
    ];
    assert_eq!(engine.record(&endings).await, []);
    let again = engine.claim(1).await;
    assert_eq!(engine.record(&[again[0].succeeds()]).await, []);
    // Retried by an operator after its end, and released by an engine.
    fixture.store.retry(&[holds[0].task_id()]).await.expect("retry");
    let again = engine.claim(1).await;
    assert_eq!(engine.record(&[again[0].is_released()]).await, []);
    let again = engine.claim(1).await;
    let advice = AttemptEnd::Failure(sample_error(), RetryAdvice::NoRetry);
    assert_eq!(engine.record(&[again[0].ends(advice, &RetryRule::default())]).await, []);
}

async fn cancellations(fixture: &Fixture, engine: &mut TestEngine) {
    let waits = fixture.create(new_task(WORK)).await;
    fixture.store.cancel(&[waits]).await.expect("cancel");
    let ids = fixture.create_work(2).await;
    let holds = engine.claim(2).await;
    fixture.store.cancel(&ids).await.expect("cancel");
    let mut end = holds[0].is_cancelled();
    end.cancel_response =
        Some(CancelResponse { delivered: Instant::now(), reaction: CancelReaction::Killed });
    assert_eq!(engine.record(&[end]).await, []);
    // No heartbeat has moved this cancel request yet.
    assert_eq!(engine.record(&[holds[1].succeeds()]).await, []);
}

/// A task with steps that waits for a signal, a parent that is suspended until its children
/// end, a task that has ended with its steps, and a copy of that one.
async fn durable_tasks(fixture: &Fixture, engine: &mut TestEngine) {
    fixture.create_work(3).await;
    let holds = engine.claim(3).await;
    let (waits, parent, done) = (&holds[0], &holds[1], &holds[2]);
    let text = json(r#"{"paid": "\ud83d\udca5", "big": 123456789012345678901234567890}"#);
    fixture.must_record(waits.step("charge card", 1, StepContent::Value(text.clone()))).await;
    fixture.must_record(waits.step("nap", 2, StepContent::SleepFor(Duration::ZERO))).await;
    fixture.must_record(waits.step("approved", 3, StepContent::Wait(HOUR))).await;
    assert!(matches!(fixture.time_out(waits, "approved").await, WaitOutcome::Decided(_)));
    fixture.must_record(waits.step("approved#2", 4, StepContent::Wait(HOUR))).await;
    assert!(fixture.signal(waits.task_id(), "early", text.as_str()).await.is_accepted());

    let later = || child().after(HOUR);
    let children = fixture.call(&parent.call(WORK, 1, vec![child(), later(), later()])).await;
    let ended = engine.claim_one().await;
    assert_eq!(engine.record(&[ended.succeeds()]).await, []);
    let suspensions = [waits.waits_for(&["approved#2"]), parent.waits_for_children()];
    let outcomes = fixture.store.suspend(&suspensions).await.expect("suspend");
    assert_eq!(outcomes, [None, Some(children[1])].map(SuspendOutcome::Suspended));

    fixture.must_record(done.result("charge card", 1)).await;
    let call = fixture.call(&done.call(WORK, 2, vec![child()])).await;
    let only = engine.claim_one().await;
    assert_eq!([only.task_id()], call[..]);
    assert_eq!(engine.record(&[only.fails()]).await, []);
    let ended = StepContent::ChildrenEnded(vec![1]);
    fixture.must_record(done.step(&ended_name(WORK), 3, ended)).await;
    assert_eq!(engine.record(&[done.succeeds()]).await, []);
    let mut copy = new_task(WORK).after(HOUR);
    copy.add_context(KEPT_STEPS, &true).expect("a context");
    let copied = fixture.store.create_with_steps(&copy, done.task_id(), 3).await;
    copied.expect("create_with_steps");
}

/// A flow of which one task has failed, was retried, failed again and waits for its retry: one
/// that needs it is blocked again, and others have ended.
async fn flow(fixture: &Fixture, engine: &mut TestEngine) {
    let flow = Flow::new()
        .name("nightly \u{1F4A5}")
        .correlation("night 1")
        .add("a", new_task(WORK))
        .add("b", new_task(WORK).priority(3))
        .after("a")
        .add("c", new_task(WORK))
        .after_failure("a")
        .add("d", new_task(WORK))
        .after_end(["a", "b"]);
    let flow = flow.resolve().expect("a valid flow");
    let ids = fixture.store.create_flow(&flow).await.expect("create_flow").ids;
    let first = engine.claim_one().await;
    assert_eq!(first.task_id(), ids[0]);
    assert_eq!(engine.record(&[first.fails()]).await, []);
    assert_eq!(fixture.resume_parents(&ids[..1]).await, 2);
    engine.wake();
    for hold in engine.claim(2).await {
        assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    }
    fixture.store.retry(&ids[..1]).await.expect("retry");
    engine.wake();
    let again = engine.claim_one().await;
    let retry = again.fails_and_retries(Duration::from_secs(7200));
    assert_eq!(engine.record(&[retry]).await, []);
}

/// Limits of an operator: one with a closed key, and one in order whose key belongs to a task
/// that waits for its retry.
async fn limited_tasks(fixture: &Fixture) {
    let rate = Rate::new(1_000, HOUR).even();
    let api = LimitOptions::max(2).and_rate(rate).weight("acme", 3);
    for (name, options) in [("api", api), ("account", LimitOptions::in_order())] {
        fixture.store.set_limit(&Limit::named(name, options).expect("a limit")).await.expect("set");
    }
    let task = |limit: &str| new_task("limited").limit(limit, "acme").expect("a limit");
    let new = with_classes(new_instance("limited"), &[("limited", RetryRule::never())]);
    let mut engine = fixture.register(new).await;
    fixture.create(task("api")).await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    fixture.create(task("account")).await;
    fixture.create(task("account").after(HOUR)).await;
    engine.wake();
    let hold = engine.claim_one().await;
    let retry = hold.fails_and_retries(Duration::from_secs(7200));
    assert_eq!(engine.record(&[retry]).await, []);
    let limits = fixture.store.limits().await.expect("limits");
    let api = limits.iter().find(|row| row.limit.name == "api").expect("a limit");
    let closed = ClosedKey {
        limit: api.id,
        key: "acme".to_owned(),
        closed_for: HOUR,
        reason: "429 \u{1F4A5}".to_owned(),
    };
    fixture.store.close_limit_keys(&[closed]).await.expect("close_limit_keys");
    fixture.create(task("api").after(HOUR)).await;
    engine.unregister().await;
}

async fn late_results(fixture: &Fixture) {
    fixture.create_work(1).await;
    let mut zombie = fixture.engine("zombie").await;
    let hold = zombie.claim_one().await;
    assert!(fixture.declare_lost(zombie.id).await);
    assert_eq!(fixture.recover(zombie.id).await.len(), 1);
    assert_eq!(zombie.record(&[hold.succeeds()]).await, [hold.id()]);
}

async fn unique_and_correlated(fixture: &Fixture) {
    let by_key = |hours: u64| {
        let task = new_task("mail").after(Duration::from_secs(3600 * hours));
        task.unique(Unique::by("customer 7")).expect("a key")
    };
    let first = fixture.create(by_key(1)).await;
    fixture.store.cancel(&[first]).await.expect("cancel");
    // The key moves to this task.
    let parent = fixture.create(by_key(2)).await;
    let mut child = new_task("mail").after(Duration::from_secs(3600));
    child.add_context("parent_id", &parent.0).expect("a context");
    fixture.create(child.correlation(parent.0.to_string()).expect("a flow")).await;
    fixture.create(new_task("mail").correlation("order-7").expect("a flow")).await;
}

async fn schedules(fixture: &Fixture) {
    let schedules = Schedules::of(&*fixture.store);
    let hourly =
        |name: &str| Schedule::every(name, Duration::from_secs(3600)).new_task(new_task("report"));
    schedules.add(&hourly("hourly").overlap(Overlap::Wait)).await.expect("add");
    schedules.add(&hourly("stopped")).await.expect("add");
    schedules.pause("stopped", Some("audit")).await.expect("pause");
    schedules.run("stopped", None, Some("ada")).await.expect("run");
    // Moved into the past, so that it fires its last slot and skips two.
    let (row, now) = fixture.store.schedule("hourly").await.expect("schedule");
    let row = row.expect("a schedule");
    let mut state = row.state.clone();
    state.anchor = now - SignedDuration::from_mins(181);
    state.next_at = Some(now - SignedDuration::from_mins(121));
    let write = task_engine_core::schedule::row::ScheduleWrite {
        name: row.name.clone(),
        expected: Some(row.version),
        state,
    };
    assert!(fixture.store.write_schedule(&write).await.expect("write"));
    let due = fixture.store.due_schedules(10).await.expect("due");
    let firings: Vec<_> = due.rows.iter().filter_map(|due_one| fire(due_one, due.now)).collect();
    assert_eq!(fixture.store.fire_schedules(&firings).await.expect("fire"), [true]);
}

fn fire(
    due: &task_engine_core::schedule::row::DueSchedule,
    now: Timestamp,
) -> Option<task_engine_core::schedule::row::Firing> {
    firing(due, now).ok()
}

async fn left(fixture: &Fixture) -> Left {
    let rules =
        [(WORK, RetryRule::every(Duration::from_secs(3600), 3)), (ONCE, RetryRule::never())];
    let mut new = with_classes(new_instance("dead"), &rules);
    new.lease = LONG_LEASE;
    let mut dead = fixture.register(new).await;
    let retried = fixture.create(new_task(WORK).priority(9)).await;
    let cancelled = fixture.create(new_task(WORK).priority(9)).await;
    let once = fixture.create(new_task(ONCE).priority(9)).await;
    let holds = dead.claim(3).await;
    assert!(holds.iter().all(|hold| hold.task.priority == 9));
    let says = Report {
        id: holds[0].id(),
        version: 1,
        lines_total: 1,
        progress: None,
        lines: vec![LogLine::new(1, LogLevel::Error, "the last words")],
    };
    assert_eq!(fixture.store.report(&[says]).await.expect("report"), []);
    fixture.store.cancel(&[cancelled]).await.expect("cancel");
    assert!(fixture.declare_lost(dead.id).await);
    Left { retried, once, cancelled }
}
