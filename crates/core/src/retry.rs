//! Decides when a failed attempt is retried.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::json::Json;

/// The rule that says how often, and after which waits, a failed task is retried.
///
/// The default is the book's: ten retries, after 2⁰, 2¹, … 2⁹ minutes.
/// The rule of a class is stored with every engine that has a handler for it, so
/// that recovery after a crash decides as that engine would have done.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::RetryRule;
///
/// let minute = Duration::from_secs(60);
/// let rule = RetryRule::default();
/// assert_eq!(rule.delay(0, 0.0), Some(minute));
/// assert_eq!(rule.delay(3, 0.0), Some(minute * 8));
/// assert_eq!(rule.delay(10, 0.0), None); // no more retries
///
/// let slow = RetryRule::times(50).cap(minute * 10).jitter(0.2);
/// assert_eq!(slow.delay(40, 0.0), Some(minute * 10));
/// assert_eq!(RetryRule::every(minute, 3).delay(2, 0.0), Some(minute));
/// assert_eq!(RetryRule::never().delay(0, 0.0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RetryRule {
    /// How many retries at most; 0 for a class that must not be retried.
    pub maximum: u32,
    /// The wait before the first retry.
    #[serde(rename = "first_delay_ms", with = "millis")]
    pub first_delay: Duration,
    /// The factor by which each wait is longer than the one before.
    pub factor: f64,
    /// The longest wait.
    #[serde(rename = "cap_ms", with = "millis")]
    pub cap: Duration,
    /// The part of each wait, from 0 to 1, that is random, so that tasks that
    /// failed together are not retried together.
    pub jitter: f64,
    /// Whether retries are counted anew after an attempt that recorded a step of a durable
    /// task.
    pub restart_after_progress: bool,
}

/// The parts of the retry rule of its class that one task overrides.
///
/// They are stored in the context of the task under `retry`.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use std::time::Duration;
/// use task_engine::{RetryOverride, RetryRule};
///
/// let own = RetryOverride::default().maximum(2);
/// let class = RetryRule::every(Duration::from_secs(5), 10);
/// assert_eq!(class.with(&own), RetryRule::every(Duration::from_secs(5), 2));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryOverride {
    /// How many retries at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u32>,
    /// The wait before the first retry.
    #[serde(rename = "first_delay_ms", default, with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_delay: Option<Duration>,
    /// The factor by which each wait is longer than the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The longest wait.
    #[serde(rename = "cap_ms", default, with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Duration>,
    /// The part of each wait, from 0 to 1, that is random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Whether retries are counted anew after an attempt that recorded a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_after_progress: Option<bool>,
}

/// The longest wait of any rule: a year.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

impl Default for RetryRule {
    fn default() -> Self {
        Self {
            maximum: 10,
            first_delay: Duration::from_secs(60),
            factor: 2.0,
            cap: DELAY_MAX,
            jitter: 0.0,
            restart_after_progress: true,
        }
    }
}

impl RetryRule {
    /// Creates a rule without retries.
    #[must_use]
    pub fn never() -> Self {
        Self { maximum: 0, ..Self::default() }
    }

    /// Creates a rule with the default waits and this many retries.
    #[must_use]
    pub fn times(maximum: u32) -> Self {
        Self { maximum, ..Self::default() }
    }

    /// Creates a rule with the same wait before every retry, and this many retries.
    #[must_use]
    pub fn every(delay: Duration, maximum: u32) -> Self {
        Self { maximum, first_delay: delay, factor: 1.0, ..Self::default() }
    }

    /// Sets the wait before the first retry.
    #[must_use]
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// Sets the factor by which each wait is longer than the one before.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets the part of each wait, from 0 to 1, that is random.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = part;
        self
    }

    /// Sets whether retries are counted anew after an attempt that recorded a step.
    ///
    /// Default: true, so that a durable task with many steps does not run out of retries.
    #[must_use]
    pub fn restart_after_progress(mut self, restart: bool) -> Self {
        self.restart_after_progress = restart;
        self
    }

    /// Returns the wait after a failure of the attempt with this retry number (0 for the first
    /// one), or `None` if the rule allows no more retries.
    ///
    /// `chance` is a random number from 0 to 1; the caller draws it, so that
    /// this function stays pure.
    #[must_use]
    pub fn delay(&self, retry_number: u32, chance: f64) -> Option<Duration> {
        if retry_number >= self.maximum {
            return None;
        }
        let exponent = i32::try_from(retry_number).unwrap_or(i32::MAX);
        let cap = self.cap.min(DELAY_MAX).as_secs_f64();
        // NaN and negative numbers come from a hand-written rule: no wait.
        let full = (self.first_delay.as_secs_f64() * self.factor.max(0.0).powi(exponent)).min(cap);
        let kept = 1.0 - self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0);
        Some(Duration::try_from_secs_f64(full * kept).unwrap_or(Duration::ZERO))
    }

    /// Returns this rule with the parts that one task overrides.
    #[must_use]
    pub fn with(self, task: &RetryOverride) -> Self {
        Self {
            maximum: task.maximum.unwrap_or(self.maximum),
            first_delay: task.first_delay.unwrap_or(self.first_delay),
            factor: task.factor.unwrap_or(self.factor),
            cap: task.cap.unwrap_or(self.cap),
            jitter: task.jitter.unwrap_or(self.jitter),
            restart_after_progress: task
                .restart_after_progress
                .unwrap_or(self.restart_after_progress),
        }
    }
}

impl RetryOverride {
    /// Reads the overrides of a task from its context; they are empty if there are none.
    pub fn of(context: &Json) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct RetryContext {
            #[serde(default)]
            retry: RetryOverride,
        }
        // The usual case costs no parsing.
        if context.as_str() == "{}" {
            return Ok(Self::default());
        }
        context.decode::<RetryContext>().map(|context| context.retry)
    }

    /// Overrides how many retries there are at most.
    #[must_use]
    pub fn maximum(mut self, maximum: u32) -> Self {
        self.maximum = Some(maximum);
        self
    }

    /// Overrides the wait before the first retry.
    #[must_use]
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = Some(delay);
        self
    }

    /// Overrides the factor by which each wait is longer than the one before.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = Some(factor);
        self
    }

    /// Overrides the longest wait.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Overrides the part of each wait, from 0 to 1, that is random.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = Some(part);
        self
    }

    /// Overrides whether retries are counted anew after an attempt that recorded a step.
    #[must_use]
    pub fn restart_after_progress(mut self, restart: bool) -> Self {
        self.restart_after_progress = Some(restart);
        self
    }
}

impl From<RetryRule> for RetryOverride {
    fn from(rule: RetryRule) -> Self {
        Self {
            maximum: Some(rule.maximum),
            first_delay: Some(rule.first_delay),
            factor: Some(rule.factor),
            cap: Some(rule.cap),
            jitter: Some(rule.jitter),
            restart_after_progress: Some(rule.restart_after_progress),
        }
    }
}

/// Durations as whole numbers of milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }

    pub(crate) mod optional {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            d: &Option<Duration>,
            s: S,
        ) -> Result<S::Ok, S::Error> {
            match d {
                Some(d) => super::serialize(d, s),
                None => s.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            d: D,
        ) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(d)?.map(Duration::from_millis))
        }
    }
}

#[cfg(test)]
mod tests;
