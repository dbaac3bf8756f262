//! Exports the store line by line, in one snapshot.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use task_engine_core::dependency::DependencyCondition;
use task_engine_core::json::Json;
use task_engine_core::step::StepKind;
use task_engine_core::task::TaskStatus;
use task_engine_store::error::StoreError;
use task_engine_store::export::{
    CancellationRecord, ClosedKeyRecord, DependencyRecord, ExecutionRecord, ExportCounts,
    ExportFilter, ExportHeader, ExportLine, ExportSink, FORMAT, FiredRecord, FlowRecord,
    InstanceRecord, LateRecord, LimitRecord, LogRecord, PausedQueueRecord, ProgressRecord,
    RunningRecord, ScheduleEventRecord, ScheduleRecord, SignalRecord, SkippedTaskRecord,
    StepRecord, SuspendedRecord, TaskRecord, WaitingRecord, compact,
};
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::executor::{Executor as _, PgTransaction};
use crate::known_limits::{limit_options, limit_target};
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/operators/export.sql");
const LAST_IDS: &str = statement(SQL, "last_ids");
const INSTANCES: &str = statement(SQL, "instances");
const PAUSED_QUEUES: &str = statement(include_str!("../sql/readers/queues.sql"), "paused_queues");
const TASKS: &str = statement(SQL, "tasks");
const HELD: &str = statement(SQL, "held");
const EXECUTIONS: &str = statement(SQL, "executions");
const LATE_RESULTS: &str = statement(SQL, "late_results");
const PROGRESS: &str = statement(SQL, "progress");
const LOGS: &str = statement(SQL, "logs");
const CANCELLATIONS: &str = statement(SQL, "cancellations");
const STEPS: &str = statement(SQL, "steps");
const SIGNALS: &str = statement(SQL, "signals");
const DEPENDENCIES: &str = statement(SQL, "dependencies");
const REOPENED: &str = statement(SQL, "reopened");
const SUSPENDED: &str = statement(SQL, "suspended");
const FLOWS: &str = statement(SQL, "flows");
const LIMITS: &str = statement(SQL, "limits");
const SCHEDULES: &str = statement(SQL, "schedules");
const FIRED_SLOTS: &str = statement(SQL, "fired_slots");
const SCHEDULE_EVENTS: &str = statement(SQL, "schedule_events");

/// How many tasks are in memory at a time.
const PAGE: i64 = 200;

impl StoreInner {
    pub(crate) async fn export(
        &self,
        filter: &ExportFilter,
        place: String,
        mut to: ExportSink,
    ) -> Result<(), StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.snapshot().await?;
        // The reader of the lines may be slow.
        transaction.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0").await?;
        let mut end = ExportCounts::default();
        // False: the reader has stopped.
        let mut send = |line: ExportLine| {
            end.count(&line);
            to(line)
        };
        let pages = ExportReader { inner: self, transaction: &transaction };
        if !send(ExportLine::Header(pages.header(filter, place).await?)) {
            return Ok(());
        }
        for row in &pages.ask(INSTANCES, &[]).await? {
            if !send(ExportLine::Instance(Box::new(instance(row)))) {
                return Ok(());
            }
        }
        for row in &pages.ask(PAUSED_QUEUES, &[]).await? {
            let paused = PausedQueueRecord {
                queue: read(row, "queue"),
                reason: read(row, "reason"),
                paused_at: read(row, "paused_at"),
            };
            if !send(ExportLine::PausedQueue(paused)) {
                return Ok(());
            }
        }
        for row in &pages.ask(LIMITS, &[]).await? {
            if !send(ExportLine::Limit(Box::new(limit_record(row)))) {
                return Ok(());
            }
        }
        let mut last = 0_i64;
        loop {
            let page = pages.ask(FLOWS, &[&last, &PAGE]).await?;
            let Some(newest) = page.last() else { break };
            last = read(newest, "id");
            for row in &page {
                if !send(ExportLine::Flow(flow_record(row))) {
                    return Ok(());
                }
            }
        }
        let held = pages.held().await?;
        let mut last = 0;
        loop {
            let page = pages.tasks(last, &held).await?;
            let Some((newest, _)) = page.last() else { break };
            last = newest.id;
            for (task, unreadable) in page {
                let wanted = filter.wants(task.status);
                let line = match unreadable {
                    Some(reason) => {
                        ExportLine::SkippedTask(SkippedTaskRecord { id: task.id, reason })
                    }
                    None => task.into_line(),
                };
                if wanted && !send(line) {
                    return Ok(());
                }
            }
        }
        for row in &pages.ask(SCHEDULES, &[]).await? {
            if !send(ExportLine::Schedule(Box::new(pages.schedule(row).await?))) {
                return Ok(());
            }
        }
        to(ExportLine::End(end));
        Ok(())
    }
}

