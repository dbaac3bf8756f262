//! The tables and keys of the file, as serde reads them. Each value that a later
//! check may refuse keeps its place in the file.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use task_engine::limit::{MAX_RUNNING_MAX, RATE_MAX, RATE_PER_MAX, RATE_PER_MIN, Rate};
use task_engine::{Missed, Overlap};
use task_engine_core::json::BYTES_MAX;
use task_engine_core::progress::LINES_MAX;
use task_engine_core::retry::DELAY_MAX;
use toml::Spanned;

use super::SLOTS_MAX;
use crate::times::duration;

const RUNNING_MAX: usize = MAX_RUNNING_MAX as usize;
const RATE_STARTS_MAX: usize = RATE_MAX as usize;

pub(super) type SpannedName = Spanned<String>;
pub(super) type Tables<T> = BTreeMap<SpannedName, T>;
pub(super) type Texts = Spanned<Vec<Spanned<ConfigText>>>;
pub(super) type Processes = Spanned<Bounded<1, 1000>>;
pub(super) type Concurrency = Spanned<Bounded<1, SLOTS_MAX>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct ConfigFile {
    pub(super) class: Tables<ClassTable>,
    pub(super) worker: Tables<WorkerTable>,
    pub(super) schedule: Tables<ScheduleTable>,
    pub(super) queue: Tables<QueueTable>,
    pub(super) limit: Tables<LimitTable>,
    pub(super) database: Option<Spanned<ConfigText>>,
}

/// For a command that needs only the database: errors elsewhere do not matter.
#[derive(Debug, Deserialize)]
pub(super) struct DatabaseOnly {
    pub(super) database: Option<Spanned<ConfigText>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct ClassTable {
    pub(super) command: Option<Spanned<CommandWords>>,
    pub(super) worker: Option<Spanned<ConfigText>>,
    pub(super) mode: Option<Spanned<ModeName>>,
    pub(super) processes: Option<Processes>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) env: Option<Spanned<Tables<ConfigText>>>,
    pub(super) pass_env: Option<Texts>,
    pub(super) folder: Option<Spanned<ConfigText>>,
    pub(super) timeout: Option<PositiveDuration>,
    pub(super) grace: Option<PositiveDuration>,
    pub(super) retry: RetryTable,
    pub(super) queue: Option<Spanned<ConfigText>>,
    pub(super) priority: Option<i32>,
    pub(super) result_bytes: Option<Bounded<1, BYTES_MAX>>,
    pub(super) log_lines: Option<Bounded<0, LINES_MAX>>,
    pub(super) secret: Option<Texts>,
    pub(super) limit: Option<Spanned<LimitValue>>,
    pub(super) rate: Option<Spanned<RateValue>>,
    pub(super) in_order: Option<Spanned<OrderValue>>,
    pub(super) fair: Option<Spanned<ConfigText>>,
    pub(super) limits: Option<Vec<Spanned<NamedLimitTable>>>,
}

/// The limits of a queue.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct QueueTable {
    pub(super) limit: Option<Spanned<LimitValue>>,
    pub(super) rate: Option<Spanned<RateValue>>,
    pub(super) in_order: Option<Spanned<OrderValue>>,
    pub(super) fair: Option<Spanned<ConfigText>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct LimitTable {
    pub(super) max: Option<Bounded<1, RUNNING_MAX>>,
    pub(super) key: Option<Spanned<ConfigText>>,
    pub(super) rate: Option<Spanned<RateValue>>,
    pub(super) in_order: Option<bool>,
    pub(super) weights: BTreeMap<String, u32>,
}

/// A limit with its name, in a list.
#[derive(Debug, Default)]
pub(super) struct NamedLimitTable {
    pub(super) name: Option<Spanned<ConfigText>>,
    pub(super) limit: LimitTable,
}

