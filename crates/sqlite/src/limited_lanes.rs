//! Lanes of tasks with limits: due tasks move to the lane of their keys, and claims go round
//! the lanes.

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension, Params, params};
use task_engine_core::json::Json;
use task_engine_core::limit::{LaneKey, limited_queue};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::Head;
use crate::limits::LimitSet;
use crate::value::read;

/// Tasks of one queue and class; the order is that of claims that go round.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pair {
    /// Without the mark of limited lanes.
    pub(crate) queue: String,
    pub(crate) class: String,
}

/// A lane, within one priority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LanePlace {
    pub(crate) pair: Pair,
    /// The lane key, as it is stored.
    pub(crate) key: String,
}

/// What a move has left behind.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The first due task that was not moved.
    pub(crate) first_left: Option<Head>,
    /// When the first task that is not due will be.
    pub(crate) next_due: Option<i64>,
}

struct Movable {
    head: Head,
    parameters: Json,
    context: Json,
}

/// Moves due tasks to the lanes of their keys: at most `most` from the beginning of the lane,
/// and a quarter of that from its end. So many tasks of one key do not hide the tasks of
/// others. If a limit is in order, only from the beginning.
pub(crate) fn move_due(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    pair: &Pair,
    priority: i64,
    most: usize,
) -> Result<Moved, JobError> {
    let mut moved = Moved::default();
    let mut heads = tx.db.prepare_cached(sql!("engine/limits", "move_heads"))?;
    let ahead = (most + 1) as i64;
    let mut tasks = movable(&mut heads, params![pair.queue, pair.class, priority, ahead])?;
    let due = tasks.iter().take_while(|task| task.head.due_at <= tx.now()).count();
    moved.next_due = tasks.get(due).map(|task| task.head.due_at);
    moved.first_left = tasks.get(most).filter(|_| due > most).map(|task| task.head);
    tasks.truncate(due.min(most));
    if moved.first_left.is_some() && !limits.may_be_in_order(&pair.class, &pair.queue) {
        let mut tails = tx.db.prepare_cached(sql!("engine/limits", "move_tails"))?;
        let some = (most / 4) as i64;
        let last = movable(&mut tails, params![pair.queue, pair.class, priority, tx.now(), some])?;
        tasks.extend(last);
    }
    move_all(tx, limits, pair, &tasks)?;
    Ok(moved)
}

/// Moves tasks of a lane whose key is out of date. Returns the first one that is left.
pub(crate) fn move_outdated(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    lane: &LanePlace,
    priority: i64,
    most: usize,
) -> Result<Option<Head>, JobError> {
    let LanePlace { pair, key } = lane;
    let mut rows = tx.db.prepare_cached(sql!("engine/limits", "lane_rows"))?;
    let (queue, ahead) = (limited_queue(&pair.queue), (most + 1) as i64);
    let mut tasks = movable(&mut rows, params![queue, pair.class, priority, key, ahead])?;
    let first_left = tasks.get(most).map(|task| task.head);
    tasks.truncate(most);
    move_all(tx, limits, pair, &tasks)?;
    Ok(first_left)
}

/// Moves one task. Returns its lane.
pub(crate) fn move_one(
    tx: &JobTransaction<'_>,
    task_id: i64,
    pair: &Pair,
    key: &LaneKey,
) -> Result<LanePlace, JobError> {
    let lane = LanePlace { pair: pair.clone(), key: key.to_text() };
    let mut update = tx.db.prepare_cached(sql!("engine/limits", "move"))?;
    update.execute(params![task_id, limited_queue(&pair.queue), lane.key])?;
    Ok(lane)
}

fn move_all(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    pair: &Pair,
    tasks: &[Movable],
) -> Result<(), JobError> {
    let queue = limited_queue(&pair.queue);
    let mut update = tx.db.prepare_cached(sql!("engine/limits", "move"))?;
    for task in tasks {
        let key = limits.lane_key(&pair.class, &pair.queue, &task.parameters, &task.context);
        update.execute(params![task.head.task_id, queue, key.to_text()])?;
    }
    Ok(())
}

