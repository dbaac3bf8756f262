//! Imports a file, all of it or nothing: one transaction, in batches. Each batch is sent
//! as JSON and unpacked by the server.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{LimitOptions, LimitTarget};
use task_engine_store::error::StoreError;
use task_engine_store::export::{
    ClosedKeyRecord, ExportFile, ExportLine, IdShift, ImportIds, ImportOutcome, InstanceRecord,
    LimitRecord, PausedQueueRecord, ScheduleRecord, TaskRecord,
};
use task_engine_store::sql::statement;
use tokio_postgres::types::ToSql;

use crate::error::store_error;
use crate::executor::{Executor as _, PgTransaction};
use crate::json::JsonIn;
use crate::limits::target_columns;
use crate::store::StoreInner;

const LAST_IDS: &str = statement(include_str!("../sql/operators/export.sql"), "last_ids");
const SQL: &str = include_str!("../sql/operators/import.sql");
const IS_EMPTY: &str = statement(SQL, "is_empty");
const LOCK: &str = statement(SQL, "lock");
const RESERVE: &str = statement(SQL, "reserve");
const WAKE: &str = statement(SQL, "wake");
const SAME_SCHEDULE: &str = statement(SQL, "same_schedule");
const INSTANCES: &str = statement(SQL, "instances");
const PAUSED_QUEUES: &str = statement(SQL, "paused_queues");
const TASKS: &str = statement(SQL, "tasks");
const WAITING: &str = statement(SQL, "waiting");
const CLAIMS: &str = statement(SQL, "claims");
const CANCEL_REQUESTS: &str = statement(SQL, "cancel_requests");
const EXECUTIONS: &str = statement(SQL, "executions");
const LATE_RESULTS: &str = statement(SQL, "late_results");
const PROGRESS: &str = statement(SQL, "execution_progress");
const LOGS: &str = statement(SQL, "execution_logs");
const CANCELLATIONS: &str = statement(SQL, "cancellations");
const STEPS: &str = statement(SQL, "steps");
const SIGNALS: &str = statement(SQL, "signals");
const DEPENDENCIES: &str = statement(SQL, "dependencies");
const CONDITIONAL_DEPENDENCIES: &str = statement(SQL, "conditional_dependencies");
const REOPENED: &str = statement(SQL, "reopened");
const FLOWS: &str = statement(SQL, "flows");
const SUSPENDED: &str = statement(SQL, "suspended");
const UNIQUE_TASKS: &str = statement(SQL, "unique_tasks");
const LIMIT: &str = statement(SQL, "limit");
const LIMITED_TARGET: &str = statement(SQL, "limited_target");
const CLOSED_KEY: &str = statement(SQL, "closed_key");
const ANY_LIMIT: &str = statement(SQL, "any_limit");
const LOCK_CLAIMS: &str = statement(SQL, "lock_claims");
const COUNT_LIMITS: &str = statement(SQL, "count_limits");
const CHANGE_LIMITS: &str = statement(SQL, "change_limits");
const SCHEDULES: &str = statement(SQL, "schedules");
const FIRED_SLOTS: &str = statement(SQL, "fired_slots");
const SCHEDULE_EVENTS: &str = statement(SQL, "schedule_events");

const BATCH_LINES: usize = 500;
const BATCH_BYTES: usize = 8 << 20;

