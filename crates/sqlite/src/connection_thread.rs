//! Threads that own a connection each: they receive jobs and send replies.
//!
//! SQLite blocks, so it never runs on a thread of the asynchronous runtime.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;
use task_engine_store::error::StoreError;
use tokio::sync::oneshot;

use crate::connection::FileMark;
use crate::error::{JobError, explain};
use crate::moment::Moment;

/// The context of a job: a connection inside a transaction, and its time.
pub(crate) struct JobTransaction<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) moment: Moment,
    /// Whether something waits that did not before.
    pub(crate) brings_work: Cell<bool>,
    /// Whether there is a new cancel request.
    pub(crate) wants_cancel: Cell<bool>,
    /// Whether a schedule has changed.
    pub(crate) changes_schedules: Cell<bool>,
}

impl<'a> JobTransaction<'a> {
    pub(crate) fn new(db: &'a Connection) -> Self {
        Self {
            db,
            moment: Moment::take(db),
            brings_work: Cell::new(false),
            wants_cancel: Cell::new(false),
            changes_schedules: Cell::new(false),
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.moment.now
    }
}

/// Where jobs are handed in. The thread ends with it.
pub(crate) struct ConnectionThread {
    /// Always there until the end.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    place: Arc<str>,
}

impl Drop for ConnectionThread {
    /// Waits for the thread, so that its connection is closed and the file is complete
    /// without its log.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl ConnectionThread {
    /// Starts a thread that does jobs for as long as there may be some.
    pub(crate) fn spawn(
        name: &str,
        place: Arc<str>,
        work: impl FnOnce(mpsc::Receiver<Box<dyn Job>>) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (jobs, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(inbox));
        let thread = thread.map_err(|error| {
            StoreError::Unavailable(format!("{place}: no thread could be started: {error}"))
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), place })
    }

    /// Hands in a job, and waits for its answer: after the commit.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&JobTransaction<'_>) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(QueuedJob { work: Some(work), outcome: None, reply });
        let closed = || StoreError::Unavailable(format!("{}: its thread has ended", self.place));
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        jobs.send(job).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl fmt::Debug for ConnectionThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionThread").field("place", &self.place).finish()
    }
}

/// A job has two moments: it runs inside a transaction, and answers when the
/// fate of the transaction is known.
pub(crate) trait Job: Send {
    /// Runs, and returns whether its changes may be committed.
    fn run(&mut self, tx: &JobTransaction<'_>) -> bool;

    /// Answers. `committed` is the fate of the transaction as a whole.
    fn answer(self: Box<Self>, committed: Result<(), &rusqlite::Error>, place: &str);
}

struct QueuedJob<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, JobError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for QueuedJob<T, F>
where
    T: Send,
    F: FnOnce(&JobTransaction<'_>) -> Result<T, JobError> + Send,
{
    fn run(&mut self, tx: &JobTransaction<'_>) -> bool {
        let Some(work) = self.work.take() else {
            return false;
        };
        // A panic fails only this job; the thread continues.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(tx))).unwrap_or_else(|_| {
            Err(JobError::Store(StoreError::Refused(
                "the store panicked, which is a bug of Task Engine; nothing was changed".to_owned(),
            )))
        });
        self.outcome.insert(outcome).is_ok()
    }

    fn answer(self: Box<Self>, committed: Result<(), &rusqlite::Error>, place: &str) {
        let answer = match (self.outcome, committed) {
            (Some(Err(fault)), _) => Err(fault.explain(place)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (_, Err(error)) => Err(explain(error, place)),
            (None, Ok(())) => Err(StoreError::Unavailable(format!("{place}: not done"))),
        };
        // The caller may have stopped waiting; the commit is valid.
        let _ = self.reply.send(answer);
    }
}

/// Reads concurrently with the writer, one job after the other, each in one snapshot.
pub(crate) fn read_all(
    connection: &Connection,
    file: &FileMark,
    inbox: &mpsc::Receiver<Box<dyn Job>>,
    place: &str,
) {
    for mut job in inbox {
        let checked = file.check(connection);
        let begun = checked.and_then(|()| connection.execute_batch("BEGIN"));
        if begun.is_ok() {
            job.run(&JobTransaction::new(connection));
            // Nothing was written, so nothing is lost.
            let _ = connection.execute_batch("ROLLBACK");
        }
        job.answer(begun.as_ref().map(|_| ()), place);
    }
}
