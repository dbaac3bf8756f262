//! Retention: finished tasks and old figures are removed after a time, in small
//! batches.

use std::sync::Arc;
use std::time::Duration;

use task_engine_model::{Store, TaskStatus};

const EVERY: Duration = Duration::from_secs(3600);
const BATCH: u32 = 1000;

/// Removes for ever what is older than `age`. Failed and cancelled tasks stay
/// until somebody decides.
pub(crate) async fn prune(store: Arc<dyn Store>, age: Duration) {
    tokio::time::sleep(at_first()).await;
    loop {
        match store.prune(TaskStatus::Stopped, age, BATCH).await {
            Ok(pruned) if pruned == u64::from(BATCH) => tokio::task::yield_now().await,
            Ok(_) => tokio::time::sleep(EVERY).await,
            Err(error) => {
                tracing::warn!("old tasks are kept for now: {error}");
                tokio::time::sleep(EVERY).await;
            }
        }
    }
}

/// Removes for ever the figures that no chart shows any more.
pub(crate) async fn prune_figures(store: Arc<dyn Store>) {
    tokio::time::sleep(at_first()).await;
    loop {
        match store.prune_figures(BATCH).await {
            Ok(pruned) if pruned == u64::from(BATCH) => tokio::task::yield_now().await,
            Ok(_) => tokio::time::sleep(EVERY).await,
            Err(error) => {
                tracing::debug!("old figures are kept for now: {error}");
                tokio::time::sleep(EVERY).await;
            }
        }
    }
}

/// Not at the start of all engines at once.
fn at_first() -> Duration {
    EVERY.mul_f64(0.1 * fastrand::f64()) + Duration::from_secs(60)
}
