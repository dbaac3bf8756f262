//! Suggestions while a filter is edited.

use serde::Serialize;
use task_engine_core::filter::Filter;
use task_engine_core::task::TaskStatus;

/// The fields of a filter: name, operators, description.
pub(super) const FIELDS: [(&str, &[&str], &str); 18] = [
    ("status", &["=", "!="], "waiting, running, stopped, failed, cancelled"),
    ("class", TEXT, "class of the task"),
    ("error", TEXT, "kind or message of the last error"),
    ("created", TIME, "a time, like now-2h or 2026-12-24; > is later, < is earlier"),
    ("updated", TIME, "when it last changed"),
    ("due", TIME, "from when on it may run"),
    ("started", TIME, "when its last attempt began"),
    ("ended", TIME, "when its last attempt ended"),
    ("queue", TEXT, "where it waits"),
    ("priority", NUMBER, "higher runs first"),
    ("id", NUMBER, "id of the task"),
    ("instance", TEXT, "the engine that holds or held it"),
    ("correlation", TEXT, "which flow it belongs to"),
    ("parent", NUMBER, "the task that created it"),
    ("attempts", NUMBER, "how many have begun"),
    ("retries", NUMBER, "how many were used"),
    ("params.", &[], "a field of its parameters, like params.user.id=42"),
    ("context.", &[], "a field of its context"),
];

const TEXT: &[&str] = &["=", "!=", "~", "!~"];
const NUMBER: &[&str] = &["=", "!=", ">", ">=", "<", "<="];
const TIME: &[&str] = &[">", ">=", "<", "<="];

/// The maximum number of suggestions.
const SUGGESTIONS_MAX: usize = 12;

/// Names for suggestions.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    pub(crate) classes: Vec<String>,
    pub(crate) queues: Vec<String>,
    pub(crate) instances: Vec<String>,
}

/// Replacements for a part of the text.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Suggestions {
    /// The part, in UTF-16 units, as JavaScript counts.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) suggestions: Vec<Suggestion>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Suggestion {
    pub(crate) text: String,
    pub(crate) about: &'static str,
}

impl Suggestion {
    fn new(text: impl Into<String>, about: &'static str) -> Self {
        Self { text: text.into(), about }
    }
}

/// Suggestions at a position, counted in UTF-16 units.
pub(crate) fn suggest(text: &str, at: usize, known: &KnownNames) -> Suggestions {
    let mut units = 0;
    let head = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > at
    });
    let head = head.map_or(text, |(end, _)| &text[..end]);
    let word = &head[word_begin(head)..];
    let operator = word.find(['=', '!', '~', '<', '>']);
    let (prefix, suggestions) = match operator {
        None => (word, fields(word)),
        Some(end) => {
            let (field, rest) = word.split_at(end);
            let begun = rest.trim_start_matches(['=', '!', '~', '<', '>']);
            let value = &begun[value_begin(begun)..];
            (value, values(field, value, known))
        }
    };
    let to = units_of(head);
    Suggestions { from: to - units_of(prefix), to, suggestions }
}

fn units_of(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The start of the last word: after the last space outside quotes.
fn word_begin(head: &str) -> usize {
    after_last(head, char::is_whitespace)
}

/// The start of the last value.
fn value_begin(values: &str) -> usize {
    after_last(values, |c| c == ',')
}

fn after_last(text: &str, is: impl Fn(char) -> bool) -> usize {
    let (mut quoted, mut escaped, mut begin) = (false, false, 0);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            c if !quoted && is(c) => begin = at + c.len_utf8(),
            _ => {}
        }
    }
    begin
}

/// Fields that begin like this; the operators, once there is only one.
fn fields(word: &str) -> Vec<Suggestion> {
    if let Some((name, operators, about)) = FIELDS.iter().find(|(name, ..)| *name == word) {
        return operators
            .iter()
            .map(|sign| Suggestion::new(format!("{name}{sign}"), about))
            .collect();
    }
    let begin = FIELDS.iter().filter(|(name, ..)| name.starts_with(word));
    begin.map(|(name, _, about)| Suggestion::new(*name, about)).collect()
}

fn values(field: &str, prefix: &str, known: &KnownNames) -> Vec<Suggestion> {
    const TIMES: [(&str, &str); 4] = [
        ("now-10m", "ten minutes ago"),
        ("now-1h", "an hour ago"),
        ("now-1d", "a day ago"),
        ("now-7d", "a week ago"),
    ];
    let plain = prefix.trim_start_matches('"').to_lowercase();
    let named = |names: &[String]| {
        let fits = |name: &&String| {
            let name = name.to_lowercase();
            name.contains(&plain) && name != plain
        };
        let fitting = names.iter().filter(fits).take(SUGGESTIONS_MAX);
        fitting.map(|name| Suggestion::new(quoted(name), "")).collect()
    };
    match field {
        "status" => {
            let is_meant = |status: &TaskStatus| {
                let word = status.as_str();
                let is_begun = |word: &str| word.starts_with(&plain) && word != plain;
                is_begun(word) || *status == TaskStatus::Stopped && is_begun(TaskStatus::SUCCEEDED)
            };
            let offer = |status: TaskStatus| match status {
                TaskStatus::Stopped => Suggestion::new(status.as_str(), TaskStatus::SUCCEEDED),
                _ => Suggestion::new(status.as_str(), ""),
            };
            TaskStatus::ALL.into_iter().filter(is_meant).map(offer).collect()
        }
        "created" | "updated" | "due" | "started" | "ended" => {
            let begin = TIMES.iter().filter(|(time, _)| time.starts_with(&plain) && *time != plain);
            begin.map(|(time, about)| Suggestion::new(*time, about)).collect()
        }
        "class" => named(&known.classes),
        "queue" => named(&known.queues),
        "instance" => named(&known.instances),
        _ => Vec::new(),
    }
}

/// A value, quoted if needed.
fn quoted(value: &str) -> String {
    let term = Filter::default().and_class(value).to_string();
    term.strip_prefix("class=").unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests;
