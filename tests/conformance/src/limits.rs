//! Limits: no more attempts of a key run than its limit allows, and none fewer than it could.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptEnd, AttemptRecord, TaskError};
use task_engine_core::json::Json;
use task_engine_core::limit::{Limit, LimitChange, LimitOptions};
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::CancelReport;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK, new_task, task_ids};
use crate::waiting::{TIMEOUT, run_concurrently};

/// A task of [`WORK`] for this customer, due at once.
#[must_use]
pub fn of_customer(customer: &str) -> NewTask {
    let parameters = serde_json::json!({ "customer": customer }).to_string();
    NewTask::new(WORK, Json::parse(parameters).expect("JSON")).expect("a class")
}

/// So many tasks of each customer, one customer after the other.
#[must_use]
pub fn of_customers(customers: &[&str], count: usize) -> Vec<NewTask> {
    customers.iter().flat_map(|customer| vec![of_customer(customer); count]).collect()
}

/// A limit of [`WORK`] for each customer.
#[must_use]
pub fn per_customer(options: LimitOptions) -> LimitOptions {
    options.key("customer")
}

/// Sets a limit of [`WORK`], which must be new or another one.
pub async fn limit_work(fixture: &Fixture, options: LimitOptions) -> LimitChange {
    let limit = Limit::of_class(WORK, WORK, options).expect("a limit");
    let change = fixture.store.set_limit(&limit).await.expect("set_limit");
    assert!(matches!(change, LimitChange::Added | LimitChange::Changed), "{change:?}");
    change
}

/// Claims until there are so many, or nothing else can start.
pub async fn claim_some(engine: &mut TestEngine, count: usize) -> Vec<TestAttempt> {
    let mut holds = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    while holds.len() < count {
        let (some, rest) = engine.claim_up_to(count - holds.len()).await;
        holds.extend(some);
        match rest {
            ClaimRest::Nothing { .. } => break,
            ClaimRest::More => {}
            ClaimRest::Contended => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        assert!(Instant::now() < deadline, "claims never come to an end");
    }
    holds
}

/// How many attempts of each customer.
#[must_use]
pub fn by_customer(holds: &[TestAttempt]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for hold in holds {
        *counts.entry(customer(hold)).or_default() += 1;
    }
    counts
}

/// The customer of a task.
#[must_use]
pub fn customer(hold: &TestAttempt) -> String {
    let parameters: BTreeMap<String, String> = hold.task.parameters.decode().expect("parameters");
    parameters["customer"].clone()
}

/// Counts for [`by_customer`].
#[must_use]
pub fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(customer, count)| ((*customer).to_owned(), *count)).collect()
}

fn snoozes(hold: &TestAttempt, time: Duration) -> AttemptRecord {
    let error = TaskError::new(TaskError::SNOOZED, "later");
    hold.ends(AttemptEnd::Snoozed(error, time), &RetryRule::never())
}

/// A limit without a key holds for all tasks of a class. Tasks of other classes run.
pub async fn max_holds_for_all_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(3)).await;
    let ids = fixture.create_work(10).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(task_ids(&holds), ids[..3]);
    for hold in &holds {
        let limited = hold.task.limited.as_ref().expect("limits of the task");
        assert_eq!((limited.lane_key.0.len(), limited.start_before), (1, None));
        assert_eq!(limited.lane_key.0[0].1, "");
        assert_eq!(hold.task.queue, "default");
    }
    let (none, rest) = engine.claim_up_to(10).await;
    assert_eq!((none.len(), rest), (0, ClaimRest::Nothing { next_in: None }));
    assert_eq!(engine.record(&[holds[1].succeeds()]).await, []);
    assert_eq!(task_ids(&engine.claim_all(10).await), ids[3..4]);
}

