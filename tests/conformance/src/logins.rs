//! The tables for logins to the dashboard.

use std::time::Duration;

use task_engine_store::login::LoginId;

use crate::TestDatabase;
use crate::fixture::Fixture;
use crate::waiting::wait_for;

/// All handles read the same key, and no other database has it.
pub async fn database_has_one_key(db: &dyn TestDatabase) {
    let (one, other) = (Fixture::open(db).await, Fixture::open(db).await);
    let key = one.store.database_key().await.expect("database_key");
    assert_eq!(other.store.database_key().await.expect("database_key"), key);
    one.store.migrate().await.expect("migrate");
    assert_eq!(one.store.database_key().await.expect("database_key"), key);
    assert!(key.0.iter().collect::<std::collections::BTreeSet<_>>().len() > 8, "it is random");
    assert!(!format!("{key:?}").contains(&key.0[0].to_string()), "and not in a log");
}

/// An ended login is known to all, and forgotten when it would have expired.
pub async fn ended_login_stays_ended(db: &dyn TestDatabase) {
    let (one, other) = (Fixture::open(db).await, Fixture::open(db).await);
    let (short, long) = (LoginId([1; 16]), LoginId([2; 16]));
    let ended = async |login| other.store.is_login_ended(login).await.expect("is_login_ended");
    assert!(!ended(short).await && !ended(long).await);
    for _ in 0..2 {
        one.store.end_login(long, Duration::from_secs(3600)).await.expect("end_login");
    }
    one.store.end_login(short, Duration::from_millis(1)).await.expect("end_login");
    assert!(ended(long).await && !ended(LoginId([3; 16])).await);
    wait_for("the one that has expired is forgotten", async || {
        one.store.end_login(LoginId([4; 16]), Duration::from_secs(60)).await.expect("end_login");
        (!ended(short).await).then_some(())
    })
    .await;
    assert!(ended(long).await);
}
