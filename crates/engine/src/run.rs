//! What a task's code sees of the engine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use task_engine_model::report::LogLevel;
use task_engine_model::{AttemptId, Client, Json, TaskId};
use tokio_util::sync::CancellationToken;

use crate::report::Journal;

/// One run of a task, in the hands of its code. Dereferences to the
/// application's state, so `run.mailer` is `state.mailer`.
pub struct Run<S> {
    pub(crate) state: Arc<S>,
    pub(crate) client: Client,
    pub(crate) id: AttemptId,
    pub(crate) retry_number: u32,
    pub(crate) class: Arc<str>,
    pub(crate) context: Json,
    pub(crate) worker: i32,
    pub(crate) cancelled: CancellationToken,
    pub(crate) journal: Arc<Journal>,
}

impl<S> Run<S> {
    /// The task.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.id.task_id
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.id.attempt
    }

    /// How many retries have been used before this attempt.
    #[must_use]
    pub fn retry_number(&self) -> u32 {
        self.retry_number
    }

    /// The class of the task.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// What the engine keeps about the task.
    #[must_use]
    pub fn context(&self) -> &Json {
        &self.context
    }

    /// The worker that runs this.
    #[must_use]
    pub fn worker(&self) -> i32 {
        self.worker
    }

    /// For tasks that create tasks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the attempt should end: somebody cancelled the task, its time is
    /// over, or the engine must stop. Asynchronous code is dropped soon after;
    /// blocking code must look for itself.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits until the attempt should end.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Says how far the attempt is: 0 to 100 percent, and a few words. The last
    /// one counts, and is shown while the task runs and after it. Never waits:
    /// it is written beside the work, within half a second.
    pub fn progress(&self, percent: impl Into<f64>, message: impl AsRef<str>) {
        self.journal.progress(percent.into(), message.as_ref());
    }

    /// Adds a line to the log of this attempt, which is shown while the task runs
    /// and kept with it. Never waits, like [`Run::progress`].
    ///
    /// 1,000 lines and 256 KiB of an attempt are kept, and 8 KiB of a line; what
    /// goes beyond is counted.
    pub fn log(&self, message: impl AsRef<str>) {
        self.log_at(LogLevel::Info, message);
    }

    /// The same, for a line that is more or less important than others.
    pub fn log_at(&self, level: LogLevel, message: impl AsRef<str>) {
        self.journal.log(level, message.as_ref());
    }
}

impl<S> Deref for Run<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> Clone for Run<S> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            client: self.client.clone(),
            id: self.id,
            retry_number: self.retry_number,
            class: self.class.clone(),
            context: self.context.clone(),
            worker: self.worker,
            cancelled: self.cancelled.clone(),
            journal: self.journal.clone(),
        }
    }
}

impl<S> fmt::Debug for Run<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("class", &self.class)
            .field("retry_number", &self.retry_number)
            .finish_non_exhaustive()
    }
}