/// A limit with a key holds for each value of the parameter, and blocks no other value.
pub async fn max_holds_for_each_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    fixture.create_all(&of_customers(&["a", "b", "c"], 5)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(20).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 2), ("b", 2), ("c", 2)]));
    let of_b = holds.iter().find(|hold| customer(hold) == "b").expect("a hold");
    assert_eq!(of_b.task.limited.as_ref().expect("limits").lane_key.0[0].1, "b");
    assert_eq!(engine.record(&[of_b.succeeds()]).await, []);
    assert_eq!(by_customer(&engine.claim_all(20).await), counts(&[("b", 1)]));
}

/// All engines together respect a limit, also on different handles.
pub async fn engines_share_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(3))).await;
    fixture.create_all(&of_customers(&["a", "b"], 9)).await;
    let (mut first, other) = (fixture.engine("first").await, Fixture::open(db).await);
    let mut second = other.engine("second").await;
    let mut holds = claim_some(&mut first, 2).await;
    holds.extend(claim_some(&mut second, 3).await);
    holds.extend(claim_some(&mut first, 20).await);
    holds.extend(claim_some(&mut second, 20).await);
    assert_eq!(by_customer(&holds), counts(&[("a", 3), ("b", 3)]));
}

/// However an attempt ends, its key is free after that, once.
pub async fn every_end_frees_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(1)).await;
    let ids = fixture.create_work(7).await;
    let mut engine = fixture.engine("a").await;
    let hour = Duration::from_secs(3600);
    for end in ["success", "failure", "retry", "snooze", "release", "cancel"] {
        let holds = engine.claim_all(10).await;
        let [hold] = &holds[..] else { panic!("one before the {end}, not {holds:?}") };
        let record = match end {
            "success" => hold.succeeds(),
            "failure" => hold.fails(),
            "retry" => hold.fails_and_retries(hour),
            "snooze" => snoozes(hold, hour),
            "release" => hold.is_released(),
            _ => {
                let requested = fixture.store.cancel(&[hold.task_id()]).await.expect("cancel");
                assert_eq!(requested, [CancelReport::Requested]);
                assert_eq!(engine.claim_all(10).await.len(), 0, "a request frees nothing");
                hold.is_cancelled()
            }
        };
        for _ in 0..2 {
            assert_eq!(engine.record(std::slice::from_ref(&record)).await, []);
        }
    }
    // The released task waits again, and its time is later than that of the last one.
    let last = engine.claim_all(10).await;
    assert_eq!(last.len(), 1);
    assert!(ids.contains(&last[0].task_id()));
}

/// A lost engine holds its keys until its attempts are recovered. A late result frees
/// nothing twice.
pub async fn recovery_frees_keys(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    fixture.create_all(&of_customers(&["a"], 6)).await;
    let mut lost = fixture.engine("lost").await;
    let held = lost.claim_all(10).await;
    assert_eq!(held.len(), 2);
    let mut engine = fixture.engine("engine").await;
    assert!(fixture.declare_lost(lost.id).await);
    assert_eq!(engine.claim_all(10).await.len(), 0, "not recovered yet");
    assert_eq!(fixture.recover(lost.id).await.len(), 2);
    assert_eq!(engine.claim_all(10).await.len(), 2);
    let late = lost.record(&[held[0].succeeds(), held[1].succeeds()]).await;
    assert_eq!(late.len(), 2);
    assert_eq!(engine.claim_all(10).await.len(), 0, "late results free nothing");
}

/// Claims whose reply was lost are released, and free their keys.
pub async fn unknown_claims_free_keys(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(2)).await;
    let ids = fixture.create_work(3).await;
    let mut engine = fixture.engine("a").await;
    let unknown = engine.claim_all(10).await;
    let claims = unknown.iter().map(|hold| hold.claim_id).collect();
    assert_eq!(engine.reclaim_unknown(claims).await.len(), 2);
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 2);
    assert!(task_ids(&holds).iter().all(|id| ids.contains(id)));
}