struct ExportReader<'a> {
    inner: &'a StoreInner,
    transaction: &'a PgTransaction<'a>,
}

impl ExportReader<'_> {
    async fn ask(
        &self,
        statement: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let transaction: &PgTransaction<'_> = self.transaction;
        let rows = transaction.query(&self.inner.schema.sql(statement), params).await;
        Ok(rows?)
    }

    async fn header(
        &self,
        filter: &ExportFilter,
        from: String,
    ) -> Result<ExportHeader, StoreError> {
        let ids = self.ask(LAST_IDS, &[]).await?;
        let ids = ids.first().ok_or_else(|| StoreError::Refused("no ids".to_owned()))?;
        Ok(ExportHeader {
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
                attempt: read(row, "attempt"),
                retry_number: read(row, "retry_number"),
                instance_id: read(row, "instance_id"),
                claimed_at: read(row, "claimed_at"),
                cancel_requested_at: read(row, "cancel_requested_at"),
            };
            (read(row, "task_id"), running)
        });
        Ok(held.collect())
    }

    /// A page of tasks, each with why it cannot be read, if it cannot.
    async fn tasks(
        &self,
        after: i64,
        held: &HashMap<i64, RunningRecord>,
    ) -> Result<Vec<(TaskRecord, Option<String>)>, StoreError> {
        let rows = self.ask(TASKS, &[&after, &PAGE]).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(Vec::new());
        };
        let range: (i64, i64) = (first.get("id"), last.get("id"));
        let mut unreadable: HashMap<i64, String> = rows
            .iter()
            .filter_map(|row| Some((read(row, "id"), read::<Option<String>>(row, "unreadable")?)))
            .collect();
        let mut page: BTreeMap<i64, TaskRecord> =
            rows.iter().map(|row| (read(row, "id"), task(row, held))).collect();
        for row in &self.ask(EXECUTIONS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.executions.push(execution(row));
            }
        }
        for row in &self.ask(LATE_RESULTS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.late_results.push(LateRecord {
                    attempt: read(row, "attempt"),
                    arrived_at: read(row, "arrived_at"),
                    result: json(row, "result"),
                    error: json(row, "error"),
                });
            }
        }
        for row in &self.ask(PROGRESS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.progress.push(ProgressRecord {
                    attempt: read(row, "attempt"),
                    version: read(row, "version"),
                    lines: read(row, "lines"),
                    percent: read(row, "percent"),
                    message: read(row, "message"),
                    reported_at: read(row, "reported_at"),
                });
            }
        }
        for row in &self.ask(LOGS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.logs.push(LogRecord {
                    attempt: read(row, "attempt"),
                    line: read(row, "line"),
                    logged_at: read(row, "logged_at"),
                    level: read(row, "level"),
                    message: read(row, "message"),
                });
            }
        }
        for row in &self.ask(CANCELLATIONS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(&mut page, row) {
                task.cancellations.push(CancellationRecord {
                    attempt: read(row, "attempt"),
                    requested_at: read(row, "requested_at"),
                    delivered_at: read(row, "delivered_at"),
                    answer: read(row, "answer"),
                });
            }
        }
        self.durable(range, &mut page).await?;
        let with_status = page.into_values().map(|mut task| {
            task.status = task.place().ok_or_else(|| task.nowhere())?;
            let why = unreadable.remove(&task.id);
            Ok((task, why))
        });
        with_status.collect()
    }

    async fn durable(
        &self,
        range: (i64, i64),
        page: &mut BTreeMap<i64, TaskRecord>,
    ) -> Result<(), StoreError> {
        for row in &self.ask(STEPS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(page, row) {
                task.steps.push(step(row)?);
            }
        }
        for row in &self.ask(SIGNALS, &[&range.0, &range.1]).await? {
            if let Some(task) = of(page, row) {
                task.signals.push(SignalRecord {
                    name: read(row, "name"),
                    payload: compact(read::<Json>(row, "payload").as_str()),
                    sent_at: read(row, "sent_at"),
                    timed_out: read(row, "timed_out"),
                });
            }
        }
        for row in &self.ask(DEPENDENCIES, &[&range.0, &range.1]).await? {
            if let Some(task) = of(page, row) {
                let on = read(row, "depends_on");
                let condition: Option<String> = read(row, "condition");
                match condition.as_deref().and_then(DependencyCondition::from_token) {
                    Some(condition) => task.dependencies.push(DependencyRecord { on, condition }),
                    None => task.depends_on.push(on),
                }
            }
        }
        for row in &self.ask(REOPENED, &[&range.0, &range.1]).await? {
            if let Some(task) = of(page, row) {
                task.reopened.push(read(row, "attempt"));
            }
        }
        for row in &self.ask(SUSPENDED, &[&range.0, &range.1]).await? {
            if let Some(task) = of(page, row) {
                let suspended = SuspendedRecord {
                    signals: read(row, "signals"),
                    watching: read(row, "watching"),
                    blocked: read(row, "blocked"),
                };
                task.set_suspended(read(row, "attempt"), suspended);
            }
        }
        Ok(())
    }

    async fn schedule(&self, row: &Row) -> Result<ScheduleRecord, StoreError> {
        let id: i64 = read(row, "id");
        let fired = self.ask(FIRED_SLOTS, &[&id]).await?;
        let fired = fired.iter().map(|row| FiredRecord {
            slot: read(row, "slot"),
            task_id: read(row, "task_id"),
            fired_at: read(row, "fired_at"),
        });
        let events = self.ask(SCHEDULE_EVENTS, &[&id]).await?;
        let events = events.iter().map(schedule_event).collect::<Result<_, _>>()?;
        Ok(ScheduleRecord {
            id,
            version: read(row, "version"),
            name: read(row, "name"),
            definition: compact(read::<Json>(row, "definition").as_str()),
            declared: read(row, "declared"),
            overlap: row.get::<_, &str>("overlap").parse().unwrap_or_default(),
            anchor: read(row, "anchor"),
            paused_at: read(row, "paused_at"),
            pause_reason: read(row, "pause_reason"),
            error: read(row, "error"),
            next_at: read(row, "next_at"),
            last_slot: read(row, "last_slot"),
            last_task_id: read(row, "last_task_id"),
            created_at: read(row, "created_at"),
            updated_at: read(row, "updated_at"),
            fired_slots: fired.collect(),
            events,
        })
    }
}

