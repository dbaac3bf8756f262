//! Resumes the parents of awaited tasks after the ends of these tasks are committed. What is
//! lost here (the engine dies, the store cannot be reached) is found by a heartbeat.

use std::sync::Arc;

use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;
use tokio::sync::mpsc::UnboundedReceiver;

const BATCH_MAX: usize = 1000;

/// Looks for parents of ended tasks until the last sender is gone.
pub(crate) async fn resume_parents(store: Arc<dyn Store>, mut ended: UnboundedReceiver<TaskId>) {
    let mut batch = Vec::new();
    while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if let Err(error) = store.resume_parents(&batch).await {
            tracing::warn!(
                "parents of {} ended tasks are resumed with a later heartbeat: {error}",
                batch.len()
            );
        }
        batch.clear();
    }
}
