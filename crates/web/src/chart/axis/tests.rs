use super::*;

fn labels(largest: f64, unit: Unit) -> Vec<String> {
    ticks(largest, unit).into_iter().map(|tick| tick.label).collect()
}

#[test]
fn ticks_are_round_and_reach_the_largest() {
    for (largest, shown) in [
        (0.0, &["0", "1"][..]),
        (1.0, &["0", "1"]),
        (3.0, &["0", "1", "2", "3"]),
        (7.0, &["0", "2", "4", "6", "8"]),
        (100.0, &["0", "50", "100"]),
        (101.0, &["0", "50", "100", "150"]),
        (1234.0, &["0", "500", "1 k", "1.5 k"]),
        (4_000_000.0, &["0", "1 M", "2 M", "3 M", "4 M"]),
    ] {
        assert_eq!(labels(largest, Unit::Number), shown, "{largest}");
    }
    for largest in [0.1, 1.0, 9.0, 12.0, 99.0, 12_345.0, 1e9, 1e19] {
        for unit in [Unit::Number, Unit::Seconds] {
            let ticks = ticks(largest, unit);
            assert!(ticks.last().unwrap().at >= largest, "{largest} {ticks:?}");
            assert!((2..=5).contains(&ticks.len()), "{largest} {ticks:?}");
        }
    }
}

#[test]
fn durations_have_round_ticks() {
    for (largest, shown) in [
        (0.0, &["0 s", "1 s"][..]),
        (0.003, &["0 s", "1 ms", "2 ms", "3 ms"]),
        (0.35, &["0 s", "100 ms", "200 ms", "300 ms", "400 ms"]),
        (1.9, &["0 s", "500 ms", "1 s", "1.5 s", "2 s"]),
        (50.0, &["0 s", "15 s", "30 s", "45 s", "1 min"]),
        (400.0, &["0 s", "2 min", "4 min", "6 min", "8 min"]),
    ] {
        assert_eq!(labels(largest, Unit::Seconds), shown, "{largest}");
    }
}

#[test]
fn numbers_are_abbreviated() {
    for (number, shown) in [
        (0.0, "0"),
        (7.0, "7"),
        (999.0, "999"),
        (1000.0, "1 k"),
        (1234.0, "1.2 k"),
        (45_678.0, "46 k"),
        (999_900.0, "1 M"),
        (1.8e19, "18000 P"),
    ] {
        assert_eq!(short(number), shown);
    }
}

#[test]
fn time_labels_follow_the_zone() {
    let begin: Timestamp = "2026-11-16T03:07:00Z".parse().unwrap();
    let step = |n: i64, minutes: i64| begin + jiff::SignedDuration::from_mins(n * minutes);
    let hour: Vec<_> = (0..60).map(|n| step(n, 1)).collect();
    let shown: Vec<_> = times(&hour, &TimeZone::UTC).into_iter().map(|(_, label)| label).collect();
    assert_eq!(shown, ["03:10", "03:20", "03:30", "03:40", "03:50", "04:00"]);
    let begin: Timestamp = "2026-11-16T03:00:00Z".parse().unwrap();
    let day: Vec<_> = (0..96).map(|n| begin + jiff::SignedDuration::from_mins(n * 15)).collect();
    let india = TimeZone::get("Asia/Kolkata").unwrap();
    let shown: Vec<_> = times(&day, &india).into_iter().map(|(_, label)| label).collect();
    assert_eq!(shown, ["12:00", "16:00", "20:00", "00:00", "04:00", "08:00"]);
    assert!(times(&[], &india).is_empty());
    assert!(times(&[begin], &TimeZone::UTC).len() == 1);
}
