//! The state of keys of limits, as it is stored.

use jiff::SignedDuration;
use task_engine_core::limit::{KeyState, LimitKey, LimitOptions, Rate, RecentStart};
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::error::store_error;
use crate::executor::Executor as _;
use crate::known_limits::KnownLimits;
use crate::store::{StoreInner, from_micros, micros};

const LIMIT_KEY_STATES: &str =
    statement(include_str!("../sql/engine/limits.sql"), "limit_key_states");
const CORRECT_STARTS: &str = statement(include_str!("../sql/engine/limits.sql"), "correct_starts");

/// The rows of keys, in order, with as many recent starts as a claim of `wanted` tasks needs.
pub(crate) async fn key_rows(
    inner: &StoreInner,
    known: &KnownLimits,
    keys: &[&LimitKey],
    wanted: usize,
) -> Result<Vec<Row>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i32> = keys.iter().map(|LimitKey(id, _)| id.0).collect();
    let names: Vec<&str> = keys.iter().map(|LimitKey(_, key)| key.as_str()).collect();
    let options = |LimitKey(id, _): &&LimitKey| known.options(*id);
    let rate_max = |options: &LimitOptions| Some(i64::from(options.rate?.max));
    let rates: Vec<i64> =
        keys.iter().map(|key| options(key).and_then(rate_max).unwrap_or(0)).collect();
    let in_order: Vec<bool> =
        keys.iter().map(|key| options(key).is_some_and(|options| options.in_order)).collect();
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
    let client = inner.connections.work().await?;
    client
        .query_cached(
            &inner.schema.sql(LIMIT_KEY_STATES),
            &[&ids, &names, &rates, &in_order, &wanted],
        )
        .await
        .map_err(|e| store_error(&e))
}

/// Corrects starts of these keys that are in the future: the clock was set back. They count as
/// if they came now, so that the rate holds, and no key waits for the time of the old clock.
/// Whether there were any.
pub(crate) async fn correct_starts(
    inner: &StoreInner,
    keys: &[&LimitKey],
    rows: &[Row],
) -> Result<bool, StoreError> {
    let latest = -micros(Rate::START_WITHIN_MAX);
    let is_ahead = |row: &Row| {
        let last: Option<i64> = row.get("last_start_us");
        let recent: Option<Vec<i64>> = row.get("ago_us");
        last.into_iter().chain(recent.into_iter().flatten()).any(|ago| ago < latest)
    };
    let ahead: Vec<&LimitKey> =
        keys.iter().zip(rows).filter(|(_, row)| is_ahead(row)).map(|(key, _)| *key).collect();
    if ahead.is_empty() {
        return Ok(false);
    }
    let ids: Vec<i32> = ahead.iter().map(|LimitKey(id, _)| id.0).collect();
    let names: Vec<&str> = ahead.iter().map(|LimitKey(_, key)| key.as_str()).collect();
    let within = micros(Rate::START_WITHIN_MAX);
    let client = inner.connections.work().await?;
    let corrected =
        client.query(&inner.schema.sql(CORRECT_STARTS), &[&ids, &names, &within]).await?;
    if !corrected.is_empty() {
        tracing::warn!(
            keys = ahead.len(),
            "the clock of the database was set back: recent starts of tasks with a rate count as if they came now"
        );
    }
    Ok(!corrected.is_empty())
}

/// The attempts of a key that have not ended.
pub(crate) fn holders(row: &Row) -> Vec<(i64, i32)> {
    let tasks: Vec<i64> = row.get::<_, Option<Vec<i64>>>("task_ids").unwrap_or_default();
    let attempts: Vec<i32> = row.get::<_, Option<Vec<i32>>>("attempts").unwrap_or_default();
    tasks.into_iter().zip(attempts).collect()
}

pub(crate) fn key_state(known: &KnownLimits, key: &LimitKey, row: &Row) -> KeyState {
    let options = known.options(key.0);
    let last_claim = || {
        let started: i64 = row.get::<_, Option<i64>>("last_start_us")?;
        let within = micros(options?.rate?.start_within());
        Some(SignedDuration::from_micros(started.saturating_add(within)))
    };
    KeyState {
        options: options.cloned(),
        running: holders(row).len(),
        held_by: row.get::<_, Option<i64>>("held_by").map(TaskId),
        total: row.get::<_, Option<i64>>("total").unwrap_or(0),
        last_claim: last_claim(),
        starts: recent_starts(row),
        closed_for: row.get::<_, Option<i64>>("closed_us").map(from_micros),
        weight: known.weight(key),
    }
}

fn recent_starts(row: &Row) -> Vec<RecentStart> {
    let totals: Vec<i64> = row.get::<_, Option<Vec<i64>>>("totals").unwrap_or_default();
    let ago: Vec<i64> = row.get::<_, Option<Vec<i64>>>("ago_us").unwrap_or_default();
    let start = |(total, ago)| RecentStart { total, ago: SignedDuration::from_micros(ago) };
    totals.into_iter().zip(ago).map(start).collect()
}
