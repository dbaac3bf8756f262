//! The text of a reason.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::why::{EngineOffer, OpenChild, Reason};
use task_engine_core::display::{
    brief, clock_and_relative, count, count_text, progress_text, relative, shell_quoted, span,
};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskStatus;

/// One sentence without its full stop. Names and errors in it are not escaped, but cut to
/// fit a line.
#[must_use]
pub fn reason(reason: &Reason, now: Timestamp, zone: &TimeZone) -> String {
    let time = |time: Timestamp| clock_and_relative(time, now, zone);
    match reason {
        Reason::Ended { status: TaskStatus::Stopped, at, .. } => {
            format!("it has succeeded: {}", time(*at))
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
        Reason::WaitingForSignal { task_id, signal, until } => format!(
            "it waits for signal {} until {}; send it with `task-engine signal {task_id} {}`",
            brief(signal, 200),
            time(*until),
            shell_quoted(signal)
        ),
        Reason::Sleeping { step, until } => {
            format!("it sleeps ({}) until {}", brief(step, 200), time(*until))
        }
        Reason::WaitingForChildren { children, open, some } => {
            waiting_for_children(*children, *open, some)
        }
        Reason::NotDue { due_at } => format!("it is not due: {}", time(*due_at)),
        Reason::QueuePaused { queue, since, because } => {
            let why = because.as_ref().map(|why| format!(": {why}"));
            let since = relative(*since, now);
            format!("its queue {queue} was paused {since}{}", why.unwrap_or_default())
        }
        Reason::NoEngine { last_seen: None } => {
            "no engine is alive, and none has ever run".to_owned()
        }
        Reason::NoEngine { last_seen: Some(seen) } => {
            format!("no engine is alive; the last heartbeat was {}", relative(*seen, now))
        }
        Reason::UnknownClass { class, engines } => {
            format!(
                "no live engine has a handler for its class {class}; alive: {}",
                list(engines, "handles")
            )
        }
        Reason::QueueNotServed { queue, engines } => {
            let engines = list(engines, "serves");
            format!(
                "no live engine with a handler for its class serves its queue {queue}; {engines}"
            )
        }
        Reason::PriorityTooLow { priority, lowest, engines } => format!(
            "its priority {priority} is too low: the engines that serve its queue ({}) take {lowest} and higher",
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
        Reason::Behind { ahead, estimated_secs } => {
            let tasks = if *ahead == (BoundedCount { counted: 1, and_more: false }) {
                "task is"
            } else {
                "tasks are"
            };
            let estimate = estimated_secs.map(|secs| {
                let time = Duration::try_from_secs_f64(secs).unwrap_or_default();
                format!(", about {}", span(coarse(time)))
            });
            format!("{} {tasks} ahead of it{}", count_text(*ahead), estimate.unwrap_or_default())
        }
        Reason::Ready { within_secs } => {
            let within = Duration::try_from_secs_f64(*within_secs).unwrap_or_default();
            format!("it is ready and should start within {}", span(within))
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
    let name = instance.as_deref().unwrap_or("an unknown engine");
    let mut text =
        format!("it runs on {name}: attempt {attempt}, {}", clock_and_relative(*since, now, zone));
    if let Some(progress) = progress {
        text += &format!(
            "; {} reported {}",
            progress_text(progress),
            relative(progress.reported_at, now)
        );
    }
    if let (Some(age), Some(lease)) = (heartbeat_age_secs, lease_secs) {
        let secs = |secs: f64| span(coarse(Duration::try_from_secs_f64(secs).unwrap_or_default()));
        let (age, lease) = (secs(*age), secs(*lease));
        text += &if *engine_process_gone {
            "; its engine is dead: its process has ended on this machine".to_owned()
        } else if *engine_is_alive {
            format!("; the last heartbeat of its engine was {age} ago (dead after {lease})")
        } else {
            format!("; its engine is dead: no heartbeat for {age} (dead after {lease})")
        };
    }
    if let Some(at) = cancel_requested_at {
        text +=
            &format!("; a cancel request is pending since {}", clock_and_relative(*at, now, zone));
    }
    text
}

fn waiting_for_children(children: usize, open: BoundedCount, some: &[OpenChild]) -> String {
    let children = count(children, "child task");
    if some.is_empty() {
        return format!("it waits for {children}; all have ended, and it continues soon");
    }
    let shown: Vec<_> = some.iter().map(|one| format!("{} ({})", one.id, one.status)).collect();
    let more = usize::try_from(open.counted).unwrap_or(0) > some.len() || open.and_more;
    let more = if more { ", …" } else { "" };
    format!("it waits for {children}, {} not ended: {}{more}", count_text(open), shown.join(", "))
}

/// Whole seconds: heartbeats are not more precise.
fn coarse(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_secs(time.as_secs()) }
}

const SHOWN_MAX: usize = 5;

fn list(engines: &[EngineOffer], verb: &str) -> String {
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
mod tests;
