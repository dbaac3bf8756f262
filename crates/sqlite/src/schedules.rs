//! Schedules: kept, found when they are due, and fired.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, ToSql, params};
use task_engine_core::schedule::Overlap;
use task_engine_core::schedule::history::{
    SCHEDULE_EVENTS_KEPT, ScheduleEvent, ScheduleEventKind, SkippedSlots,
};
use task_engine_core::schedule::row::{
    DueSchedule, DueSchedules, FIRED_SLOTS_KEPT, FiredSlot, Firing, SchedulePause, ScheduleRow,
    ScheduleState, ScheduleVersion, ScheduleWrite,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;

use crate::connection_thread::JobTransaction;
use crate::create::create;
use crate::error::JobError;
use crate::moment::{between, timestamp};
use crate::value::read;

pub(crate) fn schedule(
    tx: &JobTransaction<'_>,
    name: &str,
) -> Result<(Option<ScheduleRow>, Timestamp), JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedule"))?;
    let row = statement.query_row([name], schedule_row).optional()?;
    Ok((row, timestamp(tx.now())))
}

pub(crate) fn schedules(
    tx: &JobTransaction<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<ScheduleRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedules"))?;
    let after = after.unwrap_or("");
    let rows = statement.query_map(params![after, limit], schedule_row)?;
    let mut rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    // A name that is not UTF-8 is shown as another one, which may sort before it: the
    // next page would begin with it again.
    rows.retain(|row| row.name.as_str() > after);
    Ok(rows)
}

pub(crate) fn write(tx: &JobTransaction<'_>, write: &ScheduleWrite) -> Result<bool, JobError> {
    let ScheduleState { definition, declared, overlap, anchor, paused, error, next_at } =
        &write.state;
    let paused_at = paused.as_ref().map(|pause| pause.at.as_microsecond());
    let reason = paused.as_ref().and_then(|pause| pause.reason.as_deref());
    let (definition, overlap) = (definition.as_str(), overlap.as_str());
    let (anchor, next_at) = (anchor.as_microsecond(), next_at.map(Timestamp::as_microsecond));
    let written = match write.expected {
        None => tx.db.prepare_cached(sql!("schedules/schedules", "schedule_insert"))?.execute(
            params![
                write.name,
                definition,
                declared,
                overlap,
                anchor,
                paused_at,
                reason,
                error,
                next_at,
                tx.now()
            ],
        )?,
        Some(ScheduleVersion { id, version }) => tx
            .db
            .prepare_cached(sql!("schedules/schedules", "schedule_update"))?
            .execute(params![
                write.name,
                definition,
                declared,
                overlap,
                anchor,
                paused_at,
                reason,
                error,
                next_at,
                tx.now(),
                id,
                version
            ])?,
    };
    if written > 0 {
        notify_change(tx)?;
    }
    Ok(written > 0)
}

pub(crate) fn remove(tx: &JobTransaction<'_>, name: &str) -> Result<bool, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedule_remove"))?;
    let id: Option<i64> = statement.query_row([name], |row| read(row, 0)).optional()?;
    if let Some(id) = id {
        tx.db
            .prepare_cached(sql!("schedules/schedules", "schedule_remove_slots"))?
            .execute([id])?;
        tx.db
            .prepare_cached(sql!("schedules/schedules", "schedule_remove_events"))?
            .execute([id])?;
        notify_change(tx)?;
    }
    Ok(id.is_some())
}

/// Notifies engines in this process and in others, so that they set their timers again.
fn notify_change(tx: &JobTransaction<'_>) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("schedules/schedules", "schedule_changed"))?.execute([])?;
    tx.changes_schedules.set(true);
    Ok(())
}

