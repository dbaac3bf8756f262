//! Schedules: recurring tasks.
//!
//! A schedule has a **rule** (a cron expression in a time zone, or an interval). The times of
//! the rule are its **slots**. For each slot one task is created, once in the whole cluster,
//! whichever engines run or die: stores write the slot and its task in
//! one transaction (`fire_schedules`).
//!
//! # Map
//! - [`cron`], [`Timetable`]: the slots of a rule;
//! - [`decision`]: which slots fire now;
//! - [`row`]: a schedule as it is stored;
//! - [`history`]: fired and skipped slots.

pub mod cron;
pub mod decision;
mod fields;
pub mod history;
pub mod row;
mod timetable;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use fields::InvalidCron;
pub use timetable::{InvalidScheduleRule, ScheduleRule, SlotPreview, Timetable};

use crate::json::{InvalidJson, Json};
use crate::parse_error::ParseError;
use crate::retry::millis;
use crate::secret::UnexpectedPlaceholder;
use crate::task::{InvalidTask, NAME_BYTES_MAX, NewTask, Task};

/// A builder of a schedule, which creates a task at regular times.
///
/// Pass it to `Engine::schedule`. Errors in it are returned when it is used. The example runs a
/// task every day at three o'clock in Paris.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::{Missed, Overlap, Schedule, Task};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct SendReport { to: String }
/// # impl Task for SendReport { const CLASS: &'static str = "send_report"; }
/// let nightly = Schedule::cron("nightly", "0 3 * * *")
///     .time_zone("Europe/Paris")
///     .task(&SendReport { to: "board".into() })
///     .missed(Missed::Skip)
///     .overlap(Overlap::Wait);
/// assert!(nightly.definition().is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use = "a schedule does nothing until an engine declares it or it is added"]
pub struct Schedule {
    name: String,
    rule: String,
    time_zone: String,
    task: Option<Result<NewTask, InvalidTask>>,
    missed: Missed,
    overlap: Overlap,
    jitter: Duration,
}

impl Schedule {
    /// Creates a schedule with the times of a cron expression.
    ///
    /// The expression has five fields, or six with seconds first, or is a nickname like `@daily`.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::new(name, expression)
    }

    /// Creates a schedule with equal intervals, counted from the time when the schedule is first
    /// stored.
    pub fn every(name: impl Into<String>, interval: Duration) -> Self {
        let exact = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
        Self::new(name, format!("every {exact:#}"))
    }

    /// Creates a schedule from a rule as text: `every 15m`, or a cron expression.
    pub fn new(name: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rule: rule.into(),
            time_zone: "UTC".to_owned(),
            task: None,
            missed: Missed::default(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
        }
    }

    /// Sets the time zone of the cron expression, like `Europe/Paris`.
    ///
    /// Default: UTC.
    pub fn time_zone(mut self, name: impl Into<String>) -> Self {
        self.time_zone = name.into();
        self
    }

    /// Sets the task to create, with the queue and priority of its class.
    ///
    /// It cannot be unique: a transaction that holds its key would block the slots of other
    /// schedules. Use [`Schedule::overlap`] to keep its tasks apart.
    pub fn task<T: Task>(mut self, task: &T) -> Self {
        self.task = Some(NewTask::of(task));
        self
    }

    /// Sets the task to create, of a class that is known only by name.
    ///
    /// Its time is replaced by the slot.
    pub fn new_task(mut self, task: NewTask) -> Self {
        self.task = Some(Ok(task));
        self
    }

    /// Sets what happens to slots that passed while no engine ran.
    ///
    /// Default: the last one fires.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets what happens while the task of the previous slot has not ended.
    ///
    /// Default: both run.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Delays each task by a random time up to `jitter`, so that many schedules of the
    /// same slot do not start at once.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the name of the schedule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks the schedule, and returns its definition.
    ///
    /// # Errors
    /// Fails with [`InvalidSchedule`] if its rule, time zone or task is invalid.
    pub fn definition(&self) -> Result<ScheduleDefinition, InvalidSchedule> {
        let invalid = |why: InvalidDefinition| InvalidSchedule { name: self.name.clone(), why };
        let task = match &self.task {
            None => return Err(invalid(InvalidDefinition::NoTask)),
            Some(task) => task.clone().map_err(|error| invalid(error.into()))?,
        };
        if task.unique.is_some() {
            return Err(invalid(InvalidDefinition::Unique(task.class)));
        }
        let definition = ScheduleDefinition {
            rule: self.rule.trim().to_owned(),
            time_zone: self.time_zone.clone(),
            class: task.class,
            parameters: task.parameters,
            context: task.context,
            queue: task.queue,
            priority: task.priority,
            missed: self.missed,
            overlap: self.overlap,
            jitter: self.jitter,
        };
        definition.check(&self.name).map_err(invalid)?;
        Ok(definition)
    }
}

