//! Unique tasks: what happens when a new task has the key of another one.
//!
//! A key belongs to one task of a class at a time: the last one that was created with
//! it. [`Scope`] decides whether that task conflicts with a new one, and [`OnConflict`]
//! what happens then. Stores decide without a race between concurrent creations.
//! Uniqueness is checked only at creation.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::json::Json;
use crate::parse_error::ParseError;
use crate::task::{InvalidTask, TaskId, TaskStatus};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 500;

/// The field of the context with the key of a unique task.
pub(crate) const CONTEXT_KEY: &str = "unique_key";

/// The uniqueness of a task: its key, which tasks conflict with it, and what happens then.
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
    /// Which tasks conflict.
    pub scope: Scope,
    /// What happens on a conflict.
    pub on_conflict: OnConflict,
}

impl Unique {
    /// Makes a task unique by this key among waiting and running tasks; on a conflict the old task
    /// is kept.
    #[must_use]
    pub fn by(key: impl Into<String>) -> Self {
        Self { key: key.into(), scope: Scope::default(), on_conflict: OnConflict::default() }
    }

    /// Makes a task unique by all its parameters, as JSON with sorted names.
    ///
    /// Creation fails if this has more than [`KEY_BYTES_MAX`] bytes. A key is visible, also if
    /// parameters are secret.
    ///
    /// ```
    /// # extern crate task_engine_core as task_engine;
    /// # use task_engine::Unique;
    /// # #[derive(serde::Serialize)]
    /// # struct Backup { disk: &'static str, all: bool }
    /// let unique = Unique::by_parameters(&Backup { disk: "a", all: true });
    /// assert_eq!(unique.key, r#"{"all":true,"disk":"a"}"#);
    /// ```
    #[must_use]
    pub fn by_parameters(task: &impl Serialize) -> Self {
        // The parameters are encoded before the key is needed, with the same errors; an
        // empty key is refused.
        let parameters = Json::encode(task).and_then(Json::into_parameters);
        Self::by(parameters.map(|it| sorted(it.as_str())).unwrap_or_default())
    }

    /// Sets which tasks conflict.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Sets what happens on a conflict.
    #[must_use]
    pub fn on_conflict(mut self, action: OnConflict) -> Self {
        self.on_conflict = action;
        self
    }

    /// Checks whether it can be stored.
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

/// JSON with the names of all objects sorted: the order in a hash map is random.
fn sorted(text: &str) -> String {
    let of_raw = |raw: &RawValue| sorted(raw.get());
    if let Ok(object) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        let fields = object
            .into_iter()
            .map(|(name, value)| format!("{}:{}", serde_json::Value::from(name), of_raw(value)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    } else if let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(text) {
        format!("[{}]", list.into_iter().map(of_raw).collect::<Vec<_>>().join(","))
    } else {
        text.to_owned()
    }
}

const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The tasks with the same key that conflict with a new one.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use std::time::Duration;
/// use task_engine::{Scope, TaskStatus, Unique};
///
/// // Once a day: a second task within 24 hours is not created, whatever happened to the first.
/// let daily = Unique::by("report").scope(Scope::Within(Duration::from_secs(86_400)));
/// assert!(daily.scope.covers(TaskStatus::Stopped, Duration::from_secs(3600)));
/// assert!(!Scope::Waiting.covers(TaskStatus::Running, Duration::ZERO));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A waiting task, also one that waits for a retry.
    ///
    /// A running task does not conflict: it may have started with outdated data.
    Waiting,
    /// A waiting or running task.
    #[default]
    Active,
    /// A task in any status that was created less than this ago.
    Within(Duration),
}

impl Scope {
    /// Returns whether a task conflicts.
    #[must_use]
    pub fn covers(self, status: TaskStatus, age: Duration) -> bool {
        match self {
            Self::Waiting => status == TaskStatus::Waiting,
            Self::Active => matches!(status, TaskStatus::Waiting | TaskStatus::Running),
            Self::Within(period) => age < period,
        }
    }
}

/// The action when a task with the same key exists.
///
/// Only a waiting task can be changed: a running or ended one is kept unchanged.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::{OnConflict, Scope, TaskStatus, Unique};
///
/// // The newest parameters replace those of a waiting task.
/// let unique =
///     Unique::by("customer 7").scope(Scope::Waiting).on_conflict(OnConflict::ReplaceParameters);
/// assert!(unique.on_conflict.changes(TaskStatus::Waiting));
/// assert!(!unique.on_conflict.changes(TaskStatus::Running));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// The old task is kept unchanged.
    #[default]
    Keep,
    /// The old task gets the parameters, context, queue, priority and time of the new
    /// one.
    Replace,
    /// The old task gets the parameters of the new one and keeps its time.
    ReplaceParameters,
    /// The old task gets the time of the new one and keeps its parameters.
    ReplaceTime,
}

