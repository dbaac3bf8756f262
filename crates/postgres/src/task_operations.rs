//! Operations on tasks: cancel, retry, edit, delete, prune.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use task_engine_core::attempt::TaskError;
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::json::Json;
use task_engine_core::task::{Due, TaskId, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::error::{SqlError, must_repeat};
use crate::executor::{Executor as _, PgTransaction, PooledConnection};
use crate::json::JsonIn;
use crate::read::status;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/operators/tasks.sql");
const CANCEL_WAITING: &str = statement(SQL, "cancel_waiting");
const CANCEL_HELD: &str = statement(SQL, "cancel_held");
const ENDED_STATUS: &str = statement(SQL, "ended_status");
const LOCK_KEYS: &str = statement(include_str!("../sql/engine/retention.sql"), "lock_keys");
const LOCK_TASKS: &str = statement(SQL, "lock_tasks");
const EDIT: &str = statement(SQL, "edit");
const STATUS: &str = statement(SQL, "status");
const RETRY: &str = statement(SQL, "retry");
const RESTORE_DEPENDENTS: &str = statement(SQL, "restore_dependents");
const NEEDED: &str = statement(SQL, "needed");
const PRUNE_CANDIDATES: &str =
    statement(include_str!("../sql/engine/retention.sql"), "prune_candidates");
const PRUNE_LOCK_TASKS: &str = statement(include_str!("../sql/engine/retention.sql"), "lock_tasks");
const PRUNE: &str = statement(include_str!("../sql/engine/retention.sql"), "prune");

/// How often a task is looked for.
///
/// A task that is never found does not exist. One that is found waiting so often, and then is not,
/// moves too fast.
const LOOKS_MAX: u32 = 100;
/// The most tasks that are deleted in one transaction.
const DELETE_TASKS_MAX: usize = 1000;
/// The most tasks that are retried in one transaction.
const RETRY_TASKS_MAX: usize = 1000;

impl StoreInner {
    /// Finds each task: waiting, then held, then ended. Each is a separate statement, and
    /// a task may move between two of them, so tasks that were not found are searched
    /// again.
    pub(crate) async fn cancel(&self, ids: &[TaskId]) -> Result<Vec<CancelReport>, StoreError> {
        let error = TaskError::new(TaskError::CANCELLED, "cancelled while it waited");
        let error = serde_json::to_string(&error).unwrap_or_default();
        let client = self.connections.work().await?;
        let mut reports: HashMap<TaskId, CancelReport> = HashMap::new();
        for round in 0.. {
            let open: Vec<i64> =
                ids.iter().filter(|id| !reports.contains_key(id)).map(|id| id.0).collect();
            if open.is_empty() {
                break;
            }
            if round == LOOKS_MAX {
                return Err(StoreError::Refused(format!(
                    "tasks {open:?} are in no place: the tables are damaged"
                )));
            }
            let waiting = self.schema.sql(CANCEL_WAITING);
            let cancelled = match client.query(&waiting, &[&open, &JsonIn(&error)]).await {
                Err(e) if must_repeat(&e) => continue,
                answer => answer?,
            };
            reports.extend(cancelled.iter().map(|r| (TaskId(r.get(0)), CancelReport::Cancelled)));
            let requested = client.query(&self.schema.sql(CANCEL_HELD), &[&open]).await?;
            for row in &requested {
                reports.entry(TaskId(row.get(0))).or_insert(CancelReport::Requested);
            }
            let rest = client.query(&self.schema.sql(ENDED_STATUS), &[&open]).await?;
            let known: HashMap<i64, Option<String>> =
                rest.iter().map(|row| (row.get(0), row.get(1))).collect();
            for id in open {
                match known.get(&id) {
                    None => {
                        reports.entry(TaskId(id)).or_insert(CancelReport::NotFound);
                    }
                    Some(Some(status)) => {
                        let status = status.parse().unwrap_or(TaskStatus::Failed);
                        reports.entry(TaskId(id)).or_insert(CancelReport::Ended(status));
                    }
                    Some(None) => {}
                }
            }
        }
        drop(client);
        let cancelled = reports.iter().filter(|(_, report)| **report == CancelReport::Cancelled);
        self.resume_parents_of(cancelled.map(|(id, _)| *id).collect()).await;
        Ok(ids.iter().map(|id| reports[id]).collect())
    }

    pub(crate) async fn retry(&self, ids: &[TaskId]) -> Result<Vec<RetryReport>, StoreError> {
        let mut reports = Vec::with_capacity(ids.len());
        for some in ids.chunks(RETRY_TASKS_MAX) {
            reports.extend(self.retry_some(some).await?);
        }
        Ok(reports)
    }

    async fn retry_some(&self, ids: &[TaskId]) -> Result<Vec<RetryReport>, StoreError> {
        let wanted: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let mut client = self.connections.work().await?;
        let (restored, rows) = loop {
            let transaction = client.transaction().await?;
            match self.retry_in(&transaction, &wanted).await {
                Ok(done) => {
                    transaction.commit().await?;
                    break done;
                }
                Err(e) if must_repeat(&e) => {}
                Err(e) => return Err(e.into()),
            }
        };
        drop(client);
        // What they wait for may have ended before this was committed, and engines leave tasks
        // alone that are locked here.
        self.resolve_dependents_of(read(&restored, "dependents")).await;
        let restored: Vec<i64> = read(&restored, "restored");
        let restored: HashSet<i64> = restored.into_iter().collect();
        let reports: HashMap<i64, RetryReport> = rows
            .iter()
            .map(|row| {
                let report = match (row.get::<_, &str>("status"), row.get("again")) {
                    // It was retried together with what it depends on, and waits for that.
                    _ if restored.contains(&row.get("id")) => RetryReport::Waiting,
                    _ if row.get("is_blocked") => RetryReport::Blocked,
                    ("waiting", true) => RetryReport::Advanced,
                    ("waiting", false) => RetryReport::AlreadyDue,
                    ("running", _) => RetryReport::Running,
                    ("stopped", _) => RetryReport::Stopped,
                    _ => RetryReport::Waiting,
                };
                (row.get("id"), report)
            })
            .collect();
        Ok(ids
            .iter()
            .map(|id| reports.get(&id.0).copied().unwrap_or(RetryReport::NotFound))
            .collect())
    }

    async fn retry_in(
        &self,
        transaction: &PgTransaction<'_>,
        wanted: &[i64],
    ) -> Result<(Row, Vec<Row>), SqlError> {
        transaction.query(&self.schema.sql(LOCK_TASKS), &[&wanted]).await?;
        let restore = self.schema.sql(RESTORE_DEPENDENTS);
        let restored = transaction.query_one(&restore, &[&wanted]).await?;
        Ok((restored, transaction.query(&self.schema.sql(RETRY), &[&wanted]).await?))
    }

    pub(crate) async fn prune(
        &self,
        status: TaskStatus,
        age: Duration,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let mut client = self.connections.work().await?;
        let candidates = client
            .query(
                &self.schema.sql(PRUNE_CANDIDATES),
                &[&status.as_str(), &micros(age), &i64::from(limit)],
            )
            .await?;
        let ids: Vec<i64> = candidates.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let gone =
            self.remove_ended(&mut client, PRUNE_LOCK_TASKS, &ids, &[status.as_str()]).await?;
        Ok(gone.len() as u64)
    }

    /// Removes those of the tasks that have ended in one of the statuses and that
    /// are not in use. Returns which.
    pub(crate) async fn remove_ended(
        &self,
        client: &mut PooledConnection,
        lock_tasks: &'static str,
        ids: &[i64],
        statuses: &[&str],
    ) -> Result<Vec<i64>, StoreError> {
        loop {
            let transaction = client.transaction().await?;
            let free = transaction.query(&self.schema.sql(LOCK_KEYS), &[&ids]).await?;
            let free: Vec<i64> = free.iter().map(|row| row.get(0)).collect();
            let locked = transaction.query(&self.schema.sql(lock_tasks), &[&free]).await?;
            let mut free: Vec<i64> = locked.iter().map(|row| row.get(0)).collect();
            // One that is needed stays; then what it depends on may be needed, too.
            loop {
                let needed = transaction.query(&self.schema.sql(NEEDED), &[&free, &free]).await?;
                if needed.is_empty() {
                    break;
                }
                let needed: HashSet<i64> = needed.iter().map(|row| row.get(0)).collect();
                free.retain(|id| !needed.contains(id));
            }
            let gone = match transaction.query(&self.schema.sql(PRUNE), &[&free, &statuses]).await {
                Ok(rows) => transaction.commit().await.map(|()| rows),
                Err(e) => Err(e),
            };
            match gone {
                Err(e) if must_repeat(&e) => {}
                Err(e) => return Err(e.into()),
                Ok(rows) => return Ok(rows.iter().map(|row| row.get(0)).collect()),
            }
        }
    }
}

impl StoreInner {
    pub(crate) async fn edit(&self, id: TaskId, edit: &Edit) -> Result<EditReport, StoreError> {
        let mut client = self.connections.work().await?;
        for _ in 0..LOOKS_MAX {
            match self.edit_once(&mut client, id, edit).await {
                Ok(true) => return Ok(EditReport::Changed),
                Ok(false) => {}
                Err(e) if must_repeat(&e) => continue,
                Err(e) => return Err(e.into()),
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
        client: &mut PooledConnection,
        id: TaskId,
        edit: &Edit,
    ) -> Result<bool, SqlError> {
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
        // Dependent tasks, which were created later, come first: then nothing needs the others.
        let mut ordered: Vec<i64> = ids.iter().map(|id| id.0).collect();
        ordered.sort_unstable_by(|a, b| b.cmp(a));
        let mut reports: HashMap<i64, DeleteReport> = HashMap::new();
        for some in ordered.chunks(DELETE_TASKS_MAX) {
            let gone = self.remove_ended(&mut client, LOCK_TASKS, some, &ends).await?;
            reports.extend(gone.iter().map(|id| (*id, DeleteReport::Deleted)));
            let left: Vec<i64> =
                some.iter().copied().filter(|id| !reports.contains_key(id)).collect();
            let statuses = self.statuses(&client, &left).await?;
            let stay: &[i64] = &[];
            let needed = client.query(&self.schema.sql(NEEDED), &[&left, &stay]).await?;
            let needed: HashSet<i64> = needed.iter().map(|row| row.get(0)).collect();
            reports.extend(left.into_iter().map(|id| {
                let report = match statuses.get(&id) {
                    None => DeleteReport::NotFound,
                    Some(open @ (TaskStatus::Waiting | TaskStatus::Running)) => {
                        DeleteReport::Open(*open)
                    }
                    Some(_) if needed.contains(&id) => DeleteReport::Needed,
                    Some(_) => DeleteReport::Busy,
                };
                (id, report)
            }));
        }
        Ok(ids.iter().map(|id| reports[&id.0]).collect())
    }

    async fn statuses(
        &self,
        client: &PooledConnection,
        ids: &[i64],
    ) -> Result<HashMap<i64, TaskStatus>, StoreError> {
        let rows = client.query(&self.schema.sql(STATUS), &[&ids]).await?;
        let known = rows.iter().filter_map(|row| Some((row.get(0), status(row.get(1))?)));
        Ok(known.collect())
    }
}
