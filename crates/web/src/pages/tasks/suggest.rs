//! What could come next in a filter that somebody is typing.

use serde::Serialize;
use task_engine_core::filter::Filter;
use task_engine_core::task::TaskStatus;

/// The fields of the language: name, operators, and what it is.
pub(super) const FIELDS: [(&str, &[&str], &str); 17] = [
    ("status", &["=", "!="], "waiting, running, stopped, failed, cancelled"),
    ("class", TEXT, "which code runs"),
    ("error", TEXT, "kind or message of the last error"),
    ("created", TIME, "a time, like now-2h or 2026-12-24; > is later, < is earlier"),
    ("updated", TIME, "when it last changed"),
    ("due", TIME, "from when on it may run"),
    ("started", TIME, "when its last attempt began"),
    ("ended", TIME, "when its last attempt ended"),
    ("queue", TEXT, "where it waits"),
    ("priority", NUMBER, "higher runs first"),
    ("id", NUMBER, "of the task"),
    ("instance", TEXT, "the engine that has or had it"),
    ("correlation", TEXT, "which flow it belongs to"),
    ("attempts", NUMBER, "how many have begun"),
    ("retries", NUMBER, "how many were used"),
    ("params.", &[], "a field of its parameters, like params.user.id=42"),
    ("context.", &[], "a field of its context"),
];

const TEXT: &[&str] = &["=", "!=", "~", "!~"];
const NUMBER: &[&str] = &["=", "!=", ">", ">=", "<", "<="];
const TIME: &[&str] = &[">", ">=", "<", "<="];

/// So many are offered at the most.
const OFFERED_MAX: usize = 12;

/// Names that are known now.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) classes: Vec<String>,
    pub(crate) queues: Vec<String>,
    pub(crate) instances: Vec<String>,
}

/// What may replace a part of the text.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Suggestions {
    /// The part, as JavaScript counts: in units of UTF-16.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) offers: Vec<Offer>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Offer {
    pub(crate) text: String,
    pub(crate) about: &'static str,
}

impl Offer {
    fn new(text: impl Into<String>, about: &'static str) -> Self {
        Self { text: text.into(), about }
    }
}

/// What fits at a place in the text, which is counted in units of UTF-16.
pub(crate) fn suggest(text: &str, at: usize, known: &Known) -> Suggestions {
    let mut units = 0;
    let head = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > at
    });
    let head = head.map_or(text, |(end, _)| &text[..end]);
    let word = &head[word_begin(head)..];
    let operator = word.find(['=', '!', '~', '<', '>']);
    let (typed, offers) = match operator {
        None => (word, fields(word)),
        Some(end) => {
            let (field, rest) = word.split_at(end);
            let begun = rest.trim_start_matches(['=', '!', '~', '<', '>']);
            let value = &begun[value_begin(begun)..];
            (value, values(field, value, known))
        }
    };
    let to = units_of(head);
    Suggestions { from: to - units_of(typed), to, offers }
}