impl<'de> Deserialize<'de> for NamedLimitTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Not flattened: serde would lose the places of errors.
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default, expecting = "a table")]
        struct All {
            name: Option<Spanned<ConfigText>>,
            max: Option<Bounded<1, RUNNING_MAX>>,
            key: Option<Spanned<ConfigText>>,
            rate: Option<Spanned<RateValue>>,
            in_order: Option<bool>,
            weights: BTreeMap<String, u32>,
        }
        let All { name, max, key, rate, in_order, weights } = All::deserialize(from)?;
        Ok(Self { name, limit: LimitTable { max, key, rate, in_order, weights } })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RateTable {
    pub(super) max: Bounded<1, RATE_STARTS_MAX>,
    pub(super) per: PositiveDuration,
    pub(super) key: Option<Spanned<ConfigText>>,
    pub(super) even: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct OrderTable {
    pub(super) key: Option<Spanned<ConfigText>>,
}

/// `limit = 2`, or a table.
#[derive(Debug)]
pub(super) enum LimitValue {
    Max(Bounded<1, RUNNING_MAX>),
    Table(LimitTable),
}

/// `rate = "100/1s"`, or a table.
#[derive(Debug)]
pub(super) enum RateValue {
    Text(Rate),
    Table(RateTable),
}

/// `in_order = true`, or a table.
#[derive(Debug)]
pub(super) enum OrderValue {
    InOrder(bool),
    Table(OrderTable),
}

impl<'de> Deserialize<'de> for LimitValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct LimitVisitor;
        impl<'de> Visitor<'de> for LimitVisitor {
            type Value = LimitValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number like 2, or a table like { max = 2, key = \"customer\" }")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<LimitValue, E> {
                Bounded::deserialize(number.into_deserializer()).map(LimitValue::Max)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitValue, A::Error> {
                LimitTable::deserialize(MapAccessDeserializer::new(map)).map(LimitValue::Table)
            }
        }
        from.deserialize_any(LimitVisitor)
    }
}

impl<'de> Deserialize<'de> for RateValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct RateVisitor;
        impl<'de> Visitor<'de> for RateVisitor {
            type Value = RateValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate like \"100/1s\" or { max = 100, per = \"1s\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RateValue, E> {
                let rate = rate_of(text);
                rate.map(RateValue::Text).map_err(|why| E::custom(format!("{text:?}: {why}")))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RateValue, A::Error> {
                RateTable::deserialize(MapAccessDeserializer::new(map)).map(RateValue::Table)
            }
        }
        from.deserialize_any(RateVisitor)
    }
}

/// `100/1s`.
fn rate_of(text: &str) -> Result<Rate, String> {
    let wrong = || format!("write 1 to {RATE_STARTS_MAX} starts and a window, like \"100/1s\"");
    let (max, per) = text.split_once('/').ok_or_else(wrong)?;
    let max: u32 = max.trim().parse().map_err(|_| wrong())?;
    let per = duration(per.trim())?;
    let in_range = (1..=RATE_MAX).contains(&max) && (RATE_PER_MIN..=RATE_PER_MAX).contains(&per);
    if in_range { Ok(Rate::new(max, per)) } else { Err(wrong()) }
}

