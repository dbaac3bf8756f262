//! Children of durable tasks: they are created once, and their parent continues once, after
//! the last of them has ended.

use std::time::Duration;

use task_engine_core::attempt::{AttemptEnd, RetryAdvice};
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::retry::RetryRule;
use task_engine_core::step::{
    ChildOutcome, SignalStatus, StepContent, StepKind, StepOutcome, SuspendOutcome, Suspension,
    is_awaited,
};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::Unique;
use task_engine_store::contract::{CancelReport, WakeUp};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::durable::{HOUR, awaited, child, held, held_task, json};
use crate::fixture::{
    Fixture, TestAttempt, TestEngine, WORK, new_instance, new_task, sample_error, task_ids,
    with_classes,
};
use crate::wake_ups::Listener;

/// A parent that is suspended until its children end, and the attempts of these.
struct Family {
    fixture: Fixture,
    engine: TestEngine,
    parent: TestAttempt,
    children: Vec<TestAttempt>,
}

async fn family(db: &dyn TestDatabase, count: usize) -> Family {
    let (fixture, mut engine, parent) = held(db).await;
    let ids = fixture.call(&parent.call(WORK, 1, vec![child(); count])).await;
    let mut children = Vec::new();
    for _ in 0..count {
        children.push(engine.claim_one().await);
    }
    assert_eq!(task_ids(&children), ids);
    let outcome = fixture.suspend(parent.waits_for_children()).await;
    assert_eq!(outcome, SuspendOutcome::Suspended(Some(ids[0])), "the first is watched");
    Family { fixture, engine, parent, children }
}

impl Family {
    /// A child succeeds.
    async fn end(&self, n: usize) {
        assert_eq!(self.engine.record(&[self.children[n].succeeds()]).await, []);
    }

    /// Tells that a child has ended. Returns how many parents are due.
    async fn tell(&self, n: usize) -> u64 {
        self.fixture.resume_parents(&[self.children[n].task_id()]).await
    }

    /// The parent continues, once.
    async fn parent_continues(&mut self) -> TestAttempt {
        let again = self.engine.continues(&self.parent).await;
        assert!(!self.engine.sees_suspended_tasks().await);
        again
    }
}

/// A call creates its children once, with their context, and records their ids.
pub async fn call_creates_children_once(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    let mut call = hold.call("mail#2", 3, vec![child().priority(7), child(), child()]);
    let outcome = fixture.store.record_call(&call).await.expect("record_call");
    let StepOutcome::Recorded { now, until: None, signal: None, children } = outcome else {
        panic!("{outcome:?}")
    };
    let steps = fixture.steps(hold.task_id()).await.steps;
    let [step] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((step.name.as_str(), step.number, step.attempt), ("mail#2", 3, 1));
    assert_eq!((step.kind, step.recorded_at), (StepKind::Call, now));
    assert_eq!(step.children(), children);

    call.children.truncate(1);
    for _ in 0..2 {
        let again = fixture.store.record_call(&call).await.expect("record_call");
        assert_eq!(again, StepOutcome::Exists);
    }
    let result = fixture.record_step(hold.result("mail#2", 4)).await;
    assert_eq!(result, StepOutcome::Exists, "one name, also of different kinds");
    assert_eq!(fixture.count_of(WORK).await, 4);
    let mut claimed = engine.claim_all(10).await;
    claimed.sort_by_key(TestAttempt::task_id);
    assert_eq!(task_ids(&claimed), children);
    assert!(claimed.iter().all(|one| is_awaited(&one.task.context)), "{claimed:?}");
    assert_eq!(claimed[0].task.priority, 7);
    // The children are watched in the order of their ids.
    let outcome = fixture.suspend(hold.waits_for_children()).await;
    assert_eq!(outcome, SuspendOutcome::Suspended(children.iter().min().copied()));
}