/// A limit of a queue counts tasks of all classes, and only those of its queue.
pub async fn queue_limit_counts_all_classes(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let limit = Limit::of_queue("queue.mail", "mail", LimitOptions::max(2)).expect("a limit");
    assert_eq!(fixture.store.set_limit(&limit).await.expect("set"), LimitChange::Added);
    let in_queue = |class: &str| new_task(class).queue("mail").expect("a queue");
    fixture.create_all(&[in_queue(WORK), in_queue("other"), in_queue(WORK), new_task(WORK)]).await;
    let rule = RetryRule::default();
    let both = [(WORK, rule), ("other", rule)];
    let mut new = crate::fixture::with_classes(crate::fixture::new_instance("a"), &both);
    new.queues.push("mail".to_owned());
    let mut engine = fixture.register(new).await;
    let holds = engine.claim_all(10).await;
    let mail: Vec<_> = holds.iter().filter(|hold| hold.task.queue == "mail").collect();
    assert_eq!((holds.len(), mail.len()), (3, 2));
    assert!(mail.iter().all(|hold| hold.task.limited.is_some()));
    assert_eq!(engine.record(&[mail[0].succeeds()]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 1);
}

/// A task starts only if all its limits allow it.
pub async fn limits_apply_together(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &fixture.store;
    for limit in [
        Limit::of_class("per-customer", WORK, per_customer(LimitOptions::max(2))),
        Limit::of_class("all", WORK, LimitOptions::max(5)),
        Limit::of_queue("queue", "default", LimitOptions::max(4)),
    ] {
        store.set_limit(&limit.expect("a limit")).await.expect("set_limit");
    }
    fixture.create_all(&of_customers(&["a", "b", "c", "d"], 3)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(20).await;
    assert_eq!(holds.len(), 4, "the queue");
    assert!(by_customer(&holds).values().all(|count| *count <= 2));
    store.clear_limit("queue").await.expect("clear");
    let more = engine.claim_all(20).await;
    assert_eq!(more.len(), 1, "all");
    store.clear_limit("all").await.expect("clear");
    let all = [holds, more, engine.claim_all(20).await].concat();
    assert_eq!(by_customer(&all), counts(&[("a", 2), ("b", 2), ("c", 2), ("d", 2)]));
}

/// A limit that is set while attempts run counts them, also if it was cleared before.
pub async fn running_attempts_count_for_new_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_all(&of_customers(&["a", "b"], 4)).await;
    let mut engine = fixture.engine("e").await;
    let plain = engine.claim(4).await;
    assert!(plain.iter().all(|hold| hold.task.limited.is_none()));
    limit_work(&fixture, per_customer(LimitOptions::max(3))).await;
    // Four of a run, which is more than the limit; they continue.
    let holds = engine.claim_all(10).await;
    assert_eq!(by_customer(&holds), counts(&[("b", 3)]));
    assert_eq!(engine.record(&[plain[0].succeeds()]).await, []);
    fixture.create(of_customer("a")).await;
    assert_eq!(engine.claim_all(10).await.len(), 0, "three of a run");
    assert_eq!(engine.record(&[plain[1].succeeds()]).await, []);
    assert_eq!(by_customer(&engine.claim_all(10).await), counts(&[("a", 1)]));

    fixture.store.clear_limit(WORK).await.expect("clear");
    fixture.create_all(&of_customers(&["a"], 2)).await;
    assert_eq!(engine.claim(2).await.len() + engine.claim_all(10).await.len(), 3);
    limit_work(&fixture, per_customer(LimitOptions::max(6))).await;
    fixture.create_all(&of_customers(&["a", "b"], 9)).await;
    // Five of a and four of b run.
    assert_eq!(by_customer(&engine.claim_all(20).await), counts(&[("a", 1), ("b", 2)]));
}

/// A lower limit stops no attempt, and starts none before there is room. A higher one
/// starts more at once. Without it, all tasks start.
pub async fn limit_changes_at_run_time(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(4)).await;
    fixture.create_work(12).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim_all(20).await;
    assert_eq!(holds.len(), 4);
    assert_eq!(limit_work(&fixture, LimitOptions::max(2)).await, LimitChange::Changed);
    for hold in &holds[..2] {
        assert_eq!(engine.record(&[hold.succeeds()]).await, []);
        assert_eq!(engine.claim_all(20).await.len(), 0, "two or more run");
    }
    assert_eq!(engine.record(&[holds[2].succeeds()]).await, []);
    assert_eq!(engine.claim_all(20).await.len(), 1);
    limit_work(&fixture, LimitOptions::max(5)).await;
    assert_eq!(engine.claim_all(20).await.len(), 3);
    fixture.store.clear_limit(WORK).await.expect("clear");
    assert_eq!(engine.claim_all(20).await.len(), 4, "all that are left");
}

