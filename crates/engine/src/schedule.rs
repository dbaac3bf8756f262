//! The scheduler fires the slots of schedules, with an exact timer to the next slot.
//!
//! Every engine has one, whatever its classes, and there is no leader: all wake at a
//! slot, and one of them fires it. The timer is set after each scan of due schedules.
//! It is set again when a schedule changes (by a wake-up, which may get lost), and
//! when a heartbeat reports an earlier slot (which is not lost). So an idle scheduler
//! sends no queries.

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
use task_engine_store::schedules::{ChangeOutcome, ScheduleError, Schedules};

use crate::backoff::Backoff;
use crate::engine_error::EngineError;
use crate::panic::Guarded;
use crate::stop::{Phase, StopSignal};
use crate::wake_up::WakeUps;

/// How many schedules are fired in one transaction, and how many slots.
const BATCH: u32 = 100;
const SLOTS_MAX: usize = 2000;
/// How often to check whether a task has ended that a slot waits for.
const BLOCKED: Duration = Duration::from_secs(1);
/// How long to wait for schedules that another transaction has locked. An engine that
/// fires them holds them for a moment, a forgotten transaction for hours.
const CONTENDED_MIN: Duration = Duration::from_millis(5);
const CONTENDED_MAX: Duration = Duration::from_secs(1);
/// Many changes in a row cause one scan.
const BETWEEN_WAKE_UPS: Duration = Duration::from_millis(20);

/// Stores the schedules that the application declares.
pub(crate) async fn declare(store: &dyn Store, declared: &[Schedule]) -> Result<(), EngineError> {
    for schedule in declared {
        match Schedules::of(store).declare(schedule).await {
            Ok(ChangeOutcome::Changed) => {
                tracing::info!("stored schedule {:?} as declared", schedule.name());
            }
            Ok(ChangeOutcome::Unchanged) => {}
            Err(ScheduleError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(EngineError::Setting(error.to_string())),
        }
    }
    Ok(())
}

/// Fires the slots that are due now.
#[cfg(feature = "testing")]
pub(crate) async fn fire_due(store: &Arc<dyn Store>) -> Result<(), StoreError> {
    let stop = crate::stop::StopHandle::new().watch();
    let scheduler = Scheduler::new(store.clone(), Arc::new(WakeUps::new(0)), stop);
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
    wake_ups: Arc<WakeUps>,
    stop: StopSignal,
    /// The last wait for locked schedules.
    contended: Duration,
}

impl Scheduler {
    pub(crate) fn new(store: Arc<dyn Store>, wake_ups: Arc<WakeUps>, stop: StopSignal) -> Self {
        Self { store, wake_ups, stop, contended: Duration::ZERO }
    }

    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new();
        while self.stop.phase() == Phase::Running {
            self.wake_ups.schedule().take();
            // Times count from when the query is sent: a timer that is early by the
            // round trip scans again; a late timer would fire late.
            let asked = Instant::now();
            // A panic must not end the scheduler silently.
            let why = match Guarded::new(Box::pin(self.turn(asked))).await {
                Ok(Ok(next)) => {
                    backoff = Backoff::new();
                    self.wait(asked, next).await;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(panicked) => panicked.to_string(),
            };
            let wait = backoff.next();
            tracing::warn!("cannot fire schedules, next try in {}: {why}", span(wait));
            self.sleep(wait).await;
        }
    }

    /// Scans and fires due schedules. Returns when to scan again, if no wake-up comes
    /// first.
    async fn turn(&mut self, asked: Instant) -> Result<Option<Instant>, StoreError> {
        // Many schedules that are locked for long must not hide the others.
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

    /// Twice as long as before, partly random.
    fn longer(&mut self) -> Duration {
        self.contended = (self.contended * 2).clamp(CONTENDED_MIN, CONTENDED_MAX);
        self.contended.mul_f64(0.5 + 0.5 * fastrand::f64())
    }

    /// Fires due schedules; false if other engines have fired all of them. A schedule
    /// that cannot fire is marked, so that it does not delay others.
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
            // The rest is fired by the next scan.
            if slots > SLOTS_MAX {
                break;
            }
        }
        let mut done = self.fire_all(&firings).await?;
        // Last, because it waits for locks on them.
        for (schedule, why) in broken {
            self.disable_with_error(schedule, &why).await?;
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

    /// Fires each alone, because the store refused one of them. A schedule with
    /// invalid data is disabled; other refusals are retried.
    async fn fire_one_by_one(&self, firings: &[(&DueSchedule, Firing)]) -> Result<(), StoreError> {
        let mut refused = Ok(());
        for (schedule, firing) in firings {
            match self.store.fire_schedules(std::slice::from_ref(firing)).await {
                Ok(fired) if fired.contains(&true) => report(schedule, firing),
                Ok(_) => {}
                Err(StoreError::InvalidData(why)) => {
                    self.disable_with_error(schedule, &why).await?;
                }
                Err(error @ StoreError::Refused(_)) => refused = Err(error),
                Err(error) => return Err(error),
            }
        }
        refused
    }

    /// Disables a schedule that cannot fire, and stores the reason.
    async fn disable_with_error(
        &self,
        schedule: &DueSchedule,
        why: &str,
    ) -> Result<(), StoreError> {
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
                "schedule {:?} cannot fire, and is disabled until it is changed or resumed: {why}",
                row.name
            );
        }
        Ok(())
    }

    async fn wait(&mut self, asked: Instant, until: Option<Instant>) {
        self.wake_ups.expect_schedule(until);
        let wake_ups = self.wake_ups.clone();
        let timer = async {
            match until {
                Some(time) => tokio::time::sleep_until(time.into()).await,
                None => std::future::pending().await,
            }
        };
        let wake_up = async {
            wake_ups.schedule().wait().await;
            tokio::time::sleep_until((asked + BETWEEN_WAKE_UPS).into()).await;
        };
        tokio::select! {
            () = timer => {}
            () = wake_up => {}
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

/// What to fire for a due schedule, or why it cannot fire. A panic in the calendar
/// must not affect other schedules.
fn decided(schedule: &DueSchedule, now: Timestamp) -> Result<Firing, String> {
    match catch_unwind(AssertUnwindSafe(|| firing(schedule, now))) {
        Ok(firing) => firing.map_err(|why| why.to_string()),
        Err(_) => Err("its times cannot be computed; this is a bug of Task Engine".to_owned()),
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
