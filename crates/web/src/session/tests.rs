use task_engine_store::login::DatabaseKey;

use super::*;

fn keys(database: u8, password: Option<&str>) -> DerivedKeys {
    DerivedKeys::of(&DatabaseKey([database; 32]), password)
}

#[test]
fn sessions_need_password_and_database() {
    let own = keys(1, Some("a long password"));
    let cookie = LoginSession::new("ann".into(), Role::Operator, None).cookie(&own).unwrap();
    let read = LoginSession::read(&cookie, &own).unwrap();
    assert_eq!((read.name.as_str(), read.role), ("ann", Role::Operator));
    assert!(LoginSession::read(&cookie, &keys(1, Some("a long password"))).is_some());
    assert!(LoginSession::read(&cookie, &keys(1, Some("another password"))).is_none());
    assert!(LoginSession::read(&cookie, &keys(2, Some("a long password"))).is_none());
    assert!(LoginSession::read(&cookie, &keys(1, None)).is_none());
    assert_eq!(LoginSession::new("ann".into(), Role::Admin, None).cookie(&keys(1, None)), None);
}

#[test]
fn token_sessions_are_independent_of_passwords() {
    let own = keys(1, Some("a long password"));
    let session = LoginSession::new("ann".into(), Role::Viewer, Some("00".into()));
    let cookie = session.cookie(&own).unwrap();
    // A correct guess looks like a wrong one.
    assert_eq!(LoginSession::read(&cookie, &keys(1, Some("another password"))), Some(session));
    let (text, mark) = cookie.split_once('.').unwrap();
    let changed = String::from_utf8(from_hex(text).unwrap()).unwrap().replace("\"00\"", "null");
    let forged = format!("{}.{mark}", to_hex(changed.as_bytes()));
    assert_eq!(LoginSession::read(&forged, &own), None);
}

#[test]
fn changed_cookies_are_refused() {
    let own = keys(1, Some("a long password"));
    let cookie = LoginSession::new("ann".into(), Role::Viewer, None).cookie(&own).unwrap();
    let (text, mark) = cookie.split_once('.').unwrap();
    let higher = String::from_utf8(from_hex(text).unwrap()).unwrap().replace("viewer", "admin");
    for forged in [
        format!("{}.{mark}", to_hex(higher.as_bytes())),
        format!("{text}."),
        text.to_owned(),
        format!("{text}.{}", "0".repeat(64)),
        "é.é".to_owned(),
        String::new(),
    ] {
        assert_eq!(LoginSession::read(&forged, &own), None, "{forged}");
    }
}

#[test]
fn failures_are_limited_by_address() {
    let failures = FailureLimiter::default();
    let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let reached = (0..20).filter(|_| failures.failed(one)).count();
    assert_eq!(reached, 1);
    assert!(failures.too_many(one) && !failures.too_many(other));
    failures.succeeded(one);
    assert!(!failures.too_many(one));
}

#[test]
fn ipv6_network_counts_once() {
    let failures = FailureLimiter::default();
    for host in 0..10 {
        failures.failed(format!("2001:db8:1:2::{host}").parse().unwrap());
        failures.failed(format!("::ffff:10.0.0.{host}").parse().unwrap());
    }
    let waits = |from: &str| failures.too_many(from.parse().unwrap());
    assert!(waits("2001:db8:1:2:ffff::1") && !waits("2001:db8:1:3::1"));
    assert!(!waits("10.0.0.1") && !waits("::ffff:10.0.0.1"));
}
