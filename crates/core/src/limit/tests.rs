//! Tests of keys and of the decision of a claim.

use std::time::Duration;

use jiff::SignedDuration;

use super::*;
use crate::json::Json;
use crate::task::TaskId;

fn hash(text: &str) -> String {
    format!("{}", text.len())
}

fn state(options: LimitOptions, running: usize) -> KeyState {
    KeyState { options: Some(options), running, ..KeyState::default() }
}

fn lane(keys: &[usize]) -> LaneLimits {
    LaneLimits { keys: keys.to_vec(), holder: None }
}

fn tasks(grants: &Grants) -> Vec<(usize, usize)> {
    grants.lanes.iter().map(|grant| (grant.lane, grant.tasks)).collect()
}

#[test]
fn grants_no_more_than_max() {
    let keys = [state(LimitOptions::max(3), 1), state(LimitOptions::max(3), 3)];
    let grants = grant(10, &[lane(&[0]), lane(&[1])], &keys);
    assert_eq!(tasks(&grants), [(0, 2)]);
    assert_eq!(grants.next_in, None);
}

#[test]
fn lanes_share_common_limit() {
    let keys =
        [state(LimitOptions::max(5), 0), state(LimitOptions::max(2), 0), KeyState::default()];
    let grants = grant(10, &[lane(&[0, 1]), lane(&[0, 2])], &keys);
    assert_eq!(tasks(&grants), [(0, 2), (1, 3)]);
}

#[test]
fn lanes_get_equal_shares() {
    let grants = grant(9, &[lane(&[]), lane(&[]), lane(&[])], &[]);
    assert_eq!(tasks(&grants), [(0, 3), (1, 3), (2, 3)]);
    let keys = [KeyState { weight: 2, ..KeyState::default() }];
    assert_eq!(tasks(&grant(9, &[lane(&[0]), lane(&[])], &keys)), [(0, 6), (1, 3)]);
    assert_eq!(tasks(&grant(1, &[lane(&[]), lane(&[])], &[])), [(0, 1)]);
}

#[test]
fn rate_counts_every_window() {
    let secs = SignedDuration::from_secs;
    let rate = LimitOptions::rate(Rate::new(3, Duration::from_secs(10)));
    let mut key = KeyState { total: 3, ..state(rate, 0) };
    key.starts =
        vec![RecentStart { total: 1, ago: secs(12) }, RecentStart { total: 3, ago: secs(4) }];
    let grants = grant(10, &[lane(&[0])], std::slice::from_ref(&key));
    assert_eq!(tasks(&grants), [(0, 1)]);
    // Also one that may still come.
    for (ago, left) in [(9, 1), (0, 10), (-2, 12)] {
        key.starts[0].ago = secs(ago);
        let grants = grant(10, &[lane(&[0])], std::slice::from_ref(&key));
        let left = Some(Duration::from_secs(left));
        assert_eq!((tasks(&grants), grants.next_in), (vec![], left));
    }
}

#[test]
fn one_claim_respects_rate() {
    let key = state(LimitOptions::rate(Rate::new(2, Duration::from_secs(60))), 0);
    assert_eq!(tasks(&grant(20, &[lane(&[0])], &[key])), [(0, 2)]);
}

#[test]
fn even_rate_spaces_starts() {
    let rate = Rate::new(10, Duration::from_secs(1)).even();
    let mut key = state(LimitOptions::rate(rate), 0);
    assert_eq!(key.allowed(5), 1);
    key.total = 1;
    key.last_claim = Some(SignedDuration::from_millis(40));
    assert_eq!(key.wait(), Some(LaneWait::For(Duration::from_millis(60))));
}

#[test]
fn order_lets_only_holder_start() {
    let key = KeyState { held_by: Some(TaskId(7)), ..state(LimitOptions::in_order(), 0) };
    let other = LaneLimits { keys: vec![0], holder: None };
    let own = LaneLimits { keys: vec![0], holder: Some(TaskId(7)) };
    let grants = grant(10, &[other, own], std::slice::from_ref(&key));
    assert_eq!(grants.lanes, [Grant { lane: 1, tasks: 1, only: Some(TaskId(7)) }]);
    let running = KeyState { running: 1, ..key };
    assert_eq!(grant(10, &[lane(&[0])], &[running]), Grants::default());
}

#[test]
fn closed_key_starts_nothing() {
    let closed = Some(Duration::from_secs(5));
    let key = KeyState { closed_for: closed, ..state(LimitOptions::max(1), 0) };
    let grants = grant(10, &[lane(&[0])], &[key]);
    assert_eq!((tasks(&grants), grants.next_in), (vec![], closed));
}

#[test]
fn removed_limit_does_not_count() {
    assert_eq!(tasks(&grant(4, &[lane(&[0])], &[KeyState::default()])), [(0, 4)]);
}

