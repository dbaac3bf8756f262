//! What tasks carry and say, as pages show it: one function for each kind, so
//! that what must not be seen can be left out in one place.

use maud::{Markup, html};
use task_engine_core::attempt::TaskError;
use task_engine_core::json::Json;
use task_engine_core::report::LogRow;
use task_engine_core::task::{TaskDetails, TaskId};

use crate::app::App;
use crate::json_tree;

/// The parameters of a task, as text.
pub(crate) fn parameters(task: &TaskDetails) -> &str {
    task.parameters.as_str()
}

/// The context of a task, as text.
pub(crate) fn context(task: &TaskDetails) -> &str {
    task.context.as_str()
}

/// What an attempt has returned, as text.
pub(crate) fn result(json: &Json) -> &str {
    json.as_str()
}

/// What a line of a log says.
pub(crate) fn log_message(line: &LogRow) -> &str {
    &line.message
}

/// What an error says, whole or folded.
pub(crate) fn message(text: &str) -> &str {
    text
}

/// An error in a line.
pub(crate) fn error_line(error: &TaskError) -> String {
    error.to_string()
}

/// An error with all that is known.
pub(crate) fn error(error: &TaskError) -> Markup {
    html! {
        p .error { strong { (error.exception) } ": " span .message { (message(&error.message)) } }
        @if !error.backtrace.is_empty() {
            details {
                summary { "Backtrace " small { "(" (error.backtrace.len()) ")" } }
                pre { @for frame in &error.backtrace { (frame) "\n" } }
            }
        }
    }
}

/// A JSON text that can be had as `/tasks/{id}/{file}`, too.
pub(crate) fn json(app: &App, task: TaskId, place: &str, file: &str, text: &str) -> Markup {
    json_tree::show(text, place, &app.path(&format!("/tasks/{task}/{file}")))
}
