//! The use of limits, for readers.

use rusqlite::{OptionalExtension, params};
use task_engine_core::limit::{
    Holder, LaneKey, LaneUsage, LaneWait, LimitId, LimitKey, LimitKeyUsage, LimitRow, LimitUsage,
    TaskLimit, plain_queue,
};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limit_keys::{LoadedKey, closed};
use crate::limits::LimitSet;
use crate::moment::timestamp;
use crate::value::read;

/// At most so many lanes or keys are read to find those that are wanted.
const READ_MAX: usize = 10_000;

pub(crate) fn limits(tx: &JobTransaction<'_>) -> Result<Vec<LimitRow>, JobError> {
    Ok(LimitSet::read(tx)?.rows)
}

pub(crate) fn usage(
    tx: &JobTransaction<'_>,
    limit: Option<LimitId>,
    at_most: u32,
) -> Result<LimitUsage, JobError> {
    let limits = LimitSet::read(tx)?;
    let mut usage = LimitUsage::default();
    read_lanes(tx, &limits, limit, at_most as usize, &mut usage)?;
    read_keys(tx, &limits, limit, at_most as usize, &mut usage)?;
    Ok(usage)
}

/// The limits of a task, with the state of their keys.
pub(crate) fn task_limits(tx: &JobTransaction<'_>, id: TaskId) -> Result<Vec<TaskLimit>, JobError> {
    let limits = LimitSet::read(tx)?;
    let mut statement = tx.db.prepare_cached(sql!("readers/limits", "task_keys"))?;
    let keys = statement.query_row([id.0], |row| {
        let (class, queue): (String, String) = (read(row, 0)?, read(row, 1)?);
        let (parameters, context) = (read(row, 2)?, read(row, 3)?);
        Ok(limits.lane_key(&class, &queue, &parameters, &context))
    });
    let mut of_task = Vec::new();
    for key in keys.optional()?.unwrap_or_default().0 {
        if let Some(limit) = limits.row(key.0) {
            of_task.push(TaskLimit { limit: limit.clone(), usage: key_usage(tx, &limits, &key)? });
        }
    }
    Ok(of_task)
}

fn read_lanes(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    limit: Option<LimitId>,
    at_most: usize,
    usage: &mut LimitUsage,
) -> Result<(), JobError> {
    let mut next = tx.db.prepare_cached(sql!("readers/limits", "next_lane"))?;
    let mut count = tx.db.prepare_cached(sql!("readers/limits", "lane_count"))?;
    let mut at = (String::new(), String::new(), 0_i64, String::new());
    for _ in 0..READ_MAX {
        let found = next
            .query_row(params![at.0, at.1, at.2, at.3], |row| {
                Ok(((read(row, 0)?, read(row, 1)?, read(row, 2)?, read(row, 3)?), read(row, 4)?))
            })
            .optional()?;
        let Some((lane, due_since)) = found else {
            return Ok(());
        };
        at = lane;
        let mut lane_key = LaneKey::parse(&at.3).unwrap_or_default();
        lane_key.0.retain(|key| limits.get(key.0).is_some());
        if limit.is_some_and(|id| lane_key.0.iter().all(|key| key.0 != id)) {
            continue;
        }
        if usage.lanes.len() == at_most {
            break;
        }
        let mut waiting = BoundedCount::default();
        let most = BoundedCount::PER_LANE_MAX + 1;
        waiting.add(count.query_row(params![at.0, at.1, at.2, at.3, most], |row| read(row, 0))?);
        let nearest = at.2.clamp(i32::MIN.into(), i32::MAX.into());
        usage.lanes.push(LaneUsage {
            queue: plain_queue(&at.0).to_owned(),
            class: at.1.clone(),
            priority: i32::try_from(nearest).unwrap_or(0),
            lane_key,
            waiting,
            due_since: timestamp(due_since),
        });
    }
    usage.and_more = true;
    Ok(())
}

fn read_keys(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    limit: Option<LimitId>,
    at_most: usize,
    usage: &mut LimitUsage,
) -> Result<(), JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/limits", "keys"))?;
    let mut left = READ_MAX;
    for row in limits.rows.iter().filter(|row| limit.is_none_or(|id| row.id == id)) {
        let keys = statement
            .query_map(params![row.id.0, tx.now(), left as i64], |key| read::<String>(key, 0))?;
        for key in keys {
            left -= 1;
            let key = key_usage(tx, limits, &LimitKey(row.id, key?))?;
            let is_used =
                !key.holders.is_empty() || key.closed.is_some() || key.next_start_in.is_some();
            if is_used && usage.keys.len() == at_most || left == 0 {
                usage.and_more = true;
                return Ok(());
            }
            if is_used {
                usage.keys.push(key);
            }
        }
    }
    Ok(())
}

fn key_usage(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    key: &LimitKey,
) -> Result<LimitKeyUsage, JobError> {
    let (loaded, mut state) = LoadedKey::read(tx, limits, key, 1)?;
    // Attempts that run do not matter for the time.
    state.running = 0;
    let next_start_in = match state.wait() {
        Some(LaneWait::For(time)) => Some(time),
        _ => None,
    };
    let holders = loaded.holders.iter();
    let mut statement = tx.db.prepare_cached(sql!("readers/limits", "written_at"))?;
    let written = statement
        .query_row(params![key.0.0, key.1], |row| Ok((read::<i64>(row, 0)?, read::<i64>(row, 1)?)));
    let last_start_at = written.optional()?.filter(|(_, total)| *total > 0);
    Ok(LimitKeyUsage {
        limit: key.0,
        key: key.1.clone(),
        holders: holders
            .map(|holder| Holder { attempt: holder.id, is_running: holder.is_running })
            .collect(),
        last_start_at: last_start_at.map(|(at, _)| timestamp(at)),
        next_start_in,
        closed: closed(tx, key)?.map(|(until, reason)| (timestamp(until), reason)),
    })
}
