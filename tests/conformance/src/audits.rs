//! The audit log is complete and in order.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use task_engine_core::json::Json;
use task_engine_core::task::TaskId;
use task_engine_store::audit::{
    AuditEntry, AuditFilter, AuditOutcome, DETAIL_BYTES_MAX, KEPT_MIN, NewAuditEntry,
};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::Fixture;

fn started(actor: &str, target: &str, reason: Option<&str>, detail: &Value) -> NewAuditEntry {
    let detail = Json::encode(detail).expect("JSON");
    NewAuditEntry::started(actor, "tasks.retry", target, reason.map(str::to_owned), detail)
        .expect("an entry")
}

async fn page(store: &dyn Store, before: Option<i64>, limit: u32) -> Vec<AuditEntry> {
    let filter = AuditFilter { before, ..AuditFilter::newest(limit) };
    store.audit_page(&filter).await.expect("audit_page")
}

/// The audit has one entry for the request and one for its result, with their texts
/// unchanged.
pub async fn audit_records_request_and_result(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    assert_eq!(page(store, None, 10).await, []);
    let texts = ["'; DROP TABLE audit; --", "é \u{1F600} \u{202E} {} $1 ?1 %s", &"x".repeat(4000)];
    for text in texts {
        let before =
            json!({"before": {"text": text.get(..20).unwrap_or(text), "n": 1.5}, "ids": [1, 2]});
        let first = started("ada \"é\"", text, Some(&text[..text.len().min(900)]), &before);
        let id = store.audit(&first).await.expect("audit");
        let pending = page(store, None, 1).await;
        assert_eq!((pending[0].id, pending[0].outcome), (id, AuditOutcome::Started));
        assert_eq!(pending[0].of, None);

        let after = Json::encode(&json!({"retried": 2})).expect("JSON");
        for outcome in [AuditOutcome::Done, AuditOutcome::Refused, AuditOutcome::Failed] {
            let second = store.audit(&first.ended(id, outcome, after.clone())).await;
            let second = second.expect("audit");
            // Another handle reads the entry: it was committed.
            let other = Fixture::open(db).await;
            let found = page(&*other.store, None, 1).await.remove(0);
            assert_eq!((found.id, found.of, found.outcome), (second, Some(id), outcome));
            assert!(second > id);
            assert_eq!(found.detail.decode::<Value>().expect("JSON"), json!({"retried": 2}));
            assert_eq!((found.actor.as_str(), found.action.as_str()), ("ada \"é\"", "tasks.retry"));
            assert_eq!((found.target.as_str(), found.reason.as_deref()), (text, first.reason()));
        }
        let started = page(store, Some(id + 1), 1).await.remove(0);
        assert_eq!(started.detail.decode::<Value>().expect("JSON"), before);
        assert_eq!((started.target.as_str(), started.reason.as_deref()), (text, first.reason()));
    }
    let all = page(store, None, 100).await;
    assert!(all.windows(2).all(|two| two[0].id > two[1].id && two[0].at >= two[1].at), "{all:?}");
    let age = Timestamp::now().duration_since(all[0].at).abs();
    assert!(age < SignedDuration::from_mins(5), "by the database's clock: {age}");
}

