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
mod tests;
