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

/// `horizon`: nothing is drawn after it.
pub(super) fn show(
    app: &App,
    task: &TaskDetails,
    due_at: Timestamp,
    now: Timestamp,
    horizon: Timestamp,
) -> Markup {
    let (bars, skipped) = bars(task, due_at, now, horizon);
    let rows: Vec<_> = (skipped..task.executions.len()).map(|at| format!("#{}", at + 1)).collect();
    let about = "Executions over time; the table below has the same as text";
    html! {
        figure .gantt {
            (chart::timeline(&bars, &rows, &app.zone, about))
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
fn bars(
    task: &TaskDetails,
    due_at: Timestamp,
    now: Timestamp,
    horizon: Timestamp,
) -> (Vec<TimelineBar>, usize) {
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
            // A signal or the end of child tasks resumes a task before its time.
            let resumed =
                task.executions.get(n + 1).and_then(|next| next.started_at.or(next.stopped_at));
            let until = retry_at.min(resumed.unwrap_or(horizon));
            add("off", stopped, until, if snoozed { "snoozed" } else { "backed off" });
        }
        for late in task.late_results.iter().filter(|late| late.attempt == execution.attempt) {
            add("late", late.arrived_at, late.arrived_at, "late result");
        }
    }
    (bars, skipped)
}

#[cfg(test)]
mod tests;
