//! Order and fairness: tasks in order run one at a time, and keys share the workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptEnd, NextState, TaskError};
use task_engine_core::change::Edit;
use task_engine_core::json::Json;
use task_engine_core::limit::{ClosedKey, Limit, LimitId, LimitOptions};
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_store::contract::{CancelReport, RetryReport};

use crate::TestDatabase;
use crate::durable::HOUR;
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK, task_ids};
use crate::limits::{
    by_customer, claim_some, counts, customer, limit_work, of_customer, of_customers, per_customer,
};
use crate::waiting::{TIMEOUT, run_concurrently};

/// A store whose tasks run in order for each customer, and three tasks of a, then one of b.
async fn in_order(db: &dyn TestDatabase) -> (Fixture, TestEngine, Vec<TaskId>) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::in_order())).await;
    let tasks = [of_customers(&["a"], 3), of_customers(&["b"], 1)].concat();
    let ids = fixture.create_all(&tasks).await;
    let engine = fixture.engine("e").await;
    (fixture, engine, ids)
}

/// Claims the only task that can start.
async fn only(engine: &mut TestEngine) -> TestAttempt {
    let mut holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 1, "{holds:?}");
    holds.remove(0)
}

fn attempt_of(holds: &[TestAttempt], id: TaskId) -> &TestAttempt {
    holds.iter().find(|hold| hold.task_id() == id).expect("an attempt")
}

async fn close(fixture: &Fixture, limit: LimitId, key: &str) {
    let (key, reason) = (key.to_owned(), "busy".to_owned());
    let closed = ClosedKey { limit, key, closed_for: HOUR, reason };
    fixture.store.close_limit_keys(&[closed]).await.expect("close_limit_keys");
}

/// One task of a key at a time, in the order of time and id.
pub async fn tasks_run_in_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::in_order())).await;
    let due = |secs: i64| jiff::Timestamp::from_second(1_000_000_000 + secs).expect("a time");
    let tasks: Vec<NewTask> = (0..40_i64)
        .map(|n| of_customer(if n % 3 == 0 { "a" } else { "b" }).at(due((n * 7) % 5)))
        .collect();
    let ids = fixture.create_all(&tasks).await;
    let mut expected: Vec<_> =
        ids.iter().enumerate().map(|(n, id)| ((n * 7) % 5, *id, n % 3 == 0)).collect();
    expected.sort();
    let mut engine = fixture.engine("e").await;
    let mut ran = Vec::new();
    loop {
        let holds = engine.claim_all(10).await;
        if holds.is_empty() {
            break;
        }
        assert!(by_customer(&holds).values().all(|count| *count == 1), "{holds:?}");
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        assert_eq!(engine.record(&endings).await, []);
        ran.extend(holds);
    }
    for (name, is_a) in [("a", true), ("b", false)] {
        let ran: Vec<_> = ran.iter().filter(|hold| customer(hold) == name).cloned().collect();
        let expected = expected.iter().filter(|(.., of_a)| *of_a == is_a).map(|(_, id, _)| *id);
        assert_eq!(task_ids(&ran), expected.collect::<Vec<_>>(), "{name}");
    }
}

/// A task that failed and waits for its retry blocks its key, and no other.
pub async fn failing_head_blocks_its_key(db: &dyn TestDatabase) {
    let (fixture, mut engine, ids) = in_order(db).await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 2);
    let (a, b) = (attempt_of(&holds, ids[0]), attempt_of(&holds, ids[3]));
    assert_eq!(engine.record(&[a.fails_and_retries(HOUR), b.succeeds()]).await, []);
    let next_of_b = fixture.create(of_customer("b")).await;
    assert_eq!(only(&mut engine).await.task_id(), next_of_b);
    let advanced = fixture.store.retry(&ids[..1]).await.expect("retry");
    assert_eq!(advanced, [RetryReport::Advanced]);
    let again = only(&mut engine).await;
    assert_eq!((again.task_id(), again.id().attempt), (ids[0], 2));
    assert_eq!(engine.record(&[again.fails_and_retries(Duration::ZERO)]).await, []);
    let again = only(&mut engine).await;
    assert_eq!((again.task_id(), again.id().attempt), (ids[0], 3));
    assert_eq!(engine.record(&[again.fails()]).await, [], "failed, without a retry");
    assert_eq!(only(&mut engine).await.task_id(), ids[1]);
}

