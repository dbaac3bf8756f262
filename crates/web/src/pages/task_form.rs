//! Fields of the forms that create and edit tasks.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::json::InvalidJson;
use task_engine_core::json::Json;
use task_engine_core::parse;
use task_engine_core::schema::Schema;
use task_engine_core::task::Due;
use task_engine_operations::schemas::outline;

use super::operations::FormFields;
use super::tasks::KnownNames;
use crate::app::App;

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormError {
    pub(crate) field: &'static str,
    pub(crate) why: String,
    /// The invalid line, and a mark below the position.
    pub(crate) excerpt: Option<String>,
    /// Whether the parameters do not fit the schema of the class, which can be ignored.
    pub(crate) by_schema: bool,
}

impl FormError {
    pub(crate) fn new(field: &'static str, why: &(impl ToString + ?Sized)) -> Self {
        Self { field, why: why.to_string(), excerpt: None, by_schema: false }
    }

    /// The parameters do not fit the schema of the class.
    pub(crate) fn by_schema(why: &(impl ToString + ?Sized)) -> Self {
        Self { by_schema: true, ..Self::new("parameters", why) }
    }
}

/// Whether parameters are checked by the schema of the class: the user may have said no.
pub(crate) fn checks_parameters(fields: &FormFields) -> bool {
    fields.get("check") != Some("no")
}

/// The box to ignore the schema, once it was in the way.
pub(crate) fn check_box(fields: Option<&FormFields>, error: Option<&FormError>) -> Markup {
    let checked = fields.is_some_and(|fields| !checks_parameters(fields));
    html! {
        @if checked || error.is_some_and(|error| error.by_schema) {
            label .wide .check {
                input type="checkbox" name="check" value="no" checked[checked];
                " Ignore the schema of the class"
            }
        }
    }
}

/// What the schema of a class says about the parameters.
pub(crate) fn schema_of(schema: &Schema) -> Markup {
    let fields = outline::fields(schema);
    let text = serde_json::to_string_pretty(schema.as_value()).unwrap_or_default();
    html! {
        div .wide #schema {
            @if !fields.is_empty() {
                table .stack {
                    caption { "Fields of the parameters" }
                    thead { tr { th { "Field" } th { "Type" } th { "Description" } } }
                    tbody {
                        @for field in &fields {
                            tr {
                                td { code { (field.name) } @if field.required { " " strong { "required" } } }
                                td { (field.kind) }
                                td .schema-text { (field.description) }
                            }
                        }
                    }
                }
            }
            details .raw { summary { "JSON Schema" } pre { (text) } }
        }
    }
}

/// Reads a JSON object; empty is `{}`.
pub(crate) fn parameters(text: &str) -> Result<Json, FormError> {
    let text = text.replace("\r\n", "\n");
    let text = text.trim();
    if text.is_empty() {
        return Ok(Json::empty_object());
    }
    Json::parse_object(text).map_err(|bad| FormError {
        field: "parameters",
        why: bad.to_string(),
        excerpt: excerpt(text, &bad),
        by_schema: false,
    })
}

/// Reads the payload of a signal, any JSON value; empty is `null`.
pub(crate) fn payload(text: &str) -> Result<Json, FormError> {
    let text = text.replace("\r\n", "\n");
    let text = text.trim();
    if text.is_empty() {
        return Ok(Json::null());
    }
    Json::parse(text).map_err(|bad| FormError {
        field: "payload",
        why: bad.to_string(),
        excerpt: excerpt(text, &bad),
        by_schema: false,
    })
}

/// The invalid line, and a mark below the position.
fn excerpt(text: &str, bad: &InvalidJson) -> Option<String> {
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

/// A time, or a duration from now; `None` if neither is given.
pub(crate) fn due(
    app: &App,
    fields: &FormFields,
    now: Timestamp,
) -> Result<Option<Due>, FormError> {
    match (fields.get("at"), fields.get("after")) {
        (Some(_), Some(_)) => Err(FormError::new("after", "give a time or a duration, not both")),
        (Some(at), None) => parse::future_time(at, &now.to_zoned(app.zone.clone()))
            .map(|time| Some(Due::At(time)))
            .map_err(|why| FormError::new("at", &why)),
        (None, Some(after)) => parse::duration(after)
            .map(|after: Duration| Some(Due::After(after)))
            .map_err(|why| FormError::new("after", &why)),
        (None, None) => Ok(None),
    }
}

pub(crate) fn priority(fields: &FormFields) -> Result<Option<i32>, FormError> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            FormError::new(
                "priority",
                &format!("{text:?} is not a priority; write a whole number, higher runs first"),
            )
        })
    };
    fields.get("priority").map(read).transpose()
}

