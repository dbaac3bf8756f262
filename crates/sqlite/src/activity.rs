//! Current activity, for readers.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, params};
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{is_blocked_queue, plain_queue};
use task_engine_core::progress::ProgressRow;
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts, HeldAttempt, NextTask,
};
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::AFTER_BLOCKED;
use crate::moment::{micros, timestamp};
use crate::read::status;
use crate::value::read;

pub(crate) fn activity(tx: &JobTransaction<'_>, look: ActivityQuery) -> Result<Activity, JobError> {
    let newest: Option<i64> = tx
        .db
        .prepare_cached(sql!("readers/activity", "activity_newest"))?
        .query_row([], |row| read(row, 0))?;
    let held = held(tx)?;
    Ok(Activity {
        now: timestamp(tx.now()),
        newest: newest.map(TaskId),
        held,
        next: next(tx, look)?,
    })
}

pub(crate) fn held(tx: &JobTransaction<'_>) -> Result<Vec<HeldAttempt>, JobError> {
    let mut held = tx.db.prepare_cached(sql!("readers/activity", "activity_held"))?;
    Ok(held.query_map([], held_attempt)?.collect::<rusqlite::Result<_>>()?)
}

/// Jumps from lane to lane, and reads the beginning of each.
fn next(tx: &JobTransaction<'_>, look: ActivityQuery) -> Result<Vec<NextTask>, JobError> {
    let mut next_lane = tx.db.prepare_cached(sql!("readers/queues", "queues_next_lane"))?;
    let mut first = tx.db.prepare_cached(sql!("readers/activity", "activity_next"))?;
    let until = tx.now().saturating_add(micros(look.soon));
    let mut at = (String::new(), String::new(), 0_i32);
    let mut next = Vec::new();
    for _ in 0..ActivityQuery::LANES_MAX {
        let found = next_lane
            .query_row(params![at.0, at.1, at.2], |row| {
                Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?))
            })
            .optional()?;
        let Some(lane) = found else { break };
        at = lane;
        if is_blocked_queue(&at.0) {
            at = (AFTER_BLOCKED.to_owned(), String::new(), 0);
            continue;
        }
        let room = ActivityQuery::TASKS_MAX - i64::try_from(next.len()).unwrap_or(i64::MAX);
        let limit = look.per_lane.min(room);
        let mut rows = first.query(params![at.0, at.1, at.2, until, limit])?;
        while let Some(row) = rows.next()? {
            next.push(NextTask {
                task_id: TaskId(read(row, 0)?),
                queue: plain_queue(&at.0).to_owned(),
                class: at.1.clone(),
                priority: at.2,
                due_at: read(row, 1)?,
            });
        }
    }
    Ok(first_of_lanes(next, look.per_lane))
}

/// The first tasks of each queue, class and priority: those that were moved to lanes of
/// their keys, and those that were not, are read separately.
fn first_of_lanes(mut next: Vec<NextTask>, per_lane: i64) -> Vec<NextTask> {
    let lane = |task: &NextTask| (task.queue.clone(), task.class.clone(), task.priority);
    next.sort_by_cached_key(|task| (lane(task), task.due_at, task.task_id));
    let (mut last, mut count) = (None, 0);
    next.retain(|task| {
        let this = Some(lane(task));
        count = if this == last { count + 1 } else { 1 };
        last = this;
        count <= per_lane
    });
    next
}

pub(crate) fn endings(
    tx: &JobTransaction<'_>,
    look: &EndingsQuery,
) -> Result<Vec<EndingRow>, JobError> {
    let since = tx.now().saturating_sub(micros(look.age_max));
    let mut statement = tx.db.prepare_cached(sql!("readers/activity", "endings"))?;
    // Places may overlap.
    let mut found = BTreeMap::new();
    for (low, high) in &look.ids {
        let mut rows = statement.query(params![low.0, high.0, look.limit, since])?;
        while let Some(row) = rows.next()? {
            let ending = ending_row(row)?;
            found.insert((ending.stopped_at, ending.id()), ending);
        }
    }
    Ok(found.into_values().collect())
}

pub(crate) fn failure_counts(tx: &JobTransaction<'_>) -> Result<FailureCounts, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/activity", "failure_counts"))?;
    let mut seen = |status: &str| {
        statement.query_row(params![status, FailureCounts::COUNTED_MAX + 1], |row| read(row, 0))
    };
    Ok(FailureCounts::of(seen("failed")?, seen("cancelled")?))
}

pub(crate) fn queue_position(
    tx: &JobTransaction<'_>,
    look: &QueuePositionQuery,
) -> Result<Option<QueuePosition>, JobError> {
    let found = tx
        .db
        .prepare_cached(sql!("readers/activity", "queue_position_of"))?
        .query_row([look.id.0], |row| Ok((read::<i32>(row, 0)?, read::<i64>(row, 1)?)))
        .optional()?;
    let Some((priority, due_at)) = found else {
        return Ok(None);
    };
    let mut count = tx.db.prepare_cached(sql!("readers/activity", "queue_position_count"))?;
    let (queues, classes) =
        (serde_json::to_string(&look.queues)?, serde_json::to_string(&look.classes)?);
    let mut tasks = BoundedCount::default();
    // The claim's own way to find lanes, from this task's priority up.
    for lanes in [sql!("engine/claim", "claim_lanes"), sql!("engine/limits", "limited_claim_lanes")]
    {
        let mut lanes = tx.db.prepare_cached(lanes)?;
        let mut rows = lanes.query(params![queues, classes, priority])?;
        while let Some(row) = rows.next()? {
            let (queue, class, lane): (String, String, i32) =
                (read(row, 0)?, read(row, 1)?, read(row, 2)?);
            let (until, id) = if lane > priority {
                (tx.now(), i64::MAX)
            } else {
                (due_at.min(tx.now()), look.id.0)
            };
            tasks.add(count.query_row(
                params![queue, class, lane, until, id, BoundedCount::PER_LANE_MAX + 1],
                |row| read(row, 0),
            )?);
        }
    }
    // One process writes at a time, and not for long: no row has a lock.
    Ok(Some(QueuePosition { tasks, locked_by: None }))
}

fn held_attempt(row: &Row<'_>) -> rusqlite::Result<HeldAttempt> {
    let percent: Option<f64> = read(row, 7)?;
    let message: Option<String> = read(row, 8)?;
    let reported_at: Option<i64> = read(row, 9)?;
    let progress = || {
        Some(ProgressRow {
            percent: percent?,
            message: message?,
            reported_at: timestamp(reported_at?),
        })
    };
    Ok(HeldAttempt {
        task_id: TaskId(read(row, 0)?),
        attempt: read(row, 1)?,
        instance_id: InstanceId(read(row, 2)?),
        claimed_at: read(row, 3)?,
        class: read(row, 4)?,
        queue: read(row, 5)?,
        priority: read(row, 6)?,
        progress: progress(),
    })
}

fn ending_row(row: &Row<'_>) -> Result<EndingRow, JobError> {
    let ends_task: Option<String> = read(row, 8)?;
    Ok(EndingRow {
        task_id: TaskId(read(row, 0)?),
        attempt: read(row, 1)?,
        class: read(row, 2)?,
        queue: read(row, 3)?,
        instance_id: read::<Option<i64>>(row, 4)?.map(InstanceId),
        instance: read(row, 5)?,
        started_at: read(row, 6)?,
        stopped_at: read(row, 7)?,
        ends_task: ends_task.as_deref().map(status).transpose()?,
        retry_at: read(row, 9)?,
        error: read(row, 10)?,
    })
}
