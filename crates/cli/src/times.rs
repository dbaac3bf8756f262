//! Times and durations as arguments.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
pub(crate) use task_engine_core::parse::{duration, future_time, past_time};
use task_engine_core::task::Due;
use task_engine_store::audit::check_prune;

use crate::console::now;

/// When a task may run.
#[derive(Debug, Args)]
pub(crate) struct DueArgs {
    /// The earliest time it may run: 2026-12-24T18:00:00Z, "2026-12-24 18:00" (local
    /// time) or 18:00 (the next time it is)
    #[arg(long, value_name = "TIME", conflicts_with = "after",
          value_parser = |text: &str| future_time(text, &now()))]
    at: Option<Timestamp>,
    /// The duration from now after which it may run: 0s, 10m, 1h30m, "2 days"
    #[arg(long, value_name = "DURATION", value_parser = duration,
          allow_hyphen_values = true)]
    after: Option<Duration>,
}

impl DueArgs {
    /// `None` if neither is given.
    pub(crate) fn due(&self) -> Option<Due> {
        self.at.map(Due::At).or(self.after.map(Due::After))
    }
}

/// How long data is kept: a duration, or for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    For(Duration),
    Forever,
}

impl Retention {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "never" => Ok(Self::Forever),
            text => duration(text)
                .map(Self::For)
                .map_err(|why| format!("{why}; or `never` to remove nothing")),
        }
    }

    pub(crate) fn age(self) -> Option<Duration> {
        match self {
            Self::For(age) => Some(age),
            Self::Forever => None,
        }
    }
}

/// The same for the audit, whose recent entries are always kept.
pub(crate) fn audit_retention(text: &str) -> Result<Retention, String> {
    let keep = Retention::parse(text)?;
    match keep.age().map(check_prune) {
        Some(Err(why)) => Err(why.to_string()),
        _ => Ok(keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_may_be_forever() {
        assert_eq!(Retention::parse("never"), Ok(Retention::Forever));
        assert_eq!(Retention::parse("5s"), Ok(Retention::For(Duration::from_secs(5))));
        assert!(Retention::parse("ever").unwrap_err().contains("never"));
    }
}
