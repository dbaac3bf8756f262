use super::*;
use crate::limits::KeyClosing;
use task_engine_core::dependency::DependencyCondition;
use task_engine_core::limit::Rate;
use task_engine_core::task::TaskId;
use task_engine_store::lock::BlockingSession;

#[test]
fn reasons_have_texts() {
    let now: Timestamp = "2026-12-24T17:00:00Z".parse().unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let count = |counted, and_more| BoundedCount { counted, and_more };
    let offer = |name: &str, names: &[&str]| EngineOffer {
        instance: name.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let children = |ids: &[i64]| -> Vec<_> {
        let open = |id: &i64| OpenChild { id: TaskId(*id), status: TaskStatus::Waiting };
        ids.iter().map(open).collect()
    };
    let open = |id, class: &str, status| OpenDependency {
        id: TaskId(id),
        name: None,
        class: class.to_owned(),
        status,
        is_blocked: false,
        retry: 0,
        due_at: None,
        since: None,
        instance: None,
        condition: DependencyCondition::Success,
    };
    for (reason, text) in [
        (
            Reason::Retry {
                retry: 3,
                of: Some(10),
                due_at: at("2026-12-24T17:04:12Z"),
                error: Some("E: a\nand more".into()),
            },
            "it waits for retry 3 of 10: 2026-12-24 17:04:12.000 +00:00 (in 4 min 12 s), after E: a…",
        ),
        (
            Reason::Snoozed {
                due_at: at("2026-12-24T17:01:00Z"),
                because: "rate limit reached".into(),
            },
            "it is snoozed until 2026-12-24 17:01:00.000 +00:00 (in 1 min): rate limit reached",
        ),
        (
            Reason::WaitingForSignal {
                task_id: TaskId(7),
                signal: "it's approved".into(),
                until: at("2026-12-24T17:01:00Z"),
            },
            r"it waits for signal it's approved until 2026-12-24 17:01:00.000 +00:00 (in 1 min); send it with `task-engine signal 7 'it'\''s approved' 'JSON'`",
        ),
        (
            Reason::Sleeping { step: "cooldown".into(), until: at("2026-12-24T17:01:00Z") },
            "it sleeps (cooldown) until 2026-12-24 17:01:00.000 +00:00 (in 1 min)",
        ),
        (
            Reason::WaitingForChildren {
                children: 3,
                open: count(1, false),
                some: children(&[12]),
            },
            "it waits for 3 child tasks, 1 not ended: 12 (waiting)",
        ),
        (
            Reason::WaitingForChildren {
                children: 9_000,
                open: count(1_000, true),
                some: children(&[12, 13]),
            },
            "it waits for 9000 child tasks, 1,000+ not ended: 12 (waiting), 13 (waiting), …",
        ),
        (
            Reason::WaitingForChildren { children: 1, open: count(0, false), some: vec![] },
            "it waits for 1 child task; all have ended, and it continues soon",
        ),
        (
            Reason::Blocked {
                dependencies: count(7, false),
                open: count(6, false),
                some: vec![
                    OpenDependency {
                        since: Some(at("2026-12-24T16:57:00Z")),
                        instance: Some("web-1".into()),
                        ..open(5, "extract", TaskStatus::Running)
                    },
                    OpenDependency { is_blocked: true, ..open(6, "load", TaskStatus::Waiting) },
                    OpenDependency {
                        retry: 2,
                        due_at: Some(at("2026-12-24T17:05:00Z")),
                        ..open(8, "fetch", TaskStatus::Waiting)
                    },
                    open(9, "fetch", TaskStatus::Waiting),
                ],
            },
            "it waits for 7 tasks that it depends on, 6 not ended: task 5 (extract) runs on web-1 for 3 min; task 6 (load) waits for other tasks (`task-engine why 6` names them); task 8 (fetch) waits for retry 2 until 2026-12-24 17:05:00.000 +00:00 (in 5 min); task 9 (fetch) waits (`task-engine why 9` says why); …",
        ),
        (
            Reason::Blocked {
                dependencies: count(1, false),
                open: count(1, false),
                some: vec![open(9, "fetch", TaskStatus::Waiting)],
            },
            "it waits for the task that it depends on: task 9 (fetch) waits (`task-engine why 9` says why)",
        ),
        (
            Reason::Blocked { dependencies: count(2, false), open: count(0, false), some: vec![] },
            "it waits for 2 tasks that it depends on; all have ended, and it continues soon",
        ),
        (
            Reason::DependencyFailed {
                first: FailedDependency {
                    id: TaskId(3),
                    name: Some("extract".into()),
                    status: Some(TaskStatus::Failed),
                },
                through: vec![TaskId(4)],
            },
            "it depends through task 4 on task 3 (extract), which failed; `task-engine retry 3` restores what was cancelled because of it",
        ),
        (
            Reason::DependencyFailed {
                first: FailedDependency { id: TaskId(3), name: None, status: None },
                through: vec![],
            },
            "it depends on task 3, which was removed",
        ),
        (
            Reason::UnknownClass {
                class: "mail".into(),
                engines: vec![offer("a", &["x", "y"]), offer("b", &[])],
            },
            "no live engine has a handler for its class mail; alive: a handles x, y; b handles nothing",
        ),
        (
            Reason::WorkersBusy { workers: 5, oldest_since: Some(at("2026-12-24T16:00:00Z")) },
            "all 5 workers that could take it are busy, the oldest for 1 h",
        ),
        (Reason::Behind { ahead: count(1, false), estimated_secs: None }, "1 task is ahead of it"),
        (
            Reason::Behind { ahead: count(100_000, true), estimated_secs: Some(90.4) },
            "100,000+ tasks are ahead of it, about 1 min 30 s",
        ),
        (Reason::Ready { within_secs: 10.0 }, "it is ready and should start within 10 s"),
        (
            Reason::Locked(BlockingSession {
                pid: 7,
                application: "psql".into(),
                ..BlockingSession::default()
            }),
            "another session has locked it: process 7 (psql)",
        ),
    ] {
        assert_eq!(super::reason(&reason, now, &TimeZone::UTC), text);
        let token = serde_json::to_value(&reason).unwrap()["reason"].clone();
        assert!(Reason::TOKENS.contains(&token.as_str().unwrap()), "{token}");
    }
}

#[test]
fn limits_have_texts() {
    let now: Timestamp = "2026-12-24T17:00:00Z".parse().unwrap();
    let later = |secs: u64| now + Duration::from_secs(secs);
    let runs = |id: i64, secs: u64| LimitHolder {
        task_id: TaskId(id),
        attempt: 1,
        is_running: true,
        since: Some(now - Duration::from_secs(secs)),
        instance: Some("web-1".into()),
        engine_is_alive: true,
        due_at: None,
        retry: 0,
        suspended_for: None,
    };
    let by = |waits_for, holders: Vec<LimitHolder>| LimitedBy {
        task_id: TaskId(6),
        limit: "sync".into(),
        parameter: Some("customer_id".into()),
        key: "acme".into(),
        waits_for,
        max: Some(2),
        rate: Some(Rate::new(100, Duration::from_secs(1))),
        held: holders.len(),
        holders,
        next_start_at: None,
        closed: None,
    };
    let all = LimitedBy {
        parameter: None,
        key: String::new(),
        max: Some(1),
        ..by(KeyWait::Running, vec![LimitHolder { engine_is_alive: false, ..runs(5, 180) }])
    };
    let waits = LimitHolder { is_running: false, ..runs(5, 1) };
    let suspended =
        |kind| LimitHolder { due_at: Some(later(60)), suspended_for: Some(kind), ..waits.clone() };
    let signal = suspended(SuspendedFor::Signal { signal: "approved".into() });
    let calls =
        |id: i64| suspended(SuspendedFor::Children { children: vec![TaskId(4), TaskId(id)] });
    let retries = LimitHolder { due_at: Some(later(60)), retry: 3, ..waits.clone() };
    let closed = KeyClosing { until: later(30), because: "429 too many requests".into() };
    for (by, text) in [
        (
            LimitedBy { held: 7, ..by(KeyWait::Running, vec![runs(5, 180), runs(9, 60)]) },
            "limit sync allows 2 running for customer_id acme, and task 5 runs on web-1 for 3 min, task 9 runs on web-1 for 1 min, and 5 more; this one may start when one of them ends",
        ),
        (
            all,
            "limit sync allows 1 running, and task 5 runs on web-1 for 3 min, whose engine is dead; this one may start when it ends",
        ),
        (
            by(KeyWait::Order, vec![retries]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which waits for retry 3 until 2026-12-24 17:01:00.000 +00:00 (in 1 min)",
        ),
        (
            by(KeyWait::Order, vec![waits.clone()]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which waits (`task-engine why 5` says why)",
        ),
        (
            by(KeyWait::Order, vec![signal]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which waits for signal approved until 2026-12-24 17:01:00.000 +00:00 (in 1 min)",
        ),
        (
            by(KeyWait::Order, vec![suspended(SuspendedFor::Sleep)]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which sleeps until 2026-12-24 17:01:00.000 +00:00 (in 1 min)",
        ),
        (
            by(KeyWait::Order, vec![calls(9)]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which waits for 2 child tasks (`task-engine why 5` names them)",
        ),
        (
            by(KeyWait::Order, vec![calls(6)]),
            "limit sync runs tasks in order for customer_id acme; it comes after task 5, which waits for this task, so neither continues; cancel one of them: `task-engine cancel 6` or `task-engine cancel 5`",
        ),
        (
            LimitedBy { next_start_at: Some(later(5)), ..by(KeyWait::Rate, vec![]) },
            "limit sync allows 100/1s for customer_id acme; the next start may be 2026-12-24 17:00:05.000 +00:00 (in 5 s)",
        ),
        (
            LimitedBy { closed: Some(closed), ..by(KeyWait::Closed, vec![]) },
            "limit sync starts nothing for customer_id acme until 2026-12-24 17:00:30.000 +00:00 (in 30 s): 429 too many requests; to start now: `task-engine limits open sync acme`",
        ),
    ] {
        assert_eq!(super::reason(&Reason::Limited(by.clone()), now, &TimeZone::UTC), text);
        let json = serde_json::to_value(Reason::Limited(by)).unwrap();
        assert_eq!((&json["reason"], &json["limit"]), (&"limited".into(), &"sync".into()));
    }
}
