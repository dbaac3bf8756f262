//! Regular tasks: which one, and when.
//!
//! A schedule has a **rule** (a cron expression in a time zone, or an interval);
//! the times that it gives are its **slots**. For each slot one task is created,
//! once in the whole cluster, whichever engines run or die: see
//! [`Store::fire_schedules`](task_engine_store::contract::Store::fire_schedules).
//!
//! # Map
//! - [`cron`], [`Timetable`]: which slots there are;
//! - [`decision`]: which of them fire now;
//! - [`row`]: a schedule as a store keeps it;
//! - [`history`]: what has become of its slots;
//! - [`operate`]: what applications and operators do to schedules.

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
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use fields::InvalidCron;
pub use timetable::{InvalidScheduleRule, Preview, Rule, Timetable};

use crate::json::{InvalidJson, Json};
use crate::parse_error::ParseError;
use crate::secret::UnexpectedPlaceholder;
use crate::task::{InvalidTask, NAME_BYTES_MAX, NewTask, Task};

/// A regular task as it is asked for. Mistakes in it are told when it is used.
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
#[must_use = "a schedule does nothing until an engine or a client is given it"]
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
    /// At the times of a cron expression: five fields, six with seconds in
    /// front, or `@daily` & co.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self::new(name, expression)
    }

    /// In equal steps, counted from when the schedule is first stored.
    pub fn every(name: impl Into<String>, interval: Duration) -> Self {
        let exact = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
        Self::new(name, format!("every {exact:#}"))
    }

    /// By a rule in words: `every 15m`, or a cron expression.
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

    /// Whose clock the cron expression is about, like `Europe/Paris`. Default:
    /// UTC.
    pub fn time_zone(mut self, name: impl Into<String>) -> Self {
        self.time_zone = name.into();
        self
    }

    /// The task to create, with the queue and priority of its class. It cannot be
    /// unique: whoever holds its key in a transaction would hold up the slots of
    /// others. [`Schedule::overlap`] keeps the tasks of a schedule apart.
    pub fn task<T: Task>(mut self, task: &T) -> Self {
        self.task = Some(NewTask::of(task));
        self
    }

    /// The task to create, of a class that is known by its name alone. From
    /// when on it may run is the schedule's to say.
    pub fn new_task(mut self, task: NewTask) -> Self {
        self.task = Some(Ok(task));
        self
    }

    /// What becomes of slots that passed while no engine ran. Default: the last
    /// of them fires.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What happens while the task of the slot before has not ended. Default:
    /// both run.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Lets each task wait for up to so long after its slot, so that many
    /// schedules of one time do not all begin at once.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says, checked.
    pub fn definition(&self) -> Result<Definition, InvalidSchedule> {
        let wrong = |why: Wrong| InvalidSchedule { name: self.name.clone(), why };
        let task = match &self.task {
            None => return Err(wrong(Wrong::NoTask)),
            Some(task) => task.clone().map_err(|error| wrong(error.into()))?,
        };
        if task.unique.is_some() {
            return Err(wrong(Wrong::Unique(task.class)));
        }
        let definition = Definition {
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
        definition.check(&self.name).map_err(wrong)?;
        Ok(definition)
    }
}

/// What a schedule says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Definition {
    /// `every 15m`, or a cron expression.
    pub rule: String,
    /// A name of the IANA's, like `Europe/Paris`.
    pub time_zone: String,
    /// The class of its tasks.
    pub class: String,
    /// Their parameters.
    pub parameters: Json,
    /// Their context, to which the schedule and the slot are added.
    pub context: Json,
    /// Their queue.
    pub queue: String,
    /// Their priority.
    pub priority: i32,
    /// What becomes of slots that passed while no engine ran.
    pub missed: Missed,
    /// What happens while the task of the slot before has not ended.
    pub overlap: Overlap,
    /// How long a task may wait after its slot, at random.
    #[serde(rename = "jitter_ms", serialize_with = "as_millis")]
    pub jitter: Duration,
}

