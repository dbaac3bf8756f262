//! The file of a flow: TOML or JSON.
//!
//! TOML becomes the JSON of the HTTP API, which one reader reads; the place of each value is
//! kept, so that errors name the line.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use task_engine_operations::fields::{InvalidField, escaped};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::escape::escape;

/// A definition in JSON, and where its values are in the file.
#[derive(Debug)]
pub(super) struct FlowFile {
    /// The name of the file in errors.
    name: String,
    pub(super) json: String,
    /// The places of values in TOML by their pointers; `None` for JSON.
    places: Option<Places>,
}

#[derive(Debug, Default)]
struct Places {
    text: String,
    by_pointer: HashMap<String, Range<usize>>,
}

impl FlowFile {
    /// A file: JSON if its name ends with `.json` or its first character opens an object.
    pub(super) fn read(name: &str, text: String) -> Result<Self, String> {
        let is_json = name.ends_with(".json") || text.trim_start().starts_with('{');
        if is_json && !name.ends_with(".toml") {
            return Ok(Self { name: name.to_owned(), json: text, places: None });
        }
        let mut places = Places { text, by_pointer: HashMap::new() };
        let text = std::mem::take(&mut places.text);
        let table = DeTable::parse(&text).map_err(|error| {
            let (line, column) = position(&text, error.span().map_or(0, |span| span.start));
            format!("{name}:{line}:{column}: {}", escape(error.message()))
        })?;
        let json = places.table(table.get_ref(), "", true).map_err(|(place, why)| {
            let (line, column) = position(&text, place.start);
            format!("{name}:{line}:{column}: {why}")
        })?;
        places.text = text;
        Ok(Self { name: name.to_owned(), json, places: Some(places) })
    }

    /// The error of a field, with its place in the file.
    pub(super) fn error(&self, error: &InvalidField) -> String {
        let message = escape(&error.message);
        match &self.places {
            Some(places) => {
                let (line, column) = position(&places.text, places.nearest(&error.pointer));
                // As it is called in this file.
                let message = message.replace("Unknown field \"tasks\"", "Unknown field");
                format!("{}:{line}:{column}: {message}", self.name)
            }
            None if error.pointer.is_empty() => format!("{}: {message}", self.name),
            None => format!("{} at {}: {message}", self.name, escape(&error.pointer)),
        }
    }
}

/// A value that JSON cannot have.
type Refused = (Range<usize>, String);

impl Places {
    /// The place of a value, or of the nearest one around it.
    fn nearest(&self, pointer: &str) -> usize {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.by_pointer.get(pointer) {
                return place.start;
            }
            match pointer.rfind('/') {
                Some(end) => pointer = &pointer[..end],
                None => return 0,
            }
        }
    }

    /// In the order of the file. At the top, `[task.NAME]` is one of the tasks.
    fn table(
        &mut self,
        table: &DeTable<'_>,
        pointer: &str,
        is_top: bool,
    ) -> Result<String, Refused> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut text = String::from("{");
        for (at, (name, value)) in entries.into_iter().enumerate() {
            let given = name.get_ref().as_ref();
            if is_top && given == "tasks" {
                let why = "write [task.NAME] for each task, instead of a table \"tasks\"";
                return Err((name.span(), why.to_owned()));
            }
            let called = if is_top && given == "task" { "tasks" } else { given };
            let pointer = format!("{pointer}/{}", escaped(called));
            self.by_pointer.insert(pointer.clone(), name.span());
            if at > 0 {
                text.push(',');
            }
            text.push_str(&Value::from(called).to_string());
            text.push(':');
            text.push_str(&self.value(value, &pointer)?);
        }
        text.push('}');
        Ok(text)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, pointer: &str) -> Result<String, Refused> {
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()).to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(time) => Value::from(time.to_string()).to_string(),
            DeValue::Integer(number) => {
                let parsed = i128::from_str_radix(number.as_str(), number.radix());
                let why = |_| (value.span(), "this number is too large".to_owned());
                parsed.map_err(why)?.to_string()
            }
            DeValue::Float(number) => {
                let text = number.as_str();
                let text = text.strip_prefix('+').unwrap_or(text);
                if serde_json::from_str::<serde_json::Number>(text).is_err() {
                    return Err((value.span(), format!("{text} is not a number in JSON")));
                }
                text.to_owned()
            }
            DeValue::Array(values) => {
                let mut text = String::from("[");
                for (at, value) in values.iter().enumerate() {
                    let pointer = format!("{pointer}/{at}");
                    self.by_pointer.insert(pointer.clone(), value.span());
                    if at > 0 {
                        text.push(',');
                    }
                    text.push_str(&self.value(value, &pointer)?);
                }
                text.push(']');
                text
            }
            DeValue::Table(table) => self.table(table, pointer, false)?,
        })
    }
}

/// The line and the column of a byte.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let begins = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[begins..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use task_engine_operations::definition::FlowDefinition;
    use task_engine_operations::fields::parse;

    use super::*;

    fn error(name: &str, text: &str) -> String {
        let file = match FlowFile::read(name, text.to_owned()) {
            Ok(file) => file,
            Err(error) => return error,
        };
        let read = parse(&file.json).and_then(FlowDefinition::read);
        file.error(&read.and_then(FlowDefinition::resolve).unwrap_err())
    }

    #[test]
    fn toml_becomes_json() {
        let text = "name = 'nightly'\n[task.load]\nclass = \"load\"\nafter = ['extract', 17]\n\
                    parameters = {n = 0x10, x = 1.50, at = 2026-12-24T18:00:00Z, ok = true}\n\
                    [task.'a/b']\nclass = 'a'\n";
        let file = FlowFile::read("flow.toml", text.to_owned()).unwrap();
        assert_eq!(
            file.json,
            r#"{"name":"nightly","tasks":{"load":{"class":"load","after":["extract",17],"parameters":{"n":16,"x":1.50,"at":"2026-12-24T18:00:00Z","ok":true}},"a/b":{"class":"a"}}}"#
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("[task.a\n", "flow.toml:1:8: "),
            ("[task.a]\nclass = 'a'\n[task.a]\n", "flow.toml:3:"),
            ("[task.a]\nclass = 'a'\nclass = 'b'\n", "flow.toml:3:1: duplicate key"),
            ("[tasks.a]\nclass = 'a'\n", "flow.toml:1:2: write [task.NAME]"),
            (
                "[task.a]\nclass = 'a'\nparameters = {x = nan}\n",
                "flow.toml:3:19: nan is not a number",
            ),
            (
                "[task.a]\nclas = 'a'\n",
                "flow.toml:2:1: Unknown field \"clas\"; did you mean class?",
            ),
            ("[task.a]\n", "flow.toml:1:7: class: the field is missing"),
            ("", "flow.toml:1:1: tasks: a flow needs a task"),
            (
                "[task.extract]\nclass = 'a'\n[task.load]\nclass = 'a'\nafter = [\n  'extrat',\n]\n",
                "flow.toml:6:3: after/0: task \"load\" depends on \"extrat\", which is no task of the flow; did you mean \"extract\"?",
            ),
            (
                "[task.a]\nclass = 'a'\nafter = 'b'\n[task.b]\nclass = 'a'\nafter = 'a'\n",
                "flow.toml:1:7: The tasks of the flow wait for each other: a → b → a",
            ),
        ] {
            let error = error("flow.toml", text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!(
            error("-", "{\"tasks\": {}, \"tasks\": {}}")
                .contains("at /tasks: The field \"tasks\" is given twice")
        );
        assert!(error("flow.json", "nonsense").starts_with("flow.json: The text is not JSON"));
    }
}
