//! Tasks created per second, without an engine or beside one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use task_engine::{NewTask, Store};
use tokio::task::JoinSet;

use crate::costs::Costs;
use crate::database::BenchDatabase;
use crate::engine::{NOOP, ONE_MS};
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

#[derive(Debug, Clone, Copy)]
pub(crate) struct CreateLoad {
    pub(crate) producers: u16,
    pub(crate) batch: u32,
    pub(crate) load: EngineLoad,
    pub(crate) wake_ups: bool,
}

/// The engine that runs beside the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineLoad {
    None,
    /// Idle until it executes the new tasks.
    Idle,
    /// Always busy with older tasks.
    Busy,
}

/// Poll interval without notifications: the engine executes the new tasks all the
/// same, so that both variants can be compared.
const SILENT_POLL: Duration = Duration::from_millis(10);
/// Few, so that the older tasks last and the engine leaves CPU to creation.
const BUSY_WORKERS: u16 = 8;
/// The most that these workers can execute of 1 ms tasks.
const BUSY_TASKS_PER_SEC_MAX: u64 = BUSY_WORKERS as u64 * 1000;

impl CreateLoad {
    pub(crate) async fn measure(
        self,
        database: &BenchDatabase,
        settings: &BenchSettings,
    ) -> Result<Measurement, BenchError> {
        if !self.wake_ups && !database.mute_notifications(true).await? {
            return Ok(Measurement::unavailable());
        }
        let engines = self.start_engine(database, settings).await?;
        let stores = database.stores(self.producers).await?;
        let tasks = vec![tasks::task(NOOP)?; self.batch as usize];
        for store in &stores {
            // Opens connections and prepares statements.
            store.create(&tasks[..1]).await?;
        }
        let costs = Costs::start(database, None).await?;
        let (created, took) = produce(stores, &tasks, settings).await?;
        let mut measurement = Measurement::default().rate(created, took);
        // Beside an engine, the costs of the database include those of execution.
        if self.load == EngineLoad::None {
            measurement = costs.finish(None, created, measurement).await?;
        }
        if let Some(engines) = engines {
            engines.stop().await?;
        }
        if !self.wake_ups {
            database.mute_notifications(false).await?;
        }
        Ok(measurement)
    }

    async fn start_engine(
        self,
        database: &BenchDatabase,
        settings: &BenchSettings,
    ) -> Result<Option<Engines>, BenchError> {
        let poll = |options: EngineOptions| {
            if self.wake_ups { options } else { EngineOptions { poll: SILENT_POLL, ..options } }
        };
        match self.load {
            EngineLoad::None => Ok(None),
            EngineLoad::Idle => {
                let options = poll(EngineOptions::new(1, settings.workers));
                Engines::start_claiming(database, options).await.map(Some)
            }
            EngineLoad::Busy => {
                let millis = u64::try_from(settings.time.as_millis()).unwrap_or(u64::MAX);
                // One more second, for start and stop.
                let older = BUSY_TASKS_PER_SEC_MAX * (millis + 1000) / 1000;
                tasks::create(&*database.store().await?, ONE_MS, older).await?;
                let options = poll(EngineOptions::new(1, BUSY_WORKERS));
                let mut engines = Engines::start_claiming(database, options).await?;
                engines.recorded(1).await?;
                Ok(Some(engines))
            }
        }
    }
}

/// Runs all producers until the time is over or the maximum is created.
async fn produce(
    stores: Vec<Arc<dyn Store>>,
    tasks: &[NewTask],
    settings: &BenchSettings,
) -> Result<(u64, Duration), BenchError> {
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
            Ok::<_, BenchError>(Instant::now())
        });
    }
    let mut ended = began;
    while let Some(producer) = producers.join_next().await {
        let broken = |error| BenchError::Failure(format!("a producer failed: {error}"));
        ended = ended.max(producer.map_err(broken)??);
    }
    Ok((created.load(Ordering::Relaxed), ended - began))
}
