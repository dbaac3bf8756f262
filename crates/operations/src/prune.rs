//! Deleting what is old: tasks that ended long ago, and entries of the audit.

use std::time::Duration;

use task_engine_core::display::span;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::StoreFuture;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};
use crate::tasks::ProgressCallback;

/// So many are deleted in one transaction.
const BATCH: u32 = 1000;

/// Returns the tasks that `prune` deletes, as text.
#[must_use]
pub fn old_tasks_text(status: TaskStatus, age: Duration) -> String {
    format!("{status} tasks that ended at least {} ago", span(age))
}

/// Returns the entries of the audit log that `prune` deletes, as text.
#[must_use]
pub fn old_entries_text(age: Duration) -> String {
    format!("audit entries that are at least {} old", span(age))
}

impl Operator {
    /// Deletes tasks that ended in this status at least `age` ago.
    pub async fn prune_tasks(
        &self,
        status: TaskStatus,
        age: Duration,
        progress: ProgressCallback<'_>,
    ) -> Result<OperationReport, OperationError> {
        let work = delete_all(|| self.store.prune(status, age, BATCH), progress);
        let audited = AuditedOperation::new("tasks.prune", old_tasks_text(status, age));
        self.audited(audited, work).await
    }

    /// Deletes entries of the audit that are at least `age` old.
    pub async fn prune_audit(
        &self,
        age: Duration,
        progress: ProgressCallback<'_>,
    ) -> Result<OperationReport, OperationError> {
        let work = delete_all(|| self.store.prune_audit(age, BATCH), progress);
        self.audited(AuditedOperation::new("audit.prune", old_entries_text(age)), work).await
    }
}

async fn delete_all<'a>(
    prune: impl Fn() -> StoreFuture<'a, u64>,
    progress: ProgressCallback<'_>,
) -> Result<OperationReport, OperationError> {
    let mut deleted = 0;
    let report = |deleted| {
        let mut report = OperationReport::default();
        if deleted > 0 {
            report.counts.insert(OperationOutcome::Deleted, deleted);
        }
        report
    };
    loop {
        match prune().await {
            Ok(0) => return Ok(report(deleted)),
            Ok(more) => {
                deleted += more;
                progress(usize::try_from(more).unwrap_or(usize::MAX));
            }
            Err(error) => return Err(OperationError::from(error).after(report(deleted), 0)),
        }
    }
}
