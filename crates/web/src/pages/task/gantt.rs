//! The executions of a task over time, as bars. The table of executions has the
//! same as text.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::span;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskDetails, TaskStatus};

use crate::app::App;
use crate::parts;

/// The last attempts that are drawn.
const ATTEMPTS_MAX: usize = 20;
const WIDTH: f64 = 1000.0;
/// Room for the number of the attempt.
const LEFT: f64 = 40.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
/// Short bars stay visible.
const BAR_WIDTH_MIN: f64 = 2.5;

/// One bar.
#[derive(Debug, PartialEq)]
struct Bar {
    row: usize,
    /// A class of the style sheet.
    class: &'static str,
    from: Timestamp,
    until: Timestamp,
    label: &'static str,
}

pub(super) fn show(app: &App, task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> Markup {
    let (bars, skipped) = bars(task, due_at, now);
    let (Some(begin), Some(end)) =
        (bars.iter().map(|bar| bar.from).min(), bars.iter().map(|bar| bar.until).max())
    else {
        return html! {};
    };
    let rows = bars.iter().map(|bar| bar.row + 1).max().unwrap_or(1);
    let scale = Scale::new(begin, end);
    let height = ROW * rows as f64 + 20.0;
    html! {
        figure .gantt {
            svg .chart viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
                aria-label="Executions over time; the table below has the same as text" {
                @for tick in 0..=4 { (axis(app, &scale, tick, height)) }
                @for row in 0..rows {
                    text x="0" y=(ROW * row as f64 + BAR) { "#" (skipped + row + 1) }
                }
                @for bar in &bars { (draw(app, &scale, bar)) }
            }
            figcaption .legend {
                span { i .wait {} "due" }
                span { i .off {} "backoff" }
                span { i .run {} "running" }
                span { i .ok {} "success" }
                span { i .bad {} "failure" }
                @if skipped > 0 { span { "The last " (rows) " attempts." } }
            }
        }
    }
}

struct Scale {
    begin: Timestamp,
    secs: f64,
}

impl Scale {
    fn new(begin: Timestamp, end: Timestamp) -> Self {
        Self { begin, secs: end.duration_since(begin).as_secs_f64().max(0.001) }
    }

    fn x(&self, at: Timestamp) -> f64 {
        let part = at.duration_since(self.begin).as_secs_f64() / self.secs;
        rounded(LEFT + (WIDTH - LEFT) * part.clamp(0.0, 1.0))
    }
}

fn rounded(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

fn axis(app: &App, scale: &Scale, tick: u32, height: f64) -> Markup {
    let x = rounded(LEFT + (WIDTH - LEFT) * f64::from(tick) / 4.0);
    let after = std::time::Duration::from_secs_f64(scale.secs * f64::from(tick) / 4.0);
    let label = if tick == 0 {
        scale.begin.to_zoned(app.zone.clone()).strftime("%H:%M:%S").to_string()
    } else {
        format!("+{}", span(after))
    };
    let anchor = match tick {
        0 => "start",
        4 => "end",
        _ => "middle",
    };
    html! {
        line .axis x1=(x) x2=(x) y1="0" y2=(height - 16.0) {}
        text x=(x) y=(height - 3.0) text-anchor=(anchor) { (label) }
    }
}

fn draw(app: &App, scale: &Scale, bar: &Bar) -> Markup {
    let (from, until) = (scale.x(bar.from), scale.x(bar.until));
    let width = rounded((until - from).max(BAR_WIDTH_MIN));
    let x = if from + width > WIDTH { WIDTH - width } else { from };
    let lasted = span(bar.until.duration_since(bar.from).unsigned_abs());
    html! {
        rect .(bar.class) x=(x) y=(ROW * bar.row as f64 + 3.0) width=(width) height=(BAR) rx="2" {
            title { (bar.label) ": " (lasted) ", from " (parts::exact(app, bar.from)) }
        }
    }
}

/// The bars, and how many attempts were left out.
fn bars(task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> (Vec<Bar>, usize) {
    let skipped = task.executions.len().saturating_sub(ATTEMPTS_MAX);
    let mut bars = Vec::new();
    // When the attempt became due; unknown after an operator retried the task.
    let mut due = Some(due_at);
    for (n, execution) in task.executions.iter().enumerate() {
        let (due_then, began) = (due, execution.started_at);
        due = execution.retry_at;
        let Some(row) = n.checked_sub(skipped) else { continue };
        let mut add = |class, from, until, label| {
            if from <= until {
                bars.push(Bar { row, class, from, until, label });
            }
        };
        let end = execution.stopped_at.unwrap_or(now);
        if let Some(due) = due_then {
            add("wait", due, began.unwrap_or(end), "waited while due");
        }
        if let Some(began) = began {
            let (class, label) = match (execution.status, execution.ends_task) {
                (ExecutionStatus::Running, _) => ("run", "running"),
                (ExecutionStatus::Success, _) => ("run stopped", "ran, success"),
                (ExecutionStatus::Snoozed, _) => ("run", "ran, snoozed"),
                (_, Some(TaskStatus::Cancelled)) => ("run cancelled", "ran, cancelled"),
                _ => ("run failed", "ran, failure"),
            };
            add(class, began, end, label);
        }
        if let (Some(stopped), Some(retry_at)) = (execution.stopped_at, execution.retry_at) {
            let snoozed = execution.status == ExecutionStatus::Snoozed;
            add("off", stopped, retry_at, if snoozed { "snoozed" } else { "backed off" });
        }
        for late in task.late_results.iter().filter(|late| late.attempt == execution.attempt) {
            add("late", late.arrived_at, late.arrived_at, "late result");
        }
    }
    (bars, skipped)
}

#[cfg(test)]
mod tests {
    use task_engine_core::json::Json;
    use task_engine_core::task::LateResult;
    use task_engine_core::task::{ExecutionRow, TaskId, TaskRow};

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + secs).unwrap()
    }

    fn execution(
        attempt: i32,
        began: Option<i64>,
        ended: Option<i64>,
        retry: Option<i64>,
    ) -> ExecutionRow {
        ExecutionRow {
            attempt,
            retry_number: attempt - 1,
            status: if ended.is_some() {
                ExecutionStatus::Failure
            } else {
                ExecutionStatus::Running
            },
            instance: None,
            worker: None,
            started_at: began.map(at),
            stopped_at: ended.map(at),
            result: None,
            error: None,
            ends_task: None,
            retry_at: retry.map(at),
            progress: None,
            log_lines: 0,
            cancel: None,
        }
    }

    fn task(executions: Vec<ExecutionRow>) -> TaskDetails {
        TaskDetails {
            row: TaskRow {
                id: TaskId(1),
                status: TaskStatus::Running,
                class: "a".into(),
                queue: "default".into(),
                priority: 0,
                created_at: at(0),
                scheduled_at: at(0),
                updated_at: at(0),
                attempts: 1,
                retry_number: 0,
                instance: None,
                error: None,
            },
            parameters: Json::empty_object(),
            context: Json::empty_object(),
            executions,
            cancel_requested: false,
            late_results: vec![LateResult {
                attempt: 1,
                arrived_at: at(40),
                ended_at: at(5),
                result: None,
                error: None,
            }],
            correlation_id: "1".into(),
            parent_id: None,
        }
    }

    #[test]
    fn every_phase_has_a_bar() {
        let task = task(vec![
            execution(1, Some(2), Some(5), Some(15)),
            execution(2, None, Some(16), None),
            execution(3, Some(20), None, None),
        ]);
        let (bars, skipped) = bars(&task, at(1), at(30));
        let drawn: Vec<_> = bars
            .iter()
            .map(|bar| {
                let secs = |time: Timestamp| time.duration_since(at(0)).as_secs();
                (bar.row, bar.class, secs(bar.from), secs(bar.until))
            })
            .collect();
        assert_eq!(
            drawn,
            [
                (0, "wait", 1, 2),
                (0, "run failed", 2, 5),
                (0, "off", 5, 15),
                (0, "late", 40, 40),
                (1, "wait", 15, 16),
                (2, "run", 20, 30),
            ]
        );
        assert_eq!(skipped, 0);
    }

    #[test]
    fn only_the_last_attempts_are_drawn() {
        let all = (1..=50).map(|n| execution(n, Some(n.into()), Some(n.into()), None)).collect();
        let (bars, skipped) = bars(&task(all), at(0), at(60));
        assert_eq!(skipped, 30);
        assert_eq!(bars.iter().map(|bar| bar.row).max(), Some(19));
        let scale = Scale::new(at(0), at(0));
        assert!(scale.x(at(0)).is_finite() && scale.x(at(9)) <= WIDTH);
    }
}
