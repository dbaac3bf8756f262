//! The audit log cannot be changed, and the tables contain no usable token.

use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::audit::{AuditFilter, NewAuditEntry};
use task_engine_store::token::{NewToken, Role, TokenSecret};
use task_engine_test_harness::{TestServer, connect};

#[tokio::test]
async fn audit_is_append_only() {
    let url = TestServer::shared().create_database().await;
    let client = connect(&url).await;
    for schema in ["task_engine", "elsewhere"] {
        let name = Schema::named(schema).unwrap();
        let store = PgStore::connect_schema(&url, name).await.unwrap();
        store.migrate().await.unwrap();
        let entry = NewAuditEntry::started("ada", "tasks.retry", "1", None, Json::empty_object());
        let id = store.audit(&entry.unwrap()).await.unwrap();
        for harm in [
            format!("UPDATE {schema}.audit SET actor = 'nobody'"),
            format!("UPDATE {schema}.audit SET actor = 'nobody' WHERE false"),
            format!("DELETE FROM {schema}.audit"),
            format!("TRUNCATE {schema}.audit"),
            format!(
                "INSERT INTO {schema}.audit OVERRIDING SYSTEM VALUE
                 SELECT * FROM {schema}.audit ON CONFLICT (id) DO UPDATE SET actor = 'nobody'"
            ),
        ] {
            let refused = client.batch_execute(&harm).await.expect_err(&harm);
            let message = refused.as_db_error().unwrap().message();
            assert!(message.contains("append-only"), "{harm}: {message}");
        }
        let page = store.audit_page(&AuditFilter::newest(10)).await.unwrap();
        assert_eq!((page.len(), page[0].id, page[0].actor.as_str()), (1, id, "ada"));
    }
}

/// By retention, or archived as in the guide.
#[tokio::test]
async fn old_entries_are_pruned() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    client
        .batch_execute(
            "INSERT INTO task_engine.audit (at, actor, action, target, detail, outcome)
             SELECT now() - days * interval '1 day', days::text, 'a', 't', '{}', 'done'
             FROM unnest(ARRAY[500, 400, 91, 89, 1]) WITH ORDINALITY AS each (days, n) ORDER BY n",
        )
        .await
        .unwrap();
    let days = |days: u64| Duration::from_secs(days * 86_400);
    assert_eq!(store.prune_audit(days(450), 10).await, Ok(1));
    let guide = include_str!("../../../docs/dashboard.md");
    let mut blocks = guide.split("```sql\n").skip(1).filter_map(|part| part.split("```").next());
    let archive = blocks.find(|block| block.contains("audit_archive")).unwrap();
    client.batch_execute(archive).await.unwrap();
    let archived = client.query("SELECT actor FROM audit_archive", &[]).await.unwrap();
    assert_eq!(archived.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["400"]);
    assert_eq!(store.prune_audit(days(90), 10).await, Ok(1));
    let left = store.audit_page(&AuditFilter::newest(10)).await.unwrap();
    let left: Vec<_> = left.iter().map(|entry| entry.actor.as_str()).collect();
    assert_eq!(left, ["1", "89"]);
    client.batch_execute("DELETE FROM task_engine.audit").await.expect_err("young entries stay");
}

#[tokio::test]
async fn dump_contains_no_token() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let secret = TokenSecret::generate().unwrap();
    let token = NewToken::new("ada", Role::Admin, secret.hash(), None).unwrap();
    store.add_token(&token).await.unwrap();
    assert!(store.token_by_hash(&secret.hash()).await.unwrap().is_some());

    let client = connect(&url).await;
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'task_engine'";
    let mut dump = String::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: &str = table.get(0);
        let rows = format!("SELECT t::text FROM task_engine.{table} t");
        for row in client.query(&rows, &[]).await.unwrap() {
            dump.push_str(row.get(0));
        }
    }
    let hash: String = secret.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(dump.contains(&hash), "the dump is whole");
    assert!(!dump.contains(&secret.text()[3..]), "neither the token nor its digits");
    // The stored hash is not a valid token: it would be hashed again.
    let forged: TokenSecret = format!("te_{hash}").parse().unwrap();
    assert_eq!(store.token_by_hash(&forged.hash()).await.unwrap(), None);
}
