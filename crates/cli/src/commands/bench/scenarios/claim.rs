//! Claim: how long a claim takes, from the hint to the task, beside whatever
//! else waits.
//!
//! Three claimers take turns: one of another queue than the crowd's, one of
//! another class in the same queues, and one of the same queues and classes
//! whose task has a higher priority than the crowd and a lower one than the
//! tasks of tomorrow. Nobody else claims, so that nothing but the store is
//! measured. With `--crowd` and `--future` none of them should take longer than
//! on an empty database.

use std::time::{Duration, Instant};

use task_engine::{ClassRules, Json, NewTask, Store, TaskStatus};
use task_engine_core::attempt::Ran;
use task_engine_core::attempt::{Ending, NextState};
use task_engine_core::claim::ClaimId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::queue::Lanes;
use task_engine_store::claim::{ClaimedTask, Claimer};

use super::super::arena::Arena;
use super::super::engine::{CROWD_QUEUE, NOOP, ONE_MS, QUEUE, STAMP};
use super::super::measure::Take;
use super::super::options::Settings;
use super::super::tasks;
use crate::exit::Fault;

/// A queue in which nothing else waits.
const OTHER_QUEUE: &str = "bench_other";
/// Claims before the first that counts: connections open, statements prepared.
const WARM_UP: u16 = 9;
const LEASE: Duration = Duration::from_secs(3600);

/// A task that somebody creates, and who takes it.
struct Kind {
    task: NewTask,
    claimer: Box<dyn Claimer>,
}

pub(super) async fn take(arena: &Arena, settings: &Settings) -> Result<Take, Fault> {
    let store = arena.store().await?;
    let instance = store.register(&introduction()).await?;
    let ids = ClaimIds::new(instance);
    let mut kinds = kinds(&*store, instance)?;
    let mut samples_ms = Vec::new();
    for sample in 0..WARM_UP + settings.samples {
        let kind = &mut kinds[usize::from(sample) % 3];
        let created = store.create(std::slice::from_ref(&kind.task)).await?;
        let claim_id = ids.take();
        kind.claimer.wake();
        let began = Instant::now();
        let claim = kind.claimer.claim(claim_id, 1).await?;
        let took = began.elapsed();
        let [task] = &claim.tasks[..] else {
            return Err(Fault::Failure("a claim of the bench found no task".to_owned()));
        };
        if task.id.task_id != created[0] {
            return Err(Fault::Failure("a claim of the bench took another task".to_owned()));
        }
        store.record(&[done(task, claim_id, instance)], &[]).await?;
        store.record(&[], &[claim_id]).await?;
        if sample >= WARM_UP {
            samples_ms.push(took.as_secs_f64() * 1000.0);
        }
    }
    store.unregister(instance).await?;
    Ok(Take::default().latencies(samples_ms))
}

fn kinds(store: &dyn Store, instance: InstanceId) -> Result<[Kind; 3], Fault> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let kind = |class: &str, queue: &str, queues: &[&str], classes: &[&str]| {
        let task = tasks::task(class)?.queue(queue);
        let task = task.map_err(|error| Fault::Failure(error.to_string()))?;
        let claimer = store.claimer(instance, Lanes::new(names(queues), names(classes)));
        Ok::<_, Fault>(Kind { task, claimer })
    };
    let (all, crowded) = ([NOOP, ONE_MS, STAMP], [QUEUE, CROWD_QUEUE]);
    Ok([
        kind(NOOP, OTHER_QUEUE, &[OTHER_QUEUE], &all)?,
        kind(STAMP, CROWD_QUEUE, &crowded, &[STAMP])?,
        kind(NOOP, CROWD_QUEUE, &crowded, &all)?,
    ])
}

fn introduction() -> NewInstance {
    let rules = |class: &str| (class.to_owned(), ClassRules::default());
    NewInstance {
        name: "bench-claim".to_owned(),
        host: String::new(),
        pid: 0,
        process: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: 1,
        lease: LEASE,
        queues: [QUEUE, CROWD_QUEUE, OTHER_QUEUE].map(str::to_owned).to_vec(),
        pools: Vec::new(),
        classes: [NOOP, ONE_MS, STAMP].map(rules).into(),
    }
}

fn done(task: &ClaimedTask, claim_id: ClaimId, instance_id: InstanceId) -> Ending {
    Ending {
        id: task.id,
        retry_number: task.retry_number,
        claim_id,
        instance_id,
        ran: Some(Ran { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
        result: Some(Json::null()),
        error: None,
        next: NextState::End(TaskStatus::Stopped),
        cancel_response: None,
    }
}
