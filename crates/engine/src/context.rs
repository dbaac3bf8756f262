//! The context of an attempt, which its handler gets.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use task_engine_core::attempt::AttemptId;
use task_engine_core::completion::Completion;
use task_engine_core::dependency::DependencyRow;
use task_engine_core::flow::Origin;
use task_engine_core::flow::with_correlation;
use task_engine_core::json::Json;
use task_engine_core::progress::LogLevel;
use task_engine_core::task::{Task, TaskId};
use task_engine_core::traceparent::Traceparent;
use task_engine_store::error::StoreError;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::attempt_handle::AttemptHandle;
use crate::create::Create;
use crate::hooks::Extensions;
use crate::progress::AttemptReporter;
use crate::tasks::TaskEngine;
use crate::transaction::Transaction;

/// Gives a handler access to its attempt: the application's state, the task, its log, its progress
/// and its cancellation.
///
/// It is cheap to clone.
///
/// ```
/// use task_engine::{Failure, Context, Task};
///
/// # #[derive(serde::Serialize, serde::Deserialize, Task)]
/// # struct SendMail { to: String }
/// # struct Mailer;
/// # impl Mailer { async fn send(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
/// struct App { mailer: Mailer }
///
/// #[derive(serde::Serialize, serde::Deserialize, Task)]
/// struct Newsletter { readers: Vec<String> }
///
/// async fn newsletter(task: Newsletter, cx: Context<App>) -> Result<(), Failure> {
///     for (n, reader) in task.readers.iter().enumerate() {
///         if cx.is_cancelled() {
///             return Err("cancelled".into());
///         }
///         cx.state().mailer.send(reader).await?;                    // the state
///         cx.log(format!("sent to {reader}"));              // kept with the attempt
///         cx.progress(100.0 * n as f64 / task.readers.len() as f64, reader);
///     }
///     // A child task: its parent is this task.
///     cx.create(SendMail { to: "the editor".into() }).await?;
///     Ok(())
/// }
/// ```
pub struct Context<S> {
    pub(crate) state: Arc<S>,
    pub(crate) tasks: TaskEngine,
    pub(crate) id: AttemptId,
    pub(crate) retry_number: u32,
    pub(crate) class: Arc<str>,
    pub(crate) context: Json,
    pub(crate) worker: i32,
    pub(crate) cancelled: CancellationToken,
    pub(crate) reporter: Arc<AttemptReporter>,
    pub(crate) handle: Arc<AttemptHandle>,
    /// The span of this execution, if it is one of OpenTelemetry.
    pub(crate) traceparent: Option<Box<Traceparent>>,
    pub(crate) on_demand: OnceLock<Box<OnDemand>>,
}

/// Created on first use, because most tasks never use it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnDemand {
    origin: OnceLock<Origin>,
    context: OnceLock<Json>,
    tasks: OnceLock<TaskEngine>,
    extensions: OnceLock<Extensions>,
    /// The tasks that this one depends on.
    pub(crate) dependencies: OnceCell<Vec<DependencyRow>>,
}

