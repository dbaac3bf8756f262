//! Waiting for a condition.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Generous, for loaded machines. Only a hang takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(120);

const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds; returns how long it took.
///
/// # Panics
/// If it does not hold within [`TIMEOUT`].
pub fn wait_until(condition: impl Display, is_met: impl FnMut() -> bool) -> Duration {
    wait_within(TIMEOUT, condition, is_met, String::new)
}

/// The same with another time limit, and details for the failure message.
///
/// # Panics
/// If it does not hold in time.
pub fn wait_within(
    timeout: Duration,
    condition: impl Display,
    mut is_met: impl FnMut() -> bool,
    details: impl FnOnce() -> String,
) -> Duration {
    let started = Instant::now();
    while !is_met() {
        assert!(started.elapsed() < timeout, "not within {timeout:?}: {condition}\n{}", details());
        std::thread::sleep(INTERVAL);
    }
    started.elapsed()
}
