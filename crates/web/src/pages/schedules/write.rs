//! Forms to add and to change a schedule.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::schedule::{Missed, Overlap};
use task_engine_store::schedules::ScheduleError;

use super::form::{FieldErrors, ScheduleForm, StoredSchedule, field_errors_of};
use super::{one, preview};
use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::operation::perform;
use crate::pages::links;
use crate::pages::operations::FormFields;

/// Suggested time zones; every other IANA name is accepted, too.
const ZONES: [&str; 28] = [
    "UTC",
    "Africa/Cairo",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Toronto",
    "Asia/Dubai",
    "Asia/Hong_Kong",
    "Asia/Kolkata",
    "Asia/Seoul",
    "Asia/Shanghai",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Amsterdam",
    "Europe/Berlin",
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Madrid",
    "Europe/Paris",
    "Europe/Warsaw",
    "Europe/Zurich",
    "Pacific/Auckland",
];

const RULES: [&str; 7] = [
    "every 5m",
    "every 1h",
    "*/15 * * * *",
    "@hourly",
    "0 3 * * *",
    "30 9 * * MON-FRI",
    "@monthly",
];

/// The schedule of the form.
enum EditedSchedule {
    New,
    Existing(Box<StoredSchedule>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct ScheduleQuery {
    name: String,
}

pub(crate) async fn new_page(State(app): State<App>, viewer: Viewer) -> Markup {
    page(&app, &viewer, &EditedSchedule::New, &ScheduleForm::default(), &FieldErrors::new()).await
}

pub(crate) async fn edit_page(
    State(app): State<App>,
    viewer: Viewer,
    Query(ScheduleQuery { name }): Query<ScheduleQuery>,
) -> Result<Markup, ApiError> {
    let old = stored_schedule(&app, &name).await?;
    let form = ScheduleForm::of(&name, &old.redacted);
    Ok(page(&app, &viewer, &EditedSchedule::Existing(Box::new(old)), &form, &FieldErrors::new())
        .await)
}

async fn stored_schedule(app: &App, name: &str) -> Result<StoredSchedule, ApiError> {
    let (row, _) = app.store.schedule(name).await?;
    let mut row = row.ok_or_else(|| {
        ApiError::not_found(format!("There is no schedule {name:?}. It may have been removed."))
    })?;
    let unknown = |why| ApiError::conflict(format!("schedule {name:?}: {why}"));
    let stored = row.definition().map_err(unknown)?;
    app.secrets().await?.schedule(&mut row);
    Ok(StoredSchedule { stored, redacted: row.definition().map_err(unknown)? })
}

pub(crate) async fn add(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Response, ApiError> {
    write(&app, &viewer, &fields, EditedSchedule::New).await
}

pub(crate) async fn set(
    State(app): State<App>,
    viewer: Viewer,
    Query(ScheduleQuery { name }): Query<ScheduleQuery>,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let old = stored_schedule(&app, &name).await?;
    write(&app, &viewer, &fields, EditedSchedule::Existing(Box::new(old))).await
}

/// Stores the schedule of the form, or shows the form again with its errors.
async fn write(
    app: &App,
    viewer: &Viewer,
    fields: &FormFields,
    edited: EditedSchedule,
) -> Result<Response, ApiError> {
    let form = ScheduleForm::read(fields);
    if fields.get("do") == Some("preview") {
        return Ok(page(app, viewer, &edited, &form, &FieldErrors::new()).await.into_response());
    }
    let old = match &edited {
        EditedSchedule::New => None,
        EditedSchedule::Existing(old) => Some(&**old),
    };
    let (status, errors) = match form.schedule(old, &app.secrets().await?) {
        Err(errors) => (StatusCode::BAD_REQUEST, errors),
        Ok(schedule) => {
            let is_new = matches!(edited, EditedSchedule::New);
            let check = !form.ignores_schema;
            let definition = schedule.definition().map_err(ScheduleError::from)?;
            let written =
                perform(app, &viewer.actor, fields.get("reason"), |operator| async move {
                    let operator = operator.checking_parameters(check);
                    if is_new {
                        operator.add_schedule(&schedule).await
                    } else {
                        operator.set_schedule(schedule.name(), |_| definition.clone()).await
                    }
                });
            match written.await {
                Ok(report) => return Ok(to_schedule(app, &form.name, report.audit_id)),
                Err(problem) if problem.status.is_client_error() => {
                    (problem.status, field_errors_of(&problem))
                }
                Err(problem) => return Err(problem),
            }
        }
    };
    Ok((status, page(app, viewer, &edited, &form, &errors).await).into_response())
}

fn to_schedule(app: &App, name: &str, audit_id: i64) -> Response {
    let to = links::schedule(app, name);
    let joint = if to.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{to}{joint}done={audit_id}")).into_response()
}

async fn page(
    app: &App,
    viewer: &Viewer,
    edited: &EditedSchedule,
    form: &ScheduleForm,
    errors: &FieldErrors,
) -> Markup {
    let (title, to) = match edited {
        EditedSchedule::New => ("New schedule".to_owned(), "/schedules/new".to_owned()),
        EditedSchedule::Existing(_) => {
            (format!("Edit {}", form.name), format!("/schedules/edit?name={}", encoded(&form.name)))
        }
    };
    let main = html! {
        h1 { (title) }
        form .sides method="post" action=(app.path(&to)) data-preview=(app.path("/schedules/preview")) {
            section .card {
                @if !errors.is_empty() {
                    p .flash .bad role="alert" {
                        "Nothing was written: correct the marked fields."
                        @if let Some(whole) = errors.get("") { " " (whole) }
                    }
                }
                (fields_of(edited, form, errors))
                div .row {
                    button { @match edited { EditedSchedule::New => "Create", EditedSchedule::Existing(_) => "Save" } }
                    button .plain name="do" value="preview" { "Preview" }
                    a href=(app.path("/schedules")) { "Back" }
                }
            }
            section .card {
                h2 { "Next slots" }
                div #preview { (preview::slots(app, &form.rule, &form.time_zone)) }
            }
        }
    };
    layout::page(app, viewer, &title, "/schedules", main).await
}

fn fields_of(edited: &EditedSchedule, form: &ScheduleForm, errors: &FieldErrors) -> Markup {
    let line =
        |name, label, value, hint| TextField { name, label, value, hint, list: None }.show(errors);
    html! {
        div .fields {
            @match edited {
                EditedSchedule::New => (line("name", "Name", &form.name, "")),
                EditedSchedule::Existing(_) => input type="hidden" name="name" value=(form.name);,
            }
            (TextField { name: "rule", label: "When", value: &form.rule, list: Some(&RULES),
                    hint: "every 15m, or a cron expression: minute hour day month weekday" }.show(errors))
            (TextField { name: "time_zone", label: "Time zone", value: &form.time_zone, list: Some(&ZONES),
                    hint: "the time zone of a cron expression" }.show(errors))
            (line("class", "Class", &form.class, "the task class"))
            (line("queue", "Queue", &form.queue, ""))
            (line("priority", "Priority", &form.priority, "higher runs first"))
            label .wide {
                "Parameters"
                textarea name="parameters" rows="5" spellcheck="false"
                         aria-invalid=[errors.get("parameters").map(|_| "true")] { "\n" (form.parameters) }
                (under(errors, "parameters", "a JSON object"))
            }
            @if form.ignores_schema || errors.contains_key("parameters") {
                label .wide .check {
                    input type="checkbox" name="check" value="no" checked[form.ignores_schema];
                    " Ignore the schema of the class"
                }
            }
            (choice("missed", "Missed slots", &form.missed, errors, &[
                ("last", one::missed_text(Missed::Last)),
                ("skip", one::missed_text(Missed::Skip)),
                ("all", "all slots missed while no engine ran are caught up".to_owned()),
            ]))
            (line("missed_max", "At most (if all)", &form.missed_max, "1 to 1000"))
            (choice("overlap", "Overlap", &form.overlap, errors, &[
                ("allow", one::overlap_text(Overlap::Allow).to_owned()),
                ("skip", one::overlap_text(Overlap::Skip).to_owned()),
                ("wait", one::overlap_text(Overlap::Wait).to_owned()),
            ]))
            (line("jitter", "Jitter", &form.jitter, "delays each task by a random time up to this"))
            (line("reason", "Reason", "", "for the audit"))
        }
    }
}

/// A field of one line.
struct TextField<'a> {
    name: &'static str,
    label: &'a str,
    value: &'a str,
    hint: &'a str,
    /// Suggested values.
    list: Option<&'a [&'a str]>,
}

impl TextField<'_> {
    fn show(&self, errors: &FieldErrors) -> Markup {
        let list = self.list.map(|_| format!("{}-list", self.name));
        html! {
            label {
                (self.label)
                input type="text" name=(self.name) value=(self.value) list=[list.as_deref()]
                      autocomplete="off" spellcheck="false"
                      aria-invalid=[errors.get(self.name).map(|_| "true")];
                (under(errors, self.name, self.hint))
                @if let (Some(id), Some(values)) = (&list, self.list) {
                    datalist id=(id) { @for value in values { option value=(value) {} } }
                }
            }
        }
    }
}

fn choice(
    name: &'static str,
    label: &str,
    chosen: &str,
    errors: &FieldErrors,
    options: &[(&str, String)],
) -> Markup {
    html! {
        label .wide {
            (label)
            select name=(name) aria-invalid=[errors.get(name).map(|_| "true")] {
                @for (value, words) in options {
                    option value=(value) selected[*value == chosen] { (value) ": " (words) }
                }
            }
            (under(errors, name, ""))
        }
    }
}

/// The error of a field, or else its hint.
fn under(errors: &FieldErrors, name: &str, hint: &str) -> Markup {
    html! {
        @match errors.get(name) {
            Some(error) => span .field-error { (error) },
            None => @if !hint.is_empty() { small { (hint) } },
        }
    }
}
