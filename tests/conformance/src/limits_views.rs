//! Readers show limits and their use, and tasks in lanes of their own like all others.
//! Exports and retention know limits.

use std::time::Duration;

use jiff::SignedDuration;
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Holder, Limit, LimitChange, LimitOptions, Rate,
};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::limits;
use task_engine_operations::why::why;
use task_engine_store::activity::ActivityQuery;
use task_engine_store::check::{CheckDepth, Verdict};
use task_engine_store::export::{ExportLine, ImportIds, ImportOutcome, LimitRecord};
use task_engine_store::queue_position::QueuePositionQuery;

use crate::TestDatabase;
use crate::exports::{export, import, text};
use crate::fixture::{Fixture, TestAttempt, WORK, task_ids};
use crate::limits::{
    by_customer, claim_some, counts, limit_work, of_customer, of_customers, per_customer,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Every reader shows tasks that wait in lanes of their own in their queue.
pub async fn limited_tasks_are_shown_in_their_queue(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let ids = fixture.create_all(&of_customers(&["a", "b"], 3)).await;
    let mut engine = fixture.engine("e").await;
    let held = engine.claim_all(10).await;
    assert_eq!(held.len(), 2);
    // One that was not moved to its lane.
    let newest = fixture.create(of_customer("a")).await;
    let store = &fixture.store;

    let queues = store.queues().await.expect("queues");
    let shown: Vec<_> = queues.iter().map(|row| (row.name.as_str(), row.due.counted)).collect();
    assert_eq!(shown, [("default", 5)]);
    assert_eq!(queues[0].running, 2);
    for row in fixture.list(Some(TaskStatus::Waiting)).await {
        assert_eq!(row.queue, "default");
    }
    let look = ActivityQuery { per_lane: 2, soon: Duration::ZERO };
    let activity = store.activity(look).await.expect("activity");
    let waiting: Vec<TaskId> =
        ids.iter().copied().filter(|id| !task_ids(&held).contains(id)).collect();
    let next: Vec<_> = activity.next.iter().map(|task| task.task_id).collect();
    assert_eq!(next, waiting[..2], "one lane, in its order");
    assert!(activity.next.iter().all(|task| task.queue == "default"));
    let look = QueuePositionQuery {
        id: newest,
        queues: vec!["default".to_owned()],
        classes: vec![WORK.to_owned()],
    };
    let position = store.queue_position(&look).await.expect("position").expect("it waits");
    assert_eq!(position.tasks.counted, 4);
    assert_eq!(engine.heartbeat().await.waiting_classes, [WORK]);
    for check in store.checks(CheckDepth::Standard).await.expect("checks") {
        let is_about_tasks =
            ["unknown_classes", "unserved_queues", "oldest_due_task"].contains(&check.name);
        assert!(!is_about_tasks || check.verdict == Verdict::Ok, "{check:?}");
        assert!(!check.message.contains('\u{1f}'), "{check:?}");
    }
    for id in waiting {
        let why = why(&**store, id).await.expect("why").expect("a task");
        assert!(!format!("{why:?}").contains("\\u{1f}"), "{why:?}");
    }
    let lines = export(&**store, &[]).await;
    assert!(!text(&lines).contains("\\u001f"));
}

/// The limits of a task, with the state of their keys.
pub async fn limits_of_task_are_shown(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(2))).await;
    let rate = Limit::of_class("rate", WORK, LimitOptions::rate(Rate::new(3, HOUR)));
    fixture.store.set_limit(&rate.expect("a limit")).await.expect("set");
    let ids = fixture.create_all(&of_customers(&["a"], 4)).await;
    let other = fixture.create(of_customer("b").after(HOUR)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(holds.len(), 2);
    let limits = fixture.store.task_limits(ids[3]).await.expect("task_limits");
    let [rate, work] = &{
        let mut limits = limits;
        limits.sort_by(|one, other| one.limit.limit.name.cmp(&other.limit.limit.name));
        limits
    }[..] else {
        panic!("two limits")
    };
    assert_eq!((work.limit.limit.name.as_str(), work.usage.key.as_str()), (WORK, "a"));
    let running: Vec<_> =
        holds.iter().map(|hold| Holder { attempt: hold.id(), is_running: true }).collect();
    let mut holders = work.usage.holders.clone();
    holders.sort_by_key(|holder| holder.attempt);
    assert_eq!(holders, running);
    assert_eq!((rate.usage.key.as_str(), rate.usage.next_start_in), ("", None), "a third start");
    let started = rate.usage.last_start_at.expect("a start");
    assert!(started.duration_since(fixture.now().await).abs() < SignedDuration::from_secs(60));

    assert_eq!(engine.record(&[holds[0].succeeds()]).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 1);
    let limits = fixture.store.task_limits(other).await.expect("task_limits");
    let of = |name: &str| limits.iter().find(|one| one.limit.limit.name == name).expect("a limit");
    assert_eq!((of(WORK).usage.key.as_str(), of(WORK).usage.holders.len()), ("b", 0));
    let next = of("rate").usage.next_start_in.expect("a time");
    assert!(next <= HOUR + Duration::from_secs(2) && next > HOUR / 2, "{next:?}");
    let unknown = fixture.store.task_limits(TaskId(1_000_000)).await.expect("task_limits");
    assert_eq!(unknown, []);
}