fn flow_record(row: &Row) -> FlowRecord {
    FlowRecord {
        correlation_id: read(row, "correlation_id"),
        name: read(row, "name"),
        created_at: read(row, "created_at"),
    }
}

fn limit_record(row: &Row) -> LimitRecord {
    let name: String = read(row, "name");
    let keys: Vec<String> = read(row, "closed_keys");
    let until: Vec<Timestamp> = read(row, "closed_until");
    let reasons: Vec<String> = read(row, "reasons");
    let closed = keys.into_iter().zip(until).zip(reasons);
    LimitRecord {
        target: limit_target(row),
        declared: limit_options(row, "declared", &name),
        operator: limit_options(row, "operator", &name),
        name,
        closed_keys: closed
            .map(|((key, until), reason)| ClosedKeyRecord { key, until, reason })
            .collect(),
    }
}

fn schedule_event(row: &Row) -> Result<ScheduleEventRecord, StoreError> {
    let kind: &str = row.get("kind");
    Ok(ScheduleEventRecord {
        kind: kind.parse().map_err(|bad| StoreError::Refused(String::from(bad)))?,
        first_slot: read(row, "first_slot"),
        last_slot: read(row, "last_slot"),
        slots: read(row, "slots"),
        task_id: read(row, "task_id"),
        requested_by: read(row, "requested_by"),
        recorded_at: read(row, "recorded_at"),
    })
}

