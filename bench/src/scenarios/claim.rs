//! Duration of a claim beside other waiting tasks.
//!
//! Three claimers alternate: one of a queue of its own, one of another class in
//! the queues of the inserted tasks, and one of the same queues and classes whose
//! task has a priority between the unserved and the future tasks. No engine runs,
//! so only the store is measured. With `--unserved` and `--future` no claim should
//! take longer than on an empty database.

use std::time::{Duration, Instant};

use task_engine::{Json, NewTask, Store, TaskOptions, TaskStatus};
use task_engine_core::attempt::RunSpan;
use task_engine_core::attempt::{AttemptRecord, NextState};
use task_engine_core::claim::ClaimId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::queue::Lanes;
use task_engine_store::claim::{ClaimedTask, Claimer};

use crate::database::BenchDatabase;
use crate::engine::{NOOP, ONE_MS, QUEUE, STAMP, UNSERVED_QUEUE};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

/// No other task waits in this queue.
const OTHER_QUEUE: &str = "bench_other";
/// Claims before the first sample: they open connections and prepare statements.
const WARM_UP: u16 = 9;
const LEASE: Duration = Duration::from_secs(3600);

/// A task and the claimer that takes it.
struct Kind {
    task: NewTask,
    claimer: Box<dyn Claimer>,
}

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let instance = store.register(&instance()).await?;
    let ids = ClaimIds::new(instance);
    let mut kinds = kinds(&*store, instance)?;
    let mut samples_ms = Vec::new();
    for sample in 0..WARM_UP + settings.samples {
        let kind = &mut kinds[usize::from(sample) % 3];
        let created = store.create(std::slice::from_ref(&kind.task)).await?;
        let claim_id = ids.take();
        kind.claimer.invalidate();
        let began = Instant::now();
        let claim = kind.claimer.claim(claim_id, 1).await?;
        let took = began.elapsed();
        let [task] = &claim.tasks[..] else {
            return Err(BenchError::Failure("a claim found no task".to_owned()));
        };
        if task.id.task_id != created[0] {
            return Err(BenchError::Failure("a claim took another task".to_owned()));
        }
        store.record(&[success(task, claim_id, instance)], &[]).await?;
        store.record(&[], &[claim_id]).await?;
        if sample >= WARM_UP {
            samples_ms.push(took.as_secs_f64() * 1000.0);
        }
    }
    store.unregister(instance).await?;
    Ok(Measurement::default().latencies(samples_ms))
}

fn kinds(store: &dyn Store, instance: InstanceId) -> Result<[Kind; 3], BenchError> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let kind = |class: &str, queue: &str, queues: &[&str], classes: &[&str]| {
        let task = tasks::task(class)?.queue(queue);
        let task = task.map_err(|error| BenchError::Failure(error.to_string()))?;
        let claimer = store.claimer(instance, Lanes::new(names(queues), names(classes)));
        Ok::<_, BenchError>(Kind { task, claimer })
    };
    let (all, unserved) = ([NOOP, ONE_MS, STAMP], [QUEUE, UNSERVED_QUEUE]);
    Ok([
        kind(NOOP, OTHER_QUEUE, &[OTHER_QUEUE], &all)?,
        kind(STAMP, UNSERVED_QUEUE, &unserved, &[STAMP])?,
        kind(NOOP, UNSERVED_QUEUE, &unserved, &all)?,
    ])
}

fn instance() -> NewInstance {
    let (queues, classes) = ([QUEUE, UNSERVED_QUEUE, OTHER_QUEUE], [NOOP, ONE_MS, STAMP]);
    new_instance("bench-claim", queues, classes)
}

/// An instance without a process.
pub(crate) fn new_instance<const Q: usize, const C: usize>(
    name: &str,
    queues: [&str; Q],
    classes: [&str; C],
) -> NewInstance {
    let options = |class: &str| (class.to_owned(), TaskOptions::default());
    NewInstance {
        name: name.to_owned(),
        host: String::new(),
        pid: 0,
        process: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: 1,
        lease: LEASE,
        queues: queues.map(str::to_owned).to_vec(),
        pools: Vec::new(),
        classes: classes.map(options).into_iter().collect(),
    }
}

fn success(task: &ClaimedTask, claim_id: ClaimId, instance_id: InstanceId) -> AttemptRecord {
    AttemptRecord {
        id: task.id,
        retry_number: task.retry_number,
        claim_id,
        instance_id,
        ran: Some(RunSpan { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
        result: Some(Json::null()),
        error: None,
        next: NextState::End(TaskStatus::Stopped),
        cancel_response: None,
    }
}
