use super::*;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + minute * 60).unwrap()
}

fn bar(minute: i64, ok: u64, failed: u64) -> Bar {
    let title = format!("{ok} & {failed}");
    Bar { at: at(minute), parts: vec![("ok", ok), ("bad", failed)], title }
}

#[test]
fn bars_are_stacked() {
    let svg = bars(&[bar(0, 3, 1), bar(1, 0, 0)], &TimeZone::UTC, "x").into_string();
    // The top is 4: three quarters and one quarter of 130 pixels.
    assert!(
        svg.contains(r#"<rect class="ok" x="5%" width="40%" y="32.5" height="97.5">"#),
        "{svg}"
    );
    assert!(svg.contains(r#"<rect class="bad" x="5%" width="40%" y="0" height="32.5">"#), "{svg}");
    assert!(svg.contains("<title>3 &amp; 1</title>"), "{svg}");
    // An empty minute has no bar, but a tooltip.
    assert_eq!(svg.matches("class=\"ok\"").count(), 1);
    assert_eq!(svg.matches("class=\"hover\"").count(), 2);
}

#[test]
fn extreme_bars_can_be_drawn() {
    let draw = |of: &[Bar]| bars(of, &TimeZone::UTC, "x").into_string();
    for svg in [draw(&[]), draw(&[bar(0, 0, 0)]), draw(&[bar(0, u64::MAX, u64::MAX)])] {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.starts_with("<svg"), "{svg}");
    }
    let one = draw(&[bar(0, 7, 0)]);
    assert!(one.contains(r#"x="10%" width="80%""#), "{one}");
}

#[test]
fn lines_are_interrupted_by_gaps() {
    let point = |minute, value| Point { at: at(minute), values: vec![value], title: String::new() };
    let points = [point(0, Some(0.0)), point(1, Some(1.0)), point(2, None), point(3, Some(1.0))];
    let scale = Scale { steps: 4, top: 1.0 };
    assert_eq!(path(&scale, &points, 0), "M12.5 130L37.5 0M87.5 0");
    assert_eq!(path(&scale, &points, 1), "");
    let svg = lines(&points, Unit::Seconds, &TimeZone::UTC, "x").into_string();
    assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
}

#[test]
fn coordinates_are_short() {
    for (value, shown) in
        [(0.0, "0"), (-0.001, "0"), (1.5, "1.5"), (100.0, "100"), (33.333, "33.33")]
    {
        assert_eq!(pixels(value), shown);
    }
}
