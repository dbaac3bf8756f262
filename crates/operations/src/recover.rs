//! Recovery of dead engines by an operator.

use task_engine_core::display::{count, span};
use task_engine_core::instance::{Admission, InstanceRow, Recovery, admission};
use task_engine_core::recovery::{HeldTask, Reclaim, ReclaimedAttempt};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::lock::why_not_reclaimed;

/// The recovered instances of an engine.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// How many dead instances were declared lost.
    pub dead: usize,
    /// Their attempts, and what happens next to their tasks.
    pub tasks: Vec<ReclaimedAttempt>,
    /// The newest instance, as it was before.
    pub last: InstanceRow,
}

/// Why an engine was not recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// No instance of this name is recorded.
    #[error("there is no engine {name}; {}", known_names(known))]
    Unknown {
        /// The name.
        name: String,
        /// The recorded names, in order.
        known: Vec<String>,
    },
    /// The engine is alive.
    #[error(
        "engine {} is alive: process {} on {}, last heartbeat {} ago. If its machine is gone, it counts as dead in {}; try again then",
        .0.name, .0.pid, .0.host, span(.0.heartbeat_age), span(.0.lease.saturating_sub(.0.heartbeat_age))
    )]
    Alive(Box<InstanceRow>),
    /// The engine was declared lost, but some of its tasks are locked.
    #[error("{}", .0)]
    Left(Box<LeftTasks>),
    /// The store failed. Tasks recovered before stay recovered.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Tasks that could not be recovered because another session has locked them.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{name} is declared lost; {} recovered, {} not: {why}. Try again when the lock is released; live engines retry at every heartbeat",
    count(.recovered.len(), "task"), .left.len()
)]
pub struct LeftTasks {
    /// The name of the engine.
    pub name: String,
    /// Its tasks that were recovered.
    pub recovered: Vec<ReclaimedAttempt>,
    /// Its tasks that were not.
    pub left: Vec<HeldTask>,
    /// Which session has locked them.
    pub why: String,
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() {
        "no engine has run recently".to_owned()
    } else {
        format!("known engines: {}", known.join(", "))
    }
}

/// Declares all dead instances of an engine lost and reclaims their tasks. A live instance
/// is left alone.
pub async fn recover(store: &dyn Store, name: &str) -> Result<Recovered, RecoverError> {
    let instances = store.instances(Some(name)).await?;
    let Some(last) = instances.first().cloned() else {
        return Err(RecoverError::Unknown { name: name.to_owned(), known: known(store).await? });
    };
    let (mut alive, mut left) = (None, Vec::new());
    let mut recovered = Recovered { dead: 0, tasks: Vec::new(), last };
    for instance in instances {
        match admission(&instance, Recovery::Auto) {
            Admission::Recover => {
                store.declare_lost(instance.id, instance.process_gone).await?;
                recovered.tasks.extend(store.reclaim(Reclaim::Lost(instance.id)).await?);
                recovered.dead += 1;
                left.extend(store.held_attempts(instance.id).await?);
            }
            Admission::Wait(_) | Admission::Taken => alive = Some(instance),
            Admission::Free | Admission::LeftTasks => {}
        }
    }
    if !left.is_empty() {
        let why = why_not_reclaimed(store).await?;
        let name = name.to_owned();
        let left = LeftTasks { name, recovered: recovered.tasks, left, why };
        return Err(RecoverError::Left(Box::new(left)));
    }
    match alive {
        Some(instance) if recovered.dead == 0 => Err(RecoverError::Alive(Box::new(instance))),
        _ => Ok(recovered),
    }
}

async fn known(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let mut names: Vec<_> =
        store.instances(None).await?.into_iter().map(|engine| engine.name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}
