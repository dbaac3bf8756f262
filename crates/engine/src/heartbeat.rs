//! The heartbeat: says that this engine is alive, learns what it should know,
//! and recovers what others have left.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use task_engine_model::instance::{InstanceId, Recovery};
use task_engine_model::store::{Pulse, TakeBack};
use task_engine_model::{Store, StoreError};

use crate::admission;
use crate::running::{Cause, Claims, Running};
use crate::wake_up::Hints;

pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) instance: InstanceId,
    pub(crate) every: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) classes: HashSet<String>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) running: Arc<Running>,
    pub(crate) hints: Arc<Hints>,
}

/// When the store does not answer, it is asked again sooner than usual.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Heartbeat {
    /// Beats until the engine's life is over on record.
    pub(crate) async fn run(self) {
        let mut seen = Seen::default();
        loop {
            let known = self.claims.known();
            let wait = match self.store.heartbeat(self.instance).await {
                Ok(pulse) if !pulse.alive => return,
                Ok(pulse) => {
                    self.act(&pulse, &known, &mut seen).await;
                    self.every
                }
                Err(error) => {
                    tracing::warn!("no heartbeat, next try in {AFTER_ERROR:?}: {error}");
                    // Whoever could not see the others cannot say that they are dead.
                    seen.expired.clear();
                    AFTER_ERROR.min(self.every)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.hints.cancel().wait() => {
                    self.hints.cancel().take();
                }
            }
        }
    }

    async fn act(
        &self,
        pulse: &Pulse,
        known_before: &HashSet<task_engine_model::ClaimId>,
        seen: &mut Seen,
    ) {
        for id in &pulse.cancel {
            if self.running.cancel(*id, Cause::Requested) {
                tracing::info!("{id}: somebody asks for it to be cancelled");
            }
        }
        self.warn_of_unknown_classes(pulse, seen);
        // A claim is unknown only if it was so before and after the question:
        // in between it may have been asked for, or have come to its end.
        let known = self.claims.known();
        let unknown: Vec<_> = pulse
            .claims
            .iter()
            .filter(|id| !known.contains(id) && !known_before.contains(id))
            .copied()
            .collect();
        if !unknown.is_empty() {
            let taken = self.store.take_back(TakeBack::Unknown(self.instance, unknown)).await;
            report(taken.map(|tasks| {
                for task in tasks {
                    tracing::warn!(
                        "{} was claimed but its answer was lost; it waits again",
                        task.id
                    );
                }
            }));
        }
        self.see_to_the_dead(pulse, seen).await;
    }

    /// Expired leases count when they are seen twice in a row: after an outage
    /// of the database everybody's lease has run out, and the others need a
    /// moment to be heard of again.
    async fn see_to_the_dead(&self, pulse: &Pulse, seen: &mut Seen) {
        let expired: HashSet<InstanceId> = pulse.expired.iter().copied().collect();
        let dead: Vec<InstanceId> = expired.intersection(&seen.expired).copied().collect();
        seen.expired = expired;
        if self.recovery == Recovery::Manual {
            for id in dead.iter().chain(&pulse.orphaned) {
                if seen.warned_dead.insert(*id) {
                    self.warn_of_the_dead(*id).await;
                }
            }
            return;
        }
        for id in dead {
            report(admission::recover(&*self.store, id, false).await);
        }
        for id in &pulse.orphaned {
            report(admission::recover(&*self.store, *id, false).await);
        }
    }

    async fn warn_of_the_dead(&self, id: InstanceId) {
        let Ok(rows) = self.store.instances(None).await else {
            return;
        };
        if let Some(row) = rows.iter().find(|row| row.id == id && row.held > 0) {
            tracing::warn!(
                "engine {} (process {} on {}) is dead and holds {} tasks; `task-engine recover {}` frees them",
                row.name,
                row.pid,
                row.host,
                row.held,
                row.name
            );
        }
    }

    fn warn_of_unknown_classes(&self, pulse: &Pulse, seen: &mut Seen) {
        for class in &pulse.waiting_classes {
            if !self.classes.contains(class) && seen.warned_classes.insert(class.clone()) {
                tracing::warn!(
                    "tasks of class {class:?} wait, and this engine does not know that class; they are left to others"
                );
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    expired: HashSet<InstanceId>,
    warned_dead: HashSet<InstanceId>,
    warned_classes: HashSet<String>,
}

fn report(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!("recovery will be tried again with the next heartbeat: {error}");
    }
}
