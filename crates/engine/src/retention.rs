//! Retention: finished tasks, old figures and engines of long ago are removed
//! after a time, in small batches.

use std::sync::Arc;
use std::time::Duration;

use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::contract::StoreFuture;

const EVERY: Duration = Duration::from_secs(3600);
const BATCH: u32 = 1000;

/// Removes for ever the tasks that did their work longer than `age` ago (failed
/// and cancelled ones stay until an operator decides), entries of the audit that
/// are older than `audit_age`, the figures that no chart shows any more, and the
/// engines that nothing on record is about.
pub(crate) async fn keep(
    store: Arc<dyn Store>,
    age: Option<Duration>,
    audit_age: Option<Duration>,
) {
    // Not at the start of all engines at once.
    let at_first = EVERY.mul_f64(0.1 * fastrand::f64()) + Duration::from_secs(60);
    tokio::time::sleep(at_first).await;
    loop {
        if let Some(age) = age {
            all("tasks", || store.prune(TaskStatus::Stopped, age, BATCH)).await;
        }
        if let Some(age) = audit_age {
            all("audit entries", || store.prune_audit(age, BATCH)).await;
        }
        all("figures", || store.prune_rollups(BATCH)).await;
        all("engines", || store.prune_instances(BATCH)).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn all<'a>(what: &str, prune: impl Fn() -> StoreFuture<'a, u64>) {
    loop {
        match prune().await {
            Ok(pruned) if pruned == u64::from(BATCH) => tokio::task::yield_now().await,
            Ok(_) => return,
            Err(error) => return tracing::warn!("old {what} are kept for now: {error}"),
        }
    }
}
