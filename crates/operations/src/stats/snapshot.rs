//! A look at everything that goes on.

use std::time::Duration;

use task_engine_store::activity::{Moving, MovingLook};

use super::Figures;
use task_engine_core::instance::InstanceId;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::rollup::{FigureRow, last_hour};

/// Everything that was read at one time, and the figures of it.
#[derive(Debug, Clone)]
pub struct Look {
    /// The figures.
    pub figures: Figures,
    /// What is under way, and what comes next.
    pub moving: Moving,
    /// The names of engines, by their lives.
    pub names: Vec<(InstanceId, String)>,
}

impl Look {
    /// Asks a store, in a few bounded questions.
    pub async fn take(store: &dyn Store) -> Result<Self, StoreError> {
        Self::with(store, &last_hour(store).await?).await
    }

    /// The same with what engines have counted in the last hour, if that is known.
    pub async fn with(store: &dyn Store, counted: &[FigureRow]) -> Result<Self, StoreError> {
        let moving = store.moving(MovingLook { per_lane: 1, soon: Duration::ZERO }).await?;
        let endings = match counted.iter().any(|row| row.failed > 0) {
            true => store.endings(&moving.look_for_endings()).await?,
            false => Vec::new(),
        };
        let unhappy = store.unhappy().await?;
        let queues = store.queues().await?;
        let engines = store.instances(None).await?;
        let figures = Figures::of(&moving, counted, &endings, unhappy, queues, &engines);
        let names = engines.into_iter().map(|engine| (engine.id, engine.name)).collect();
        Ok(Self { figures, moving, names })
    }
}
