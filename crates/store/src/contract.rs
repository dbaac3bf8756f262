//! The contract that every store keeps: small, batch-first, and without
//! decisions of its own.
//!
//! Each method is one atomic step. *Committed when it returns* is part of the
//! contract, and so is *safe to repeat*: an engine that has lost the answer
//! sends the same thing again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

use crate::activity::{Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts};
use crate::audit::{AuditEntry, AuditFilter, NewAuditEntry};
use crate::check::{Check, Depth, Inventory};
use crate::claim::Claimer;
use crate::error::StoreError;
use crate::export::{ExportFilter, File, Ids, Imported, Sink};
use crate::lock::BlockingSession;
use crate::login::{DatabaseKey, LoginId};
use crate::queue_position::{QueuePosition, QueuePositionQuery};
use crate::rollup::{ClassMinute, RollupQuery, RollupRow};
use crate::scan::{CreationTimes, Scan, ScanPage};
use crate::token::{NewToken, TokenHash, TokenRow};
use task_engine_core::attempt::{AttemptId, Ending};
use task_engine_core::change::{Edit, EditReport, RemoveReport};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::Settled;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::queue::{Lanes, PausedQueue, QueuePause, QueueRow};
use task_engine_core::recovery::{HeldTask, Reclaim, ReclaimedAttempt};
use task_engine_core::report::{LogFilter, LogRow, Report};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{
    DueSchedules, FiredSlot, Firing, ScheduleRow, ScheduleWrite,
};
use task_engine_core::task::{NewTask, TaskDetails, TaskFilter, TaskId, TaskRow, TaskStatus};
use task_engine_core::unique::Creation;

