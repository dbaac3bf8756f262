//! Where tasks of a time are: ids follow the time of creation, so the ids that a
//! filter may mean are found by a few probes of the primary key.
//!
//! The order is not perfect. A statement that creates many tasks takes its time
//! while others create theirs, so a margin is left on both sides. A clock that was
//! set back, or an import, can put older tasks above newer ones: of the probes, always
//! those are chosen that leave the wider range, so that a block of tasks out of order
//! is found if it is large. Whoever wants every task looked at says so with a term
//! about ids (`id>0`), which turns this off.

use std::time::Duration;

use jiff::Timestamp;

use task_engine_store::scan::{Scan, TimeBound, TimeRange};

use super::time_bound;
use task_engine_core::filter::{Field, Filter};
use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// A task may have been created so much later or earlier than its neighbours.
const MARGIN: Duration = Duration::from_secs(60);
/// So many ids are probed at once,
const PROBES: i64 = 64;
/// so often at the most: enough for every id that there is.
const ROUNDS_MAX: u32 = 11;
/// A range of so many ids needs no more probes: a step of a search reads it all.
const NEAR: i64 = 1_000;

/// Narrows the ids of a scan to those that the times in a filter leave.
pub(super) async fn narrow(
    store: &dyn Store,
    filter: &Filter,
    scan: &mut Scan,
) -> Result<(), StoreError> {
    let terms = filter.terms();
    if terms.iter().any(|term| term.field == Field::Id) {
        return Ok(());
    }
    if scan.created.is_empty() {
        return Ok(());
    }
    let newest = store.creation_times(&[scan.before]).await?;
    let Some((newest_id, _)) = newest.tasks.first().copied().flatten() else {
        return Ok(());
    };
    let (from, until) = with_margin(scan.created_between(newest.now));
    if let Some(until) = until {
        let above = first_above(store, newest_id, until).await?;
        scan.before = scan.before.min(above);
    }
    if let Some(from) = from {
        let lowest = lowest_from(store, newest_id, from).await?;
        scan.from = scan.from.max(lowest);
    }
    Ok(())
}

/// When a task was created that the filter means. Nothing happens to a task before
/// it is created, so whatever ended, began or changed until then was created until
/// then.
pub(super) fn created_bounds(filter: &Filter) -> Vec<TimeBound> {
    let later = [Field::Updated, Field::Started, Field::Ended];
    let terms = filter.terms().iter();
    let is_upper = |bound: &TimeBound| matches!(bound, TimeBound::Until(_));
    let bound = |term| {
        let of_later = || later.iter().find_map(|field| time_bound(term, field)).filter(is_upper);
        time_bound(term, &Field::Created).or_else(of_later)
    };
    terms.filter_map(bound).collect()
}

fn with_margin((from, until): TimeRange) -> TimeRange {
    let from = from.map(|time| time.checked_sub(MARGIN).unwrap_or(Timestamp::MIN));
    let until = until.map(|time| time.checked_add(MARGIN).unwrap_or(Timestamp::MAX));
    (from, until)
}

/// An id above all tasks that were created until then, as low as can be told.
async fn first_above(
    store: &dyn Store,
    newest: TaskId,
    until: Timestamp,
) -> Result<TaskId, StoreError> {
    // Every task above `high` is too new; one at `low` may not be.
    let (mut low, mut high) = (0, newest.0);
    for _ in 0..ROUNDS_MAX {
        if high - low <= NEAR {
            break;
        }
        let ids = points(low, high);
        let found = store.creation_times(&ids).await?.tasks;
        // The highest that is old enough leaves the most to be looked at.
        let is_old = |task: &Option<(TaskId, Timestamp)>| task.is_none_or(|(_, at)| at <= until);
        match found.iter().rposition(is_old) {
            // Even the newest is: nothing is to be left out.
            Some(place) if place + 1 == ids.len() => return Ok(TaskId(i64::MAX)),
            Some(place) => (low, high) = (ids[place].0, ids[place + 1].0),
            None => high = ids[0].0,
        }
    }
    Ok(TaskId(high.saturating_add(1)))
}

/// An id below which every task was created before then, as high as can be told.
async fn lowest_from(
    store: &dyn Store,
    newest: TaskId,
    from: Timestamp,
) -> Result<TaskId, StoreError> {
    // Every task at or below `low` is too old; one at `high` may not be.
    let (mut low, mut high) = (0, newest.0);
    for _ in 0..ROUNDS_MAX {
        if high - low <= NEAR {
            break;
        }
        let ids = points(low, high);
        let found = store.creation_times(&ids).await?.tasks;
        let is_new = |task: &Option<(TaskId, Timestamp)>| task.is_some_and(|(_, at)| at >= from);
        match found.iter().position(is_new) {
            Some(0) => high = ids[0].0,
            Some(place) => (low, high) = (ids[place - 1].0, ids[place].0),
            // Not even the newest: only what comes meanwhile.
            None => return Ok(TaskId(high)),
        }
    }
    Ok(TaskId(low.saturating_add(1)))
}

/// Ids between these two, without the first and with the last, evenly.
fn points(low: i64, high: i64) -> Vec<TaskId> {
    let step = ((high - low) / PROBES).max(1);
    let mut points: Vec<_> = (1..PROBES).map(|n| TaskId(low + n * step)).collect();
    points.push(TaskId(high));
    points
}