#[test]
fn key_is_text_of_parameter() {
    let limit = Limit::of_class("l", "sync", LimitOptions::max(1).key("customer")).unwrap();
    let key = |parameters: &str, context: &str| {
        let json = |text: &str| Json::parse(text).unwrap();
        limit_key(&limit, &json(parameters), &json(context), hash)
    };
    assert_eq!(key(r#"{"customer": "acme"}"#, "{}"), "acme");
    assert_eq!(key(r#"{"customer": 7}"#, "{}"), "7");
    assert_eq!(key(r#"{"customer": true}"#, "{}"), "true");
    assert_eq!(key(r#"{"customer": null}"#, "{}"), "");
    assert_eq!(key("{}", "{}"), "");
    assert_eq!(key(r#"{"customer": [1]}"#, "{}"), "hash:3");
    assert_eq!(key(&format!(r#"{{"customer": "{}"}}"#, "x".repeat(201)), "{}"), "hash:201");
    assert_eq!(key(r#"{"customer": "acme"}"#, r#"{"limits": {"l": "b"}}"#), "b");
}

#[test]
fn lane_key_has_all_limits_of_task() {
    let limits = [
        (LimitId(5), Limit::of_queue("q", "mail", LimitOptions::max(1)).unwrap()),
        (LimitId(3), Limit::of_class("c", "sync", LimitOptions::max(1).key("a")).unwrap()),
        (LimitId(9), Limit::named("n", LimitOptions::max(1)).unwrap()),
    ];
    let json = |text: &str| Json::parse(text).unwrap();
    let of = |queue: &str, context: &str| {
        lane_key("sync", queue, &json(r#"{"a": 1}"#), &json(context), &limits, hash)
    };
    assert_eq!(of("mail", "{}").to_text(), r#"[[3,"1"],[5,""]]"#);
    assert_eq!(of("other", r#"{"limits": {"n": "k"}}"#).to_text(), r#"[[3,"1"],[9,"k"]]"#);
    let known = LaneKey::parse(r#"[[3, "1"]]"#).unwrap();
    assert!(known.is_current("sync", "other", &limits));
    assert!(!known.is_current("sync", "mail", &limits));
}

#[test]
fn invalid_limits_are_refused() {
    let of = |options| Limit::of_class("l", "sync", options);
    assert!(matches!(of(LimitOptions::max(0)), Err(InvalidLimit::Max { max: 0, .. })));
    assert!(matches!(of(LimitOptions::max(10_001)), Err(InvalidLimit::Max { .. })));
    assert!(matches!(of(LimitOptions::default()), Err(InvalidLimit::Empty { .. })));
    let rate = LimitOptions::rate(Rate::new(0, Duration::from_secs(1)));
    assert!(matches!(of(rate), Err(InvalidLimit::Rate { .. })));
    let order = LimitOptions { max: Some(2), ..LimitOptions::in_order() };
    assert!(matches!(of(order), Err(InvalidLimit::OrderWithMax { .. })));
    assert!(matches!(of(LimitOptions::max(1).key("")), Err(InvalidLimit::Key { .. })));
    assert!(matches!(of(LimitOptions::max(1).weight("a", 2)), Err(InvalidLimit::Weight { .. })));
    assert!(of(LimitOptions::fair("tenant").weight("a", 2)).is_ok());
}

#[test]
fn declared_limits_have_unique_names() {
    let of_class = |options: LimitOptions| ClassLimit { name: None, options }.of_class("sync");
    let rate = Rate::new(5, Duration::from_secs(1));
    let limits = [
        of_class(LimitOptions::max(2).key("customer")),
        of_class(LimitOptions::rate(rate)),
        of_class(LimitOptions::in_order()),
    ];
    let names: Vec<_> = limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["sync", "sync.rate", "sync.order"]);
    assert_eq!(check_declared(&limits), Ok(()));
    let fair = of_class(LimitOptions::fair("tenant"));
    assert_eq!(fair.name, "sync.fair");
    let many = [&limits[..], &[fair]].concat();
    assert!(matches!(check_declared(&many), Err(InvalidLimit::TooMany { count: 4, .. })));
    let twice = [limits[0].clone(), limits[0].clone()];
    assert!(matches!(check_declared(&twice), Err(InvalidLimit::Duplicate { .. })));
}

#[test]
fn options_have_text() {
    let rate = Rate::new(100, Duration::from_secs(1)).even();
    let options = LimitOptions::max(2).and_rate(rate).key("customer").weight("a", 2);
    let text = "max 2, rate 100 per 1 s evenly, key \"customer\", 1 weight";
    assert_eq!(options.to_string(), text);
    assert_eq!(LimitOptions::in_order().to_string(), "in order");
}

#[test]
fn secret_key_is_found() {
    let options = LimitOptions::max(1).key("card");
    assert!(options.has_secret_key(&["card.number"]));
    assert!(options.has_secret_key(&["*"]));
    assert!(!options.has_secret_key(&["password"]));
    assert!(!LimitOptions::max(1).has_secret_key(&["*"]));
}

/// Claims at random times, each of which starts its attempts at any moment until its guard is
/// over: no window of real starts contains more than the rate allows.
#[test]
fn no_window_exceeds_rate() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..50 {
        let (max, per_us) = (random.u32(1..20), random.u64(100..5_000));
        let rate = Rate::new(max, Duration::from_micros(per_us));
        let (mut now, mut total) = (0_u64, 0_i64);
        let mut claims: Vec<(i64, u64)> = Vec::new();
        let mut starts: Vec<u64> = Vec::new();
        for _ in 0..400 {
            now += random.u64(0..300);
            let first = total + 1 - i64::from(max);
            let recent = claims.iter().filter(|(number, _)| *number >= first);
            let ago =
                |until: u64| SignedDuration::from_micros(now.cast_signed() - until.cast_signed());
            let mut key = KeyState { total, ..state(LimitOptions::rate(rate), 0) };
            key.starts = recent
                .map(|(number, until)| RecentStart { total: *number, ago: ago(*until) })
                .collect();
            let granted = key.allowed(random.usize(1..30));
            if granted > 0 {
                let guard = random.u64(1..50);
                total += i64::try_from(granted).unwrap();
                let until = claims.last().map_or(0, |(_, until)| *until).max(now + guard);
                claims.push((total, until));
                starts.extend((0..granted).map(|_| now + random.u64(0..guard)));
            }
        }
        starts.sort_unstable();
        let too_close = starts.windows(max as usize + 1).find(|w| w[w.len() - 1] - w[0] < per_us);
        assert_eq!(too_close, None, "{rate:?}");
        assert!(starts.len() > max as usize, "{rate:?}");
    }
}
