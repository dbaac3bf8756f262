//! Cron expressions in a time zone.
//!
//! Changes of clocks are handled as in Vixie's and Debian's cron:
//!
//! - a **fixed** time (neither minute nor hour begins with `*`) that does not exist, because
//!   the clocks go forward, runs once, right after the change; one that exists twice,
//!   because they go back, runs the first time only;
//! - every other time **follows elapsed time**: it runs whenever the clock shows a matching time.
//!   It runs twice if the clock shows it twice, and not at all if it never does.
//!
//! `croner` finds matching times on the calendar; this module places them in a time zone.
//! `croner` alone treats a time as fixed only if it is the only one of its day: `30 2,14 * * *`
//! would lose a run in spring and repeat one in autumn. It also joins `*/2` with a day of the
//! week by "or", where cron requires both to match if one of them begins with `*`.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::fields::{self, InvalidCron};

/// A parsed cron expression.
#[derive(Debug, Clone)]
pub struct Cron {
    calendar: croner::Cron,
    follows_elapsed_time: bool,
    is_impossible: bool,
}

/// A matching time, and the effect of a change of clocks on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The time.
    pub at: Timestamp,
    /// The effect, if any.
    pub change: Option<ClockChange>,
}

/// The effect of a change of clocks on a matching time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The local time does not exist that day; it runs right after the change.
    Moved {
        /// The local time that does not exist.
        from: DateTime,
    },
    /// The local time exists twice; it runs the first time.
    FirstOfTwo,
    /// The local time exists twice; it runs both times.
    EachOfTwo,
    /// Matching times before this one do not exist that day and are skipped.
    Skipped {
        /// The first skipped time.
        from: DateTime,
    },
}

impl Cron {
    /// Parses five fields, six with seconds first, or a nickname like `@daily`.
    pub fn parse(expression: &str) -> Result<Self, InvalidCron> {
        let fields = fields::parse(expression)?;
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .dom_and_dow(fields.both_days)
            .build();
        let calendar = parser.parse(&fields.canonical).map_err(|error| InvalidCron {
            expression: expression.to_owned(),
            at: 1,
            why: error.to_string(),
        })?;
        Ok(Self {
            calendar,
            follows_elapsed_time: fields.any_minute_or_hour,
            is_impossible: fields.is_impossible,
        })
    }

    /// Returns the first matching time after this one, if there is one.
    #[must_use]
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone) -> Option<Occurrence> {
        if self.is_impossible {
            None
        } else if self.follows_elapsed_time {
            self.next_elapsed(time, zone)
        } else {
            self.next_fixed(time, zone)
        }
    }

    /// Places local times in order. Later local times are never placed earlier, so the
    /// first one placed after `time` is the result.
    fn next_fixed(&self, time: Timestamp, zone: &TimeZone) -> Option<Occurrence> {
        let mut local = whole_second(zone.to_datetime(time));
        loop {
            local = self.next_local(local, false)?;
            let occurrence = place(local, zone)?;
            // False in the second pass of an hour that exists twice.
            if occurrence.at > time {
                return Some(occurrence);
            }
        }
    }

    /// Goes from one change of clocks to the next: between them, local time and elapsed
    /// time run in step.
    fn next_elapsed(&self, time: Timestamp, zone: &TimeZone) -> Option<Occurrence> {
        let (mut from, mut inclusive, mut skipped) = (time, false, None);
        loop {
            let offset = zone.to_offset(from);
            let local = self.next_local(whole_second(offset.to_datetime(from)), inclusive)?;
            let at = offset.to_timestamp(local).ok()?;
            let end = zone.following(from).next().map(|change| change.timestamp());
            let change = zone.to_ambiguous_timestamp(local).offset();
            match end {
                Some(end) if at >= end => {
                    if matches!(change, AmbiguousOffset::Gap { .. }) {
                        skipped = skipped.or(Some(ClockChange::Skipped { from: local }));
                    }
                    (from, inclusive) = (end, true);
                }
                _ if matches!(change, AmbiguousOffset::Fold { .. }) => {
                    return Some(Occurrence { at, change: Some(ClockChange::EachOfTwo) });
                }
                _ => return Some(Occurrence { at, change: skipped }),
            }
        }
    }

    fn next_local(&self, after: DateTime, inclusive: bool) -> Option<DateTime> {
        self.calendar.find_next_occurrence(&after, inclusive).ok()
    }
}

/// The time when a fixed local time runs.
fn place(local: DateTime, zone: &TimeZone) -> Option<Occurrence> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => {
            Some(Occurrence { at: offset.to_timestamp(local).ok()?, change: None })
        }
        AmbiguousOffset::Fold { before, .. } => Some(Occurrence {
            at: before.to_timestamp(local).ok()?,
            change: Some(ClockChange::FirstOfTwo),
        }),
        AmbiguousOffset::Gap { after, .. } => {
            // With the later offset, a time in the gap is before the change, by at
            // most the length of the gap.
            let before = after.to_timestamp(local).ok()?;
            let end = zone.following(before).next()?.timestamp();
            Some(Occurrence { at: end, change: Some(ClockChange::Moved { from: local }) })
        }
    }
}

fn whole_second(time: DateTime) -> DateTime {
    let fraction = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond()));
    time.checked_sub(fraction).unwrap_or(time)
}
