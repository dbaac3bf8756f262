//! What becomes of attempts whose engine no longer works on them. Stores ask
//! here, inside the transaction that takes them back, so that the answer is the
//! same on every one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::attempt::{AttemptId, NextState, Outcome, TaskError, transition};
use crate::claim::ClaimId;
use crate::instance::InstanceId;
use crate::json::Json;
use crate::retry::RetryOverride;
use crate::task::{ClassRules, TaskStatus};

/// Which claims to take back, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reclaim {
    /// Claims of this engine that it does not know, because the answer was
    /// lost. Their tasks never started: no cost.
    Unknown(InstanceId, Vec<ClaimId>),
    /// All claims of a life that is over. A failure like any other.
    Lost(InstanceId),
}

/// An attempt that was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimedAttempt {
    /// Which.
    pub id: AttemptId,
    /// The class of its task.
    pub class: String,
    /// What comes next.
    pub next: NextState,
}

/// An attempt that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTask {
    /// Which.
    pub id: AttemptId,
    /// The class of its task.
    pub class: String,
    /// Since when.
    pub claimed_at: Timestamp,
}

/// The engine that held them, as it is on record.
#[derive(Debug, Clone)]
pub struct HoldingEngine {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: i32,
    /// How long ago it was last heard of.
    pub silent: Duration,
    /// The classes that it knew, with their rules.
    pub classes: BTreeMap<String, ClassRules>,
}

/// An attempt that has not ended.
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
    /// Whether somebody wants it cancelled.
    pub cancel_requested: bool,
}

impl HoldingEngine {
    /// How the attempt ends, and what comes next: by the rule that the engine
    /// itself would have applied. A rule that cannot be read stops no recovery:
    /// then the one of the class holds, or the default.
    #[must_use]
    pub fn decide(
        &self,
        what: &Reclaim,
        attempt: OpenAttempt<'_>,
        chance: f64,
    ) -> (Outcome, NextState) {
        let rule = self.classes.get(attempt.class).map(|rules| rules.retry).unwrap_or_default();
        let rule = rule.with(&RetryOverride::of(attempt.context).unwrap_or_default());
        let outcome = self.outcome(what, attempt.cancel_requested);
        let next = match transition(&outcome, &rule, attempt.retry_number, chance) {
            // There is no number for another attempt.
            NextState::Wait { .. } if attempt.attempt == i32::MAX => {
                NextState::End(TaskStatus::Failed)
            }
            next => next,
        };
        (outcome, next)
    }

    fn outcome(&self, what: &Reclaim, cancel_requested: bool) -> Outcome {
        let Self { name, host, pid, silent, .. } = self;
        let engine = format!("engine {name} (process {pid} on {host})");
        match what {
            _ if cancel_requested => Outcome::Cancelled(TaskError::new(
                TaskError::CANCELLED,
                format!("cancelled on request, when it was taken back from {engine}"),
            )),
            Reclaim::Unknown(..) => Outcome::Released(TaskError::new(
                TaskError::NEVER_STARTED,
                format!("{engine} claimed it, but the answer was lost on its way"),
            )),
            Reclaim::Lost(_) => Outcome::Lost(TaskError::new(
                TaskError::INSTANCE_LOST,
                format!("{engine} is gone; it was last heard of {:.1} s ago", silent.as_secs_f64()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::InstanceId;
    use crate::retry::RetryRule;

    const LOST: Reclaim = Reclaim::Lost(InstanceId(1));

    fn decide(what: &Reclaim, context: &str, cancel_requested: bool) -> NextState {
        let rules = ClassRules::default().retry(RetryRule::every(Duration::from_secs(7), 3));
        let former = HoldingEngine {
            name: "a".into(),
            host: "h".into(),
            pid: 1,
            silent: Duration::from_secs(40),
            classes: BTreeMap::from([("mail".to_owned(), rules)]),
        };
        let context = Json::parse(context).unwrap();
        let attempt = OpenAttempt {
            attempt: 1,
            class: "mail",
            context: &context,
            retry_number: 1,
            cancel_requested,
        };
        former.decide(what, attempt, 0.0).1
    }

    #[test]
    fn the_engines_own_rule_decides() {
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
}