/// What a store's methods return.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where tasks are kept: PostgreSQL (`PgStore`), SQLite (`SqliteStore`), or what
/// else keeps this contract.
///
/// An application gives it to its engine and its client. It may also ask it, for
/// instance about [one task](Self::task), [many](Self::tasks) or
/// [engines](Self::instances). Most other methods are for engines, the command
/// line and the dashboard.
///
/// Whoever implements it should know that it may get methods: see
/// [Versions](https://github.com/task-engine/task-engine/blob/main/docs/versions.md).
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Where this is, without secrets: for logs and messages.
    fn place(&self) -> String;

    /// Closes connections in good order, as far as they are not in use; the store
    /// is not used after that. For programs that are about to end: a server may
    /// otherwise log that they were cut off.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Brings the tables to this version. Returns what was applied.
    fn migrate(&self) -> StoreFuture<'_, Vec<String>>;

    /// Which version the tables have, and which one this program makes.
    fn tables(&self) -> StoreFuture<'_, Tables>;

    /// Creates tasks, all or none, and wakes engines. Tells what became of each,
    /// in order: of those that are unique, some may be there already.
    fn create_each<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<Creation>>;

    /// The same for callers who only want the ids.
    fn create<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let creations = self.create_each(tasks).await?;
            Ok(creations.into_iter().map(Creation::id).collect())
        })
    }

    /// Whatever this engine needs to keep between one claim and the next. An
    /// engine may have several, each with lanes of its own.
    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer>;

    /// Ends attempts, each at most once, and puts the tasks that go on back to
    /// wait; removes `finished` claims, whose attempts have all ended before.
    ///
    /// A task that somebody wants cancelled does not wait again: its attempt
    /// ends it. If the wish comes at the same moment, the next heartbeat tells
    /// ([`HeartbeatReply::lingering`]).
    ///
    /// Returns the attempts that had already been ended by somebody else. Their
    /// result is kept as evidence and changes nothing.
    fn record<'a>(
        &'a self,
        endings: &'a [Ending],
        finished: &'a [ClaimId],
    ) -> StoreFuture<'a, Vec<AttemptId>>;

    /// Ends attempts that may have completed their tasks in transactions of the
    /// application's own. One that has is left as it is; of one that has not,
    /// `endings` says how it ended. The answers are in order.
    ///
    /// It never waits for a transaction that is still open for longer than a
    /// moment: the answer is [`Settled::Open`] in its place, and it is to be
    /// asked again.
    fn settle<'a>(&'a self, endings: &'a [Ending]) -> StoreFuture<'a, Vec<Settled>>;

    /// The schema that its tables are in, or what their names begin with: for
    /// statements in a transaction of the application's own.
    fn schema_name(&self) -> &str {
        "task_engine"
    }

    /// Takes claims back from those who no longer work on them. An attempt whose
    /// completion is in a transaction that is still open is left in its claim,
    /// to be asked for again.
    fn reclaim(&self, what: Reclaim) -> StoreFuture<'_, Vec<ReclaimedAttempt>>;

    /// Begins a life. Fails with [`StoreError::NameTaken`] if another life of
    /// this name is not over on record, dead or alive.
    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId>;

    /// Renews a lease, and tells what the engine should know.
    fn heartbeat(&self, instance: InstanceId) -> StoreFuture<'_, HeartbeatReply>;

    /// Ends a life in good order.
    fn unregister(&self, instance: InstanceId) -> StoreFuture<'_, ()>;

    /// Ends the life of an engine whose lease has run out, or whose process is
    /// known to be gone. False if it is alive after all, or already over.
    fn declare_lost(&self, instance: InstanceId, process_gone: bool) -> StoreFuture<'_, bool>;

    /// Lives of engines: those of this name, or all; the newest first. Lives
    /// that are over and hold nothing are left out, but for the last of a name.
    /// Of all names, those that ended longer ago than [`ENDED_KEPT`](task_engine_core::instance::ENDED_KEPT)
    /// are left out as well, but for the last that declared the same secrets.
    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>>;

    /// Sessions of the database that hold up others or may do so: they have
    /// locked a table of this store, or have a transaction open. Empty where a
    /// store cannot tell.
    fn blocking_sessions(&self) -> StoreFuture<'_, Vec<BlockingSession>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The attempts that a life holds.
    fn held(&self, instance: InstanceId) -> StoreFuture<'_, Vec<HeldTask>>;

    /// Cancels tasks: at once if they wait, by request if they run.
    fn cancel<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<CancelReport>>;

    /// Sends ended tasks back to wait, and lets waiting ones run at once.
    fn retry<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RetryReport>>;

    /// A page of tasks, newest first.
    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> StoreFuture<'a, Vec<TaskRow>>;

    /// Everything about one task.
    fn task(&self, id: TaskId) -> StoreFuture<'_, Option<TaskDetails>>;

    /// Removes up to `limit` tasks that ended in `status` at least `age` ago,
    /// with all that is recorded about them. Returns how many.
    fn prune(&self, status: TaskStatus, age: Duration, limit: u32) -> StoreFuture<'_, u64>;

    /// Checks the invariants, and returns every violation in words. None on a
    /// store that works; reads everything, so not for every day.
    fn verify(&self) -> StoreFuture<'_, Vec<String>>;

    /// Calls `hear` for each wake-up until the connection breaks, which is the
    /// error that this returns. The first call says that listening has begun.
    ///
    /// A store may send no [`WakeUp::Work`] while every engine is busy: one that
    /// was told [`Rest::Nothing`] by its claimer is woken by what comes after.
    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()>;

    /// Pauses a queue: no claim that begins after this has returned takes from
    /// it; what runs goes on. False if it was paused before; a new reason then
    /// replaces the old one.
    fn pause_queue<'a>(&'a self, pause: &'a QueuePause) -> StoreFuture<'a, bool>;

    /// Ends a pause and wakes engines. False if there was none.
    fn resume_queue<'a>(&'a self, queue: &'a str) -> StoreFuture<'a, bool>;

    /// The queues that are paused, by name.
    fn paused_queues(&self) -> StoreFuture<'_, Vec<PausedQueue>>;

    /// The queues that are known, by name: never more than some thousands, and
    /// their tasks counted up to a limit.
    fn queues(&self) -> StoreFuture<'_, Vec<QueueRow>>;

    /// Writes what attempts have said. Lines that are on record already, and
    /// progress that is not newer, change nothing; nothing is written about a
    /// task that retention has removed.
    ///
    /// It never waits for whoever has locked a task: such attempts are passed
    /// over and returned, to be sent again.
    fn report<'a>(&'a self, reports: &'a [Report]) -> StoreFuture<'a, Vec<AttemptId>>;

    /// Lines of a task's log, in the order of attempts and lines.
    fn logs<'a>(&'a self, id: TaskId, filter: &'a LogFilter) -> StoreFuture<'a, Vec<LogRow>>;

    /// A page of the tasks of a flow, oldest first. A flow that nobody belongs
    /// to is empty.
    fn flow<'a>(&'a self, page: &'a FlowPage) -> StoreFuture<'a, Vec<FlowTask>>;

    /// A schedule by its name, and the database's time.
    fn schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (Option<ScheduleRow>, Timestamp)>;

    /// A page of schedules, by name, from after this one on.
    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>>;

    /// Writes a schedule if it is still what the writer saw, and wakes engines.
    /// False, and nothing is changed, if it is not.
    fn write_schedule<'a>(&'a self, write: &'a ScheduleWrite) -> StoreFuture<'a, bool>;

    /// Removes a schedule and the record of what it fired. False if there is
    /// none of this name.
    fn remove_schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool>;

    /// Up to `limit` schedules that are due by the database's clock, and how
    /// long it is until the next one will be. Reads no others.
    fn due_schedules(&self, limit: u32) -> StoreFuture<'_, DueSchedules>;

    /// Creates the tasks of slots and moves their schedules on, each schedule
    /// whole or not at all, and all in one transaction. A schedule that is not
    /// what it was when it was seen, or that somebody else is writing, is left
    /// alone: the answer is false in its place.
    ///
    /// So of all engines that see a slot, one fires it; and as the slot, its
    /// task and the move to the next are one commit, it fires once, wherever
    /// that engine dies.
    fn fire_schedules<'a>(&'a self, firings: &'a [Firing]) -> StoreFuture<'a, Vec<bool>>;

    /// The newest slots that a schedule has fired, newest first.
    fn fired_slots(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<FiredSlot>>;

    /// Creates a task of a schedule outside of its slots, and records that and
    /// who asked for it, in one transaction.
    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation>;

    /// The newest events of a schedule beside its firing, newest first.
    fn schedule_events(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<ScheduleEvent>>;

    /// What engines hold, and the first tasks of each lane.
    fn activity(&self, look: ActivityQuery) -> StoreFuture<'_, Activity>;

    /// Attempts that have ended lately, where they are looked for; the oldest
    /// first, each once.
    fn endings<'a>(&'a self, look: &'a EndingsQuery) -> StoreFuture<'a, Vec<EndingRow>>;

    /// How many tasks have failed or were cancelled, counted up to a limit.
    fn failure_counts(&self) -> StoreFuture<'_, FailureCounts>;

    /// What is before a waiting task. `None` if it does not wait.
    fn queue_position<'a>(
        &'a self,
        look: &'a QueuePositionQuery,
    ) -> StoreFuture<'a, Option<QueuePosition>>;

    /// Looks whether all is well. What cannot be found out is a check, too: this
    /// fails only if nothing can be asked at all.
    fn checks(&self, depth: Depth) -> StoreFuture<'_, Vec<Check>>;

    /// Counts what there is. Reads everything, as [`Store::verify`] does.
    fn inventory(&self) -> StoreFuture<'_, Inventory>;

    /// Hands all that is known to `to`, line by line, as it is in one snapshot;
    /// the first is the header, the last the end. Memory does not grow with the
    /// number of tasks.
    fn export<'a>(&'a self, filter: &'a ExportFilter, to: Sink) -> StoreFuture<'a, ()>;

    /// Takes in a file, all of it or nothing. A file that is wrong is
    /// [`StoreError::InvalidData`].
    ///
    /// Attempts that ran when it was written are held by lives that are over:
    /// to be taken back ([`Reclaim::Lost`]) like those of any engine that died.
    fn import(&self, file: File, ids: Ids) -> StoreFuture<'_, Imported>;

    /// One bounded step of a search, newest first: see [`Search`](task_engine_operations::search::Search).
    fn scan<'a>(&'a self, scan: &'a Scan) -> StoreFuture<'a, ScanPage>;

    /// For each id, the nearest task at or below it and when it was created, in this
    /// order: one probe of the key each.
    fn creation_times<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, CreationTimes>;

    /// Changes a task that waits, and wakes engines. One that an engine has
    /// claimed first is left as it is.
    fn edit<'a>(&'a self, id: TaskId, edit: &'a Edit) -> StoreFuture<'a, EditReport>;

    /// Removes tasks that have ended, with all that is recorded about them.
    fn remove<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RemoveReport>>;

    /// Puts what an operator does on record; returns the id of the entry. Sent
    /// again, it is a second entry. None is ever changed.
    fn audit<'a>(&'a self, entry: &'a NewAuditEntry) -> StoreFuture<'a, i64>;

    /// A page of what operators did, newest first.
    fn audit_page<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<AuditEntry>>;

    /// Removes up to `limit` of the oldest entries, if they are older than `age`;
    /// refused for less than [`KEPT_MIN`](crate::audit::KEPT_MIN). Returns how many.
    fn prune_audit(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64>;

    /// Makes a token known; returns its id. [`StoreError::Refused`] if one that is
    /// not revoked has this name, even if it has expired.
    fn add_token<'a>(&'a self, token: &'a NewToken) -> StoreFuture<'a, i64>;

    /// All tokens, also those that are no longer good; the newest first.
    fn tokens(&self) -> StoreFuture<'_, Vec<TokenRow>>;

    /// Makes a token no good any more. False if none of this name was.
    fn revoke_token<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool>;

    /// The token of this hash, if it is good now, by the database's clock.
    /// That it was used is written down, at most once a minute.
    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>>;

    /// The key of this database: always the same, whoever asks.
    fn database_key(&self) -> StoreFuture<'_, DatabaseKey>;

    /// Ends a login, which would have lasted for up to this time from now on.
    fn end_login(&self, login: LoginId, lasts: Duration) -> StoreFuture<'_, ()>;

    /// Whether a login was ended, by any dashboard of this database.
    fn is_login_ended(&self, login: LoginId) -> StoreFuture<'_, bool>;

    /// Keeps what an engine has counted. Of what is sent about one minute and
    /// class, the most counts, in whatever order it arrives.
    fn figures<'a>(&'a self, instance: InstanceId, rows: &'a [ClassMinute]) -> StoreFuture<'a, ()>;

    /// What all engines have counted lately, by step and class, in this order.
    /// The first minute is whole; steps and classes without any attempt are left out.
    fn rollups(&self, look: RollupQuery) -> StoreFuture<'_, Vec<RollupRow>>;

    /// Removes up to `limit` rows of figures that are older than
    /// [`KEPT`](crate::rollup::KEPT). Returns how many.
    fn prune_rollups(&self, limit: u32) -> StoreFuture<'_, u64>;

    /// Removes up to `limit` lives that ended longer ago than
    /// [`ENDED_KEPT`](task_engine_core::instance::ENDED_KEPT), that hold nothing, and that the history of
    /// no task names; never the last that declared the same secrets. Returns how
    /// many.
    fn prune_instances(&self, limit: u32) -> StoreFuture<'_, u64>;
}

/// The version of the tables, and of the program that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// `None`: there are none.
    pub there: Option<i64>,
    /// The newest that this program knows.
    pub known: i64,
}

