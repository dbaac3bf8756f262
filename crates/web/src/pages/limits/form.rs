//! Forms to set a limit, to clear it and to open a key.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use task_engine_core::display::rate_text;
use task_engine_core::limit::{LimitOptions, LimitRow, LimitTarget, MAX_RUNNING_MAX};
use task_engine_core::parse;
use task_engine_operations::Actor;
use task_engine_operations::limits::LimitEdit;

use crate::app::App;
use crate::error::ApiError;
use crate::layout::Viewer;
use crate::pages::links;
use crate::pages::operations::{FormFields, perform_and_return};
use crate::parts::{self, Button, ReasonForm};

/// A form for a new limit, which unfolds.
pub(super) fn new_limit(app: &App, viewer: &Viewer) -> Markup {
    html! {
        details .card .ask {
            summary { "Set a new limit" }
            form method="post" action=(app.path("/operations/set-limit")) {
                input type="hidden" name="back" value=(viewer.here);
                div .fields {
                    label { "Name" input type="text" name="name" required maxlength="200"; }
                    label {
                        "Applies to"
                        select name="target" {
                            option value="class" { "tasks of a class" }
                            option value="queue" { "tasks of a queue" }
                            option value="named" { "tasks that name it" }
                        }
                    }
                    label { "Class or queue" input type="text" name="of" maxlength="200"; }
                    (option_fields(&LimitOptions::default()))
                    (parts::reason_field())
                }
                p .soft { "It applies at once, to all engines. Running tasks count, and continue." }
                button { "Set the limit" }
            }
        }
    }
}

/// The operations on a limit.
pub(super) fn change(app: &App, viewer: &Viewer, row: &LimitRow) -> Markup {
    let name = row.limit.name.as_str();
    html! {
        details .ask {
            summary { "Change" }
            form method="post" action=(app.path("/operations/set-limit")) {
                input type="hidden" name="back" value=(viewer.here);
                input type="hidden" name="name" value=(name);
                div .fields {
                    (option_fields(&row.limit.options))
                    (parts::reason_field())
                }
                p .soft {
                    "It applies at once, to all engines. Running tasks count, and continue."
                    @if row.declared.is_some() { " It stays until it is cleared, whatever engines declare." }
                }
                button { "Set the limit" }
            }
        }
        @if row.set_by_operator || row.declared.is_none() { (clear(app, row)) }
    }
}

fn clear(app: &App, row: &LimitRow) -> Markup {
    let form = |back: &str, consequence| {
        let name = row.limit.name.as_str();
        let to = "/operations/clear-limit";
        ReasonForm { to, back, name, verb: "Clear", consequence, danger: true }.show(app)
    };
    if row.declared.is_some() {
        let back = links::limit(app, &row.limit.name);
        let back = back.strip_prefix(app.base.as_str()).unwrap_or(&back);
        return form(
            back,
            "What was set here is removed; the options that engines declare apply again.",
        );
    }
    form("/limits", "The limit is removed. Tasks that it blocks start at once.")
}

/// The options: empty fields remove them.
fn option_fields(options: &LimitOptions) -> Markup {
    let rate = options.rate.as_ref();
    let weights: Vec<_> =
        options.weights.iter().map(|(key, weight)| format!("{key}={weight}")).collect();
    html! {
        label { "Max. running" input type="number" name="max" min="1" max=(MAX_RUNNING_MAX) value=[options.max]; }
        label { "Rate" input type="text" name="rate" placeholder="100/1s" value=[rate.map(rate_text)]; }
        label { "Key: for each value of a parameter"
            input type="text" name="key" maxlength="200" value=[options.key.as_deref()]; }
        label { "Weights, one in a line: KEY=N"
            textarea name="weights" rows="2" { (weights.join("\n")) } }
        label .check { input type="checkbox" name="even" value="true" checked[rate.is_some_and(|rate| rate.even)];
            "Spread starts evenly" }
        label .check { input type="checkbox" name="in_order" value="true" checked[options.in_order];
            "One at a time, in order" }
    }
}

pub(super) fn open_button(app: &App, viewer: &Viewer, name: &str, key: &str) -> Markup {
    let button = Button {
        to: "/operations/open-limit",
        fields: &[("name", name), ("key", key)],
        label: "Open",
        consequence: "Tasks of this key start again now",
        class: "plain",
        shortcut: None,
    };
    button.show(app, &viewer.here)
}

/// Adds a limit, or replaces its options.
pub(super) async fn set(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let name = fields.name()?.trim().to_owned();
    let target = match fields.get("target") {
        Some("class") => Some(LimitTarget::Class(fields.need("of")?.to_owned())),
        Some("queue") => Some(LimitTarget::Queue(fields.need("of")?.to_owned())),
        Some("named") => Some(LimitTarget::Named),
        _ => None,
    };
    let edit = LimitEdit::replace(target, options(&fields)?);
    perform_and_return(&app, &actor, &fields, |operator| async move {
        operator.set_limit(&name, &edit).await
    })
    .await
}

fn options(fields: &FormFields) -> Result<LimitOptions, ApiError> {
    let invalid =
        |name: &str, why: String| ApiError::field(format!("/{name}"), format!("{name}: {why}."));
    let mut options = LimitOptions::default();
    options.key = fields.get("key").map(str::to_owned);
    let max = fields.get("max").map(str::parse).transpose();
    options.max = max.map_err(|_| invalid("max", "write a whole number".to_owned()))?;
    let rate = fields.get("rate").map(parse::rate).transpose();
    options.rate = rate.map_err(|why| invalid("rate", why))?;
    if fields.get("even").is_some() {
        options.rate = options.rate.map(|rate| rate.even());
    }
    options.in_order = fields.get("in_order").is_some();
    let lines = fields.get("weights").unwrap_or_default().lines();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let pair = line.rsplit_once('=');
        let pair = pair.and_then(|(key, weight)| Some((key.trim(), weight.trim().parse().ok()?)));
        let (key, weight) = pair
            .ok_or_else(|| invalid("weights", format!("{line:?} is not a weight; write acme=3")))?;
        options.weights.insert(key.to_owned(), weight);
    }
    Ok(options)
}

/// Opens a closed key.
pub(super) async fn open(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let name = fields.name()?.to_owned();
    let key = fields.all("key").next().unwrap_or_default().to_owned();
    perform_and_return(&app, &actor, &fields, |operator| async move {
        operator.open_limit_key(&name, &key).await
    })
    .await
}
