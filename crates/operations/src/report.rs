//! The outcome of an operation: tokens for programs, sentences for people.

use std::collections::BTreeMap;

use serde::Serialize;
use task_engine_core::display::{capitalize, count};
use task_engine_core::recovery::ReclaimedAttempt;
use task_engine_core::task::TaskId;
use task_engine_store::audit::{AuditEntry, AuditOutcome};

/// An entry of the audit names no more tasks than this.
pub(crate) const TASK_IDS_AUDITED_MAX: usize = 100;

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident $token:literal $kind:ident $one:literal $(, $many:literal)?;)*) => {
        /// The outcome for one task, queue, limit, schedule or token, of a closed list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum OperationOutcome { $($(#[$doc])* $name,)* }

        task_engine_core::enum_tokens!(OperationOutcome { $($name = $token),* });

        impl OperationOutcome {
            /// Returns the text for people, which follows "task 7" in a sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $one,)* }
            }

            /// What follows "3 tasks" in a sentence. `None`: it is not about tasks.
            const fn text_of_many(self) -> Option<&'static str> {
                match self { $(Self::$name => outcomes!(@many $($many)?),)* }
            }

            /// Returns whether something was changed.
            #[must_use]
            pub const fn kind(self) -> OutcomeKind {
                match self { $(Self::$name => OutcomeKind::$kind,)* }
            }
        }
    };
    (@many) => { None };
    (@many $many:literal) => { Some($many) };
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
    Retried "retried" Changed
        "was retried", "were retried";
    /// A task that waited for a later time is due now.
    Advanced "advanced" Changed
        "was scheduled for later and is due now", "were scheduled for later and are due now";
    /// A waiting task was due already.
    AlreadyDue "already_due" Unchanged
        "was due already (`why` says why it does not run)", "were due already";
    /// A waiting task was cancelled.
    Cancelled "cancelled" Changed "was cancelled", "were cancelled";
    /// The engine of a running task was asked to cancel it.
    CancelRequested "cancel_requested" Changed
        "is running; its engine was asked to cancel it",
        "are running; their engines were asked to cancel them";
    /// A task was cancelled before.
    AlreadyCancelled "already_cancelled" Unchanged
        "was cancelled before", "were cancelled before";
    /// A task was created again.
    Rerun "rerun" Changed "was created again", "were created again";
    /// A task was deleted, or an old entry of the audit.
    Deleted "deleted" Changed "was deleted", "were deleted";
    /// A waiting task stays as it is.
    SkippedWaiting "skipped_waiting" Skipped
        "was skipped: waiting (cancel it first)", "were skipped: waiting (cancel them first)";
    /// A running task stays as it is.
    SkippedRunning "skipped_running" Skipped "was skipped: running", "were skipped: running";
    /// A successful task stays as it is.
    SkippedSucceeded "skipped_succeeded" Skipped
        "was skipped: succeeded (`rerun` creates it again)",
        "were skipped: succeeded (`rerun` creates them again)";
    /// A failed task stays as it is.
    SkippedFailed "skipped_failed" Skipped "was skipped: failed", "were skipped: failed";
    /// An ended task that its engine has not released yet stays as it is.
    SkippedUnreleased "skipped_unreleased" Skipped
        "was skipped: not yet released by its engine (try again in a moment)",
        "were skipped: not yet released by their engines (try again in a moment)";
    /// A task that waits for tasks that it depends on stays as it is.
    SkippedBlocked "skipped_blocked" Skipped
        "was skipped: it waits for tasks that it depends on (`why` names them)",
        "were skipped: they wait for tasks that they depend on (`why` names them)";
    /// An ended task that another one depends on stays as it is.
    SkippedNeeded "skipped_needed" Skipped
        "was skipped: a task that has not succeeded depends on it",
        "were skipped: tasks that have not succeeded depend on them";
    /// A task cannot be created again as it is.
    SkippedInvalid "skipped_invalid" Skipped
        "was skipped: it cannot be created again as it is",
        "were skipped: they cannot be created again as they are";
    /// A task that would be cancelled at once is not created again.
    SkippedDependency "skipped_dependency" Skipped
        "was skipped: a task that it depends on has not ended as it needs (`rerun` both)",
        "were skipped: tasks that they depend on have not ended as they need (`rerun` all of them)";
    /// There is no such task.
    NotFound "not_found" Missing "does not exist", "do not exist";
    /// A task was created.
    Created "created" Changed "was created", "were created";
    /// A task with the same key was kept.
    Kept "kept" Unchanged "existed already", "existed already";
    /// A task with the same key was replaced.
    Replaced "replaced" Changed
        "existed already and was changed", "existed already and were changed";
    /// Secret parameters were shown.
    Revealed "revealed" Changed "was shown with its secret parameters";
    /// A schedule, a limit or a token was added.
    Added "added" Changed "was added";
    /// A task, a schedule or a limit was changed.
    Changed "changed" Changed "was changed";
    /// A schedule or a limit was so already.
    Unchanged "unchanged" Unchanged "was so already";
    /// A schedule or a limit was removed.
    Removed "removed" Changed "was removed";
    /// What an operator had set for a limit was removed.
    Cleared "cleared" Changed "has the options that engines declare again";
    /// A closed key of a limit was opened.
    Opened "opened" Changed "has one closed key less";
    /// A key of a limit was not closed.
    NotClosed "not_closed" Unchanged "has no such closed key";
    /// A queue or a schedule was paused.
    Paused "paused" Changed "was paused";
    /// A queue or a schedule was paused before.
    AlreadyPaused "already_paused" Unchanged "was paused before";
    /// A queue or a schedule was resumed.
    Resumed "resumed" Changed "was resumed";
    /// A queue or a schedule was not paused.
    NotPaused "not_paused" Unchanged "was not paused";
    /// A dead instance was declared lost.
    DeclaredLost "declared_lost" Changed "was declared lost";
    /// The task of a dead instance waits again.
    RecoveredWaiting "recovered_waiting" Changed
        "was recovered and waits again", "were recovered and wait again";
    /// The task of a dead instance has failed.
    RecoveredFailed "recovered_failed" Changed
        "was recovered and has failed (no retry is left)",
        "were recovered and have failed (no retry is left)";
    /// The task of a dead instance was cancelled, as requested.
    RecoveredCancelled "recovered_cancelled" Changed
        "was recovered and cancelled, as requested",
        "were recovered and cancelled, as requested";
    /// No dead instance of this name held a task.
    NothingToRecover "nothing_to_recover" Unchanged "left nothing to recover";
    /// A task was waiting for a signal, and continues.
    SignalDelivered "signal_delivered" Changed "got the signal and continues";
    /// A signal is kept until its task waits for it.
    SignalKept "signal_kept" Changed "keeps the signal until it waits for it";
    /// A task got a signal of this name before.
    SignalDuplicate "signal_duplicate" Skipped
        "got a signal of this name before; the first one counts";
    /// The wait for a signal has timed out.
    SignalTimedOut "signal_timed_out" Skipped "has waited for the signal until its deadline";
    /// A task has ended and takes no signals.
    SignalTaskEnded "signal_task_ended" Skipped "has ended: signals are refused";
    /// A token was revoked.
    Revoked "revoked" Changed "was revoked";
}

