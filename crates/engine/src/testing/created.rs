//! Created tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::json::Json;
use task_engine_core::secret::Redactor;
use task_engine_core::task::{CreatedTask, TaskDetails};
use task_engine_core::task::{NewTask, Task, TaskId};
use task_engine_sqlite::rusqlite;

use crate::testing::difference::{differences, shown};

/// A task that was created.
///
/// It dereferences to its parameters, so `created.to` is the value that the application passed.
#[derive(Clone)]
#[non_exhaustive]
pub struct Created<T> {
    /// The task.
    pub id: TaskId,
    /// Its parameters.
    pub task: T,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// From when on it may run; its next attempt, if it waits for a retry.
    pub due_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its context, with its parent and its correlation id.
    pub context: Json,
    parameters: Json,
}

impl<T: Task> Created<T> {
    #[track_caller]
    fn of(created: CreatedTask) -> Self {
        let CreatedTask { id, parameters, .. } = created;
        let decoded = parameters.decode().or_else(|error| {
            // `{}` is how the parameters of a type without fields are stored.
            Json::null().decode().map_err(|_| error)
        });
        Self {
            id,
            task: decoded.unwrap_or_else(|error| {
                panic!("the parameters of task {id} do not fit class {}: {error}", T::CLASS)
            }),
            queue: created.queue,
            priority: created.priority,
            due_at: created.due_at,
            created_at: created.created_at,
            context: created.context,
            parameters,
        }
    }

    pub(super) fn of_details(details: TaskDetails) -> Self {
        let row = details.row;
        Self::of(CreatedTask {
            id: row.id,
            class: row.class,
            parameters: details.parameters,
            context: details.context,
            queue: row.queue,
            priority: row.priority,
            due_at: row.scheduled_at,
            created_at: row.created_at,
        })
    }

    /// Returns how long after its creation it may run.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::try_from(self.due_at.duration_since(self.created_at)).unwrap_or_default()
    }

    /// The parameters as they may be seen.
    fn shown(&self) -> Json {
        let secrets = Redactor::of(&self.parameters, &self.context, T::SECRETS);
        secrets.parameters().unwrap_or(&self.parameters).clone()
    }
}

impl<T> Deref for Created<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.task
    }
}

impl<T: Task> fmt::Debug for Created<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, class, parameters) = (self.id, T::CLASS, self.shown());
        write!(f, "task {id} ({class}) with {}", parameters.as_str())
    }
}

/// Tasks of one class that were created, oldest first.
///
/// It dereferences to a slice of [`Created`].
#[derive(Clone)]
pub struct CreatedTasks<T>(Vec<Created<T>>);

impl<T: Task> CreatedTasks<T> {
    pub(super) fn new(created: Vec<Created<T>>) -> Self {
        Self(created)
    }

    #[track_caller]
    fn of(created: Vec<CreatedTask>) -> Self {
        Self(created.into_iter().map(Created::of).collect())
    }

    /// Checks that such a task is among them, and returns the first.
    ///
    /// # Panics
    /// Panics if there is none. The message shows how the others differ.
    #[track_caller]
    pub fn assert_contains(&self, task: &T) -> &Created<T> {
        match self.place_of(task) {
            Ok(place) => &self.0[place],
            Err(why) => panic!("{why}"),
        }
    }

    /// Checks that there is none.
    ///
    /// # Panics
    /// Panics if there is one.
    #[track_caller]
    pub fn assert_empty(&self) {
        assert!(self.0.is_empty(), "no task of class {} was expected: {self:#?}", T::CLASS);
    }

    /// The first such task, or how the others differ.
    pub(super) fn find(mut self, task: &T) -> Result<Created<T>, String> {
        self.place_of(task).map(|place| self.0.swap_remove(place))
    }

    fn place_of(&self, task: &T) -> Result<usize, String> {
        let wanted = match NewTask::of(task) {
            Ok(wanted) => wanted,
            Err(error) => return Err(error.to_string()),
        };
        let value = wanted.parameters.decode().unwrap_or_default();
        let different = |created: &Created<T>| {
            let found: serde_json::Value = created.parameters.decode().unwrap_or_default();
            differences(&value, &found)
        };
        if let Some(place) = self.0.iter().position(|created| different(created).is_empty()) {
            return Ok(place);
        }
        let secrets = Redactor::of(&wanted.parameters, &wanted.context, T::SECRETS);
        let wanted = secrets.parameters().unwrap_or(&wanted.parameters);
        let mut why = format!("no task of class {} was created with {}", T::CLASS, wanted.as_str());
        if self.0.is_empty() {
            why.push_str("; none of this class was");
        }
        let wanted = wanted.decode().unwrap_or_default();
        for created in &self.0 {
            let found = created.shown().decode().unwrap_or_default();
            for path in different(created) {
                let (wanted, found) = (shown(&wanted, &path), shown(&found, &path));
                let id = created.id;
                why.push_str(&format!("\n  task {id}: {path} is {found}, not {wanted}"));
            }
        }
        Err(why)
    }
}