fn as_millis<S: serde::Serializer>(long: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(long.as_millis()).unwrap_or(u64::MAX))
}

/// No task waits longer after its slot.
pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

impl Definition {
    /// The times of its slots. Intervals are counted from the anchor.
    pub fn timetable(&self, anchor: Timestamp) -> Result<Timetable, Wrong> {
        let zone =
            TimeZone::get(&self.time_zone).map_err(|_| Wrong::Zone(self.time_zone.clone()))?;
        Ok(Timetable { rule: self.rule.parse()?, zone, anchor })
    }

    /// Whether it can be stored, and will ever fire.
    pub fn check(&self, name: &str) -> Result<(), Wrong> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(Wrong::Name);
        }
        if self.jitter > JITTER_MAX {
            return Err(Wrong::Jitter);
        }
        if let Missed::All(number) = self.missed
            && !(1..=Missed::ALL_MAX).contains(&number)
        {
            return Err(Wrong::Missed);
        }
        let timetable = self.timetable(Timestamp::UNIX_EPOCH)?;
        if timetable.next_after(Timestamp::UNIX_EPOCH).is_none() {
            return Err(Wrong::Never(self.rule.clone()));
        }
        self.task(name, None).map(drop)
    }

    /// The task of a slot, or one outside of the slots, due at once.
    pub fn task(&self, name: &str, slot: Option<Timestamp>) -> Result<NewTask, Wrong> {
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

    fn context_of(&self, name: &str, slot: Option<Timestamp>) -> Result<Json, Wrong> {
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

    /// The same for the same slot, whoever computes it.
    fn jitter_of(&self, name: &str, slot: Timestamp) -> Duration {
        let mut seed = slot.as_microsecond().cast_unsigned();
        for byte in name.bytes() {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let millis = self.jitter.mul_f64(fastrand::Rng::with_seed(seed).f64()).as_millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Whether it gives the same slots as another one.
    pub fn has_slots_of(&self, other: &Self) -> bool {
        self.rule == other.rule && self.time_zone == other.time_zone
    }

    /// As it is stored.
    pub fn to_json(&self) -> Result<Json, InvalidJson> {
        Json::encode(self)
    }

    /// As it was stored. An error if another version of this program has stored
    /// something that this one does not know.
    pub fn from_json(stored: &Json) -> Result<Self, Wrong> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stored {
            rule: String,
            time_zone: String,
            class: String,
            parameters: Box<RawValue>,
            context: Box<RawValue>,
            queue: String,
            priority: i32,
            missed: Missed,
            overlap: Overlap,
            jitter_ms: u64,
        }
        let read: Stored = stored.decode().map_err(|error| Wrong::Stored(error.to_string()))?;
        Ok(Self {
            rule: read.rule,
            time_zone: read.time_zone,
            class: read.class,
            parameters: Json::from_store(read.parameters.get().to_owned()),
            context: Json::from_store(read.context.get().to_owned()),
            queue: read.queue,
            priority: read.priority,
            missed: read.missed,
            overlap: read.overlap,
            jitter: Duration::from_millis(read.jitter_ms),
        })
    }

    /// As it is compared with what was declared before: equal definitions give
    /// equal texts, whatever the order of keys in their parameters.
    pub fn to_declaration(&self) -> Result<String, InvalidJson> {
        Ok(sorted(self.to_json()?.as_str()))
    }
}

/// A JSON text with the keys of its objects in order, and nothing else changed.
fn sorted(text: &str) -> String {
    let joined = |items: Vec<String>, open, close| format!("{open}{}{close}", items.join(","));
    match text.trim().as_bytes().first() {
        Some(b'{') => match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            Ok(fields) => {
                let field = |(key, value): (&String, &&RawValue)| {
                    format!("{}:{}", serde_json::Value::from(key.as_str()), sorted(value.get()))
                };
                joined(fields.iter().map(field).collect(), '{', '}')
            }
            Err(_) => text.to_owned(),
        },
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(items) => joined(items.iter().map(|item| sorted(item.get())).collect(), '[', ']'),
            Err(_) => text.to_owned(),
        },
        _ => text.trim().to_owned(),
    }
}

