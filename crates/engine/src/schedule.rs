//! Regular tasks: an exact timer to the next slot, and the firing of it.
//!
//! Every engine does this, whatever classes it knows, and none of them is the
//! leader: all wake at a slot, one of them fires it. The timer is set by the
//! last look at what is due. It is set again when somebody changes a schedule
//! (a wake-up, which may get lost), and when a heartbeat, which comes anyway,
//! tells of a slot before the time it is set to (which cannot). So while nothing
//! is due, nothing is asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::display::span;
use task_engine_core::schedule::Schedule;
use task_engine_core::schedule::decision::firing;
use task_engine_core::schedule::history::SkippedSlots;
use task_engine_core::schedule::row::{
    DueSchedule, DueSchedules, Firing, ScheduleState, ScheduleWrite,
};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::schedules::{Done, ScheduleError, Schedules};

use crate::engine::EngineError;
use crate::panic::Guarded;
use crate::stop::{Phase, StopWatch};
use crate::wake_up::{Backoff, Hints};

/// How many schedules are fired in one transaction, and how many slots.
const BATCH: u32 = 100;
const SLOTS_MAX: usize = 2000;
/// How often to look whether a task has ended that a slot waits for.
const BLOCKED: Duration = Duration::from_secs(1);
/// How long to leave schedules alone that somebody else holds: mostly an engine
/// that fires them, for a moment, but it may be a forgotten transaction.
const CONTENDED_MIN: Duration = Duration::from_millis(5);
const CONTENDED_MAX: Duration = Duration::from_secs(1);
/// Many changes in a row are one reason to look.
const BETWEEN_HINTS: Duration = Duration::from_millis(20);