/// A task that holds a key in order is shown while it waits.
pub async fn waiting_holder_is_shown(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::in_order())).await;
    let ids = fixture.create_all(&of_customers(&["a"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(engine.record(&[holds[0].fails_and_retries(HOUR)]).await, []);
    let limits = fixture.store.task_limits(ids[1]).await.expect("task_limits");
    let holders = &limits[0].usage.holders;
    assert_eq!(holders[..], [Holder { attempt: holds[0].id(), is_running: false }]);
}

/// The lanes of a limit with waiting tasks, and its keys with their holders, up to a number.
pub async fn limit_usage_is_shown(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    let queue = Limit::of_queue("queue", "other", LimitOptions::max(1)).expect("a limit");
    fixture.store.set_limit(&queue).await.expect("set");
    fixture.create_all(&of_customers(&["a", "b", "c"], 3)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    let usage = |limit, at_most| fixture.store.limit_usage(limit, at_most);
    let all = usage(None, 10).await.expect("usage");
    assert!(!all.and_more);
    let mut lanes: Vec<_> = all.lanes.iter().collect();
    lanes.sort_by_key(|lane| lane.lane_key.clone());
    let shown: Vec<_> = lanes
        .iter()
        .map(|lane| (lane.queue.as_str(), lane.class.as_str(), lane.waiting.counted))
        .collect();
    assert_eq!(shown, [("default", WORK, 2); 3]);
    let keys: Vec<_> = lanes.iter().map(|lane| lane.lane_key.0[0].1.as_str()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    let mut held: Vec<_> =
        all.keys.iter().map(|key| (key.key.as_str(), key.holders.len())).collect();
    held.sort_unstable();
    assert_eq!(held, [("a", 1), ("b", 1), ("c", 1)]);

    let rows = fixture.store.limits().await.expect("limits");
    let id = |name: &str| rows.iter().find(|row| row.limit.name == name).expect("a limit").id;
    let of_work = usage(Some(id(WORK)), 2).await.expect("usage");
    assert_eq!((of_work.lanes.len(), of_work.keys.len(), of_work.and_more), (2, 2, true));
    let of_queue = usage(Some(id("queue")), 2).await.expect("usage");
    assert_eq!((of_queue.lanes.len(), of_queue.keys.len(), of_queue.and_more), (0, 0, false));
    let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    let after = usage(Some(id(WORK)), 10).await.expect("usage");
    assert_eq!(after.keys.iter().map(|key| key.holders.len()).sum::<usize>(), 0);
}

/// A limit without a maximum has no holders: its attempts start, and count for nothing.
pub async fn rate_has_no_holders(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, LimitOptions::max(5)).await;
    let rate = LimitOptions::rate(Rate::new(100, HOUR)).key("customer");
    let rate = Limit::of_class("work.rate", WORK, rate).expect("a limit");
    fixture.store.set_limit(&rate).await.expect("set");
    fixture.create_all(&of_customers(&["a"], 2)).await;
    let mut engine = fixture.engine("e").await;
    assert_eq!(claim_some(&mut engine, 2).await.len(), 2);
    let shown = limits::list(&*fixture.store).await.expect("a list").limits;
    let running: Vec<_> =
        shown.iter().map(|one| (one.row.limit.name.as_str(), one.running)).collect();
    assert_eq!(running, [(WORK, 2), ("work.rate", 0)]);
    let rate = limits::show(&*fixture.store, "work.rate").await.expect("a limit");
    assert_eq!(rate.keys.len(), 0, "no key waits or is closed");
}

/// Keys of removed limits are removed, and keys that are in use are not.
pub async fn unused_keys_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    limit_work(&fixture, per_customer(LimitOptions::max(1).and_rate(Rate::new(5, HOUR)))).await;
    fixture.create_all(&of_customers(&["a", "b", "c"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let holds = engine.claim_all(10).await;
    assert_eq!(engine.record(&[holds[0].succeeds()]).await, []);
    let prune = |limit| fixture.store.prune_limit_keys(limit);
    assert_eq!(prune(100).await.expect("prune"), 0, "they were used less than an hour ago");
    assert_eq!(engine.claim_all(10).await.len(), 1, "only the key that is free");
    fixture.store.clear_limit(WORK).await.expect("clear");
    assert_eq!(prune(2).await.expect("prune"), 2);
    assert_eq!(prune(100).await.expect("prune"), 1);
    assert_eq!(prune(100).await.expect("prune"), 0);
    // Attempts that run count again for a new limit.
    limit_work(&fixture, per_customer(LimitOptions::max(1))).await;
    assert_eq!(engine.claim_all(10).await.len(), 0);
}

/// What operators have set and closed is exported and imported; waiting tasks are imported
/// without their lanes, and respect the limits of the store that they come to.
pub async fn limits_are_exported(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &fixture.store;
    limit_work(&fixture, per_customer(LimitOptions::max(1).weight("a", 3))).await;
    let declared = DeclaredLimits {
        classes: vec!["other".to_owned()],
        limits: vec![
            Limit::of_class("other", "other", LimitOptions::max(9)).expect("a limit"),
            Limit::named("api", LimitOptions::max(9)).expect("a limit"),
        ],
    };
    store.declare_limits(&declared).await.expect("declare");
    fixture.create_all(&of_customers(&["a", "b"], 2)).await;
    let mut engine = fixture.engine("e").await;
    let holds = claim_some(&mut engine, 10).await;
    assert_eq!(holds.len(), 2);
    let rows = store.limits().await.expect("limits");
    let close = |name: &str, key: &str| ClosedKey {
        limit: rows.iter().find(|row| row.limit.name == name).expect("a limit").id,
        key: key.to_owned(),
        closed_for: HOUR,
        reason: "429".to_owned(),
    };
    let closed = [close(WORK, "b"), close("api", "x")];
    store.close_limit_keys(&closed).await.expect("close");

    let lines = export(&**store, &[]).await;
    let limits: Vec<&LimitRecord> = lines
        .iter()
        .filter_map(|line| match line {
            ExportLine::Limit(limit) => Some(&**limit),
            _ => None,
        })
        .collect();
    let names: Vec<_> = limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["api", WORK], "not what engines only declare");
    assert_eq!(limits[1].operator.as_ref(), Some(&rows[2].limit.options));
    assert_eq!((limits[1].closed_keys.len(), limits[1].closed_keys[0].key.as_str()), (1, "b"));

    // Into a store that has neither the limits nor the tasks.
    for name in [WORK, "api"] {
        store.clear_limit(name).await.expect("clear");
    }
    let rest: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&rest).await, []);
    let old = engine.claim_all(10).await;
    let imported = import(&**store, &text(&lines), ImportIds::New).await.expect("import");
    let ImportOutcome::Done { read, holders, .. } = imported else { panic!("{imported:?}") };
    assert_eq!((read.limits, read.tasks, holders.len()), (2, 4, 1));
    let again = export(&**store, &[]).await;
    let limit_lines = |lines: &[ExportLine]| {
        let limits = lines.iter().filter(|line| matches!(line, ExportLine::Limit(_)));
        limits.map(|line| serde_json::to_value(line).expect("JSON")).collect::<Vec<_>>()
    };
    let declared_here = |mut lines: Vec<serde_json::Value>| {
        lines.retain(|line| line["limit"]["name"] == WORK);
        lines
    };
    assert_eq!(declared_here(limit_lines(&again)), declared_here(limit_lines(&lines)));
    let rest: Vec<_> = old.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&rest).await, []);
    assert_eq!(engine.claim_all(10).await.len(), 0, "imported attempts count until recovery");
    for holder in holders {
        let taken = fixture.recover(holder).await;
        assert_eq!(taken.len(), 2);
    }
    let holds = engine.claim_all(10).await;
    assert_eq!(by_customer(&holds), counts(&[("a", 1)]), "b is closed");
    let same = store.set_limit(&rows[2].limit).await.expect("set");
    assert_eq!(same, LimitChange::Unchanged);
}