impl Tables {
    /// Whether this program can work on them as they are. Newer ones it can:
    /// migrations take nothing away that the version before needs, so that an
    /// engine can be started again in the middle of an upgrade.
    pub fn check(self) -> Result<(), StoreError> {
        let known = self.known;
        match self.there {
            Some(there) if there >= known => Ok(()),
            Some(there) => Err(StoreError::Version(format!(
                "the tables are of version {there}, and this program needs version {known}; run `task-engine migrate`"
            ))),
            None => Err(StoreError::Version(
                "the tables of Task Engine are not there; run `task-engine migrate`".to_owned(),
            )),
        }
    }
}

/// What an engine learns from its heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// False if this life is over on record.
    pub alive: bool,
    /// The time by the database's clock.
    pub now: Timestamp,
    /// The claims that the store has for it.
    pub claims: Vec<ClaimId>,
    /// Attempts of its own that somebody wants cancelled.
    pub cancel: Vec<AttemptId>,
    /// Tasks whose wish to be cancelled came at the very moment when their
    /// attempt ended, and which go on: to be cancelled once more.
    pub lingering: Vec<TaskId>,
    /// Lives whose lease has run out.
    pub expired: Vec<InstanceId>,
    /// Lives that are over, with claims left.
    pub orphaned: Vec<InstanceId>,
    /// The classes of waiting tasks (some, if there are very many).
    pub waiting_classes: Vec<String>,
    /// How long it is until the next schedule is due; nothing if one is.
    pub next_schedule_in: Option<Duration>,
}

/// What became of a wish to cancel a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CancelReport {
    /// It waited, and is cancelled.
    Cancelled,
    /// It runs; its engine has been asked.
    Requested,
    /// It had ended before, in this status.
    Ended(TaskStatus),
    /// There is no such task.
    NotFound,
}

/// What became of a wish to retry a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryReport {
    /// It had ended, and waits again, due at once.
    Waiting,
    /// It waited for a later time, and is due at once.
    Advanced,
    /// It was due already.
    AlreadyDue,
    /// It runs.
    Running,
    /// It did its work; there is nothing to retry.
    Stopped,
    /// There is no such task.
    NotFound,
}

/// A hint that something has changed; never the work itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeUp {
    /// There may be work.
    Work,
    /// There may be a wish to cancel something.
    Cancel,
    /// A schedule may have changed.
    Schedule,
}