/// Stores what the application's code says about schedules.
pub(crate) async fn declare(store: &dyn Store, declared: &[Schedule]) -> Result<(), EngineError> {
    for schedule in declared {
        match Schedules::of(store).declare(schedule).await {
            Ok(Done::Changed) => {
                tracing::info!("schedule {:?} is stored as declared", schedule.name());
            }
            Ok(Done::Unchanged) => {}
            Err(ScheduleError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(EngineError::Setting(error.to_string())),
        }
    }
    Ok(())
}

/// Fires what is due by now, and ends.
#[cfg(feature = "testing")]
pub(crate) async fn fire_due(store: &Arc<dyn Store>) -> Result<(), StoreError> {
    let stop = crate::stop::StopHandle::new().watch();
    let scheduler = Scheduler::new(store.clone(), Arc::new(Hints::new(0)), stop);
    loop {
        let due = store.due_schedules(BATCH).await?;
        if due.rows.is_empty() || !scheduler.fire(&due).await? {
            return Ok(());
        }
    }
}

/// Fires schedules until the engine stops.
pub(crate) struct Scheduler {
    store: Arc<dyn Store>,
    hints: Arc<Hints>,
    stop: StopWatch,
    /// How long others' schedules were left alone the last time.
    contended: Duration,
}

impl Scheduler {
    pub(crate) fn new(store: Arc<dyn Store>, hints: Arc<Hints>, stop: StopWatch) -> Self {
        Self { store, hints, stop, contended: Duration::ZERO }
    }

    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new();
        while self.stop.phase() == Phase::Running {
            self.hints.schedule().take();
            // Times are counted from when the question is sent: a timer that is
            // early by the way of an answer asks once more, one that is late is
            // late.
            let asked = Instant::now();
            // A panic must not be the silent end of all schedules.
            let why = match Guarded::new(Box::pin(self.turn(asked))).await {
                Ok(Ok(next)) => {
                    backoff = Backoff::new();
                    self.wait_for_hint(asked, next).await;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(panicked) => panicked.to_string(),
            };
            let wait = backoff.next();
            tracing::warn!("no schedule can be fired, next try in {}: {why}", span(wait));
            self.sleep(wait).await;
        }
    }

    /// One look, and what there is to do about it. Returns when to look again,
    /// if no hint comes first.
    async fn turn(&mut self, asked: Instant) -> Result<Option<Instant>, StoreError> {
        // A crowd that somebody holds for long must not hide the others.
        let limit = if self.contended == CONTENDED_MAX { BATCH * 100 } else { BATCH };
        let due = self.store.due_schedules(limit).await?;
        let mut contended = None;
        if due.rows.is_empty() {
            self.contended = Duration::ZERO;
        } else if self.fire(&due).await? {
            self.contended = Duration::ZERO;
            return Ok(Some(asked));
        } else {
            contended = Some(Instant::now() + self.longer());
        }
        let next = due.next_in.and_then(|wait| asked.checked_add(wait));
        let blocked = due.blocked.then(|| Instant::now() + BLOCKED);
        Ok([next, blocked, contended].into_iter().flatten().min())
    }

    /// Twice as long as before, with a part left to chance.
    fn longer(&mut self) -> Duration {
        self.contended = (self.contended * 2).clamp(CONTENDED_MIN, CONTENDED_MAX);
        self.contended.mul_f64(0.5 + 0.5 * fastrand::f64())
    }

    /// Fires what is due; false if others were faster with all of it. What
    /// cannot be fired is marked, and holds up nobody else.
    async fn fire(&self, due: &DueSchedules) -> Result<bool, StoreError> {
        let (mut firings, mut broken) = (Vec::with_capacity(due.rows.len()), Vec::new());
        let mut slots = 0;
        for schedule in &due.rows {
            match decided(schedule, due.now) {
                Ok(firing) => {
                    slots += firing.slots.len();
                    firings.push((schedule, firing));
                }
                Err(why) => broken.push((schedule, why)),
            }
            // The rest is due still when this is done.
            if slots > SLOTS_MAX {
                break;
            }
        }
        let mut done = self.fire_all(&firings).await?;
        // Last, because it waits for whoever holds one of them.
        for (schedule, why) in broken {
            self.mark(schedule, &why).await?;
            done = true;
        }
        Ok(done)
    }

    async fn fire_all(&self, firings: &[(&DueSchedule, Firing)]) -> Result<bool, StoreError> {
        let all: Vec<Firing> = firings.iter().map(|(_, firing)| firing.clone()).collect();
        if all.is_empty() {
            return Ok(false);
        }
        match self.store.fire_schedules(&all).await {
            Ok(fired) => {
                for ((schedule, firing), fired) in firings.iter().zip(&fired) {
                    if *fired {
                        report(schedule, firing);
                    }
                }
                Ok(fired.contains(&true))
            }
            Err(StoreError::InvalidData(_) | StoreError::Refused(_)) => {
                self.fire_one_by_one(firings).await?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// One of them cannot be stored: the others can. Only if its data is at fault
    /// is it taken out of service; whatever else is refused is tried again.
    async fn fire_one_by_one(&self, firings: &[(&DueSchedule, Firing)]) -> Result<(), StoreError> {
        let mut refused = Ok(());
        for (schedule, firing) in firings {
            match self.store.fire_schedules(std::slice::from_ref(firing)).await {
                Ok(fired) if fired.contains(&true) => report(schedule, firing),
                Ok(_) => {}
                Err(StoreError::InvalidData(why)) => self.mark(schedule, &why).await?,
                Err(error @ StoreError::Refused(_)) => refused = Err(error),
                Err(error) => return Err(error),
            }
        }
        refused
    }

    /// Takes a schedule that cannot fire out of service, and says why.
    async fn mark(&self, schedule: &DueSchedule, why: &str) -> Result<(), StoreError> {
        let row = &schedule.row;
        let write = ScheduleWrite {
            name: row.name.clone(),
            expected: Some(row.version),
            state: ScheduleState {
                error: Some(why.to_owned()),
                next_at: None,
                ..row.state.clone()
            },
        };
        if self.store.write_schedule(&write).await? {
            tracing::error!(
                "schedule {:?} cannot fire, and is out of service until somebody changes or resumes it: {why}",
                row.name
            );
        }
        Ok(())
    }

    async fn wait_for_hint(&mut self, asked: Instant, until: Option<Instant>) {
        self.hints.expect_schedule(until);
        let hints = self.hints.clone();
        let timer = async {
            match until {
                Some(time) => tokio::time::sleep_until(time.into()).await,
                None => std::future::pending().await,
            }
        };
        let hint = async {
            hints.schedule().wait().await;
            tokio::time::sleep_until((asked + BETWEEN_HINTS).into()).await;
        };
        tokio::select! {
            () = timer => {}
            () = hint => {}
            () = self.stop.reached(Phase::Draining) => {}
        }
    }

    async fn sleep(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.stop.reached(Phase::Draining) => {}
        }
    }
}

/// What to do about a schedule that is due, or why nothing can be done.
/// Whatever a calendar may do in a far year, one schedule is not all of them.
fn decided(schedule: &DueSchedule, now: Timestamp) -> Result<Firing, String> {
    match catch_unwind(AssertUnwindSafe(|| firing(schedule, now))) {
        Ok(firing) => firing.map_err(|why| why.to_string()),
        Err(_) => Err("its times cannot be computed, which is a bug of Task Engine".to_owned()),
    }
}

fn report(schedule: &DueSchedule, firing: &Firing) {
    for (slot, _) in &firing.slots {
        tracing::debug!("schedule {:?} fired its slot {slot}", schedule.row.name);
    }
    if let Some(SkippedSlots { kind, first, last, slots }) = firing.skipped {
        let name = &schedule.row.name;
        tracing::info!(%kind, slots, "schedule {name:?} skipped slots from {first} to {last}");
    }
}