impl StoreInner {
    pub(crate) async fn import(
        &self,
        mut file: ExportFile,
        ids: ImportIds,
    ) -> Result<ImportOutcome, StoreError> {
        let header = file.header().clone();
        let mut client = self.connections.work().await?;
        let mut shift = IdShift::default();
        if ids == ImportIds::New {
            // In a separate transaction, so that creators wait only briefly.
            let reserving = client.transaction().await?;
            shift = self
                .reserve(&reserving, &header, IdShift { tasks: 1, instances: 1, schedules: 1 })
                .await?;
            reserving.commit().await?;
        }
        let mut transaction = client.transaction().await?;
        // The sender of the lines may be slow.
        let settings = "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; \
             SET LOCAL taskengine.import = 'on'";
        transaction.batch_execute(settings).await?;
        if ids == ImportIds::Keep {
            // An empty store stays empty until the end of the import.
            transaction.batch_execute(&self.schema.sql(LOCK)).await?;
            let row = transaction.query_one(&self.schema.sql(IS_EMPTY), &[]).await;
            if !row?.get::<_, bool>("is_empty") {
                return Ok(ImportOutcome::Conflict(ImportOutcome::NOT_EMPTY.to_owned()));
            }
            shift = self
                .reserve(&transaction, &header, IdShift { tasks: 0, instances: 1, schedules: 0 })
                .await?;
        }
        let mut holders = BTreeSet::new();
        let mut batch = Batch::default();
        while let Some(line) = file.next() {
            let line = line.map_err(|bad| StoreError::InvalidData(bad.to_string()))?;
            let line = shift.apply(line, &header);
            if let ExportLine::Task(task) = &line
                && let Some(running) = task.running
            {
                holders.insert(InstanceId(running.instance_id));
            }
            if let ExportLine::Limit(limit) = &line {
                self.import_limit(&transaction, limit).await?;
            }
            batch.add(line, file.line())?;
            if batch.is_full() {
                self.send(&mut transaction, &std::mem::take(&mut batch)).await?;
            }
        }
        let names: Vec<&str> = batch.schedule_names.iter().map(String::as_str).collect();
        let same = transaction.query_opt(&self.schema.sql(SAME_SCHEDULE), &[&names]).await;
        if let Some(row) = same? {
            return Ok(ImportOutcome::same_schedule(row.get("name")));
        }
        self.send(&mut transaction, &batch).await?;
        self.send_schedules(&transaction, &batch).await?;
        self.count_limits(&transaction).await?;
        transaction.query(&self.schema.sql(WAKE), &[]).await?;
        transaction.commit().await?;
        Ok(ImportOutcome::Done { read: file.seen(), shift, holders: holders.into_iter().collect() })
    }

    /// Reserves ids for the file after the existing ones where `moves` is 1. Where it is
    /// 0, ids are kept.
    async fn reserve(
        &self,
        transaction: &PgTransaction<'_>,
        header: &task_engine_store::export::ExportHeader,
        moves: IdShift,
    ) -> Result<IdShift, StoreError> {
        transaction.batch_execute(&self.schema.sql(LOCK)).await?;
        let last = transaction.query_one(&self.schema.sql(LAST_IDS), &[]).await?;
        let last: [i64; 3] = [last.get("tasks"), last.get("instances"), last.get("schedules")];
        let shift = IdShift {
            tasks: last[0] * moves.tasks,
            instances: last[1] * moves.instances,
            schedules: last[2] * moves.schedules,
        };
        if !shift.fits(header) {
            return Err(StoreError::InvalidData(ImportOutcome::TOO_FAR.to_owned()));
        }
        let tasks = last[0].max(header.last_task_id + shift.tasks);
        let instances = last[1].max(header.last_instance_id + shift.instances);
        let schedules = last[2].max(header.last_schedule_id + shift.schedules);
        transaction.query(&self.schema.sql(RESERVE), &[&tasks, &instances, &schedules]).await?;
        Ok(shift)
    }

    /// Sends a batch. If the server refuses a value in it, the tasks are sent again
    /// one by one, to find out which line it is in.
    async fn send(
        &self,
        transaction: &mut PgTransaction<'_>,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        let part = transaction.savepoint("task_engine_batch").await?;
        let refused = match self.send_all(&part, batch).await {
            Ok(()) => return Ok(part.commit().await?),
            Err(error @ StoreError::InvalidData(_)) => error,
            Err(error) => return Err(error),
        };
        part.rollback().await?;
        self.put(transaction, INSTANCES, &batch.instances).await?;
        self.put(transaction, PAUSED_QUEUES, &batch.paused_queues).await?;
        self.put(transaction, FLOWS, &batch.flows).await?;
        for (line, task) in &batch.lines_of_tasks {
            let mut one = Batch::default();
            one.task(task.clone())?;
            self.send_all(transaction, &one).await.map_err(|error| match error {
                StoreError::InvalidData(why) => {
                    StoreError::InvalidData(format!("line {line}: task {}: {why}", task.id))
                }
                other => other,
            })?;
        }
        Err(refused)
    }

