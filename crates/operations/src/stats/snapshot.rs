//! Reads all statistics at one time.

use std::time::Duration;

use task_engine_store::activity::{Activity, ActivityQuery};

use super::Stats;
use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::rollup::{RollupRow, last_hour};

/// The statistics at one time, and the activity they come from.
#[derive(Debug, Clone)]
pub struct StatsSnapshot {
    /// The statistics.
    pub stats: Stats,
    /// Running and next tasks.
    pub activity: Activity,
    /// The names of engines by instance.
    pub names: Vec<(InstanceId, String)>,
}

impl StatsSnapshot {
    /// Reads a store in a few bounded queries.
    pub async fn take(store: &dyn Store) -> Result<Self, StoreError> {
        Self::with(store, &last_hour(store).await?).await
    }

    /// Reads a store, with the rollups of the last hour that the caller has.
    pub async fn with(store: &dyn Store, rollups: &[RollupRow]) -> Result<Self, StoreError> {
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let endings = match rollups.iter().any(|row| row.failed > 0) {
            true => store.endings(&activity.endings_query()).await?,
            false => Vec::new(),
        };
        let failure_counts = store.failure_counts().await?;
        let queues = store.queues().await?;
        let engines = store.instances(None).await?;
        let stats = Stats::of(&activity, rollups, &endings, failure_counts, queues, &engines);
        let names = engines.into_iter().map(|engine| (engine.id, engine.name)).collect();
        Ok(Self { stats, activity, names })
    }
}
