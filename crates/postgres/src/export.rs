//! All that is known, line by line, in one snapshot.

use std::collections::{BTreeMap, HashMap};

use task_engine_model::export::{
    CancellationRecord, End, ExecutionRecord, ExportFilter, FORMAT, FiredRecord, Header,
    InstanceRecord, LateRecord, Line, LogRecord, PausedQueueRecord, ProgressRecord, RunningRecord,
    ScheduleEventRecord, ScheduleRecord, Sink, TaskRecord, WaitingRecord, compact,
};
use task_engine_model::{Json, StoreError, TaskStatus};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::store_error;
use crate::json::JsonOut;
use crate::session::{Ask as _, Transaction};
use crate::store::Inner;

const LAST_IDS: &str = include_str!("../sql/export/last_ids.sql");
const INSTANCES: &str = include_str!("../sql/export/instances.sql");
const PAUSED_QUEUES: &str = include_str!("../sql/paused_queues.sql");
const TASKS: &str = include_str!("../sql/export/tasks.sql");
const HELD: &str = include_str!("../sql/export/held.sql");
const EXECUTIONS: &str = include_str!("../sql/export/executions.sql");
const LATE_RESULTS: &str = include_str!("../sql/export/late_results.sql");
const PROGRESS: &str = include_str!("../sql/export/progress.sql");
const LOGS: &str = include_str!("../sql/export/logs.sql");
const CANCELLATIONS: &str = include_str!("../sql/export/cancellations.sql");
const SCHEDULES: &str = include_str!("../sql/export/schedules.sql");
const FIRED_SLOTS: &str = include_str!("../sql/export/fired_slots.sql");
const SCHEDULE_EVENTS: &str = include_str!("../sql/export/schedule_events.sql");

/// How many tasks are in memory at a time.
const PAGE: i64 = 200;

impl Inner {
    pub(crate) async fn export(
        &self,
        filter: &ExportFilter,
        place: String,
        mut to: Sink,
    ) -> Result<(), StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.snapshot().await.map_err(|e| store_error(&e))?;
        // Whoever reads the lines may take its time.
        transaction
            .batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            .await
            .map_err(|e| store_error(&e))?;
        let mut end = End::default();
        // False: whoever reads has seen enough.
        let mut tell = |line: Line| {
            end.count(&line);
            to(line)
        };
        let pages = Pages { inner: self, transaction: &transaction };
        if !tell(Line::Header(pages.header(filter, place).await?)) {
            return Ok(());
        }
        for row in &pages.ask(INSTANCES, &[]).await? {
            if !tell(Line::Instance(Box::new(instance(row)))) {
                return Ok(());
            }
        }
        for row in &pages.ask(PAUSED_QUEUES, &[]).await? {
            let paused = PausedQueueRecord {
                queue: row.get("queue"),
                reason: row.get("reason"),
                paused_at: row.get("paused_at"),
            };
            if !tell(Line::PausedQueue(paused)) {
                return Ok(());
            }
        }
        let held = pages.held().await?;
        let mut last = 0;
        loop {
            let page = pages.tasks(last, &held).await?;
            let Some(newest) = page.last() else { break };
            last = newest.id;
            for task in page {
                if filter.wants(task.status) && !tell(Line::Task(Box::new(task))) {
                    return Ok(());
                }
            }
        }
        for row in &pages.ask(SCHEDULES, &[]).await? {
            if !tell(Line::Schedule(Box::new(pages.schedule(row).await?))) {
                return Ok(());
            }
        }
        to(Line::End(end));
        Ok(())
    }
}

struct Pages<'a> {
    inner: &'a Inner,
    transaction: &'a Transaction<'a>,
}

