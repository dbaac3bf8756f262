//! Creation: a task and its waiting row, or neither.

use rusqlite::{CachedStatement, Connection, params};
use task_engine_core::task::Due;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limits::check_named;
use crate::moment::Moment;
use crate::savepoint::in_savepoint;
use crate::unique;

/// Creates tasks in a transaction of rusqlite: they exist if it commits.
///
/// A [`rusqlite::Transaction`] can be passed as it is.
///
/// Outside of a transaction this is one of its own. Engines learn of the tasks
/// within milliseconds of the commit. Applications use `Create::in_tx` of the crate
/// `task-engine`, which also runs creation hooks.
///
/// ```no_run
/// # use task_engine_core::{Json, NewTask};
/// # use task_engine_sqlite::{create_in, rusqlite};
/// # fn example(connection: &mut rusqlite::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = connection.transaction()?;
/// create_in(&transaction, &[NewTask::new("tidy", Json::empty_object())?])?;
/// transaction.commit()?;
/// # Ok(()) }
/// ```
pub fn create_in(connection: &Connection, tasks: &[NewTask]) -> Result<Vec<TaskId>, StoreError> {
    let creations = create_each_in(connection, tasks)?;
    Ok(creations.into_iter().map(Creation::id).collect())
}

/// Creates tasks like [`create_in`], and returns for each whether it was created: a unique task may
/// exist already.
///
/// No task starts before the transaction ends.
pub fn create_each_in(
    connection: &Connection,
    tasks: &[NewTask],
) -> Result<Vec<Creation>, StoreError> {
    in_savepoint(connection, |tx| create(tx, tasks))
}

/// The caller is in a transaction, and rolls it back if this fails.
pub(crate) fn create(
    tx: &JobTransaction<'_>,
    tasks: &[NewTask],
) -> Result<Vec<Creation>, JobError> {
    if !tasks.is_empty() {
        tx.brings_work.set(true);
    }
    check_named(tx, tasks)?;
    let mut insert = Insert::prepare(tx)?;
    let mut held = None;
    let mut creations = Vec::with_capacity(tasks.len());
    for task in tasks {
        creations.push(match &task.unique {
            None => Creation::Created(insert.run(tx, task)?),
            Some(unique) => unique::create(tx, &mut insert, &mut held, task, unique)?,
        });
    }
    Ok(creations)
}

/// Creates tasks without a check of keys.
pub(crate) struct Insert<'a> {
    created: CachedStatement<'a>,
    waiting: CachedStatement<'a>,
}

impl<'a> Insert<'a> {
    pub(crate) fn prepare(tx: &JobTransaction<'a>) -> Result<Self, JobError> {
        Ok(Self {
            created: tx.db.prepare_cached(sql!("engine/create", "create_task"))?,
            waiting: tx.db.prepare_cached(sql!("engine/create", "enqueue"))?,
        })
    }

    pub(crate) fn run(
        &mut self,
        tx: &JobTransaction<'_>,
        task: &NewTask,
    ) -> Result<TaskId, JobError> {
        self.run_in(tx, task, &task.queue)
    }

    /// The same. The task waits in the queue as claims see it.
    pub(crate) fn run_in(
        &mut self,
        tx: &JobTransaction<'_>,
        task: &NewTask,
        waiting_queue: &str,
    ) -> Result<TaskId, JobError> {
        let due_at = due_at(task.due, tx.moment);
        let id = self.created.insert(params![
            task.class,
            task.parameters.as_str(),
            task.context.as_str(),
            task.queue,
            task.priority,
            due_at,
            tx.now(),
        ])?;
        self.waiting.execute(params![id, waiting_queue, task.class, task.priority, due_at])?;
        Ok(TaskId(id))
    }
}

pub(crate) fn due_at(due: Due, moment: Moment) -> i64 {
    match due {
        Due::Now => moment.now,
        Due::After(wait) => moment.after(wait),
        Due::At(time) => time.as_microsecond(),
    }
}
