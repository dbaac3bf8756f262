//! What logins to the dashboard need of the database: a key, and which of them
//! have been ended.

use std::fmt;

/// A random key that every database has of its own, made with its tables. Hashes
/// made with it mean nothing without it, and several dashboards of
/// one database have the same one. It does not move with an export.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseKey(pub [u8; 32]);

impl fmt::Debug for DatabaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseKey")
    }
}

/// One login, from its begin until it is ended or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginId(pub [u8; 16]);
