//! The actor of operations, and their audit.
//!
//! Every operation leaves two entries in the audit: `started` before anything is changed, and
//! the outcome with its counts afterwards, also when it fails after some batches. If the first entry
//! cannot be written, nothing is changed. A request that is refused before it changes anything
//! leaves no entry: programs may send thousands of those in a minute.

use std::sync::Arc;

use serde_json::{Value, json};
use task_engine_core::json::Json;
use task_engine_core::secret::UnexpectedPlaceholder;
use task_engine_core::task::TaskId;
use task_engine_store::audit::{AuditOutcome, NewAuditEntry, TARGET_BYTES_MAX};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::token::Role;

use crate::report::{OperationReport, TASK_IDS_AUDITED_MAX};
use crate::schemas::InvalidParameters;

/// The person or program that asks for an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actor {
    /// The name in the audit.
    pub name: String,
    /// The role, which says what the actor may do.
    pub role: Role,
}

impl Actor {
    /// Creates an actor of this name and role.
    #[must_use]
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), role }
    }
}

/// Performs operations for one actor.
///
/// Each method is one operation; see the modules [`tasks`](crate::tasks),
/// [`durable`](crate::durable), [`queues`](crate::queues), [`limits`](crate::limits),
/// [`schedules`](crate::schedules), [`recover`](crate::recover), [`tokens`](crate::tokens) and
/// [`prune`](crate::prune).
#[derive(Debug, Clone)]
pub struct Operator {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) actor: Actor,
    pub(crate) reason: Option<String>,
    /// Whether parameters are checked by the schemas of classes.
    pub(crate) checks_parameters: bool,
}

/// The name of an operation in the audit, and its target.
#[derive(Debug, Clone)]
pub struct AuditedOperation {
    action: &'static str,
    target: String,
    detail: Value,
}

/// The error of an operation that was not done, or not completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The request is invalid: change the field that the message names.
    ///
    /// Nothing was changed.
    #[error("{message}")]
    Invalid {
        /// The wrong field as a JSON pointer, like `/parameters/to`; empty for the whole.
        pointer: String,
        /// What is wrong.
        message: String,
    },
    /// Parameters do not fit the schema of their class.
    ///
    /// Nothing was changed.
    #[error("{invalid}")]
    Parameters {
        /// What is wrong first, as a JSON pointer in the request.
        pointer: String,
        /// What is wrong.
        invalid: InvalidParameters,
    },
    /// The actor may not do this.
    ///
    /// Nothing was changed.
    #[error("{0}")]
    Forbidden(String),
    /// The target does not exist.
    ///
    /// Nothing was changed.
    #[error("{0}")]
    NotFound(String),
    /// The target is in another state.
    ///
    /// Nothing was changed.
    #[error("{0}")]
    Conflict(String),
    /// An idempotency key was used before for another request.
    #[error("{0}")]
    KeyReused(String),
    /// Another session holds what this needs; try again later.
    #[error("{0}")]
    Busy(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operation failed after some of its batches were done: the report lists them.
    #[error("failed after {} of {}: {cause}", .report.total(), .report.total() + *.left as u64)]
    Partial {
        /// What was done before.
        report: Box<OperationReport>,
        /// How many are known to be left.
        left: usize,
        /// Why the rest was not done.
        cause: Box<OperationError>,
    },
}