/// The checked definition of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleDefinition {
    /// `every 15m`, or a cron expression.
    pub rule: String,
    /// An IANA name, like `Europe/Paris`.
    pub time_zone: String,
    /// The class of its tasks.
    pub class: String,
    /// Their parameters.
    #[serde(deserialize_with = "stored_json")]
    pub parameters: Json,
    /// Their context, to which the schedule and the slot are added.
    #[serde(deserialize_with = "stored_json")]
    pub context: Json,
    /// Their queue.
    pub queue: String,
    /// Their priority.
    pub priority: i32,
    /// What happens to slots that passed while no engine ran.
    pub missed: Missed,
    /// What happens while the task of the previous slot has not ended.
    pub overlap: Overlap,
    /// The longest random delay of a task after its slot.
    #[serde(rename = "jitter_ms", with = "millis")]
    pub jitter: Duration,
}

/// Without a check: the definition was checked before it was stored.
fn stored_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    Ok(Json::from_store(raw.get().to_owned()))
}

/// The largest jitter.
pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

impl ScheduleDefinition {
    /// Returns the times of its slots.
    ///
    /// Intervals are counted from the anchor.
    pub fn timetable(&self, anchor: Timestamp) -> Result<Timetable, InvalidDefinition> {
        let zone = TimeZone::get(&self.time_zone)
            .map_err(|_| InvalidDefinition::Zone(self.time_zone.clone()))?;
        Ok(Timetable { rule: self.rule.parse()?, zone, anchor })
    }

    /// Checks that it can be stored and will fire.
    pub fn check(&self, name: &str) -> Result<(), InvalidDefinition> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(InvalidDefinition::Name);
        }
        if self.jitter > JITTER_MAX {
            return Err(InvalidDefinition::Jitter);
        }
        if let Missed::All(number) = self.missed
            && !(1..=Missed::ALL_MAX).contains(&number)
        {
            return Err(InvalidDefinition::Missed);
        }
        let timetable = self.timetable(Timestamp::UNIX_EPOCH)?;
        if timetable.next_after(Timestamp::UNIX_EPOCH).is_none() {
            return Err(InvalidDefinition::Never(self.rule.clone()));
        }
        self.task(name, None).map(drop)
    }

    /// Returns the task of a slot, or without a slot one that is due at once.
    pub fn task(&self, name: &str, slot: Option<Timestamp>) -> Result<NewTask, InvalidDefinition> {
        let task = NewTask::new(self.class.as_str(), self.parameters.clone())?;
        let mut task = task.priority(self.priority).queue(self.queue.as_str())?;
        task.context = self.context_of(name, slot)?;
        Ok(match slot {
            None => task,
            Some(slot) => {
                let due = slot.checked_add(
                    SignedDuration::try_from(self.jitter_of(name, slot)).unwrap_or_default(),
                );
                task.at(due.unwrap_or(slot))
            }
        })
    }

    fn context_of(&self, name: &str, slot: Option<Timestamp>) -> Result<Json, InvalidDefinition> {
        // Raw values: numbers of any length stay as they are.
        let mut context: BTreeMap<String, Box<RawValue>> =
            self.context.decode().map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        let mut add = |key: &str, value: &str| {
            let text = serde_json::Value::from(value).to_string();
            RawValue::from_string(text).map(|raw| context.insert(key.to_owned(), raw))
        };
        let added = add("schedule", name).and_then(|_| match slot {
            Some(slot) => add("slot", &slot.to_string()),
            None => Ok(None),
        });
        added.map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        Ok(Json::encode_object(&context)?)
    }

    /// Every engine computes the same delay for the same slot.
    fn jitter_of(&self, name: &str, slot: Timestamp) -> Duration {
        let mut seed = slot.as_microsecond().cast_unsigned();
        for byte in name.bytes() {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let millis = self.jitter.mul_f64(fastrand::Rng::with_seed(seed).f64()).as_millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Returns whether it has the same slots as another one.
    pub fn has_slots_of(&self, other: &Self) -> bool {
        self.rule == other.rule && self.time_zone == other.time_zone
    }

    /// Encodes it for a store.
    pub fn to_json(&self) -> Result<Json, InvalidJson> {
        Json::encode(self)
    }

    /// Decodes a stored definition.
    ///
    /// Fails if another version of this program has stored fields that this one does not know.
    pub fn from_json(stored: &Json) -> Result<Self, InvalidDefinition> {
        stored.decode().map_err(|error| InvalidDefinition::Stored(error.to_string()))
    }

    /// Returns a canonical text, compared with the previous declaration: equal definitions have
    /// equal texts, whatever the order of keys in their parameters.
    pub fn to_declaration(&self) -> Result<String, InvalidJson> {
        Ok(sort_keys(self.to_json()?.as_str()))
    }
}

/// Sorts the keys of all objects and changes nothing else.
fn sort_keys(text: &str) -> String {
    let joined = |items: Vec<String>, open, close| format!("{open}{}{close}", items.join(","));
    match text.trim().as_bytes().first() {
        Some(b'{') => match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            Ok(fields) => {
                let field = |(key, value): (&String, &&RawValue)| {
                    format!("{}:{}", serde_json::Value::from(key.as_str()), sort_keys(value.get()))
                };
                joined(fields.iter().map(field).collect(), '{', '}')
            }
            Err(_) => text.to_owned(),
        },
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(items) => joined(items.iter().map(|item| sort_keys(item.get())).collect(), '[', ']'),
            Err(_) => text.to_owned(),
        },
        _ => text.trim().to_owned(),
    }
}

