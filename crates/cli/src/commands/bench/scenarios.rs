//! One file a kind of scenario; each measures one turn.

mod claim;
mod create;
mod curve;
mod drain;
mod idle;
mod pickup;
mod schedule;
mod start_up;
mod steady;

use super::arena::Arena;
use super::engine::{NOOP, ONE_MS};
use super::measure::Take;
use super::options::{Scenario, Settings};
use crate::error::CliError;
use create::{Company, Creation};

/// Measures a scenario once.
pub(super) async fn take(
    scenario: Scenario,
    arena: &Arena,
    settings: &Settings,
) -> Result<Take, CliError> {
    let single = Creation { producers: 1, batch: 1, company: Company::Nobody, wake_ups: true };
    let many = Creation { producers: settings.producers, ..single };
    match scenario {
        Scenario::CreateSingle => single.take(arena, settings).await,
        Scenario::CreateBatch => {
            Creation { batch: settings.batch, ..single }.take(arena, settings).await
        }
        Scenario::CreateMany => many.take(arena, settings).await,
        Scenario::CreateManyIdle => {
            Creation { company: Company::Idle, ..many }.take(arena, settings).await
        }
        Scenario::CreateManyIdleSilent => {
            let silent = Creation { company: Company::Idle, wake_ups: false, ..many };
            silent.take(arena, settings).await
        }
        Scenario::CreateManyBusy => {
            Creation { company: Company::Busy, ..many }.take(arena, settings).await
        }
        Scenario::CreateManyBusySilent => {
            let silent = Creation { company: Company::Busy, wake_ups: false, ..many };
            silent.take(arena, settings).await
        }
        Scenario::Drain => drain::take(NOOP, arena, settings).await,
        Scenario::Drain1ms => drain::take(ONE_MS, arena, settings).await,
        Scenario::Steady => steady::take(arena, settings).await,
        Scenario::Pickup => pickup::take(arena, settings).await,
        Scenario::Schedule => schedule::take(arena, settings).await,
        Scenario::StartUp => start_up::take(arena).await,
        Scenario::Idle => idle::take(arena, settings).await,
        Scenario::Claim => claim::take(arena, settings).await,
    }
}
