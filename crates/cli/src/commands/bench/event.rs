//! What an engine under measurement tells the bench: one line each, through a
//! pipe. Times are microseconds of the system's clock, which both processes
//! read on the same machine.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The engine is registered, and waits at the gate if there is one.
    Alive,
    /// The code of a task has begun.
    Began { task_id: i64, at_us: i64 },
    /// This many endings are on record, the last of them since then.
    Recorded { count: u64, at_us: i64 },
}

/// What the bench says to let the engine claim tasks.
pub(super) const GO: &str = "go";

pub(super) fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive => f.write_str("alive"),
            Self::Began { task_id, at_us } => write!(f, "began {task_id} {at_us}"),
            Self::Recorded { count, at_us } => write!(f, "recorded {count} {at_us}"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parse = || {
            let mut words = line.split(' ');
            Some(match words.next()? {
                "alive" => Self::Alive,
                "began" => Self::Began {
                    task_id: words.next()?.parse().ok()?,
                    at_us: words.next()?.parse().ok()?,
                },
                "recorded" => Self::Recorded {
                    count: words.next()?.parse().ok()?,
                    at_us: words.next()?.parse().ok()?,
                },
                _ => return None,
            })
        };
        parse().ok_or_else(|| format!("an engine of the bench said {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for event in [
            Event::Alive,
            Event::Began { task_id: 7, at_us: 1_800_000_000_000_000 },
            Event::Recorded { count: 500, at_us: 1 },
        ] {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert!("began x".parse::<Event>().is_err());
    }
}
