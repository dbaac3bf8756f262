//! The outcome of an operation: tokens for programs, sentences for people.

use std::collections::BTreeMap;

use serde::Serialize;
use task_engine_core::display::count;
use task_engine_core::recovery::ReclaimedAttempt;
use task_engine_core::task::TaskId;
use task_engine_store::audit::{AuditEntry, AuditOutcome};

/// An entry of the audit names no more tasks than this.
pub(crate) const TASK_IDS_AUDITED_MAX: usize = 100;

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident $token:literal $kind:ident $text:literal,)*) => {
        /// What became of one task, queue, schedule or token: a closed list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum OperationOutcome { $($(#[$doc])* $name,)* }

        impl OperationOutcome {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The token in reports and in the audit.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $token,)* }
            }

            /// The same for people: what follows "task 7" in a sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether something was changed.
            #[must_use]
            pub const fn kind(self) -> OutcomeKind {
                match self { $(Self::$name => OutcomeKind::$kind,)* }
            }
        }
    };
}

/// The four kinds of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    /// Something was changed.
    Changed,
    /// Nothing was changed, because it was so already.
    Unchanged,
    /// Nothing was changed, because the state does not allow it.
    Skipped,
    /// It does not exist.
    Missing,
}

outcomes! {
    /// A failed or cancelled task waits again.
    Retried "retried" Changed "waits again, and is due now",
    /// A task that waited for a later time is due now.
    Advanced "advanced" Changed "waited for a later time; it is due now",
    /// A waiting task was due already.
    AlreadyDue "already_due" Unchanged "is due already; `why` says why it does not run",
    /// A waiting task is cancelled.
    Cancelled "cancelled" Changed "is cancelled",
    /// The engine of a running task was asked to cancel it.
    CancelRequested "cancel_requested" Changed "is running; its engine was asked to cancel it",
    /// A task was cancelled before.
    AlreadyCancelled "already_cancelled" Unchanged "was cancelled before",
    /// A task was created again.
    Rerun "rerun" Changed "is created again",
    /// A task was deleted, or an old entry of the audit.
    Deleted "deleted" Changed "is deleted",
    /// A waiting task stays as it is.
    SkippedWaiting "skipped_waiting" Skipped "waits, nothing was changed; cancel it first",
    /// A running task stays as it is.
    SkippedRunning "skipped_running" Skipped "is running, nothing was changed",
    /// A successful task stays as it is.
    SkippedSucceeded "skipped_succeeded" Skipped
        "has succeeded, nothing was changed; to run it again, use `rerun`",
    /// A failed task stays as it is.
    SkippedFailed "skipped_failed" Skipped "has failed; there is nothing to cancel",
    /// An ended task that its engine has not released yet stays as it is.
    SkippedUnreleased "skipped_unreleased" Skipped
        "has ended, but its engine has not released it yet; try again in a moment",
    /// A task cannot be created again as it is.
    SkippedInvalid "skipped_invalid" Skipped "cannot be created again as it is",
    /// There is no such task.
    NotFound "not_found" Missing "does not exist",
    /// A task was created.
    Created "created" Changed "is created",
    /// A task with the same key was kept.
    Kept "kept" Unchanged "existed already",
    /// A task with the same key was replaced.
    Replaced "replaced" Changed "existed already, and was changed",
    /// Secret parameters were shown.
    Revealed "revealed" Changed "its secret parameters were shown",
    /// A schedule was added.
    Added "added" Changed "is added",
    /// A task or a schedule was changed.
    Changed "changed" Changed "is changed",
    /// A schedule was so already.
    Unchanged "unchanged" Unchanged "was so already",
    /// A schedule was removed.
    Removed "removed" Changed "is removed",
    /// A queue or a schedule was paused.
    Paused "paused" Changed "is paused",
    /// A queue or a schedule was paused before.
    AlreadyPaused "already_paused" Unchanged "was paused before",
    /// A queue or a schedule was resumed.
    Resumed "resumed" Changed "is resumed",
    /// A queue or a schedule was not paused.
    NotPaused "not_paused" Unchanged "was not paused",
    /// A dead instance was declared lost.
    DeclaredLost "declared_lost" Changed "is declared lost",
    /// The task of a dead instance waits again.
    RecoveredWaiting "recovered_waiting" Changed "is recovered, and waits again",
    /// The task of a dead instance has failed.
    RecoveredFailed "recovered_failed" Changed "is recovered, and has failed: no retry is left",
    /// The task of a dead instance is cancelled, as was requested.
    RecoveredCancelled "recovered_cancelled" Changed "is recovered, and cancelled as requested",
    /// No dead instance of this name held a task.
    NothingToRecover "nothing_to_recover" Unchanged "left nothing to recover",
    /// A token was revoked.
    Revoked "revoked" Changed "is revoked",
}

impl OperationOutcome {
    /// The outcome of this token.
    #[must_use]
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|outcome| outcome.as_str() == token)
    }

    /// Whether it is about a task, so that its number is worth saying.
    fn counts_tasks(self) -> bool {
        !matches!(
            self,
            Self::Revealed
                | Self::Added
                | Self::Changed
                | Self::Unchanged
                | Self::Removed
                | Self::Paused
                | Self::AlreadyPaused
                | Self::Resumed
                | Self::NotPaused
                | Self::DeclaredLost
                | Self::NothingToRecover
                | Self::Revoked
        )
    }
}

