//! Schedules: kept, found when they are due, and fired.

use std::collections::HashSet;

use jiff::Timestamp;
use task_engine_model::schedule::Overlap;
use task_engine_model::schedule::row::{
    DueSchedule, DueSchedules, FIRED_SLOTS_KEPT, FiredSlot, Firing, Pause, ScheduleRow,
    ScheduleState, ScheduleVersion, ScheduleWrite,
};
use task_engine_model::{NewTask, StoreError, TaskId};
use tokio_postgres::Row;

use crate::error::store_error;
use crate::json::JsonIn;
use crate::session::Ask as _;
use crate::store::{Inner, from_micros};
use crate::value::read;

const SCHEDULE: &str = include_str!("../sql/schedule.sql");
const SCHEDULES: &str = include_str!("../sql/schedules.sql");
const INSERT: &str = include_str!("../sql/schedule_insert.sql");
const UPDATE: &str = include_str!("../sql/schedule_update.sql");
const REMOVE: &str = include_str!("../sql/schedule_remove.sql");
const DUE: &str = include_str!("../sql/schedules_due.sql");
const LOCK: &str = include_str!("../sql/schedules_lock.sql");
const FIRE: &str = include_str!("../sql/schedules_fire.sql");
const FIRED_SLOTS: &str = include_str!("../sql/fired_slots.sql");

impl Inner {
    pub(crate) async fn schedule(
        &self,
        name: &str,
    ) -> Result<(Option<ScheduleRow>, Timestamp), StoreError> {
        let client = self.connections.work().await?;
        let row = client
            .query_one(&self.schema.sql(SCHEDULE), &[&name])
            .await
            .map_err(|e| store_error(&e))?;
        let there: Option<i64> = read(&row, "id");
        Ok((there.map(|_| schedule_row(&row)), read(&row, "now")))
    }

    pub(crate) async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client
            .query(&self.schema.sql(SCHEDULES), &[&after.unwrap_or(""), &i64::from(limit)])
            .await
            .map_err(|e| store_error(&e))?;
        Ok(rows.iter().map(schedule_row).collect())
    }

    pub(crate) async fn write_schedule(&self, write: &ScheduleWrite) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let ScheduleState { definition, declared, overlap, anchor, paused, error, next_at } =
            &write.state;
        let (definition, overlap) = (JsonIn(definition.as_str()), overlap.as_str());
        let paused_at = paused.as_ref().map(|pause| pause.at);
        let reason = paused.as_ref().and_then(|pause| pause.reason.as_deref());
        let written = match write.expected {
            None => {
                client
                    .query(
                        &self.schema.sql(INSERT),
                        &[
                            &write.name,
                            &definition,
                            declared,
                            &overlap,
                            anchor,
                            &paused_at,
                            &reason,
                            error,
                            next_at,
                        ],
                    )
                    .await
            }
            Some(ScheduleVersion { id, version }) => {
                client
                    .query(
                        &self.schema.sql(UPDATE),
                        &[
                            &write.name,
                            &definition,
                            declared,
                            &overlap,
                            anchor,
                            &paused_at,
                            &reason,
                            error,
                            next_at,
                            &id,
                            &version,
                        ],
                    )
                    .await
            }
        };
        Ok(!written.map_err(|e| store_error(&e))?.is_empty())
    }

    pub(crate) async fn remove_schedule(&self, name: &str) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let gone = client.query(&self.schema.sql(REMOVE), &[&name]).await;
        Ok(!gone.map_err(|e| store_error(&e))?.is_empty())
    }

    pub(crate) async fn due_schedules(&self, limit: u32) -> Result<DueSchedules, StoreError> {
        let client = self.connections.work().await?;
        let rows = client
            .query_cached(&self.schema.sql(DUE), &[&i64::from(limit)])
            .await
            .map_err(|e| store_error(&e))?;
        let Some(first) = rows.first() else {
            return Err(StoreError::Refused("PostgreSQL does not tell the time".into()));
        };
        let is_there = |row: &&Row| row.get::<_, Option<i64>>("id").is_some();
        Ok(DueSchedules {
            blocked: first.get("blocked"),
            next_in: first.get::<_, Option<i64>>("next_us").map(from_micros),
            now: first.get("now"),
            rows: rows
                .iter()
                .filter(is_there)
                .map(|row| DueSchedule {
                    row: schedule_row(row),
                    last_runs: read(row, "last_runs"),
                })
                .collect(),
        })
    }

    /// Three steps of one transaction: lock, create, write down. Creation is the
    /// usual one, with all that belongs to it.
    pub(crate) async fn fire_schedules(&self, firings: &[Firing]) -> Result<Vec<bool>, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await.map_err(|e| store_error(&e))?;
        let ids: Vec<i64> = firings.iter().map(|firing| firing.schedule.id).collect();
        let versions: Vec<i64> = firings.iter().map(|firing| firing.schedule.version).collect();
        let after: Vec<Option<i64>> =
            firings.iter().map(|firing| firing.after.map(|task| task.0)).collect();
        let locked = transaction
            .query_cached(&self.schema.sql(LOCK), &[&ids, &versions, &after])
            .await
            .map_err(|e| store_error(&e))?;
        let won: HashSet<i64> = locked.iter().map(|row| row.get(0)).collect();
        if won.is_empty() {
            return Ok(vec![false; firings.len()]);
        }
        let ours = || firings.iter().filter(|firing| won.contains(&firing.schedule.id));
        let tasks: Vec<NewTask> =
            ours().flat_map(|firing| &firing.slots).map(|(_, task)| task.clone()).collect();
        let created = if tasks.is_empty() {
            Vec::new()
        } else {
            self.schema.create_in(transaction.client(), &tasks).await?
        };
        let columns = Columns::of(ours(), &created);
        transaction
            .query_cached(
                &self.schema.sql(FIRE),
                &[
                    &columns.ids,
                    &columns.next_ats,
                    &columns.last_slots,
                    &columns.last_tasks,
                    &columns.fired_ids,
                    &columns.fired_slots,
                    &columns.fired_tasks,
                    // Those of this statement are not seen by it yet.
                    &(i64::from(FIRED_SLOTS_KEPT) - 1),
                ],
            )
            .await
            .map_err(|e| store_error(&e))?;
        transaction.commit().await.map_err(|e| store_error(&e))?;
        Ok(ids.iter().map(|id| won.contains(id)).collect())
    }

    pub(crate) async fn fired_slots(
        &self,
        schedule_id: i64,
        limit: u32,
    ) -> Result<Vec<FiredSlot>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client
            .query(&self.schema.sql(FIRED_SLOTS), &[&schedule_id, &i64::from(limit)])
            .await
            .map_err(|e| store_error(&e))?;
        let slot = |row: &Row| FiredSlot {
            slot: read(row, "slot"),
            task_id: TaskId(read(row, "task_id")),
            fired_at: read(row, "fired_at"),
        };
        Ok(rows.iter().map(slot).collect())
    }
}

