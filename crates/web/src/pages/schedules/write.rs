//! Forms to add and to change a schedule.

use axum::extract::{Query, RawForm, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::schedule::{Missed, Overlap};
use task_engine_store::schedules::ScheduleError;

use super::form::{Mistakes, Old, Typed, mistakes_of};
use super::{one, preview};
use crate::action::perform;
use crate::app::{App, encoded};
use crate::layout::{self, Viewer};
use crate::pages::actions::Fields;
use crate::pages::links;
use crate::problem::Problem;

/// Names that people look for; any other of the IANA's does, too.
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

/// Which schedule the form is about.
enum About {
    New,
    Old(Box<Old>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    name: String,
}

pub(crate) async fn new_page(State(app): State<App>, viewer: Viewer) -> Markup {
    page(&app, &viewer, &About::New, &Typed::default(), &Mistakes::new()).await
}

pub(crate) async fn edit_page(
    State(app): State<App>,
    viewer: Viewer,
    Query(Named { name }): Query<Named>,
) -> Result<Markup, Problem> {
    let old = stored(&app, &name).await?;
    let typed = Typed::of(&name, &old.shown);
    Ok(page(&app, &viewer, &About::Old(Box::new(old)), &typed, &Mistakes::new()).await)
}

async fn stored(app: &App, name: &str) -> Result<Old, Problem> {
    let (row, _) = app.store.schedule(name).await?;
    let mut row = row.ok_or_else(|| {
        Problem::not_found(format!("There is no schedule {name:?}. It may have been removed."))
    })?;
    let unknown = |why| Problem::conflict(format!("schedule {name:?}: {why}"));
    let stored = row.definition().map_err(unknown)?;
    app.secrets().await?.schedule(&mut row);
    Ok(Old { stored, shown: row.definition().map_err(unknown)? })
}

pub(crate) async fn add(
    State(app): State<App>,
    viewer: Viewer,
    form: RawForm,
) -> Result<Response, Problem> {
    let fields = Fields::read(&form);
    write(&app, &viewer, &fields, About::New).await
}

pub(crate) async fn set(
    State(app): State<App>,
    viewer: Viewer,
    Query(Named { name }): Query<Named>,
    form: RawForm,
) -> Result<Response, Problem> {
    let old = stored(&app, &name).await?;
    let fields = Fields::read(&form);
    write(&app, &viewer, &fields, About::Old(Box::new(old))).await
}

/// Does what the form says, or shows it again with what is wrong.
async fn write(
    app: &App,
    viewer: &Viewer,
    fields: &Fields,
    about: About,
) -> Result<Response, Problem> {
    let typed = Typed::read(fields);
    if fields.get("do") == Some("preview") {
        return Ok(page(app, viewer, &about, &typed, &Mistakes::new()).await.into_response());
    }
    let old = match &about {
        About::New => None,
        About::Old(old) => Some(&**old),
    };
    let (status, mistakes) = match typed.schedule(old, &app.secrets().await?) {
        Err(mistakes) => (StatusCode::BAD_REQUEST, mistakes),
        Ok(schedule) => {
            let is_new = matches!(about, About::New);
            let definition = schedule.definition().map_err(ScheduleError::from)?;
            let written =
                perform(app, &viewer.actor, fields.get("reason"), |operator| async move {
                    if is_new {
                        operator.add_schedule(&schedule).await
                    } else {
                        operator.set_schedule(schedule.name(), |_| definition.clone()).await
                    }
                });
            match written.await {
                Ok(report) => return Ok(to_schedule(app, &typed.name, report.audit_id)),
                Err(problem) if problem.status.is_client_error() => {
                    (problem.status, mistakes_of(&problem))
                }
                Err(problem) => return Err(problem),
            }
        }
    };
    Ok((status, page(app, viewer, &about, &typed, &mistakes).await).into_response())
}

fn to_schedule(app: &App, name: &str, audit_id: i64) -> Response {
    let to = links::schedule(app, name);
    let joint = if to.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{to}{joint}done={audit_id}")).into_response()
}

async fn page(
    app: &App,
    viewer: &Viewer,
    about: &About,
    typed: &Typed,
    mistakes: &Mistakes,
) -> Markup {
    let (title, to) = match about {
        About::New => ("New schedule".to_owned(), "/schedules/new".to_owned()),
        About::Old(_) => (
            format!("Edit {}", typed.name),
            format!("/schedules/edit?name={}", encoded(&typed.name)),
        ),
    };
    let main = html! {
        h1 { (title) }
        form .sides method="post" action=(app.path(&to)) data-preview=(app.path("/schedules/preview")) {
            section .card {
                @if !mistakes.is_empty() {
                    p .flash .bad role="alert" {
                        "Nothing was written yet: see what is marked below."
                        @if let Some(whole) = mistakes.get("") { " " (whole) }
                    }
                }
                (fields_of(about, typed, mistakes))
                div .row {
                    button { @match about { About::New => "Create", About::Old(_) => "Save" } }
                    button .plain name="do" value="preview" { "Preview" }
                    a href=(app.path("/schedules")) { "Back" }
                }
            }
            section .card {
                h2 { "Next times" }
                div #preview { (preview::of(app, &typed.rule, &typed.zone)) }
            }
        }
    };
    layout::page(app, viewer, &title, "/schedules", main).await
}

fn fields_of(about: &About, typed: &Typed, mistakes: &Mistakes) -> Markup {
    let line =
        |name, label, value, hint| Line { name, label, value, hint, list: None }.show(mistakes);
    html! {
        div .fields {
            @match about {
                About::New => (line("name", "Name", &typed.name, "")),
                About::Old(_) => input type="hidden" name="name" value=(typed.name);,
            }
            (Line { name: "rule", label: "When", value: &typed.rule, list: Some(&RULES),
                    hint: "every 15m, or a cron expression: minute hour day month weekday" }.show(mistakes))
            (Line { name: "zone", label: "Time zone", value: &typed.zone, list: Some(&ZONES),
                    hint: "whose clock a cron expression is about" }.show(mistakes))
            (line("class", "Class", &typed.class, "which code runs"))
            (line("queue", "Queue", &typed.queue, ""))
            (line("priority", "Priority", &typed.priority, "higher runs first"))
            label .wide {
                "Parameters"
                textarea name="parameters" rows="5" spellcheck="false"
                         aria-invalid=[mistakes.get("parameters").map(|_| "true")] { "\n" (typed.parameters) }
                (under(mistakes, "parameters", "a JSON object"))
            }
            (choice("missed", "Missed times", &typed.missed, mistakes, &[
                ("last", one::missed_words(Missed::Last)),
                ("skip", one::missed_words(Missed::Skip)),
                ("all", "all that passed while no engine ran are made good".to_owned()),
            ]))
            (line("missed_max", "At most (if all)", &typed.missed_max, "1 to 1000"))
            (choice("overlap", "Overlap", &typed.overlap, mistakes, &[
                ("allow", one::overlap_words(Overlap::Allow).to_owned()),
                ("skip", one::overlap_words(Overlap::Skip).to_owned()),
                ("wait", one::overlap_words(Overlap::Wait).to_owned()),
            ]))
            (line("jitter", "Jitter", &typed.jitter, "waits up to so long after its time, at random"))
            (line("reason", "Why", "", "for the audit"))
        }
    }
}

/// A field of one line.
struct Line<'a> {
    name: &'static str,
    label: &'a str,
    value: &'a str,
    hint: &'a str,
    /// What it suggests.
    list: Option<&'a [&'a str]>,
}

impl Line<'_> {
    fn show(&self, mistakes: &Mistakes) -> Markup {
        let list = self.list.map(|_| format!("{}-list", self.name));
        html! {
            label {
                (self.label)
                input type="text" name=(self.name) value=(self.value) list=[list.as_deref()]
                      autocomplete="off" spellcheck="false"
                      aria-invalid=[mistakes.get(self.name).map(|_| "true")];
                (under(mistakes, self.name, self.hint))
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
    mistakes: &Mistakes,
    options: &[(&str, String)],
) -> Markup {
    html! {
        label .wide {
            (label)
            select name=(name) aria-invalid=[mistakes.get(name).map(|_| "true")] {
                @for (value, words) in options {
                    option value=(value) selected[*value == chosen] { (value) ": " (words) }
                }
            }
            (under(mistakes, name, ""))
        }
    }
}

/// What is wrong with a field, or what it is for.
fn under(mistakes: &Mistakes, name: &str, hint: &str) -> Markup {
    html! {
        @match mistakes.get(name) {
            Some(mistake) => span .mistake { (mistake) },
            None => @if !hint.is_empty() { small { (hint) } },
        }
    }
}