enum_tokens!(OnConflict {
    Keep = "keep", Replace = "replace", ReplaceParameters = "replace_parameters",
    ReplaceTime = "replace_time",
});

impl OnConflict {
    /// Returns whether a task in this status is changed.
    #[must_use]
    pub fn changes(self, status: TaskStatus) -> bool {
        self != Self::Keep && status == TaskStatus::Waiting
    }

    /// Returns whether it replaces the parameters.
    #[must_use]
    pub fn takes_parameters(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceParameters)
    }

    /// Returns whether it replaces the time.
    #[must_use]
    pub fn takes_time(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceTime)
    }
}

impl FromStr for OnConflict {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(&text.replace('-', "_")).ok_or_else(|| {
            ParseError(format!(
                "unknown action {text:?}; use keep, replace, replace-parameters or replace-time"
            ))
        })
    }
}

/// The outcome of a creation.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::{Creation, TaskId};
///
/// let creation = Creation::Kept(TaskId(7));
/// assert_eq!(creation.id(), TaskId(7));
/// assert!(!creation.is_new());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Creation {
    /// The task was created.
    Created(TaskId),
    /// This task has the key and was kept unchanged.
    ///
    /// No task was created.
    Kept(TaskId),
    /// This waiting task has the key and was changed.
    ///
    /// No task was created.
    Replaced(TaskId),
}

impl Creation {
    /// Returns the task that was created, kept or changed.
    #[must_use]
    pub fn id(self) -> TaskId {
        match self {
            Self::Created(id) | Self::Kept(id) | Self::Replaced(id) => id,
        }
    }

    /// Returns whether a task was created.
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

/// Returns the key that a task was created with, from its context.
#[must_use]
pub fn key_of(context: &Json) -> Option<String> {
    let context: serde_json::Map<String, serde_json::Value> = context.decode().ok()?;
    Some(context.get(CONTEXT_KEY)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_decides_conflicts() {
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
            for action in OnConflict::ALL {
                let changes = action != OnConflict::Keep && status == Waiting;
                assert_eq!(action.changes(status), changes, "{action:?} of {status}");
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
    fn parameters_as_key_are_sorted() {
        use std::collections::HashMap;
        let names: HashMap<String, u128> =
            ["b\"", "a", "c"].map(|name| (name.into(), u128::MAX)).into();
        let huge = u128::MAX;
        let expected = format!(r#"{{"a":{huge},"b\"":{huge},"c":{huge}}}"#);
        assert_eq!(Unique::by_parameters(&names).key, expected);
        let nested = [("list", [serde_json::json!({"y": [], "x": null})])];
        let nested: HashMap<_, _> = nested.into();
        assert_eq!(Unique::by_parameters(&nested).key, r#"{"list":[{"x":null,"y":[]}]}"#);
        assert_eq!(Unique::by_parameters(&()).key, "{}");
        assert!(Unique::by_parameters(&7).check().is_err());
    }

    #[test]
    fn tokens_parse_as_written() {
        for action in OnConflict::ALL {
            assert_eq!(action.as_str().parse(), Ok(action));
            assert_eq!(action.as_str().replace('_', "-").parse(), Ok(action));
        }
        assert!("drop".parse::<OnConflict>().unwrap_err().0.contains("keep, replace"));
    }

    #[test]
    fn key_is_read_from_context() {
        let context = Json::parse(r#"{"a":1,"unique_key":"k"}"#).unwrap();
        assert_eq!(key_of(&context).as_deref(), Some("k"));
        for none in ["{}", r#"{"unique_key":7}"#] {
            assert_eq!(key_of(&Json::parse(none).unwrap()), None);
        }
    }
}
