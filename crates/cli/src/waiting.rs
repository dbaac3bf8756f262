//! Why a waiting task does not run yet.

use jiff::Timestamp;
use task_engine::model::{InstanceRow, PausedQueue};

use crate::escape::escape;
use crate::spans::relative;

/// What a task needs of an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) class: &'a str,
    pub(crate) queue: &'a str,
}

/// What stands in the way, apart from the time: that no engine would take it.
pub(crate) fn no_taker(wanted: Wanted<'_>, engines: &[InstanceRow]) -> Option<String> {
    let alive: Vec<_> = engines.iter().filter(|engine| engine.is_alive()).collect();
    let (class, queue) = (escape(wanted.class), escape(wanted.queue));
    let mut knowing = alive.iter().filter(|engine| engine.classes.contains_key(wanted.class));
    let Some(first) = knowing.next() else {
        return Some(format!("no living engine knows the class {class} ({})", names(&alive)));
    };
    let takes = |engine: &&InstanceRow| engine.queues.iter().any(|name| name == wanted.queue);
    if takes(first) || knowing.any(takes) {
        return None;
    }
    Some(format!("no living engine that knows the class {class} takes from the queue {queue}"))
}

/// Everything that is to be said about a task that waits.
pub(crate) fn reasons(
    wanted: Wanted<'_>,
    due_at: Timestamp,
    engines: &[InstanceRow],
    paused: Option<&PausedQueue>,
    now: Timestamp,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if due_at > now {
        reasons.push(format!("it is due {}", relative(due_at, now)));
    }
    reasons.extend(paused.map(|paused| is_paused(paused, now)));
    if let Some(why) = no_taker(wanted, engines) {
        reasons.push(why);
    } else if reasons.is_empty() {
        let takers = engines
            .iter()
            .filter(|engine| engine.is_alive() && engine.classes.contains_key(wanted.class));
        let (busy, workers) = takers.fold((0, 0), |(busy, workers), engine| {
            (busy + engine.held.min(i64::from(engine.workers)), workers + i64::from(engine.workers))
        });
        reasons.push(format!(
            "it is due, and starts when its turn has come ({busy} of {workers} workers are busy)"
        ));
    }
    reasons
}

/// That nobody takes tasks from a queue, since when, and why.
pub(crate) fn is_paused(paused: &PausedQueue, now: Timestamp) -> String {
    let (queue, since) = (escape(&paused.queue), relative(paused.paused_at, now));
    match &paused.reason {
        Some(reason) => format!("the queue {queue} was paused {since}: {}", escape(reason)),
        None => format!("the queue {queue} was paused {since}"),
    }
}

fn names(engines: &[&InstanceRow]) -> String {
    if engines.is_empty() {
        return "none is alive at all".to_owned();
    }
    const SHOWN_MAX: usize = 5;
    let mut names: Vec<_> =
        engines.iter().take(SHOWN_MAX).map(|engine| escape(&engine.name).into_owned()).collect();
    if engines.len() > SHOWN_MAX {
        names.push(format!("and {} more", engines.len() - SHOWN_MAX));
    }
    format!("alive: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use task_engine::ClassRules;
    use task_engine::model::InstanceId;

    use super::*;

    fn engine(age_secs: u64, class: &str, queue: &str) -> InstanceRow {
        InstanceRow {
            id: InstanceId(1),
            name: "web-1".into(),
            host: "h".into(),
            pid: 1,
            process: None,
            version: String::new(),
            workers: 5,
            queues: vec![queue.into()],
            pools: vec![],
            classes: [(class.to_owned(), ClassRules::default())].into(),
            started_at: Timestamp::UNIX_EPOCH,
            heartbeat_at: Timestamp::UNIX_EPOCH,
            heartbeat_age: Duration::from_secs(age_secs),
            lease: Duration::from_secs(30),
            stopped_at: None,
            lost_at: None,
            held: 7,
        }
    }

    #[test]
    fn every_reason_is_named() {
        let wanted = Wanted { class: "mail", queue: "default" };
        let now = Timestamp::from_second(1_000_000).unwrap();
        let nobody = "no living engine knows the class mail (none is alive at all)";
        let later = Timestamp::from_second(1_000_057).unwrap();
        for (engines, due_at, expected) in [
            (vec![], now, vec![nobody]),
            (vec![], later, vec!["it is due in 57 s", nobody]),
            (vec![engine(31, "mail", "default")], now, vec![nobody]),
            (
                vec![engine(1, "other", "default")],
                now,
                vec!["no living engine knows the class mail (alive: web-1)"],
            ),
            (
                vec![engine(1, "mail", "slow"), engine(1, "other", "default")],
                now,
                vec!["no living engine that knows the class mail takes from the queue default"],
            ),
            (
                vec![engine(1, "mail", "default")],
                now,
                vec!["it is due, and starts when its turn has come (5 of 5 workers are busy)"],
            ),
            (vec![engine(1, "mail", "default")], later, vec!["it is due in 57 s"]),
        ] {
            assert_eq!(reasons(wanted, due_at, &engines, None, now), expected);
        }
        let mut paused = PausedQueue {
            queue: "default".into(),
            reason: Some("provider is down".into()),
            paused_at: Timestamp::from_second(999_940).unwrap(),
        };
        let taker = [engine(1, "mail", "default")];
        assert_eq!(
            reasons(wanted, later, &taker, Some(&paused), now),
            ["it is due in 57 s", "the queue default was paused 1 min ago: provider is down"]
        );
        paused.reason = None;
        assert_eq!(
            reasons(wanted, now, &taker, Some(&paused), now),
            ["the queue default was paused 1 min ago"]
        );
    }
}
