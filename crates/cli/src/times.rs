//! Times and durations as arguments.

use std::time::Duration;

pub(crate) use task_engine_core::parse::{duration, future_time, past_time};
use task_engine_store::audit::check_prune;

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
