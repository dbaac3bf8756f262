//! Cron expressions in a time zone.
//!
//! What happens when clocks change is what Vixie's cron does, and Debian's:
//!
//! - a **fixed** time (neither minute nor hour begin with `*`) that is left out,
//!   because the clocks are put forward, runs once, right after; one that comes
//!   twice, because they are put back, runs the first time only;
//! - everything else **follows elapsed time**: it runs whenever the clock shows
//!   a matching time, so twice if it does so twice, and not at all if it never
//!   does.
//!
//! `croner` finds matching times on the calendar; where they fall in a time zone
//! is decided here. (By itself it takes a time as fixed only if it is the only
//! one of its day: `30 2,14 * * *` would lose a run in spring and repeat one in
//! autumn. And it joins `*/2` with a day of the week by "or", where cron needs
//! both to fit if one of them begins with `*`.)

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::fields::{self, InvalidCron};

/// A cron expression that was understood.
#[derive(Debug, Clone)]
pub struct Cron {
    calendar: croner::Cron,
    follows_elapsed_time: bool,
    never_comes: bool,
}

/// A time to run, and how a change of clocks touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The time.
    pub at: Timestamp,
    /// The change, if one does.
    pub change: Option<ClockChange>,
}

/// How a change of clocks touches a time to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The time asked for does not exist that day; it runs right after.
    Moved {
        /// The local time that does not exist.
        from: DateTime,
    },
    /// The local time comes twice; it runs the first time.
    FirstOfTwo,
    /// The local time comes twice, and it runs both times.
    EachOfTwo,
    /// Matching times before this one do not exist that day, and are left out.
    LeftOut {
        /// The first of them.
        from: DateTime,
    },
}

impl Cron {
    /// Understands five fields, six with seconds in front, or `@daily` & co.
    pub fn parse(expression: &str) -> Result<Self, InvalidCron> {
        let fields = fields::read(expression)?;
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .dom_and_dow(fields.both_days)
            .build();
        let calendar = parser.parse(&fields.plain).map_err(|error| InvalidCron {
            expression: expression.to_owned(),
            at: 1,
            why: error.to_string(),
        })?;
        Ok(Self {
            calendar,
            follows_elapsed_time: fields.any_minute_or_hour,
            never_comes: fields.never_comes,
        })
    }

    /// The first time after this one, if there is any.
    #[must_use]
    pub fn next_after(&self, time: Timestamp, zone: &TimeZone) -> Option<Found> {
        if self.never_comes {
            None
        } else if self.follows_elapsed_time {
            self.next_elapsed(time, zone)
        } else {
            self.next_fixed(time, zone)
        }
    }

    /// Local times in their order, each put where it falls. Later local times
    /// never fall earlier, so the first that falls after `time` is the one.
    fn next_fixed(&self, time: Timestamp, zone: &TimeZone) -> Option<Found> {
        let mut local = whole_second(zone.to_datetime(time));
        loop {
            local = self.next_local(local, false)?;
            let found = place(local, zone)?;
            // Not so in the second pass of an hour that comes twice.
            if found.at > time {
                return Some(found);
            }
        }
    }

    /// Goes from one change of clocks to the next: in between, local time and
    /// elapsed time are the same.
    fn next_elapsed(&self, time: Timestamp, zone: &TimeZone) -> Option<Found> {
        let (mut from, mut inclusive, mut left_out) = (time, false, None);
        loop {
            let offset = zone.to_offset(from);
            let local = self.next_local(whole_second(offset.to_datetime(from)), inclusive)?;
            let at = offset.to_timestamp(local).ok()?;
            let end = zone.following(from).next().map(|change| change.timestamp());
            let change = zone.to_ambiguous_timestamp(local).offset();
            match end {
                Some(end) if at >= end => {
                    if matches!(change, AmbiguousOffset::Gap { .. }) {
                        left_out = left_out.or(Some(ClockChange::LeftOut { from: local }));
                    }
                    (from, inclusive) = (end, true);
                }
                _ if matches!(change, AmbiguousOffset::Fold { .. }) => {
                    return Some(Found { at, change: Some(ClockChange::EachOfTwo) });
                }
                _ => return Some(Found { at, change: left_out }),
            }
        }
    }

    fn next_local(&self, after: DateTime, inclusive: bool) -> Option<DateTime> {
        self.calendar.find_next_occurrence(&after, inclusive).ok()
    }
}

/// When a fixed local time runs.
fn place(local: DateTime, zone: &TimeZone) -> Option<Found> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => {
            Some(Found { at: offset.to_timestamp(local).ok()?, change: None })
        }
        AmbiguousOffset::Fold { before, .. } => Some(Found {
            at: before.to_timestamp(local).ok()?,
            change: Some(ClockChange::FirstOfTwo),
        }),
        AmbiguousOffset::Gap { after, .. } => {
            // With the later offset, a time in the gap lies before the change,
            // by no more than the gap is long.
            let before = after.to_timestamp(local).ok()?;
            let end = zone.following(before).next()?.timestamp();
            Some(Found { at: end, change: Some(ClockChange::Moved { from: local }) })
        }
    }
}

fn whole_second(time: DateTime) -> DateTime {
    let below = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond()));
    time.checked_sub(below).unwrap_or(time)
}
