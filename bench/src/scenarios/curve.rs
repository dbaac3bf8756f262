//! Rates over time, from counts over time.

/// Maximum number of points.
const POINTS_MAX: i64 = 50;
/// Engines report every 10 ms; shorter intervals would show only that.
const INTERVAL_US_MIN: i64 = 50_000;

/// Seconds since the start and tasks per second, one point per interval. `curve`
/// has growing counts with their times.
pub(crate) fn rate_over_time(curve: &[(i64, u64)], from_us: i64) -> Vec<(f64, f64)> {
    let Some((last_us, _)) = curve.last() else {
        return Vec::new();
    };
    let interval_us = ((last_us - from_us) / POINTS_MAX).max(INTERVAL_US_MIN);
    let (mut points, mut since_us, mut counted) = (Vec::new(), from_us, 0);
    for &(at_us, count) in curve {
        let lasted_us = at_us - since_us;
        if lasted_us >= interval_us || (at_us == *last_us && lasted_us > 0) {
            let rate = count.saturating_sub(counted) as f64 * 1e6 / lasted_us as f64;
            // A short last interval would be noise.
            if lasted_us >= interval_us / 2 || points.is_empty() {
                points.push(((since_us - from_us) as f64 / 1e6, rate));
            }
            (since_us, counted) = (at_us, count);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_rate_is_flat() {
        let curve: Vec<_> = (1..=100).map(|n| (n * 10_000, n as u64 * 100)).collect();
        let points = rate_over_time(&curve, 0);
        assert_eq!(points.len(), 20);
        assert_eq!(points[0], (0.0, 10_000.0));
        assert!(points.iter().all(|(_, rate)| (rate - 10_000.0).abs() < 1.0), "{points:?}");
    }

    #[test]
    fn short_run_has_one_point() {
        assert_eq!(rate_over_time(&[(1_000, 5)], 0), [(0.0, 5000.0)]);
        assert_eq!(rate_over_time(&[], 0), []);
    }
}
