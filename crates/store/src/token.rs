//! Tokens: credentials for the dashboard and its API.
//!
//! A token is shown once, when it is made. Stores keep a hash of it, so that
//! a reader of the database cannot use one. It is 256 random bits: there is
//! nothing to guess, and a fast hash is enough.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use task_engine_core::ParseError;
use task_engine_core::task::NAME_BYTES_MAX;

/// The prefix of every token, so that secret scanners find leaked ones.
const PREFIX: &str = "te_";
/// The longest lifetime of a token.
pub const EXPIRES_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
/// The time of a token's last use is not written more often than this.
pub const TOUCH_EVERY: Duration = Duration::from_secs(60);

const RANDOM_BYTES: usize = 32;

/// The rights of a user; each role includes the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read.
    Viewer,
    /// Retry, cancel, pause, and so on.
    Operator,
    /// Everything.
    Admin,
}

task_engine_core::enum_tokens!(Role { Viewer = "viewer", Operator = "operator", Admin = "admin" });

impl FromStr for Role {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text).ok_or_else(|| {
            ParseError(format!("no role {text:?}; there are viewer, operator, admin"))
        })
    }
}

/// The hash of a token, as it is stored.
pub type TokenHash = [u8; 32];

/// A token itself.
///
/// It is never shown by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenSecret(String);

impl TokenSecret {
    /// Creates a new one, from the system's random numbers.
    pub fn generate() -> Result<Self, StoreError> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            StoreError::Unavailable(format!("the system has no random numbers: {error}"))
        })?;
        let mut text = PREFIX.to_owned();
        for byte in bytes {
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(Self(text))
    }

    /// Returns the text, to be shown once to its owner.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the hash that is stored.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(te_…)")
    }
}

/// Parses a token that a client has sent.
impl FromStr for TokenSecret {
    type Err = TokenParseError;

    fn from_str(text: &str) -> Result<Self, TokenParseError> {
        let digits = text.strip_prefix(PREFIX).ok_or(TokenParseError)?;
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenParseError)
        }
    }
}

/// The error of a text that is not a token.
///
/// The error does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a token: one is {PREFIX} and 64 digits from 0 to f")]
pub struct TokenParseError;

/// The prefix for users of the command line in the audit log.
pub const TERMINAL: &str = "terminal:";

/// Reserved names of the audit log: the user with the password, a user of an open
/// address, and a user who could not log in.
const RESERVED: [&str; 3] = ["admin", "anybody", "nobody"];

/// A token on its way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    name: String,
    role: Role,
    hash: TokenHash,
    expires_in: Option<Duration>,
}

/// The error of invalid settings of a new token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The name is empty, too long, or has control characters.
    #[error(
        "the name of a token is a text of 1 to {NAME_BYTES_MAX} bytes without control characters, this is {0:?}"
    )]
    Name(String),
    /// The name is reserved: choose another one.
    #[error(
        "a token cannot be named {0:?}: the audit log uses that for users without a token; choose a name that says who uses it"
    )]
    Reserved(String),
    /// The lifetime is zero or longer than 100 years; leave it out for a token that does not
    /// expire.
    #[error("a token expires after some time, and within 100 years; leave it out if it should not")]
    Expires,
}

impl NewToken {
    /// Creates the settings of a token with a name that identifies its user or its purpose.
    pub fn new(
        name: impl Into<String>,
        role: Role,
        hash: TokenHash,
        expires_in: Option<Duration>,
    ) -> Result<Self, InvalidToken> {
        let name = name.into();
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(InvalidToken::Name(name));
        }
        let lower = name.trim().to_lowercase();
        if RESERVED.contains(&lower.as_str()) || lower.starts_with(TERMINAL) {
            return Err(InvalidToken::Reserved(name));
        }
        if expires_in.is_some_and(|time| time.is_zero() || time > EXPIRES_MAX) {
            return Err(InvalidToken::Expires);
        }
        Ok(Self { name, role, hash, expires_in })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the hash that is stored.
    #[must_use]
    pub fn hash(&self) -> &TokenHash {
        &self.hash
    }

    /// Returns its lifetime; `None`: unlimited.
    #[must_use]
    pub fn expires_in(&self) -> Option<Duration> {
        self.expires_in
    }

    /// Returns the error if a token of this name exists.
    #[must_use]
    pub fn name_taken(&self) -> StoreError {
        StoreError::Refused(format!(
            "there is a token named {:?}; choose another name, or revoke that one first",
            self.name
        ))
    }
}

/// A stored token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenRow {
    /// Its number.
    pub id: i64,
    /// Its name, unique among the tokens that are not revoked.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Since when.
    pub created_at: Timestamp,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// When it was used last; up to a minute older than the truth.
    pub last_used_at: Option<Timestamp>,
    /// Since when it is no longer good.
    pub revoked_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_parses_but_is_never_shown() {
        let secret = TokenSecret::generate().unwrap();
        assert_ne!(secret, TokenSecret::generate().unwrap());
        assert_eq!(secret.text().parse(), Ok(secret.clone()));
        assert_eq!(secret.text().len(), 67);
        assert!(!format!("{secret:?}").contains(&secret.text()[3..]));
        let zeros = format!("te_{}", "0".repeat(64));
        // printf te_000… | sha256sum
        let known = "1d976187";
        let hash = zeros.parse::<TokenSecret>().unwrap().hash();
        assert_eq!(format!("{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3]), known);
        for bad in ["", "te_", "te_12", &zeros[1..], &format!("{zeros}0"), &zeros.to_uppercase()] {
            assert_eq!(bad.parse::<TokenSecret>(), Err(TokenParseError), "{bad:?}");
        }
    }

    #[test]
    fn roles_are_ordered() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        assert!("root".parse::<Role>().is_err());
    }

    #[test]
    fn token_fields_are_checked() {
        let new = |name: &str, expires| NewToken::new(name, Role::Viewer, [0; 32], expires);
        assert!(new("grafana", None).is_ok());
        for bad in ["", "a\nb", "a\0", &"x".repeat(201)] {
            assert_eq!(new(bad, None), Err(InvalidToken::Name(bad.to_owned())));
        }
        for bad in ["admin", "Admin ", "anybody", "nobody", "terminal:ada@host"] {
            assert_eq!(new(bad, None), Err(InvalidToken::Reserved(bad.to_owned())));
        }
        assert!(new("administrator", None).is_ok());
        for bad in [Duration::ZERO, Duration::MAX] {
            assert_eq!(new("a", Some(bad)), Err(InvalidToken::Expires));
        }
    }
}
