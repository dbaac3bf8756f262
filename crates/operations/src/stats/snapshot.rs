//! A look at everything that goes on.

use std::time::Duration;

use task_engine_store::activity::{Activity, ActivityQuery};

use super::Stats;
use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::rollup::{RollupRow, last_hour};

/// Everything that was read at one time, and the figures of it.
#[derive(Debug, Clone)]
pub struct StatsSnapshot {
    /// The figures.
    pub stats: Stats,
    /// What is under way, and what comes next.
    pub activity: Activity,
    /// The names of engines, by their lives.
    pub names: Vec<(InstanceId, String)>,
}

impl StatsSnapshot {
    /// Asks a store, in a few bounded questions.
    pub async fn take(store: &dyn Store) -> Result<Self, StoreError> {
        Self::with(store, &last_hour(store).await?).await
    }

    /// The same with what engines have counted in the last hour, if that is known.
    pub async fn with(store: &dyn Store, counted: &[RollupRow]) -> Result<Self, StoreError> {
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let endings = match counted.iter().any(|row| row.failed > 0) {
            true => store.endings(&activity.endings_query()).await?,
            false => Vec::new(),
        };
        let failure_counts = store.failure_counts().await?;
        let queues = store.queues().await?;
        let engines = store.instances(None).await?;
        let stats = Stats::of(&activity, counted, &endings, failure_counts, queues, &engines);
        let names = engines.into_iter().map(|engine| (engine.id, engine.name)).collect();
        Ok(Self { stats, activity, names })
    }
}
