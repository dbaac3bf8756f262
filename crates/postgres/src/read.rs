//! Reading: pages of tasks, one task whole, the check of the invariants.

use task_engine_core::attempt::TaskError;
use task_engine_core::cancel::{CancelOutcome, CancelRow};
use task_engine_core::flow::Origin;
use task_engine_core::json::Json;
use task_engine_core::progress::ProgressRow;
use task_engine_core::task::{ExecutionRow, ExecutionStatus, LateResult};
use task_engine_core::task::{TaskDetails, TaskId, TaskListQuery, TaskRow, TaskStatus};
use task_engine_store::check::{Violation, ViolationKind};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::executor::Executor as _;
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/readers/tasks.sql");
const TASKS: &str = statement(SQL, "tasks");
const TASKS_WAITING: &str = statement(SQL, "tasks_waiting");
const TASKS_RUNNING: &str = statement(SQL, "tasks_running");
const TASKS_STOPPED: &str = statement(SQL, "tasks_stopped");
const TASKS_FAILED_OR_CANCELLED: &str = statement(SQL, "tasks_failed_or_cancelled");
const TASK: &str = statement(SQL, "task");
const EXECUTIONS: &str = statement(SQL, "executions");
const LATE_RESULTS: &str = statement(SQL, "late_results");
const VERIFY: &str = statement(include_str!("../sql/operators/verify.sql"), "verify");

impl StoreInner {
    pub(crate) async fn tasks(&self, filter: &TaskListQuery) -> Result<Vec<TaskRow>, StoreError> {
        let statement = match filter.status {
            None => TASKS,
            Some(TaskStatus::Waiting) => TASKS_WAITING,
            Some(TaskStatus::Running) => TASKS_RUNNING,
            Some(TaskStatus::Stopped) => TASKS_STOPPED,
            Some(TaskStatus::Failed | TaskStatus::Cancelled) => TASKS_FAILED_OR_CANCELLED,
        };
        let before = filter.before.map_or(i64::MAX, |id| id.0);
        let limit = i64::from(filter.limit);
        let status = filter.status.map(TaskStatus::as_str);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&filter.class, &before, &limit];
        if statement == TASKS_FAILED_OR_CANCELLED {
            parameters.push(&status);
        }
        let client = self.connections.work().await?;
        let rows = client.query(&self.schema.sql(statement), &parameters).await?;
        Ok(rows.iter().map(task_row).collect())
    }

    pub(crate) async fn task(&self, id: TaskId) -> Result<Option<TaskDetails>, StoreError> {
        let mut client = self.connections.work().await?;
        // One snapshot for the three statements.
        let transaction = client.snapshot().await?;
        let ask = async |sql| transaction.query(&self.schema.sql(sql), &[&id.0]).await;
        let Some(row) = ask(TASK).await?.pop() else {
            return Ok(None);
        };
        let executions = ask(EXECUTIONS).await?;
        let late_results = ask(LATE_RESULTS).await?;
        let context = read::<Json>(&row, "context");
        let origin = Origin::of(id, &context);
        Ok(Some(TaskDetails {
            row: task_row(&row),
            parameters: read::<Json>(&row, "task_parameters"),
            context,
            executions: executions.iter().map(execution_row).collect(),
            cancel_requested: read(&row, "cancel_requested"),
            late_results: late_results.iter().map(late_result).collect(),
            correlation_id: origin.correlation_id,
            parent_id: origin.parent_id,
        }))
    }

    pub(crate) async fn verify(&self) -> Result<Vec<Violation>, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        // The settings of the hot path are the wrong ones for reading everything.
        let settings = "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; \
            SET LOCAL enable_mergejoin = on; SET LOCAL statement_timeout = 0";
        transaction.batch_execute(settings).await?;
        let rows = transaction.query(&self.schema.sql(VERIFY), &[]).await?;
        let violations = rows.iter().map(|row| {
            let token: &str = row.get("kind");
            let kind = ViolationKind::from_token(token)
                .ok_or_else(|| StoreError::InvalidData(format!("no kind of violation {token}")))?;
            Ok(kind.violation(row.get::<_, String>("message")))
        });
        violations.collect()
    }
}

pub(crate) fn task_row(row: &Row) -> TaskRow {
    TaskRow {
        id: TaskId(read(row, "id")),
        status: status(row.get("status")).unwrap_or(TaskStatus::Waiting),
        class: read(row, "task_class"),
        queue: read(row, "queue"),
        priority: read(row, "priority"),
        created_at: read(row, "created_at"),
        scheduled_at: read(row, "scheduled_at"),
        updated_at: read(row, "updated_at"),
        attempts: read(row, "attempts"),
        retry_number: read(row, "retry_number"),
        instance: read(row, "instance"),
        error: error(row),
        is_blocked: read(row, "is_blocked"),
    }
}

fn execution_row(row: &Row) -> ExecutionRow {
    ExecutionRow {
        attempt: read(row, "attempt"),
        retry_number: read(row, "retry_number"),
        status: execution_status(row),
        instance: read(row, "instance"),
        worker: read(row, "worker"),
        started_at: read(row, "started_at"),
        stopped_at: read(row, "stopped_at"),
        result: json(row, "result"),
        error: error(row),
        ends_task: row.get::<_, Option<&str>>("ends_task").and_then(status),
        retry_at: read(row, "retry_at"),
        progress: progress(row),
        log_lines: read(row, "log_lines"),
        cancel: cancel_row(row),
    }
}

fn progress(row: &Row) -> Option<ProgressRow> {
    Some(ProgressRow {
        percent: row.get::<_, Option<f64>>("percent")?,
        message: read::<Option<String>>(row, "message")?,
        reported_at: read::<Option<jiff::Timestamp>>(row, "reported_at")?,
    })
}

fn cancel_row(row: &Row) -> Option<CancelRow> {
    let answer = row.get::<_, Option<&str>>("answer").and_then(|word| word.parse().ok());
    Some(CancelRow {
        requested_at: read::<Option<jiff::Timestamp>>(row, "cancel_requested_at")?,
        delivered_at: read(row, "delivered_at"),
        outcome: CancelOutcome::of(row.get::<_, &str>("status") == "running", answer),
    })
}

pub(crate) fn execution_status(row: &Row) -> ExecutionStatus {
    match row.get("status") {
        "success" => ExecutionStatus::Success,
        "failure" => ExecutionStatus::Failure,
        "cancelled" => ExecutionStatus::Cancelled,
        "snoozed" => ExecutionStatus::Snoozed,
        _ => ExecutionStatus::Running,
    }
}

fn late_result(row: &Row) -> LateResult {
    LateResult {
        attempt: read(row, "attempt"),
        arrived_at: read(row, "arrived_at"),
        ended_at: read(row, "ended_at"),
        result: json(row, "result"),
        error: error(row),
    }
}

pub(crate) fn status(word: &str) -> Option<TaskStatus> {
    word.parse().ok()
}

pub(crate) fn json(row: &Row, column: &str) -> Option<Json> {
    read(row, column)
}

pub(crate) fn error(row: &Row) -> Option<TaskError> {
    let json = json(row, "error")?;
    // SQL of an application may have written another shape: show it as it is.
    Some(json.decode().unwrap_or_else(|_| TaskError::new("Unknown", json.as_str())))
}
