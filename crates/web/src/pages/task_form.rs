//! The fields of a task in forms: to create one, or to change one that waits.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::json::InvalidJson;
use task_engine_core::json::Json;
use task_engine_core::parse;
use task_engine_core::task::Due;

use super::actions::Fields;
use super::tasks::Known;
use crate::app::App;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) field: &'static str,
    pub(crate) why: String,
    /// The line of the text that is wrong, and a mark below the place.
    pub(crate) place: Option<String>,
}

impl Mistake {
    pub(crate) fn new(field: &'static str, why: &(impl ToString + ?Sized)) -> Self {
        Self { field, why: why.to_string(), place: None }
    }
}

/// Reads a JSON object; nothing is `{}`.
pub(crate) fn parameters(text: &str) -> Result<Json, Mistake> {
    let text = text.replace("\r\n", "\n");
    let text = text.trim();
    if text.is_empty() {
        return Ok(Json::empty_object());
    }
    Json::parse_object(text).map_err(|bad| Mistake {
        field: "parameters",
        why: bad.to_string(),
        place: place(text, &bad),
    })
}

/// The line that is wrong, and a mark below the character.
fn place(text: &str, bad: &InvalidJson) -> Option<String> {
    const AROUND: usize = 40;
    let at = match bad {
        InvalidJson::Syntax(_) => {
            let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
            let before = text.split_inclusive('\n').take(error.line() - 1).map(str::len);
            before.sum::<usize>() + error.column().saturating_sub(1)
        }
        InvalidJson::TooDeep { at } | InvalidJson::Unstorable { at, .. } => *at,
        _ => return None,
    };
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let (head, tail) = (&text[begin..at], &text[at..end]);
    let skipped = head.chars().count().saturating_sub(AROUND);
    let head: String = head.chars().skip(skipped).collect();
    let tail: String = tail.chars().take(AROUND).collect();
    Some(format!("{head}{tail}\n{}^", " ".repeat(head.chars().count())))
}

/// A time or a wait; `None` if neither is given.
pub(crate) fn due(app: &App, fields: &Fields, now: Timestamp) -> Result<Option<Due>, Mistake> {
    match (fields.get("at"), fields.get("in")) {
        (Some(_), Some(_)) => {
            Err(Mistake::new("in", "give a time or a wait, not both; leave one of them empty"))
        }
        (Some(at), None) => parse::future_time(at, &now.to_zoned(app.zone.clone()))
            .map(|time| Some(Due::At(time)))
            .map_err(|why| Mistake::new("at", &why)),
        (None, Some(wait)) => parse::duration(wait)
            .map(|wait: Duration| Some(Due::After(wait)))
            .map_err(|why| Mistake::new("in", &why)),
        (None, None) => Ok(None),
    }
}

pub(crate) fn priority(fields: &Fields) -> Result<Option<i32>, Mistake> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            Mistake::new(
                "priority",
                &format!("{text:?} is not a priority; it is a whole number, and higher runs first"),
            )
        })
    };
    fields.get("priority").map(read).transpose()
}

/// One field with its label, what it is for, and what is wrong with it.
pub(crate) struct Field<'a> {
    pub(crate) name: &'static str,
    pub(crate) label: &'a str,
    pub(crate) hint: &'a str,
    pub(crate) value: &'a str,
    /// Where the browser may find proposals.
    pub(crate) list: Option<&'a str>,
    pub(crate) required: bool,
}

impl Field<'_> {
    pub(crate) fn show(&self, mistake: Option<&Mistake>) -> Markup {
        let wrong = mistake.filter(|mistake| mistake.field == self.name);
        let about = format!("about-{}", self.name);
        html! {
            div {
                label for=(self.name) { (self.label) }
                input #(self.name) type="text" name=(self.name) value=(self.value)
                      list=[self.list] required[self.required] autocomplete="off"
                      aria-describedby=(about) aria-invalid=[wrong.map(|_| "true")];
                (said(&about, self.hint, wrong))
            }
        }
    }
}

/// The text of the parameters, in a field of its own.
pub(crate) fn parameters_field(value: &str, hint: &str, mistake: Option<&Mistake>) -> Markup {
    let wrong = mistake.filter(|mistake| mistake.field == "parameters");
    html! {
        div .wide {
            label for="parameters" { "Parameters (a JSON object)" }
            textarea #parameters name="parameters" rows="8" spellcheck="false"
                     aria-describedby="about-parameters" aria-invalid=[wrong.map(|_| "true")] {
                // The first line break of a text area is not part of it.
                "\n" (value)
            }
            (said("about-parameters", hint, wrong))
        }
    }
}

fn said(id: &str, hint: &str, wrong: Option<&Mistake>) -> Markup {
    html! {
        div id=(id) .hint {
            @if let Some(wrong) = wrong {
                div .wrong role="alert" { "Wrong: " (wrong.why) }
                @if let Some(place) = &wrong.place { pre .mistake { (place) } }
            } @else { (hint) }
        }
    }
}

/// What browsers propose for classes and queues.
pub(crate) fn lists(known: &Known) -> Markup {
    html! {
        datalist #classes { @for name in &known.classes { option value=(name) {} } }
        datalist #queues { @for name in &known.queues { option value=(name) {} } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Mistake {
        parameters(text).unwrap_err()
    }

    #[test]
    fn a_mistake_in_json_is_pointed_at() {
        let mistake = wrong("{\r\n  \"a\": 1,\r\n  \"b\": oops\r\n}");
        assert_eq!(mistake.place.as_deref(), Some("  \"b\": oops\n       ^"));
        assert!(mistake.why.contains("line 3"), "{}", mistake.why);
        assert_eq!(wrong("{\"ä\": x}").place.as_deref(), Some("{\"ä\": x}\n      ^"));
        assert_eq!(wrong("[1]").place, None);
        assert!(wrong("[1]").why.contains("an array"));
        let long = format!("{{\"a\": \"{}\", }}", "x".repeat(500));
        assert!(wrong(&long).place.unwrap().len() < 200);
        assert!(wrong("{").place.is_some());
        assert_eq!(
            wrong("{\"a\": \"\\u0000\"}").place.as_deref(),
            Some("{\"a\": \"\\u0000\"}\n       ^")
        );
    }

    #[test]
    fn nothing_is_an_empty_object() {
        assert_eq!(parameters(" \r\n"), Ok(Json::empty_object()));
        assert_eq!(parameters(" {\"a\":\r\n1}").unwrap().as_str(), "{\"a\":\n1}");
    }
}
