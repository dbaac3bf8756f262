//! Limits: how many attempts may run at a time, and how often attempts may start.
//!
//! A [`Limit`] applies to the tasks of a class, to those of a queue, or to tasks that name it.
//! With a key, it applies to each key separately: a key is the value of a parameter, for
//! example a customer. Limits are stored in the database, so they hold for all engines.
//!
//! A due task with limits waits in a lane of its own: the tasks of one queue, class, priority
//! and [`LaneKey`]. [`grant()`] decides how many tasks of each lane a claim may start.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::millis;
use crate::task::{InvalidTask, check_name};

mod declare;
mod grant;
mod key;
mod row;

pub use declare::{ClassLimit, check_declared};
pub use grant::{Grant, Grants, KeyState, LaneLimits, LaneWait, RecentStart, grant};
pub(crate) use key::named_keys;
pub use key::{
    CONTEXT_NAME, LaneKey, LimitKey, TASK_KEY_BYTES_MAX, blocked_queue, is_blocked_queue, lane_key,
    limit_key, limited_queue, plain_queue,
};
pub use row::{
    ClosedKey, DeclaredLimits, Holder, LaneUsage, LimitChange, LimitCleared, LimitKeyUsage,
    LimitRow, LimitUsage, TaskLimit,
};

/// The highest maximum of a limit.
pub const MAX_RUNNING_MAX: u32 = 10_000;
/// The highest number of starts in a window.
pub const RATE_MAX: u32 = 1_000_000;
/// The longest window of a rate.
pub const RATE_PER_MAX: Duration = Duration::from_secs(366 * 86_400);
/// The shortest window of a rate.
pub const RATE_PER_MIN: Duration = Duration::from_millis(1);
/// The most limits of a class, of a queue, or named by a task.
pub const LIMITS_MAX: usize = 3;
/// The highest weight of a key.
pub const WEIGHT_MAX: u32 = 1000;
/// The most keys that have a weight.
pub const WEIGHTS_MAX: usize = 1000;

/// The id of a stored limit.
///
/// A limit that is removed and added again has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LimitId(pub i32);

/// The tasks that a limit applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitTarget {
    /// All tasks of this class.
    Class(String),
    /// All tasks of this queue.
    Queue(String),
    /// Tasks that name the limit when they are created.
    Named,
}

/// A limit on the attempts of a class, of a queue, or of the tasks that name it.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::limit::{Limit, LimitOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // At most five tasks of the queue run at a time, over all engines.
/// let mail = Limit::of_queue("mail", "mail", LimitOptions::max(5))?;
/// // At most ten of the tasks that name it, for each value of their parameter `account`.
/// let api = Limit::named("api", LimitOptions::max(10).key("account"))?;
/// # assert_eq!((mail.name.as_str(), api.name.as_str()), ("mail", "api"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name, unique in the database.
    pub name: String,
    /// Which tasks it applies to.
    pub target: LimitTarget,
    /// Its options.
    #[serde(flatten)]
    pub options: LimitOptions,
}

/// The options of a limit, which a class, a queue or an operator sets.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::limit::{LimitOptions, Rate};
///
/// // At most two running attempts for each customer, over all engines.
/// let per_customer = LimitOptions::max(2).key("customer_id");
/// // At most 100 starts in any second.
/// let overall = LimitOptions::rate(Rate::new(100, Duration::from_secs(1)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitOptions {
    /// The parameter whose value is the key.
    ///
    /// Without one, all tasks share the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The most attempts that run at a time, for each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// The most starts in a window, for each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Whether tasks of a key run one at a time and in order: a task that failed and waits
    /// for its retry blocks its key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_order: bool,
    /// How large the share of a key is, compared with the others.
    ///
    /// Default: 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
}

/// A rate: at most `max` starts in any window of length `per`.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::limit::{LimitOptions, Rate};
///
/// let rate = Rate::new(100, Duration::from_secs(1));
/// let options = LimitOptions::max(10).and_rate(rate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rate {
    /// How many.
    pub max: u32,
    /// The length of the window.
    #[serde(rename = "per_ms", with = "millis")]
    pub per: Duration,
    /// Whether starts are also spread evenly: at least `per / max` between two claims.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even: bool,
}

