//! Changes of tasks by operators: edits of waiting tasks, removal of ended ones.

use std::collections::{HashMap, HashSet};

use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::json::Json;
use task_engine_core::task::Due;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Error;

use crate::error::{must_repeat, store_error};
use crate::json::JsonIn;
use crate::operate::LOCK_TASKS;
use crate::read::status;
use crate::session::{Executor as _, PgSession};
use crate::store::{StoreInner, micros};

const SQL: &str = include_str!("../sql/operators/tasks.sql");
const EDIT: &str = statement(SQL, "edit");
const STATUS: &str = statement(SQL, "status");

/// A task that is found waiting so often, and then is not, is never caught.
const LOOKS_MAX: u32 = 100;
/// The most tasks that are removed in one transaction.
const REMOVE_TASKS_MAX: usize = 1000;

impl StoreInner {
    pub(crate) async fn edit(&self, id: TaskId, edit: &Edit) -> Result<EditReport, StoreError> {
        let mut client = self.connections.work().await?;
        for _ in 0..LOOKS_MAX {
            match self.edit_once(&mut client, id, edit).await {
                Ok(true) => return Ok(EditReport::Changed),
                Ok(false) => {}
                Err(e) if must_repeat(&e) => continue,
                Err(e) => return Err(store_error(&e)),
            }
            // Between the two statements it may have been retried.
            match self.statuses(&client, &[id.0]).await?.get(&id.0) {
                None => return Ok(EditReport::NotFound),
                Some(TaskStatus::Waiting) => {}
                Some(status) => return Ok(EditReport::NotWaiting(*status)),
            }
        }
        Err(StoreError::Refused(format!("task {id} moves too fast to be edited; try again")))
    }

    /// False if it does not wait.
    async fn edit_once(
        &self,
        client: &mut PgSession,
        id: TaskId,
        edit: &Edit,
    ) -> Result<bool, Error> {
        let transaction = client.transaction().await?;
        let parameters = edit.parameters.as_ref().map(Json::as_str).map(JsonIn);
        let (at, after) = match edit.due {
            None => (None, None),
            Some(Due::At(time)) => (Some(time), None),
            Some(Due::After(wait)) => (None, Some(micros(wait))),
            Some(Due::Now) => (None, Some(0)),
        };
        transaction.query(&self.schema.sql(LOCK_TASKS), &[&[id.0].as_slice()]).await?;
        let changed = transaction
            .query(
                &self.schema.sql(EDIT),
                &[&id.0, &parameters, &at, &after, &edit.priority, &edit.queue],
            )
            .await?;
        transaction.commit().await?;
        Ok(!changed.is_empty())
    }

    pub(crate) async fn delete(&self, ids: &[TaskId]) -> Result<Vec<DeleteReport>, StoreError> {
        let ends = [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];
        let ends = ends.map(TaskStatus::as_str);
        let mut client = self.connections.work().await?;
        let mut reports = Vec::with_capacity(ids.len());
        for some in ids.chunks(REMOVE_TASKS_MAX) {
            let wanted: Vec<i64> = some.iter().map(|id| id.0).collect();
            let gone: HashSet<i64> =
                self.remove_ended(&mut client, &wanted, &ends).await?.into_iter().collect();
            let left: Vec<i64> = wanted.iter().copied().filter(|id| !gone.contains(id)).collect();
            let left = self.statuses(&client, &left).await?;
            reports.extend(wanted.iter().map(|id| match left.get(id) {
                _ if gone.contains(id) => DeleteReport::Deleted,
                None => DeleteReport::NotFound,
                Some(open @ (TaskStatus::Waiting | TaskStatus::Running)) => {
                    DeleteReport::Open(*open)
                }
                Some(_) => DeleteReport::Busy,
            }));
        }
        Ok(reports)
    }

    async fn statuses(
        &self,
        client: &PgSession,
        ids: &[i64],
    ) -> Result<HashMap<i64, TaskStatus>, StoreError> {
        let rows = client.query(&self.schema.sql(STATUS), &[&ids]).await;
        let rows = rows.map_err(|e| store_error(&e))?;
        let known = rows.iter().filter_map(|row| Some((row.get(0), status(row.get(1))?)));
        Ok(known.collect())
    }
}
