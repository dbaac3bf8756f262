//! The past, current and next states of a task.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::StepEntry;
use task_engine_core::step::StepKind;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskDetails, TaskStatus};

use crate::app::App;
use crate::parts;

/// One state.
#[derive(Debug, PartialEq)]
struct JourneyStep {
    /// A class of the style sheet.
    class: &'static str,
    label: String,
    at: Option<Timestamp>,
    state: StepState,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum StepState {
    Past,
    Current,
    Future,
}

pub(super) fn show(
    app: &App,
    task: &TaskDetails,
    due_at: Timestamp,
    now: Timestamp,
    open: Option<&StepEntry>,
) -> Markup {
    html! {
        ol #journey .journey data-live aria-label="States" {
            @for step in steps(task, due_at, now, open) {
                li .future[step.state == StepState::Future]
                   aria-current=[(step.state == StepState::Current).then_some("step")] {
                    // No icon: not a status of a task.
                    @if step.class == "off" { span .state .off { (step.label) } }
                    @else { (parts::state(step.class, &step.label)) }
                    @if let Some(at) = step.at { small { (parts::time(app, at, now)) } }
                    @else { small { "not yet" } }
                }
            }
        }
    }
}

/// `open`: the step that suspends the task.
fn steps(
    task: &TaskDetails,
    due_at: Timestamp,
    now: Timestamp,
    open: Option<&StepEntry>,
) -> Vec<JourneyStep> {
    use StepState::{Current, Future, Past};
    let row = &task.row;
    let step =
        |class, label: &str, at, state| JourneyStep { class, label: label.to_owned(), at, state };
    let begun = task.executions.iter().filter(|execution| execution.started_at.is_some());
    let (first, last) = (begun.clone().next(), begun.clone().next_back());
    let times = begun.count();
    let mut steps = vec![step("off", "created", Some(row.created_at), Past)];
    if row.is_blocked {
        steps.push(step("blocked", "waiting for other tasks", None, Current));
        steps.push(step("off", "running", None, Future));
        return steps;
    }
    if row.status == TaskStatus::Waiting && task.executions.is_empty() {
        let label = if due_at > now { "waiting until due" } else { "due" };
        steps.push(step("waiting", label, Some(row.scheduled_at), Current));
        steps.push(step("off", "running", None, Future));
        return steps;
    }
    steps.push(step("waiting", "due", Some(due_at), Past));
    let started = |execution: Option<&task_engine_core::task::ExecutionRow>| {
        execution.and_then(|execution| execution.started_at)
    };
    if row.status == TaskStatus::Running {
        if times > 1 {
            steps.push(step("running", "first attempt", started(first), Past));
        }
        let label = format!("running, attempt {}", row.attempts);
        steps.push(step("running", &label, started(last).or(Some(row.updated_at)), Current));
        steps.push(step("off", "end", None, Future));
        return steps;
    }
    match times {
        0 => {}
        1 => steps.push(step("running", "running", started(first), Past)),
        times => {
            let label = format!("running, {times} times");
            steps.push(step("running", &label, started(first), Past));
        }
    }
    if row.status == TaskStatus::Waiting {
        let last = task.executions.last().map(|execution| execution.status);
        let (label, at) = match (last, open) {
            (Some(ExecutionStatus::Snoozed), Some(open)) => suspended(open),
            (Some(ExecutionStatus::Snoozed), None) => ("snoozed".to_owned(), None),
            _ => (format!("waiting for retry {}", row.retry_number), None),
        };
        steps.push(step("waiting", &label, at.or(Some(row.scheduled_at)), Current));
        steps.push(step("off", "running", None, Future));
    } else {
        steps.push(step(row.status.as_str(), row.status.as_str(), Some(row.updated_at), Current));
    }
    steps
}

/// What a suspended task waits for, and until when; children have no deadline, so since when.
fn suspended(open: &StepEntry) -> (String, Option<Timestamp>) {
    match open.kind {
        StepKind::Sleep => ("sleeping".to_owned(), open.until),
        StepKind::Call => ("waiting for child tasks".to_owned(), Some(open.started_at)),
        _ => ("waiting for a signal".to_owned(), open.until),
    }
}
