//! Scheduled tasks: how late they begin, on an engine that sleeps until then.
//!
//! Tasks are due by the database's clock, and begin by this machine's: exact
//! where both are one.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::super::arena::Arena;
use super::super::engine::STAMP;
use super::super::event::now_us;
use super::super::measure::Take;
use super::super::options::Settings;
use super::super::tasks;
use super::pickup::idle_fleet;
use crate::error::CliError;

/// How many are scheduled at a time, and how far ahead.
const ROUND: u16 = 10;
const NEAREST_MS: i64 = 200;
const FARTHEST_MS: i64 = 500;

pub(super) async fn take(arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
    let store = arena.store().await?;
    let mut fleet = idle_fleet(arena, &*store).await?;
    let stamp = tasks::task(STAMP)?;
    let mut lateness_ms = Vec::new();
    let mut missing = settings.samples;
    while missing > 0 {
        let count = missing.min(ROUND);
        let now = Timestamp::from_microsecond(now_us()).unwrap_or_default();
        let times: Vec<Timestamp> = (0..count).map(|at| now + ahead(at, missing)).collect();
        let round: Vec<_> = times.iter().map(|time| stamp.clone().at(*time)).collect();
        let ids = store.create(&round).await?;
        let due: HashMap<i64, Timestamp> = ids.iter().map(|id| id.0).zip(times).collect();
        for _ in 0..count {
            let (id, began_us) = fleet.began().await?;
            if let Some(due) = due.get(&id) {
                lateness_ms.push((began_us - due.as_microsecond()) as f64 / 1000.0);
            }
        }
        missing -= count;
    }
    fleet.stop().await?;
    Ok(Take::default().latencies(lateness_ms))
}

/// Spread over the range, each round a little different.
fn ahead(at: u16, round: u16) -> SignedDuration {
    let step_us = (FARTHEST_MS - NEAREST_MS) * 1000 / i64::from(ROUND);
    let shift_us = i64::from(round) * 7919 % step_us;
    SignedDuration::from_micros(NEAREST_MS * 1000 + i64::from(at) * step_us + shift_us)
}