impl Serialize for OperationOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What became of one task of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskOutcome {
    /// The task.
    pub id: TaskId,
    /// What became of it.
    pub outcome: OperationOutcome,
    /// The new task, if it was created again.
    pub created: Option<TaskId>,
}

/// What an operation did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OperationReport {
    /// The entry of the audit that says so.
    pub audit_id: i64,
    /// How many had which outcome.
    pub counts: BTreeMap<OperationOutcome, u64>,
    /// The same as a sentence.
    pub message: String,
    /// The tasks that were created or recovered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<TaskId>,
    /// Whether the filter matched more tasks than the limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub and_more: bool,
    /// Each task of a bulk operation, in the order of the selection.
    #[serde(skip)]
    pub tasks: Vec<TaskOutcome>,
    /// The attempts of a dead instance, and what comes next.
    #[serde(skip)]
    pub recovered: Vec<ReclaimedAttempt>,
}

impl OperationReport {
    /// One outcome, without tasks.
    #[must_use]
    pub fn of(outcome: OperationOutcome) -> Self {
        Self { counts: BTreeMap::from([(outcome, 1)]), ..Self::default() }
    }

    /// Counts one more of this outcome.
    pub fn add(&mut self, outcome: OperationOutcome) {
        *self.counts.entry(outcome).or_default() += 1;
    }

    pub(crate) fn add_task(&mut self, task: TaskOutcome) {
        self.add(task.outcome);
        self.task_ids.extend(task.created);
        self.tasks.push(task);
    }

    /// Whether this outcome is among them.
    #[must_use]
    pub fn has(&self, outcome: OperationOutcome) -> bool {
        self.counts.contains_key(&outcome)
    }

    /// How many outcomes there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// An entry of the audit as a sentence.
#[must_use]
pub fn audit_sentence(entry: &AuditEntry) -> String {
    let detail: serde_json::Value = entry.detail.decode().unwrap_or_default();
    let counts = detail["counts"].as_object().into_iter().flatten();
    let counts = counts.filter_map(|(token, number)| Some((token.as_str(), number.as_u64()?)));
    let counts = counts_text(&entry.action, counts);
    let target = &entry.target;
    match entry.outcome {
        AuditOutcome::Asked => format!("{target}: asked for; the outcome is another entry."),
        AuditOutcome::Done => done_sentence(target, &counts, detail["and_more"] == true),
        AuditOutcome::Refused | AuditOutcome::Failed => {
            let why = detail["message"].as_str().unwrap_or("not done");
            let counts = if counts.is_empty() { counts } else { format!("{counts}; ") };
            format!("{target}: {counts}{why}.")
        }
    }
}

impl OperationReport {
    /// The report as a sentence, like that of its entry in the audit.
    pub(crate) fn sentence(&self, action: &str, target: &str) -> String {
        let counts = self.counts.iter().map(|(outcome, number)| (outcome.as_str(), *number));
        done_sentence(target, &counts_text(action, counts), self.and_more)
    }
}

fn done_sentence(target: &str, counts: &str, and_more: bool) -> String {
    if counts.is_empty() {
        return format!("{target}: no task matches.");
    }
    let more = if and_more { "; there may be more, repeat it for the rest" } else { "" };
    format!("{target}: {counts}{more}.")
}

fn counts_text<'a>(action: &str, counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let noun = if action.starts_with("audit.") { "entry" } else { "task" };
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let texts = counts.into_iter().map(|(token, number)| {
        let outcome = OperationOutcome::from_token(token);
        let text = outcome.map_or(token, |outcome| outcome.text());
        if outcome.is_some_and(OperationOutcome::counts_tasks) {
            format!("{}: {text}", count(usize::try_from(number).unwrap_or(usize::MAX), noun))
        } else {
            text.to_owned()
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_distinct_snake_case() {
        let mut seen = std::collections::BTreeSet::new();
        for outcome in OperationOutcome::ALL {
            let token = outcome.as_str();
            assert!(token.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{token}");
            assert!(seen.insert(token), "{token}");
            assert_eq!(OperationOutcome::from_token(token), Some(*outcome));
            assert!(!outcome.text().ends_with('.'), "{token}");
        }
    }

    #[test]
    fn report_serializes_tokens() {
        let mut report = OperationReport { audit_id: 4, ..OperationReport::default() };
        report.add(OperationOutcome::Retried);
        report.add(OperationOutcome::Retried);
        report.add(OperationOutcome::NotFound);
        report.message = report.sentence("tasks.retry", "status=failed");
        assert_eq!(
            serde_json::to_value(&report).unwrap(),
            serde_json::json!({
                "audit_id": 4,
                "counts": {"retried": 2, "not_found": 1},
                "message": "status=failed: 2 tasks: waits again, and is due now, 1 task: does not exist."
            })
        );
    }
}