/// A call without children, or with thousands of them.
pub async fn call_of_any_size_is_recorded(db: &dyn TestDatabase) {
    let (fixture, mut engine, hold) = held(db).await;
    assert_eq!(fixture.call(&hold.call("none", 1, vec![])).await, []);
    assert_eq!(fixture.suspend(hold.waits_for_children()).await, SuspendOutcome::Suspended(None));
    let hold = engine.continues(&hold).await;
    let many = fixture.call(&hold.call("many", 2, vec![child(); 3000])).await;
    assert_eq!(fixture.suspend(hold.waits_for_children()).await, watching(many[0]));
    let holds = engine.claim_all(1000).await;
    assert_eq!(holds.len(), many.len());
    let ends: Vec<_> = holds.iter().rev().map(TestAttempt::succeeds).collect();
    engine.record(&ends[..2999]).await;
    assert_eq!(fixture.resume_parents(&many[1..]).await, 0);
    engine.record(&ends[2999..]).await;
    assert_eq!(fixture.resume_parents(&many).await, 1);
    engine.continues(&hold).await;
    let asked: Vec<_> = many.iter().map(|id| (*id, None)).collect();
    let outcomes = fixture.store.child_outcomes(&asked).await.expect("child_outcomes");
    let ended: Vec<_> = outcomes.into_iter().map(|one| one.expect("ended").id).collect();
    assert_eq!(ended, many, "in the order of the question");
}

fn watching(id: TaskId) -> SuspendOutcome {
    SuspendOutcome::Suspended(Some(id))
}

/// A child with the unique key of its parent would be the parent itself.
pub async fn parent_is_not_its_child(db: &dyn TestDatabase) {
    let unique = |task: NewTask| task.unique(Unique::by("one")).expect("a key");
    let (fixture, _engine, hold) = held_task(db, unique(new_task(WORK))).await;
    let call = hold.call(WORK, 1, vec![child(), awaited(unique(new_task(WORK)))]);
    let refused = fixture.store.record_call(&call).await;
    let Err(StoreError::Refused(message)) = refused else { panic!("{refused:?}") };
    let expected =
        format!("task {} cannot wait for itself: a child has its unique key", hold.task_id());
    assert_eq!(message, expected);
    assert_eq!(fixture.count_of(WORK).await, 1, "nothing was created");
    assert_eq!(fixture.steps(hold.task_id()).await.steps, []);
    fixture.must_record(hold.result("pay", 1)).await;
}

/// A unique child that exists already is awaited, too, by several parents.
pub async fn shared_child_resumes_all_parents(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let parents = engine.claim(3).await;
    let shared = || awaited(new_task(WORK).unique(Unique::by("shared")).expect("a key"));
    let mut ids = Vec::new();
    for parent in &parents {
        // Twice in one call, too.
        ids.extend(fixture.call(&parent.call(WORK, 1, vec![shared(), shared()])).await);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let all: Vec<_> = parents.iter().map(TestAttempt::waits_for_children).collect();
    let outcomes = fixture.store.suspend(&all).await.expect("suspend");
    assert_eq!(outcomes, [watching(ids[0]); 3]);
    let only = engine.claim_one().await;
    engine.record(&[only.succeeds()]).await;
    assert_eq!(fixture.resume_parents(&ids).await, 3);
    let mut again = task_ids(&engine.claim(3).await);
    again.sort_unstable();
    assert_eq!(again, task_ids(&parents));
}

/// The parent continues after its last child, whatever the order of the ends.
pub async fn parent_continues_after_last_child(db: &dyn TestDatabase) {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (fixture, mut engine, parent) = {
            let fixture = Fixture::open(db).await;
            fixture.create_work(1).await;
            let name = order.map(|n: usize| n.to_string()).concat();
            let mut engine = fixture.engine(&name).await;
            let parent = engine.claim_one().await;
            (fixture, engine, parent)
        };
        let ids = fixture.call(&parent.call(WORK, 1, vec![child(); 3])).await;
        let children = engine.claim(3).await;
        assert_eq!(fixture.suspend(parent.waits_for_children()).await, watching(ids[0]));
        // A hint without an end changes nothing.
        assert_eq!(fixture.resume_parents(&ids).await, 0);
        for (n, ended) in order.into_iter().enumerate() {
            engine.record(&[children[ended].succeeds()]).await;
            let due = fixture.resume_parents(&[ids[ended]]).await;
            assert_eq!(due, u64::from(n == 2), "{order:?}: {n}");
        }
        assert_eq!(fixture.resume_parents(&ids).await, 0, "once");
        engine.continues(&parent).await;
    }
}

