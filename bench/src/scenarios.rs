//! The scenarios, one file per kind.

mod blocked;
mod children;
mod claim;
mod create;
mod curve;
mod drain;
mod fair;
mod flows;
mod idle;
mod limited;
mod pickup;
mod rate;
mod replay;
mod schedule;
mod signal;
mod start_up;
mod steady;
mod steps;

use crate::database::BenchDatabase;
use crate::engine::{NOOP, ONE_MS};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::{BenchSettings, Scenario};
use create::{CreateLoad, EngineLoad};
use flows::Shape;

/// Measures a scenario once.
pub(crate) async fn measure(
    scenario: Scenario,
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let single = CreateLoad { producers: 1, batch: 1, load: EngineLoad::None, wake_ups: true };
    let many = CreateLoad { producers: settings.producers, ..single };
    match scenario {
        Scenario::CreateSingle => single.measure(database, settings).await,
        Scenario::CreateBatch => {
            CreateLoad { batch: settings.batch, ..single }.measure(database, settings).await
        }
        Scenario::CreateMany => many.measure(database, settings).await,
        Scenario::CreateManyIdle => {
            CreateLoad { load: EngineLoad::Idle, ..many }.measure(database, settings).await
        }
        Scenario::CreateManyIdleSilent => {
            let silent = CreateLoad { load: EngineLoad::Idle, wake_ups: false, ..many };
            silent.measure(database, settings).await
        }
        Scenario::CreateManyBusy => {
            CreateLoad { load: EngineLoad::Busy, ..many }.measure(database, settings).await
        }
        Scenario::CreateManyBusySilent => {
            let silent = CreateLoad { load: EngineLoad::Busy, wake_ups: false, ..many };
            silent.measure(database, settings).await
        }
        Scenario::Drain => drain::measure(NOOP, database, settings).await,
        Scenario::Drain1ms => drain::measure(ONE_MS, database, settings).await,
        Scenario::Steady => steady::measure(database, settings).await,
        Scenario::Pickup => pickup::measure(database, settings).await,
        Scenario::Schedule => schedule::measure(database, settings).await,
        Scenario::StartUp => start_up::measure(database).await,
        Scenario::Idle => idle::measure(database, settings).await,
        Scenario::Steps => steps::measure(database, settings).await,
        Scenario::Signal => signal::measure(database, settings).await,
        Scenario::Replay => replay::measure(database, settings).await,
        Scenario::Children => children::measure(database, settings).await,
        Scenario::FlowFanOut => flows::measure(Shape::FanOut, database, settings).await,
        Scenario::FlowFanIn => flows::measure(Shape::FanIn, database, settings).await,
        Scenario::FlowLayers => flows::measure(Shape::Layers, database, settings).await,
        Scenario::FlowChain => flows::measure(Shape::Chain, database, settings).await,
        Scenario::LimitedDrain => limited::measure(database, settings).await,
        Scenario::Blocked => blocked::measure(database, settings).await,
        Scenario::Rate => rate::measure(database, settings).await,
        Scenario::Fair => fair::measure(database, settings).await,
        Scenario::Claim => claim::measure(database, settings).await,
    }
}
