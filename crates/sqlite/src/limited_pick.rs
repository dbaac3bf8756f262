//! The tasks of a claim if there are limits: with and without limits, by priority.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use task_engine_core::limit::plain_queue;
use task_engine_store::claim::ClaimRest;

use crate::claim::{ClaimRequest, PickedTasks, merge};
use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::LaneReader;
use crate::limited_claim::LimitedClaim;
use crate::limited_lanes::{Pair, Turns};
use crate::limits::LimitSet;
use crate::value::read;

/// The next tasks, from one priority to the next lower one. Within a priority, tasks with
/// limits and those without take turns: if there are enough of both, each gets half.
pub(crate) fn pick_with_limits<'t>(
    tx: &'t JobTransaction<'t>,
    wanted: &ClaimRequest,
    limit: usize,
    mut limited: LimitedClaim<'t>,
    turns: &mut Turns,
) -> Result<PickedTasks, JobError> {
    let mut waiting = Vec::with_capacity(limit);
    let mut lanes = Vec::new();
    let mut next_due = None;
    let mut levels = read_levels(tx, wanted, &limited.limits)?;
    while waiting.len() < limit {
        let Some((priority, mut level)) = levels.pop_last() else {
            limited.write()?;
            let next_in = limited.next_in(next_due);
            let nothing = ClaimRest::Nothing { next_in };
            let rest = if limited.has_more { ClaimRest::More } else { nothing };
            return Ok(PickedTasks { waiting, lanes, rest });
        };
        let begin = waiting.len();
        let left = limit - begin;
        let takes_turns = !level.pairs.is_empty() && !level.plain.is_empty();
        let share = match turns.plain_first {
            _ if !takes_turns => left,
            true => left.div_ceil(2),
            false => left / 2,
        };
        turns.plain_first ^= takes_turns;
        merge(tx, &mut level.plain, begin + share, &mut waiting)?;
        if !level.pairs.is_empty() {
            let wanted = limit - waiting.len();
            let pairs: Vec<Pair> = level.pairs.into_iter().collect();
            let not_moved = &level.not_moved;
            let taken = limited.take(turns, priority, &pairs, not_moved, wanted, &mut next_due)?;
            waiting.extend(taken);
            merge(tx, &mut level.plain, limit, &mut waiting)?;
            waiting[begin..].sort_by_key(|one| one.head);
        }
        next_due = level.plain.iter().filter_map(|lane| lane.next_due).chain(next_due).min();
        lanes.append(&mut level.plain);
    }
    limited.write()?;
    Ok(PickedTasks { waiting, lanes, rest: ClaimRest::More })
}

/// The lanes of one priority.
#[derive(Default)]
struct Level {
    /// Those of tasks without limits.
    plain: Vec<LaneReader>,
    /// Queues and classes of tasks with limits.
    pairs: BTreeSet<Pair>,
    /// Those of them with tasks that were not moved to lanes of their keys.
    not_moved: Vec<Pair>,
}

/// All lanes of a claimer, by priority.
fn read_levels(
    tx: &JobTransaction<'_>,
    wanted: &ClaimRequest,
    limits: &LimitSet,
) -> Result<BTreeMap<i64, Level>, JobError> {
    let mut levels: BTreeMap<i64, Level> = BTreeMap::new();
    for statement in
        [sql!("engine/claim", "claim_lanes"), sql!("engine/limits", "limited_claim_lanes")]
    {
        let mut statement = tx.db.prepare_cached(statement)?;
        let mut rows =
            statement.query(params![wanted.queues, wanted.classes, wanted.lowest_priority])?;
        while let Some(row) = rows.next()? {
            let (stored, class): (String, String) = (read(row, 0)?, read(row, 1)?);
            let priority: i64 = read(row, 2)?;
            let level = levels.entry(priority).or_default();
            let queue = plain_queue(&stored);
            let is_moved = queue != stored;
            if !is_moved && !limits.may_apply_to(&class, queue) {
                level.plain.push(LaneReader::new(stored, class, priority));
                continue;
            }
            let pair = Pair { queue: queue.to_owned(), class };
            if !is_moved {
                level.not_moved.push(pair.clone());
            }
            level.pairs.insert(pair);
        }
    }
    Ok(levels)
}
