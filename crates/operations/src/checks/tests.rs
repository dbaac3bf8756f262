use task_engine_core::attempt::AttemptId;
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{
    Holder, LaneKey, LaneUsage, Limit, LimitId, LimitKey, LimitKeyUsage, LimitOptions, LimitUsage,
};
use task_engine_core::queue::BoundedCount;
use task_engine_store::activity::{Activity, HeldAttempt};

use super::*;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + secs).unwrap()
}

fn row(options: LimitOptions) -> LimitRow {
    LimitRow {
        id: LimitId(1),
        limit: Limit::of_class("sync", "sync", options.clone()).unwrap(),
        declared: Some(options),
        set_by_operator: false,
        changed_at: at(-9000),
    }
}

/// Task 5 has run for this long, and another has been due for this long.
fn facts(runs_for: i64, blocked_for: i64) -> LimitFacts {
    let held = HeldAttempt {
        task_id: TaskId(5),
        attempt: 1,
        class: "sync".into(),
        queue: "default".into(),
        priority: 0,
        instance_id: InstanceId(1),
        claimed_at: at(-runs_for),
        progress: None,
    };
    let key = LimitKeyUsage {
        limit: LimitId(1),
        key: "acme".into(),
        holders: vec![Holder {
            attempt: AttemptId { task_id: TaskId(5), attempt: 1 },
            is_running: true,
        }],
        last_start_at: None,
        next_start_in: None,
        closed: None,
    };
    let lane = LaneUsage {
        queue: "default".into(),
        class: "sync".into(),
        priority: 0,
        lane_key: LaneKey(vec![LimitKey(LimitId(1), "acme".into())]),
        waiting: BoundedCount { counted: 3, and_more: false },
        due_since: at(-blocked_for),
    };
    let usage = UsageFacts {
        usage: LimitUsage { lanes: vec![lane], keys: vec![key], and_more: false },
        activity: Activity { now: at(0), newest: None, held: vec![held], next: Vec::new() },
        engines: Vec::new(),
    };
    let limits = vec![row(LimitOptions::max(1).key("customer"))];
    LimitFacts { limits, usage: Some(usage), named: BTreeMap::new() }
}

#[test]
fn stuck_key_is_a_warning() {
    for (runs_for, blocked_for, verdict) in [
        (1000, 1000, Verdict::Warning),
        // Others run before the first one, but the key changes hands.
        (10, 5000, Verdict::Ok),
        (5000, 10, Verdict::Ok),
    ] {
        let check = facts(runs_for, blocked_for).evaluate();
        assert_eq!(check.verdict, verdict, "{check:?}");
    }
    let check = facts(1200, 1000).evaluate();
    assert_eq!(
        check.message,
        "limit sync, customer acme: 3 blocked, the first for 16 min 40 s; task 5 runs for 20 min"
    );
    let remedy = check.remedy.unwrap();
    assert_eq!(remedy, "task-engine limits show sync; then: task-engine why 5");
}

#[test]
fn missing_limit_is_a_warning() {
    let mut facts = facts(1, 1);
    facts.named = BTreeMap::from([("sync".into(), TaskId(1)), ("api".into(), TaskId(7))]);
    let check = facts.evaluate();
    assert_eq!(check.verdict, Verdict::Warning);
    assert!(check.message.contains("api (task 7)"), "{check:?}");
    assert!(!check.message.contains("sync"), "{check:?}");
}

#[test]
fn changed_limit_is_a_note() {
    let mut facts = facts(1, 1);
    facts.limits[0].set_by_operator = true;
    facts.limits[0].limit.options.max = Some(9);
    let check = facts.evaluate();
    assert_eq!(check.verdict, Verdict::Ok);
    let note = "set by an operator: sync has at most 9 running, for each customer, and engines declare at most 1 running, for each customer";
    assert!(check.message.ends_with(note), "{check:?}");
    let none = LimitFacts { limits: Vec::new(), usage: None, named: BTreeMap::new() };
    assert_eq!(none.evaluate().message, "there is no limit");
}
