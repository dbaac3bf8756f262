//! Keys derived from the key of the database: the same for all its dashboards.

use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::login::DatabaseKey;
use tokio::sync::OnceCell;

/// Derived at the first use.
pub(crate) struct SecretKeys {
    password: Option<String>,
    derived: OnceCell<DerivedKeys>,
}

pub(crate) struct DerivedKeys {
    /// Signs sessions of the password; `None` without one.
    pub(crate) by_password: Option<[u8; 32]>,
    /// Signs sessions of tokens.
    pub(crate) by_token: [u8; 32],
    /// Hashes requests with an `Idempotency-Key`.
    pub(crate) requests: [u8; 32],
    /// Identifies the key without revealing it.
    pub(crate) name: String,
}

impl SecretKeys {
    pub(crate) fn new(password: Option<String>) -> Self {
        Self { password, derived: OnceCell::new() }
    }

    pub(crate) async fn get(&self, store: &dyn Store) -> Result<&DerivedKeys, StoreError> {
        self.derived
            .get_or_try_init(|| async {
                let key = store.database_key().await?;
                let password = self.password.clone();
                // Argon2 is slow and must not block other requests.
                let derived =
                    tokio::task::spawn_blocking(move || DerivedKeys::of(&key, password.as_deref()));
                derived.await.map_err(|error| StoreError::Unavailable(error.to_string()))
            })
            .await
    }
}

impl DerivedKeys {
    pub(crate) fn of(DatabaseKey(key): &DatabaseKey, password: Option<&str>) -> Self {
        let name = blake3::derive_key("task-engine 2026 name of the database key", key);
        Self {
            by_password: password.map(|password| password_key(key, password)),
            by_token: blake3::derive_key("task-engine 2026 sessions of tokens", key),
            requests: blake3::derive_key("task-engine 2026 hashes of requests", key),
            name: crate::session::to_hex(&name[..4]),
        }
    }
}

/// With a cookie and the key of the database, passwords can be guessed offline.
/// Each guess takes 19 MiB and tens of milliseconds (Argon2id, as OWASP recommends).
fn password_key(salt: &[u8; 32], password: &str) -> [u8; 32] {
    let mut key = [0; 32];
    argon2::Argon2::default()
        .hash_password_into(password.as_bytes(), salt, &mut key)
        .expect("the lengths are allowed, and so are the default parameters");
    blake3::derive_key("task-engine 2026 sessions of the password", &key)
}
