//! Claims: due tasks move from the queue into an engine's hands.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rusqlite::params;
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::queue::Lanes;
use task_engine_store::claim::{Claim, ClaimRest, ClaimedTask, Claimer};
use task_engine_store::contract::StoreFuture;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::{Head, LaneReader, Waiting};
use crate::limited_claim::LimitedClaim;
use crate::limited_lanes::Turns;
use crate::limited_pick::pick_with_limits;
use crate::limits::{LimitCache, in_use};
use crate::moment::between;
use crate::store::SqliteStore;
use crate::value::read;

/// The parameters of a claimer.
#[derive(Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) instance: InstanceId,
    /// JSON arrays without duplicates, as the statement expects them.
    pub(crate) queues: String,
    pub(crate) classes: String,
    pub(crate) lowest_priority: i32,
}

impl ClaimRequest {
    pub(crate) fn new(instance: InstanceId, lanes: Lanes) -> Self {
        let distinct = |mut names: Vec<String>| {
            names.sort();
            names.dedup();
            serde_json::json!(names).to_string()
        };
        Self {
            instance,
            queues: distinct(lanes.queues),
            classes: distinct(lanes.classes),
            lowest_priority: lanes.lowest_priority,
        }
    }
}

/// It scans at every claim: reading the queue is cheap, so it caches only limits.
pub(crate) struct SqliteClaimer {
    pub(crate) store: SqliteStore,
    pub(crate) wanted: Arc<ClaimRequest>,
    /// Where the last claim of tasks with limits stopped.
    pub(crate) turns: Arc<Mutex<Turns>>,
}

impl Claimer for SqliteClaimer {
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim> {
        let called = Instant::now();
        let (wanted, turns) = (self.wanted.clone(), self.turns.clone());
        let limits = self.store.limit_cache().clone();
        Box::pin(self.store.writer().run(move |tx| {
            let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
            claim(tx, &wanted, id, limit, &limits, &mut turns, called)
        }))
    }

    fn invalidate(&mut self) {}
}

impl fmt::Debug for SqliteClaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteClaimer").field(&self.wanted).finish()
    }
}

/// Takes up to `limit` due tasks in the order of priority, time and id.
///
/// The writer's transaction keeps everybody else out, so nothing is ever locked
/// by others: there is more, or there is nothing.
pub(crate) fn claim(
    tx: &JobTransaction<'_>,
    wanted: &ClaimRequest,
    id: ClaimId,
    limit: usize,
    limits: &LimitCache,
    turns: &mut Turns,
    called: Instant,
) -> Result<Claim, JobError> {
    let alive: bool = tx
        .db
        .prepare_cached(sql!("engine/claim", "instance_alive"))?
        .query_row([wanted.instance.0], |row| row.get(0))?;
    if !alive {
        return Err(JobError::Store(StoreError::InstanceOver));
    }
    let in_use = in_use(tx)?;
    let PickedTasks { waiting, lanes, rest } = if in_use.any {
        let limited = LimitedClaim::new(tx, limits.get(tx, &in_use)?, limit, called);
        pick_with_limits(tx, wanted, limit, limited, turns)?
    } else {
        pick(tx, wanted, limit)?
    };
    for lane in &lanes {
        lane.delete_taken(tx)?;
    }
    let tasks = created(waiting);
    if !tasks.is_empty() {
        let attempts: Vec<_> = tasks
            .iter()
            .map(|task| (task.id.task_id, task.id.attempt, task.retry_number))
            .collect();
        tx.db.prepare_cached(sql!("engine/claim", "claim_insert"))?.execute(params![
            id.0,
            wanted.instance.0,
            tx.now(),
            serde_json::to_string(&attempts)?,
        ])?;
    }
    Ok(Claim { tasks, rest })
}

/// The tasks of a claim, while they are still in the queue.
pub(crate) struct PickedTasks {
    /// In the order of claims. Tasks with limits have left the queue.
    pub(crate) waiting: Vec<Waiting>,
    /// All lanes of tasks without limits that were read.
    pub(crate) lanes: Vec<LaneReader>,
    pub(crate) rest: ClaimRest,
}

/// The next tasks, in order: from one priority to the next lower one, and among the lanes
/// of one priority by time.
fn pick(
    tx: &JobTransaction<'_>,
    wanted: &ClaimRequest,
    limit: usize,
) -> Result<PickedTasks, JobError> {
    let mut waiting = Vec::with_capacity(limit);
    let mut seen = Vec::new();
    let mut next_due = None;
    let mut statement = tx.db.prepare_cached(sql!("engine/claim", "claim_lanes"))?;
    let mut lanes = statement
        .query_map(params![wanted.queues, wanted.classes, wanted.lowest_priority], |row| {
            Ok(LaneReader::new(read(row, 0)?, read(row, 1)?, read(row, 2)?))
        })?
        .peekable();
    while waiting.len() < limit {
        let Some(first) = lanes.next().transpose()? else {
            let next_in = next_due.map(|due_at| between(tx.now(), due_at));
            return Ok(PickedTasks { waiting, lanes: seen, rest: ClaimRest::Nothing { next_in } });
        };
        let priority = first.priority;
        let mut level = vec![first];
        while let Some(lane) =
            lanes.next_if(|lane| !matches!(lane, Ok(lane) if lane.priority != priority))
        {
            level.push(lane?);
        }
        merge(tx, &mut level, limit, &mut waiting)?;
        next_due = level.iter().filter_map(|lane| lane.next_due).chain(next_due).min();
        seen.append(&mut level);
    }
    Ok(PickedTasks { waiting, lanes: seen, rest: ClaimRest::More })
}

/// Takes due tasks from the lanes of one priority until there are `limit` in total.
pub(crate) fn merge(
    tx: &JobTransaction<'_>,
    level: &mut [LaneReader],
    limit: usize,
    picked: &mut Vec<Waiting>,
) -> Result<(), JobError> {
    if level.is_empty() {
        return Ok(());
    }
    // Enough for an even share; a lane with more is read again.
    let share = ((limit - picked.len()) / level.len()).max(8);
    while picked.len() < limit {
        let mut first: Option<(Head, usize)> = None;
        for (place, lane) in level.iter_mut().enumerate() {
            if let Some(head) = lane.head(tx, share)? {
                first = Some(first.map_or((head, place), |first| first.min((head, place))));
            }
        }
        let Some((_, place)) = first else {
            return Ok(());
        };
        picked.extend(level[place].take());
    }
    Ok(())
}

/// The tasks that exist.
fn created(waiting: Vec<Waiting>) -> Vec<ClaimedTask> {
    let created = |Waiting { head, task }| {
        if task.is_none() {
            // Otherwise it would be the first of every claim.
            tracing::error!(
                task_id = head.task_id,
                "a task waits that was never created; it is removed from the queue"
            );
        }
        task
    };
    waiting.into_iter().filter_map(created).collect()
}