impl OperationError {
    /// Creates the error of a request that is invalid as a whole.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { pointer: String::new(), message: message.into() }
    }

    /// Creates a placeholder for a secret where there is none, in the parameters at `pointer`.
    #[must_use]
    pub fn placeholder(pointer: &str, found: &UnexpectedPlaceholder) -> Self {
        Self::Invalid { pointer: format!("{pointer}{}", found.pointer), message: found.to_string() }
    }

    pub(crate) fn no_task(id: TaskId) -> Self {
        Self::NotFound(format!(
            "there is no task {id}; it may have been deleted, as successful tasks are after a time"
        ))
    }

    /// This error after part of the work was done.
    pub(crate) fn after(self, report: OperationReport, left: usize) -> Self {
        if report.counts.is_empty() {
            return self;
        }
        Self::Partial { report: Box::new(report), left, cause: Box::new(self) }
    }

    fn outcome(&self) -> AuditOutcome {
        match self {
            Self::Busy(_) | Self::Store(_) | Self::Partial { .. } => AuditOutcome::Failed,
            _ => AuditOutcome::Refused,
        }
    }
}

impl AuditedOperation {
    /// Creates an action like `tasks.retry`, and its target: a task, a filter, a name.
    pub fn new(action: &'static str, target: impl Into<String>) -> Self {
        Self { action, target: target.into(), detail: json!({}) }
    }

    /// Facts that the target does not contain.
    ///
    /// Never parameters: they may be secret.
    #[must_use]
    pub fn detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

impl Operator {
    /// Performs operations on this store for this actor.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, actor: Actor) -> Self {
        Self { store, actor, reason: None, checks_parameters: true }
    }

    /// Adds the actor's reason, for the audit.
    #[must_use]
    pub fn reason(mut self, reason: Option<&str>) -> Self {
        self.reason = reason.map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned);
        self
    }

    /// Returns the actor.
    #[must_use]
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Does `work` between the two entries of the audit.
    pub async fn audited(
        &self,
        operation: AuditedOperation,
        work: impl Future<Output = Result<OperationReport, OperationError>>,
    ) -> Result<OperationReport, OperationError> {
        let AuditedOperation { action, target, detail } = operation;
        let (actor, reason) = (self.actor.name.as_str(), self.reason.clone());
        let started =
            NewAuditEntry::started(actor, action, &shortened(&target), reason, encoded(&detail))
                .map_err(|invalid| OperationError::invalid(invalid.to_string()))?;
        let id = self.store.audit(&started).await?;
        let result = work.await;
        let (outcome, detail) = match &result {
            Ok(report) => (AuditOutcome::Done, audited_counts(report)),
            Err(error) => {
                let mut detail = match error {
                    OperationError::Partial { report, .. } => audited_counts(report),
                    _ => json!({}),
                };
                detail["message"] = error.to_string().into();
                (error.outcome(), detail)
            }
        };
        let written = self.store.audit(&started.ended(id, outcome, encoded(&detail))).await;
        if let Err(error) = &written {
            tracing::warn!(%error, started = id, action, "the outcome is missing in the audit");
        }
        let audit_id = written.unwrap_or(id);
        result.map(|report| {
            if report.message.is_empty() {
                let message = report.sentence(action, &target);
                return OperationReport { audit_id, message, ..report };
            }
            OperationReport { audit_id, ..report }
        })
    }
}

/// The counts, and the first of the tasks: a long list would not fit into an entry.
fn audited_counts(report: &OperationReport) -> Value {
    let mut detail = json!({ "counts": report.counts });
    if !report.task_ids.is_empty() {
        let shown = report.task_ids.len().min(TASK_IDS_AUDITED_MAX);
        detail["task_ids"] = json!(report.task_ids[..shown]);
    }
    if report.and_more {
        detail["and_more"] = true.into();
    }
    if !report.message.is_empty() {
        detail["message"] = report.message.as_str().into();
    }
    detail
}

fn shortened(target: &str) -> String {
    // A character takes up to 8 bytes when it is made visible.
    const CHARS_MAX: usize = TARGET_BYTES_MAX / 8 - 1;
    if target.len() <= CHARS_MAX {
        return target.to_owned();
    }
    let mut shown: String = target.chars().take(CHARS_MAX).collect();
    shown.push('…');
    shown
}

fn encoded(detail: &Value) -> Json {
    Json::encode(detail).unwrap_or_else(|_| Json::empty_object())
}
