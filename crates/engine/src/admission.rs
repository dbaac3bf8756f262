//! Which name an engine gets, and what becomes of what dead engines left.

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

use crate::engine::EngineError;
use crate::stop::{Phase, StopWatch};

/// How long the programs of a dead engine may take to end: they get a second, and
/// then SIGKILL. One that survives even that waits for a dead disk.
const PROGRAMS_END_WITHIN: Duration = Duration::from_secs(10);
const PROGRAMS_LOOK_EVERY: Duration = Duration::from_millis(50);

/// The name that an engine asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Name<'a> {
    /// This one and no other.
    Given(&'a str),
    /// The machine's, with a number if live engines have it. With the name of the
    /// life before, if there was one.
    OfMachine(Option<&'a str>),
}

/// Registers an engine once its name is free. `None` if it was told to stop
/// while it waited for that.
pub(crate) async fn admit(
    store: &dyn Store,
    new: &mut NewInstance,
    name: Name<'_>,
    recovery: Recovery,
    stop: &mut StopWatch,
) -> Result<Option<InstanceId>, EngineError> {
    let mut silent_since: HashMap<InstanceId, Timestamp> = HashMap::new();
    programs_ended(store).await?;
    if recovery == Recovery::Auto {
        recover_gone(store).await?;
    }
    loop {
        let lives = store.instances(None).await?;
        new.name = match name {
            Name::Given(name) => name.to_owned(),
            Name::OfMachine(last) => free_name(&lives, &process::host_name(), last, recovery),
        };
        let mut wait = None;
        for holder in lives.into_iter().filter(|life| life.name == new.name) {
            match admission(&holder, recovery) {
                Admission::Free => {}
                Admission::Taken => return Err(EngineError::NameTaken(Box::new(holder))),
                Admission::LeftTasks => return Err(left_tasks(store, holder).await?),
                Admission::Recover => recover(store, &holder).await?,
                Admission::Wait(time) => {
                    let last = *silent_since.entry(holder.id).or_insert_with(|| {
                        tracing::info!(
                            "engine {} was last heard of {} ago; waiting up to {} until it counts as dead",
                            identity(&holder),
                            span(holder.heartbeat_age),
                            span(time)
                        );
                        holder.heartbeat_at
                    });
                    if holder.heartbeat_at > last {
                        return Err(EngineError::NameTaken(Box::new(holder)));
                    }
                    // It may also stop in good order before its lease is over.
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
            // Another engine was faster: look which.
            Err(StoreError::NameTaken(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the programs of engines whose processes are gone from this machine
/// have ended, too. They get a moment for it; an attempt that began before that
/// would run beside the one before.
async fn programs_ended(store: &dyn Store) -> Result<(), StoreError> {
    let began = Instant::now();
    while began.elapsed() < PROGRAMS_END_WITHIN {
        if !store.instances(None).await?.iter().any(programs_end) {
            return Ok(());
        }
        tokio::time::sleep(PROGRAMS_LOOK_EVERY).await;
    }
    Ok(())
}

/// Whether the process of an engine is gone while programs that it ran are not.
fn programs_end(life: &InstanceRow) -> bool {
    let matters = !life.has_ended() || life.held > 0;
    matters && life.process.as_deref().is_some_and(process::is_ending)
}

/// Recovers what engines left whose processes are gone from this machine: a
/// restarted engine need not have their name. What cannot be done now is done by
/// heartbeats later.
async fn recover_gone(store: &dyn Store) -> Result<(), StoreError> {
    for life in store.instances(None).await?.iter().filter(|life| life.process_gone) {
        if let Err(error) = recover(store, life).await {
            tracing::warn!(
                "the tasks of engine {} will be recovered later: {error}",
                identity(life)
            );
        }
    }
    Ok(())
}

async fn left_tasks(store: &dyn Store, holder: InstanceRow) -> Result<EngineError, StoreError> {
    let tasks = store.held_attempts(holder.id).await?;
    Ok(EngineError::LeftTasks { holder: Box::new(holder), tasks })
}

/// Declares a dead engine lost and ends its attempts: a failure like any other.
/// Nothing happens if it is alive after all. The log says what became of what.
pub(crate) async fn recover(store: &dyn Store, life: &InstanceRow) -> Result<(), StoreError> {
    let declared = store.declare_lost(life.id, life.process_gone).await?;
    let taken = store.reclaim(Reclaim::Lost(life.id)).await?;
    let left = if life.held > 0 { store.held_attempts(life.id).await? } else { Vec::new() };
    let name = identity(life);
    if !taken.is_empty() {
        tracing::warn!("recovered {} of dead engine {name}", count(taken.len(), "task"));
    } else if declared && left.is_empty() {
        tracing::info!("engine {name} is dead and held no tasks; it is declared lost");
    }
    for task in &taken {
        tracing::warn!(
            "{} ({}), left by engine {}, {}",
            task.id,
            task.class,
            life.name,
            next_state_text(task)
        );
    }
    // One that is alive after all holds its tasks.
    if (declared || life.has_ended()) && !left.is_empty() {
        let why = why_not_reclaimed(store).await?;
        tracing::warn!(
            "{} of dead engine {name} cannot be recovered yet: {why}; next try with a heartbeat",
            count(left.len(), "task")
        );
    }
    Ok(())
}

fn identity(life: &InstanceRow) -> String {
    format!("{} (process {} on {})", life.name, life.pid, life.host)
}

/// A list that fits a message.
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
