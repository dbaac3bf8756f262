//! How an engine gets its name and registers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::display::span;
use task_engine_core::instance::{
    Admission, InstanceId, InstanceRow, NewInstance, Recovery, decide_admission, free_name,
};
use task_engine_core::process;
use task_engine_core::recovery::UnendedAttempt;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::engine::InstanceName;
use crate::engine_error::EngineError;
use crate::recover::{identity, recover, recover_gone};
use crate::stop::{Phase, StopSignal};

/// How long to wait for the programs of a dead engine to end. They get a second,
/// and then SIGKILL; a program that survives that hangs in the kernel.
const PROGRAMS_END_TIMEOUT: Duration = Duration::from_secs(10);
const PROGRAMS_POLL: Duration = Duration::from_millis(50);

/// The sessions that this engine had before.
#[derive(Debug, Default)]
pub(crate) struct EarlierSessions {
    ids: Vec<InstanceId>,
    /// The name of the last one.
    name: Option<String>,
}

impl EarlierSessions {
    pub(crate) fn add(&mut self, id: InstanceId, name: String) {
        self.ids.push(id);
        self.name = Some(name);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// What to do about a holder of the name. What an earlier session of this engine left no
    /// longer runs, so it is recovered in any case. A live holder may be a registration of
    /// this engine whose reply was lost: its lease is awaited.
    fn recovery_of(&self, holder: &InstanceRow, recovery: Recovery) -> Recovery {
        let registers_again = !self.is_empty() && holder.is_alive();
        if registers_again || self.ids.contains(&holder.id) { Recovery::Auto } else { recovery }
    }
}

/// Registers an engine once its name is free. `None` if it was stopped while it waited.
pub(crate) async fn admit(
    store: &dyn Store,
    new: &mut NewInstance,
    name: &InstanceName,
    earlier: &EarlierSessions,
    recovery: Recovery,
    stop: &mut StopSignal,
) -> Result<Option<InstanceId>, EngineError> {
    let mut silent_since: HashMap<InstanceId, Timestamp> = HashMap::new();
    wait_for_programs(store).await?;
    if recovery == Recovery::Auto {
        recover_gone(store).await?;
    }
    loop {
        let instances = store.instances(None).await?;
        new.name = match (name, &earlier.name) {
            (InstanceName::Exact(name), _) => name.clone(),
            (InstanceName::Numbered(name), Some(last)) => {
                free_name(&instances, name, Some(last), Recovery::Auto)
            }
            (InstanceName::Numbered(name), None) => free_name(&instances, name, None, recovery),
        };
        let mut wait = None;
        for holder in instances.into_iter().filter(|instance| instance.name == new.name) {
            match decide_admission(&holder, earlier.recovery_of(&holder, recovery)) {
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
async fn wait_for_programs(store: &dyn Store) -> Result<(), StoreError> {
    let began = Instant::now();
    while began.elapsed() < PROGRAMS_END_TIMEOUT {
        if !store.instances(None).await?.iter().any(has_running_programs) {
            return Ok(());
        }
        tokio::time::sleep(PROGRAMS_POLL).await;
    }
    Ok(())
}

/// Whether the process of an engine has ended, and programs that it ran have not.
fn has_running_programs(instance: &InstanceRow) -> bool {
    let matters = !instance.has_ended() || instance.held > 0;
    matters && instance.process.as_deref().is_some_and(process::is_ending)
}

async fn left_tasks(store: &dyn Store, holder: InstanceRow) -> Result<EngineError, StoreError> {
    let tasks = store.held_attempts(holder.id).await?;
    Ok(EngineError::LeftTasks { holder: Box::new(holder), tasks })
}

/// Attempts, one a line, for a message; not all if there are many.
pub(crate) fn attempt_lines(tasks: &[UnendedAttempt]) -> String {
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