/// The end of the children wakes engines.
pub async fn last_child_wakes_engines(db: &dyn TestDatabase) {
    let mut family = family(db, 2).await;
    family.engine.has_no_work().await;
    let listener = Listener::begin(db.open().await).await;
    family.end(0).await;
    assert_eq!(family.tell(0).await, 0);
    family.end(1).await;
    listener.forget();
    assert_eq!(family.tell(1).await, 1);
    listener.hears(WakeUp::Work).await;
    family.engine.wake();
    family.parent_continues().await;
}

/// Children that have ended before the suspension are not waited for.
pub async fn suspension_sees_ended_children(db: &dyn TestDatabase) {
    let (fixture, mut engine, parent) = held(db).await;
    let ids = fixture.call(&parent.call(WORK, 1, vec![child(), child()])).await;
    let children = engine.claim(2).await;
    engine.record(&[children[0].succeeds()]).await;
    assert_eq!(fixture.resume_parents(&ids[..1]).await, 0, "the parent runs");
    assert_eq!(fixture.suspend(parent.waits_for_children()).await, watching(ids[1]));
    // The reply was lost: the engine still has to know which child is watched.
    assert_eq!(fixture.suspend(parent.waits_for_children()).await, watching(ids[1]));
    engine.record(&[children[1].fails()]).await;
    assert_eq!(fixture.resume_parents(&ids[1..]).await, 1);
    let parent = engine.continues(&parent).await;
    // Another attempt finds all of them ended.
    assert_eq!(fixture.suspend(parent.waits_for_children()).await, SuspendOutcome::Suspended(None));
    engine.continues(&parent).await;
}

/// A child that is cancelled while it waits, or that fails with its engine, has ended:
/// the operation itself resumes the parent.
pub async fn operations_resume_parents(db: &dyn TestDatabase) {
    let rules = [(WORK, RetryRule::never())];
    let (fixture, mut engine, parent) = held(db).await;
    let ids = fixture.call(&parent.call(WORK, 1, vec![child(), child(), child()])).await;
    let mut lost = fixture.register(with_classes(new_instance("lost"), &rules)).await;
    let held = lost.claim_one().await;
    assert_eq!(held.task_id(), ids[0]);
    assert_eq!(fixture.suspend(parent.waits_for_children()).await, watching(ids[0]));
    assert!(fixture.declare_lost(lost.id).await);
    assert_eq!(fixture.recover(lost.id).await.len(), 1);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Failed);
    let cancelled = fixture.store.cancel(&ids[1..]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled; 2]);
    let parent = engine.continues(&parent).await;

    // The same in the other order.
    let ids = fixture.call(&parent.call("work#2", 2, vec![child(), child()])).await;
    let mut lost = fixture.register(with_classes(new_instance("lost too"), &rules)).await;
    lost.claim_one().await;
    assert_eq!(fixture.suspend(parent.waits_for_children()).await, watching(ids[0]));
    fixture.store.cancel(&ids[1..]).await.expect("cancel");
    engine.has_no_work().await;
    assert!(fixture.declare_lost(lost.id).await);
    assert_eq!(fixture.recover(lost.id).await.len(), 1);
    engine.continues(&parent).await;
}

/// A removed child has ended.
pub async fn removed_child_has_ended(db: &dyn TestDatabase) {
    let mut family = family(db, 2).await;
    for n in [0, 1] {
        family.end(n).await;
        let id = family.children[n].task_id();
        family.engine.finish(family.children[n].claim_id).await;
        let deleted = family.fixture.store.delete(&[id]).await.expect("delete");
        assert_eq!(deleted, [DeleteReport::Deleted]);
        assert_eq!(family.tell(n).await, u64::from(n == 1));
    }
    let parent = family.parent_continues().await;
    assert_eq!(
        family.fixture.suspend(parent.waits_for_children()).await,
        SuspendOutcome::Suspended(None)
    );
}

/// A parent is found whose engine died before it told about the last child; and suspended
/// tasks are read in pages.
pub async fn missed_end_is_found(db: &dyn TestDatabase) {
    let mut family = family(db, 2).await;
    let store = family.fixture.store.clone();
    let parent = family.parent.task_id();
    let page = async |after, limit| store.resume_missed(after, limit).await.expect("resume_missed");
    family.end(0).await;
    assert_eq!(page(TaskId(0), 10).await, None);
    family.engine.has_no_work().await;
    // The first child is not watched any more, so that the end of the second is seen.
    family.end(1).await;
    assert_eq!(page(parent, 10).await, None, "only tasks after this one");
    family.engine.has_no_work().await;
    assert_eq!(page(TaskId(0), 1).await, Some(parent), "there may be more");
    assert_eq!(page(parent, 1).await, None);
    family.parent_continues().await;
}

