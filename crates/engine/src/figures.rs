//! Counts what the engine records, for charts: a few additions an ending, one
//! lock a batch, and a few rows every five seconds while there is something new, the
//! first of them after one.
//! It never holds anybody up; if the store does not take it, so be it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::attempt::{AttemptId, Ending};
use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::rollup::{CLASSES_MAX, ClassMinute, Counts, OTHER_CLASSES, Tally};
use tokio::sync::Notify;

/// How soon they are sent after something has ended: `stats` should know of it.
const SOON: Duration = Duration::from_secs(1);
/// How long it is from one sending to the next, at the least.
const EVERY: Duration = Duration::from_secs(5);
/// How long an engine that stops waits for it.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// Rows of minutes that are over are kept for a store that is away: ten minutes
/// of an engine with many classes.
const OVER_MAX: usize = 10 * (CLASSES_MAX + 1);
/// What ends before the database's time is known is kept until it is.
const EARLY_MAX: usize = 10_000;
const MINUTE_US: i64 = 60_000_000;
/// An answer that took longer says too little about the time.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// The place of a class among those of its engine.
pub(crate) type ClassNumber = usize;

/// What is to be known about an ending, beside what is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) class: ClassNumber,
    /// Since when its task could run.
    pub(crate) due_at: Timestamp,
}

pub(crate) struct Figures {
    store: Arc<dyn Store>,
    instance: InstanceId,
    /// Their names, by number.
    classes: Vec<Arc<str>>,
    counted: Mutex<Counted>,
    news: Notify,
    /// Held while they are sent; whether the store did not take them last time.
    sending: tokio::sync::Mutex<bool>,
}

