//! The plans of the hot statements, prepared on empty tables and kept, as
//! engines do: none of them may read a big table from end to end.

use task_engine_conformance::TestServer;
use task_engine_model::Store;
use task_engine_postgres::PgStore;
use tokio_postgres::{Client, NoTls};

/// What `connection.rs` sets on every connection.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

async fn tables() -> Client {
    let url = TestServer::shared().create_database().await;
    PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.unwrap();
    client
}

async fn plan(client: &Client, name: &str, statement: &str, arguments: &str) -> String {
    let text = format!("PREPARE {name} AS {statement}");
    client.batch_execute(&text).await.unwrap();
    let explain = format!("EXPLAIN EXECUTE {name}({arguments})");
    let rows = client.query(&explain, &[]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// Every scan of these tables is led by a key: a full scan of an index is no
/// better than one of the table.
fn assert_by_keys(plan: &str, tables: &[&str]) {
    let lines: Vec<&str> = plan.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        let of_table = tables.iter().any(|table| line.contains(&format!(" on {table} ")));
        if line.contains("Scan") && of_table {
            let condition = lines.get(n + 1).map_or("", |next| next.trim());
            let by_key = ["Index Cond", "Recheck Cond", "TID Cond"];
            assert!(by_key.iter().any(|key| condition.starts_with(key)), "{line} in:\n{plan}");
        }
    }
}

#[tokio::test]
async fn the_look_probes_lanes() {
    let client = tables().await;
    let plan = plan(&client, "look", include_str!("../sql/look.sql"), "'{a}', '{b}'").await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

#[tokio::test]
async fn another_look_starts_at_positions() {
    let client = tables().await;
    let arguments = "'{a}', '{b}', '{0}', '{now}', '{0}'";
    let plan = plan(&client, "again", include_str!("../sql/look_again.sql"), arguments).await;
    assert_by_keys(&plan, &["waiting_tasks"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
}

fn claim(picked: &str) -> String {
    include_str!("../sql/claim.sql").replace("/* picked */", picked)
}

#[tokio::test]
async fn the_claim_reads_one_lane() {
    let client = tables().await;
    let statement = claim(include_str!("../sql/pick_lane.sql"));
    let plan = plan(&client, "claim", &statement, "1, 1, 10, 'a', 'b', '-infinity', 0, 0").await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(!plan.contains("Sort Key: w."), "the index has the order:\n{plan}");
}

#[tokio::test]
async fn the_claim_merges_lanes() {
    let client = tables().await;
    let statement = claim(include_str!("../sql/pick_lanes.sql"));
    let arguments = "1, 1, 10, '{a}', '{b}', '{-infinity}', '{0}', 0, 20";
    let plan = plan(&client, "claim", &statement, arguments).await;
    assert_by_keys(&plan, &["waiting_tasks", "created_tasks", "claims"]);
    assert!(plan.contains("waiting_tasks_by_lane"), "{plan}");
    assert!(plan.contains("Tid Scan on waiting_tasks"), "{plan}");
    assert!(!plan.contains("Hash Join"), "{plan}");
}

#[tokio::test]
async fn the_record_reads_by_keys() {
    let client = tables().await;
    let arguments = "'{1}','{1}','{0}','{1}','{1}','{0}','{0}','{0}','{0}','{0}','{NULL}','{NULL}','{NULL}','{}'";
    let plan = plan(&client, "record", include_str!("../sql/record.sql"), arguments).await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions", "claims"]);
}

#[tokio::test]
async fn a_heartbeat_does_not_read_history() {
    let client = tables().await;
    let plan = plan(&client, "beat", include_str!("../sql/heartbeat.sql"), "1").await;
    assert_by_keys(&plan, &["created_tasks", "ended_executions"]);
    assert!(!plan.contains("Seq Scan on waiting_tasks"), "{plan}");
}

#[tokio::test]
async fn only_due_schedules_are_read() {
    let client = tables().await;
    let plan = plan(&client, "due", include_str!("../sql/schedules_due.sql"), "100").await;
    assert_by_keys(&plan, &["schedules", "created_tasks", "ended_executions", "waiting_tasks"]);
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
    assert!(!plan.contains("Sort"), "the index has the order:\n{plan}");
    let beat = include_str!("../sql/heartbeat.sql");
    let plan = self::plan(&client, "beat", beat, "1").await;
    assert!(plan.contains("schedules_by_next_at"), "{plan}");
}

#[tokio::test]
async fn schedules_are_fired_by_keys() {
    let client = tables().await;
    let lock = include_str!("../sql/schedules_lock.sql");
    let lock = plan(&client, "lock", lock, "'{1}', '{1}', '{NULL}'").await;
    assert_by_keys(&lock, &["schedules", "created_tasks", "ended_executions"]);
    let fire = include_str!("../sql/schedules_fire.sql");
    let fire =
        plan(&client, "fire", fire, "'{1}', '{now}', '{now}', '{1}', '{1}', '{now}', '{1}', 99")
            .await;
    assert_by_keys(&fire, &["schedules", "fired_slots"]);
}
