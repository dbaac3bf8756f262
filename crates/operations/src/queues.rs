//! Pausing and resuming queues.

use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::{QueuePause, QueueRow};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};

impl Operator {
    /// Lets engines take no more tasks of a queue, known or not.
    ///
    /// The reason is that of the operator.
    pub async fn pause_queue(&self, name: &str) -> Result<OperationReport, OperationError> {
        let pause = QueuePause::new(name, self.reason.clone()).map_err(|invalid| {
            OperationError::Invalid { pointer: "/reason".to_owned(), message: invalid.to_string() }
        })?;
        let work = async {
            Ok(OperationReport::of(if self.store.pause_queue(&pause).await? {
                OperationOutcome::Paused
            } else {
                OperationOutcome::AlreadyPaused
            }))
        };
        self.audited(AuditedOperation::new("queues.pause", name), work).await
    }

    /// Lets engines take tasks of a queue again.
    pub async fn resume_queue(&self, name: &str) -> Result<OperationReport, OperationError> {
        let paused = self.store.paused_queues().await?;
        // A typing error must not look like a success.
        if !paused.iter().any(|it| it.queue == name) && !is_known(&*self.store, name).await? {
            return Err(OperationError::NotFound(format!(
                "there is no queue {name}: it is not paused, has no tasks, and no engine serves it"
            )));
        }
        let work = async {
            Ok(OperationReport::of(if self.store.resume_queue(name).await? {
                OperationOutcome::Resumed
            } else {
                OperationOutcome::NotPaused
            }))
        };
        self.audited(AuditedOperation::new("queues.resume", name), work).await
    }
}

/// Returns whether a queue has tasks, or a live engine that serves it.
pub async fn is_known(store: &dyn Store, name: &str) -> Result<bool, StoreError> {
    let has_tasks = |queue: &QueueRow| {
        queue.name == name && queue.due.counted + queue.later.counted + queue.running > 0
    };
    let serves =
        |engine: &InstanceRow| engine.is_alive() && engine.queues.iter().any(|queue| queue == name);
    Ok(store.queues().await?.iter().any(has_tasks)
        || store.instances(None).await?.iter().any(serves))
}
