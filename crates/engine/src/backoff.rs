//! Waits between tries.

use std::time::Duration;

/// Growing waits between tries, partly random, so that engines do not reconnect
/// all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(3);

    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.next = (self.next * 2).min(Self::LONGEST);
        wait
    }
}
