//! Counts recorded endings per minute and class, for charts. It costs a few
//! additions per ending and one lock per batch. New counts are sent after one
//! second, and then every five seconds. Recording never waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::rollup::{
    AttemptKind, CLASSES_MAX, ClassMinute, OTHER_CLASSES, RollupCounts,
};
use tokio::sync::Notify;

/// How soon counts are sent after the first new ending, so that `stats` shows it.
const FIRST_SEND: Duration = Duration::from_secs(1);
/// The least time from one send to the next.
const EVERY: Duration = Duration::from_secs(5);
/// How long a stopping engine waits for the last send.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// How many rows of past minutes are kept while the store is unreachable: ten
/// minutes of an engine with many classes.
const PAST_ROWS_MAX: usize = 10 * (CLASSES_MAX + 1);
/// How many endings are kept until the database's time is known.
const EARLY_MAX: usize = 10_000;
const MINUTE_US: i64 = 60_000_000;
/// A slower reply tells the time too inexactly.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// The number of a class among those of its engine.
pub(crate) type ClassNumber = usize;

/// What the counts need to know about an ending, besides what is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndingLabels {
    /// Whether the parent of the task waits for its end.
    pub(crate) awaited: bool,
    /// Whether the task has limits.
    pub(crate) limited: bool,
    pub(crate) class: ClassNumber,
    /// When its task became due.
    pub(crate) due_at: Timestamp,
}

/// The counts of one session.
pub(crate) struct Rollups {
    store: Arc<dyn Store>,
    instance: InstanceId,
    /// Their names, by number.
    classes: Vec<Arc<str>>,
    state: Mutex<RollupState>,
    changed: Notify,
    /// Held while sending; whether the last send failed.
    sending: tokio::sync::Mutex<bool>,
}

