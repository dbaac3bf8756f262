//! How long attempts took, counted in buckets: small enough to be stored once a
//! minute and class, and fine enough that an estimate is never far off.

use std::time::Duration;

use serde::Serialize;

/// How many buckets a histogram has.
pub const BUCKETS: usize = 28;
/// The bounds of the buckets in milliseconds: from a millisecond to a day, each at most
/// 2.5 times the previous one. The last bucket has no upper bound.
pub const BOUNDS_MS: [u64; BUCKETS - 1] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
    120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000,
    43_200_000, 86_400_000,
];

/// How many lasted how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TimeHistogram {
    /// The number of values in each bucket; see [`BOUNDS_MS`].
    pub counts: [u64; BUCKETS],
    /// The longest, in microseconds. No estimate is longer.
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

    /// How many times were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An estimate of the quantile for this percentage. It lies in the same bucket as the
    /// true value, and is never longer than the maximum.
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

/// The bucket for this time.
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
mod tests {
    use super::*;

    fn of(times: &[Duration]) -> TimeHistogram {
        let mut histogram = TimeHistogram::default();
        times.iter().for_each(|time| histogram.add(*time));
        histogram
    }

    #[test]
    fn times_go_to_their_bucket() {
        let of = |ms: f64| bucket(Duration::from_secs_f64(ms / 1000.0));
        assert_eq!((of(0.0), of(0.999), of(1.0), of(1.9), of(2.0)), (0, 0, 1, 1, 2));
        assert_eq!((of(999.0), of(1000.0)), (9, 10));
        assert_eq!((of(86_399_999.0), of(86_400_000.0)), (BUCKETS - 2, BUCKETS - 1));
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn bounds_are_at_most_2_5_times_apart() {
        for pair in BOUNDS_MS.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] * 2 <= pair[0] * 5, "{pair:?}");
        }
    }

    #[test]
    fn quantiles_never_exceed_the_maximum() {
        assert_eq!(of(&[]).quantile(95), None);
        let minutes = |count: u64| Duration::from_secs(count * 60);
        // Nothing is older than four minutes.
        let waits: Vec<_> = (1..=4).flat_map(|n| [minutes(n); 25]).collect();
        assert!(of(&waits).quantile(95).unwrap() <= minutes(4));
        let days = of(&[minutes(3 * 24 * 60); 10]);
        assert!(days.quantile(50).unwrap() < minutes(3 * 24 * 60));
        assert_eq!(days.quantile(100), Some(minutes(3 * 24 * 60)));
        assert!(of(&[Duration::MAX]).quantile(95).unwrap() < Duration::MAX);
        let mut huge = of(&[Duration::from_secs(500)]);
        (huge.counts[0], huge.counts[18]) = (u64::MAX / 4, u64::MAX / 4);
        assert!(huge.quantile(95).unwrap() <= Duration::from_secs(500));
    }

    #[test]
    fn estimates_lie_in_the_true_bucket() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2_000 {
            // Spread evenly over powers of ten, as run times are.
            let most = random.f64() * 8.0;
            let count = random.usize(1..300);
            let mut times: Vec<_> = (0..count)
                .map(|_| Duration::from_secs_f64(10_f64.powf(random.f64() * most - 4.0)))
                .collect();
            let (mut histogram, split) = (of(&times[..count / 2]), of(&times[count / 2..]));
            histogram.merge(&split);
            times.sort();
            for percent in [1, 50, 95, 99, 100] {
                let rank = (count * percent).div_ceil(100).max(1);
                let truth = times[rank - 1];
                let estimate = histogram.quantile(percent as u64).unwrap();
                let (near, exact) = (bucket(estimate), bucket(truth));
                // The end of a bucket is the beginning of the next.
                assert!(near == exact || near == exact + 1, "{truth:?} {estimate:?}");
                assert!(estimate <= times[count - 1], "{estimate:?}: {times:?}");
                let low = exact.checked_sub(1).map_or(0, |before| BOUNDS_MS[before]);
                assert!(estimate >= Duration::from_millis(low), "{truth:?} {estimate:?}");
            }
        }
    }
}