/// A field with its label, its hint, or its error.
pub(crate) struct FormField<'a> {
    pub(crate) name: &'static str,
    pub(crate) label: &'a str,
    pub(crate) hint: &'a str,
    pub(crate) value: &'a str,
    /// The id of its `datalist`.
    pub(crate) list: Option<&'a str>,
    pub(crate) required: bool,
}

impl FormField<'_> {
    pub(crate) fn show(&self, error: Option<&FormError>) -> Markup {
        let wrong = error.filter(|error| error.field == self.name);
        let about = format!("about-{}", self.name);
        html! {
            div {
                label for=(self.name) { (self.label) }
                input #(self.name) type="text" name=(self.name) value=(self.value)
                      list=[self.list] required[self.required] autocomplete="off"
                      aria-describedby=(about) aria-invalid=[wrong.map(|_| "true")];
                (hint_or_error(&about, self.hint, wrong))
            }
        }
    }
}

/// The text area of the parameters.
pub(crate) fn parameters_field(value: &str, hint: &str, error: Option<&FormError>) -> Markup {
    let (name, label) = ("parameters", "Parameters (a JSON object)");
    JsonField { id: name, name, label, hint, value, rows: 8 }.show(error)
}

/// A text area for JSON.
pub(crate) struct JsonField<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'static str,
    pub(crate) label: &'a str,
    pub(crate) hint: &'a str,
    pub(crate) value: &'a str,
    pub(crate) rows: u32,
}

impl JsonField<'_> {
    pub(crate) fn show(&self, error: Option<&FormError>) -> Markup {
        let wrong = error.filter(|error| error.field == self.name);
        let about = format!("about-{}", self.id);
        html! {
            div .wide {
                label for=(self.id) { (self.label) }
                textarea id=(self.id) name=(self.name) rows=(self.rows) spellcheck="false"
                         aria-describedby=(about) aria-invalid=[wrong.map(|_| "true")] {
                    // The first line break of a text area is not part of it.
                    "\n" (self.value)
                }
                (hint_or_error(&about, self.hint, wrong))
            }
        }
    }
}

fn hint_or_error(id: &str, hint: &str, wrong: Option<&FormError>) -> Markup {
    html! {
        div id=(id) .hint {
            @if let Some(wrong) = wrong {
                div .wrong role="alert" { "Invalid: " (wrong.why) }
                @if let Some(excerpt) = &wrong.excerpt { pre .field-error { (excerpt) } }
            } @else { (hint) }
        }
    }
}

/// Suggestions for classes and queues.
pub(crate) fn lists(known: &KnownNames) -> Markup {
    html! {
        datalist #classes { @for name in &known.classes { option value=(name) {} } }
        datalist #queues { @for name in &known.queues { option value=(name) {} } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> FormError {
        parameters(text).unwrap_err()
    }

    #[test]
    fn json_error_has_its_position() {
        let error = wrong("{\r\n  \"a\": 1,\r\n  \"b\": oops\r\n}");
        assert_eq!(error.excerpt.as_deref(), Some("  \"b\": oops\n       ^"));
        assert!(error.why.contains("line 3"), "{}", error.why);
        assert_eq!(wrong("{\"ä\": x}").excerpt.as_deref(), Some("{\"ä\": x}\n      ^"));
        assert_eq!(wrong("[1]").excerpt, None);
        assert!(wrong("[1]").why.contains("an array"));
        let long = format!("{{\"a\": \"{}\", }}", "x".repeat(500));
        assert!(wrong(&long).excerpt.unwrap().len() < 200);
        assert!(wrong("{").excerpt.is_some());
        assert_eq!(
            wrong("{\"a\": \"\\u0000\"}").excerpt.as_deref(),
            Some("{\"a\": \"\\u0000\"}\n       ^")
        );
    }

    #[test]
    fn payload_is_any_json() {
        assert_eq!(payload(" ").unwrap().as_str(), "null");
        assert_eq!(payload("\"ada\"\r\n").unwrap().as_str(), "\"ada\"");
        let error = payload("{\"by\": ada}").unwrap_err();
        assert_eq!((error.field, error.excerpt.is_some()), ("payload", true));
    }

    #[test]
    fn empty_text_is_an_empty_object() {
        assert_eq!(parameters(" \r\n"), Ok(Json::empty_object()));
        assert_eq!(parameters(" {\"a\":\r\n1}").unwrap().as_str(), "{\"a\":\n1}");
    }
}
