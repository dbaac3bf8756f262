//! Those who have shown once who they are.
//!
//! A session is a cookie that says who, until when, and by which token, with a
//! keyed hash over it: nothing is kept here, and two servers with the same
//! password know each other's sessions that were begun with it. One that was
//! begun with a token ends with it, because the token is looked up at every
//! request; its key is this server's own. Else whoever has a token, and so a
//! cookie, could try passwords on that cookie, as fast as their machine can.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use task_engine_model::token::Role;

/// What a session cookie says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Seconds since 1970.
    expires: i64,
    /// The hash of the token that it was begun with, in hexadecimal digits.
    pub(crate) token: Option<String>,
}

const LASTS: Duration = Duration::from_secs(12 * 3600);
pub(crate) const MAX_AGE_SECS: u64 = LASTS.as_secs();

/// Makes and reads sessions.
pub(crate) struct Sessions {
    by_password: [u8; 32],
    by_token: [u8; 32],
}

impl Sessions {
    pub(crate) fn new(password: Option<&str>) -> Self {
        let by_password = password.map_or_else(random, |password| {
            blake3::derive_key("task-engine dashboard sessions 2026", password.as_bytes())
        });
        Self { by_password, by_token: random() }
    }

    /// The value of the cookie.
    pub(crate) fn begin(&self, name: String, role: Role, token: Option<String>) -> String {
        let expires = now() + i64::try_from(MAX_AGE_SECS).unwrap_or(i64::MAX);
        let session = Session { name, role, expires, token };
        let text = serde_json::to_vec(&session).expect("texts and numbers are JSON");
        let text = to_hex(&text);
        let mark = blake3::keyed_hash(self.key_of(&session), text.as_bytes());
        format!("{text}.{}", mark.to_hex())
    }

    /// Whose cookie this is, unless it is somebody's invention, or too old.
    pub(crate) fn read(&self, cookie: &str) -> Option<Session> {
        let (text, mark) = cookie.split_once('.')?;
        let session: Session = serde_json::from_slice(&from_hex(text)?).ok()?;
        let expected = blake3::keyed_hash(self.key_of(&session), text.as_bytes());
        // In constant time, as this type compares itself.
        let same = blake3::Hash::from_hex(mark).is_ok_and(|mark| mark == expected);
        (same && session.expires > now()).then_some(session)
    }

    fn key_of(&self, session: &Session) -> &[u8; 32] {
        if session.token.is_some() { &self.by_token } else { &self.by_password }
    }
}

fn random() -> [u8; 32] {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the system has random numbers");
    key
}

/// Of this machine: a session is nothing that the database knows about.
fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Whether two texts are the same, in a time that tells nothing about them.
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

/// Counts what was tried in vain, so that nobody tries for long.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<IpAddr, (u32, Instant)>>);

/// So many in this time, from one address.
const FAILURES_MAX: u32 = 10;
const FAILURES_OVER: Duration = Duration::from_secs(60);
/// More addresses are not remembered: then those of long ago are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// Somebody with one address of IPv6 has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

impl Attempts {
    /// Whether this address must wait.
    pub(crate) fn too_many(&self, from: IpAddr) -> bool {
        let attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts
            .get(&network(from))
            .is_some_and(|(count, since)| *count >= FAILURES_MAX && since.elapsed() < FAILURES_OVER)
    }

    /// Notes a failure. True if it is the one that is too many.
    pub(crate) fn failed(&self, from: IpAddr) -> bool {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= ADDRESSES_MAX {
            attempts.retain(|_, (_, since)| since.elapsed() < FAILURES_OVER);
            if attempts.len() >= ADDRESSES_MAX {
                attempts.clear();
            }
        }
        let (count, since) = attempts.entry(network(from)).or_insert((0, Instant::now()));
        if since.elapsed() >= FAILURES_OVER {
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
    use super::*;

    #[test]
    fn a_session_is_read_by_who_made_it() {
        let sessions = Sessions::new(Some("a long password"));
        let cookie = sessions.begin("ann".into(), Role::Operator, None);
        let read = sessions.read(&cookie).unwrap();
        assert_eq!((read.name.as_str(), read.role), ("ann", Role::Operator));
        assert!(Sessions::new(Some("a long password")).read(&cookie).is_some());
        assert!(Sessions::new(Some("another password")).read(&cookie).is_none());
        assert!(Sessions::new(None).read(&cookie).is_none());
    }

    #[test]
    fn the_session_of_a_token_tells_nothing_about_the_password() {
        let sessions = Sessions::new(Some("a long password"));
        let cookie = sessions.begin("ann".into(), Role::Viewer, Some("00".into()));
        assert!(sessions.read(&cookie).is_some());
        // A guess that is right cannot be told from one that is wrong.
        assert!(Sessions::new(Some("a long password")).read(&cookie).is_none());
        let (text, mark) = cookie.split_once('.').unwrap();
        let own = String::from_utf8(from_hex(text).unwrap()).unwrap().replace("\"00\"", "null");
        assert_eq!(sessions.read(&format!("{}.{mark}", to_hex(own.as_bytes()))), None);
    }

    #[test]
    fn what_was_changed_is_no_session() {
        let sessions = Sessions::new(None);
        let cookie = sessions.begin("ann".into(), Role::Viewer, None);
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
            assert_eq!(sessions.read(&forged), None, "{forged}");
        }
    }

    #[test]
    fn nobody_tries_for_long() {
        let attempts = Attempts::default();
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let told = (0..20).filter(|_| attempts.failed(one)).count();
        assert_eq!(told, 1);
        assert!(attempts.too_many(one) && !attempts.too_many(other));
        attempts.succeeded(one);
        assert!(!attempts.too_many(one));
    }

    #[test]
    fn a_network_is_one_address() {
        let attempts = Attempts::default();
        for host in 0..10 {
            attempts.failed(format!("2001:db8:1:2::{host}").parse().unwrap());
            attempts.failed(format!("::ffff:10.0.0.{host}").parse().unwrap());
        }
        let waits = |from: &str| attempts.too_many(from.parse().unwrap());
        assert!(waits("2001:db8:1:2:ffff::1") && !waits("2001:db8:1:3::1"));
        assert!(!waits("10.0.0.1") && !waits("::ffff:10.0.0.1"));
    }
}