/// What becomes of slots that passed while no engine ran, or while the task of
/// the slot before made them wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Missed {
    /// A slot that is a minute old or older does not fire any more.
    Skip,
    /// The last of them fires, however old it is.
    #[default]
    Last,
    /// All of them fire, but no more than so many: the newest ones.
    All(u32),
}

impl Missed {
    /// The most slots that can be made good at once.
    pub const ALL_MAX: u32 = 1000;
    /// How many it is if nobody says.
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
                    "{text:?} is not known; there are skip, last, all, and all:N with N from 1 to {}",
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

/// What happens when a slot comes and the task of the slot before has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It fires all the same.
    #[default]
    Allow,
    /// It does not fire. Of slots that were missed, no more than the last does,
    /// whatever [`Missed`] says.
    Skip,
    /// It fires when that task has ended; of slots that come meanwhile, those
    /// that [`Missed`] says.
    Wait,
}

impl Overlap {
    /// The word, as it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Wait => "wait",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Overlap {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "allow" => Ok(Self::Allow),
            "skip" => Ok(Self::Skip),
            "wait" => Ok(Self::Wait),
            _ => Err(ParseError(format!("{text:?} is not known; there are allow, skip, wait"))),
        }
    }
}

/// A schedule that cannot be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schedule {name:?}: {why}")]
pub struct InvalidSchedule {
    /// Which.
    pub name: String,
    /// What is wrong with it.
    pub why: Wrong,
}

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[non_exhaustive]
pub enum Wrong {
    #[error("a schedule needs a name of 1 to {NAME_BYTES_MAX} bytes without control characters")]
    Name,
    #[error("it has no task; say which with .task(…) or .new_task(…)")]
    NoTask,
    #[error(
        "tasks of a schedule cannot be unique, and this one of class {0:?} is; what keeps them apart is .overlap(…), and .new_task(…) takes a task without a key"
    )]
    Unique(String),
    #[error(transparent)]
    Rule(#[from] InvalidScheduleRule),
    #[error("the time zone {0:?} is not known; write a name like Europe/Paris or UTC")]
    Zone(String),
    #[error("{0:?} never comes: there is no such date")]
    Never(String),
    #[error("a task cannot wait for more than a day after its slot (jitter)")]
    Jitter,
    #[error("of missed slots, 1 to {} can be made good", Missed::ALL_MAX)]
    Missed,
    #[error(transparent)]
    Task(#[from] InvalidTask),
    #[error("its parameters: {0}")]
    Placeholder(#[from] UnexpectedPlaceholder),
    #[error("its context: {0}")]
    Context(#[from] InvalidJson),
    #[error("what is stored was not written by this version of Task Engine ({0})")]
    Stored(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidy(schedule: Schedule) -> Schedule {
        let parameters = Json::parse(r#"{"n":123456789012345678901234567890,"a":{"z":1,"b":[2]}}"#);
        schedule.new_task(NewTask::new("tidy", parameters.unwrap()).unwrap())
    }

    #[test]
    fn a_definition_comes_back_as_it_went_in() {
        let schedule = tidy(Schedule::cron("nightly", " 0 3 * * * "))
            .time_zone("Europe/Paris")
            .missed(Missed::All(7))
            .overlap(Overlap::Wait)
            .jitter(Duration::from_secs(5));
        let definition = schedule.definition().unwrap();
        assert_eq!(Definition::from_json(&definition.to_json().unwrap()), Ok(definition.clone()));
        assert_eq!(definition.rule, "0 3 * * *");
        let newer = definition.to_json().unwrap().as_str().replacen('{', r#"{"moon":1,"#, 1);
        let newer = Definition::from_json(&Json::parse(newer).unwrap()).unwrap_err();
        assert!(newer.to_string().contains("unknown field `moon`"), "{newer}");
    }

    #[test]
    fn a_unique_task_is_refused_and_not_made_a_plain_one() {
        let task = NewTask::new("tidy", Json::empty_object()).unwrap();
        let unique = task.unique(crate::unique::Unique::by("all")).unwrap();
        let refused = Schedule::cron("nightly", "0 3 * * *").new_task(unique).definition();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("cannot be unique") && refused.contains(".overlap"), "{refused}");
    }

    #[test]
    fn declarations_are_equal_whatever_the_order_of_keys() {
        let with = |text: &str| {
            let task = NewTask::new("a", Json::parse(text).unwrap()).unwrap();
            let schedule = Schedule::every("x", Duration::from_secs(900)).new_task(task);
            schedule.definition().unwrap().to_declaration().unwrap()
        };
        assert_eq!(
            with(r#"{"a": {"x":1,"y":[ 2 ]}, "b":1e3}"#),
            with(r#"{"b":1e3,"a":{"y":[2],"x":1}}"#)
        );
        assert_ne!(
            with(r#"{"a":12345678901234567890123}"#),
            with(r#"{"a":12345678901234567890124}"#)
        );
        assert!(with("{}").contains(r#""rule":"every 15m""#), "{}", with("{}"));
    }

    #[test]
    fn the_context_of_a_task_says_where_it_comes_from() {
        let definition = tidy(Schedule::cron("a \"b\"", "@daily")).definition().unwrap();
        let slot = "2027-03-14T03:00:00Z".parse().unwrap();
        let task = definition.task("a \"b\"", Some(slot)).unwrap();
        assert_eq!(
            task.context.as_str(),
            r#"{"schedule":"a \"b\"","slot":"2027-03-14T03:00:00Z"}"#
        );
        assert_eq!(task.due, crate::task::Due::At(slot));
        let extra = definition.task("x", None).unwrap();
        assert_eq!(extra.context.as_str(), r#"{"schedule":"x"}"#);
        assert_eq!(extra.due, crate::task::Due::Now);
    }

    #[test]
    fn jitter_is_bounded_and_the_same_for_the_same_slot() {
        let jitter = Duration::from_secs(10);
        let definition = tidy(Schedule::cron("a", "@daily")).jitter(jitter).definition().unwrap();
        let slot: Timestamp = "2027-03-14T03:00:00Z".parse().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..100 {
            let slot = slot + SignedDuration::from_hours(24 * n);
            let wait = definition.jitter_of("a", slot);
            assert!(wait < jitter);
            assert_eq!(wait, definition.jitter_of("a", slot));
            seen.insert(wait);
        }
        assert!(seen.len() > 90, "{}", seen.len());
        assert_ne!(definition.jitter_of("a", slot), definition.jitter_of("b", slot));
    }

    #[test]
    fn mistakes_are_told_with_the_name() {
        for (schedule, why) in [
            (tidy(Schedule::cron("", "@daily")), "schedule \"\": a schedule needs a name"),
            (tidy(Schedule::cron("a", "0 25 * * *")), "schedule \"a\": the cron expression"),
            (tidy(Schedule::cron("a", "0 0 31 2 *")), "never comes"),
            (
                tidy(Schedule::cron("a", "@daily")).time_zone("Mars/Base"),
                "\"Mars/Base\" is not known",
            ),
            (tidy(Schedule::new("a", "every 10ms")), "between 100 ms and 366 days"),
            (tidy(Schedule::new("a", "every 1500us")), "between 100 ms"),
            (tidy(Schedule::new("a", "every 1 month")), "in days"),
            (tidy(Schedule::new("a", "every soon")), "write it like 30s"),
            (tidy(Schedule::new("a", "every -5m")), "cannot be negative"),
            (tidy(Schedule::new("a", "every")), "it needs 5 fields"),
            (Schedule::cron("a", "@daily"), "it has no task"),
            (tidy(Schedule::cron("a", "@daily")).jitter(Duration::from_secs(90_000)), "jitter"),
            (tidy(Schedule::cron("a", "@daily")).missed(Missed::All(0)), "1 to 1000"),
        ] {
            let error = schedule.definition().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
