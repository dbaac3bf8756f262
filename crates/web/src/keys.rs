//! Keys made of the key of the database. All dashboards of one database have the
//! same ones, and whoever cannot read it has none.

use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::login::DatabaseKey;
use tokio::sync::OnceCell;

/// Made when they are first needed, and then kept.
pub(crate) struct Keys {
    password: Option<String>,
    made: OnceCell<Made>,
}

pub(crate) struct Made {
    /// Signs sessions that were begun with the password; `None` without one.
    pub(crate) by_password: Option<[u8; 32]>,
    /// Signs sessions that were begun with a token.
    pub(crate) by_token: [u8; 32],
    /// For hashes of requests that have an `Idempotency-Key`.
    pub(crate) requests: [u8; 32],
    /// Tells keys apart, and nothing about them.
    pub(crate) name: String,
}

impl Keys {
    pub(crate) fn new(password: Option<String>) -> Self {
        Self { password, made: OnceCell::new() }
    }

    pub(crate) async fn get(&self, store: &dyn Store) -> Result<&Made, StoreError> {
        self.made
            .get_or_try_init(|| async {
                let key = store.database_key().await?;
                let password = self.password.clone();
                // It takes a while, which must not hold up other requests.
                let made = tokio::task::spawn_blocking(move || Made::of(&key, password.as_deref()));
                made.await.map_err(|error| StoreError::Unavailable(error.to_string()))
            })
            .await
    }
}

impl Made {
    pub(crate) fn of(DatabaseKey(key): &DatabaseKey, password: Option<&str>) -> Self {
        let name = blake3::derive_key("task-engine 2026 name of the database key", key);
        Self {
            by_password: password.map(|password| slow(key, password)),
            by_token: blake3::derive_key("task-engine 2026 sessions of tokens", key),
            requests: blake3::derive_key("task-engine 2026 hashes of requests", key),
            name: crate::session::to_hex(&name[..4]),
        }
    }
}

/// Whoever has a cookie and the key of the database can try passwords, but each
/// try takes 19 MiB and tens of milliseconds (Argon2id, as OWASP recommends).
fn slow(salt: &[u8; 32], password: &str) -> [u8; 32] {
    let mut key = [0; 32];
    argon2::Argon2::default()
        .hash_password_into(password.as_bytes(), salt, &mut key)
        .expect("the lengths are allowed, and so are the default parameters");
    blake3::derive_key("task-engine 2026 sessions of the password", &key)
}
