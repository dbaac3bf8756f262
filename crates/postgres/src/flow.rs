//! Flows: the tasks that share a correlation id, page by page.

use task_engine_core::flow::{FlowAttempt, FlowPage, FlowTask, Origin, name_in_flow};
use task_engine_core::json::Json;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::read::{error, execution_status, task_row};
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/readers/flow.sql");
const FLOW: &str = statement(SQL, "flow");
const EXECUTIONS: &str = statement(SQL, "flow_executions");

impl StoreInner {
    pub(crate) async fn flow(&self, page: &FlowPage) -> Result<Vec<FlowTask>, StoreError> {
        let mut client = self.connections.work().await?;
        // One snapshot for both statements.
        let transaction = client.snapshot().await?;
        let after = page.after.map_or(0, |id| id.0);
        let own = page.own_task().map(|id| id.0);
        let rows = transaction
            .query(
                &self.schema.sql(FLOW),
                &[&page.correlation_id, &after, &i64::from(page.limit), &own],
            )
            .await?;
        let mut tasks: Vec<FlowTask> = rows.iter().map(flow_task).collect();
        let ids: Vec<i64> = tasks.iter().map(|task| task.row.id.0).collect();
        let rows = transaction.query(&self.schema.sql(EXECUTIONS), &[&ids]).await?;
        for row in &rows {
            let id = TaskId(read(row, "task_id"));
            if let Ok(at) = tasks.binary_search_by_key(&id, |task| task.row.id) {
                tasks[at].executions.push(flow_attempt(row));
            }
        }
        Ok(tasks)
    }
}

fn flow_task(row: &Row) -> FlowTask {
    let task = task_row(row);
    let context = read::<Json>(row, "context");
    FlowTask {
        parent_id: Origin::of(task.id, &context).parent_id,
        name: name_in_flow(&context),
        due_at: read(row, "due_at"),
        executions: Vec::new(),
        row: task,
    }
}

fn flow_attempt(row: &Row) -> FlowAttempt {
    FlowAttempt {
        attempt: read(row, "attempt"),
        status: execution_status(row),
        instance: read(row, "instance"),
        started_at: read(row, "started_at"),
        stopped_at: read(row, "stopped_at"),
        retry_at: read(row, "retry_at"),
        error: error(row),
    }
}
