//! The plans of the hot statements, prepared on empty tables and kept, as
//! engines do: none of them may read a big table from end to end.

mod durable;
mod engine;
mod flows;
mod limits;
mod readers;
mod views;

use task_engine_postgres::PgStore;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

/// The settings of `connection.rs`, which are set on every connection.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

async fn tables() -> Client {
    let url = TestServer::shared().create_database().await;
    PgStore::connect(&url).await.unwrap().migrate().await.unwrap();
    let client = connect(&url).await;
    client.batch_execute(SETTINGS).await.unwrap();
    client
}

async fn plan(client: &Client, name: &str, statement: &str, arguments: &str) -> String {
    let text = format!("PREPARE {name} AS {statement}");
    client.batch_execute(&text).await.unwrap();
    let arguments = if arguments.is_empty() { String::new() } else { format!("({arguments})") };
    let explain = format!("EXPLAIN EXECUTE {name}{arguments}");
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

/// Pages that a statement touches, as the server counts them.
async fn pages(client: &Client, name: &str, arguments: &str) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE {name}({arguments})");
    let rows = client.query(&explain, &[]).await.unwrap();
    // The first count is that of the whole statement; none: no page was touched.
    let first = rows.iter().map(|row| row.get::<_, &str>(0)).find(|line| line.contains("Buffers:"));
    let counts = first.unwrap_or_default().split([' ', '=']);
    counts.filter_map(|word| word.parse::<u64>().ok()).sum()
}
