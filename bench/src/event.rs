//! Events that an engine writes to the benchmark, one per line. Times are
//! microseconds of the system clock; both processes run on the same machine.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The engine has registered.
    Registered,
    /// A task has started, or continues after its signal.
    Began { task_id: i64, at_us: i64 },
    /// A task waits for a signal.
    Suspended { task_id: i64 },
    /// A task has created its children.
    Called { at_us: i64 },
    /// An attempt has got all recorded steps of its task in this time.
    Replayed { took_us: i64 },
    /// This many attempts are recorded, the last at this time.
    Recorded { count: u64, at_us: i64 },
}

/// The line that lets an engine claim tasks.
pub(crate) const CLAIM_COMMAND: &str = "claim";

pub(crate) fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered => f.write_str("registered"),
            Self::Began { task_id, at_us } => write!(f, "began {task_id} {at_us}"),
            Self::Suspended { task_id } => write!(f, "suspended {task_id}"),
            Self::Called { at_us } => write!(f, "called {at_us}"),
            Self::Replayed { took_us } => write!(f, "replayed {took_us}"),
            Self::Recorded { count, at_us } => write!(f, "recorded {count} {at_us}"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parse = || {
            let mut fields = line.split(' ');
            Some(match fields.next()? {
                "registered" => Self::Registered,
                "began" => Self::Began {
                    task_id: fields.next()?.parse().ok()?,
                    at_us: fields.next()?.parse().ok()?,
                },
                "suspended" => Self::Suspended { task_id: fields.next()?.parse().ok()? },
                "called" => Self::Called { at_us: fields.next()?.parse().ok()? },
                "replayed" => Self::Replayed { took_us: fields.next()?.parse().ok()? },
                "recorded" => Self::Recorded {
                    count: fields.next()?.parse().ok()?,
                    at_us: fields.next()?.parse().ok()?,
                },
                _ => return None,
            })
        };
        parse().ok_or_else(|| format!("invalid event of an engine: {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_a_round_trip() {
        for event in [
            Event::Registered,
            Event::Began { task_id: 7, at_us: 1_800_000_000_000_000 },
            Event::Suspended { task_id: 7 },
            Event::Called { at_us: 1 },
            Event::Replayed { took_us: 12_000 },
            Event::Recorded { count: 500, at_us: 1 },
        ] {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert!("began x".parse::<Event>().is_err());
    }
}
