//! Creation: how many tasks a second, by whom, and beside which engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use task_engine::{NewTask, Store};
use tokio::task::JoinSet;

use super::super::arena::Arena;
use super::super::costs::Costs;
use super::super::engine::{NOOP, ONE_MS};
use super::super::fleet::{Crew, Fleet};
use super::super::measure::Take;
use super::super::options::Settings;
use super::super::tasks;
use crate::error::CliError;

#[derive(Debug, Clone, Copy)]
pub(super) struct Creation {
    pub(super) producers: u16,
    pub(super) batch: u32,
    pub(super) company: Company,
    pub(super) wake_ups: bool,
}

/// Which engine is there meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Nobody,
    /// One that waits for the tasks, and executes them.
    Idle,
    /// One that never has to wait, because it has older ones to work on.
    Busy,
}

/// An engine that nobody wakes looks this often, so that it executes what is
/// created all the same and the two ways can be compared.
const SILENT_POLL: Duration = Duration::from_millis(10);
/// Few, so that the older tasks last, and the engine leaves room for creation.
const BUSY_WORKERS: u16 = 8;
/// No worker ends more tasks of a millisecond than this.
const BUSY_TASKS_PER_SEC_MAX: u64 = BUSY_WORKERS as u64 * 1000;

impl Creation {
    pub(super) async fn take(self, arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
        if !self.wake_ups && !arena.silence(true).await? {
            return Ok(Take::not_to_be_had());
        }
        let fleet = self.accompany(arena, settings).await?;
        let stores = arena.stores(self.producers).await?;
        let tasks = vec![tasks::task(NOOP)?; self.batch as usize];
        for store in &stores {
            // Connections are open, and statements prepared, before it begins.
            store.create(&tasks[..1]).await?;
        }
        let costs = Costs::from_here(arena, None).await?;
        let (created, took) = produce(stores, &tasks, settings).await?;
        let mut take = Take::default().rate(created, took);
        // Beside an engine, the database works for that one too.
        if self.company == Company::Nobody {
            take = costs.until_here(None, created, take).await?;
        }
        if let Some(fleet) = fleet {
            fleet.stop().await?;
        }
        if !self.wake_ups {
            arena.silence(false).await?;
        }
        Ok(take)
    }

    async fn accompany(self, arena: &Arena, settings: &Settings) -> Result<Option<Fleet>, CliError> {
        let poll = |crew: Crew| {
            if self.wake_ups { crew } else { Crew { poll: SILENT_POLL, ..crew } }
        };
        match self.company {
            Company::Nobody => Ok(None),
            Company::Idle => {
                let crew = poll(Crew::new(1, settings.workers));
                Fleet::at_work(arena, crew).await.map(Some)
            }
            Company::Busy => {
                let millis = u64::try_from(settings.time.as_millis()).unwrap_or(u64::MAX);
                // And a second more, for all that happens before and after.
                let older = BUSY_TASKS_PER_SEC_MAX * (millis + 1000) / 1000;
                tasks::create(&*arena.store().await?, ONE_MS, older).await?;
                let crew = poll(Crew::new(1, BUSY_WORKERS));
                let mut fleet = Fleet::at_work(arena, crew).await?;
                fleet.recorded(1).await?;
                Ok(Some(fleet))
            }
        }
    }
}

/// All producers at once, until the time is over or enough has been created.
async fn produce(
    stores: Vec<Arc<dyn Store>>,
    tasks: &[NewTask],
    settings: &Settings,
) -> Result<(u64, Duration), CliError> {
    let began = Instant::now();
    let deadline = began + settings.time;
    let limit = settings.tasks;
    let created = Arc::new(AtomicU64::new(0));
    let mut producers = JoinSet::new();
    for store in stores {
        let (created, tasks) = (created.clone(), tasks.to_vec());
        producers.spawn(async move {
            while Instant::now() < deadline && created.load(Ordering::Relaxed) < limit {
                store.create(&tasks).await?;
                created.fetch_add(tasks.len() as u64, Ordering::Relaxed);
            }
            Ok::<_, CliError>(Instant::now())
        });
    }
    let mut ended = began;
    while let Some(producer) = producers.join_next().await {
        let broken = |error| CliError::Failure(format!("a producer broke: {error}"));
        ended = ended.max(producer.map_err(broken)??);
    }
    Ok((created.load(Ordering::Relaxed), ended - began))
}
