//! Sessions of logged-in users.
//!
//! A session is a cookie with a name, an expiry and the hash of a token, signed
//! with a keyed hash. Servers store nothing, and all servers of one database (with
//! the same password) accept each other's sessions. A session of a token ends with
//! the token, which is looked up at every request. Its key does not depend on the
//! password: else a user with a token could guess passwords against the own cookie.
//! Logging out ends a session on all servers: its id is stored until it expires.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use task_engine_store::login::LoginId;
use task_engine_store::token::Role;

use crate::keys::DerivedKeys;

/// The content of a session cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoginSession {
    /// In hexadecimal digits.
    id: String,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Seconds since 1970.
    expires: i64,
    /// The hash of its token, in hexadecimal digits.
    pub(crate) token: Option<String>,
}

const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);
pub(crate) const MAX_AGE_SECS: u64 = SESSION_TTL.as_secs();

impl LoginSession {
    pub(crate) fn new(name: String, role: Role, token: Option<String>) -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the system has random numbers");
        let expires = now() + i64::try_from(MAX_AGE_SECS).unwrap_or(i64::MAX);
        Self { id: to_hex(&id), name, role, expires, token }
    }

    /// The value of the cookie; `None` for a session of a password that is not set.
    pub(crate) fn cookie(&self, keys: &DerivedKeys) -> Option<String> {
        let text = serde_json::to_vec(self).expect("texts and numbers are JSON");
        let text = to_hex(&text);
        let mark = blake3::keyed_hash(self.key(keys)?, text.as_bytes());
        Some(format!("{text}.{}", mark.to_hex()))
    }

    /// The session of a cookie, unless it is forged or expired.
    pub(crate) fn read(cookie: &str, keys: &DerivedKeys) -> Option<Self> {
        let (text, mark) = cookie.split_once('.')?;
        let session: Self = serde_json::from_slice(&from_hex(text)?).ok()?;
        let expected = blake3::keyed_hash(session.key(keys)?, text.as_bytes());
        // This type compares in constant time.
        let same = blake3::Hash::from_hex(mark).is_ok_and(|mark| mark == expected);
        (same && session.expires > now()).then_some(session)
    }

    fn key<'a>(&self, keys: &'a DerivedKeys) -> Option<&'a [u8; 32]> {
        if self.token.is_some() { Some(&keys.by_token) } else { keys.by_password.as_ref() }
    }

    pub(crate) fn id(&self) -> Option<LoginId> {
        from_hex(&self.id)?.try_into().ok().map(LoginId)
    }

    /// The time until it expires.
    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.expires - now()).unwrap_or(0))
    }
}

/// By the clock of this machine: the database does not know sessions.
fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Compares two texts in constant time.
pub(crate) fn same(one: &str, other: &str) -> bool {
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Limits failed logins by address.
#[derive(Default)]
pub(crate) struct FailureLimiter(Mutex<HashMap<IpAddr, (u32, Instant)>>);

/// Failures per window and address.
const FAILURES_MAX: u32 = 10;
const FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Above this, addresses with old failures are removed.
const ADDRESSES_MAX: usize = 10_000;

/// A client with one IPv6 address usually has 2^64 of them.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

impl FailureLimiter {
    /// Whether this address must wait.
    pub(crate) fn too_many(&self, from: IpAddr) -> bool {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&network(from)).is_some_and(|(count, since)| {
            *count >= FAILURES_MAX && since.elapsed() < FAILURES_WINDOW
        })
    }

    /// Records a failure. True if it reaches the limit.
    pub(crate) fn failed(&self, from: IpAddr) -> bool {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES_MAX {
            failures.retain(|_, (_, since)| since.elapsed() < FAILURES_WINDOW);
            if failures.len() >= ADDRESSES_MAX {
                failures.clear();
            }
        }
        let (count, since) = failures.entry(network(from)).or_insert((0, Instant::now()));
        if since.elapsed() >= FAILURES_WINDOW {
            (*count, *since) = (0, Instant::now());
        }
        *count += 1;
        *count == FAILURES_MAX
    }

    pub(crate) fn succeeded(&self, from: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&network(from));
    }
}

#[cfg(test)]
mod tests {
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
}
