//! Creation: what was asked, and its place in the queue, or neither.

use rusqlite::{Connection, params};
use task_engine_model::task::Due;
use task_engine_model::{NewTask, StoreError, TaskId};

use crate::fault::{Fault, explain};
use crate::moment::Moment;

/// Creates tasks inside a transaction of the application's own: they are there
/// if it commits, and never were if it rolls back. A [`rusqlite::Transaction`]
/// can be passed as it is.
///
/// Outside of a transaction this is one of its own. Engines learn of the tasks
/// within milliseconds of the commit.
///
/// ```no_run
/// # use task_engine_model::{Json, NewTask};
/// # use task_engine_sqlite::{create_in, rusqlite};
/// # fn example(connection: &mut rusqlite::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = connection.transaction()?;
/// create_in(&transaction, &[NewTask::new("tidy", Json::empty_object())?])?;
/// transaction.commit()?;
/// # Ok(()) }
/// ```
pub fn create_in(connection: &Connection, tasks: &[NewTask]) -> Result<Vec<TaskId>, StoreError> {
    let whole = || {
        connection.execute_batch("SAVEPOINT task_engine_create")?;
        let created = create(connection, Moment::take(), tasks);
        if created.is_err() && !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK TO task_engine_create")?;
        }
        if !connection.is_autocommit() {
            connection.execute_batch("RELEASE task_engine_create")?;
        }
        created
    };
    whole().map_err(|fault: Fault| match fault {
        Fault::Sql(error) => explain(&error, connection.path().unwrap_or("the database")),
        Fault::Store(error) => error,
    })
}

/// The caller is in a transaction, and takes it back if this fails.
pub(crate) fn create(
    connection: &Connection,
    moment: Moment,
    tasks: &[NewTask],
) -> Result<Vec<TaskId>, Fault> {
    let mut created = connection.prepare_cached(sql!("create_task"))?;
    let mut waiting = connection.prepare_cached(sql!("wait_first"))?;
    let mut ids = Vec::with_capacity(tasks.len());
    for task in tasks {
        let due_at = due_at(task.due, moment);
        let id = created.insert(params![
            task.class,
            task.parameters.as_str(),
            task.context.as_str(),
            task.queue,
            task.priority,
            due_at,
            moment.now,
        ])?;
        waiting.execute(params![id, task.queue, task.class, task.priority, due_at])?;
        ids.push(TaskId(id));
    }
    Ok(ids)
}

fn due_at(due: Due, moment: Moment) -> i64 {
    match due {
        Due::Now => moment.now,
        Due::After(wait) => moment.after(wait),
        Due::At(time) => time.as_microsecond(),
    }
}