/// A snoozed task blocks its key.
pub async fn snoozed_head_blocks_its_key(db: &dyn TestDatabase) {
    let (fixture, mut engine, ids) = in_order(db).await;
    let holds = engine.claim_all(10).await;
    let error = TaskError::new(TaskError::SNOOZED, "later");
    let snooze = AttemptEnd::Snoozed(error, HOUR);
    let snoozed = attempt_of(&holds, ids[0]).ends(snooze, &RetryRule::never());
    assert_eq!(engine.record(&[snoozed]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0);
    // Cancelled while it waits: the key is free.
    let cancelled = fixture.store.cancel(&ids[..1]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled]);
    assert_eq!(only(&mut engine).await.task_id(), ids[1]);
}

/// A suspended task blocks its key until it has ended, and continues when its signal arrives.
pub async fn suspended_head_blocks_its_key(db: &dyn TestDatabase) {
    let (fixture, mut engine, ids) = in_order(db).await;
    let holds = engine.claim_all(10).await;
    fixture.suspend(attempt_of(&holds, ids[0]).waits_for(&["paid"])).await;
    assert_eq!(engine.claim_all(10).await.len(), 0);
    fixture.signal(ids[0], "paid", "1").await;
    let again = only(&mut engine).await;
    assert_eq!((again.task_id(), again.id().attempt), (ids[0], 2));
    assert_eq!(engine.record(&[again.succeeds()]).await, []);
    assert_eq!(only(&mut engine).await.task_id(), ids[1]);
}

/// A suspended task does not count for a maximum, and needs room to continue.
pub async fn suspended_task_frees_its_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(1)).await;
    let ids = fixture.create_work(2).await;
    let mut engine = fixture.engine("e").await;
    let first = only(&mut engine).await;
    fixture.suspend(first.waits_for(&["paid"])).await;
    let second = only(&mut engine).await;
    assert_eq!(second.task_id(), ids[1]);
    fixture.signal(ids[0], "paid", "1").await;
    assert_eq!(engine.claim_all(10).await.len(), 0, "the other one runs");
    assert_eq!(engine.record(&[second.succeeds()]).await, []);
    assert_eq!(only(&mut engine).await.task_id(), ids[0]);
}

/// A released attempt, and that of a lost engine, is the next one of its key again.
pub async fn interrupted_head_stays_first(db: &dyn TestDatabase) {
    let (fixture, mut engine, ids) = in_order(db).await;
    let holds = engine.claim_all(10).await;
    assert_eq!(engine.record(&[attempt_of(&holds, ids[0]).is_released()]).await, []);
    let mut lost = fixture.engine("lost").await;
    let again = only(&mut lost).await;
    assert_eq!((again.task_id(), again.id().attempt), (ids[0], 2));
    assert!(fixture.declare_lost(lost.id).await);
    assert_eq!(fixture.recover(lost.id).await.len(), 1);
    fixture.store.retry(&ids[..1]).await.expect("retry");
    let again = only(&mut engine).await;
    assert_eq!((again.task_id(), again.id().attempt), (ids[0], 3));
}

