//! Queues: paused, resumed, and what is in them.

use rusqlite::{OptionalExtension, params};
use task_engine_core::queue::{BoundedCount, PausedQueue, QueueList, QueuePause, QueueRow};

use crate::desk::Turn;
use crate::fault::Fault;
use crate::moment::timestamp;
use crate::value::read;

/// Claims are made in the writer's transactions too, one after the other: those
/// that come after this one see it.
pub(crate) fn pause(turn: &Turn<'_>, pause: &QueuePause) -> Result<bool, Fault> {
    let was_paused: bool = turn
        .db
        .prepare_cached(sql!("queue_is_paused"))?
        .query_row([pause.queue()], |row| read(row, 0))?;
    turn.db.prepare_cached(sql!("queue_pause"))?.execute(params![
        pause.queue(),
        pause.reason(),
        turn.now()
    ])?;
    Ok(!was_paused)
}

pub(crate) fn resume(turn: &Turn<'_>, queue: &str) -> Result<bool, Fault> {
    let resumed = turn.db.prepare_cached(sql!("queue_resume"))?.execute([queue])? > 0;
    turn.brings_work.set(resumed || turn.brings_work.get());
    Ok(resumed)
}

pub(crate) fn paused(turn: &Turn<'_>) -> Result<Vec<PausedQueue>, Fault> {
    let mut statement = turn.db.prepare_cached(sql!("queues_paused"))?;
    let rows = statement.query_map([], |row| {
        Ok(PausedQueue {
            queue: read(row, 0)?,
            reason: read(row, 1)?,
            paused_at: timestamp(read(row, 2)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn queues(turn: &Turn<'_>) -> Result<Vec<QueueRow>, Fault> {
    let mut list = QueueList::default();
    waiting(turn, &mut list)?;
    let mut statement = turn.db.prepare_cached(sql!("queues_running"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        list.running(&read::<String>(row, 0)?, read(row, 1)?);
    }
    let mut statement = turn.db.prepare_cached(sql!("queues_served"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        list.served(&read::<String>(row, 0)?);
    }
    for paused in paused(turn)? {
        list.paused(paused);
    }
    Ok(list.into_rows())
}

/// Jumps from lane to lane, and counts each up to the limit.
fn waiting(turn: &Turn<'_>, list: &mut QueueList) -> Result<(), Fault> {
    let mut next = turn.db.prepare_cached(sql!("queues_next_lane"))?;
    let mut count = turn.db.prepare_cached(sql!("queues_count"))?;
    let mut at = (String::new(), String::new(), 0_i32);
    for _ in 0..QueueList::LANES_MAX {
        let found = next
            .query_row(params![at.0, at.1, at.2], |row| {
                Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?))
            })
            .optional()?;
        let Some(lane) = found else { break };
        at = lane;
        let (due, later) = count.query_row(
            params![at.0, at.1, at.2, turn.now(), BoundedCount::PER_LANE_MAX + 1],
            |row| Ok((read(row, 0)?, read(row, 1)?)),
        )?;
        list.waiting(&at.0, due, later);
    }
    Ok(())
}