pub(crate) fn due(tx: &JobTransaction<'_>, limit: u32) -> Result<DueSchedules, JobError> {
    let now = tx.now();
    let mut due = DueSchedules {
        rows: Vec::new(),
        blocked: false,
        next_in: next_after(tx, now)?.map(|next| between(now, next)),
        now: timestamp(now),
    };
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedules_due"))?;
    let mut rows = statement.query([now])?;
    while due.rows.len() < limit as usize
        && let Some(row) = rows.next()?
    {
        let row = schedule_row(row)?;
        let last_runs = row.state.overlap != Overlap::Allow && is_open(tx, row.last_task)?;
        if last_runs && row.state.overlap == Overlap::Wait {
            due.blocked = true;
        } else {
            due.rows.push(DueSchedule { row, last_runs });
        }
    }
    Ok(due)
}

/// The time until the next slot, or `None` if one is due.
pub(crate) fn next_in(tx: &JobTransaction<'_>) -> Result<Option<std::time::Duration>, JobError> {
    Ok(next_after(tx, i64::MIN)?.map(|next| between(tx.now(), next)))
}

fn next_after(tx: &JobTransaction<'_>, time: i64) -> Result<Option<i64>, JobError> {
    Ok(tx
        .db
        .prepare_cached(sql!("schedules/schedules", "schedules_next"))?
        .query_row([time], |row| read(row, 0))?)
}

/// There is one writer, so the rows do not change before they are written.
pub(crate) fn fire(tx: &JobTransaction<'_>, firings: &[Firing]) -> Result<Vec<bool>, JobError> {
    firings.iter().map(|firing| fire_one(tx, firing)).collect()
}

fn fire_one(tx: &JobTransaction<'_>, firing: &Firing) -> Result<bool, JobError> {
    let ScheduleVersion { id, version } = firing.schedule;
    let as_seen: bool = tx
        .db
        .prepare_cached(sql!("schedules/schedules", "schedule_unchanged"))?
        .query_row([id, version], |row| read(row, 0))?;
    if !as_seen || is_open(tx, firing.after)? {
        return Ok(false);
    }
    let tasks: Vec<_> = firing.slots.iter().map(|(_, task)| task.clone()).collect();
    let created = create(tx, &tasks)?;
    let mut last = None;
    for ((slot, _), created) in firing.slots.iter().zip(created) {
        let (slot, task) = (slot.as_microsecond(), created.id().0);
        tx.db
            .prepare_cached(sql!("schedules/schedules", "fired_slot_insert"))?
            .execute(params![id, slot, task, tx.now()])?;
        last = Some((slot, task));
    }
    if let Some(skipped) = &firing.skipped {
        skip(tx, id, skipped)?;
    }
    tx.db
        .prepare_cached(sql!("schedules/schedules", "fired_slots_delete_old"))?
        .execute(params![id, FIRED_SLOTS_KEPT])?;
    tx.db.prepare_cached(sql!("schedules/schedules", "schedule_move"))?.execute(params![
        id,
        firing.next_at.map(Timestamp::as_microsecond),
        last.map(|(slot, _)| slot),
        last.map(|(_, task)| task),
    ])?;
    tx.brings_work.set(last.is_some() || tx.brings_work.get());
    Ok(true)
}

/// Records slots that do not fire, before the schedule is moved on.
fn skip(tx: &JobTransaction<'_>, id: i64, skipped: &SkippedSlots) -> Result<(), JobError> {
    let (kind, slots) = (skipped.kind.as_str(), skipped.slots);
    let (first, last) = (skipped.first.as_microsecond(), skipped.last.as_microsecond());
    let mut extend = tx.db.prepare_cached(sql!("schedules/schedules", "schedule_event_extend"))?;
    if extend.execute(params![id, kind, last, slots, tx.now()])? == 0 {
        let none = None::<i64>;
        let event = params![id, kind, first, last, slots, none, none, tx.now()];
        add_event(tx, id, event)?;
    }
    Ok(())
}

fn add_event(tx: &JobTransaction<'_>, id: i64, event: &[&dyn ToSql]) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("schedules/schedules", "schedule_event_insert"))?.execute(event)?;
    let mut forget =
        tx.db.prepare_cached(sql!("schedules/schedules", "schedule_events_delete_old"))?;
    forget.execute(params![id, SCHEDULE_EVENTS_KEPT])?;
    Ok(())
}