/// After the first look the next child is watched: the end of the last one alone resumes
/// the parent.
pub async fn missed_end_moves_watch(db: &dyn TestDatabase) {
    let mut family = family(db, 3).await;
    family.end(0).await;
    family.fixture.resume_missed().await;
    family.end(2).await;
    assert_eq!(family.tell(2).await, 0);
    family.end(1).await;
    assert_eq!(family.tell(1).await, 1);
    family.parent_continues().await;
}

/// A task may wait for a signal and its children: the first of both wakes it.
pub async fn signal_wakes_parent(db: &dyn TestDatabase) {
    let (fixture, mut engine, parent) = held(db).await;
    let ids = fixture.call(&parent.call(WORK, 1, vec![child()])).await;
    let children = engine.claim(1).await;
    let both = |hold: &TestAttempt| {
        let mut both = hold.waits_for(&["stop"]);
        both.children_from = Some(ids[0]);
        both
    };
    assert_eq!(fixture.suspend(both(&parent)).await, watching(ids[0]));
    assert_eq!(fixture.signal(parent.task_id(), "stop", "1").await, SignalStatus::Delivered);
    engine.continues(&parent).await;
    engine.record(&[children[0].succeeds()]).await;
    assert_eq!(fixture.resume_parents(&ids).await, 0, "it runs");
}

/// A parent waits only for the children of its pending call.
pub async fn earlier_children_are_not_awaited(db: &dyn TestDatabase) {
    let (fixture, mut engine, parent) = held(db).await;
    fixture.call(&parent.call(WORK, 1, vec![child()])).await;
    let ids = fixture.call(&parent.call("work#2", 2, vec![child(), child()])).await;
    let children = engine.claim(3).await;
    let from = Some(ids[0]);
    let pending = Suspension { children_from: from, ..parent.waits_for(&[]) };
    assert_eq!(fixture.suspend(pending).await, watching(ids[0]));
    engine.record(&[children[1].succeeds()]).await;
    assert_eq!(fixture.resume_parents(&ids[..1]).await, 0);
    engine.record(&[children[2].succeeds()]).await;
    assert_eq!(fixture.resume_parents(&ids[1..]).await, 1);
    let parent = engine.continues(&parent).await;
    let pending = Suspension { children_from: from, ..parent.waits_for(&[]) };
    assert_eq!(fixture.suspend(pending).await, SuspendOutcome::Suspended(None));
    engine.continues(&parent).await;
}