    async fn send_all(
        &self,
        transaction: &PgTransaction<'_>,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        for (statement, rows) in [
            (INSTANCES, &batch.instances),
            (PAUSED_QUEUES, &batch.paused_queues),
            (TASKS, &batch.tasks),
            (WAITING, &batch.tasks),
            (UNIQUE_TASKS, &batch.tasks),
            (FLOWS, &batch.flows),
            (DEPENDENCIES, &batch.tasks),
            (CONDITIONAL_DEPENDENCIES, &batch.tasks),
            (REOPENED, &batch.tasks),
            (SUSPENDED, &batch.tasks),
            (CLAIMS, &batch.running),
            (CANCEL_REQUESTS, &batch.running),
            (EXECUTIONS, &batch.executions),
            (LATE_RESULTS, &batch.late_results),
            (PROGRESS, &batch.progress),
            (LOGS, &batch.logs),
            (CANCELLATIONS, &batch.cancellations),
            (STEPS, &batch.steps),
            (SIGNALS, &batch.signals),
        ] {
            self.put(transaction, statement, rows).await?;
        }
        Ok(())
    }

    async fn import_limit(
        &self,
        transaction: &PgTransaction<'_>,
        limit: &LimitRecord,
    ) -> Result<(), StoreError> {
        let text = |options: &Option<LimitOptions>| {
            options.as_ref().map(|options| serde_json::to_string(options).unwrap_or_default())
        };
        let (declared, operator) = (text(&limit.declared), text(&limit.operator));
        let (declared, operator) =
            (declared.as_deref().map(JsonIn), operator.as_deref().map(JsonIn));
        let (class, queue) = target_columns(&limit.target);
        let send = async |sql, parameters: &[&(dyn ToSql + Sync)]| {
            let sent = transaction.execute(&self.schema.sql(sql), parameters).await;
            sent.map(drop).map_err(|e| store_error(&e))
        };
        send(LIMIT, &[&limit.name, &class, &queue, &declared, &operator]).await?;
        if limit.target != LimitTarget::Named {
            send(LIMITED_TARGET, &[&class, &queue]).await?;
        }
        for ClosedKeyRecord { key, until, reason } in &limit.closed_keys {
            send(CLOSED_KEY, &[&limit.name, &class, &queue, key, until, reason]).await?;
        }
        Ok(())
    }

    /// Has imported attempts that run count for limits.
    async fn count_limits(&self, transaction: &PgTransaction<'_>) -> Result<(), StoreError> {
        let has_limits = transaction.query_opt(&self.schema.sql(ANY_LIMIT), &[]).await;
        if has_limits?.is_none() {
            return Ok(());
        }
        transaction.batch_execute(&self.schema.sql(LOCK_CLAIMS)).await?;
        for sql in [COUNT_LIMITS, CHANGE_LIMITS] {
            transaction.query(&self.schema.sql(sql), &[]).await?;
        }
        Ok(())
    }

    async fn send_schedules(
        &self,
        transaction: &PgTransaction<'_>,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        self.put(transaction, SCHEDULES, &batch.schedules).await?;
        self.put(transaction, FIRED_SLOTS, &batch.fired_slots).await?;
        self.put(transaction, SCHEDULE_EVENTS, &batch.schedule_events).await
    }

    async fn put(
        &self,
        transaction: &PgTransaction<'_>,
        statement: &'static str,
        rows: &JsonRows,
    ) -> Result<(), StoreError> {
        if rows.0.is_empty() {
            return Ok(());
        }
        let rows = format!("[{}]", rows.0.join(","));
        let put = transaction.execute(&self.schema.sql(statement), &[&rows]).await;
        put.map(|_| ()).map_err(|e| store_error(&e))
    }
}

/// Rows as JSON.
#[derive(Debug, Default)]
struct JsonRows(Vec<String>);

