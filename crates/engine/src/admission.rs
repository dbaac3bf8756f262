//! How an engine gets its name and registers, and how it recovers the tasks of dead
//! engines.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::display::{count, next_state_text, span};
use task_engine_core::instance::{
    Admission, InstanceId, InstanceRow, NewInstance, Recovery, admission, free_name,
};
use task_engine_core::process;
use task_engine_core::recovery::{HeldTask, Reclaim};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::lock::why_not_reclaimed;

use crate::engine_error::EngineError;
use crate::stop::{Phase, StopSignal};

/// How long to wait for the programs of a dead engine to end. They get a second,
/// and then SIGKILL; a program that survives that hangs in the kernel.
const PROGRAMS_END_TIMEOUT: Duration = Duration::from_secs(10);
const PROGRAMS_POLL: Duration = Duration::from_millis(50);

/// The name that an engine asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedName<'a> {
    /// This one and no other.
    Given(&'a str),
    /// The machine's, with a number if a live engine has it. Carries the name of the
    /// session before, if there was one.
    OfMachine(Option<&'a str>),
}

/// Registers an engine once its name is free. `None` if it was stopped while it
/// waited.
pub(crate) async fn admit(
    store: &dyn Store,
    new: &mut NewInstance,
    name: RequestedName<'_>,
    recovery: Recovery,
    stop: &mut StopSignal,
) -> Result<Option<InstanceId>, EngineError> {
    let mut silent_since: HashMap<InstanceId, Timestamp> = HashMap::new();
    programs_ended(store).await?;
    if recovery == Recovery::Auto {
        recover_gone(store).await?;
    }
    loop {
        let instances = store.instances(None).await?;
        new.name = match name {
            RequestedName::Given(name) => name.to_owned(),
            RequestedName::OfMachine(last) => {
                free_name(&instances, &process::host_name(), last, recovery)
            }
        };
        let mut wait = None;
        for holder in instances.into_iter().filter(|instance| instance.name == new.name) {
            match admission(&holder, recovery) {
                Admission::Free => {}
                Admission::Taken => return Err(EngineError::NameTaken(Box::new(holder))),
                Admission::LeftTasks => return Err(left_tasks(store, holder).await?),
                Admission::Recover => recover(store, &holder).await?,
                Admission::Wait(time) => {
                    let last = *silent_since.entry(holder.id).or_insert_with(|| {
                        tracing::info!(
                            "the last heartbeat of engine {} was {} ago; waiting up to {} until it counts as dead",
                            identity(&holder),
                            span(holder.heartbeat_age),
                            span(time)
                        );
                        holder.heartbeat_at
                    });
                    if holder.heartbeat_at > last {
                        return Err(EngineError::NameTaken(Box::new(holder)));
                    }
                    // It may also unregister before its lease expires.
                    wait = Some(time.clamp(Duration::from_millis(10), Duration::from_secs(1)));
                }
            }
        }
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => continue,
                () = stop.reached(Phase::Draining) => return Ok(None),
            }
        }
        match store.register(new).await {
            Ok(id) => return Ok(Some(id)),
            // Another engine was faster: find out which.
            Err(StoreError::NameTaken(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the programs of dead engines of this machine have ended. An attempt
/// that began earlier would run at the same time as the one before.
async fn programs_ended(store: &dyn Store) -> Result<(), StoreError> {
    let began = Instant::now();
    while began.elapsed() < PROGRAMS_END_TIMEOUT {
        if !store.instances(None).await?.iter().any(programs_end) {
            return Ok(());
        }
        tokio::time::sleep(PROGRAMS_POLL).await;
    }
    Ok(())
}

/// Whether the process of an engine has ended, and programs that it ran have not.
fn programs_end(instance: &InstanceRow) -> bool {
    let matters = !instance.has_ended() || instance.held > 0;
    matters && instance.process.as_deref().is_some_and(process::is_ending)
}

/// Recovers the tasks of engines whose processes have ended on this machine,
/// whatever their names. What fails now is repeated with a heartbeat.
async fn recover_gone(store: &dyn Store) -> Result<(), StoreError> {
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

async fn left_tasks(store: &dyn Store, holder: InstanceRow) -> Result<EngineError, StoreError> {
    let tasks = store.held_attempts(holder.id).await?;
    Ok(EngineError::LeftTasks { holder: Box::new(holder), tasks })
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

fn identity(instance: &InstanceRow) -> String {
    format!("{} (process {} on {})", instance.name, instance.pid, instance.host)
}

/// A list for a message, shortened.
pub(crate) fn list(tasks: &[HeldTask]) -> String {
    const SHOWN_MAX: usize = 20;
    let mut lines: Vec<String> = tasks
        .iter()
        .take(SHOWN_MAX)
        .map(|task| format!("  {} ({}), since {}", task.id, task.class, task.claimed_at))
        .collect();
    if tasks.len() > SHOWN_MAX {
        lines.push(format!("  and {} more", tasks.len() - SHOWN_MAX));
    }
    lines.join("\n")
}
