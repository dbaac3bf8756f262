//! The audit log cannot be changed, and the file contains no usable token.

mod common;

use std::time::Duration;

use common::File;
use task_engine_core::json::Json;
use task_engine_store::audit::{AuditFilter, NewAuditEntry};
use task_engine_store::token::{NewToken, Role, TokenSecret};

#[tokio::test]
async fn audit_is_append_only() {
    let file = File::with_tables().await;
    let store = file.open();
    let entry = NewAuditEntry::started("ada", "tasks.retry", "1", None, Json::empty_object());
    let id = store.audit(&entry.unwrap()).await.unwrap();
    let by_hand = file.connect();
    let replace = "INTO task_engine_audit VALUES (1, 0, 'nobody', 'a', 't', NULL, '{}', 'done', 1)";
    for harm in [
        "UPDATE task_engine_audit SET actor = 'nobody'",
        "UPDATE OR REPLACE task_engine_audit SET id = 7",
        "DELETE FROM task_engine_audit",
        &format!("INSERT OR REPLACE {replace}"),
        &format!("REPLACE {replace}"),
        &format!("INSERT {replace} ON CONFLICT (id) DO UPDATE SET actor = 'nobody'"),
    ] {
        let refused = by_hand.execute(harm, []).expect_err(harm).to_string();
        assert!(refused.contains("append-only"), "{harm}: {refused}");
    }
    let page = store.audit_page(&AuditFilter::newest(10)).await.unwrap();
    assert_eq!((page.len(), page[0].id, page[0].actor.as_str()), (1, id, "ada"));
}

#[tokio::test]
async fn file_contains_no_token() {
    let file = File::with_tables().await;
    let store = file.open();
    let secret = TokenSecret::generate().unwrap();
    let token = NewToken::new("ada", Role::Admin, secret.hash(), None).unwrap();
    store.add_token(&token).await.unwrap();
    assert!(store.token_by_hash(&secret.hash()).await.unwrap().is_some());

    // The file and its write-ahead log.
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(file.path().parent().unwrap()).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let digits = &secret.text()[3..];
    let from_hex = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap();
    assert!(contains(&secret.hash()), "the file is whole");
    assert!(!contains(digits.as_bytes()) && !contains(&(0..32).map(from_hex).collect::<Vec<_>>()));
    // The stored hash is not a valid token: it would be hashed again.
    let hash: String = secret.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let forged: TokenSecret = format!("te_{hash}").parse().unwrap();
    assert_eq!(store.token_by_hash(&forged.hash()).await.unwrap(), None);
}

#[tokio::test]
async fn old_entries_are_pruned() {
    let file = File::with_tables().await;
    let store = file.open();
    let by_hand = file.connect();
    let age = |days: i64| (days * 86_400) * 1_000_000;
    for days in [1, 89, 91, 400] {
        by_hand
            .execute(
                "INSERT INTO task_engine_audit (at, actor, action, target, detail, outcome)
                 VALUES (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 - ?1, ?2, 'a', 't', '{}', 'done')",
                (age(days), days.to_string()),
            )
            .unwrap();
    }
    // Oldest first: entries after a recent one are not removed.
    by_hand.execute("DELETE FROM task_engine_audit WHERE actor = '89'", []).unwrap_err();
    assert_eq!(store.prune_audit(Duration::from_secs(365 * 86_400), 10).await, Ok(1));
    assert_eq!(store.prune_audit(Duration::from_secs(90 * 86_400), 1).await, Ok(0), "in batches");
    assert_eq!(store.prune_audit(Duration::from_secs(90 * 86_400), 10).await, Ok(1));
    let left = store.audit_page(&AuditFilter::newest(10)).await.unwrap();
    let left: Vec<_> = left.iter().map(|entry| entry.actor.as_str()).collect();
    assert_eq!(left, ["89", "1"]);
}
