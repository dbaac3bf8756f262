//! How late scheduled tasks start, on an idle engine.
//!
//! Tasks are due by the clock of the database and start by that of this machine:
//! exact only if both are the same.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::pickup::idle_engine;
use crate::database::BenchDatabase;
use crate::engine::STAMP;
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

/// Tasks per round, and their delays.
const ROUND: u16 = 10;
const NEAREST_MS: i64 = 200;
const FARTHEST_MS: i64 = 500;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let mut engines = idle_engine(database, &*store).await?;
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
            let (id, began_us) = engines.began().await?;
            if let Some(due) = due.get(&id) {
                lateness_ms.push((began_us - due.as_microsecond()) as f64 / 1000.0);
            }
        }
        missing -= count;
    }
    engines.stop().await?;
    Ok(Measurement::default().latencies(lateness_ms))
}

/// Spread over the range, each round a little different.
fn ahead(at: u16, round: u16) -> SignedDuration {
    let step_us = (FARTHEST_MS - NEAREST_MS) * 1000 / i64::from(ROUND);
    let shift_us = i64::from(round) * 7919 % step_us;
    SignedDuration::from_micros(NEAREST_MS * 1000 + i64::from(at) * step_us + shift_us)
}