/// Limits do not change the order of priorities, and a blocked task of a high priority does
/// not block others.
pub async fn priorities_come_first(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let low = fixture.create_all(&of_customers(&["a", "b", "c"], 1)).await;
    let high = [of_customer("a").priority(5), of_customer("b").priority(9)];
    let high = fixture.create_all(&high).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(task_ids(&claim_some(&mut engine, 1).await), high[1..]);
    assert_eq!(task_ids(&claim_some(&mut engine, 1).await), high[..1]);
    assert_eq!(task_ids(&engine.claim_all(10).await), low[2..]);
}

/// Tasks with limits and tasks without take turns within a priority.
pub async fn plain_tasks_get_their_turn(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(50))).await;
    let rule = RetryRule::default();
    fixture.create_all(&of_customers(&["a", "b"], 20)).await;
    fixture.create_all(&vec![new_task("plain"); 20]).await;
    let classes = [(WORK, rule), ("plain", rule)];
    let new = crate::fixture::with_classes(crate::fixture::new_instance("e"), &classes);
    let mut engine = fixture.register(new).await;
    let plain = |holds: &[TestAttempt]| holds.iter().filter(|h| h.task.class == "plain").count();
    let mut holds = claim_some(&mut engine, 10).await;
    holds.extend(claim_some(&mut engine, 10).await);
    assert_eq!((holds.len(), plain(&holds)), (20, 10));
    let mut one_by_one = Vec::new();
    for _ in 0..10 {
        one_by_one.extend(claim_some(&mut engine, 1).await);
    }
    assert_eq!((one_by_one.len(), plain(&one_by_one)), (10, 5));
    let rest = engine.claim_all(50).await;
    assert_eq!((rest.len(), plain(&rest)), (30, 5));
}

/// A paused queue starts no task, and continues within its limits.
pub async fn paused_queue_starts_no_limited_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(2)).await;
    fixture.create_work(5).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim_all(10).await;
    let pause = task_engine_core::queue::QueuePause::new("default", None).expect("a pause");
    assert!(fixture.store.pause_queue(&pause).await.expect("pause"));
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0, "paused");
    assert!(fixture.store.resume_queue("default").await.expect("resume"));
    engine.wake();
    assert_eq!(engine.claim_all(10).await.len(), 2);
}

/// A task that is due later starts later, and the claim reports when.
pub async fn future_limited_task_waits(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let hour = Duration::from_secs(3600);
    fixture.create(of_customer("a").after(hour)).await;
    let now = fixture.create(of_customer("a")).await;
    let mut engine = fixture.engine("e").await;
    let (holds, _) = engine.claim_up_to(10).await;
    assert_eq!(task_ids(&holds), [now]);
    let (none, rest) = engine.claim_up_to(10).await;
    let ClaimRest::Nothing { next_in: Some(next_in) } = rest else { panic!("{rest:?}") };
    assert!(none.is_empty() && next_in <= hour && next_in > hour / 2, "{next_in:?}");
}

