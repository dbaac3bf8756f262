//! Recovers the tasks of dead engines: at the start of an engine, and with its heartbeats.

use task_engine_core::display::{count, next_state_text};
use task_engine_core::instance::InstanceRow;
use task_engine_core::recovery::Reclaim;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::lock::why_not_reclaimed;

/// Recovers the tasks of engines whose processes have ended on this machine,
/// whatever their names. What fails now is repeated with a heartbeat.
pub(crate) async fn recover_gone(store: &dyn Store) -> Result<(), StoreError> {
    for instance in store.instances(None).await?.iter().filter(|instance| instance.process_gone) {
        if let Err(error) = recover(store, instance).await {
            tracing::warn!(
                "the tasks of engine {} will be recovered later: {error}",
                identity(instance)
            );
        }
    }
    Ok(())
}

/// Declares a dead engine lost and ends its attempts as failures. Does nothing if
/// the engine is alive after all.
pub(crate) async fn recover(store: &dyn Store, instance: &InstanceRow) -> Result<(), StoreError> {
    let declared = store.declare_lost(instance.id, instance.process_gone).await?;
    let reclaimed = store.reclaim(Reclaim::Lost(instance.id)).await?;
    let left = if instance.held > 0 { store.held_attempts(instance.id).await? } else { Vec::new() };
    let name = identity(instance);
    if !reclaimed.is_empty() {
        tracing::warn!("recovered {} of dead engine {name}", count(reclaimed.len(), "task"));
    } else if declared && left.is_empty() {
        tracing::info!("engine {name} is dead and held no tasks; it is declared lost");
    }
    for task in &reclaimed {
        tracing::warn!(
            "{} ({}), left by engine {}, {}",
            task.id,
            task.class,
            instance.name,
            next_state_text(task)
        );
    }
    if !reclaimed.is_empty() {
        // Their keys may be free; if this fails, the polls find it.
        let _ = store.wake_limited().await;
    }
    // An engine that is alive after all keeps its tasks.
    if (declared || instance.has_ended()) && !left.is_empty() {
        let why = why_not_reclaimed(store).await?;
        tracing::warn!(
            "{} of dead engine {name} cannot be recovered yet: {why}; next try with a heartbeat",
            count(left.len(), "task")
        );
    }
    Ok(())
}

pub(crate) fn identity(instance: &InstanceRow) -> String {
    format!("{} (process {} on {})", instance.name, instance.pid, instance.host)
}
