//! Figures to draw: how many attempts end in a minute, how long they run, and how
//! long their tasks have waited.
//!
//! Engines count what they record, by minute and class, and send the numbers as
//! they stand: whole numbers of one minute, never a difference, so that what is
//! sent again counts once. Charts read these few rows and no history.
//!
//! An attempt that died with its engine was counted by nobody.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::attempt::{Ending, Next};
use crate::task::TaskStatus;

/// Where one bucket of a histogram ends and the next begins, in milliseconds.
/// The last bucket is for all that is longer.
pub const BOUNDS_MS: [u64; BUCKETS - 1] =
    [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 60_000, 600_000];
/// How many buckets a histogram has.
pub const BUCKETS: usize = 12;
/// The classes that an engine tells apart within a minute.
pub const CLASSES_MAX: usize = 50;
/// The name under which all other classes are summed.
pub const OTHER_CLASSES: &str = "";
/// Figures are kept for this long: a day, and what a chart begins before it.
pub const KEPT: Duration = Duration::from_secs(25 * 3600);

const MINUTE: Duration = Duration::from_secs(60);

/// How many lasted how long.
pub type Histogram = [u64; BUCKETS];

/// The bucket for this time.
#[must_use]
pub fn bucket(time: Duration) -> usize {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    // All of them, without a branch: faster than to stop at the first.
    BOUNDS_MS.iter().map(|bound| usize::from(us >= bound * 1000)).sum()
}

/// How an attempt counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// It did its work.
    Ok,
    /// It failed, whether or not it is tried again.
    Failed,
    /// It was cancelled, given back or snoozed.
    Other,
}

impl Counts {
    /// How this ending counts.
    #[must_use]
    pub fn of(ending: &Ending) -> Self {
        match ending.next {
            Next::End(TaskStatus::Stopped) => Self::Ok,
            Next::End(TaskStatus::Failed) => Self::Failed,
            // Given back or snoozed: no retry is used.
            Next::Wait { retry_number, .. } if retry_number == ending.retry_number => Self::Other,
            Next::Wait { .. } => Self::Failed,
            Next::End(_) => Self::Other,
        }
    }
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Attempts that did their work.
    pub ok: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were cancelled, given back or snoozed.
    pub other: u64,
    /// How long all of them ran together, in microseconds.
    pub run_us: u64,
    /// How long each of those ran that did.
    pub run: Histogram,
    /// How long each of those had waited since its task was due.
    pub wait: Histogram,
}

impl Tally {
    /// How many attempts have ended. It grows with all that is counted.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }

    /// Counts one attempt: how long it ran and its task had waited, if it ran.
    pub fn add(&mut self, counts: Counts, ran: Option<(Duration, Duration)>) {
        match counts {
            Counts::Ok => self.ok += 1,
            Counts::Failed => self.failed += 1,
            Counts::Other => self.other += 1,
        }
        if let Some((lasted, waited)) = ran {
            self.run_us += u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX >> 20);
            self.run[bucket(lasted)] += 1;
            self.wait[bucket(waited)] += 1;
        }
    }
}

/// What an engine has counted of one class in one minute, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassMinute {
    /// The minute of the database's clock, in minutes since 1970.
    pub minute: i64,
    /// How often that clock had gone back: a minute that comes again is another.
    pub generation: i32,
    /// The class, or [`OTHER_CLASSES`].
    pub class: String,
    /// The numbers.
    pub tally: Tally,
}

/// Which figures are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiguresLook {
    /// From this long ago until now; no longer than [`KEPT`].
    pub over: Duration,
    /// In steps of this length: whole minutes, at least one.
    pub step: Duration,
}

impl FiguresLook {
    /// The time that is looked at, in seconds.
    #[must_use]
    pub fn over_secs(&self) -> i64 {
        i64::try_from(self.over.min(KEPT).as_secs()).unwrap_or(0)
    }

    /// The length of a step, in seconds.
    #[must_use]
    pub fn step_secs(&self) -> i64 {
        let minutes = self.step.min(KEPT).as_secs().div_ceil(MINUTE.as_secs()).max(1);
        i64::try_from(minutes * MINUTE.as_secs()).unwrap_or(60)
    }
}

/// What all engines have counted of one class in one step of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureRow {
    /// When the step begins.
    pub at: Timestamp,
    /// The class, or [`OTHER_CLASSES`].
    pub class: String,
    /// Attempts that did their work.
    pub ok: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were cancelled, given back or snoozed.
    pub other: u64,
    /// How long all of them ran together, in seconds.
    pub run_secs_sum: f64,
    /// How long each of those ran that did; see [`BOUNDS_MS`].
    pub run: Histogram,
    /// How long each of those had waited since its task was due.
    pub wait: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_to_their_bucket() {
        let of = |ms: f64| bucket(Duration::from_secs_f64(ms / 1000.0));
        assert_eq!((of(0.0), of(0.999), of(1.0), of(2.9), of(3.0)), (0, 0, 1, 1, 2));
        assert_eq!((of(999.0), of(1000.0), of(599_999.0), of(600_000.0)), (6, 7, 10, 11));
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        assert!(BOUNDS_MS.is_sorted());
    }

    #[test]
    fn a_look_has_whole_minutes_and_an_end() {
        let look = |over, step| {
            let look =
                FiguresLook { over: Duration::from_secs(over), step: Duration::from_secs(step) };
            (look.over_secs(), look.step_secs())
        };
        assert_eq!(look(3600, 60), (3600, 60));
        assert_eq!(look(0, 0), (0, 60));
        assert_eq!(look(3600, 61), (3600, 120));
        assert_eq!(look(u64::MAX, u64::MAX), (90_000, 90_000));
    }

    #[test]
    fn a_tally_counts_what_it_is_given() {
        let mut tally = Tally::default();
        let ran =
            |lasted, waited| Some((Duration::from_millis(lasted), Duration::from_millis(waited)));
        tally.add(Counts::Ok, ran(5, 0));
        tally.add(Counts::Failed, ran(2000, 40));
        tally.add(Counts::Other, None);
        assert_eq!((tally.ok, tally.failed, tally.other, tally.ended()), (1, 1, 1, 3));
        assert_eq!(tally.run_us, 2_005_000);
        assert_eq!(tally.run, [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(tally.wait, [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