impl OperationOutcome {
    /// Returns how many tasks had this outcome, like "3 tasks were cancelled".
    ///
    /// Without a number if it is not about tasks.
    #[must_use]
    pub fn counted(self, number: u64) -> String {
        self.counted_as("task", number)
    }

    fn counted_as(self, noun: &str, number: u64) -> String {
        let Some(many) = self.text_of_many() else { return self.text().to_owned() };
        let text = if number == 1 { self.text() } else { many };
        format!("{} {text}", count(usize::try_from(number).unwrap_or(usize::MAX), noun))
    }
}

impl Serialize for OperationOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The outcome for one task of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskOutcome {
    /// The task.
    pub id: TaskId,
    /// What became of it.
    pub outcome: OperationOutcome,
    /// The new task, if it was created again.
    pub created: Option<TaskId>,
}

/// The report of an operation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OperationReport {
    /// The entry of the audit that says so.
    pub audit_id: i64,
    /// How many had which outcome.
    pub counts: BTreeMap<OperationOutcome, u64>,
    /// The same as a sentence.
    ///
    /// An operation that can say more than its counts sets it.
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
    /// Creates a report of one outcome, without tasks.
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

    /// Returns whether this outcome is among them.
    #[must_use]
    pub fn has(&self, outcome: OperationOutcome) -> bool {
        self.counts.contains_key(&outcome)
    }

    /// Returns how many outcomes there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Returns an entry of the audit as a sentence.
