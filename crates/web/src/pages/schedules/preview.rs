//! The next slots of a rule, also while it is edited.

use axum::extract::{Query, State};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::schedule::{InvalidDefinition, Timetable};

use super::rule;
use crate::app::App;
use crate::parts;

/// Slots per preview.
pub(super) const SHOWN: usize = 10;

#[derive(Debug, Deserialize)]
pub(crate) struct PreviewQuery {
    #[serde(default)]
    rule: String,
    #[serde(default)]
    time_zone: String,
}

pub(crate) async fn fragment(State(app): State<App>, Query(query): Query<PreviewQuery>) -> Markup {
    slots(&app, &query.rule, &query.time_zone)
}

/// The next slots of a rule, or what is wrong with it.
pub(super) fn slots(app: &App, rule: &str, zone: &str) -> Markup {
    if rule.trim().is_empty() {
        return html! { p .soft { "The next slots are shown here." } };
    }
    let now = Timestamp::now();
    match timetable(rule, zone, now) {
        Err(error) => html! { p .field-error { (error) } },
        Ok(timetable) => times(app, rule, &timetable, now),
    }
}

fn timetable(rule: &str, zone: &str, anchor: Timestamp) -> Result<Timetable, InvalidDefinition> {
    let name = if zone.trim().is_empty() { "UTC" } else { zone.trim() };
    let zone = TimeZone::get(name).map_err(|_| InvalidDefinition::Zone(name.to_owned()))?;
    let timetable =
        Timetable { rule: rule.parse().map_err(InvalidDefinition::Rule)?, zone, anchor };
    match timetable.next_after(anchor) {
        Some(_) => Ok(timetable),
        None => Err(InvalidDefinition::Never(rule.trim().to_owned())),
    }
}

/// The next slots, with notes on clock changes.
pub(super) fn times(app: &App, rule: &str, timetable: &Timetable, now: Timestamp) -> Markup {
    let next = timetable.preview(now, SHOWN);
    let has_notes = next.iter().any(|time| time.note.is_some());
    html! {
        @if let Some(text) = rule::describe(rule) { p { (text) } }
        div .scroll {
            table .times {
                thead { tr {
                    th scope="col" { "Local time in " (timetable.zone.iana_name().unwrap_or("the time zone")) }
                    th scope="col" { "When" }
                    @if has_notes { th scope="col" { "Clock change" } }
                } }
                tbody {
                    @for time in next {
                        tr {
                            td .nowrap { (time.local.strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()) }
                            td .nowrap { (parts::time(app, time.at, now)) }
                            @if has_notes { td { (time.note.as_deref().unwrap_or("")) } }
                        }
                    }
                }
            }
        }
    }
}
