//! Compares the speed of the store with plain SQLite: drains tasks in batches, in
//! alternation with a program that writes the same rows in the same batches and knows
//! them before it begins.
//!
//! `cargo run --release -p task-engine-sqlite --example drain -- [TASKS] [BATCH] [REPEATS]`

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use task_engine_core::attempt::RunSpan;
use task_engine_core::attempt::{AttemptRecord, NextState};
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::NewInstance;
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_sqlite::SqliteStore;
use task_engine_store::claim::ClaimRest;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tasks: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let batch: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let mut ratios = Vec::new();
    for _ in 0..repeats {
        let folder = tempfile::tempdir()?;
        let store = filled(&folder.path().join("store.db"), tasks, batch).await?;
        let began = Instant::now();
        drain(&store, batch).await?;
        let ours = print_rate("claimed and recorded", tasks, began);

        let file = folder.path().join("plain.db");
        drop(filled(&file, tasks, batch).await?);
        let connection = Connection::open(&file)?;
        let began = Instant::now();
        write_the_same(&connection, batch)?;
        ratios.push(ours / print_rate("the same rows, plain", tasks, began));
    }
    ratios.sort_by(f64::total_cmp);
    println!("{:>20}: {:.2} of plain SQLite", "median", ratios[ratios.len() / 2]);
    Ok(())
}

async fn filled(
    file: &Path,
    tasks: usize,
    batch: usize,
) -> Result<SqliteStore, Box<dyn std::error::Error>> {
    let store = SqliteStore::open(file)?;
    store.migrate().await?;
    let task = NewTask::new("work", Json::parse(r#"{"to":"ada@example.org"}"#)?)?;
    let many = vec![task; batch];
    for _ in 0..tasks.div_ceil(batch) {
        store.create(&many).await?;
    }
    Ok(store)
}

/// Only the writes of a drain: one transaction deletes a batch from the queue and inserts
/// the claim, one ends its attempts and removes the claim.
fn write_the_same(db: &Connection, batch: usize) -> rusqlite::Result<()> {
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    let ids: Vec<i64> = db
        .prepare("SELECT task_id FROM task_engine_waiting_tasks")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut wait_no_more =
        db.prepare("DELETE FROM task_engine_waiting_tasks WHERE task_id = ?1")?;
    let mut claim = db.prepare(
        "INSERT INTO task_engine_claims (id, instance_id, claimed_at, attempts) VALUES (?1, 1, 0, ?2)",
    )?;
    let mut end = db.prepare(
        "INSERT INTO task_engine_ended_executions
           (task_id, attempt, retry_number, claim_id, instance_id, worker, started_at, stopped_at, result, ends_task)
         VALUES (?1, 1, 0, ?2, 1, 0, ?3, ?3, 'null', 'stopped')",
    )?;
    let mut unclaim = db.prepare("DELETE FROM task_engine_claims WHERE id = ?1")?;
    for (claim_id, ids) in (1_i64 << 40..).zip(ids.chunks(batch)) {
        let attempts: Vec<_> = ids.iter().map(|id| (id, 1, 0)).collect();
        let attempts = serde_json::json!(attempts).to_string();
        db.execute_batch("BEGIN IMMEDIATE")?;
        for id in ids {
            wait_no_more.execute([id])?;
        }
        claim.execute(params![claim_id, attempts])?;
        db.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
        for id in ids {
            end.execute(params![id, claim_id, 1_800_000_000_000_000_i64])?;
        }
        unclaim.execute([claim_id])?;
        db.execute_batch("COMMIT")?;
    }
    Ok(())
}

async fn drain(store: &SqliteStore, batch: usize) -> Result<(), Box<dyn std::error::Error>> {
    let new = NewInstance {
        name: "drain".to_owned(),
        host: "here".to_owned(),
        pid: 1,
        process: None,
        version: String::new(),
        workers: 1,
        lease: Duration::from_secs(30),
        queues: vec!["default".to_owned()],
        pools: Vec::new(),
        classes: BTreeMap::new(),
    };
    let instance_id = store.register(&new).await?;
    let mut claimer = store.claimer(instance_id, Lanes::new(new.queues, vec!["work".to_owned()]));
    let ids = ClaimIds::new(instance_id);
    let mut finished = Vec::new();
    loop {
        let claim_id = ids.take();
        let claim = claimer.claim(claim_id, batch).await?;
        let endings: Vec<_> = claim
            .tasks
            .iter()
            .map(|task| AttemptRecord {
                id: task.id,
                retry_number: task.retry_number,
                claim_id,
                instance_id,
                ran: Some(RunSpan {
                    worker: Some(0),
                    lasted: Duration::ZERO,
                    ended: Instant::now(),
                }),
                result: Some(Json::null()),
                error: None,
                next: NextState::End(TaskStatus::Stopped),
                cancel_response: None,
            })
            .collect();
        store.record(&endings, &finished).await?;
        finished = vec![claim_id];
        if let ClaimRest::Nothing { .. } = claim.rest {
            return Ok(());
        }
    }
}

fn print_rate(what: &str, tasks: usize, began: Instant) -> f64 {
    let took = began.elapsed();
    let rate = tasks as f64 / took.as_secs_f64();
    let each = took.as_secs_f64() * 1e6 / tasks as f64;
    println!("{what:>20}: {tasks} tasks in {took:.2?}, {rate:.0} a second, {each:.1} µs each");
    rate
}