impl Pages<'_> {
    async fn ask(
        &self,
        statement: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let transaction: &Transaction<'_> = self.transaction;
        let rows = transaction.query(&self.inner.schema.sql(statement), params).await;
        rows.map_err(|e| store_error(&e))
    }

    async fn header(&self, filter: &ExportFilter, from: String) -> Result<Header, StoreError> {
        let ids = self.ask(LAST_IDS, &[]).await?;
        let ids = ids.first().ok_or_else(|| StoreError::Refused("no ids".to_owned()))?;
        Ok(Header {
            task_engine_export: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            exported_at: ids.get("now"),
            from,
            statuses: filter.statuses.clone(),
            last_task_id: ids.get("tasks"),
            last_instance_id: ids.get("instances"),
            last_schedule_id: ids.get("schedules"),
        })
    }

    async fn held(&self) -> Result<HashMap<i64, RunningRecord>, StoreError> {
        let rows = self.ask(HELD, &[]).await?;
        let held = rows.iter().map(|row| {
            let running = RunningRecord {
                attempt: row.get("attempt"),
                retry_number: row.get("retry_number"),
                instance_id: row.get("instance_id"),
                claimed_at: row.get("claimed_at"),
                cancel_requested_at: row.get("cancel_requested_at"),
            };
            (row.get("task_id"), running)
        });
        Ok(held.collect())
    }

    async fn tasks(
        &self,
        after: i64,
        held: &HashMap<i64, RunningRecord>,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let rows = self.ask(TASKS, &[&after, &PAGE]).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(Vec::new());
        };
        let range: (i64, i64) = (first.get("id"), last.get("id"));
        let mut page: BTreeMap<i64, TaskRecord> =
            rows.iter().map(|row| (row.get("id"), task(row, held))).collect();
        for row in &self.ask(EXECUTIONS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.executions.push(execution(row));
            }
        }
        for row in &self.ask(LATE_RESULTS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.late_results.push(LateRecord {
                    attempt: row.get("attempt"),
                    arrived_at: row.get("arrived_at"),
                    result: json(row, "result"),
                    error: json(row, "error"),
                });
            }
        }
        for row in &self.ask(PROGRESS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.progress.push(ProgressRecord {
                    attempt: row.get("attempt"),
                    version: row.get("version"),
                    lines: row.get("lines"),
                    percent: row.get("percent"),
                    message: row.get("message"),
                    reported_at: row.get("reported_at"),
                });
            }
        }
        for row in &self.ask(LOGS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.logs.push(LogRecord {
                    attempt: row.get("attempt"),
                    line: row.get("line"),
                    logged_at: row.get("logged_at"),
                    level: row.get("level"),
                    message: row.get("message"),
                });
            }
        }
        for row in &self.ask(CANCELLATIONS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.cancellations.push(CancellationRecord {
                    attempt: row.get("attempt"),
                    requested_at: row.get("requested_at"),
                    told_at: row.get("told_at"),
                    answer: row.get("answer"),
                });
            }
        }
        let with_status = page.into_values().map(|mut task| {
            task.status = task.place().ok_or_else(|| task.nowhere())?;
            Ok(task)
        });
        with_status.collect()
    }

    async fn schedule(&self, row: &Row) -> Result<ScheduleRecord, StoreError> {
        let id: i64 = row.get("id");
        let fired = self.ask(FIRED_SLOTS, &[&id]).await?;
        let fired = fired.iter().map(|row| FiredRecord {
            slot: row.get("slot"),
            task_id: row.get("task_id"),
            fired_at: row.get("fired_at"),
        });
        let events = self.ask(SCHEDULE_EVENTS, &[&id]).await?;
        let events = events.iter().map(schedule_event).collect::<Result<_, _>>()?;
        Ok(ScheduleRecord {
            id,
            version: row.get("version"),
            name: row.get("name"),
            definition: compact(row.get::<_, JsonOut>("definition").0.as_str()),
            declared: row.get("declared"),
            overlap: row.get::<_, &str>("overlap").parse().unwrap_or_default(),
            anchor: row.get("anchor"),
            paused_at: row.get("paused_at"),
            pause_reason: row.get("pause_reason"),
            error: row.get("error"),
            next_at: row.get("next_at"),
            last_slot: row.get("last_slot"),
            last_task_id: row.get("last_task_id"),
            created_at: row.get("created_at"),
            updated_at: row.get("updated_at"),
            fired_slots: fired.collect(),
            events,
        })
    }
}

fn schedule_event(row: &Row) -> Result<ScheduleEventRecord, StoreError> {
    let kind: &str = row.get("kind");
    Ok(ScheduleEventRecord {
        kind: kind.parse().map_err(|bad| StoreError::Refused(String::from(bad)))?,
        first_slot: row.get("first_slot"),
        last_slot: row.get("last_slot"),
        slots: row.get("slots"),
        task_id: row.get("task_id"),
        requested_by: row.get("requested_by"),
        recorded_at: row.get("recorded_at"),
    })
}

fn of<'a>(page: &'a mut BTreeMap<i64, TaskRecord>, row: &Row) -> Option<&'a mut TaskRecord> {
    page.get_mut(&row.get("task_id"))
}

fn instance(row: &Row) -> InstanceRecord {
    InstanceRecord {
        id: row.get("id"),
        name: row.get("name"),
        host: row.get("host"),
        pid: row.get("pid"),
        version: row.get("version"),
        workers: row.get("workers"),
        lease_ms: row.get("lease_ms"),
        queues: row.get("queues"),
        pools: row.get::<_, JsonOut>("pools").0.decode().unwrap_or_default(),
        classes: row.get::<_, JsonOut>("classes").0.decode().unwrap_or_default(),
        started_at: row.get("started_at"),
        heartbeat_at: row.get("heartbeat_at"),
        stopped_at: row.get("stopped_at"),
        lost_at: row.get("lost_at"),
    }
}

fn task(row: &Row, held: &HashMap<i64, RunningRecord>) -> TaskRecord {
    let id = row.get("id");
    let attempt: Option<i32> = row.get("attempt");
    let waiting = attempt.map(|attempt| WaitingRecord {
        attempt,
        retry_number: row.get("retry_number"),
        due_at: row.get("due_at"),
    });
    TaskRecord {
        id,
        status: TaskStatus::Waiting,
        task_class: row.get("task_class"),
        queue: row.get("queue"),
        priority: row.get("priority"),
        created_at: row.get("created_at"),
        scheduled_at: row.get("scheduled_at"),
        task_parameters: compact(row.get::<_, JsonOut>("task_parameters").0.as_str()),
        context: compact(row.get::<_, JsonOut>("context").0.as_str()),
        has_unique_key: row.get("has_unique_key"),
        waiting,
        running: held.get(&id).copied(),
        executions: Vec::new(),
        late_results: Vec::new(),
        progress: Vec::new(),
        logs: Vec::new(),
        cancellations: Vec::new(),
    }
}

fn execution(row: &Row) -> ExecutionRecord {
    ExecutionRecord {
        attempt: row.get("attempt"),
        retry_number: row.get("retry_number"),
        instance_id: row.get("instance_id"),
        worker: row.get("worker"),
        started_at: row.get("started_at"),
        stopped_at: row.get("stopped_at"),
        retry_at: row.get("retry_at"),
        ends_task: row.get::<_, Option<&str>>("ends_task").and_then(|word| word.parse().ok()),
        result: json(row, "result"),
        error: json(row, "error"),
    }
}

fn json(row: &Row, column: &str) -> Option<Json> {
    row.get::<_, Option<JsonOut>>(column).map(|json| compact(json.0.as_str()))
}
