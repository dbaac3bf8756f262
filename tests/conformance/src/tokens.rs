//! Tokens: known by their hash alone, for as long as they are good.

use std::time::Duration;

use futures_util::future::join_all;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::token::{NewToken, Role, TokenRow, TokenSecret};

use crate::TestDatabase;
use crate::fixture::Fixture;
use crate::waiting::wait_for;

fn new(name: &str, role: Role, secret: &TokenSecret, expires_in: Option<Duration>) -> NewToken {
    NewToken::new(name, role, secret.hash(), expires_in).expect("a token")
}

fn secret() -> TokenSecret {
    TokenSecret::generate().expect("random numbers")
}

async fn find(store: &dyn Store, secret: &TokenSecret) -> Option<TokenRow> {
    store.token_by_hash(&secret.hash()).await.expect("token_by_hash")
}

/// A token identifies its user. Its last use is recorded, but not each time.
pub async fn token_is_found_by_hash(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    assert_eq!(store.tokens().await.expect("tokens"), []);
    let mut secrets = Vec::new();
    for (name, role) in [("ada", Role::Viewer), ("'; é \"", Role::Operator), ("c", Role::Admin)] {
        let secret = secret();
        let time = (role == Role::Admin).then_some(Duration::from_secs(90 * 24 * 3600));
        let id = store.add_token(&new(name, role, &secret, time)).await.expect("add_token");
        secrets.push((id, name, role, secret));
    }
    let listed = store.tokens().await.expect("tokens");
    assert!(listed.iter().all(|token| token.last_used_at.is_none() && token.revoked_at.is_none()));
    let other = Fixture::open(db).await;
    for (id, name, role, secret) in &secrets {
        let found = find(&*other.store, secret).await.expect("it is known");
        assert_eq!((found.id, found.name.as_str(), found.role), (*id, *name, *role));
        let used = found.last_used_at.expect("its use is noted");
        assert!(used >= found.created_at, "{found:?}");
        let again = find(store, secret).await.expect("it is known");
        assert_eq!(again.last_used_at, Some(used), "not noted again within a minute");
    }
    let listed = store.tokens().await.expect("tokens");
    let names: Vec<&str> = listed.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, ["c", "'; é \"", "ada"], "newest first");
    assert!(listed.iter().all(|token| token.last_used_at.is_some()));
    assert_eq!(listed[1].expires_at, None);
    let good_for = listed[0].expires_at.expect("a time").duration_since(listed[0].created_at);
    assert_eq!(good_for.as_secs(), 90 * 24 * 3600);
    assert_eq!(find(store, &secret()).await, None);
}

/// A token expires by the database's clock. Its name stays in use until the token is
/// revoked.
pub async fn token_expires(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let (short, long) = (secret(), secret());
    let soon = Some(Duration::from_millis(1));
    store.add_token(&new("short", Role::Admin, &short, soon)).await.expect("add_token");
    let later = Some(Duration::from_secs(3600));
    store.add_token(&new("long", Role::Admin, &long, later)).await.expect("add_token");
    wait_for("it has expired", async || find(store, &short).await.is_none().then_some(())).await;
    assert!(find(store, &long).await.is_some());
    assert_eq!(store.tokens().await.expect("tokens").len(), 2, "it is listed");

    let again = new("short", Role::Admin, &secret(), None);
    let taken = store.add_token(&again).await;
    assert!(matches!(taken, Err(StoreError::Refused(_))), "{taken:?}");
    assert!(store.revoke_token("short").await.expect("revoke_token"));
    store.add_token(&again).await.expect("the name is free");
}

/// A revoked token is no good from then on, and frees its name.
pub async fn revoked_token_is_rejected(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    let (first, second) = (secret(), secret());
    store.add_token(&new("ada", Role::Admin, &first, None)).await.expect("add_token");
    let taken = store.add_token(&new("ada", Role::Viewer, &second, None)).await;
    assert!(
        matches!(&taken, Err(StoreError::Refused(why)) if why.contains("\"ada\"")),
        "{taken:?}"
    );
    for unknown in ["Ada", "", "a\0da", "ada "] {
        assert!(!store.revoke_token(unknown).await.expect("revoke_token"), "{unknown:?}");
    }
    assert!(find(store, &first).await.is_some());
    assert!(store.revoke_token("ada").await.expect("revoke_token"));
    assert!(!store.revoke_token("ada").await.expect("revoke_token"), "it was revoked before");
    assert_eq!(find(store, &first).await, None);

    store.add_token(&new("ada", Role::Viewer, &second, None)).await.expect("add_token");
    assert_eq!(find(store, &second).await.expect("it is known").role, Role::Viewer);
    assert_eq!(find(store, &first).await, None);
    let listed = store.tokens().await.expect("tokens");
    let revoked: Vec<bool> = listed.iter().map(|token| token.revoked_at.is_some()).collect();
    assert_eq!(revoked, [false, true]);
}

/// Of concurrent requests for a name, one succeeds.
pub async fn token_names_are_unique(db: &dyn TestDatabase) {
    let adding = (0..8).map(async |_| {
        let fixture = Fixture::open(db).await;
        let token = new("ada", Role::Viewer, &secret(), None);
        fixture.store.add_token(&token).await
    });
    let added = join_all(adding).await;
    assert_eq!(added.iter().filter(|added| added.is_ok()).count(), 1, "{added:?}");
    assert!(added.iter().all(|added| matches!(added, Ok(_) | Err(StoreError::Refused(_)))));
}