/// An edit keeps the due time of a suspended parent, and its last child still wakes it.
pub async fn edited_parent_stays_suspended(db: &dyn TestDatabase) {
    let mut family = family(db, 1).await;
    let id = family.parent.task_id();
    let due = family.fixture.details(id).await.row.scheduled_at;
    let edit = Edit { parameters: Some(json(r#"{"a":1}"#)), ..Edit::default() };
    let edited = family.fixture.store.edit(id, &edit).await.expect("edit");
    assert_eq!(edited, EditReport::Changed);
    assert_eq!(family.fixture.details(id).await.row.scheduled_at, due);
    family.engine.has_no_work().await;
    family.end(0).await;
    assert_eq!(family.tell(0).await, 1);
    let again = family.parent_continues().await;
    assert_eq!(again.task.parameters.as_str().replace(' ', ""), r#"{"a":1}"#);
}

/// Outcomes are those of the newest attempt, or of the one that is asked for.
pub async fn outcomes_are_read_by_attempt(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(3).await;
    engine.record(&[holds[0].fails(), holds[1].fails_and_retries(HOUR)]).await;
    let ask = async |id: TaskId, attempt| {
        let outcomes = fixture.store.child_outcomes(&[(id, attempt)]).await;
        outcomes.expect("child_outcomes").remove(0)
    };
    let failed = ChildOutcome {
        id: ids[0],
        attempt: 1,
        status: Some(TaskStatus::Failed),
        result: None,
        error: Some(sample_error()),
    };
    assert_eq!(ask(ids[0], None).await, Some(failed.clone()));
    fixture.store.retry(&[ids[0]]).await.expect("retry");
    let again = engine.claim_one().await;
    let done = AttemptEnd::Success(json("[7]"));
    engine.record(&[again.ends(done, &RetryRule::never())]).await;
    let newest = ChildOutcome {
        id: ids[0],
        attempt: 2,
        status: Some(TaskStatus::Stopped),
        result: Some(json("[7]")),
        error: None,
    };
    assert_eq!(ask(ids[0], None).await, Some(newest.clone()));
    assert_eq!(ask(ids[0], Some(1)).await, Some(failed));
    assert_eq!(ask(ids[0], Some(2)).await, Some(newest.clone()));
    assert_eq!(ask(ids[1], None).await, None, "it waits for a retry");
    assert_eq!(ask(ids[1], Some(1)).await, None, "that attempt did not end it");
    assert_eq!(ask(ids[2], None).await, None, "it runs");

    let removed = TaskId(9_000_000);
    let both = [(removed, None), (ids[0], None), (removed, Some(3)), (ids[2], None)];
    let outcomes = fixture.store.child_outcomes(&both).await.expect("child_outcomes");
    assert_eq!(outcomes[1], Some(newest));
    assert_eq!(outcomes[3], None);
    for outcome in [&outcomes[0], &outcomes[2]] {
        let outcome = outcome.as_ref().expect("removed");
        assert_eq!((outcome.id, outcome.attempt, outcome.status), (removed, 0, None));
        let error = outcome.error.as_ref().expect("a reason");
        assert_eq!(error.message, format!("task {removed} was removed"));
    }
    fixture.store.cancel(&ids[1..2]).await.expect("cancel");
    let cancelled = ask(ids[1], None).await.expect("ended");
    assert_eq!((cancelled.attempt, cancelled.status), (2, Some(TaskStatus::Cancelled)));
}

/// Retention keeps children while their parent may read their results: until it has
/// succeeded, because an operator may retry it, or is removed. The rows about a parent are
/// removed with it.
pub async fn retention_keeps_children_for_parent(db: &dyn TestDatabase) {
    let mut family = family(db, 2).await;
    let (fixture, id) = (family.fixture.clone(), family.parent.task_id());
    let prune = async || {
        let mut removed = 0;
        for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
            removed += fixture.store.prune(status, Duration::ZERO, 100).await.expect("prune");
        }
        removed
    };
    let parent = &family.parent;
    assert_eq!(fixture.signal(id, "early", "1").await, SignalStatus::Kept);
    for n in [0, 1] {
        family.end(n).await;
    }
    for hold in family.children.iter().chain([parent]) {
        family.engine.finish(hold.claim_id).await;
    }
    assert_eq!(prune().await, 0, "the parent is suspended");
    assert_eq!(family.tell(0).await, 1);
    let parent = family.parent_continues().await;
    assert_eq!(prune().await, 0, "the parent runs");
    let fails = AttemptEnd::Failure(sample_error(), RetryAdvice::NoRetry);
    family.engine.record(&[parent.ends(fails, &RetryRule::never())]).await;
    family.engine.finish(parent.claim_id).await;
    let stopped = fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 100).await;
    assert_eq!(stopped.expect("prune"), 0, "the parent has failed");
    fixture.store.retry(&[id]).await.expect("retry");
    assert_eq!(prune().await, 0, "the parent waits again");
    let parent = family.engine.continues(&parent).await;
    assert_eq!(prune().await, 0, "the parent runs again");

    fixture.must_record(parent.step("nap", 2, StepContent::SleepFor(HOUR))).await;
    family.engine.record(&[parent.succeeds()]).await;
    family.engine.finish(parent.claim_id).await;
    assert_eq!(prune().await, 3);
    let rows = fixture.steps(id).await;
    assert_eq!((rows.steps, rows.signals), (vec![], vec![]));
}

/// A suspended task that is cancelled and removed leaves no row of its suspension.
pub async fn removed_task_leaves_no_suspension(db: &dyn TestDatabase) {
    let family = family(db, 1).await;
    let (fixture, id) = (&family.fixture, family.parent.task_id());
    family.engine.finish(family.parent.claim_id).await;
    fixture.store.cancel(&[id]).await.expect("cancel");
    let deleted = fixture.store.delete(&[id]).await.expect("delete");
    assert_eq!(deleted, [DeleteReport::Deleted]);
    assert!(!family.engine.sees_suspended_tasks().await);
    family.end(0).await;
    assert_eq!(family.tell(0).await, 0);
}
