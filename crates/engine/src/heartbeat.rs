//! The heartbeat renews the lease of this engine, handles what the store reports
//! with it, and recovers the tasks of dead engines.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::claim::ClaimId;
use task_engine_core::display::{count, span};
use task_engine_core::instance::{InstanceId, Recovery};
use task_engine_core::recovery::Reclaim;
use task_engine_core::task::TaskId;
use task_engine_store::contract::HeartbeatReply;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::watch;

use crate::claims::Claims;
use crate::recover::recover;
use crate::rollup::Rollups;
use crate::running::RunningAttempts;
use crate::session::SessionEnd;
use crate::wake_up::WakeUps;

pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) instance: InstanceId,
    pub(crate) every: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) classes: HashSet<String>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) running: Arc<RunningAttempts>,
    pub(crate) wake_ups: Arc<WakeUps>,
    pub(crate) rollups: Arc<Rollups>,
}

/// How many suspended tasks are looked at with a heartbeat.
const SUSPENDED_PAGE: u32 = 1000;

/// After an error the next heartbeat comes sooner than usual.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Heartbeat {
    /// Sends heartbeats until the instance is over, or its store cannot be used any
    /// longer. Replies are handled concurrently, so that recovery never delays a
    /// heartbeat.
    pub(crate) async fn run(self) -> SessionEnd {
        let (snapshots, to_handle) = tokio::sync::watch::channel(None);
        tokio::select! {
            end = self.send(&snapshots) => end,
            () = self.handle(to_handle) => SessionEnd::Broken,
        }
    }

    async fn send(&self, snapshots: &watch::Sender<Option<HeartbeatSnapshot>>) -> SessionEnd {
        let (mut skew_reported, mut failing) = (false, false);
        loop {
            let known = self.claims.known();
            let (asked, asked_at) = (Instant::now(), Timestamp::now());
            let reply = self.store.heartbeat(self.instance).await;
            crate::measure::heartbeat(reply.is_ok(), asked.elapsed());
            let wait = match reply {
                Ok(reply) if !reply.alive => return SessionEnd::InstanceOver,
                Ok(reply) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the database answers again");
                    }
                    self.rollups.set_clock(asked, Instant::now(), reply.now);
                    if !skew_reported
                        && let Some(warning) = skew_warning(reply.now, asked_at, Timestamp::now())
                    {
                        tracing::warn!("{warning}");
                        skew_reported = true;
                    }
                    for id in self.running.request_cancel(&reply.cancel) {
                        tracing::info!("{id}: cancel requested");
                    }
                    if let Some(wait) = reply.next_schedule_in {
                        self.wake_ups.schedule_due_in(wait);
                    }
                    snapshots.send_replace(Some(HeartbeatSnapshot { reply, known }));
                    self.every
                }
                Err(StoreError::MustReopen(why)) => {
                    tracing::error!("the engine ends, because it cannot use its store: {why}");
                    return SessionEnd::StoreUnusable;
                }
                Err(error) => {
                    failing = true;
                    let wait = AFTER_ERROR.min(self.every);
                    tracing::warn!("heartbeat failed, next try in {}: {error}", span(wait));
                    // After a failed heartbeat, leases must be seen expired again.
                    snapshots.send_replace(None);
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wake_ups.cancel().wait() => {
                    self.wake_ups.cancel().take();
                }
            }
        }
    }

    /// Handles the newest reply; those that arrived while it was busy are skipped.
    async fn handle(&self, mut snapshots: watch::Receiver<Option<HeartbeatSnapshot>>) {
        let mut state = RecoveryState::default();
        while snapshots.changed().await.is_ok() {
            let snapshot = snapshots.borrow_and_update().clone();
            match snapshot {
                Some(snapshot) => self.handle_one(&snapshot, &mut state).await,
                None => state.expired.clear(),
            }
        }
    }

    async fn handle_one(&self, snapshot: &HeartbeatSnapshot, state: &mut RecoveryState) {
        let reply = &snapshot.reply;
        self.warn_of_unknown_classes(reply, state);
        self.reclaim_unknown(snapshot).await;
        if !reply.lingering.is_empty() {
            warn_on_error(self.store.cancel(&reply.lingering).await.map(drop));
        }
        self.recover_dead_instances(reply, state).await;
        if reply.tasks_suspended {
            self.resume_missed(state).await;
        }
    }

    /// Suspended tasks that an engine could not resume before it died: some with every
    /// heartbeat, in the order of their ids.
    async fn resume_missed(&self, state: &mut RecoveryState) {
        let after = state.suspended_after.unwrap_or(TaskId(0));
        match self.store.resume_missed(after, SUSPENDED_PAGE).await {
            Ok(last) => state.suspended_after = last,
            Err(error) => warn_on_error(Err(error)),
        }
    }

    /// A claim is unknown only if it was unknown before and after the heartbeat: in
    /// between it may have been requested, or have finished.
    async fn reclaim_unknown(&self, snapshot: &HeartbeatSnapshot) {
        let known = self.claims.known();
        let is_unknown = |id: &&ClaimId| !known.contains(id) && !snapshot.known.contains(id);
        let claims = snapshot.reply.claims.iter();
        let unknown: Vec<ClaimId> = claims.filter(is_unknown).copied().collect();
        if unknown.is_empty() {
            return;
        }
        let reclaimed = self.store.reclaim(Reclaim::Unknown(self.instance, unknown)).await;
        warn_on_error(reclaimed.map(|tasks| {
            for task in tasks {
                tracing::warn!("{} was claimed, but the reply was lost; it waits again", task.id);
            }
        }));
    }

    /// A lease counts as expired once this engine has seen it expired for longer
    /// than the time between two heartbeats. After an outage of the database, or
    /// when its clock was set forward, all leases are expired, and each engine needs
    /// a heartbeat to renew its own.
    async fn recover_dead_instances(&self, reply: &HeartbeatReply, state: &mut RecoveryState) {
        state.expired.retain(|id, _| reply.expired.contains(id));
        for id in &reply.expired {
            state.expired.entry(*id).or_insert_with(Instant::now);
        }
        let long_enough = |since: &Instant| since.elapsed() >= self.every.mul_f64(1.5);
        let dead = state.expired.iter().filter(|(_, since)| long_enough(since));
        let dead: Vec<InstanceId> = dead.map(|(id, _)| *id).chain(reply.orphaned.clone()).collect();
        if dead.is_empty() {
            return;
        }
        let instances = match self.store.instances(None).await {
            Ok(instances) => instances,
            Err(error) => return warn_on_error(Err(error)),
        };
        for instance in instances.iter().filter(|instance| dead.contains(&instance.id)) {
            if self.recovery == Recovery::Auto {
                warn_on_error(recover(&*self.store, instance).await);
            } else if instance.held > 0 && state.warned_dead.insert(instance.id) {
                tracing::warn!(
                    "engine {0} (process {1} on {2}) is dead and holds {3}; recover them with `task-engine recover {0}`",
                    instance.name,
                    instance.pid,
                    instance.host,
                    count(usize::try_from(instance.held).unwrap_or(0), "task")
                );
            }
        }
    }

    fn warn_of_unknown_classes(&self, reply: &HeartbeatReply, state: &mut RecoveryState) {
        for class in &reply.waiting_classes {
            if !self.classes.contains(class) && state.warned_classes.insert(class.clone()) {
                tracing::warn!(
                    "tasks of class {class:?} wait, and this engine has no handler for it; they are left to other engines; see `task-engine why ID`"
                );
            }
        }
    }
}

