//! Recovery by an operator.

use task_engine_core::display::{count, span};
use task_engine_core::instance::{Admission, InstanceRow, Recovery, admission};
use task_engine_core::recovery::{HeldTask, Reclaim, ReclaimedAttempt};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::lock::why_not_reclaimed;

/// What became of the engines of a name.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// How many lives of it were found dead, and are declared lost.
    pub dead: usize,
    /// Their attempts, and what comes next.
    pub tasks: Vec<ReclaimedAttempt>,
    /// The newest life, as it was before.
    pub last: InstanceRow,
}

/// Why tasks were not recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// No engine of this name is on record.
    #[error("no engine is known by the name {name}; {}", there_are(known))]
    Unknown {
        /// The name.
        name: String,
        /// The names that are, in order.
        known: Vec<String>,
    },
    /// It is alive.
    #[error(
        "the engine {} is alive: process {} on {}, last heard of {} ago. If its machine is gone, it counts as dead in {}; try again then",
        .0.name, .0.pid, .0.host, span(.0.heartbeat_age), span(.0.lease.saturating_sub(.0.heartbeat_age))
    )]
    Alive(Box<InstanceRow>),
    /// It is declared lost, but some of its tasks are locked.
    #[error("{}", .0)]
    Left(Box<LeftTasks>),
    /// The store failed; tasks that were recovered before that stay recovered.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Tasks that could not be recovered because another session has locked them.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "{name} is declared lost; {} recovered, {} could not be: {why}. Try again when the lock is released; live engines do so with every heartbeat",
    count(.recovered.len(), "task"), .left.len()
)]
pub struct LeftTasks {
    /// The name of the engine.
    pub name: String,
    /// Its tasks that were recovered.
    pub recovered: Vec<ReclaimedAttempt>,
    /// Its tasks that were not.
    pub left: Vec<HeldTask>,
    /// Who has locked them.
    pub why: String,
}

fn there_are(known: &[String]) -> String {
    if known.is_empty() {
        "none has run here lately".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    }
}

/// Declares all dead lives of an engine lost, and takes back what they held. One
/// that is alive is left alone.
pub async fn recover(store: &dyn Store, name: &str) -> Result<Recovered, RecoverError> {
    let lives = store.instances(Some(name)).await?;
    let Some(last) = lives.first().cloned() else {
        return Err(RecoverError::Unknown { name: name.to_owned(), known: known(store).await? });
    };
    let (mut alive, mut left) = (None, Vec::new());
    let mut recovered = Recovered { dead: 0, tasks: Vec::new(), last };
    for life in lives {
        match admission(&life, Recovery::Auto) {
            Admission::Recover => {
                store.declare_lost(life.id, life.process_gone).await?;
                recovered.tasks.extend(store.reclaim(Reclaim::Lost(life.id)).await?);
                recovered.dead += 1;
                left.extend(store.held_attempts(life.id).await?);
            }
            Admission::Wait(_) | Admission::Taken => alive = Some(life),
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
        Some(life) if recovered.dead == 0 => Err(RecoverError::Alive(Box::new(life))),
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