impl Rate {
    /// Creates a rate of at most `max` starts in any window of length `per`.
    #[must_use]
    pub fn new(max: u32, per: Duration) -> Self {
        Self { max, per, even: false }
    }

    /// Spreads the starts evenly.
    #[must_use]
    pub fn even(mut self) -> Self {
        self.even = true;
        self
    }

    /// Returns how long after its claim an attempt may start at the latest.
    ///
    /// Later it is released, so that a start is known up to this time.
    #[must_use]
    pub fn start_within(&self) -> Duration {
        (self.per / 50).clamp(Duration::from_millis(20), Self::START_WITHIN_MAX)
    }

    /// The longest time between the claim of a limited attempt and its start.
    ///
    /// A recorded start that is further in the future shows that the clock was set back.
    pub const START_WITHIN_MAX: Duration = Duration::from_secs(1);

    /// Returns the least time between two claims, if starts are spread evenly.
    #[must_use]
    pub fn spacing(&self) -> Option<Duration> {
        self.even.then(|| self.per / self.max.max(1))
    }
}

impl LimitOptions {
    /// Limits how many attempts run at a time.
    #[must_use]
    pub fn max(max: u32) -> Self {
        Self { max: Some(max), ..Self::default() }
    }

    /// Limits how many attempts start in a window of time.
    #[must_use]
    pub fn rate(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    /// Sets no limit, but gives each value of this parameter an equal share of the workers.
    #[must_use]
    pub fn fair(parameter: impl Into<String>) -> Self {
        Self::default().key(parameter)
    }

    /// Runs one attempt at a time for each key, in the order of time and id.
    ///
    /// A task that failed and waits for its retry blocks its key.
    #[must_use]
    pub fn in_order() -> Self {
        Self { in_order: true, ..Self::default() }
    }

    /// Applies the limit to each value of this parameter separately.
    #[must_use]
    pub fn key(mut self, parameter: impl Into<String>) -> Self {
        self.key = Some(parameter.into());
        self
    }

    /// Adds a rate.
    #[must_use]
    pub fn and_rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Gives a key a larger share of the workers.
    #[must_use]
    pub fn weight(mut self, key: impl Into<String>, weight: u32) -> Self {
        self.weights.insert(key.into(), weight);
        self
    }

    /// Returns the most attempts that run at a time; one if they run in order.
    #[must_use]
    pub fn max_running(&self) -> Option<u32> {
        if self.in_order { Some(1) } else { self.max }
    }

    /// Returns whether a claim must know which attempts run or have started.
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.max_running().is_some() || self.rate.is_some()
    }
}

/// The error of an invalid limit: change what the message names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The name, the class or the queue is empty, too long, or has control characters.
    #[error(transparent)]
    Name(#[from] InvalidTask),
    /// The maximum is not from 1 to [`MAX_RUNNING_MAX`].
    #[error(
        "limit {name:?}: max is a number from 1 to {MAX_RUNNING_MAX}, not {max}; to start nothing, pause the queue: task-engine queues pause NAME"
    )]
    Max {
        /// The limit.
        name: String,
        /// The maximum as given.
        max: u32,
    },
    /// The number of starts or the window of the rate is out of range.
    #[error(
        "limit {name:?}: a rate is 1 to {RATE_MAX} starts in a window of 1 ms to 366 days, for example 100 per 1s"
    )]
    Rate {
        /// The limit.
        name: String,
    },
    /// The key cannot be the name of a parameter.
    #[error(
        "limit {name:?}: a key is the name of a parameter of 1 to 200 bytes without control characters"
    )]
    Key {
        /// The limit.
        name: String,
    },
    /// The limit is in order and has a maximum other than 1: remove the maximum.
    #[error(
        "limit {name:?}: tasks that run in order run one at a time; omit max or set it to 1, not {max}"
    )]
    OrderWithMax {
        /// The limit.
        name: String,
        /// The maximum as given.
        max: u32,
    },
    /// A weight is not from 1 to [`WEIGHT_MAX`], there are more than [`WEIGHTS_MAX`], or the limit
    /// has no key.
    #[error(
        "limit {name:?}: a weight is a number from 1 to {WEIGHT_MAX}, for at most {WEIGHTS_MAX} keys, and needs a key"
    )]
    Weight {
        /// The limit.
        name: String,
    },
    /// The limit has neither a maximum, a rate, an order nor a key: set one of them.
    #[error("limit {name:?} has no effect; set max, rate, in_order or key")]
    Empty {
        /// The limit.
        name: String,
    },
    /// Two limits of an engine have the same name: rename one of them.
    #[error("limit {name:?} is declared twice; give one of them another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The key is a secret parameter, but keys are visible: choose another parameter.
    #[error(
        "limit {name:?}: the key {key:?} is a secret parameter of class {class}, and keys are visible; use another parameter"
    )]
    SecretKey {
        /// The limit.
        name: String,
        /// The parameter.
        key: String,
        /// The class.
        class: String,
    },
    /// A class, a queue or a task has more than [`LIMITS_MAX`] limits: remove some.
    #[error("{what} has {count} limits; at most {LIMITS_MAX} are possible")]
    TooMany {
        /// The class, queue or task.
        what: String,
        /// How many.
        count: usize,
    },
}

