use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::attempt::AttemptId;
use task_engine_core::instance::{InstanceId, InstanceRow};
use task_engine_core::limit::{
    Holder, LaneKey, LaneUsage, LimitId, LimitKey, LimitKeyUsage, LimitUsage,
};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskOptions};
use task_engine_store::activity::Activity;

use super::*;

fn stored(options: LimitOptions) -> Limit {
    Limit::of_class("sync", "sync", options).unwrap()
}

fn message(result: Result<Limit, OperationError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn only_named_options_change() {
    let rate = Rate::new(100, Duration::from_secs(1));
    let before = stored(LimitOptions::max(2).key("customer").and_rate(rate).weight("acme", 3));
    let edit = LimitEdit { max: Some(Some(5)), ..LimitEdit::default() };
    let after = edit.apply("sync", Some(&before)).unwrap();
    let mut expected = before.clone();
    expected.options.max = Some(5);
    assert_eq!(after, expected);

    let edit = LimitEdit { even: Some(true), rate: None, ..LimitEdit::default() };
    assert_eq!(edit.apply("sync", Some(&before)).unwrap().options.rate, Some(rate.even()));
    let weights = vec![("acme".to_owned(), 1), ("beta".to_owned(), 2)];
    let edit = LimitEdit { weights, ..LimitEdit::default() };
    let weights = edit.apply("sync", Some(&before)).unwrap().options.weights;
    assert_eq!(weights.into_iter().collect::<Vec<_>>(), [("beta".to_owned(), 2)]);

    let all = LimitEdit::replace(None, LimitOptions::max(1));
    assert_eq!(all.apply("sync", Some(&before)).unwrap(), stored(LimitOptions::max(1)));
    assert!(LimitEdit { target: Some(LimitTarget::Named), ..LimitEdit::default() }.is_empty());
    assert!(!all.is_empty());
}

#[test]
fn new_limit_has_its_target() {
    let edit = LimitEdit { max: Some(Some(5)), ..LimitEdit::default() };
    assert_eq!(edit.apply("api", None).unwrap().target, LimitTarget::Named);
    let target = Some(LimitTarget::Queue("mail".into()));
    let edit = LimitEdit { target: target.clone(), ..edit };
    assert_eq!(Some(edit.apply("api", None).unwrap().target), target);
}

#[test]
fn wrong_changes_are_refused() {
    let before = stored(LimitOptions::max(2));
    let edit = |edit: LimitEdit| message(edit.apply("sync", Some(&before)));
    let zero = edit(LimitEdit { max: Some(Some(0)), ..LimitEdit::default() });
    assert!(zero.contains("1 to 10000, not 0; to start nothing, pause the queue"), "{zero}");
    let target = Some(LimitTarget::Queue("mail".into()));
    let moved = edit(LimitEdit { target, ..LimitEdit::default() });
    assert!(moved.contains("applies to class sync, not to queue mail"), "{moved}");
    let empty = edit(LimitEdit { max: Some(None), ..LimitEdit::default() });
    assert!(empty.contains("has no effect"), "{empty}");
    let even = edit(LimitEdit { even: Some(true), ..LimitEdit::default() });
    assert!(even.contains("no rate"), "{even}");
    let unknown = not_found("sycn", &[row(before.clone())]).to_string();
    assert_eq!(unknown, "there is no limit sycn; did you mean sync?");
}

fn row(limit: Limit) -> LimitRow {
    LimitRow {
        id: LimitId(3),
        limit,
        declared: None,
        set_by_operator: true,
        changed_at: Timestamp::UNIX_EPOCH,
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + secs).unwrap()
}

fn lane(key: &str, waiting: i64, due_secs: i64) -> LaneUsage {
    LaneUsage {
        queue: "default".into(),
        class: "sync".into(),
        priority: 0,
        lane_key: LaneKey(vec![LimitKey(LimitId(3), key.into())]),
        waiting: BoundedCount { counted: waiting, and_more: false },
        due_since: at(due_secs),
    }
}

fn key(key: &str, holders: &[(i64, bool)]) -> LimitKeyUsage {
    let holder = |(id, is_running): &(i64, bool)| Holder {
        attempt: AttemptId { task_id: TaskId(*id), attempt: 1 },
        is_running: *is_running,
    };
    LimitKeyUsage {
        limit: LimitId(3),
        key: key.into(),
        holders: holders.iter().map(holder).collect(),
        last_start_at: None,
        next_start_in: None,
        closed: None,
    }
}

fn details(options: LimitOptions, lanes: Vec<LaneUsage>, keys: Vec<LimitKeyUsage>) -> LimitDetails {
    let activity = Activity { now: at(0), newest: None, held: Vec::new(), next: Vec::new() };
    let usage = LimitUsage { lanes, keys, and_more: false };
    UsageFacts { usage, activity, engines: Vec::new() }.details(row(stored(options)))
}

#[test]
fn blocked_tasks_are_counted_by_key() {
    let mut closed = key("closed", &[]);
    closed.closed = Some((at(60), "429".into()));
    closed.next_start_in = Some(Duration::from_secs(60));
    let found = details(
        LimitOptions::max(2).key("customer").weight("free", 5),
        vec![
            lane("full", 7, -50),
            lane("full", 1, -90),
            lane("free", 4, -5),
            lane("closed", 1, -1),
        ],
        vec![key("full", &[(1, true), (2, true)]), key("free", &[(3, true)]), closed],
    );
    let shown: Vec<_> = found
        .keys
        .iter()
        .map(|key| (key.key.as_str(), key.running, key.waiting.counted, key.blocked.counted))
        .collect();
    assert_eq!(shown, [("full", 2, 8, 8), ("closed", 0, 1, 1), ("free", 1, 4, 0)]);
    assert_eq!(found.keys[0].blocked_since, Some(at(-90)));
    assert_eq!(found.keys[0].waits_for, Some(KeyWait::Running));
    assert_eq!(found.keys[1].next_start_at, Some(at(60)));
    assert_eq!(found.keys[2].weight, 5);
    let sum = &found.summary;
    assert_eq!((sum.running, sum.waiting.counted, sum.blocked.counted), (3, 13, 9));
    assert_eq!((sum.keys_in_use, sum.closed_keys, sum.blocked_since), (3, 1, Some(at(-90))));
}

#[test]
fn holder_in_order_blocks_others() {
    let options = || LimitOptions::in_order().key("account");
    for holder in [true, false] {
        let found = details(options(), vec![lane("7", 3, -50)], vec![key("7", &[(1, holder)])]);
        let key = &found.keys[0];
        assert_eq!((key.running, key.blocked.counted), (usize::from(holder), 3));
        assert_eq!(key.waits_for, Some(KeyWait::Order));
    }
    let found = details(options(), vec![lane("7", 3, -50)], vec![]);
    assert_eq!((found.keys[0].waiting.counted, found.keys[0].blocked.counted), (3, 0));
}

#[test]
fn secret_key_is_refused_and_hidden() {
    let mut options = TaskOptions::default();
    options.secret = vec!["customer.token".into()];
    let engine = InstanceRow {
        id: InstanceId(1),
        name: "e".into(),
        host: "h".into(),
        pid: 1,
        process: None,
        version: String::new(),
        workers: 1,
        queues: Vec::new(),
        pools: Vec::new(),
        classes: [("sync".to_owned(), options)].into(),
        started_at: at(0),
        heartbeat_at: at(0),
        heartbeat_age: Duration::ZERO,
        lease: Duration::from_secs(30),
        stopped_at: None,
        lost_at: None,
        held: 0,
        process_gone: false,
    };
    let shown = |parameter: &str| {
        let row = row(stored(LimitOptions::max(1).key(parameter)));
        let mut key = "acme".to_owned();
        redact_key(&row, &mut key, std::slice::from_ref(&engine));
        key
    };
    assert_eq!(shown("customer"), "[secret]");
    assert_eq!(shown("account"), "acme");
}