fn of<'a>(page: &'a mut BTreeMap<i64, TaskRecord>, row: &Row) -> Option<&'a mut TaskRecord> {
    page.get_mut(&read(row, "task_id"))
}

fn instance(row: &Row) -> InstanceRecord {
    InstanceRecord {
        id: read(row, "id"),
        name: read(row, "name"),
        host: read(row, "host"),
        pid: read(row, "pid"),
        version: read(row, "version"),
        workers: read(row, "workers"),
        lease_ms: read(row, "lease_ms"),
        queues: read(row, "queues"),
        pools: read::<Json>(row, "pools").decode().unwrap_or_default(),
        classes: read::<Json>(row, "classes").decode().unwrap_or_default(),
        started_at: read(row, "started_at"),
        heartbeat_at: read(row, "heartbeat_at"),
        stopped_at: read(row, "stopped_at"),
        lost_at: read(row, "lost_at"),
    }
}

fn task(row: &Row, held: &HashMap<i64, RunningRecord>) -> TaskRecord {
    let id = read(row, "id");
    let attempt: Option<i32> = read(row, "attempt");
    let waiting = attempt.map(|attempt| WaitingRecord {
        attempt,
        retry_number: read(row, "retry_number"),
        due_at: read(row, "due_at"),
    });
    TaskRecord {
        id,
        status: TaskStatus::Waiting,
        class: read(row, "task_class"),
        queue: read(row, "queue"),
        priority: read(row, "priority"),
        created_at: read(row, "created_at"),
        scheduled_at: read(row, "scheduled_at"),
        parameters: compact(read::<Json>(row, "task_parameters").as_str()),
        context: compact(read::<Json>(row, "context").as_str()),
        has_unique_key: read(row, "has_unique_key"),
        waiting,
        running: held.get(&id).copied(),
        executions: Vec::new(),
        late_results: Vec::new(),
        progress: Vec::new(),
        logs: Vec::new(),
        cancellations: Vec::new(),
        steps: Vec::new(),
        signals: Vec::new(),
        depends_on: Vec::new(),
        dependencies: Vec::new(),
        reopened: Vec::new(),
        suspended: None,
    }
}

fn step(row: &Row) -> Result<StepRecord, StoreError> {
    let (name, kind): (String, &str) = (read(row, "name"), row.get("kind"));
    let unknown = || StoreError::Refused(format!("step {name} is of an unknown kind: {kind}"));
    Ok(StepRecord {
        kind: StepKind::from_token(kind).ok_or_else(unknown)?,
        name,
        number: read(row, "number"),
        attempt: read(row, "attempt"),
        result: json(row, "result"),
        until: read(row, "until"),
        started_at: read(row, "started_at"),
        recorded_at: read(row, "recorded_at"),
    })
}

fn execution(row: &Row) -> ExecutionRecord {
    ExecutionRecord {
        attempt: read(row, "attempt"),
        retry_number: read(row, "retry_number"),
        instance_id: read(row, "instance_id"),
        worker: read(row, "worker"),
        started_at: read(row, "started_at"),
        stopped_at: read(row, "stopped_at"),
        retry_at: read(row, "retry_at"),
        ends_task: row.get::<_, Option<&str>>("ends_task").and_then(|word| word.parse().ok()),
        result: json(row, "result"),
        error: json(row, "error"),
    }
}

fn json(row: &Row, column: &str) -> Option<Json> {
    read::<Option<Json>>(row, column).map(|json| compact(json.as_str()))
}
