//! The executions of a task over time, as bars. The table of executions has the
//! same as text.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskDetails, TaskStatus};

use crate::app::App;
use crate::chart::{self, TimelineBar};

/// The last attempts that are drawn.
const ATTEMPTS_MAX: usize = 20;

pub(super) fn show(app: &App, task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> Markup {
    let (bars, skipped) = bars(task, due_at, now);
    let about = "Executions over time; the table below has the same as text";
    html! {
        figure .gantt {
            (chart::timeline(&bars, skipped + 1, &app.zone, about))
            figcaption .legend {
                span { i .wait {} "due" }
                span { i .off {} "backoff" }
                span { i .run {} "running" }
                span { i .ok {} "success" }
                span { i .bad {} "failure" }
                @if skipped > 0 { span { "The last " (ATTEMPTS_MAX) " attempts." } }
            }
        }
    }
}

/// The bars, and how many attempts were left out.
fn bars(task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> (Vec<TimelineBar>, usize) {
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
                bars.push(TimelineBar { row, class, from, until, label });
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
    }
}
