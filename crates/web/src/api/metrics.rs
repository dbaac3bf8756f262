//! What the store knows, in the text format of Prometheus; and after it what an
//! engine in this process has counted ([`Dashboard::engine_metrics`]).
//!
//! All of it is read at a glance, as pages do: however often it is scraped, the
//! database is asked once a second at the most. Counts end at a limit, because a
//! crowd must not cost more to count than that; the help of each says so.
//!
//! [`Dashboard::engine_metrics`]: crate::Dashboard::engine_metrics

mod last_hour;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use task_engine_core::queue::BoundedCount;
use task_engine_operations::stats::{EngineStats, QueueStats};

use super::query::Query;
use crate::app::App;
use crate::glance::Now;
use crate::problem::Problem;

pub(super) async fn metrics(
    State(app): State<App>,
    query: Query,
) -> Result<impl IntoResponse, Problem> {
    query.with(&[])?;
    let mut text = of_store(&*app.glance.now().await?);
    text += &last_hour::text(&app.glance.last_hour().await?);
    if let Some(render) = &app.metrics {
        text += &render();
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// The text of all families.
#[derive(Default)]
struct Text(String);

impl Text {
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

fn of_store(now: &Now) -> String {
    let mut text = Text::default();
    of_queues(&mut text, now);
    of_engines(&mut text, now);
    let failure_counts = &now.figures.failure_counts;
    for (name, what, count) in [
        ("task_engine_tasks_failed", "given up", failure_counts.failed),
        ("task_engine_tasks_cancelled", "cancelled", failure_counts.cancelled),
    ] {
        let help = format!("Tasks on record that were {what}, counted up to 10000.");
        text.one(name, &help, number(count.counted));
    }
    if let Some(newest) = now.figures.newest_task {
        let help = "The id of the newest task; it grows with each one that is created.";
        text.one("task_engine_newest_task_id", help, number(newest.0));
    }
    text.0
}

fn of_queues(text: &mut Text, now: &Now) {
    let queues = &now.figures.queues;
    let mut family = |name: &str, help: &str, value: &dyn Fn(&QueueStats) -> f64| {
        let sample = |queue| (vec![("queue", name_of(queue))], value(queue));
        text.family(name, help, queues.iter().map(sample));
    };
    let due = |count: BoundedCount| number(count.counted);
    family(
        "task_engine_queue_due",
        "Waiting tasks whose time has come, counted up to 100000 a lane.",
        &|queue| due(queue.row.due),
    );
    family(
        "task_engine_queue_later",
        "Waiting tasks whose time is still to come, counted up to 100000 a lane.",
        &|queue| due(queue.row.later),
    );
    family("task_engine_queue_running", "Tasks in the hands of engines.", &|queue| {
        number(queue.row.running)
    });
    family("task_engine_queue_paused", "1 while nobody takes from the queue.", &|queue| {
        f64::from(u8::from(queue.row.paused.is_some()))
    });
    let mut oldest: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for next in now.moving.next.iter().filter(|next| next.due_at <= now.moving.now) {
        let age = now.moving.now.duration_since(next.due_at).as_secs_f64();
        let longest = oldest.entry((&next.queue, &next.task_class)).or_default();
        *longest = longest.max(age);
    }
    text.family(
        "task_engine_oldest_due_seconds",
        "How long the task has been due that has waited longest.",
        oldest
            .into_iter()
            .map(|((queue, class), age)| (vec![("queue", queue), ("class", class)], age)),
    );
}

fn name_of(queue: &QueueStats) -> &str {
    &queue.row.name
}

fn of_engines(text: &mut Text, now: &Now) {
    let alive = &now.figures.engines;
    let count = f64::from(u32::try_from(alive.len()).unwrap_or(u32::MAX));
    text.one("task_engine_engines_alive", "Engines that are alive.", count);
    let dead = now.engines.iter().filter(|engine| !engine.is_alive() && engine.held > 0);
    let dead = f64::from(u32::try_from(dead.count()).unwrap_or(u32::MAX));
    let help = "Lives of engines that are over and still hold tasks: to be recovered.";
    text.one("task_engine_engines_to_recover", help, dead);
    let mut family = |name: &str, help: &str, value: &dyn Fn(&EngineStats) -> f64| {
        let sample = |engine| (vec![("instance", engine_name(engine))], value(engine));
        text.family(name, help, alive.iter().map(sample));
    };
    family("task_engine_workers", "Workers of a living engine.", &|engine| {
        f64::from(engine.workers)
    });
    family("task_engine_workers_busy", "Tasks that a living engine has in hand.", &|engine| {
        number(engine.busy)
    });
    let help = "How long ago a living engine was heard of.";
    family("task_engine_heartbeat_age_seconds", help, &|engine| engine.heartbeat_age_secs);
}

fn engine_name(engine: &EngineStats) -> &str {
    &engine.instance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_are() {
        let mut text = Text::default();
        text.family("a", "Help.", [(vec![("queue", "x\"y\\z\n")], 1.5)]);
        assert_eq!(text.0, "# HELP a Help.\n# TYPE a gauge\na{queue=\"x\\\"y\\\\z\\n\"} 1.5\n");
    }
}