impl<T> Deref for CreatedTasks<T> {
    type Target = [Created<T>];

    fn deref(&self) -> &[Created<T>] {
        &self.0
    }
}

impl<T> IntoIterator for CreatedTasks<T> {
    type Item = Created<T>;
    type IntoIter = std::vec::IntoIter<Created<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T: Task> fmt::Debug for CreatedTasks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// The classes of tasks, counted, for the end of a message.
pub(super) fn others(classes: Vec<String>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for class in classes {
        *counts.entry(class).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let counted: Vec<_> =
        counts.iter().map(|(class, count)| format!("{class} ({count})")).collect();
    format!("\n  tasks of other classes: {}", counted.join(", "))
}

/// Returns the tasks of a class that a transaction of rusqlite has created and not yet committed.
///
/// ```
/// # #[derive(serde::Serialize, serde::Deserialize, task_engine::Task)]
/// # struct SendMail { to: String }
/// use task_engine::TaskEngine;
/// use task_engine::sqlite::rusqlite;
/// use task_engine::testing::{Harness, created_in};
///
/// // The application's code, which a test calls.
/// fn order(
///     tasks: &TaskEngine,
///     transaction: &rusqlite::Transaction<'_>,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     transaction.execute("INSERT INTO orders (customer) VALUES ('ada')", [])?;
///     tasks.create(SendMail { to: "ada".into() }).in_tx(transaction)?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("created_in {}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let file = folder.join("app.db");
/// let harness = Harness::open(&file, |tasks| tasks.engine(())).await;
/// let mut connection = rusqlite::Connection::open(&file)?;
/// connection.execute_batch("CREATE TABLE orders (customer)")?;
/// let transaction = connection.transaction()?;
/// order(&harness.tasks(), &transaction)?;
/// created_in::<SendMail>(&transaction).assert_contains(&SendMail { to: "ada".into() });
/// transaction.rollback()?;
/// harness.created::<SendMail>().await.assert_empty();
/// # drop(harness);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
///
/// # Panics
/// Panics if the database cannot be read, or the parameters do not fit the type.
#[track_caller]
pub fn created_in<T: Task>(transaction: &rusqlite::Connection) -> CreatedTasks<T> {
    let created = task_engine_sqlite::created_in(transaction, T::CLASS);
    CreatedTasks::of(created.unwrap_or_else(|error| panic!("{error}")))
}

/// Returns the tasks of a class that a transaction of tokio-postgres has created and not yet
/// committed.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize, task_engine::Task)]
/// # struct SendMail { to: String }
/// # use task_engine::postgres::tokio_postgres;
/// use task_engine::postgres::Schema;
/// use task_engine::testing::created_in_postgres;
///
/// # async fn order(_: &tokio_postgres::Transaction<'_>) -> Result<(), tokio_postgres::Error> { Ok(()) }
/// # async fn test(mut client: tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
/// let transaction = client.transaction().await?;
/// order(&transaction).await?; // The application's code, which the test is about.
/// let created = created_in_postgres::<SendMail>(&Schema::default(), &transaction).await;
/// created.assert_contains(&SendMail { to: "ada".into() });
/// transaction.rollback().await?;
/// # Ok(()) }
/// ```
///
/// # Panics
/// Panics if the database cannot be read, or the parameters do not fit the type.
#[cfg(feature = "postgres")]
pub async fn created_in_postgres<T: Task>(
    schema: &task_engine_postgres::Schema,
    transaction: &impl task_engine_postgres::tokio_postgres::GenericClient,
) -> CreatedTasks<T> {
    let created = schema.created_in(transaction, T::CLASS).await;
    CreatedTasks::of(created.unwrap_or_else(|error| panic!("{error}")))
}

/// Returns the tasks of a class that a transaction of sqlx has created and not yet committed: see
/// [`created_in_postgres`].
///
/// # Panics
/// Panics if the database cannot be read, or the parameters do not fit the type.
#[cfg(feature = "sqlx")]
pub async fn created_in_sqlx<T: Task>(
    schema: &task_engine_postgres::Schema,
    connection: &mut task_engine_postgres::sqlx::PgConnection,
) -> CreatedTasks<T> {
    let created = schema.created_in_sqlx(connection, T::CLASS).await;
    CreatedTasks::of(created.unwrap_or_else(|error| panic!("{error}")))
}