/// The longest detail is stored in full.
pub async fn longest_audit_detail_is_kept(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut text = "x".repeat(DETAIL_BYTES_MAX - r#"{"a":""}"#.len());
    let entry = started("ada", "", None, &json!({"a": text}));
    fixture.store.audit(&entry).await.expect("audit");
    let found = page(&*fixture.store, None, 1).await.remove(0);
    assert_eq!(found.detail.decode::<Value>().expect("JSON"), json!({"a": text}));
    assert_eq!((found.target.as_str(), found.reason), ("", None));
    text.push('x');
    let long = Json::encode(&json!({"a": text})).expect("JSON");
    assert!(NewAuditEntry::started("ada", "a", "", None, long).is_err());
}

/// Each page begins where the previous one ended, and concurrent writers lose no entry.
pub async fn audit_is_read_in_pages(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let writers = (0..5).map(async |actor| {
        let own = Fixture::open(db).await;
        for n in 0..10 {
            let entry = started(&format!("actor {actor}"), &n.to_string(), None, &json!({}));
            own.store.audit(&entry).await.expect("audit");
        }
    });
    join_all(writers).await;
    let mut seen = Vec::new();
    loop {
        let before = seen.last().map(|entry: &AuditEntry| entry.id);
        let next = page(&*fixture.store, before, 7).await;
        assert!(next.len() <= 7);
        if next.is_empty() {
            break;
        }
        seen.extend(next);
    }
    let ids: BTreeSet<i64> = seen.iter().map(|entry| entry.id).collect();
    assert_eq!((ids.len(), seen.len()), (50, 50));
    for actor in 0..5 {
        let own = seen.iter().rev().filter(|entry| entry.actor == format!("actor {actor}"));
        let targets: Vec<String> = own.map(|entry| entry.target.clone()).collect();
        assert_eq!(targets, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

/// Filters by actor, action, time and task. Each finds both entries of an operation.
pub async fn audit_entries_are_filtered(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    for (actor, action, target) in [
        ("ann", "tasks.retry", "task 7"),
        ("Annabel", "tasks.cancel", "tasks 5, 7, 17"),
        ("bob", "tasks_more", "tasks 70, 17, …"),
        ("bob", "queues.pause", "7"),
    ] {
        let entry = NewAuditEntry::started(actor, action, target, None, Json::empty_object());
        let entry = entry.expect("an entry");
        let id = store.audit(&entry).await.expect("audit");
        let ended = entry.ended(id, AuditOutcome::Done, Json::empty_object());
        store.audit(&ended).await.expect("audit");
    }
    let all = page(store, None, 10).await;
    let (oldest, newest) = (all[7].at, all[0].at);
    let any = AuditFilter::newest(10);
    let text = |text: &str| Some(text.to_owned());
    for (filter, number) in [
        (any.clone(), 8),
        (AuditFilter { actor: text("ann"), ..any.clone() }, 4),
        (AuditFilter { actor: text("%"), ..any.clone() }, 0),
        (AuditFilter { action: text("tasks"), ..any.clone() }, 4),
        (AuditFilter { action: text("tasks.retry"), ..any.clone() }, 2),
        (AuditFilter { action: text("task"), ..any.clone() }, 0),
        (AuditFilter { task: Some(TaskId(7)), ..any.clone() }, 4),
        (AuditFilter { task: Some(TaskId(17)), ..any.clone() }, 4),
        (AuditFilter { task: Some(TaskId(1)), ..any.clone() }, 0),
        (AuditFilter { since: Some(oldest), ..any.clone() }, 8),
        (AuditFilter { until: Some(oldest), ..any.clone() }, 0),
        (AuditFilter { since: Some(newest + SignedDuration::from_secs(1)), ..any.clone() }, 0),
        (AuditFilter { actor: text("ann"), action: text("tasks"), limit: 3, ..any.clone() }, 3),
    ] {
        let found = store.audit_page(&filter).await.expect("audit_page");
        assert_eq!(found.len(), number, "{filter:?}: {found:?}");
    }
}

/// Retention keeps recent entries, whatever age is requested.
pub async fn recent_audit_entries_are_kept(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let store = &*fixture.store;
    store.audit(&started("ada", "1", None, &json!({}))).await.expect("audit");
    assert_eq!(store.prune_audit(KEPT_MIN, 10).await, Ok(0));
    let refused = store.prune_audit(KEPT_MIN - Duration::from_secs(1), 10).await;
    assert!(matches!(&refused, Err(StoreError::InvalidData(why)) if why.contains("90 days")));
    assert_eq!(page(store, None, 10).await.len(), 1);
}