impl<'de> Deserialize<'de> for OrderValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OrderVisitor;
        impl<'de> Visitor<'de> for OrderVisitor {
            type Value = OrderValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, or a table like { key = \"account\" }")
            }

            fn visit_bool<E: Error>(self, in_order: bool) -> Result<OrderValue, E> {
                Ok(OrderValue::InOrder(in_order))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrderValue, A::Error> {
                OrderTable::deserialize(MapAccessDeserializer::new(map)).map(OrderValue::Table)
            }
        }
        from.deserialize_any(OrderVisitor)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct WorkerTable {
    pub(super) command: Option<Spanned<CommandWords>>,
    pub(super) classes: Option<Texts>,
    pub(super) processes: Option<Processes>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) env: Option<Spanned<Tables<ConfigText>>>,
    pub(super) pass_env: Option<Texts>,
    pub(super) folder: Option<Spanned<ConfigText>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct RetryTable {
    pub(super) maximum: Option<Bounded<0, 1_000_000>>,
    pub(super) first_delay: Option<PositiveDuration>,
    pub(super) factor: Option<Factor<1, 1000>>,
    pub(super) cap: Option<PositiveDuration>,
    pub(super) jitter: Option<Factor<0, 1>>,
    pub(super) restart_after_progress: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct ScheduleTable {
    pub(super) class: Option<Spanned<ConfigText>>,
    pub(super) cron: Option<Spanned<ConfigText>>,
    pub(super) every: Option<Spanned<PositiveDuration>>,
    pub(super) time_zone: Option<Spanned<ConfigText>>,
    pub(super) parameters: Option<Spanned<toml::Table>>,
    pub(super) queue: Option<Spanned<ConfigText>>,
    pub(super) priority: Option<i32>,
    pub(super) missed: Option<Spanned<Parsed<Missed>>>,
    pub(super) overlap: Option<Parsed<Overlap>>,
    pub(super) limits: Option<Spanned<BTreeMap<String, ConfigText>>>,
    pub(super) jitter: Option<Spanned<PositiveDuration>>,
}

/// How an executable gets its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModeName {
    /// One process a task.
    Once,
    /// Processes that stay.
    Lines,
}

/// A text without the character NUL, which neither programs nor stores take.
#[derive(Debug, Clone)]
pub(super) struct ConfigText(String);

impl Deref for ConfigText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ConfigText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text.contains('\0') {
            return Err(D::Error::custom("a text cannot contain the character NUL"));
        }
        Ok(Self(text))
    }
}

/// A program and its arguments.
#[derive(Debug)]
pub(super) struct CommandWords(pub(super) Vec<Spanned<ConfigText>>);

impl<'de> Deserialize<'de> for CommandWords {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = CommandWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CommandWords, E> {
                let words: Vec<_> =
                    text.split_whitespace().map(|word| format!("{word:?}")).collect();
                Err(E::custom(format!(
                    "a command is a list, because no shell reads it: command = [{}]",
                    words.join(", ")
                )))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CommandWords, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(CommandWords(words))
            }
        }
        from.deserialize_any(Words)
    }
}

/// `"30s"`, or seconds; not 0, and at most a year.
#[derive(Debug, Clone, Copy)]
pub(super) struct PositiveDuration(pub(super) Duration);

impl<'de> Deserialize<'de> for PositiveDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct DurationText;
        impl Visitor<'_> for DurationText {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like \"30s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                duration(text).map_err(|why| E::custom(format!("{text:?}: {why}")))
            }

            fn visit_i64<E: Error>(self, secs: i64) -> Result<Duration, E> {
                self.visit_str(&secs.to_string())
            }

            fn visit_f64<E: Error>(self, secs: f64) -> Result<Duration, E> {
                self.visit_str(&secs.to_string())
            }
        }
        match from.deserialize_any(DurationText)? {
            time if time.is_zero() => Err(D::Error::custom("this duration cannot be 0")),
            time if time > DELAY_MAX => Err(D::Error::custom("this is more than a year")),
            time => Ok(Self(time)),
        }
    }
}

/// A whole number within these bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounded<const MIN: usize, const MAX: usize>(pub(super) usize);

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        let number = usize::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
        let wrong = || D::Error::custom(format!("write a whole number from {MIN} to {MAX}"));
        number.map(Self).ok_or_else(wrong)
    }
}

/// A number within these bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factor<const MIN: u16, const MAX: u16>(pub(super) f64);

impl<'de, const MIN: u16, const MAX: u16> Deserialize<'de> for Factor<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        if (f64::from(MIN)..=f64::from(MAX)).contains(&number) {
            return Ok(Self(number));
        }
        Err(D::Error::custom(format!("write a number from {MIN} to {MAX}")))
    }
}

/// One of a few words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parsed<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}
