//! The steps over time, as bars. The table has the same as text.

use maud::{Markup, html};
use task_engine_core::display::{StepEntry, StepState};

use super::{App, ShownSteps, Timestamp};
use crate::chart::{self, TimelineBar};

/// The last steps that are drawn.
const STEPS_MAX: usize = 20;

pub(super) fn show(app: &App, steps: &ShownSteps) -> Markup {
    let skipped = steps.entries.len().saturating_sub(STEPS_MAX);
    let drawn = &steps.entries[skipped..];
    let rows: Vec<_> = drawn.iter().map(|entry| format!("#{}", entry.number)).collect();
    let bars: Vec<_> =
        drawn.iter().enumerate().flat_map(|(row, entry)| bars(row, entry, steps.now)).collect();
    let about = "Steps over time; the table below has the same as text";
    html! {
        figure .gantt {
            (chart::timeline(&bars, &rows, &app.zone, about))
            figcaption .legend {
                span { i .ok {} "step" }
                span { i .wait {} "sleep or wait" }
                span { i .run {} "child tasks" }
                span { i .off {} "time left" }
                @if skipped > 0 { span { "The last " (STEPS_MAX) " steps." } }
            }
        }
    }
}

/// The time that has passed, and the rest of an open sleep or wait.
fn bars(row: usize, entry: &StepEntry, now: Timestamp) -> impl Iterator<Item = TimelineBar> {
    let (class, label) = match entry.state {
        StepState::Recorded => ("run stopped", "ran"),
        StepState::Sleeping => ("wait", "sleeping"),
        StepState::Slept => ("wait", "slept"),
        StepState::Waiting => ("wait", "waiting for the signal"),
        StepState::Received => ("wait", "waited for the signal"),
        StepState::TimedOut => ("run failed", "timed out"),
        StepState::Running => ("run", "child tasks run"),
        StepState::Ended => ("run", "child tasks ran"),
        _ => ("run cancelled", "not finished"),
    };
    let from = entry.started_at;
    let until = entry.ended_at.unwrap_or(now).max(from);
    let rest = entry.until.filter(|rest| entry.state.is_open() && *rest > until);
    let rest =
        rest.map(|rest| TimelineBar { row, class: "off", from: until, until: rest, label: "left" });
    [TimelineBar { row, class, from, until, label }].into_iter().chain(rest)
}