/// The rows that are sent together, by table.
#[derive(Debug, Default)]
struct Batch {
    bytes: usize,
    lines: usize,
    /// The tasks, with the lines that they are in.
    lines_of_tasks: Vec<(u64, TaskRecord)>,
    instances: JsonRows,
    paused_queues: JsonRows,
    flows: JsonRows,
    tasks: JsonRows,
    running: JsonRows,
    executions: JsonRows,
    late_results: JsonRows,
    progress: JsonRows,
    logs: JsonRows,
    cancellations: JsonRows,
    steps: JsonRows,
    signals: JsonRows,
    schedules: JsonRows,
    schedule_names: Vec<String>,
    fired_slots: JsonRows,
    schedule_events: JsonRows,
}

impl Batch {
    fn is_full(&self) -> bool {
        // Schedules come last, are few, and are sent together.
        self.schedules.0.is_empty() && (self.lines >= BATCH_LINES || self.bytes >= BATCH_BYTES)
    }

    fn add(&mut self, line: ExportLine, number: u64) -> Result<(), StoreError> {
        self.lines += 1;
        match line {
            ExportLine::Instance(one) => self.instance(&one),
            ExportLine::PausedQueue(one) => self.paused_queue(&one),
            ExportLine::Flow(one) => self.flows.push(&one, None, &mut self.bytes),
            ExportLine::Task(one) => {
                self.lines_of_tasks.push((number, (*one).clone()));
                self.task(*one)
            }
            ExportLine::Schedule(one) => self.schedule(*one),
            ExportLine::Limit(_)
            | ExportLine::SkippedTask(_)
            | ExportLine::Header(_)
            | ExportLine::End(_) => Ok(()),
        }
    }

    fn instance(&mut self, one: &InstanceRecord) -> Result<(), StoreError> {
        self.instances.push(one, None, &mut self.bytes)
    }

    fn paused_queue(&mut self, one: &PausedQueueRecord) -> Result<(), StoreError> {
        self.paused_queues.push(one, None, &mut self.bytes)
    }

    fn task(&mut self, mut task: TaskRecord) -> Result<(), StoreError> {
        let owner = Some(("task_id", task.id));
        let bytes = &mut self.bytes;
        for row in task.executions.drain(..) {
            self.executions.push(&row, owner, bytes)?;
        }
        for row in task.late_results.drain(..) {
            self.late_results.push(&row, owner, bytes)?;
        }
        for row in task.progress.drain(..) {
            self.progress.push(&row, owner, bytes)?;
        }
        for row in task.logs.drain(..) {
            self.logs.push(&row, owner, bytes)?;
        }
        for row in task.cancellations.drain(..) {
            self.cancellations.push(&row, owner, bytes)?;
        }
        for row in task.steps.drain(..) {
            self.steps.push(&row, owner, bytes)?;
        }
        for row in task.signals.drain(..) {
            self.signals.push(&row, owner, bytes)?;
        }
        if let Some(running) = task.running.take() {
            self.running.push(&running, owner, bytes)?;
        }
        self.tasks.push(&task, None, bytes)
    }

    fn schedule(&mut self, mut schedule: ScheduleRecord) -> Result<(), StoreError> {
        let owner = Some(("schedule_id", schedule.id));
        for fired in schedule.fired_slots.drain(..) {
            self.fired_slots.push(&fired, owner, &mut self.bytes)?;
        }
        for event in schedule.events.drain(..) {
            self.schedule_events.push(&event, owner, &mut self.bytes)?;
        }
        self.schedule_names.push(schedule.name.clone());
        self.schedules.push(&schedule, None, &mut self.bytes)
    }
}

impl JsonRows {
    /// Adds a row with the id of its owner.
    fn push(
        &mut self,
        row: &impl serde::Serialize,
        owner: Option<(&str, i64)>,
        bytes: &mut usize,
    ) -> Result<(), StoreError> {
        let refused = |e: serde_json::Error| StoreError::Refused(format!("a line as JSON: {e}"));
        let mut text = serde_json::to_string(row).map_err(refused)?;
        if let Some((name, id)) = owner {
            text.insert_str(1, &format!("\"{name}\":{id},"));
        }
        debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok());
        *bytes += text.len();
        self.0.push(text);
        Ok(())
    }
}