impl Limit {
    /// Creates a limit for all tasks of a class.
    pub fn of_class(
        name: impl Into<String>,
        class: impl Into<String>,
        options: LimitOptions,
    ) -> Result<Self, InvalidLimit> {
        Self { name: name.into(), target: LimitTarget::Class(class.into()), options }.checked()
    }

    /// Creates a limit for all tasks of a queue.
    pub fn of_queue(
        name: impl Into<String>,
        queue: impl Into<String>,
        options: LimitOptions,
    ) -> Result<Self, InvalidLimit> {
        Self { name: name.into(), target: LimitTarget::Queue(queue.into()), options }.checked()
    }

    /// Creates a limit for tasks that name it.
    pub fn named(name: impl Into<String>, options: LimitOptions) -> Result<Self, InvalidLimit> {
        Self { name: name.into(), target: LimitTarget::Named, options }.checked()
    }

    /// Returns this limit if it is valid.
    pub fn checked(self) -> Result<Self, InvalidLimit> {
        self.check()?;
        Ok(self)
    }

    /// Checks whether it is valid.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let Self { name, target, options } = self;
        check_name("limit", name.clone())?;
        match target {
            LimitTarget::Class(class) => drop(check_name("class", class.clone())?),
            LimitTarget::Queue(queue) => drop(check_name("queue", queue.clone())?),
            LimitTarget::Named => {}
        }
        let name = || name.clone();
        if let Some(max) = options.max {
            if !(1..=MAX_RUNNING_MAX).contains(&max) {
                return Err(InvalidLimit::Max { name: name(), max });
            }
            if options.in_order && max != 1 {
                return Err(InvalidLimit::OrderWithMax { name: name(), max });
            }
        }
        if let Some(rate) = options.rate
            && !((1..=RATE_MAX).contains(&rate.max)
                && (RATE_PER_MIN..=RATE_PER_MAX).contains(&rate.per))
        {
            return Err(InvalidLimit::Rate { name: name() });
        }
        if let Some(key) = &options.key
            && check_name("parameter", key.clone()).is_err()
        {
            return Err(InvalidLimit::Key { name: name() });
        }
        let weights = &options.weights;
        let in_range = weights.values().all(|weight| (1..=WEIGHT_MAX).contains(weight));
        let has_keys = options.key.is_some() || *target == LimitTarget::Named;
        if !in_range || weights.len() > WEIGHTS_MAX || (!weights.is_empty() && !has_keys) {
            return Err(InvalidLimit::Weight { name: name() });
        }
        if !options.has_state() && !has_keys {
            return Err(InvalidLimit::Empty { name: name() });
        }
        Ok(())
    }

    /// Returns whether it applies to a task of this class and queue, without being named by it.
    #[must_use]
    pub fn applies_to(&self, class: &str, queue: &str) -> bool {
        match &self.target {
            LimitTarget::Class(name) => name == class,
            LimitTarget::Queue(name) => name == queue,
            LimitTarget::Named => false,
        }
    }
}

#[cfg(test)]
mod tests;