#[must_use]
pub fn audit_sentence(entry: &AuditEntry) -> String {
    let detail: serde_json::Value = entry.detail.decode().unwrap_or_default();
    let counts = detail["counts"].as_object().into_iter().flatten();
    let counts = counts.filter_map(|(token, number)| {
        Some((OperationOutcome::from_token(token)?, number.as_u64()?))
    });
    let text = ReportText::new(&entry.action, &entry.target, counts);
    match entry.outcome {
        AuditOutcome::Started => {
            format!("{}: started; the outcome is another entry.", text.subject())
        }
        AuditOutcome::Done => match detail["message"].as_str() {
            Some(message) => message.to_owned(),
            None => text.done(detail["and_more"] == true),
        },
        AuditOutcome::Refused | AuditOutcome::Failed => {
            text.not_done(detail["message"].as_str().unwrap_or("not done"))
        }
    }
}

impl OperationReport {
    /// The report as a sentence, like that of its entry in the audit.
    pub(crate) fn sentence(&self, action: &str, target: &str) -> String {
        let counts = self.counts.iter().map(|(outcome, number)| (*outcome, *number));
        ReportText::new(action, target, counts).done(self.and_more)
    }
}

/// A report in words.
struct ReportText<'a> {
    /// `tasks` of `tasks.retry`.
    kind: &'a str,
    action: &'a str,
    target: &'a str,
    /// What is not about tasks first, then the most frequent.
    counts: Vec<(OperationOutcome, u64)>,
}

impl<'a> ReportText<'a> {
    fn new(
        action: &'a str,
        target: &'a str,
        counts: impl Iterator<Item = (OperationOutcome, u64)>,
    ) -> Self {
        let mut counts: Vec<_> = counts.collect();
        counts.sort_by_key(|(outcome, number)| {
            (outcome.text_of_many().is_some(), std::cmp::Reverse(*number))
        });
        let (kind, action) = action.split_once('.').unwrap_or((action, ""));
        Self { kind, action, target, counts }
    }

    /// `Queue mail`, `Task 7`, or the filter.
    fn subject(&self) -> String {
        match self.kind {
            "queues" => format!("Queue {}", self.target),
            "limits" => format!("Limit {}", self.target),
            "schedules" => format!("Schedule {}", self.target),
            "instances" => format!("Engine {}", self.target),
            "tokens" => format!("Token {}", self.target),
            _ if self.target.starts_with("task ") => capitalize(self.target),
            _ => self.target.to_owned(),
        }
    }

    /// The subject with the outcomes, like `Task 7 was cancelled` or
    /// `status=waiting: 3 tasks were cancelled; 2 tasks were skipped: running`.
    fn outcomes(&self) -> String {
        let subject = self.subject();
        let is_one = |(outcome, number): &(OperationOutcome, u64)| {
            outcome.text_of_many().is_none() || (*number == 1 && self.target.starts_with("task "))
        };
        let noun = if self.kind == "audit" { "entry" } else { "task" };
        let number =
            |(outcome, number): &(OperationOutcome, u64)| outcome.counted_as(noun, *number);
        match &self.counts[..] {
            [] => subject,
            [first, rest @ ..] if is_one(first) => {
                let rest = rest.iter().map(|it| format!("; {}", number(it)));
                format!("{subject} {}{}", first.0.text(), rest.collect::<String>())
            }
            all => format!("{subject}: {}", all.iter().map(number).collect::<Vec<_>>().join("; ")),
        }
    }

    fn done(&self, and_more: bool) -> String {
        match (self.counts.is_empty(), self.action) {
            (true, "prune") => format!("There are no {}.", self.target),
            (true, _) => format!("No tasks match {}.", self.target),
            (false, _) if and_more => {
                format!("{}; there may be more: repeat it for the rest.", self.outcomes())
            }
            (false, _) => format!("{}.", self.outcomes()),
        }
    }

    fn not_done(&self, why: &str) -> String {
        let joint = if self.counts.is_empty() { ": " } else { "; " };
        format!("{}{joint}{why}.", self.outcomes())
    }
}

#[cfg(test)]
mod tests;
