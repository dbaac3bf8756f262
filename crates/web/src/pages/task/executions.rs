//! The executions of a task as a table.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::{cancel_history_text, count, outcome_text, progress_text, span};
use task_engine_core::task::{ExecutionRow, TaskDetails};
use task_engine_core::task::{ExecutionStatus, LateResult};

use crate::app::App;
use crate::parts;
use crate::parts::Heading::{Number, Text};

/// `horizon`: later times of a next attempt are not shown.
pub(super) fn table(app: &App, task: &TaskDetails, now: Timestamp, horizon: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Number("Attempt"), Text("Status"), Text("Engine"), Text("Started"),
            Number("Ran"), Text("Result or error"),
        ], &html! {
            @for (at, execution) in task.executions.iter().enumerate() {
                // A signal or the end of child tasks resumes a task before its time.
                @let resumed = at + 1 < task.executions.len();
                (row(app, task, execution, now, if resumed { now } else { horizon }))
            }
        }))
    }
}

fn row(
    app: &App,
    task: &TaskDetails,
    execution: &ExecutionRow,
    now: Timestamp,
    horizon: Timestamp,
) -> Markup {
    let worker = execution.worker.map(|worker| format!(", worker {worker}"));
    html! {
        tr data-key=(execution.attempt) {
            td .number data-label="attempt" {
                // Not an attempt: cancelled while waiting.
                @if execution.status == ExecutionStatus::Cancelled { "–" } @else { (execution.attempt) }
            }
            td { (status(execution)) }
            td { (execution.instance.as_deref().unwrap_or("")) (worker.unwrap_or_default()) }
            td .nowrap {
                @match execution.started_at {
                    Some(at) => (parts::time(app, at, now)),
                    None => span .soft { "never started" },
                }
            }
            td .number { (ran(execution, now)) }
            td { (outcome(app, task, execution, now, horizon)) }
        }
    }
}

/// The status, and its explanation below.
fn status(execution: &ExecutionRow) -> Markup {
    let text = outcome_text(execution);
    let (label, rest) = text.split_at(text.find([' ', ';']).unwrap_or(text.len()));
    html! {
        (parts::state(class(execution), label))
        @if !rest.is_empty() { br; small { (rest.trim_start_matches([' ', ';'])) } }
    }
}

fn class(execution: &ExecutionRow) -> &'static str {
    match (execution.status, execution.ends_task) {
        (ExecutionStatus::Running, _) => "running",
        (ExecutionStatus::Success, _) => "stopped",
        (ExecutionStatus::Cancelled, _)
        | (ExecutionStatus::Failure, Some(task_engine_core::task::TaskStatus::Cancelled)) => {
            "cancelled"
        }
        (ExecutionStatus::Failure, _) => "failed",
        (ExecutionStatus::Snoozed, _) => "waiting",
    }
}

fn ran(execution: &ExecutionRow, now: Timestamp) -> String {
    let Some(started) = execution.started_at else { return String::new() };
    let end = execution.stopped_at.unwrap_or(now);
    span(end.duration_since(started).unsigned_abs())
}

fn outcome(
    app: &App,
    task: &TaskDetails,
    execution: &ExecutionRow,
    now: Timestamp,
    horizon: Timestamp,
) -> Markup {
    let (id, attempt) = (task.row.id, execution.attempt);
    html! {
        @if let Some(progress) = &execution.progress {
            p .nowrap {
                progress max="100" value=(progress.percent) aria-label="Progress" {}
                " " (progress_text(progress))
            }
        }
        @if let Some(error) = &execution.error {
            @if execution.status == ExecutionStatus::Snoozed { p { (error.message) } }
            @else { (parts::task_error(error)) }
        }
        @if let Some(result) = &execution.result {
            @if result.as_str() == "null" { span .soft { "no result" } }
            @else {
                (parts::json(app, id, &format!("result-{attempt}"), &format!("result-{attempt}.json"), result.as_str()))
            }
        }
        @if let Some(cancel) = &execution.cancel {
            p { b { "Cancel: " } (cancel_history_text(cancel, execution, now, &app.zone)) }
        }
        @if let Some(retry_at) = execution.retry_at.filter(|at| *at <= horizon) {
            p .soft { "Next attempt " @if retry_at < now { "was " } "due " (parts::time(app, retry_at, now)) }
        }
        @if execution.log_lines > 0 {
            p { a href=(app.path(&format!("/tasks/{id}?log={attempt}#log"))) {
                (count(usize::try_from(execution.log_lines).unwrap_or(0), "log line")) } }
        }
        @for late in task.late_results.iter().filter(|late| late.attempt == attempt) { (late_result(app, late, now)) }
    }
}

fn late_result(app: &App, late: &LateResult, now: Timestamp) -> Markup {
    let after = span(late.arrived_at.duration_since(late.ended_at).unsigned_abs());
    html! {
        div .late {
            p { b { "Late result: " } "it arrived " (after)
                " after the attempt had ended (" (parts::time(app, late.arrived_at, now)) ") and changed nothing." }
            @if let Some(error) = &late.error { (parts::task_error(error)) }
            @if let Some(result) = &late.result { pre { (result.as_str()) } }
        }
    }
}