/// What the last step of firing is told: schedules, and slots with their tasks.
#[derive(Default)]
struct Columns {
    ids: Vec<i64>,
    next_ats: Vec<Option<Timestamp>>,
    last_slots: Vec<Option<Timestamp>>,
    last_tasks: Vec<Option<i64>>,
    fired_ids: Vec<i64>,
    fired_slots: Vec<Timestamp>,
    fired_tasks: Vec<i64>,
}

impl Columns {
    fn of<'a>(firings: impl Iterator<Item = &'a Firing>, created: &[TaskId]) -> Self {
        let mut columns = Self::default();
        let mut tasks = created.iter();
        for firing in firings {
            let id = firing.schedule.id;
            let mut last = None;
            for ((slot, _), task) in firing.slots.iter().zip(tasks.by_ref()) {
                columns.fired_ids.push(id);
                columns.fired_slots.push(*slot);
                columns.fired_tasks.push(task.0);
                last = Some((*slot, task.0));
            }
            columns.ids.push(id);
            columns.next_ats.push(firing.next_at);
            columns.last_slots.push(last.map(|(slot, _)| slot));
            columns.last_tasks.push(last.map(|(_, task)| task));
        }
        columns
    }
}

fn schedule_row(row: &Row) -> ScheduleRow {
    let overlap: &str = row.get("overlap");
    let paused_at: Option<Timestamp> = read(row, "paused_at");
    ScheduleRow {
        name: read(row, "name"),
        version: ScheduleVersion { id: read(row, "id"), version: read(row, "version") },
        state: ScheduleState {
            definition: read(row, "definition"),
            declared: read(row, "declared"),
            overlap: overlap.parse().unwrap_or(Overlap::Allow),
            anchor: read(row, "anchor"),
            paused: paused_at.map(|at| Pause { at, reason: read(row, "pause_reason") }),
            error: read(row, "error"),
            next_at: read(row, "next_at"),
        },
        last_slot: read(row, "last_slot"),
        last_task: row.get::<_, Option<i64>>("last_task_id").map(TaskId),
        created_at: read(row, "created_at"),
        updated_at: read(row, "updated_at"),
    }
}
