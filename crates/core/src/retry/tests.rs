use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn default_waits_double_ten_times() {
    let rule = RetryRule::default();
    for n in 0..10 {
        assert_eq!(rule.delay(n, 0.5), Some(MINUTE * 2_u32.pow(n)), "retry {n}");
    }
    assert_eq!(rule.delay(10, 0.5), None);
    let all: Duration = (0..10).filter_map(|n| rule.delay(n, 0.0)).sum();
    assert_eq!(all, MINUTE * 1023);
}

#[test]
fn never_allows_no_retry() {
    assert_eq!(RetryRule::never().delay(0, 0.0), None);
}

#[test]
fn jitter_only_shortens_waits() {
    let rule = RetryRule { jitter: 0.5, ..RetryRule::default() };
    assert_eq!(rule.delay(0, 0.0), Some(MINUTE));
    assert_eq!(rule.delay(0, 1.0), Some(MINUTE / 2));
}

#[test]
fn extreme_rules_do_not_overflow() {
    let rule = RetryRule { maximum: u32::MAX, factor: 1e300, ..RetryRule::default() };
    assert_eq!(rule.delay(u32::MAX - 1, 0.0), Some(DELAY_MAX));
    let rule = RetryRule { factor: f64::NAN, ..RetryRule::default() };
    assert!(rule.delay(3, 0.0).is_some_and(|d| d <= DELAY_MAX));
}

#[test]
fn task_overrides_named_fields_only() {
    let rule =
        RetryRule::default().with(&RetryOverride { maximum: Some(2), ..RetryOverride::default() });
    assert_eq!(rule, RetryRule::times(2));
}

#[test]
fn is_stored_as_readable_json() {
    let text = serde_json::to_string(&RetryRule::every(Duration::from_secs(5), 3)).unwrap();
    assert!(text.contains(r#""first_delay_ms":5000"#), "{text}");
    let back: RetryRule = serde_json::from_str(&text).unwrap();
    assert_eq!(back, RetryRule::every(Duration::from_secs(5), 3));
    let own = RetryOverride::default().first_delay(MINUTE);
    let text = serde_json::to_string(&own).unwrap();
    assert_eq!(text, r#"{"first_delay_ms":60000}"#);
    assert_eq!(serde_json::from_str::<RetryOverride>(&text).unwrap(), own);
    assert!(serde_json::from_str::<RetryOverride>(r#"{"first_delay":1}"#).is_err());
}

#[test]
fn whole_rule_overrides_all() {
    let rule = RetryRule::every(Duration::from_secs(5), 3).jitter(0.5).cap(MINUTE);
    assert_eq!(RetryRule::times(7).with(&rule.into()), rule);
}
