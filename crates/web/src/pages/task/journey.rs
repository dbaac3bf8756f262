//! The states that a task has gone through, and the one that it is in.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{TaskDetails, TaskStatus};

use crate::app::App;
use crate::parts;

/// One state of its path.
#[derive(Debug, PartialEq)]
struct Step {
    /// As the style knows it.
    class: &'static str,
    word: String,
    at: Option<Timestamp>,
    place: Place,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Place {
    Past,
    Current,
    QueuePosition,
}

pub(super) fn show(app: &App, task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> Markup {
    html! {
        ol #journey .journey data-live aria-label="Its path" {
            @for step in steps(task, due_at, now) {
                li .ahead[step.place == Place::QueuePosition]
                   aria-current=[(step.place == Place::Current).then_some("step")] {
                    // What is no state of a task has no sign of one.
                    @if step.class == "off" { span .state .off { (step.word) } }
                    @else { (parts::state(step.class, &step.word)) }
                    @if let Some(at) = step.at { small { (parts::time(app, at, now)) } }
                    @else { small { "not yet" } }
                }
            }
        }
    }
}

fn steps(task: &TaskDetails, due_at: Timestamp, now: Timestamp) -> Vec<Step> {
    use Place::{Current, Past, QueuePosition};
    let row = &task.row;
    let step = |class, word: &str, at, place| Step { class, word: word.to_owned(), at, place };
    let begun = task.executions.iter().filter(|execution| execution.started_at.is_some());
    let (first, last) = (begun.clone().next(), begun.clone().next_back());
    let times = begun.count();
    let mut steps = vec![step("off", "created", Some(row.created_at), Past)];
    if row.status == TaskStatus::Waiting && task.executions.is_empty() {
        let word = if due_at > now { "waiting until due" } else { "due" };
        steps.push(step("waiting", word, Some(row.scheduled_at), Current));
        steps.push(step("off", "running", None, QueuePosition));
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
        let word = format!("running, attempt {}", row.attempts);
        steps.push(step("running", &word, started(last).or(Some(row.updated_at)), Current));
        steps.push(step("off", "end", None, QueuePosition));
        return steps;
    }
    match times {
        0 => {}
        1 => steps.push(step("running", "running", started(first), Past)),
        times => {
            let word = format!("running, {times} times");
            steps.push(step("running", &word, started(first), Past));
        }
    }
    if row.status == TaskStatus::Waiting {
        let last = task.executions.last().map(|execution| execution.status);
        let word = match last {
            Some(ExecutionStatus::Snoozed) => "snoozed".to_owned(),
            _ => format!("waiting for retry {}", row.retry_number),
        };
        steps.push(step("waiting", &word, Some(row.scheduled_at), Current));
        steps.push(step("off", "running", None, QueuePosition));
    } else {
        steps.push(step(row.status.as_str(), row.status.as_str(), Some(row.updated_at), Current));
    }
    steps
}
