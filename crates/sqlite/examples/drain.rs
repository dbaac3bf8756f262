//! How fast the store is: creates tasks in a new file, then claims and records
//! them in batches.
//!
//! `cargo run --release -p task-engine-sqlite --example drain -- [TASKS] [BATCH]`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use task_engine_model::attempt::Ran;
use task_engine_model::store::ClaimIds;
use task_engine_model::{Ending, Json, NewInstance, NewTask, Next, Rest, Store, TaskStatus};
use task_engine_sqlite::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tasks: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let batch: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("drain.db"))?;
    store.migrate().await?;

    let began = Instant::now();
    let task = NewTask::new("work", Json::parse(r#"{"to":"ada@example.org"}"#)?)?;
    let many = vec![task; batch];
    for _ in 0..tasks.div_ceil(batch) {
        store.create(&many).await?;
    }
    tell("created", tasks, began);

    let began = Instant::now();
    drain(&store, batch).await?;
    tell("claimed and recorded", tasks, began);
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
        classes: BTreeMap::new(),
    };
    let instance_id = store.register(&new).await?;
    let mut claimer = store.claimer(instance_id, new.queues, vec!["work".to_owned()]);
    let mut ids = ClaimIds::new(instance_id);
    let mut finished = Vec::new();
    loop {
        let claim_id = ids.take();
        let claim = claimer.claim(claim_id, batch).await?;
        let endings: Vec<_> = claim
            .tasks
            .iter()
            .map(|task| Ending {
                id: task.id,
                retry_number: task.retry_number,
                claim_id,
                instance_id,
                ran: Some(Ran { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
                result: Some(Json::null()),
                error: None,
                next: Next::End(TaskStatus::Stopped),
                told: None,
            })
            .collect();
        store.record(&endings, &finished).await?;
        finished = vec![claim_id];
        if let Rest::Nothing { .. } = claim.rest {
            return Ok(());
        }
    }
}

fn tell(what: &str, tasks: usize, began: Instant) {
    let took = began.elapsed();
    let rate = tasks as f64 / took.as_secs_f64();
    let each = took.as_secs_f64() * 1e6 / tasks as f64;
    println!("{what:>20}: {tasks} tasks in {took:.2?}, {rate:.0} a second, {each:.1} µs each");
}