/// The action for slots that passed while no engine ran, or that waited for the task of an earlier
/// slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Missed {
    /// A slot that is a minute old or older does not fire.
    Skip,
    /// The last missed slot fires, however old it is.
    #[default]
    Last,
    /// The newest missed slots fire, at most this many.
    All(u32),
}

impl Missed {
    /// The largest number of [`Missed::All`].
    pub const ALL_MAX: u32 = 1000;
    /// The number if none is given.
    pub const ALL_DEFAULT: u32 = 100;
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.write_str("skip"),
            Self::Last => f.write_str("last"),
            Self::All(number) => write!(f, "all:{number}"),
        }
    }
}

impl FromStr for Missed {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "skip" => Ok(Self::Skip),
            "last" => Ok(Self::Last),
            "all" => Ok(Self::All(Self::ALL_DEFAULT)),
            _ => match text.strip_prefix("all:").and_then(|number| number.parse().ok()) {
                Some(number) if (1..=Self::ALL_MAX).contains(&number) => Ok(Self::All(number)),
                _ => Err(ParseError(format!(
                    "unknown rule for missed slots {text:?}; use skip, last, all, or all:N with N from 1 to {}",
                    Self::ALL_MAX
                ))),
            },
        }
    }
}

impl From<Missed> for String {
    fn from(missed: Missed) -> Self {
        missed.to_string()
    }
}

impl TryFrom<String> for Missed {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

/// The action for a slot that is due while the task of the previous slot has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The slot fires.
    #[default]
    Allow,
    /// The slot is skipped.
    ///
    /// Of missed slots, at most the last one fires, whatever [`Missed`] is.
    Skip,
    /// The slot waits for that task.
    ///
    /// Of slots that pass meanwhile, those selected by [`Missed`] fire.
    Wait,
}

enum_tokens!(Overlap { Allow = "allow", Skip = "skip", Wait = "wait" });

impl FromStr for Overlap {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text).ok_or_else(|| {
            ParseError(format!("unknown overlap rule {text:?}; use allow, skip or wait"))
        })
    }
}

/// The error of a schedule that cannot be used, with the name of the schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schedule {name:?}: {why}")]
pub struct InvalidSchedule {
    /// Its name.
    pub name: String,
    /// The problem.
    pub why: InvalidDefinition,
}

/// The error of an invalid definition of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDefinition {
    /// The name is empty, too long, or has control characters: choose another one.
    #[error("a schedule needs a name of 1 to {NAME_BYTES_MAX} bytes without control characters")]
    Name,
    /// The schedule has no task: set one with [`Schedule::task`] or [`Schedule::new_task`].
    #[error("it has no task; set one with .task(…) or .new_task(…)")]
    NoTask,
    /// The task is unique, which is not possible here: use [`Schedule::overlap`] instead.
    #[error(
        "tasks of a schedule cannot be unique, but the task of class {0:?} is; use .overlap(…) to keep its tasks apart, and .new_task(…) for a task without a key"
    )]
    Unique(String),
    /// The rule is neither an interval nor a cron expression.
    #[error(transparent)]
    Rule(#[from] InvalidScheduleRule),
    /// The time zone is unknown: use a name like `Europe/Paris`.
    #[error("unknown time zone {0:?}; use a name like Europe/Paris or UTC")]
    Zone(String),
    /// The cron expression matches no date, so the schedule would never fire.
    #[error("{0:?} never fires: there is no such date")]
    Never(String),
    /// The jitter is longer than a day.
    #[error("the jitter is longer than a day")]
    Jitter,
    /// The number of missed slots to fire is not from 1 to [`Missed::ALL_MAX`].
    #[error("the number of missed slots to fire must be 1 to {}", Missed::ALL_MAX)]
    Missed,
    /// The task is invalid: see [`InvalidTask`].
    #[error(transparent)]
    Task(#[from] InvalidTask),
    /// The parameters contain a placeholder for a secret: send the value itself.
    #[error("its parameters: {0}")]
    Placeholder(#[from] UnexpectedPlaceholder),
    /// The context of the task is not storable.
    #[error("its context: {0}")]
    Context(#[from] InvalidJson),
    /// Another version of Task Engine has stored the definition: use that version.
    #[error("it was stored by another version of Task Engine ({0})")]
    Stored(String),
}

#[cfg(test)]
mod tests;
