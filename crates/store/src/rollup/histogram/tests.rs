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
