//! Addresses of pages.

use task_engine_core::filter::Filter;

use crate::app::{App, encoded};

/// The tasks for which all of these hold: `[("queue", "mail")]`.
pub(crate) fn tasks(app: &App, terms: &[(&str, &str)]) -> String {
    app.path(&format!("/tasks?filter={}", encoded(&filter(app, terms))))
}

fn filter(app: &App, terms: &[(&str, &str)]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let term = |(field, value): &(&str, &str)| format!("{field}=\"{}\"", quoted(value));
    let text = terms.iter().map(term).collect::<Vec<_>>().join(" ");
    // Quotes only where they are needed.
    Filter::parse(&text, &app.zone).map_or(text, |filter| filter.to_string())
}

/// The failures of one group.
pub(crate) fn error_group(app: &App, key: &str) -> String {
    app.path(&format!("/errors/{}", encoded(key)))
}

/// A schedule. Some names cannot be a path segment: browsers resolve dots, and
/// other pages have these names.
pub(crate) fn schedule(app: &App, name: &str) -> String {
    app.path(&match name {
        "." | ".." | "new" | "edit" | "preview" => format!("/schedules?show={name}"),
        name => format!("/schedules/{}", encoded(name)),
    })
}

/// A limit. Browsers resolve dots, so such a name cannot be a path segment.
pub(crate) fn limit(app: &App, name: &str) -> String {
    app.path(&match name {
        "." | ".." => format!("/limits?show={name}"),
        name => format!("/limits/{}", encoded(name)),
    })
}

/// A flow, by its correlation id.
pub(crate) fn flow(app: &App, correlation_id: &str) -> String {
    app.path(&match correlation_id {
        "." | ".." => format!("/flows?show={correlation_id}"),
        id => format!("/flows/{}", encoded(id)),
    })
}

/// The page that a form returns to, if it is one of this server; otherwise the first page.
pub(crate) fn return_to(app: &App, to: &str) -> String {
    let own = to.starts_with('/')
        && !to.starts_with("//")
        && !to.contains(['\\', '\r', '\n'])
        && !to.chars().any(char::is_control);
    app.path(if own { to } else { "/" })
}
