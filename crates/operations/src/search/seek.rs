//! Finds the ids of tasks of a time. Ids grow with the time of creation, so a few probes of
//! the primary key narrow the ids that a filter may match.
//!
//! The order is not perfect. A statement that creates many tasks overlaps others, so there is a
//! margin on both sides. A clock that was set back, or an import, can put older tasks above newer
//! ones. The search uses the probes that leave the wider range, so a large block of tasks out of
//! order is found. A filter with a term about ids (`id>0`) turns this off and reads every task.

use std::time::Duration;

use jiff::Timestamp;

use task_engine_store::scan::{Scan, TimeBound, TimeRange};

use super::time_bound;
use task_engine_core::filter::{Filter, FilterField};
use task_engine_core::task::TaskId;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// How much earlier or later than its neighbours a task may have been created.
const MARGIN: Duration = Duration::from_secs(60);
/// How many ids are probed at once.
const PROBES: i64 = 64;
/// The most rounds: enough for all ids.
const ROUNDS_MAX: u32 = 11;
/// A range of this many ids needs no more probes: one step of a search reads it.
const NEAR: i64 = 1_000;

/// The task at or below a probed id, with its time of creation.
type Probe = Option<(TaskId, Timestamp)>;

/// Narrows the ids of a scan by the times in a filter.
pub(super) async fn narrow(
    store: &dyn Store,
    filter: &Filter,
    scan: &mut Scan,
) -> Result<(), StoreError> {
    let terms = filter.terms();
    if terms.iter().any(|term| term.field == FilterField::Id) {
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
    // Tasks out of order: the wider range is kept in both cases.
    if let Some(until) = until {
        let is_old = |probe: &Probe| probe.is_none_or(|(_, at)| at <= until);
        let split = |probes: &[Probe]| probes.iter().rposition(is_old).map_or(0, |at| at + 1);
        let (_, high) = bracket(store, newest_id, split).await?;
        scan.before = scan.before.min(TaskId(high.saturating_add(1)));
    }
    if let Some(from) = from {
        let is_new = |probe: &Probe| probe.is_some_and(|(_, at)| at >= from);
        let split = |probes: &[Probe]| probes.iter().position(is_new).unwrap_or(probes.len());
        let (low, _) = bracket(store, newest_id, split).await?;
        scan.from = scan.from.max(TaskId(low.saturating_add(1)));
    }
    Ok(())
}

/// Bounds of the creation time of matching tasks. A task that ended, began or changed
/// before a time was created before it.
pub(super) fn created_bounds(filter: &Filter) -> Vec<TimeBound> {
    let later = [FilterField::Updated, FilterField::Started, FilterField::Ended];
    let terms = filter.terms().iter();
    let is_upper = |bound: &TimeBound| matches!(bound, TimeBound::Until(_));
    let bound = |term| {
        let of_later = || later.iter().find_map(|field| time_bound(term, field)).filter(is_upper);
        time_bound(term, &FilterField::Created).or_else(of_later)
    };
    terms.filter_map(bound).collect()
}

fn with_margin((from, until): TimeRange) -> TimeRange {
    let from = from.map(|time| time.checked_sub(MARGIN).unwrap_or(Timestamp::MIN));
    let until = until.map(|time| time.checked_add(MARGIN).unwrap_or(Timestamp::MAX));
    (from, until)
}

/// Two ids around a point in time, at most [`NEAR`] apart. `split` tells how many of the
/// probed tasks are before that point.
async fn bracket(
    store: &dyn Store,
    newest: TaskId,
    split: impl Fn(&[Probe]) -> usize,
) -> Result<(i64, i64), StoreError> {
    let (mut low, mut high) = (0, newest.0);
    for _ in 0..ROUNDS_MAX {
        if high - low <= NEAR {
            break;
        }
        let ids = points(low, high);
        let before = split(&store.creation_times(&ids).await?.tasks);
        if before == ids.len() {
            // Even the newest task is before that point.
            return Ok((high - 1, i64::MAX));
        }
        low = if before == 0 { low } else { ids[before - 1].0 };
        high = ids[before].0;
    }
    Ok((low, high))
}

/// Evenly spaced ids between these two, without the first and with the last.
fn points(low: i64, high: i64) -> Vec<TaskId> {
    let step = ((high - low) / PROBES).max(1);
    let mut points: Vec<_> = (1..PROBES).map(|n| TaskId(low + n * step)).collect();
    points.push(TaskId(high));
    points
}
