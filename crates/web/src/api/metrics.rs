//! Metrics of the store in the text format of Prometheus, followed by those of an
//! engine in this process ([`Dashboard::engine_metrics`]).
//!
//! They come from the cache of the pages, so scrapes read the database at most once
//! a second. Counts have a limit, which their help states.
//!
//! [`Dashboard::engine_metrics`]: crate::Dashboard::engine_metrics

mod last_hour;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use task_engine_core::dependency::{BlockedTasks, FlowState};
use task_engine_core::queue::BoundedCount;
use task_engine_operations::flows::FlowsPage;
use task_engine_operations::limits::{LimitList, LimitSummary};
use task_engine_operations::stats::{EngineStats, QueueStats};

use super::query::Query;
use crate::app::App;
use crate::cache::LiveState;
use crate::error::ApiError;

pub(super) async fn metrics(
    State(app): State<App>,
    query: Query,
) -> Result<impl IntoResponse, ApiError> {
    query.with(&[])?;
    let mut text = of_store(&*app.cache.now().await?);
    text += &of_limits(&*app.cache.limits().await?);
    text += &of_flows(&*app.cache.flows().await?, &*app.cache.blocked_tasks().await?);
    text += &last_hour::text(&app.cache.last_hour().await?);
    if let Some(render) = &app.metrics {
        text += &render();
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// The text of all families.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn family<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
    ) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            self.0.push_str(name);
            if !labels.is_empty() {
                let each: Vec<_> = labels
                    .iter()
                    .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                    .collect();
                let _ = write!(self.0, "{{{}}}", each.join(","));
            }
            let _ = writeln!(self.0, " {value}");
        }
    }

    fn one(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, [(Vec::new(), value)]);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^53.
fn number(count: i64) -> f64 {
    count as f64
}

fn of_store(now: &LiveState) -> String {
    let mut text = MetricsText::default();
    of_queues(&mut text, now);
    of_engines(&mut text, now);
    let failure_counts = &now.stats.failure_counts;
    for (name, what, count) in [
        ("task_engine_tasks_failed", "failed", failure_counts.failed),
        ("task_engine_tasks_cancelled", "cancelled", failure_counts.cancelled),
    ] {
        let help = format!("Recorded {what} tasks, counted up to 10000.");
        text.one(name, &help, number(count.counted));
    }
    if let Some(newest) = now.stats.newest_task {
        let help = "The id of the newest task; it grows with each new task.";
        text.one("task_engine_newest_task_id", help, number(newest.0));
    }
    text.0
}

fn of_flows(page: &FlowsPage, blocked: &BlockedTasks) -> String {
    let mut text = MetricsText::default();
    let size = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let open = page.flows.iter().filter(|flow| flow.state == FlowState::Open).count();
    text.one("task_engine_flows_open", "Flows that have not ended, of the newest 30.", size(open));
    text.one(
        "task_engine_flow_tasks_blocked",
        "Tasks that wait for other tasks, counted up to 10000.",
        number(blocked.tasks.counted),
    );
    text.one(
        "task_engine_flow_tasks_overdue",
        "Tasks that still wait, although the task before them ended more than a minute ago.",
        size(blocked.overdue.len()),
    );
    text.0
}

fn of_queues(text: &mut MetricsText, now: &LiveState) {
    let queues = &now.stats.queues;
    let mut family = |name: &str, help: &str, value: &dyn Fn(&QueueStats) -> f64| {
        let sample = |queue| (vec![("queue", name_of(queue))], value(queue));
        text.family(name, help, queues.iter().map(sample));
    };
    let due = |count: BoundedCount| number(count.counted);
    family(
        "task_engine_queue_due",
        "Waiting tasks that are due, counted up to 100000 a lane.",
        &|queue| due(queue.row.due),
    );
    family(
        "task_engine_queue_later",
        "Waiting tasks that are scheduled for later, counted up to 100000 a lane.",
        &|queue| due(queue.row.later),
    );
    family("task_engine_queue_running", "Tasks claimed by engines.", &|queue| {
        number(queue.row.running)
    });
    family("task_engine_queue_paused", "1 while the queue is paused.", &|queue| {
        f64::from(u8::from(queue.row.paused.is_some()))
    });
    let mut oldest: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for next in now.activity.next.iter().filter(|next| next.due_at <= now.activity.now) {
        let age = now.activity.now.duration_since(next.due_at).as_secs_f64();
        let longest = oldest.entry((&next.queue, &next.class)).or_default();
        *longest = longest.max(age);
    }
    text.family(
        "task_engine_oldest_due_seconds",
        "Age of the oldest due task.",
        oldest
            .into_iter()
            .map(|((queue, class), age)| (vec![("queue", queue), ("class", class)], age)),
    );
}

fn name_of(queue: &QueueStats) -> &str {
    &queue.row.name
}

/// By limit, not by key: there may be a key for each customer.
fn of_limits(list: &LimitList) -> String {
    let mut text = MetricsText::default();
    let mut family = |name: &str, help: &str, value: &dyn Fn(&LimitSummary) -> i64| {
        let sample = |limit| (vec![("limit", limit_name(limit))], number(value(limit)));
        text.family(name, help, list.limits.iter().map(sample));
    };
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let help = "Running attempts that count for a limit.";
    family("task_engine_limit_running", help, &|limit| count(limit.running));
    let help = "Due tasks that a limit keeps from starting, of at most 500 lanes.";
    family("task_engine_limit_blocked", help, &|limit| limit.blocked.counted);
    let help = "Keys of a limit that are closed, of at most 500 keys in use.";
    family("task_engine_limit_closed_keys", help, &|limit| count(limit.closed_keys));
    text.0
}

fn limit_name(limit: &LimitSummary) -> &str {
    &limit.row.limit.name
}

fn of_engines(text: &mut MetricsText, now: &LiveState) {
    let alive = &now.stats.engines;
    let count = f64::from(u32::try_from(alive.len()).unwrap_or(u32::MAX));
    text.one("task_engine_engines_alive", "Live engines.", count);
    let dead = now.engines.iter().filter(|engine| !engine.is_alive() && engine.held > 0);
    let dead = f64::from(u32::try_from(dead.count()).unwrap_or(u32::MAX));
    let help = "Dead engine sessions that still hold tasks.";
    text.one("task_engine_engines_to_recover", help, dead);
    let mut family = |name: &str, help: &str, value: &dyn Fn(&EngineStats) -> f64| {
        let sample = |engine| (vec![("instance", engine_name(engine))], value(engine));
        text.family(name, help, alive.iter().map(sample));
    };
    family("task_engine_workers", "Workers of a live engine.", &|engine| f64::from(engine.workers));
    family("task_engine_workers_busy", "Tasks claimed by a live engine.", &|engine| {
        number(engine.busy)
    });
    let help = "Time since the last heartbeat of a live engine.";
    family("task_engine_heartbeat_age_seconds", help, &|engine| engine.heartbeat_age_secs);
}

fn engine_name(engine: &EngineStats) -> &str {
    &engine.instance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = MetricsText::default();
        text.family("a", "Help.", [(vec![("queue", "x\"y\\z\n")], 1.5)]);
        assert_eq!(text.0, "# HELP a Help.\n# TYPE a gauge\na{queue=\"x\\\"y\\\\z\\n\"} 1.5\n");
    }
}
