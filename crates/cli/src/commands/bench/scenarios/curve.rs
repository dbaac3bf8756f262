//! From counts to rates: how fast it went from moment to moment.

/// At most this many points, so that a chart shows a line and not its noise.
const POINTS_MAX: i64 = 50;
/// Engines tell every 10 ms; shorter stretches would see that, and no more.
const STRETCH_US_MIN: i64 = 50_000;

/// Seconds since the beginning and tasks a second, one point a stretch of time.
/// `curve` is a count that grows, each with the time when it was true.
pub(super) fn rate_over_time(curve: &[(i64, u64)], from_us: i64) -> Vec<(f64, f64)> {
    let Some((last_us, _)) = curve.last() else {
        return Vec::new();
    };
    let stretch_us = ((last_us - from_us) / POINTS_MAX).max(STRETCH_US_MIN);
    let (mut points, mut since_us, mut counted) = (Vec::new(), from_us, 0);
    for &(at_us, count) in curve {
        let lasted_us = at_us - since_us;
        if lasted_us >= stretch_us || (at_us == *last_us && lasted_us > 0) {
            let rate = count.saturating_sub(counted) as f64 * 1e6 / lasted_us as f64;
            // A short rest at the end would be a spike or a hole.
            if lasted_us >= stretch_us / 2 || points.is_empty() {
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
    fn a_steady_pace_is_a_flat_line() {
        let curve: Vec<_> = (1..=100).map(|n| (n * 10_000, n as u64 * 100)).collect();
        let points = rate_over_time(&curve, 0);
        assert_eq!(points.len(), 20);
        assert_eq!(points[0], (0.0, 10_000.0));
        assert!(points.iter().all(|(_, rate)| (rate - 10_000.0).abs() < 1.0), "{points:?}");
    }

    #[test]
    fn a_short_run_has_one_point_and_none_has_none() {
        assert_eq!(rate_over_time(&[(1_000, 5)], 0), [(0.0, 5000.0)]);
        assert_eq!(rate_over_time(&[], 0), []);
    }
}