/// A task that another limit blocks is not overtaken by others of its key in order.
pub async fn blocked_head_is_not_overtaken(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::in_order()).await;
    let per = Limit::of_class("per", WORK, per_customer(LimitOptions::max(1))).expect("a limit");
    fixture.store.set_limit(&per).await.expect("set_limit");
    let tasks = ["b", "a", "b", "a"].map(of_customer);
    let ids = fixture.create_all(&tasks).await;
    let mut engine = fixture.engine("e").await;
    for id in &ids[..3] {
        let hold = only(&mut engine).await;
        assert_eq!(hold.task_id(), *id);
        assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    }
    let limit = fixture.store.limits().await.expect("limits");
    let per = limit.iter().find(|row| row.limit.name == "per").expect("the limit").id;
    close(&fixture, per, "a").await;
    let later = fixture.create(of_customer("b")).await;
    assert_eq!(engine.claim_all(10).await.len(), 0, "a is first, and closed");
    assert!(fixture.store.open_limit_key("per", "a").await.expect("open"));
    let hold = only(&mut engine).await;
    assert_eq!(hold.task_id(), ids[3]);
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    assert_eq!(only(&mut engine).await.task_id(), later);
}

/// A task that holds its key starts again, also if another limit was added while it waited.
pub async fn holder_starts_after_limit_is_added(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::in_order()).await;
    let ids = fixture.create_all(&of_customers(&["a", "b"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let hold = only(&mut engine).await;
    let key = hold.task.limited.as_ref().expect("limits").lane_key.0[0].clone();
    close(&fixture, key.0, "").await;
    assert_eq!(engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0, "it moves to its lane, which is closed");
    let per = Limit::of_class("per", WORK, per_customer(LimitOptions::max(1))).expect("a limit");
    fixture.store.set_limit(&per).await.expect("set_limit");
    assert!(fixture.store.open_limit_key(WORK, "").await.expect("open"));
    for id in [ids[0], ids[1], ids[2], ids[3]] {
        let hold = only(&mut engine).await;
        assert_eq!(hold.task_id(), id);
        assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    }
}

/// Two waiting tasks that hold each other's key after an edit do not block each other.
pub async fn edited_holder_frees_key(db: &dyn TestDatabase) {
    let (fixture, mut engine, ids) = in_order(db).await;
    let holds = engine.claim_all(10).await;
    let (a, b) = (attempt_of(&holds, ids[0]), attempt_of(&holds, ids[3]));
    assert_eq!(engine.record(&[a.fails_and_retries(HOUR), b.fails_and_retries(HOUR)]).await, []);
    for (id, customer) in [(ids[0], "b"), (ids[3], "a")] {
        let parameters = serde_json::json!({ "customer": customer }).to_string();
        let edit = Edit {
            parameters: Some(Json::parse(parameters).expect("JSON")),
            due: Some(task_engine_core::task::Due::Now),
            ..Edit::default()
        };
        fixture.store.edit(id, &edit).await.expect("edit");
    }
    let mut ran = 0;
    while ran < 4 {
        let holds = engine.claim_all(10).await;
        assert!(!holds.is_empty(), "only {ran} of 4 ran");
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        assert_eq!(engine.record(&endings).await, []);
        ran += holds.len();
    }
}

/// Each key gets its share, however many tasks the others have.
pub async fn keys_share_workers(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::fair("customer")).await;
    fixture.create_all(&of_customers(&["a"], 60)).await;
    fixture.create_all(&of_customers(&["b", "c"], 10)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 6).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 2), ("b", 2), ("c", 2)]));
    let mut one_by_one = Vec::new();
    for _ in 0..12 {
        one_by_one.extend(claim_some(&mut engine, 1).await);
    }
    assert_eq!(by_customer(&one_by_one), counts(&[("a", 4), ("b", 4), ("c", 4)]));
    let rest = engine.claim_all(100).await;
    assert_eq!(by_customer(&rest), counts(&[("a", 54), ("b", 4), ("c", 4)]), "no worker is idle");
}

/// A weight gives a key more starts, in one claim and over many.
pub async fn weights_give_larger_shares(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::fair("customer").weight("b", 3)).await;
    fixture.create_all(&of_customers(&["a", "b"], 50)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 16).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 4), ("b", 12)]));
    let mut one_by_one = Vec::new();
    for _ in 0..16 {
        one_by_one.extend(claim_some(&mut engine, 1).await);
    }
    assert_eq!(by_customer(&one_by_one), counts(&[("a", 4), ("b", 12)]));
}

