//! The record of what operators did cannot be rewritten, and the tables are of
//! no use to whoever wants a token.

use task_engine_conformance::TestServer;
use task_engine_model::audit::{AuditFilter, NewAuditEntry};
use task_engine_model::token::{NewToken, Role, Secret};
use task_engine_model::{Json, Store};
use task_engine_postgres::{PgStore, Schema};
use tokio_postgres::NoTls;

#[tokio::test]
async fn the_record_is_only_appended_to() {
    let url = TestServer::shared().create_database().await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    for schema in ["task_engine", "elsewhere"] {
        let name = Schema::named(schema).unwrap();
        let store = PgStore::connect_schema(&url, name).await.unwrap();
        store.migrate().await.unwrap();
        let entry = NewAuditEntry::asked("ada", "tasks.retry", "1", None, Json::empty_object());
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

/// As the guide says; and the guard is back.
#[tokio::test]
async fn the_owner_moves_old_lines_elsewhere() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let entry = NewAuditEntry::asked("ada", "tasks.retry", "1", None, Json::empty_object());
    store.audit(&entry.unwrap()).await.unwrap();
    let guide = include_str!("../../../docs/dashboard.md");
    let mut blocks = guide.split("```sql\n").skip(1).filter_map(|part| part.split("```").next());
    let archive = blocks.find(|block| block.contains("audit_archive")).unwrap();
    let archived = async || {
        let rows = client.query("SELECT actor FROM audit_archive", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    client.batch_execute(archive).await.unwrap();
    assert_eq!(archived().await, Vec::<String>::new(), "a young line stays");
    client.batch_execute(&archive.replace("1 year", "0 days")).await.unwrap();
    assert_eq!(archived().await, ["ada"]);
    assert_eq!(store.audit_page(&AuditFilter::newest(10)).await.unwrap(), []);
    client.batch_execute("DELETE FROM task_engine.audit").await.expect_err("the guard is back");
}

#[tokio::test]
async fn a_dump_has_no_token_in_it() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let secret = Secret::generate().unwrap();
    let token = NewToken::new("ada", Role::Admin, secret.hash(), None).unwrap();
    store.add_token(&token).await.unwrap();
    assert!(store.token_by_hash(&secret.hash()).await.unwrap().is_some());

    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
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
    // What is in it opens no door: it is hashed again on its way in.
    let forged: Secret = format!("te_{hash}").parse().unwrap();
    assert_eq!(store.token_by_hash(&forged.hash()).await.unwrap(), None);
}
