//! Unique tasks: what happens when a task is created whose key another one has.
//!
//! A key belongs to one task of a class at a time: the last one that was
//! created with it. Whether that one stands in the way of a new one is a
//! question of [`Scope`]; what happens if it does, of [`OnConflict`]. Stores
//! answer both without a race, whoever creates at the same time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::json::Json;
use crate::parse_error::ParseError;
use crate::task::{InvalidTask, TaskId, TaskStatus};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 500;

/// Where the key of a unique task is in its context.
pub(crate) const CONTEXT_KEY: &str = "unique_key";

/// What makes a task unique.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use std::time::Duration;
/// use task_engine::{OnConflict, Scope, Unique};
///
/// let report = Unique::by("report of May");
/// let index = Unique::by("customer 7").scope(Scope::Waiting).on_conflict(OnConflict::Replace);
/// let nightly = Unique::by("backup").scope(Scope::Within(Duration::from_secs(3600)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Unique {
    /// The key, unique within the class: 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// Which tasks stand in the way.
    pub scope: Scope,
    /// What happens if one does.
    pub on_conflict: OnConflict,
}

impl Unique {
    /// Unique by this key among active tasks; on conflict the old one is kept.
    #[must_use]
    pub fn by(key: impl Into<String>) -> Self {
        Self { key: key.into(), scope: Scope::default(), on_conflict: OnConflict::default() }
    }

    /// The same with another scope.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The same with another answer to a conflict.
    #[must_use]
    pub fn on_conflict(mut self, answer: OnConflict) -> Self {
        self.on_conflict = answer;
        self
    }

    /// Whether it can be stored.
    pub fn check(&self) -> Result<(), InvalidTask> {
        if !(1..=KEY_BYTES_MAX).contains(&self.key.len()) || self.key.contains('\0') {
            return Err(InvalidTask::Key { bytes: self.key.len() });
        }
        if matches!(self.scope, Scope::Within(period) if period < PERIOD_MIN || period > PERIOD_MAX)
        {
            return Err(InvalidTask::Period);
        }
        Ok(())
    }
}

const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Which task with the same key stands in the way of a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One that waits, also for a retry. One that runs does not: it may have
    /// begun with what was true before.
    Waiting,
    /// One that waits or runs.
    #[default]
    Active,
    /// One that was created less than this ago, in whatever status it is.
    Within(Duration),
}

impl Scope {
    /// Whether a task stands in the way.
    #[must_use]
    pub fn covers(self, status: TaskStatus, age: Duration) -> bool {
        match self {
            Self::Waiting => status == TaskStatus::Waiting,
            Self::Active => matches!(status, TaskStatus::Waiting | TaskStatus::Running),
            Self::Within(period) => age < period,
        }
    }
}

/// What happens if a task with the same key stands in the way. Only one that
/// waits can be changed: one that runs or has ended is kept as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// The old one is kept as it is.
    #[default]
    Keep,
    /// The old one becomes what the new one would have been: parameters,
    /// context, queue, priority and time.
    Replace,
    /// The old one gets the parameters of the new one, and keeps its time.
    ReplaceParameters,
    /// The old one gets the time of the new one, and keeps its parameters.
    ReplaceTime,
}

impl OnConflict {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Keep, Self::Replace, Self::ReplaceParameters, Self::ReplaceTime];

    /// The word, as SQL has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::ReplaceParameters => "replace_parameters",
            Self::ReplaceTime => "replace_time",
        }
    }

    /// Whether a task in this status is changed.
    #[must_use]
    pub fn changes(self, status: TaskStatus) -> bool {
        self != Self::Keep && status == TaskStatus::Waiting
    }

    /// Whether the parameters are the new ones afterwards.
    #[must_use]
    pub fn takes_parameters(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceParameters)
    }

    /// Whether the time is the new one afterwards.
    #[must_use]
    pub fn takes_time(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceTime)
    }
}

impl fmt::Display for OnConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for OnConflict {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let word = text.replace('-', "_");
        Self::ALL.into_iter().find(|answer| answer.as_str() == word).ok_or_else(|| {
            ParseError(format!(
                "{text:?} is none of keep, replace, replace-parameters, replace-time"
            ))
        })
    }
}

/// What became of a task that was to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Creation {
    /// It is new.
    Created(TaskId),
    /// This one has its key, and was left as it is. Nothing was created.
    Kept(TaskId),
    /// This one had its key, waited, and was changed. Nothing was created.
    Replaced(TaskId),
}

impl Creation {
    /// The task that there is now.
    #[must_use]
    pub fn id(self) -> TaskId {
        match self {
            Self::Created(id) | Self::Kept(id) | Self::Replaced(id) => id,
        }
    }

    /// Whether it is new.
    #[must_use]
    pub fn is_new(self) -> bool {
        matches!(self, Self::Created(_))
    }
}

impl From<Creation> for TaskId {
    fn from(creation: Creation) -> Self {
        creation.id()
    }
}

/// The key that a task was created with, as its context has it.
#[must_use]
pub fn key_of(context: &Json) -> Option<String> {
    let context: serde_json::Map<String, serde_json::Value> = context.decode().ok()?;
    Some(context.get(CONTEXT_KEY)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_in_the_way() {
        use TaskStatus::{Cancelled, Failed, Running, Stopped, Waiting};
        let (young, old) = (Duration::from_secs(59), Duration::from_secs(60));
        let minute = Scope::Within(old);
        for (status, waiting, active) in [
            (Waiting, true, true),
            (Running, false, true),
            (Stopped, false, false),
            (Failed, false, false),
            (Cancelled, false, false),
        ] {
            for age in [young, old] {
                assert_eq!(Scope::Waiting.covers(status, age), waiting, "{status}");
                assert_eq!(Scope::Active.covers(status, age), active, "{status}");
            }
            assert!(minute.covers(status, young) && !minute.covers(status, old), "{status}");
            for answer in OnConflict::ALL {
                let changes = answer != OnConflict::Keep && status == Waiting;
                assert_eq!(answer.changes(status), changes, "{answer:?} of {status}");
            }
        }
    }

    #[test]
    fn keys_and_periods_have_limits() {
        let longest = "x".repeat(KEY_BYTES_MAX);
        assert!(Unique::by(longest.as_str()).check().is_ok());
        for bad in [String::new(), longest + "x", "a\0b".to_owned()] {
            let error = Unique::by(bad).check().unwrap_err().to_string();
            assert!(error.contains("1 to 500 bytes"), "{error}");
        }
        for bad in [Duration::ZERO, Duration::MAX] {
            let error = Unique::by("a").scope(Scope::Within(bad)).check().unwrap_err().to_string();
            assert!(error.contains("100 years"), "{error}");
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for answer in OnConflict::ALL {
            assert_eq!(answer.as_str().parse(), Ok(answer));
            assert_eq!(answer.as_str().replace('_', "-").parse(), Ok(answer));
        }
        assert!("drop".parse::<OnConflict>().unwrap_err().0.contains("keep, replace"));
    }

    #[test]
    fn the_key_is_in_the_context() {
        let context = Json::parse(r#"{"a":1,"unique_key":"k"}"#).unwrap();
        assert_eq!(key_of(&context).as_deref(), Some("k"));
        for none in ["{}", r#"{"unique_key":7}"#] {
            assert_eq!(key_of(&Json::parse(none).unwrap()), None);
        }
    }
}
