//! How long attempts took, counted in buckets: small enough to be stored once a
//! minute and class, and fine enough that an estimate is never far off.

use std::time::Duration;

use serde::Serialize;

/// The number of buckets of a histogram.
pub const BUCKETS: usize = 28;
/// The bounds of the buckets in milliseconds: from a millisecond to a day, each at most 2.5 times
/// the previous one.
///
/// The last bucket has no upper bound.
pub const BOUNDS_MS: [u64; BUCKETS - 1] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
    120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000,
    43_200_000, 86_400_000,
];

/// The number of attempts in each bucket of run time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TimeHistogram {
    /// The number of values in each bucket; see [`BOUNDS_MS`].
    pub counts: [u64; BUCKETS],
    /// The longest, in microseconds.
    ///
    /// No estimate is longer.
    pub max_us: u64,
}

impl TimeHistogram {
    /// Counts one time.
    pub fn add(&mut self, time: Duration) {
        self.counts[bucket(time)] += 1;
        self.max_us = self.max_us.max(microseconds(time));
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Returns how many times were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns an estimate of the quantile for this percentage.
    ///
    /// It lies in the same bucket as the true value, and is never longer than the maximum.
    #[must_use]
    pub fn quantile(&self, percent: u64) -> Option<Duration> {
        let wanted = u128::from(self.total()) * u128::from(percent);
        let mut below = 0_u64;
        for (n, count) in self.counts.iter().enumerate() {
            let until = below + count;
            if *count > 0 && u128::from(until) * 100 >= wanted {
                return Some(self.within(n, below, *count, wanted));
            }
            below = until;
        }
        None
    }

    /// Within a bucket, as if its times were spread evenly.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn within(&self, bucket: usize, below: u64, count: u64, wanted: u128) -> Duration {
        let from_us = bucket.checked_sub(1).map_or(0, |before| BOUNDS_MS[before] * 1000);
        let end_us = BOUNDS_MS.get(bucket).map_or(self.max_us, |ms| ms * 1000);
        let to_us = end_us.min(self.max_us).max(from_us);
        let share = ((wanted as f64 / 100.0 - below as f64) / count as f64).clamp(0.0, 1.0);
        Duration::from_micros(from_us + ((to_us - from_us) as f64 * share) as u64)
    }
}

/// Returns the bucket for this time.
#[must_use]
pub fn bucket(time: Duration) -> usize {
    let us = microseconds(time);
    BOUNDS_MS.partition_point(|bound| us >= bound * 1000)
}

/// A number that every store can keep.
fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
}

#[cfg(test)]
mod tests;
