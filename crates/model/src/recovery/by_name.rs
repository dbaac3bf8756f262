//! Recovery on somebody's word.

use crate::instance::{Admission, InstanceRow, Recovery, admission};
use crate::store::{Store, StoreError, TakeBack, TakenBack};
use crate::words::span;

/// What became of the engines of a name.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// How many lives of it were found dead, and are declared lost.
    pub dead: usize,
    /// Their attempts, and what comes next.
    pub tasks: Vec<TakenBack>,
    /// The newest life, as it was before.
    pub last: InstanceRow,
}

/// Why nothing was recovered, and nothing was changed.
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
    /// The store failed; what was recovered before is.
    #[error(transparent)]
    Store(#[from] StoreError),
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
///
/// `process_is_gone` tells of a life on this very machine whether its process is
/// known to be gone, so that its lease need not run out first.
pub async fn recover(
    store: &dyn Store,
    name: &str,
    process_is_gone: impl Fn(&InstanceRow) -> bool,
) -> Result<Recovered, RecoverError> {
    let lives = store.instances(Some(name)).await?;
    let Some(last) = lives.first().cloned() else {
        return Err(RecoverError::Unknown { name: name.to_owned(), known: known(store).await? });
    };
    let (mut alive, mut recovered) = (None, Recovered { dead: 0, tasks: Vec::new(), last });
    for life in lives {
        let gone = process_is_gone(&life);
        match admission(&life, gone, Recovery::Auto) {
            Admission::Recover => {
                store.declare_lost(life.id, gone).await?;
                recovered.tasks.extend(store.take_back(TakeBack::Lost(life.id)).await?);
                recovered.dead += 1;
            }
            Admission::Wait(_) | Admission::Taken => alive = Some(life),
            Admission::Free | Admission::LeftTasks => {}
        }
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