/// All of them before the first one is moved: the statement reads what changes.
fn movable(
    statement: &mut CachedStatement<'_>,
    parameters: impl Params,
) -> Result<Vec<Movable>, JobError> {
    let rows = statement.query_map(parameters, |row| {
        Ok(Movable {
            head: Head { task_id: read(row, 0)?, due_at: read(row, 1)? },
            parameters: read(row, 2)?,
            context: read(row, 3)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first task of a lane.
pub(crate) fn first_of(
    tx: &JobTransaction<'_>,
    lane: &LanePlace,
    priority: i64,
) -> Result<Option<Head>, JobError> {
    let mut rows = tx.db.prepare_cached(sql!("engine/limits", "lane_rows"))?;
    let queue = limited_queue(&lane.pair.queue);
    let first = rows.query_row(params![queue, lane.pair.class, priority, lane.key, 1], |row| {
        Ok(Head { task_id: read(row, 0)?, due_at: read(row, 1)? })
    });
    Ok(first.optional()?)
}

/// Goes round the lanes of one priority, once, from the lane after a place on.
pub(crate) struct LaneCursor<'t> {
    next: CachedStatement<'t>,
    priority: i64,
    /// The parts of the round that are left, the next one last.
    parts: Vec<Part>,
}

/// The lanes of a queue and class after a key, up to another one.
struct Part {
    pair: Pair,
    after: String,
    up_to: Option<String>,
}

impl<'t> LaneCursor<'t> {
    /// `pairs` are in order.
    pub(crate) fn new(
        tx: &'t JobTransaction<'t>,
        priority: i64,
        pairs: &[Pair],
        after: Option<&LanePlace>,
    ) -> Result<Self, JobError> {
        let whole = |pair: &Pair| Part { pair: pair.clone(), after: String::new(), up_to: None };
        let at = after.map_or(0, |lane| pairs.partition_point(|pair| *pair < lane.pair));
        let (before, behind) = pairs.split_at(at);
        let mut parts: Vec<Part> = behind.iter().chain(before).map(whole).collect();
        if let (Some(lane), Some(first)) = (after, parts.first_mut())
            && first.pair == lane.pair
        {
            let up_to = Some(lane.key.clone());
            first.after.clone_from(&lane.key);
            parts.push(Part { pair: lane.pair.clone(), after: String::new(), up_to });
        }
        parts.reverse();
        let next = tx.db.prepare_cached(sql!("engine/limits", "next_lane"))?;
        Ok(Self { next, priority, parts })
    }

    /// The next lane, with its first task.
    pub(crate) fn next(&mut self) -> Result<Option<(LanePlace, Head)>, JobError> {
        while let Some(part) = self.parts.last_mut() {
            let Part { pair, after, up_to } = part;
            let queue = limited_queue(&pair.queue);
            let found: Option<(String, Head)> = self
                .next
                .query_row(params![queue, pair.class, self.priority, &*after], |row| {
                    let head = Head { due_at: read(row, 1)?, task_id: read(row, 2)? };
                    Ok((read(row, 0)?, head))
                })
                .optional()?;
            match found {
                Some((key, head)) if up_to.as_ref().is_none_or(|last| key <= *last) => {
                    after.clone_from(&key);
                    return Ok(Some((LanePlace { pair: pair.clone(), key }, head)));
                }
                _ => drop(self.parts.pop()),
            }
        }
        Ok(None)
    }
}

/// Where the last claim stopped.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whether tasks without limits get the odd one of a claim next.
    pub(crate) plain_first: bool,
    /// For each priority.
    places: HashMap<i64, Turn>,
}

/// The lane that was served last.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) lane: LanePlace,
    /// What is left of the share that its weight gives it.
    pub(crate) left: usize,
}

/// More priorities are not remembered.
const PRIORITIES_MAX: usize = 1000;

impl Turns {
    pub(crate) fn get(&self, priority: i64) -> Option<&Turn> {
        self.places.get(&priority)
    }

    pub(crate) fn set(&mut self, priority: i64, lane: LanePlace, left: usize) {
        if self.places.len() > PRIORITIES_MAX {
            self.places.clear();
        }
        self.places.insert(priority, Turn { lane, left });
    }
}
