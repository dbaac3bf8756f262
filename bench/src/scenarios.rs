//! The scenarios, one file per kind.

mod claim;
mod create;
mod curve;
mod drain;
mod idle;
mod pickup;
mod schedule;
mod start_up;
mod steady;

use crate::database::BenchDatabase;
use crate::engine::{NOOP, ONE_MS};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::{Scenario, Settings};
use create::{Creation, EngineLoad};

/// Measures a scenario once.
pub(crate) async fn measure(
    scenario: Scenario,
    database: &BenchDatabase,
    settings: &Settings,
) -> Result<Measurement, BenchError> {
    let single = Creation { producers: 1, batch: 1, load: EngineLoad::None, wake_ups: true };
    let many = Creation { producers: settings.producers, ..single };
    match scenario {
        Scenario::CreateSingle => single.measure(database, settings).await,
        Scenario::CreateBatch => {
            Creation { batch: settings.batch, ..single }.measure(database, settings).await
        }
        Scenario::CreateMany => many.measure(database, settings).await,
        Scenario::CreateManyIdle => {
            Creation { load: EngineLoad::Idle, ..many }.measure(database, settings).await
        }
        Scenario::CreateManyIdleSilent => {
            let silent = Creation { load: EngineLoad::Idle, wake_ups: false, ..many };
            silent.measure(database, settings).await
        }
        Scenario::CreateManyBusy => {
            Creation { load: EngineLoad::Busy, ..many }.measure(database, settings).await
        }
        Scenario::CreateManyBusySilent => {
            let silent = Creation { load: EngineLoad::Busy, wake_ups: false, ..many };
            silent.measure(database, settings).await
        }
        Scenario::Drain => drain::measure(NOOP, database, settings).await,
        Scenario::Drain1ms => drain::measure(ONE_MS, database, settings).await,
        Scenario::Steady => steady::measure(database, settings).await,
        Scenario::Pickup => pickup::measure(database, settings).await,
        Scenario::Schedule => schedule::measure(database, settings).await,
        Scenario::StartUp => start_up::measure(database).await,
        Scenario::Idle => idle::measure(database, settings).await,
        Scenario::Claim => claim::measure(database, settings).await,
    }
}
