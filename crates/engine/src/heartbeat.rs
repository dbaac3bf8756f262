//! The heartbeat: says that this engine is alive, learns what it should know,
//! and recovers what others have left.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::claim::ClaimId;
use task_engine_core::display::{count, span};
use task_engine_core::instance::{InstanceId, Recovery};
use task_engine_core::recovery::Reclaim;
use task_engine_store::contract::HeartbeatReply;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::watch;

use crate::admission;
use crate::dispatch::End;
use crate::figures::Figures;
use crate::running::{Claims, Running};
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
    pub(crate) figures: Arc<Figures>,
}

/// When the store does not answer, it is asked again sooner than usual.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Heartbeat {
    /// Beats until the engine's life is over on record, or its store cannot be
    /// used any longer. What is learnt is acted upon beside it: nothing that is
    /// done about others may hold up a beat.
    pub(crate) async fn run(self) -> End {
        let (pulses, to_act) = tokio::sync::watch::channel(None);
        tokio::select! {
            end = self.beat(&pulses) => end,
            () = self.act(to_act) => End::Broken,
        }
    }

    async fn beat(&self, pulses: &watch::Sender<Option<Beat>>) -> End {
        let (mut told_of_skew, mut away) = (false, false);
        loop {
            let known = self.claims.known();
            let (asked, asked_at) = (Instant::now(), Timestamp::now());
            let answer = self.store.heartbeat(self.instance).await;
            crate::measure::heartbeat(answer.is_ok(), asked.elapsed());
            let wait = match answer {
                Ok(pulse) if !pulse.alive => return End::InstanceOver,
                Ok(pulse) => {
                    if std::mem::take(&mut away) {
                        tracing::info!("the database answers again");
                    }
                    self.figures.learn(asked, Instant::now(), pulse.now);
                    if !told_of_skew
                        && let Some(words) = skew(pulse.now, asked_at, Timestamp::now())
                    {
                        tracing::warn!("{words}");
                        told_of_skew = true;
                    }
                    for id in self.running.want_cancelled(&pulse.cancel) {
                        tracing::info!("{id}: somebody asks for it to be cancelled");
                    }
                    if let Some(wait) = pulse.next_schedule_in {
                        self.hints.schedule_due_in(wait);
                    }
                    pulses.send_replace(Some(Beat { pulse, known }));
                    self.every
                }
                Err(StoreError::MustReopen(why)) => {
                    tracing::error!("the engine ends, because it cannot use its store: {why}");
                    return End::StoreUnusable;
                }
                Err(error) => {
                    away = true;
                    let wait = AFTER_ERROR.min(self.every);
                    tracing::warn!("no heartbeat, next try in {}: {error}", span(wait));
                    // Whoever could not see the others cannot say that they are dead.
                    pulses.send_replace(None);
                    wait
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

    /// Acts on the newest pulse; those that came while it was busy are skipped.
    async fn act(&self, mut pulses: watch::Receiver<Option<Beat>>) {
        let mut seen = Seen::default();
        while pulses.changed().await.is_ok() {
            let beat = pulses.borrow_and_update().clone();
            match beat {
                Some(beat) => self.act_on(&beat, &mut seen).await,
                None => seen.expired.clear(),
            }
        }
    }

    async fn act_on(&self, beat: &Beat, seen: &mut Seen) {
        let pulse = &beat.pulse;
        self.warn_of_unknown_classes(pulse, seen);
        self.reclaim_unknown(beat).await;
        if !pulse.lingering.is_empty() {
            report(self.store.cancel(&pulse.lingering).await.map(drop));
        }
        self.recover_dead_instances(pulse, seen).await;
    }

    /// A claim is unknown only if it was so before and after the question: in
    /// between it may have been asked for, or have come to its end.
    async fn reclaim_unknown(&self, beat: &Beat) {
        let known = self.claims.known();
        let is_unknown = |id: &&ClaimId| !known.contains(id) && !beat.known.contains(id);
        let unknown: Vec<ClaimId> = beat.pulse.claims.iter().filter(is_unknown).copied().collect();
        if unknown.is_empty() {
            return;
        }
        let taken = self.store.reclaim(Reclaim::Unknown(self.instance, unknown)).await;
        report(taken.map(|tasks| {
            for task in tasks {
                tracing::warn!("{} was claimed but its answer was lost; it waits again", task.id);
            }
        }));
    }

    /// Expired leases count when they have been seen for longer than the time
    /// between two beats: after an outage of the database, or when its clock was
    /// set forward, everybody's lease has run out, and each needs a beat to be
    /// heard of again.
    async fn recover_dead_instances(&self, pulse: &HeartbeatReply, seen: &mut Seen) {
        seen.expired.retain(|id, _| pulse.expired.contains(id));
        for id in &pulse.expired {
            seen.expired.entry(*id).or_insert_with(Instant::now);
        }
        let long_enough = |since: &Instant| since.elapsed() >= self.every.mul_f64(1.5);
        let dead = seen.expired.iter().filter(|(_, since)| long_enough(since));
        let dead: Vec<InstanceId> = dead.map(|(id, _)| *id).chain(pulse.orphaned.clone()).collect();
        if dead.is_empty() {
            return;
        }
        let lives = match self.store.instances(None).await {
            Ok(lives) => lives,
            Err(error) => return report(Err(error)),
        };
        for life in lives.iter().filter(|life| dead.contains(&life.id)) {
            if self.recovery == Recovery::Auto {
                report(admission::recover(&*self.store, life).await);
            } else if life.held > 0 && seen.warned_dead.insert(life.id) {
                tracing::warn!(
                    "engine {0} (process {1} on {2}) is dead and holds {3}; recover them with `task-engine recover {0}`",
                    life.name,
                    life.pid,
                    life.host,
                    count(usize::try_from(life.held).unwrap_or(0), "task")
                );
            }
        }
    }

    fn warn_of_unknown_classes(&self, pulse: &HeartbeatReply, seen: &mut Seen) {
        for class in &pulse.waiting_classes {
            if !self.classes.contains(class) && seen.warned_classes.insert(class.clone()) {
                tracing::warn!(
                    "tasks of class {class:?} wait, and this engine does not know that class; they are left to others; `task-engine why ID` says who knows what"
                );
            }
        }
    }
}

/// Clocks that differ by less are the usual case.
const SKEW_MAX: SignedDuration = SignedDuration::from_secs(5);

/// What to say if the clock of this machine is off by the database's, which was
/// asked between two times of this one.
fn skew(theirs: Timestamp, before: Timestamp, after: Timestamp) -> Option<String> {
    let (ahead, behind) = (before.duration_since(theirs), theirs.duration_since(after));
    let (off, how) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    (off > SKEW_MAX).then(|| {
        format!(
            "the clock of this machine is {} {how} the database's: tasks keep to the database's, so times in this log differ from those in the history; set both by NTP",
            span(off.unsigned_abs())
        )
    })
}

/// A pulse, and the claims that were known before it was asked for.
#[derive(Clone)]
struct Beat {
    pulse: HeartbeatReply,
    known: HashSet<ClaimId>,
}

#[derive(Default)]
struct Seen {
    /// Lives whose lease has run out, since when.
    expired: HashMap<InstanceId, Instant>,
    warned_dead: HashSet<InstanceId>,
    warned_classes: HashSet<String>,
}

fn report(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!("recovery will be tried again with the next heartbeat: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_told() {
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
            let words = skew(at(theirs), at(0), at(3));
            let found = expected.is_none_or(|part| words.as_ref().unwrap().contains(part));
            assert!(found && words.is_some() == expected.is_some(), "{theirs}: {words:?}");
        }
    }
}
