//! Logins to the dashboard: the key of the database, and the logins that were ended.

use std::fmt;

/// The random key of a database, created with its tables.
///
/// Keyed hashes cannot be checked without it. All dashboards of one database have the same key. It
/// is not exported.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseKey(pub [u8; 32]);

impl fmt::Debug for DatabaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseKey")
    }
}

/// One login, from its start until it is ended or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginId(pub [u8; 16]);
