//! Who may use a name, and what becomes of what its last holder left.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_model::instance::{Admission, InstanceId, InstanceRow, NewInstance, Recovery};
use task_engine_model::store::{HeldTask, TakeBack};
use task_engine_model::{Next, Store, StoreError, TaskStatus, instance};

use crate::engine::EngineError;
use crate::process;
use crate::stop::{Phase, StopWatch};

/// How long the programs of a dead engine may take to end: they get a second, and
/// then SIGKILL. One that survives even that waits for a dead disk.
const PROGRAMS_END_WITHIN: Duration = Duration::from_secs(10);
const PROGRAMS_LOOK_EVERY: Duration = Duration::from_millis(50);

/// Registers an engine, once its name is free. `None` if it was told to stop
/// while it waited for that.
pub(crate) async fn admit(
    store: &dyn Store,
    new: &NewInstance,
    recovery: Recovery,
    stop: &mut StopWatch,
) -> Result<Option<InstanceId>, EngineError> {
    let mut silent_since: HashMap<InstanceId, Timestamp> = HashMap::new();
    let began = Instant::now();
    loop {
        let mut wait = None;
        for holder in store.instances(Some(&new.name)).await? {
            // Its programs get a moment to end after its death. An attempt that
            // began before that would run beside the one before.
            if began.elapsed() < PROGRAMS_END_WITHIN && programs_end(&holder) {
                wait = Some(PROGRAMS_LOOK_EVERY);
                continue;
            }
            let gone = process::process_is_gone(&holder);
            match instance::admission(&holder, gone, recovery) {
                Admission::Free => {}
                Admission::Taken => return Err(EngineError::NameTaken(Box::new(holder))),
                Admission::LeftTasks => return Err(left_tasks(store, holder).await?),
                Admission::Recover => recover(store, holder.id, gone).await?,
                Admission::Wait(time) => {
                    let last = *silent_since.entry(holder.id).or_insert_with(|| {
                        tracing::info!(
                            "engine {} was last heard of {:.0} s ago (process {} on {}); waiting up to {:.0} s until it counts as dead",
                            holder.name,
                            holder.heartbeat_age.as_secs_f64(),
                            holder.pid,
                            holder.host,
                            time.as_secs_f64()
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
            // Somebody was faster: look who.
            Err(StoreError::NameTaken(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the process of an engine is gone while programs that it ran are not.
fn programs_end(holder: &InstanceRow) -> bool {
    let matters = !holder.has_ended() || holder.held > 0;
    matters && holder.process.as_deref().is_some_and(task_engine_model::process::is_ending)
}

async fn left_tasks(store: &dyn Store, holder: InstanceRow) -> Result<EngineError, StoreError> {
    let tasks = store.held(holder.id).await?;
    Ok(EngineError::LeftTasks { holder: Box::new(holder), tasks })
}

/// Declares a dead engine lost and ends its attempts: a failure like any other.
/// Nothing happens if it is alive after all.
pub(crate) async fn recover(
    store: &dyn Store,
    id: InstanceId,
    process_gone: bool,
) -> Result<(), StoreError> {
    store.declare_lost(id, process_gone).await?;
    for task in store.take_back(TakeBack::Lost(id)).await? {
        let then = match task.next {
            Next::Wait { after, .. } => {
                format!("it will be retried in {:.0} s", after.as_secs_f64())
            }
            Next::End(TaskStatus::Cancelled) => "it was to be cancelled, and is".to_owned(),
            Next::End(_) => "it has failed and will not be retried".to_owned(),
        };
        tracing::warn!("{} ({}) was left by a dead engine; {then}", task.id, task.class);
    }
    Ok(())
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
