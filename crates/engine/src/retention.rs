//! Retention removes old tasks, flows without tasks, rollups, audit entries, unused keys of
//! limits and instances, in small batches.

use std::sync::Arc;
use std::time::Duration;

use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::contract::StoreFuture;

const EVERY: Duration = Duration::from_secs(3600);
const BATCH: u32 = 1000;

/// Removes the tasks that stopped longer than `age` ago, and audit entries older than `audit_age`.
///
/// It also removes flows without tasks, rollups that no chart shows any more, keys of limits that
/// are not in use, and instances without recorded executions. Failed and cancelled tasks stay until
/// an operator removes them.
pub(crate) async fn prune_regularly(
    store: Arc<dyn Store>,
    age: Option<Duration>,
    audit_age: Option<Duration>,
) {
    // Random, so that engines that start together do not prune together.
    let at_first = EVERY.mul_f64(0.1 * fastrand::f64()) + Duration::from_secs(60);
    tokio::time::sleep(at_first).await;
    loop {
        if let Some(age) = age {
            prune_all("tasks", || store.prune(TaskStatus::Stopped, age, BATCH)).await;
        }
        if let Some(age) = audit_age {
            prune_all("audit entries", || store.prune_audit(age, BATCH)).await;
        }
        prune_all("rollups", || store.prune_rollups(BATCH)).await;
        prune_all("flows", || store.prune_flows(BATCH)).await;
        prune_all("keys of limits", || store.prune_limit_keys(BATCH)).await;
        prune_all("instances", || store.prune_instances(BATCH)).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn prune_all<'a>(what: &str, prune: impl Fn() -> StoreFuture<'a, u64>) {
    loop {
        match prune().await {
            Ok(pruned) if pruned == u64::from(BATCH) => tokio::task::yield_now().await,
            Ok(_) => return,
            Err(error) => {
                return tracing::warn!("cannot remove old {what}, next try in an hour: {error}");
            }
        }
    }
}
