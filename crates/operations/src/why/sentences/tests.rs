use super::*;
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