fn units_of(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Where the last word begins: after the last space that is in no quotes.
fn word_begin(head: &str) -> usize {
    after_last(head, char::is_whitespace)
}

/// Where the last of several values begins.
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
fn fields(word: &str) -> Vec<Offer> {
    if let Some((name, operators, about)) = FIELDS.iter().find(|(name, ..)| *name == word) {
        return operators.iter().map(|sign| Offer::new(format!("{name}{sign}"), about)).collect();
    }
    let begin = FIELDS.iter().filter(|(name, ..)| name.starts_with(word));
    begin.map(|(name, _, about)| Offer::new(*name, about)).collect()
}

fn values(field: &str, typed: &str, known: &Known) -> Vec<Offer> {
    const TIMES: [(&str, &str); 4] = [
        ("now-10m", "ten minutes ago"),
        ("now-1h", "an hour ago"),
        ("now-1d", "a day ago"),
        ("now-7d", "a week ago"),
    ];
    let plain = typed.trim_start_matches('"').to_lowercase();
    let named = |names: &[String]| {
        let fits = |name: &&String| {
            let name = name.to_lowercase();
            name.contains(&plain) && name != plain
        };
        let fitting = names.iter().filter(fits).take(OFFERED_MAX);
        fitting.map(|name| Offer::new(quoted(name), "")).collect()
    };
    match field {
        "status" => {
            let is_meant = |status: &TaskStatus| {
                let word = status.as_str();
                let is_begun = |word: &str| word.starts_with(&plain) && word != plain;
                is_begun(word) || *status == TaskStatus::Stopped && is_begun(TaskStatus::SUCCEEDED)
            };
            let offer = |status: TaskStatus| match status {
                TaskStatus::Stopped => Offer::new(status.as_str(), TaskStatus::SUCCEEDED),
                _ => Offer::new(status.as_str(), ""),
            };
            TaskStatus::ALL.into_iter().filter(is_meant).map(offer).collect()
        }
        "created" | "updated" | "due" | "started" | "ended" => {
            let begin = TIMES.iter().filter(|(time, _)| time.starts_with(&plain) && *time != plain);
            begin.map(|(time, about)| Offer::new(*time, about)).collect()
        }
        "class" => named(&known.classes),
        "queue" => named(&known.queues),
        "instance" => named(&known.instances),
        _ => Vec::new(),
    }
}

/// A value as the language wants it.
fn quoted(value: &str) -> String {
    let term = Filter::default().and_class(value).to_string();
    term.strip_prefix("class=").unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    fn known() -> Known {
        Known {
            classes: vec!["send_mail".into(), "send \"it\"".into(), "tidy".into()],
            queues: vec!["default".into(), "mail".into()],
            instances: vec!["web-1".into()],
        }
    }

    fn offers(text: &str) -> Vec<String> {
        let all = suggest(text, units_of(text), &known()).offers;
        all.into_iter().map(|offer| offer.text).collect()
    }

    #[test]
    fn what_is_offered_fits_what_was_typed() {
        assert_eq!(offers("").len(), FIELDS.len());
        assert_eq!(offers("st"), ["status", "started"]);
        assert_eq!(offers("status"), ["status=", "status!="]);
        assert_eq!(offers("status="), ["waiting", "running", "stopped", "failed", "cancelled"]);
        assert_eq!(offers("status=failed,c"), ["cancelled"]);
        assert_eq!(offers("status=failed"), Vec::<String>::new());
        assert_eq!(offers("status=failed class=SEND"), ["send_mail", r#""send \"it\"""#]);
        assert_eq!(offers("queue!=ma"), ["mail"]);
        assert_eq!(offers("instance=w"), ["web-1"]);
        assert_eq!(offers("created<now-1"), ["now-10m", "now-1h", "now-1d"]);
        assert_eq!(offers("par"), ["params."]);
        assert_eq!(offers("params.user.id="), Vec::<String>::new());
        assert_eq!(offers("nothing"), Vec::<String>::new());
        assert_eq!(offers(r#"error~"a st"#), Vec::<String>::new(), "inside of quotes");
        assert_eq!(offers(r#"error~"a b" sta"#), ["status", "started"]);
    }

    #[test]
    fn the_place_is_counted_as_browsers_do() {
        // Two units, one character.
        let text = "error~😀 st more";
        let found = suggest(text, 11, &known());
        assert_eq!((found.from, found.to), (9, 11));
        assert_eq!(found.offers.len(), 2);
        assert_eq!(suggest("st", 99, &known()).to, 2);
        assert_eq!(suggest("status=f", 0, &known()).to, 0);
    }

    #[test]
    fn the_language_is_the_one_that_is_read() {
        for (name, operators, _) in FIELDS {
            for operator in operators {
                let value = match name {
                    "status" => "failed",
                    _ => "1",
                };
                let value = if operators == TIME { "now-1h" } else { value };
                let text = format!("{name}{operator}{value}");
                assert!(Filter::parse(&text, &TimeZone::UTC).is_ok(), "{text}");
            }
        }
        for class in known().classes {
            let text = format!("class={}", quoted(&class));
            assert_eq!(
                Filter::parse(&text, &TimeZone::UTC).unwrap(),
                Filter::default().and_class(class)
            );
        }
    }
}
