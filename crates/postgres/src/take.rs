//! Taking tasks from due lanes: the statements of a claim.

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::task::TaskId;
use task_engine_store::claim::ClaimedTask;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{SqlError, error_text, may_be_unreadable_row};
use crate::executor::{Executor as _, PooledConnection};
use crate::json::JsonBytes;
use crate::queue_heads::Lane;
use crate::schema::Schema;
use crate::store::StoreInner;
use crate::value::{RawTime, read};

/// The parameters of a claiming statement.
pub(crate) struct TakeTasks {
    pub(crate) id: ClaimId,
    pub(crate) instance: InstanceId,
    pub(crate) limit: usize,
    pub(crate) priority: i32,
    /// How many rows of several lanes are read at most.
    pub(crate) candidates: usize,
}

impl TakeTasks {
    /// Takes from all these lanes, in the order of time and id, and moves their positions.
    ///
    /// If the server cannot read or print one of the rows, the whole statement fails and
    /// nothing is claimed. Then the rows are claimed by a statement that checks each one, and
    /// marks those that cannot be read.
    pub(crate) async fn run(
        &self,
        inner: &StoreInner,
        due: &mut [&mut Lane],
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let client = inner.connections.work().await?;
        let rows = match self.query(&client, &inner.schema, &USUAL, due).await {
            Err(error) if may_be_unreadable_row(&error) => {
                warn_of_unreadable_row(&error);
                self.query(&client, &inner.schema, &CHECKED, due).await
            }
            rows => rows,
        };
        let rows = rows?;
        if !rows[0].get::<_, bool>(ALIVE) {
            return Err(StoreError::InstanceOver);
        }
        let mut tasks = Vec::with_capacity(rows.len());
        for (task, row) in claimed_rows(&rows, self.priority) {
            let lane = due.iter_mut().find(|l| l.class == task.class && l.queue == task.queue);
            if let Some(lane) = lane {
                lane.from = (row.get(DUE_AT), task.id.task_id.0);
            }
            tasks.push(task);
        }
        Ok(tasks)
    }

    async fn query(
        &self,
        client: &PooledConnection,
        schema: &Schema,
        statements: &Statements,
        due: &[&mut Lane],
    ) -> Result<Vec<Row>, SqlError> {
        let Self { id: ClaimId(id), instance: InstanceId(instance), priority, .. } = self;
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let candidates = i64::try_from(self.candidates).unwrap_or(i64::MAX);
        if let [lane] = due {
            let (queue, class, (time, task)) = (&lane.queue, &lane.class, &lane.from);
            let parameters: [&(dyn ToSql + Sync); 8] =
                [id, instance, &limit, queue, class, time, task, priority];
            return client.query_cached(&schema.sql(statements.one_lane), &parameters).await;
        }
        let queues: Vec<&str> = due.iter().map(|lane| lane.queue.as_str()).collect();
        let classes: Vec<&str> = due.iter().map(|lane| lane.class.as_str()).collect();
        let times: Vec<RawTime> = due.iter().map(|lane| lane.from.0).collect();
        let tasks: Vec<i64> = due.iter().map(|lane| lane.from.1).collect();
        let parameters: [&(dyn ToSql + Sync); 9] =
            [id, instance, &limit, &queues, &classes, &times, &tasks, priority, &candidates];
        client.query_cached(&schema.sql(statements.lanes), &parameters).await
    }
}

/// A claim from one due lane, and from several.
struct Statements {
    one_lane: &'static str,
    lanes: &'static str,
}

const SQL: &str = include_str!("../sql/engine/claim.sql");

const USUAL: Statements =
    Statements { one_lane: statement(SQL, "claim_lane"), lanes: statement(SQL, "claim_lanes") };

const CHECKED: Statements = Statements {
    one_lane: statement(SQL, "claim_lane_checked"),
    lanes: statement(SQL, "claim_lanes_checked"),
};

pub(crate) fn warn_of_unreadable_row(error: &tokio_postgres::Error) {
    tracing::warn!(
        "A claim failed: {}. Claiming again, with each task checked.",
        error_text(error)
    );
}

/// Tasks with limits, each with its lane key.
pub(crate) fn limited_tasks(rows: &[Row], priority: i32) -> Vec<(ClaimedTask, String)> {
    claimed_rows(rows, priority).map(|(task, row)| (task, read(row, LANE_KEY))).collect()
}

/// The tasks of a reply that exist.
fn claimed_rows(rows: &[Row], priority: i32) -> impl Iterator<Item = (ClaimedTask, &Row)> {
    let has_task = |row: &&Row| row.get::<_, Option<i64>>(TASK_ID).is_some();
    rows.iter().filter(has_task).filter_map(move |row| {
        let task = claimed(row, priority);
        if task.is_none() {
            let id: i64 = row.get(TASK_ID);
            tracing::error!(
                "task {id} waits, but its row in created_tasks is missing; it is dropped"
            );
        }
        Some((task?, row))
    })
}

// The columns of the claiming statements: by number, because they are read for every task.
pub(crate) const ALIVE: usize = 0;
const TASK_ID: usize = 1;
const ATTEMPT: usize = 2;
const RETRY_NUMBER: usize = 3;
const TASK_CLASS: usize = 4;
const QUEUE: usize = 5;
const DUE_AT: usize = 6;
const TASK_PARAMETERS: usize = 7;
const CONTEXT: usize = 8;

/// Only in the checked statements, and in that of tasks with limits.
const UNREADABLE: usize = 9;

/// Only in the statement of tasks with limits.
const LANE_KEY: usize = 10;
pub(crate) const CURRENT: usize = 11;

fn claimed(row: &Row, priority: i32) -> Option<ClaimedTask> {
    let parameters = row.get::<_, Option<JsonBytes<'_>>>(TASK_PARAMETERS)?.0.to_owned();
    let context = row.get::<_, Option<JsonBytes<'_>>>(CONTEXT)?.0.to_owned();
    let task = ClaimedTask {
        id: AttemptId { task_id: TaskId(row.get(TASK_ID)), attempt: row.get(ATTEMPT) },
        retry_number: u32::try_from(row.get::<_, i32>(RETRY_NUMBER)).unwrap_or(0),
        class: read(row, TASK_CLASS),
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        queue: read(row, QUEUE),
        priority,
        due_at: read(row, DUE_AT),
        unreadable: None,
        limited: None,
    };
    let mut task = task.with_stored_json(parameters, context);
    if row.len() > UNREADABLE {
        task.unreadable = read::<Option<String>>(row, UNREADABLE).or(task.unreadable);
    }
    Some(task)
}
