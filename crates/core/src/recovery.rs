//! Decides how attempts end when their engine no longer works on them.
//!
//! Stores call [`HoldingEngine::decide`] inside the transaction that reclaims them, so every store
//! decides the same.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::attempt::{AttemptEnd, AttemptId, NextState, RetryPolicy, TaskError, decide_end};
use crate::claim::ClaimId;
use crate::instance::InstanceId;
use crate::json::Json;
use crate::retry::RetryOverride;
use crate::step::retry_number_after;
use crate::task::TaskOptions;

/// The claims to reclaim, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reclaim {
    /// Claims that this engine does not know, because the reply was lost.
    ///
    /// Their tasks never started, so no retry is used.
    Unknown(InstanceId, Vec<ClaimId>),
    /// All claims of an instance that is over.
    ///
    /// Each attempt ends as a failure.
    Lost(InstanceId),
}

/// An attempt that was reclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimedAttempt {
    /// Which.
    pub id: AttemptId,
    /// The class of its task.
    pub class: String,
    /// What follows.
    pub next: NextState,
}

/// An attempt in a claim that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnendedAttempt {
    /// Which.
    pub id: AttemptId,
    /// The class of its task.
    pub class: String,
    /// Since when.
    pub claimed_at: Timestamp,
}

/// The engine that held the attempts, as recorded.
#[derive(Debug, Clone)]
pub struct HoldingEngine {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: i32,
    /// Time since its last heartbeat.
    pub silent: Duration,
    /// Its classes, with their options.
    pub classes: BTreeMap<String, TaskOptions>,
}

/// The stored data of an attempt that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct OpenAttempt<'a> {
    /// Its number.
    pub attempt: i32,
    /// The class of its task.
    pub class: &'a str,
    /// The context of its task.
    pub context: &'a Json,
    /// Its retry number.
    pub retry_number: u32,
    /// Whether a cancel request is stored.
    pub cancel_requested: bool,
    /// Whether it recorded a step of a durable task.
    pub recorded_steps: bool,
}

impl HoldingEngine {
    /// Returns how the attempt ends, and what follows, by the rule that the engine itself would
    /// have applied.
    ///
    /// If the rule in the task's context cannot be read, the rule of the class applies, or the
    /// default.
    #[must_use]
    pub fn decide(
        &self,
        what: &Reclaim,
        attempt: OpenAttempt<'_>,
        chance: f64,
    ) -> (AttemptEnd, NextState) {
        let rule = self.classes.get(attempt.class).map(|options| options.retry).unwrap_or_default();
        let rule = rule.with(&RetryOverride::of(attempt.context).unwrap_or_default());
        let end = self.end(what, attempt.cancel_requested);
        let policy = RetryPolicy { rule, function: None, chance };
        let retry_number = match what {
            Reclaim::Lost(_) => {
                retry_number_after(attempt.recorded_steps, attempt.retry_number, &rule)
            }
            Reclaim::Unknown(..) => attempt.retry_number,
        };
        let next = decide_end(&end, attempt.attempt, retry_number, &policy);
        (end, next)
    }

    fn end(&self, what: &Reclaim, cancel_requested: bool) -> AttemptEnd {
        let Self { name, host, pid, silent, .. } = self;
        let engine = format!("engine {name} (process {pid} on {host})");
        match what {
            _ if cancel_requested => AttemptEnd::Cancelled(TaskError::new(
                TaskError::CANCELLED,
                format!("cancelled on request, when it was reclaimed from {engine}"),
            )),
            Reclaim::Unknown(..) => AttemptEnd::never_started(format!(
                "{engine} claimed it, but the reply of the store was lost"
            )),
            Reclaim::Lost(_) => AttemptEnd::Lost(TaskError::new(
                TaskError::INSTANCE_LOST,
                format!(
                    "{engine} is dead; its last heartbeat was {:.1} s ago",
                    silent.as_secs_f64()
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryRule;
    use crate::task::TaskStatus;

    const LOST: Reclaim = Reclaim::Lost(InstanceId(1));

    fn decide(what: &Reclaim, context: &str, cancel_requested: bool) -> NextState {
        decide_after(what, context, cancel_requested, false)
    }

    fn decide_after(
        what: &Reclaim,
        context: &str,
        cancel_requested: bool,
        recorded_steps: bool,
    ) -> NextState {
        let options = TaskOptions::default().retry(RetryRule::every(Duration::from_secs(7), 3));
        let engine = HoldingEngine {
            name: "a".into(),
            host: "h".into(),
            pid: 1,
            silent: Duration::from_secs(40),
            classes: BTreeMap::from([("mail".to_owned(), options)]),
        };
        let context = Json::parse(context).unwrap();
        let attempt = OpenAttempt {
            attempt: 1,
            class: "mail",
            context: &context,
            retry_number: 1,
            cancel_requested,
            recorded_steps,
        };
        engine.decide(what, attempt, 0.0).1
    }

    #[test]
    fn rule_of_engine_decides() {
        let wait =
            |secs, retry_number| NextState::Wait { after: Duration::from_secs(secs), retry_number };
        assert_eq!(decide(&LOST, "{}", false), wait(7, 2));
        let once = r#"{"retry":{"maximum":1}}"#;
        assert_eq!(decide(&LOST, once, false), NextState::End(TaskStatus::Failed));
        assert_eq!(decide(&LOST, r#"{"retry":"nonsense"}"#, false), wait(7, 2));
        assert_eq!(decide(&LOST, "{}", true), NextState::End(TaskStatus::Cancelled));
        let unknown = Reclaim::Unknown(InstanceId(1), vec![]);
        assert_eq!(decide(&unknown, once, false), wait(0, 1));
    }

    #[test]
    fn lost_attempt_with_steps_restarts_retries() {
        let once = r#"{"retry":{"maximum":1}}"#;
        let wait = NextState::Wait { after: Duration::from_secs(7), retry_number: 1 };
        assert_eq!(decide_after(&LOST, once, false, true), wait);
        let counted = r#"{"retry":{"maximum":1,"restart_after_progress":false}}"#;
        let failed = NextState::End(TaskStatus::Failed);
        assert_eq!(decide_after(&LOST, counted, false, true), failed);
    }
}