/// Thousands of tasks of one key, before and behind those of others, do not hide them.
pub async fn burst_hides_no_other_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    fixture.create_all(&of_customers(&["a"], 1500)).await;
    fixture.create(of_customer("b")).await;
    fixture.create_all(&of_customers(&["a"], 1500)).await;
    fixture.create(of_customer("c")).await;
    let mut engine = fixture.engine("e").await;
    let (first, _) = engine.claim_up_to(10).await;
    assert!(first.iter().any(|hold| customer(hold) == "c"), "the newest task: {first:?}");
    let all = [first, engine.claim_all(10).await].concat();
    assert_eq!(by_customer(&all), counts(&[("a", 1), ("b", 1), ("c", 1)]));
}

/// The order holds for thousands of tasks, and for a task of an earlier time that comes late.
pub async fn long_backlog_runs_in_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::in_order())).await;
    let mut tasks = of_customers(&["a"], 1300);
    tasks.extend(of_customers(&["b"], 3));
    let ids = fixture.create_all(&tasks).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 1), ("b", 1)]));
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    let old: jiff::Timestamp = "2001-01-01T00:00:00Z".parse().expect("a time");
    let mut late = vec![of_customer("c").at(old); 1200];
    late.push(of_customer("b").at(old));
    let late = fixture.create_all(&late).await;
    let holds = engine.claim_all(10).await;
    let of_b: Vec<_> = holds.iter().filter(|hold| customer(hold) == "b").cloned().collect();
    assert_eq!(task_ids(&of_b), late[1200..], "an earlier time");
    let of_a: Vec<_> = holds.iter().filter(|hold| customer(hold) == "a").cloned().collect();
    assert_eq!(task_ids(&of_a), ids[1..2]);
}

/// Engines on several handles run tasks in order, while attempts fail, are released and
/// snoozed: a task starts only after all earlier ones of its key have ended.
pub async fn order_holds_under_load(db: &dyn TestDatabase) {
    const OF_EACH: usize = 20;
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::in_order())).await;
    let customers = ["a", "b", "c"];
    let ids = fixture.create_all(&of_customers(&customers, OF_EACH)).await;
    // The tasks that have started, in order, and how many have ended.
    let started: Arc<Mutex<Vec<(String, TaskId)>>> = Arc::default();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut engines = Vec::new();
    for n in 0..5 {
        let handle = Fixture::open(db).await;
        let mut engine = handle.engine(&format!("engine-{n}")).await;
        let (started, ended, count) = (started.clone(), ended.clone(), ids.len());
        engines.push(async move {
            let deadline = Instant::now() + TIMEOUT;
            while ended.load(Ordering::SeqCst) < count {
                assert!(Instant::now() < deadline, "not all tasks end");
                let (holds, _) = engine.claim_up_to(fastrand::usize(1..4)).await;
                let each = holds.iter().map(|hold| (customer(hold), hold.task_id()));
                started.lock().expect("starts").extend(each);
                for hold in holds {
                    let record = match fastrand::u8(0..5) {
                        0 => hold.fails_and_retries(Duration::from_millis(2)),
                        1 => hold.is_released(),
                        2 => hold.fails(),
                        _ => hold.succeeds(),
                    };
                    let ends = matches!(record.next, NextState::End(_));
                    assert_eq!(engine.record(&[record]).await, []);
                    ended.fetch_add(usize::from(ends), Ordering::SeqCst);
                }
            }
        });
    }
    run_concurrently(engines).await;
    let started = started.lock().expect("starts");
    for name in customers {
        let mut of_key: Vec<TaskId> =
            started.iter().filter(|(of, _)| of == name).map(|(_, id)| *id).collect();
        assert!(of_key.is_sorted(), "{name}: {of_key:?}");
        of_key.dedup();
        assert_eq!(of_key.len(), OF_EACH, "{name}");
    }
}
