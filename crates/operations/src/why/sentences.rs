//! Why a task does not run, in words.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::why::{Candidate, Reason};
use task_engine_core::display::{
    brief, clock_and_relative, counted, progress_text, relative, span,
};
use task_engine_core::queue::Count;
use task_engine_core::task::TaskStatus;

/// Why a task is where it is: one sentence without its full stop. Names and
/// errors in it are as they are, though not longer than a line can take.
#[must_use]
pub fn reason(reason: &Reason, now: Timestamp, zone: &TimeZone) -> String {
    let time = |time: Timestamp| clock_and_relative(time, now, zone);
    match reason {
        Reason::Ended { status: TaskStatus::Stopped, at, .. } => {
            format!("it has done its work: {}", time(*at))
        }
        Reason::Ended { status, at, error } => {
            let error = error.as_ref().map(|error| format!(", with {}", brief(error, 200)));
            format!("it has ended {status}: {}{}", time(*at), error.unwrap_or_default())
        }
        Reason::Running { .. } => running(reason, now, zone),
        Reason::Retry { retry, of, due_at, error } => {
            let of = of.map_or_else(String::new, |of| format!(" of {of}"));
            let after = error.as_ref().map(|error| format!(", after {}", brief(error, 200)));
            format!(
                "it waits for retry {retry}{of}: {}{}",
                time(*due_at),
                after.unwrap_or_default()
            )
        }
        Reason::Snoozed { due_at, because } => {
            format!("it is snoozed until {}: {}", time(*due_at), brief(because, 200))
        }
        Reason::NotDue { due_at } => format!("it is not due: {}", time(*due_at)),
        Reason::QueuePaused { queue, since, because } => {
            let why = because.as_ref().map(|why| format!(": {why}"));
            let since = relative(*since, now);
            format!("its queue {queue} was paused {since}{}", why.unwrap_or_default())
        }
        Reason::NoEngine { last_seen: None } => {
            "no engine is alive, and none was ever seen".to_owned()
        }
        Reason::NoEngine { last_seen: Some(seen) } => {
            format!("no engine is alive; the last one was heard of {}", relative(*seen, now))
        }
        Reason::UnknownClass { class, engines } => {
            format!("no living engine knows its class {class}; alive: {}", list(engines, "knows"))
        }
        Reason::QueueNotServed { queue, engines } => {
            let engines = list(engines, "serves");
            format!("no living engine that knows its class takes from its queue {queue}; {engines}")
        }
        Reason::PriorityTooLow { priority, lowest, engines } => format!(
            "its priority {priority} is too low: those who serve its queue ({}) take {lowest} and up",
            few(engines)
        ),
        Reason::Locked(session) => {
            let what = if session.locks.is_empty() { "it" } else { "the tables" };
            format!("another session has locked {what}: {session}")
        }
        Reason::WorkersBusy { workers, oldest_since } => {
            let all = if *workers == 1 {
                "the one worker that could take it is".to_owned()
            } else {
                format!("all {workers} workers that could take it are")
            };
            let since = oldest_since.map(|since| {
                let long = span(now.duration_since(since).unsigned_abs());
                format!(", the oldest for {long}")
            });
            format!("{all} busy{}", since.unwrap_or_default())
        }
        Reason::Behind { ahead, about_secs } => {
            let tasks = if *ahead == (Count { counted: 1, and_more: false }) {
                "task is"
            } else {
                "tasks are"
            };
            let about = about_secs.map(|secs| {
                let time = Duration::try_from_secs_f64(secs).unwrap_or_default();
                format!(", which takes about {}", span(coarse(time)))
            });
            format!("{} {tasks} before it{}", counted(*ahead), about.unwrap_or_default())
        }
        Reason::Ready { within_secs } => {
            let within = Duration::try_from_secs_f64(*within_secs).unwrap_or_default();
            format!("nothing stands in its way: it should start within {}", span(within))
        }
    }
}

fn running(reason: &Reason, now: Timestamp, zone: &TimeZone) -> String {
    let Reason::Running {
        instance,
        since,
        attempt,
        progress,
        heartbeat_age_secs,
        lease_secs,
        engine_is_alive,
        engine_process_gone,
        cancel_requested_at,
    } = reason
    else {
        return String::new();
    };
    let name = instance.as_deref().unwrap_or("an engine that is not known any more");
    let mut text =
        format!("it runs on {name}: attempt {attempt}, {}", clock_and_relative(*since, now, zone));
    if let Some(progress) = progress {
        text +=
            &format!("; {} said {}", progress_text(progress), relative(progress.reported_at, now));
    }
    if let (Some(age), Some(lease)) = (heartbeat_age_secs, lease_secs) {
        let secs = |secs: f64| span(coarse(Duration::try_from_secs_f64(secs).unwrap_or_default()));
        let (age, lease) = (secs(*age), secs(*lease));
        text += &if *engine_process_gone {
            "; its engine is dead: its process is gone from this machine".to_owned()
        } else if *engine_is_alive {
            format!("; its engine was heard of {age} ago (dead after {lease})")
        } else {
            format!("; its engine is dead: not heard of for {age} (dead after {lease})")
        };
    }
    if let Some(at) = cancel_requested_at {
        text +=
            &format!("; somebody wants it cancelled since {}", clock_and_relative(*at, now, zone));
    }
    text
}

/// Tenths of a second are more than is known.
fn coarse(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_secs(time.as_secs()) }
}

const SHOWN_MAX: usize = 5;

fn list(engines: &[Candidate], verb: &str) -> String {
    let each = engines
        .iter()
        .take(SHOWN_MAX)
        .map(|engine| format!("{} {verb} {}", brief(&engine.instance, 40), few(&engine.names)));
    let mut each: Vec<_> = each.collect();
    if engines.len() > SHOWN_MAX {
        each.push(format!("and {} more", engines.len() - SHOWN_MAX));
    }
    each.join("; ")
}

fn few(names: &[String]) -> String {
    let mut each: Vec<_> = names.iter().take(SHOWN_MAX).map(|name| brief(name, 40)).collect();
    if names.is_empty() {
        each.push("nothing".to_owned());
    }
    if names.len() > SHOWN_MAX {
        each.push(format!("and {} more", names.len() - SHOWN_MAX));
    }
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_store::lock::BlockingSession;

    #[test]
    fn reasons_in_words() {
        let now: Timestamp = "2026-12-24T17:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let count = |counted, and_more| Count { counted, and_more };
        let knows = |name: &str, names: &[&str]| Candidate {
            instance: name.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (reason, shown) in [
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
                    engines: vec![knows("a", &["x", "y"]), knows("b", &[])],
                },
                "no living engine knows its class mail; alive: a knows x, y; b knows nothing",
            ),
            (
                Reason::WorkersBusy { workers: 5, oldest_since: Some(at("2026-12-24T16:00:00Z")) },
                "all 5 workers that could take it are busy, the oldest for 1 h",
            ),
            (Reason::Behind { ahead: count(1, false), about_secs: None }, "1 task is before it"),
            (
                Reason::Behind { ahead: count(100_000, true), about_secs: Some(90.4) },
                "100,000+ tasks are before it, which takes about 1 min 30 s",
            ),
            (
                Reason::Ready { within_secs: 10.0 },
                "nothing stands in its way: it should start within 10 s",
            ),
            (
                Reason::Locked(BlockingSession {
                    pid: 7,
                    application: "psql".into(),
                    ..BlockingSession::default()
                }),
                "another session has locked it: process 7 (psql)",
            ),
        ] {
            assert_eq!(super::reason(&reason, now, &TimeZone::UTC), shown);
        }
    }
}