impl Rollups {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        instance: InstanceId,
        classes: Vec<Arc<str>>,
    ) -> Arc<Self> {
        let state = Mutex::new(RollupState::new(classes.len()));
        let (changed, sending) = (Notify::new(), tokio::sync::Mutex::new(false));
        Arc::new(Self { store, instance, classes, state, changed, sending })
    }

    /// The database's clock was `time` at a moment between these two.
    pub(crate) fn set_clock(&self, asked: Instant, answered: Instant, time: Timestamp) {
        let took = answered.saturating_duration_since(asked);
        let mut state = self.state();
        if state.clock.is_none() || took <= ROUND_TRIP_MAX {
            let clock = DatabaseClock { at: asked + took / 2, time_us: time.as_microsecond() };
            state.set_clock(clock, answered, &self.classes);
        }
    }

    /// Counts recorded endings, except for `others`: not recorded, or ended before
    /// by recovery.
    pub(crate) fn count(
        &self,
        endings: &[AttemptRecord],
        labels: &[EndingLabels],
        others: &[AttemptId],
    ) {
        let mut state = self.state();
        state.begin_minute_of(Instant::now(), &self.classes);
        for (ending, labels) in endings.iter().zip(labels) {
            if others.is_empty() || !others.contains(&ending.id) {
                state.add(
                    AttemptKind::of(ending),
                    ending.ran.map(|ran| (ran.lasted, ran.ended)),
                    *labels,
                );
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Sends new counts until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(FIRST_SEND).await;
            self.send().await;
            tokio::time::sleep(EVERY - FIRST_SEND).await;
        }
    }

    /// Sends the last counts when the engine stops.
    pub(crate) async fn flush_at_end(&self) {
        if tokio::time::timeout(LAST_SEND_TIMEOUT, self.send()).await.is_err() {
            tracing::debug!("the last rollups could not be sent in time");
        }
    }

    async fn send(&self) {
        let mut has_failed = self.sending.lock().await;
        let (past, open) = self.state().take(&self.classes);
        let rows: Vec<_> = past.iter().chain(open.iter().map(|(_, row)| row)).cloned().collect();
        if rows.is_empty() {
            return;
        }
        match self.store.write_rollups(self.instance, &rows).await {
            Ok(()) => {
                *has_failed = false;
                self.state().sent(&open);
            }
            Err(error) => {
                if *has_failed {
                    tracing::debug!("rollups still cannot be sent: {error}");
                } else {
                    tracing::warn!("rollups cannot be sent, so charts may miss some: {error}");
                }
                *has_failed = true;
                self.state().put_back(past);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, RollupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The database's clock at a moment of the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct DatabaseClock {
    at: Instant,
    time_us: i64,
}

impl DatabaseClock {
    fn time_us(self, moment: Instant) -> i64 {
        let us = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        match moment.checked_duration_since(self.at) {
            Some(after) => self.time_us.saturating_add(us(after)),
            None => self.time_us.saturating_sub(us(self.at - moment)),
        }
    }
}

/// How long an attempt took, and when it ended.
type RanUntil = (Duration, Instant);

struct RollupState {
    clock: Option<DatabaseClock>,
    early: Vec<(AttemptKind, Option<RanUntil>, EndingLabels)>,
    /// Since 1970, by the database's clock.
    minute: i64,
    generation: i32,
    /// Of this minute, by class; the last entry is for all other classes.
    open: Vec<OpenMinute>,
    /// How many classes this minute has.
    used: usize,
    /// Of past minutes.
    past: Vec<ClassMinute>,
}

#[derive(Debug, Clone, Copy, Default)]
struct OpenMinute {
    counts: RollupCounts,
    /// How many endings have been sent to the store.
    sent: u64,
}

impl RollupState {
    fn new(classes: usize) -> Self {
        Self {
            clock: None,
            early: Vec::new(),
            minute: 0,
            generation: 0,
            open: vec![OpenMinute::default(); classes + 1],
            used: 0,
            past: Vec::new(),
        }
    }

    fn set_clock(&mut self, clock: DatabaseClock, now: Instant, classes: &[Arc<str>]) {
        self.clock = Some(clock);
        self.begin_minute_of(now, classes);
        for (kind, ran, labels) in std::mem::take(&mut self.early) {
            self.add(kind, ran, labels);
        }
    }

    /// Begins another minute, if the current one is over.
    fn begin_minute_of(&mut self, now: Instant, classes: &[Arc<str>]) {
        let Some(clock) = self.clock else { return };
        let minute = clock.time_us(now).div_euclid(MINUTE_US);
        // The clock is set with each heartbeat, and not exactly: it may seem to go
        // back by up to a minute.
        if (self.minute - 1..=self.minute).contains(&minute) {
            return;
        }
        let rows = self.rows(classes);
        self.keep(rows.into_iter().map(|(_, row)| row));
        self.open.fill(OpenMinute::default());
        self.used = 0;
        if minute < self.minute {
            // The stored rows of this minute must not be replaced.
            self.generation += 1;
        }
        self.minute = minute;
    }

    fn add(&mut self, kind: AttemptKind, ran: Option<RanUntil>, labels: EndingLabels) {
        let Some(clock) = self.clock else {
            if self.early.len() < EARLY_MAX {
                self.early.push((kind, ran, labels));
            }
            return;
        };
        let ran = ran.map(|(lasted, ended)| {
            let begun = clock.time_us(ended.checked_sub(lasted).unwrap_or(ended));
            let waited = begun.saturating_sub(labels.due_at.as_microsecond());
            (lasted, Duration::from_micros(u64::try_from(waited).unwrap_or(0)))
        });
        let last = self.open.len() - 1;
        let mut place = labels.class.min(last);
        if self.open[place].counts.ended() == 0 && place != last {
            if self.used < CLASSES_MAX {
                self.used += 1;
            } else {
                place = last;
            }
        }
        self.open[place].counts.add(kind, ran);
    }

    /// The rows of this minute that have not been sent, with their places.
    fn rows(&self, classes: &[Arc<str>]) -> Vec<(usize, ClassMinute)> {
        let (minute, generation) = (self.minute, self.generation);
        let new = self.open.iter().enumerate().filter(|(_, open)| open.counts.ended() > open.sent);
        new.map(|(place, open)| {
            let class = classes.get(place).map_or(OTHER_CLASSES, |name| name).to_owned();
            (place, ClassMinute { minute, generation, class, counts: open.counts })
        })
        .collect()
    }

    /// Keeps rows of past minutes, up to a limit.
    fn keep(&mut self, rows: impl IntoIterator<Item = ClassMinute>) {
        self.past.extend(rows);
        let too_many = self.past.len().saturating_sub(PAST_ROWS_MAX);
        self.past.drain(..too_many);
    }

    /// The rows to send: of past minutes, and of this one.
    fn take(&mut self, classes: &[Arc<str>]) -> (Vec<ClassMinute>, Vec<(usize, ClassMinute)>) {
        self.begin_minute_of(Instant::now(), classes);
        (std::mem::take(&mut self.past), self.rows(classes))
    }

    fn put_back(&mut self, past: Vec<ClassMinute>) {
        let newer = std::mem::replace(&mut self.past, past);
        self.keep(newer);
    }

    fn sent(&mut self, rows: &[(usize, ClassMinute)]) {
        for (place, row) in rows {
            if (row.minute, row.generation) == (self.minute, self.generation) {
                self.open[*place].sent = row.counts.ended();
            }
        }
    }
}

#[cfg(test)]
mod tests;
