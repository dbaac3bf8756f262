//! The slots of a rule: pure functions of the rule, its time zone and a time.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned};
use serde::Serialize;

use super::cron::{ClockChange, Cron, Occurrence};
use super::fields::InvalidCron;

/// The shortest interval. Use one long-running task for anything more frequent.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest interval.
pub(super) const INTERVAL_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The rule of a schedule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ScheduleRule {
    /// The times of a cron expression.
    Cron(Box<Cron>),
    /// Equal intervals: slot n is at the anchor plus n times this.
    ///
    /// A late slot does not delay the next one.
    Every(Duration),
}

/// The error of an invalid rule of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidScheduleRule {
    /// The cron expression is invalid: the message names the field.
    #[error(transparent)]
    Cron(#[from] InvalidCron),
    /// The interval is too short, too long, or not a duration.
    #[error("invalid interval {text:?}: {why}")]
    Interval {
        /// As given, without `every`.
        text: String,
        /// The problem.
        why: &'static str,
    },
}

impl FromStr for ScheduleRule {
    type Err = InvalidScheduleRule;

    /// `every 15m`, or a cron expression.
    fn from_str(text: &str) -> Result<Self, InvalidScheduleRule> {
        let text = text.trim();
        let every = text.strip_prefix('@').unwrap_or(text).strip_prefix("every");
        match every.filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(interval) => interval_of(interval.trim()).map(Self::Every),
            None => Ok(Self::Cron(Box::new(Cron::parse(text)?))),
        }
    }
}

fn interval_of(text: &str) -> Result<Duration, InvalidScheduleRule> {
    let invalid = |why| Err(InvalidScheduleRule::Interval { text: text.to_owned(), why });
    let Ok(span) = text.parse::<Span>() else {
        return invalid("use a form like 30s, 15m, 1h30m or \"2 days\"");
    };
    let Ok(interval) = span.to_duration(SpanRelativeTo::days_are_24_hours()) else {
        return invalid("months and years vary in length; use days");
    };
    match Duration::try_from(interval) {
        Ok(interval) if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) => {
            invalid("it must be between 100 ms and 366 days")
        }
        Ok(interval) if !interval.subsec_nanos().is_multiple_of(1_000_000) => {
            invalid("it must be whole milliseconds")
        }
        Ok(interval) => Ok(interval),
        Err(_) => invalid("it cannot be negative"),
    }
}

/// A rule with its time zone and anchor.
#[derive(Debug, Clone)]
pub struct Timetable {
    /// The rule.
    pub rule: ScheduleRule,
    /// The time zone of a cron expression.
    pub zone: TimeZone,
    /// The start of intervals.
    pub anchor: Timestamp,
}

impl Timetable {
    /// Returns the first slot after this time, if there is one.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        self.find_after(time).map(|found| found.at)
    }

    /// Returns the newest `limit` slots from `first` to `last`, both included, in order.
    ///
    /// However long the range is, it computes only a small multiple of what it returns.
    #[must_use]
    pub fn newest(&self, first: Timestamp, last: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut window = match self.rule {
            ScheduleRule::Every(step) => {
                step.saturating_mul(u32::try_from(limit).unwrap_or(u32::MAX))
            }
            ScheduleRule::Cron(_) => Duration::from_secs(1),
        };
        loop {
            let back = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
            let from = last.checked_sub(back).unwrap_or(Timestamp::MIN).max(first);
            let slots = self.newest_from(from, last, limit);
            if slots.len() == limit || from == first {
                return slots;
            }
            window = window.saturating_mul(4);
        }
    }

    /// The number of slots from `first`, which is one, to `last`, up to `max`.
    pub(super) fn count(&self, first: Timestamp, last: Timestamp, max: i64) -> i64 {
        if let ScheduleRule::Every(step) = self.rule {
            let steps = last.as_nanosecond() - first.as_nanosecond();
            let step = i128::try_from(step.as_nanos()).unwrap_or(i128::MAX);
            return i64::try_from(steps / step + 1).unwrap_or(max).min(max);
        }
        let (mut count, mut at) = (1, first);
        while count < max
            && let Some(next) = self.next_after(at).filter(|next| *next <= last)
        {
            (count, at) = (count + 1, next);
        }
        count
    }

    fn newest_from(&self, from: Timestamp, last: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut slots = VecDeque::new();
        let just_before = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(from);
        let mut next = self.next_after(just_before);
        while let Some(slot) = next.filter(|slot| *slot <= last) {
            slots.push_back(slot);
            if slots.len() > limit {
                slots.pop_front();
            }
            next = self.next_after(slot);
        }
        slots.into()
    }

    /// Returns the next `number` slots after this time, for people.
    #[must_use]
    pub fn preview(&self, after: Timestamp, number: usize) -> Vec<SlotPreview> {
        let mut previews = Vec::new();
        let mut next = self.find_after(after);
        while let Some(found) = next.filter(|_| previews.len() < number) {
            let local = found.at.to_zoned(self.zone.clone());
            let note = found.change.map(|change| self.note(change, &local));
            previews.push(SlotPreview { at: found.at, local, note });
            next = self.find_after(found.at);
        }
        previews
    }

    fn find_after(&self, time: Timestamp) -> Option<Occurrence> {
        match &self.rule {
            ScheduleRule::Cron(cron) => cron.next_after(time, &self.zone),
            ScheduleRule::Every(step) => {
                let step = i128::try_from(step.as_nanos()).ok()?;
                let since = time.as_nanosecond() - self.anchor.as_nanosecond();
                let at = self.anchor.as_nanosecond() + (since.div_euclid(step) + 1) * step;
                Some(Occurrence { at: Timestamp::from_nanosecond(at).ok()?, change: None })
            }
        }
    }

    fn note(&self, change: ClockChange, runs: &Zoned) -> String {
        let zone = self.zone.iana_name().unwrap_or("this time zone");
        let at = TimeOfDay(runs.datetime());
        match change {
            ClockChange::Moved { from } => {
                let (asked, date) = (TimeOfDay(from), from.date());
                format!("{asked} does not exist on {date} in {zone}; runs at {at}")
            }
            ClockChange::Skipped { from } => {
                let (asked, date) = (TimeOfDay(from), from.date());
                format!("{asked} does not exist on {date} in {zone}; skipped")
            }
            ClockChange::FirstOfTwo => {
                let date = runs.date();
                format!("{at} happens twice on {date} in {zone}; runs at the first")
            }
            ClockChange::EachOfTwo => {
                let date = runs.date();
                format!("{at} happens twice on {date} in {zone}; runs each time")
            }
        }
    }
}

/// A slot, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlotPreview {
    /// The slot.
    pub at: Timestamp,
    /// The slot in the schedule's time zone.
    pub local: Zoned,
    /// The effect of a change of clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The time of day, without seconds if they are zero.
struct TimeOfDay(DateTime);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())?;
        if self.0.second() != 0 {
            write!(f, ":{:02}", self.0.second())?;
        }
        Ok(())
    }
}