/// Smaller differences are normal.
const SKEW_MAX: SignedDuration = SignedDuration::from_secs(5);

/// A warning if the clock of this machine differs from the database's, which was
/// read between the two local times.
fn skew_warning(theirs: Timestamp, before: Timestamp, after: Timestamp) -> Option<String> {
    let (ahead, behind) = (before.duration_since(theirs), theirs.duration_since(after));
    let (off, how) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    (off > SKEW_MAX).then(|| {
        format!(
            "the clock of this machine is {} {how} the database's; tasks use the database's, so times in this log differ from those in the history; synchronize both by NTP",
            span(off.unsigned_abs())
        )
    })
}

/// The reply to a heartbeat, and the claims that were known before it was sent.
#[derive(Clone)]
struct HeartbeatSnapshot {
    reply: HeartbeatReply,
    known: HashSet<ClaimId>,
}

/// What the engine remembers between heartbeats.
#[derive(Default)]
struct RecoveryState {
    /// Instances with an expired lease, and since when this engine has seen it.
    expired: HashMap<InstanceId, Instant>,
    warned_dead: HashSet<InstanceId>,
    warned_classes: HashSet<String>,
    /// Where the search for suspended tasks continues.
    suspended_after: Option<TaskId>,
}

/// Everything is tried again with the next heartbeat.
fn warn_on_error(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!("recovery failed, next try with the next heartbeat: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_skew_is_reported() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap();
        // Asked at 0, answered at 3.
        for (theirs, expected) in [
            (-6, Some("6 s ahead of")),
            (-5, None),
            (0, None),
            (3, None),
            (8, None),
            (9, Some("6 s behind")),
            (3603, Some("1 h behind")),
        ] {
            let warning = skew_warning(at(theirs), at(0), at(3));
            let found = expected.is_none_or(|part| warning.as_ref().unwrap().contains(part));
            assert!(found && warning.is_some() == expected.is_some(), "{theirs}: {warning:?}");
        }
    }
}