/// The usual creation, and the record of it.
pub(crate) fn run(
    tx: &JobTransaction<'_>,
    id: i64,
    task: &NewTask,
    requested_by: Option<&str>,
) -> Result<Creation, JobError> {
    let created = create(tx, std::slice::from_ref(task))?.remove(0);
    if created.is_new() {
        let none = None::<i64>;
        let event = params![id, "manual", none, none, 0, created.id().0, requested_by, tx.now()];
        add_event(tx, id, event)?;
    }
    Ok(created)
}

pub(crate) fn events(
    tx: &JobTransaction<'_>,
    schedule_id: i64,
    limit: u32,
) -> Result<Vec<ScheduleEvent>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedule_events"))?;
    let rows = statement.query_map(params![schedule_id, limit], |row| {
        Ok(ScheduleEvent {
            kind: event_kind(row)?,
            first_slot: read(row, 1)?,
            last_slot: read(row, 2)?,
            slots: read(row, 3)?,
            task_id: read::<Option<i64>>(row, 4)?.map(TaskId),
            requested_by: read(row, 5)?,
            recorded_at: read(row, 6)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first column; a constraint allows no other value.
pub(crate) fn event_kind(row: &Row<'_>) -> rusqlite::Result<ScheduleEventKind> {
    let kind: String = read(row, 0)?;
    kind.parse().map_err(|bad| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(bad))
    })
}

fn is_open(tx: &JobTransaction<'_>, task: Option<TaskId>) -> Result<bool, JobError> {
    let Some(task) = task else {
        return Ok(false);
    };
    Ok(tx
        .db
        .prepare_cached(sql!("schedules/schedules", "task_is_open"))?
        .query_row([task.0], |row| read(row, 0))?)
}

pub(crate) fn fired_slots(
    tx: &JobTransaction<'_>,
    schedule_id: i64,
    limit: u32,
) -> Result<Vec<FiredSlot>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "fired_slots"))?;
    let rows = statement.query_map(params![schedule_id, limit], |row| {
        Ok(FiredSlot {
            slot: read(row, 0)?,
            task_id: TaskId(read(row, 1)?),
            fired_at: read(row, 2)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn schedule_row(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let overlap: String = read(row, 5)?;
    let reason = read(row, 8)?;
    Ok(ScheduleRow {
        name: read(row, 2)?,
        version: ScheduleVersion { id: read(row, 0)?, version: read(row, 1)? },
        state: ScheduleState {
            // Text of a damaged row is no reason to read none of them.
            definition: read(row, 3)?,
            declared: read(row, 4)?,
            overlap: overlap.parse().unwrap_or(Overlap::Allow),
            anchor: read(row, 6)?,
            paused: read::<Option<_>>(row, 7)?.map(|at| SchedulePause { at, reason }),
            error: read(row, 9)?,
            next_at: read(row, 10)?,
        },
        last_slot: read(row, 11)?,
        last_task: read::<Option<i64>>(row, 12)?.map(TaskId),
        created_at: read(row, 13)?,
        updated_at: read(row, 14)?,
    })
}

/// Schedules that are due: by name, for how long, and whether each waits for its
/// last task to end.
pub(crate) fn late(
    tx: &JobTransaction<'_>,
) -> Result<Vec<(String, std::time::Duration, bool)>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("schedules/schedules", "schedules_due"))?;
    let mut rows = statement.query([tx.now()])?;
    let mut late = Vec::new();
    while late.len() < 100
        && let Some(row) = rows.next()?
    {
        let row = schedule_row(row)?;
        let waits = row.state.overlap == Overlap::Wait && is_open(tx, row.last_task)?;
        let next = row.state.next_at.map_or(tx.now(), Timestamp::as_microsecond);
        late.push((row.name, between(next, tx.now()), waits));
    }
    Ok(late)
}
