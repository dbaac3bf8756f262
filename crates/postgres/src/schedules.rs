//! Schedules: kept, found when they are due, and fired.

use std::collections::HashSet;

use jiff::Timestamp;
use task_engine_core::schedule::Overlap;
use task_engine_core::schedule::history::{SCHEDULE_EVENTS_KEPT, ScheduleEvent};
use task_engine_core::schedule::row::{
    DueSchedule, DueSchedules, FIRED_SLOTS_KEPT, FiredSlot, Firing, SchedulePause, ScheduleRow,
    ScheduleState, ScheduleVersion, ScheduleWrite,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::json::JsonIn;
use crate::store::{StoreInner, from_micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/schedules/schedules.sql");
const SCHEDULE: &str = statement(SQL, "schedule");
const SCHEDULES: &str = statement(SQL, "schedules");
const INSERT: &str = statement(SQL, "insert");
const UPDATE: &str = statement(SQL, "update");
const REMOVE: &str = statement(SQL, "remove");
const DUE: &str = statement(SQL, "due");
const LOCK: &str = statement(SQL, "lock");
const FIRE: &str = statement(SQL, "fire");
const FIRED_SLOTS: &str = statement(SQL, "fired_slots");
const SKIP: &str = statement(SQL, "skip");
const RUN: &str = statement(SQL, "run");
const EVENTS: &str = statement(SQL, "schedule_events");

impl StoreInner {
    pub(crate) async fn schedule(
        &self,
        name: &str,
    ) -> Result<(Option<ScheduleRow>, Timestamp), StoreError> {
        let client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(SCHEDULE), &[&name]).await?;
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
            .await?;
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
        Ok(!written?.is_empty())
    }

    pub(crate) async fn remove_schedule(&self, name: &str) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let gone = client.query(&self.schema.sql(REMOVE), &[&name]).await?;
        Ok(!gone.is_empty())
    }

    pub(crate) async fn due_schedules(&self, limit: u32) -> Result<DueSchedules, StoreError> {
        let client = self.connections.work().await?;
        let rows = client.query_cached(&self.schema.sql(DUE), &[&i64::from(limit)]).await?;
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

    /// Three steps of one transaction: lock, create, write. Creation is the usual one.
    pub(crate) async fn fire_schedules(&self, firings: &[Firing]) -> Result<Vec<bool>, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        let ids: Vec<i64> = firings.iter().map(|firing| firing.schedule.id).collect();
        let versions: Vec<i64> = firings.iter().map(|firing| firing.schedule.version).collect();
        let after: Vec<Option<i64>> =
            firings.iter().map(|firing| firing.after.map(|task| task.0)).collect();
        let locked =
            transaction.query_cached(&self.schema.sql(LOCK), &[&ids, &versions, &after]).await?;
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
        let skipped = SkippedColumns::of(ours());
        if !skipped.ids.is_empty() {
            transaction
                .query_cached(
                    &self.schema.sql(SKIP),
                    &[
                        &skipped.ids,
                        &skipped.kinds,
                        &skipped.firsts,
                        &skipped.lasts,
                        &skipped.slots,
                        &EVENTS_BEFORE,
                    ],
                )
                .await?;
        }
        let columns = FiringColumns::of(ours(), &created);
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
                    // The statement does not see its own rows yet.
                    &(i64::from(FIRED_SLOTS_KEPT) - 1),
                ],
            )
            .await?;
        transaction.commit().await?;
        Ok(ids.iter().map(|id| won.contains(id)).collect())
    }

    /// The usual creation, and the record of it, in one transaction.
    pub(crate) async fn run_schedule(
        &self,
        schedule_id: i64,
        task: &NewTask,
        requested_by: Option<&str>,
    ) -> Result<Creation, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        let tasks = std::slice::from_ref(task);
        let created = self.schema.create_each_in(transaction.client(), tasks).await?;
        let Some(created) = created.into_iter().next() else {
            return Err(StoreError::Refused("PostgreSQL did not create the task".into()));
        };
        if created.is_new() {
            transaction
                .query_cached(
                    &self.schema.sql(RUN),
                    &[&schedule_id, &created.id().0, &requested_by, &EVENTS_BEFORE],
                )
                .await?;
        }
        transaction.commit().await?;
        Ok(created)
    }

    pub(crate) async fn schedule_events(
        &self,
        schedule_id: i64,
        limit: u32,
    ) -> Result<Vec<ScheduleEvent>, StoreError> {
        let client = self.connections.work().await?;
        let rows =
            client.query(&self.schema.sql(EVENTS), &[&schedule_id, &i64::from(limit)]).await?;
        let event = |row: &Row| {
            let kind: &str = row.get("kind");
            Ok(ScheduleEvent {
                kind: kind.parse().map_err(|bad| StoreError::Refused(String::from(bad)))?,
                first_slot: read(row, "first_slot"),
                last_slot: read(row, "last_slot"),
                slots: read(row, "slots"),
                task_id: row.get::<_, Option<i64>>("task_id").map(TaskId),
                requested_by: read(row, "requested_by"),
                recorded_at: read(row, "recorded_at"),
            })
        };
        rows.iter().map(event).collect()
    }

    pub(crate) async fn fired_slots(
        &self,
        schedule_id: i64,
        limit: u32,
    ) -> Result<Vec<FiredSlot>, StoreError> {
        let client = self.connections.work().await?;
        let rows =
            client.query(&self.schema.sql(FIRED_SLOTS), &[&schedule_id, &i64::from(limit)]).await?;
        let slot = |row: &Row| FiredSlot {
            slot: read(row, "slot"),
            task_id: TaskId(read(row, "task_id")),
            fired_at: read(row, "fired_at"),
        };
        Ok(rows.iter().map(slot).collect())
    }
}

/// How many events are kept besides the one that a statement adds, which it does not see
/// yet.
const EVENTS_BEFORE: i64 = SCHEDULE_EVENTS_KEPT as i64 - 1;

/// The parameters for skipped slots.
#[derive(Default)]
struct SkippedColumns {
    ids: Vec<i64>,
    kinds: Vec<&'static str>,
    firsts: Vec<Timestamp>,
    lasts: Vec<Timestamp>,
    slots: Vec<i64>,
}

impl SkippedColumns {
    fn of<'a>(firings: impl Iterator<Item = &'a Firing>) -> Self {
        let mut columns = Self::default();
        for firing in firings {
            if let Some(skipped) = firing.skipped {
                columns.ids.push(firing.schedule.id);
                columns.kinds.push(skipped.kind.as_str());
                columns.firsts.push(skipped.first);
                columns.lasts.push(skipped.last);
                columns.slots.push(skipped.slots);
            }
        }
        columns
    }
}

/// The parameters of the last step of firing: schedules, and slots with their tasks.
#[derive(Default)]
struct FiringColumns {
    ids: Vec<i64>,
    next_ats: Vec<Option<Timestamp>>,
    last_slots: Vec<Option<Timestamp>>,
    last_tasks: Vec<Option<i64>>,
    fired_ids: Vec<i64>,
    fired_slots: Vec<Timestamp>,
    fired_tasks: Vec<i64>,
}

impl FiringColumns {
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
            paused: paused_at.map(|at| SchedulePause { at, reason: read(row, "pause_reason") }),
            error: read(row, "error"),
            next_at: read(row, "next_at"),
        },
        last_slot: read(row, "last_slot"),
        last_task: row.get::<_, Option<i64>>("last_task_id").map(TaskId),
        created_at: read(row, "created_at"),
        updated_at: read(row, "updated_at"),
    }
}