impl Figures {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        instance: InstanceId,
        classes: Vec<Arc<str>>,
    ) -> Arc<Self> {
        let counted = Mutex::new(Counted::new(classes.len()));
        let (news, sending) = (Notify::new(), tokio::sync::Mutex::new(false));
        Arc::new(Self { store, instance, classes, counted, news, sending })
    }

    /// The database said that it was `time` between these two moments.
    pub(crate) fn learn(&self, asked: Instant, answered: Instant, time: Timestamp) {
        let took = answered.saturating_duration_since(asked);
        let mut counted = self.counted();
        if counted.clock.is_none() || took <= ROUND_TRIP_MAX {
            let clock = Clock { at: asked + took / 2, time_us: time.as_microsecond() };
            counted.learn(clock, answered, &self.classes);
        }
    }

    /// Counts endings that are on record, but for `others`, which are not, or
    /// had been ended by somebody else.
    pub(crate) fn count(&self, endings: &[Ending], about: &[About], others: &[AttemptId]) {
        let mut counted = self.counted();
        counted.turn_to(Instant::now(), &self.classes);
        for (ending, about) in endings.iter().zip(about) {
            if others.is_empty() || !others.contains(&ending.id) {
                counted.add(
                    Counts::of(ending),
                    ending.ran.map(|ran| (ran.lasted, ran.ended)),
                    *about,
                );
            }
        }
        drop(counted);
        self.news.notify_one();
    }

    /// Sends what is new, as long as there is an engine.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.news.notified().await;
            tokio::time::sleep(SOON).await;
            self.send().await;
            tokio::time::sleep(EVERY - SOON).await;
        }
    }

    /// Sends what is left, in a moment or not at all.
    pub(crate) async fn last(&self) {
        if tokio::time::timeout(LAST_TIMEOUT, self.send()).await.is_err() {
            tracing::debug!("the last figures could not be sent in time");
        }
    }

    async fn send(&self) {
        let mut has_failed = self.sending.lock().await;
        let (over, open) = self.counted().take(&self.classes);
        let rows: Vec<_> = over.iter().chain(open.iter().map(|(_, row)| row)).cloned().collect();
        if rows.is_empty() {
            return;
        }
        match self.store.write_rollups(self.instance, &rows).await {
            Ok(()) => {
                *has_failed = false;
                self.counted().sent(&open);
            }
            Err(error) => {
                if *has_failed {
                    tracing::debug!("figures for charts are still not taken: {error}");
                } else {
                    tracing::warn!("charts will miss some figures, work goes on: {error}");
                }
                *has_failed = true;
                self.counted().put_back(over);
            }
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The database's clock, as a moment on the steady one.
#[derive(Debug, Clone, Copy)]
struct Clock {
    at: Instant,
    time_us: i64,
}

impl Clock {
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

struct Counted {
    clock: Option<Clock>,
    early: Vec<(Counts, Option<RanUntil>, About)>,
    /// Since 1970, by the database's clock.
    minute: i64,
    generation: i32,
    /// Of this minute, by class; behind the last, all others.
    open: Vec<Open>,
    /// How many classes this minute has.
    used: usize,
    /// Of minutes that are over.
    over: Vec<ClassMinute>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Open {
    tally: Tally,
    /// How many endings the store knows of.
    sent: u64,
}

impl Counted {
    fn new(classes: usize) -> Self {
        Self {
            clock: None,
            early: Vec::new(),
            minute: 0,
            generation: 0,
            open: vec![Open::default(); classes + 1],
            used: 0,
            over: Vec::new(),
        }
    }

    fn learn(&mut self, clock: Clock, now: Instant, classes: &[Arc<str>]) {
        self.clock = Some(clock);
        self.turn_to(now, classes);
        for (counts, ran, about) in std::mem::take(&mut self.early) {
            self.add(counts, ran, about);
        }
    }

    /// Begins another minute, if it is time to.
    fn turn_to(&mut self, now: Instant, classes: &[Arc<str>]) {
        let Some(clock) = self.clock else { return };
        let minute = clock.time_us(now).div_euclid(MINUTE_US);
        // The clock is learnt anew with each heartbeat, never to the microsecond:
        // by a minute it may seem to go back.
        if (self.minute - 1..=self.minute).contains(&minute) {
            return;
        }
        let rows = self.rows(classes);
        self.keep(rows.into_iter().map(|(_, row)| row));
        self.open.fill(Open::default());
        self.used = 0;
        if minute < self.minute {
            // What the store has of this minute is not to be replaced.
            self.generation += 1;
        }
        self.minute = minute;
    }

    fn add(&mut self, counts: Counts, ran: Option<RanUntil>, about: About) {
        let Some(clock) = self.clock else {
            if self.early.len() < EARLY_MAX {
                self.early.push((counts, ran, about));
            }
            return;
        };
        let ran = ran.map(|(lasted, ended)| {
            let begun = clock.time_us(ended.checked_sub(lasted).unwrap_or(ended));
            let waited = begun.saturating_sub(about.due_at.as_microsecond());
            (lasted, Duration::from_micros(u64::try_from(waited).unwrap_or(0)))
        });
        let last = self.open.len() - 1;
        let mut place = about.class.min(last);
        if self.open[place].tally.ended() == 0 && place != last {
            if self.used < CLASSES_MAX {
                self.used += 1;
            } else {
                place = last;
            }
        }
        self.open[place].tally.add(counts, ran);
    }

    /// What the store does not have of this minute, with its places.
    fn rows(&self, classes: &[Arc<str>]) -> Vec<(usize, ClassMinute)> {
        let (minute, generation) = (self.minute, self.generation);
        let new = self.open.iter().enumerate().filter(|(_, open)| open.tally.ended() > open.sent);
        new.map(|(place, open)| {
            let class = classes.get(place).map_or(OTHER_CLASSES, |name| name).to_owned();
            (place, ClassMinute { minute, generation, class, tally: open.tally })
        })
        .collect()
    }

    /// Keeps rows of minutes that are over; not for ever.
    fn keep(&mut self, rows: impl IntoIterator<Item = ClassMinute>) {
        self.over.extend(rows);
        let too_many = self.over.len().saturating_sub(OVER_MAX);
        self.over.drain(..too_many);
    }

    /// What is to be sent: of minutes that are over, and of this one.
    fn take(&mut self, classes: &[Arc<str>]) -> (Vec<ClassMinute>, Vec<(usize, ClassMinute)>) {
        self.turn_to(Instant::now(), classes);
        (std::mem::take(&mut self.over), self.rows(classes))
    }

    fn put_back(&mut self, over: Vec<ClassMinute>) {
        let newer = std::mem::replace(&mut self.over, over);
        self.keep(newer);
    }

    fn sent(&mut self, rows: &[(usize, ClassMinute)]) {
        for (place, row) in rows {
            if (row.minute, row.generation) == (self.minute, self.generation) {
                self.open[*place].sent = row.tally.ended();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: i64 = 60 * MINUTE_US;

    fn classes(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|n| format!("class {n:03}").into()).collect()
    }

    fn about(class: ClassNumber) -> About {
        About { class, due_at: Timestamp::from_microsecond(HOUR).unwrap() }
    }

    /// An hour since 1970 at this moment.
    fn knowing(names: &[Arc<str>], at: Instant) -> Counted {
        let mut counted = Counted::new(names.len());
        counted.learn(Clock { at, time_us: HOUR }, at, names);
        counted
    }

    fn totals(rows: &[ClassMinute]) -> Vec<(i64, i32, &str, u64)> {
        let total = |row: &ClassMinute| row.tally.ended();
        rows.iter().map(|row| (row.minute, row.generation, &*row.class, total(row))).collect()
    }

    #[test]
    fn what_ends_early_counts_when_the_time_is_known() {
        let (names, at) = (classes(2), Instant::now());
        let mut counted = Counted::new(2);
        counted.turn_to(at, &names);
        counted.add(Counts::Ok, Some((2 * SECOND, at)), about(1));
        assert!(counted.rows(&names).is_empty());
        counted.learn(Clock { at, time_us: HOUR + 5_000_000 }, at, &names);
        let (_, row) = counted.rows(&names).remove(0);
        assert_eq!((row.minute, row.class.as_str(), row.tally.ok), (60, "class 001", 1));
        // Due at the hour, begun three seconds later, ended after two.
        assert_eq!((row.tally.run.max_us, row.tally.run.total()), (2_000_000, 1));
        assert_eq!((row.tally.wait.max_us, row.tally.wait.total()), (3_000_000, 1));
        assert_eq!(row.tally.run_us, 2_000_000);
    }

    #[test]
    fn only_what_is_new_is_sent() {
        let (names, at) = (classes(2), Instant::now());
        let mut counted = knowing(&names, at);
        counted.add(Counts::Ok, None, about(0));
        let rows = counted.rows(&names);
        counted.sent(&rows);
        assert!(counted.rows(&names).is_empty());
        counted.add(Counts::Failed, None, about(0));
        counted.add(Counts::Other, None, about(1));
        let rows: Vec<_> = counted.rows(&names).into_iter().map(|(_, row)| row).collect();
        assert_eq!(totals(&rows), [(60, 0, "class 000", 2), (60, 0, "class 001", 1)]);
        counted.turn_to(at + 60 * SECOND, &names);
        assert_eq!(counted.over, rows, "the numbers as they stand, not the difference");
        assert!(counted.rows(&names).is_empty());
    }

    #[test]
    fn a_clock_that_goes_back_replaces_nothing() {
        let (names, at) = (classes(1), Instant::now());
        let mut counted = knowing(&names, at);
        counted.add(Counts::Ok, None, about(0));
        // By a little: the minute goes on.
        counted.learn(Clock { at, time_us: HOUR - 1 }, at, &names);
        counted.add(Counts::Ok, None, about(0));
        // By ten minutes, and on to where it was.
        counted.learn(Clock { at, time_us: HOUR - 10 * MINUTE_US }, at, &names);
        counted.add(Counts::Ok, None, about(0));
        counted.turn_to(at + 600 * SECOND, &names);
        counted.add(Counts::Ok, None, about(0));
        counted.turn_to(at + 660 * SECOND, &names);
        let name = "class 000";
        assert_eq!(totals(&counted.over), [(60, 0, name, 2), (50, 1, name, 1), (60, 1, name, 1)]);
    }

    #[test]
    fn many_classes_and_a_store_that_is_away_are_bounded() {
        let (names, at) = (classes(70), Instant::now());
        let mut counted = knowing(&names, at);
        for minute in 0..30 {
            counted.turn_to(at + minute * 60 * SECOND, &names);
            for class in (0..70).chain(0..70) {
                counted.add(Counts::Ok, None, about(class));
            }
            let rows: Vec<_> = counted.rows(&names).into_iter().map(|(_, row)| row).collect();
            assert_eq!(rows.len(), CLASSES_MAX + 1);
            assert_eq!(totals(&rows)[50], (60 + i64::from(minute), 0, "", 40));
            assert_eq!(rows.iter().map(|row| row.tally.ended()).sum::<u64>(), 140);
        }
        assert_eq!(counted.over.len(), OVER_MAX);
        assert_eq!(counted.over[0].minute, 60 + 19, "the newest are kept");
        let over = std::mem::take(&mut counted.over);
        counted.turn_to(at + 3000 * SECOND, &names);
        counted.put_back(over);
        assert_eq!(counted.over.len(), OVER_MAX);
        assert_eq!(counted.over[0].minute, 60 + 20);
        assert!(counted.over.is_sorted_by_key(|row| row.minute));
    }
}