/// Waiting tasks with limits can be cancelled, edited, retried and removed as others. An
/// edited parameter changes the key.
pub async fn waiting_limited_tasks_can_be_changed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let ids = fixture.create_all(&of_customers(&["a"], 4)).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(task_ids(&engine.claim_all(10).await), ids[..1], "the others are in their lane");
    let cancelled = fixture.store.cancel(&ids[1..2]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled]);
    let edit = task_engine_core::change::Edit {
        parameters: Some(Json::parse(r#"{"customer": "b"}"#).expect("JSON")),
        ..Default::default()
    };
    fixture.store.edit(ids[3], &edit).await.expect("edit");
    let holds = engine.claim_all(10).await;
    assert_eq!(task_ids(&holds), ids[3..], "another key");
    assert_eq!(customer(&holds[0]), "b");
    let removed = fixture.store.delete(&ids[1..2]).await.expect("delete");
    assert_eq!(removed, [task_engine_core::change::DeleteReport::Deleted]);
    assert_eq!(fixture.status(ids[2]).await, TaskStatus::Waiting);
    let cancelled = fixture.store.cancel(&ids[2..3]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled]);
    assert_eq!(engine.claim_all(10).await.len(), 0);
}

/// Many engines on several handles claim and end attempts in every way, while operators
/// change the limit. At no time do more attempts of a key run than its highest limit.
pub async fn limits_hold_under_load(db: &dyn TestDatabase) {
    const MAX: usize = 3;
    const ALL: usize = 7;
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(3))).await;
    let all = Limit::of_class("all", WORK, LimitOptions::max(7)).expect("a limit");
    fixture.store.set_limit(&all).await.expect("set");
    let customers = ["a", "b", "c", "d"];
    let ids = fixture.create_all(&of_customers(&customers, 60)).await;
    let running: Arc<[AtomicUsize; 5]> = Arc::default();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut engines = Vec::new();
    for n in 0..6 {
        let handle = Fixture::open(db).await;
        let mut engine = handle.engine(&format!("engine-{n}")).await;
        let (running, ended, count) = (running.clone(), ended.clone(), ids.len());
        engines.push(async move {
            let deadline = Instant::now() + TIMEOUT;
            while ended.load(Ordering::SeqCst) < count {
                assert!(Instant::now() < deadline, "not all tasks end");
                let (holds, _) = engine.claim_up_to(fastrand::usize(1..6)).await;
                for hold in &holds {
                    let place = customers.iter().position(|one| *one == customer(hold));
                    let place = place.expect("a customer");
                    let now = running[place].fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= MAX, "{now} attempts of {} run", customers[place]);
                    let now = running[4].fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= ALL, "{now} attempts run");
                }
                tokio::task::yield_now().await;
                for hold in holds {
                    let place = customers.iter().position(|one| *one == customer(&hold));
                    running[place.expect("a customer")].fetch_sub(1, Ordering::SeqCst);
                    running[4].fetch_sub(1, Ordering::SeqCst);
                    let record = match fastrand::u8(0..4) {
                        0 => hold.fails_and_retries(Duration::ZERO),
                        1 => hold.is_released(),
                        _ => hold.succeeds(),
                    };
                    let ends = record.error.is_none();
                    assert_eq!(engine.record(&[record]).await, []);
                    ended.fetch_add(usize::from(ends), Ordering::SeqCst);
                }
            }
        });
    }
    let operator = Fixture::open(db).await;
    let (changes, count) = (ended.clone(), ids.len());
    let change = async move {
        // A claim that sees another version of the limits begins again, so a change waits
        // for some endings.
        for max in (0_u32..).map(|n| 1 + n % 3) {
            limit_work(&operator, per_customer(LimitOptions::max(max))).await;
            let before = changes.load(Ordering::SeqCst);
            while changes.load(Ordering::SeqCst) < (before + 3).min(count) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if changes.load(Ordering::SeqCst) >= count {
                break;
            }
        }
    };
    let change = tokio::spawn(change);
    run_concurrently(engines).await;
    change.await.expect("changes");
    let is_done = |id: &TaskId| fixture.status(*id);
    for id in &ids {
        assert_eq!(is_done(id).await, TaskStatus::Stopped);
    }
}
