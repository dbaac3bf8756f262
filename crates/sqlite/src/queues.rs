//! Queues: pause, resume, list.

use rusqlite::{OptionalExtension, params};
use task_engine_core::limit::{is_blocked_queue, plain_queue};
use task_engine_core::queue::{BoundedCount, PausedQueue, QueueListBuilder, QueuePause, QueueRow};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::value::read;

/// Claims also run in the writer's transactions, one after the other, so later ones see
/// this.
pub(crate) fn pause(tx: &JobTransaction<'_>, pause: &QueuePause) -> Result<bool, JobError> {
    let was_paused: bool = tx
        .db
        .prepare_cached(sql!("readers/queues", "queue_is_paused"))?
        .query_row([pause.queue()], |row| read(row, 0))?;
    tx.db.prepare_cached(sql!("readers/queues", "queue_pause"))?.execute(params![
        pause.queue(),
        pause.reason(),
        tx.now()
    ])?;
    Ok(!was_paused)
}

pub(crate) fn resume(tx: &JobTransaction<'_>, queue: &str) -> Result<bool, JobError> {
    let resumed =
        tx.db.prepare_cached(sql!("readers/queues", "queue_resume"))?.execute([queue])? > 0;
    tx.brings_work.set(resumed || tx.brings_work.get());
    Ok(resumed)
}

pub(crate) fn paused(tx: &JobTransaction<'_>) -> Result<Vec<PausedQueue>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/queues", "queues_paused"))?;
    let rows = statement.query_map([], |row| {
        Ok(PausedQueue { queue: read(row, 0)?, reason: read(row, 1)?, paused_at: read(row, 2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn queues(tx: &JobTransaction<'_>) -> Result<Vec<QueueRow>, JobError> {
    let mut list = QueueListBuilder::default();
    waiting(tx, &mut list)?;
    let mut statement = tx.db.prepare_cached(sql!("readers/queues", "queues_running"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        list.running(&read::<String>(row, 0)?, read(row, 1)?);
    }
    let mut statement = tx.db.prepare_cached(sql!("readers/queues", "queues_served"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        list.served(&read::<String>(row, 0)?);
    }
    for paused in paused(tx)? {
        list.paused(paused);
    }
    Ok(list.into_rows())
}

/// Jumps from lane to lane, and counts each up to the limit.
fn waiting(tx: &JobTransaction<'_>, list: &mut QueueListBuilder) -> Result<(), JobError> {
    let mut next = tx.db.prepare_cached(sql!("readers/queues", "queues_next_lane"))?;
    let mut count = tx.db.prepare_cached(sql!("readers/queues", "queues_count"))?;
    let mut at = (String::new(), String::new(), 0_i32);
    for _ in 0..QueueListBuilder::LANES_MAX {
        let found = next
            .query_row(params![at.0, at.1, at.2], |row| {
                Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?))
            })
            .optional()?;
        let Some(lane) = found else { break };
        at = lane;
        let (due, later): (i64, i64) = count.query_row(
            params![at.0, at.1, at.2, tx.now(), BoundedCount::PER_LANE_MAX + 1],
            |row| Ok((read(row, 0)?, read(row, 1)?)),
        )?;
        // A blocked task is not due, whatever its time.
        let (due, later) = if is_blocked_queue(&at.0) { (0, due + later) } else { (due, later) };
        list.waiting(plain_queue(&at.0), due, later);
    }
    Ok(())
}