impl<S> Context<S> {
    /// Returns the application's state, which was passed to [`TaskEngine::engine`].
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the id of the task.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.id.task_id
    }

    /// Returns the number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.id.attempt
    }

    /// Returns how many retries have been used before this attempt.
    #[must_use]
    pub fn retry_number(&self) -> u32 {
        self.retry_number
    }

    /// Returns the class of the task.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Returns the context of the task, with its correlation id.
    #[must_use]
    pub fn context(&self) -> &Json {
        let seen = || with_correlation(&self.context, self.correlation_id());
        self.on_demand().context.get_or_init(seen)
    }

    /// Returns the correlation id of the flow that the task belongs to.
    ///
    /// It was set by the creator, or is the id of the first task of the flow.
    #[must_use]
    pub fn correlation_id(&self) -> &str {
        &self.origin().correlation_id
    }

    /// Returns the id of the task that created this one, if one did.
    #[must_use]
    pub fn parent_id(&self) -> Option<TaskId> {
        self.origin().parent_id
    }

    /// Returns the origin of the task: its parent and its flow.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        self.on_demand().origin.get_or_init(|| Origin::of(self.id.task_id, &self.context))
    }

    /// Returns the values that hooks have added for this execution, by type.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        self.on_demand().extensions.get_or_init(Extensions::default)
    }

    pub(crate) fn on_demand(&self) -> &OnDemand {
        self.on_demand.get_or_init(Box::default)
    }

    /// Returns the number of the worker that runs this attempt.
    #[must_use]
    pub fn worker(&self) -> i32 {
        self.worker
    }

    /// Creates a child task, whose parent is this task, in the same flow.
    ///
    /// Returns a builder, as [`TaskEngine::create`] does; await it to create the task.
    ///
    /// ```
    /// # use task_engine::{Context, Failure, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Order { customer: String }
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// async fn order(task: Order, cx: Context<()>) -> Result<(), Failure> {
    ///     cx.create(SendMail { to: task.customer }).priority(5).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn create<T: Task>(&self, task: T) -> Create<'_> {
        self.tasks().create(task)
    }

    /// Returns the tasks of the engine's database.
    ///
    /// Tasks that are created here are children of this task.
    #[must_use]
    pub fn tasks(&self) -> &TaskEngine {
        self.on_demand().tasks.get_or_init(|| {
            let mut parent = self.origin().for_children_of(self.id.task_id);
            parent.traceparent = self.traceparent.as_deref().copied().or(parent.traceparent);
            self.tasks.within(parent)
        })
    }

    /// Completes the task inside a transaction of the application, so that its effects happen
    /// exactly once.
    ///
    /// The transaction is in the database of the tasks. Its effects and the end of the task commit
    /// together, or neither does, even if the engine dies. See [`complete`](crate::complete).
    ///
    /// Call it last, commit, and return the result. With the PostgreSQL drivers it
    /// returns a future; with rusqlite it returns the result at once.
    ///
    /// ```no_run
    /// # use task_engine::{Context, Failure, Task, sqlite::rusqlite};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Book { cents: i64 }
    /// fn book(task: Book, cx: Context<()>) -> Result<(), Failure> {
    ///     let mut connection = rusqlite::Connection::open("app.db")?;
    ///     let transaction = connection.transaction()?;
    ///     transaction.execute("UPDATE account SET cents = cents + ?1", [task.cents])?;
    ///     cx.complete_in(&transaction, &())?;
    ///     transaction.commit()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails with [`StoreError::AttemptOver`] if the attempt has been ended otherwise. Return any
    /// error from the handler, so that the transaction is rolled back.
    pub fn complete_in<T: Transaction>(
        &self,
        transaction: T,
        result: &impl Serialize,
    ) -> T::Answer<Result<(), StoreError>> {
        transaction.complete(self.completion(result))
    }

    /// Returns what [`complete_in`](Self::complete_in) writes, for drivers that it does not
    /// support.
    ///
    /// Pass it to the crate of the store, or on PostgreSQL to the SQL function
    /// `task_engine.complete_attempt`.
    ///
    /// From here on the attempt fails unless its completion commits.
    pub fn completion(&self, result: &impl Serialize) -> Result<Completion, StoreError> {
        let result = Json::encode(result)
            .map_err(|error| StoreError::InvalidData(format!("the result: {error}")))?;
        Ok(self.handle.completion(result))
    }

    /// Returns whether the attempt should end.
    ///
    /// A user cancelled the task, its time limit is exceeded, or the engine must stop.
    ///
    /// Asynchronous code is dropped soon after. Blocking code must check this and return.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits until the attempt should end.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Returns a text without the secret parameters of the task.
    ///
    /// Use it for output of the handler to other places.
    ///
    /// Errors, log and progress are redacted by the engine.
    #[must_use]
    pub fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.reporter.secrets.text(text)
    }

    /// Reports the progress of this attempt: 0 to 100 percent, and a short message.
    ///
    /// The last report counts, and is shown while the task runs and after it. This never waits: the
    /// report is written in the background, within half a second.
    ///
    /// ```
    /// # use task_engine::{Context, Failure, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Import { lines: Vec<String> }
    /// async fn import(task: Import, cx: Context<()>) -> Result<(), Failure> {
    ///     let total = task.lines.len();
    ///     for (n, line) in task.lines.iter().enumerate() {
    ///         cx.progress(100.0 * n as f64 / total as f64, line);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn progress(&self, percent: impl Into<f64>, message: impl AsRef<str>) {
        self.reporter.progress(percent.into(), message.as_ref());
    }

    /// Adds a line to the log of this attempt, which is shown while the task runs and stored with
    /// it.
    ///
    /// This never waits, like [`Context::progress`].
    ///
    /// ```
    /// # use task_engine::{Context, LogLevel, testing::Harness};
    /// # use task_engine::{Failure, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Import { file: String }
    /// async fn import(task: Import, cx: Context<()>) -> Result<(), Failure> {
    ///     cx.log(format!("reading {}", task.file));
    ///     cx.log_at(LogLevel::Warn, "the file is empty");
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let harness = Harness::new(|tasks| tasks.engine(()).handle(import)).await;
    /// let done = harness.perform(Import { file: "a.csv".into() }).await;
    /// assert_eq!(done.log(), ["reading a.csv", "the file is empty"]);
    /// # }
    /// ```
    ///
    /// 1,000 lines and 256 KiB of an attempt are stored, and 8 KiB of a line. The first half is
    /// written while the attempt runs, the last half when it ends. The lines between them are only
    /// counted.
    pub fn log(&self, message: impl AsRef<str>) {
        self.log_at(LogLevel::Info, message);
    }

    /// Keeps fewer lines of this attempt: an option of executables.
    #[doc(hidden)]
    pub fn keep_log_lines(&self, lines_max: usize) {
        self.reporter.keep_lines(lines_max);
    }

    /// Adds a line with a level to the log of this attempt: see [`log`](Self::log).
    pub fn log_at(&self, level: LogLevel, message: impl AsRef<str>) {
        self.reporter.log(level, message.as_ref());
    }
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            tasks: self.tasks.clone(),
            id: self.id,
            retry_number: self.retry_number,
            class: self.class.clone(),
            context: self.context.clone(),
            worker: self.worker,
            cancelled: self.cancelled.clone(),
            reporter: self.reporter.clone(),
            handle: self.handle.clone(),
            traceparent: self.traceparent.clone(),
            on_demand: {
                // Clones share what hooks add, also later.
                let _ = self.extensions();
                self.on_demand.clone()
            },
        }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id)
            .field("class", &self.class)
            .field("retry_number", &self.retry_number)
            .finish_non_exhaustive()
    }
}
