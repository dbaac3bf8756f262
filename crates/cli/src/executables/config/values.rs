//! Values of the file: each is read as what its key wants, or is a mistake with
//! its place.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Reader};
use crate::times::duration;

pub(super) type Value<'a> = Spanned<DeValue<'a>>;
pub(super) type Key<'a> = Spanned<Cow<'a, str>>;

impl Reader<'_> {
    pub(super) fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        let before = &self.text[..span.start.min(self.text.len())];
        let line_begins = before.rfind('\n').map_or(0, |at| at + 1);
        self.mistakes.push(ConfigError {
            line: before.matches('\n').count() + 1,
            column: before[line_begins..].chars().count() + 1,
            message: message.into(),
        });
    }

    pub(super) fn duration(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        most: Duration,
    ) -> Option<Duration> {
        let (_, value) = entry(table, key)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            other => {
                let message = format!("{key} is a duration like \"30s\", not {}", kind(other));
                self.mistake(value.span(), message);
                return None;
            }
        };
        match duration(&text) {
            Ok(time) if time.is_zero() => self.mistake(value.span(), format!("{key} cannot be 0")),
            Ok(time) if time > most => {
                self.mistake(value.span(), format!("{key} is more than a year"));
            }
            Ok(time) => return Some(time),
            Err(why) => self.mistake(value.span(), format!("{key} = {text:?}: {why}")),
        }
        None
    }

    pub(super) fn whole<N: TryFrom<i64>>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        least: i64,
        most: i64,
    ) -> Option<N> {
        let (_, value) = entry(table, key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        let fits = number.filter(|number| (least..=most).contains(number));
        let fits = fits.and_then(|number| N::try_from(number).ok());
        if fits.is_none() {
            let message = format!("{key} is a whole number from {least} to {most}");
            self.mistake(value.span(), message);
        }
        fits
    }

    pub(super) fn number(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        least: f64,
        most: f64,
    ) -> Option<f64> {
        let (_, value) = entry(table, key)?;
        let text = match value.get_ref() {
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => "",
        };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.mistake(value.span(), format!("{key} is a number from {least} to {most}"));
        }
        number
    }

    pub(super) fn text(&mut self, value: &Value<'_>, key: &str) -> Option<String> {
        let text = value.get_ref().as_str().filter(|text| !text.contains('\0'));
        if text.is_none() {
            let message = format!("{key} is a text in quotes, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
        }
        text.map(str::to_owned)
    }

    pub(super) fn texts(&mut self, value: &Value<'_>, key: &str) -> Option<Vec<String>> {
        let Some(list) = value.get_ref().as_array() else {
            let message = format!("{key} is a list of texts, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
            return None;
        };
        list.iter().map(|value| self.text(value, "each of the list")).collect()
    }

    pub(super) fn table<'t, 'i>(
        &mut self,
        value: &'t Value<'i>,
        what: &str,
    ) -> Option<&'t DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let message = format!("{what} is a table, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
        }
        table
    }

    pub(super) fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[&str], otherwise: &str) {
        for key in table.keys() {
            let name = key.get_ref();
            if known.contains(&&**name) {
                continue;
            }
            let hint = match nearest(name, known) {
                Some(meant) => format!("did you mean {meant}?"),
                None if known.len() > 1 => format!("known are {}", known.join(", ")),
                None => otherwise.to_owned(),
            };
            self.mistake(key.span(), format!("{name:?} is not a known key; {hint}"));
        }
    }
}

pub(super) fn most(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) type Entry<'t, 'i> = (&'t Key<'i>, &'t Value<'i>);

pub(super) fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<Entry<'t, 'i>> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The known word that a mistyped one was most likely meant to be.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let ranked = known.iter().map(|known| (strsim::levenshtein(&word, known), *known));
    ranked.min().filter(|(away, known)| *away <= 1 + known.len() / 4).map(|(_, known)| known)
}
