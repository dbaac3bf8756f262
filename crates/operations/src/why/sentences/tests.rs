use super::*;
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
            r"it waits for signal it's approved until 2026-12-24 17:01:00.000 +00:00 (in 1 min); send it with `task-engine signal 7 'it'\''s approved'`",
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
