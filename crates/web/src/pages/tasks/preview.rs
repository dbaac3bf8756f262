//! What would happen, before it does.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use task_engine_core::display::{capitalize, count};

use super::table;
use crate::action::{Choice, MAX, Meant, Verb, meant};
use crate::app::App;
use crate::layout::{self, Viewer};
use crate::pages::actions::Fields;
use crate::problem::Problem;

/// How long somebody waits to see who is meant.
const TIMEOUT: Duration = Duration::from_millis(250);

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    query: RawQuery,
) -> Result<Markup, Problem> {
    let fields = Fields::of_query(&query);
    let verb = verb(&fields)?;
    if !viewer.may(verb.needs()) {
        return Err(Problem::forbidden(format!(
            "To {} tasks needs the role {}.",
            verb.as_str(),
            verb.needs()
        )));
    }
    let choice = fields.choice(&app)?;
    let choice = app.allowed_choice(&viewer.actor, choice).await?;
    let now = app.glance.now().await?.figures.at;
    let meant = meant(&*app.store, verb, &choice, Some(TIMEOUT)).await?;
    let back = fields.get("back").unwrap_or("/tasks");
    let title = format!("{}: what is meant", capitalize(verb.as_str()));
    let main = html! {
        h1 { (capitalize(verb.as_str())) " " (number(&meant)) "?" }
        section .card {
            p { (verb.consequence()) }
            @if let Choice::Filter(_) = &choice {
                p .soft { "Meant by the filter " code { (meant.filter) }
                          ". It is asked again when you confirm: tasks that have changed by then may not be among them." }
            }
            @if let Some(down_to) = meant.down_to {
                p { "So far the tasks down to " (down_to) " were looked at; what is older is looked at when you confirm. At most "
                    (MAX) " tasks are changed at once." }
            }
            @if meant.ids.is_empty() && meant.down_to.is_none() {
                p { b { "No task is meant." } " There is nothing to do." }
            } @else {
                (confirm(&app, &viewer, verb, &choice, &meant, back))
            }
            p { a href=(crate::pages::login::back(&app, back)) { "Back, and change nothing" } }
        }
        @if !meant.sample.is_empty() {
            section .card {
                h2 { @if meant.sample.len() < meant.ids.len() { "The newest of them" } @else { "These" } }
                (table(&app, &meant.sample, now, false))
            }
        }
    };
    Ok(layout::page(&app, &viewer, &title, "/tasks", main).await)
}

fn verb(fields: &Fields) -> Result<Verb, Problem> {
    let name = fields.need("verb")?;
    Verb::named(name).ok_or_else(|| {
        let all: Vec<_> = Verb::ALL.into_iter().map(Verb::as_str).collect();
        Problem::field("/verb", format!("There is no {name:?}; there are {}.", all.join(", ")))
    })
}

fn number(meant: &Meant) -> String {
    let number = count(meant.ids.len(), "task");
    match (meant.and_more, meant.down_to) {
        (true, _) => format!("the newest {number} of more"),
        (_, Some(_)) => format!("at least {number}"),
        _ => number,
    }
}

fn confirm(
    app: &App,
    viewer: &Viewer,
    verb: Verb,
    choice: &Choice,
    meant: &Meant,
    back: &str,
) -> Markup {
    let back = if back == viewer.here { "/tasks" } else { back };
    html! {
        form method="post" action=(app.path(&format!("/actions/{}", verb.as_str()))) {
            input type="hidden" name="back" value=(back);
            @match choice {
                Choice::Ids(ids) => @for id in ids { input type="hidden" name="ids" value=(id); },
                Choice::Filter(filter) => input type="hidden" name="filter" value=(filter);,
            }
            div .fields {
                label .wide {
                    "Why (for the audit; may be empty)"
                    input type="text" name="reason" maxlength="250";
                }
            }
            button .(if verb == Verb::Delete { "danger" } else { "sure" }) {
                (capitalize(verb.as_str())) " " (number(meant))
            }
        }
    }
}
