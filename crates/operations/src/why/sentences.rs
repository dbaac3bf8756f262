//! The text of a reason.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::limits::{KeyWait, LimitHolder, SuspendedFor};
use crate::why::{EngineOffer, FailedDependency, LimitedBy, OpenChild, OpenDependency, Reason};
use task_engine_core::display::{
    brief, clock_and_relative, count, count_text, limit_key_text, progress_text, rate_text,
    relative, shell_quoted, span,
};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskStatus};

/// Returns one sentence without its full stop.
///
/// Names and errors in it are not escaped, but cut to fit a line.
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
            "it waits for signal {} until {}; send it with `task-engine signal {task_id} {} 'JSON'`",
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
        Reason::Blocked { dependencies, open, some } => {
            blocked(*dependencies, *open, some, now, zone)
        }
        Reason::DependencyFailed { first, through } => dependency_failed(first, through),
        Reason::NotDue { due_at } => format!("it is not due: {}", time(*due_at)),
        Reason::QueuePaused { queue, since, because } => {
            let why = because.as_ref().map(|why| format!(": {why}"));
            let since = relative(*since, now);
            let resume = format!("task-engine queues resume {}", shell_quoted(queue));
            format!(
                "its queue {queue} was paused {since}{}; resume it with `{resume}`",
                why.unwrap_or_default()
            )
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
        Reason::Limited(by) => limited(by, now, zone),
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

fn limited(by: &LimitedBy, now: Timestamp, zone: &TimeZone) -> String {
    let time = |time: Timestamp| clock_and_relative(time, now, zone);
    let limit = brief(&by.limit, 200);
    let tasks = match (by.parameter.as_deref(), by.key.as_str()) {
        (None, "") => String::new(),
        (parameter, key) => format!(" for {}", limit_key_text(parameter, &brief(key, 80))),
    };
    match (by.waits_for, by.next_start_at) {
        (KeyWait::Closed, next) => {
            let because = by.closed.as_ref().map(|closed| brief(&closed.because, 200));
            let until = by.closed.as_ref().map(|closed| closed.until).or(next).unwrap_or(now);
            format!(
                "limit {limit} starts nothing{tasks} until {}: {}; to start now: `task-engine limits open {} {}`",
                time(until),
                because.filter(|why| !why.is_empty()).unwrap_or_else(|| "it is closed".to_owned()),
                shell_quoted(&by.limit),
                shell_quoted(&by.key)
            )
        }
        (KeyWait::Running, _) => {
            let max = by.max.unwrap_or(1);
            let end = if by.held == 1 { "it" } else { "one of them" };
            let holders = holders(by, now, zone);
            format!(
                "limit {limit} allows {max} running{tasks}, and {holders}; this one may start when {end} ends"
            )
        }
        (KeyWait::Order, _) => format!(
            "limit {limit} runs tasks in order{tasks}; it comes after {}",
            holders(by, now, zone)
        ),
        (KeyWait::Rate, next) => {
            let rate = by.rate.as_ref().map(rate_text).unwrap_or_default();
            let next = next.map_or_else(|| "soon".to_owned(), time);
            format!("limit {limit} allows {rate}{tasks}; the next start may be {next}")
        }
    }
}

/// The attempts that hold a key: `task 5 runs on web-1 for 3 min`.
fn holders(by: &LimitedBy, now: Timestamp, zone: &TimeZone) -> String {
    let one = |holder: &LimitHolder| {
        let id = holder.task_id;
        if !holder.is_running {
            let what = match holder.retry {
                0 => String::new(),
                number => format!(" for retry {number}"),
            };
            if let Some(suspended) = &holder.suspended_for {
                return format!("task {id}, {}", suspended_for(suspended, holder, by, now, zone));
            }
            return match holder.due_at.filter(|due_at| *due_at > now) {
                Some(due_at) => {
                    let until = clock_and_relative(due_at, now, zone);
                    format!("task {id}, which waits{what} until {until}")
                }
                None => format!("task {id}, which waits{what} (`task-engine why {id}` says why)"),
            };
        }
        let mut text = format!("task {id} runs");
        if let Some(instance) = &holder.instance {
            text += &format!(" on {}", brief(instance, 40));
        }
        if let Some(since) = holder.since {
            text += &format!(" for {}", span(coarse(now.duration_since(since).unsigned_abs())));
        }
        if !holder.engine_is_alive {
            text += ", whose engine is dead";
        }
        text
    };
    let mut each: Vec<_> = by.holders.iter().map(one).collect();
    if by.held > by.holders.len() {
        each.push(format!("and {} more", by.held - by.holders.len()));
    }
    each.join(", ")
}

fn suspended_for(
    what: &SuspendedFor,
    holder: &LimitHolder,
    by: &LimitedBy,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    let until = holder.due_at.filter(|due_at| *due_at > now);
    let until = until.map(|due_at| format!(" until {}", clock_and_relative(due_at, now, zone)));
    let until = until.unwrap_or_default();
    match what {
        SuspendedFor::Sleep => format!("which sleeps{until}"),
        SuspendedFor::Signal { signal } => {
            format!("which waits for signal {}{until}", brief(signal, 80))
        }
        SuspendedFor::Children { children } if children.contains(&by.task_id) => {
            let (id, own) = (holder.task_id, by.task_id);
            format!(
                "which waits for this task, so neither continues; cancel one of them: `task-engine cancel {own}` or `task-engine cancel {id}`"
            )
        }
        SuspendedFor::Children { children } => {
            let id = holder.task_id;
            let children = count(children.len(), "child task");
            format!("which waits for {children} (`task-engine why {id}` names them)")
        }
    }
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

fn blocked(
    dependencies: BoundedCount,
    open: BoundedCount,
    some: &[OpenDependency],
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    let all = match dependencies {
        BoundedCount { counted: 1, and_more: false } => "the task that it depends on".to_owned(),
        number => format!("{} tasks that it depends on", count_text(number)),
    };
    if some.is_empty() {
        return format!("it waits for {all}; all have ended, and it continues soon");
    }
    let each: Vec<_> = some.iter().map(|one| open_dependency(one, now, zone)).collect();
    let more = usize::try_from(open.counted).unwrap_or(0) > some.len() || open.and_more;
    let more = if more { "; …" } else { "" };
    let number = if dependencies.counted == 1 {
        String::new()
    } else {
        format!(", {} not ended", count_text(open))
    };
    format!("it waits for {all}{number}: {}{more}", each.join("; "))
}

/// `task 5 (load) runs on web-1 for 3 min`.
fn open_dependency(one: &OpenDependency, now: Timestamp, zone: &TimeZone) -> String {
    let name = one.name.as_deref().unwrap_or(&one.class);
    let mut text = format!("task {} ({}) ", one.id, brief(name, 60));
    match one.status {
        TaskStatus::Running => {
            text += "runs";
            if let Some(instance) = &one.instance {
                text += &format!(" on {}", brief(instance, 40));
            }
            if let Some(since) = one.since {
                text += &format!(" for {}", span(coarse(now.duration_since(since).unsigned_abs())));
            }
        }
        _ if one.is_blocked => {
            text += &format!("waits for other tasks (`task-engine why {}` names them)", one.id);
        }
        _ => {
            let retry = match one.retry {
                0 => String::new(),
                number => format!(" for retry {number}"),
            };
            match one.due_at.filter(|due_at| *due_at > now) {
                Some(due_at) => {
                    text +=
                        &format!("waits{retry} until {}", clock_and_relative(due_at, now, zone));
                }
                None => text += &format!("waits{retry} (`task-engine why {}` says why)", one.id),
            }
        }
    }
    text
}

fn dependency_failed(first: &FailedDependency, through: &[TaskId]) -> String {
    let name = first.name.as_ref().map(|name| format!(" ({})", brief(name, 60)));
    let ended = match first.status {
        Some(TaskStatus::Failed) => "failed",
        Some(_) => "was cancelled",
        None => "was removed",
    };
    let through = match through {
        [] => String::new(),
        [one] => format!(" through task {one}"),
        many => {
            let ids: Vec<_> = many.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
            let more = if many.len() > SHOWN_MAX { ", …" } else { "" };
            format!(" through tasks {}{more}", ids.join(", "))
        }
    };
    let id = first.id;
    let advice = match first.status {
        Some(_) => format!("; `task-engine retry {id}` restores what was cancelled because of it"),
        None => String::new(),
    };
    format!("it depends{through} on task {id}{}, which {ended}{advice}", name.unwrap_or_default())
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
