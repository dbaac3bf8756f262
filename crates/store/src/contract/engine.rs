//! What engines and clients call: creation, claims, records, recovery, schedules that are
//! due, and retention.

use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::SettleOutcome;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::progress::Report;
use task_engine_core::queue::Lanes;
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt, UnendedAttempt};
use task_engine_core::schedule::row::{DueSchedules, Firing};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::Creation;

use super::{StoreBase, StoreFuture};
use crate::claim::Claimer;
use crate::rollup::ClassMinute;

/// The methods of a store for engines and for creators of tasks.
pub trait EngineStore: StoreBase {
    /// Creates tasks, all or none, and wakes engines.
    ///
    /// Returns the outcome of each, in order: a unique task may exist already.
    fn create_each<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<Creation>>;

    /// Creates tasks like [`create_each`](Self::create_each), and returns only the ids.
    fn create<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let creations = self.create_each(tasks).await?;
            Ok(creations.into_iter().map(Creation::id).collect())
        })
    }

    /// Returns a claimer for this engine.
    ///
    /// It keeps state between claims. An engine may have several, each with lanes of its own.
    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer>;

    /// Ends attempts, each at most once, and requeues the tasks that continue.
    ///
    /// Removes `finished` claims, whose attempts have all ended before.
    ///
    /// A task with a cancel request does not wait again: its attempt ends it. If the request
    /// comes at the same moment, the next heartbeat reports it
    /// ([`HeartbeatReply::lingering`]).
    ///
    /// Returns the attempts that had already ended otherwise. Their results are kept as
    /// evidence and change nothing.
    fn record<'a>(
        &'a self,
        endings: &'a [AttemptRecord],
        finished: &'a [ClaimId],
    ) -> StoreFuture<'a, Vec<AttemptId>>;

    /// Ends attempts that may have completed their tasks in transactions of the application.
    ///
    /// A completed one stays as it is; the others end as `endings` says. The answers are in order.
    ///
    /// It waits only briefly for an open transaction; the answer is then [`SettleOutcome::Open`],
    /// and the caller asks again.
    fn settle<'a>(&'a self, endings: &'a [AttemptRecord]) -> StoreFuture<'a, Vec<SettleOutcome>>;

    /// Reclaims tasks from engines that no longer work on them.
    ///
    /// An attempt whose completion is in an open transaction stays in its claim; the caller asks
    /// again.
    fn reclaim(&self, what: Reclaim) -> StoreFuture<'_, Vec<ReclaimedAttempt>>;

    /// Starts an engine session.
    ///
    /// [`StoreError::NameTaken`](crate::StoreError::NameTaken) if another session of this name has
    /// not ended in the database, even if its process has.
    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId>;

    /// Renews a lease.
    fn heartbeat(&self, instance: InstanceId) -> StoreFuture<'_, HeartbeatReply>;

    /// Ends a session in good order.
    fn unregister(&self, instance: InstanceId) -> StoreFuture<'_, ()>;

    /// Ends the session of an engine whose lease has expired, or whose process is known to have
    /// ended.
    ///
    /// False if it is alive, or has ended already.
    fn declare_lost(&self, instance: InstanceId, process_gone: bool) -> StoreFuture<'_, bool>;

    /// Returns the attempts that a session holds.
    fn held_attempts(&self, instance: InstanceId) -> StoreFuture<'_, Vec<UnendedAttempt>>;

    /// Calls `hear` for each wake-up until the connection breaks, and returns that error.
    ///
    /// The first call means that listening has begun.
    ///
    /// A store may send no [`WakeUp::Work`] while every engine is busy. After
    /// [`ClaimRest::Nothing`](crate::claim::ClaimRest::Nothing) a claimer is woken by later tasks.
    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()>;

    /// Writes progress and log lines of attempts.
    ///
    /// Known lines and older progress change nothing. Nothing is written about a task that
    /// retention has removed.
    ///
    /// It never waits for a locked task: such attempts are skipped and returned, to be sent
    /// again.
    fn report<'a>(&'a self, reports: &'a [Report]) -> StoreFuture<'a, Vec<AttemptId>>;

    /// Writes the counters of an engine.
    ///
    /// Of several rows for one minute and class, the highest counts win, in whatever order they
    /// arrive.
    fn write_rollups<'a>(
        &'a self,
        instance: InstanceId,
        rows: &'a [ClassMinute],
    ) -> StoreFuture<'a, ()>;

    /// Returns up to `limit` schedules that are due by the database's clock, and the time until the
    /// next one is due.
    ///
    /// Reads no others.
    fn due_schedules(&self, limit: u32) -> StoreFuture<'_, DueSchedules>;

    /// Creates the tasks of slots and moves their schedules on, each schedule whole or not at all,
    /// and all in one transaction.
    ///
    /// A schedule that has changed since it was read, or that another transaction is writing, is
    /// skipped: its answer is false.
    ///
    /// The slot, its task and the move to the next slot are one commit. So exactly one engine
    /// fires a slot, even if engines are killed.
    fn fire_schedules<'a>(&'a self, firings: &'a [Firing]) -> StoreFuture<'a, Vec<bool>>;

    /// Removes up to `limit` tasks that ended in `status` at least `age` ago, with everything
    /// recorded about them.
    ///
    /// Returns how many. A task that another transaction holds may be left for the next time.
    fn prune(&self, status: TaskStatus, age: Duration, limit: u32) -> StoreFuture<'_, u64>;

    /// Removes up to `limit` of the oldest audit entries that are older than `age`; refused for
    /// less than [`KEPT_MIN`](crate::audit::KEPT_MIN).
    ///
    /// Returns how many.
    fn prune_audit(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64>;

    /// Removes up to `limit` rollup rows that are older than [`KEPT`](crate::rollup::KEPT).
    ///
    /// Returns how many.
    fn prune_rollups(&self, limit: u32) -> StoreFuture<'_, u64>;

    /// Removes up to `limit` sessions that ended longer ago than
    /// [`ENDED_KEPT`](task_engine_core::instance::ENDED_KEPT), hold no attempt and are in no task's
    /// history; never the last that declared the same secrets.
    ///
    /// Returns how many.
    fn prune_instances(&self, limit: u32) -> StoreFuture<'_, u64>;
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// False if this session has ended in the database.
    pub alive: bool,
    /// The time by the database's clock.
    pub now: Timestamp,
    /// The claims of this engine in the database.
    pub claims: Vec<ClaimId>,
    /// Its attempts with a cancel request.
    pub cancel: Vec<AttemptId>,
    /// Tasks whose cancel request came at the moment when their attempt ended, and which
    /// continue: cancel them once more.
    pub lingering: Vec<TaskId>,
    /// Sessions whose lease has expired.
    pub expired: Vec<InstanceId>,
    /// Sessions that have ended, with claims left.
    pub orphaned: Vec<InstanceId>,
    /// The classes of waiting tasks (some, if there are very many).
    pub waiting_classes: Vec<String>,
    /// The time until the next schedule is due; zero if one is.
    pub next_schedule_in: Option<Duration>,
    /// Whether a task is suspended until a signal arrives or its children have ended.
    pub tasks_suspended: bool,
}

/// A hint that something has changed; never the work itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeUp {
    /// There may be work.
    Work,
    /// There may be a cancel request.
    Cancel,
    /// A schedule may have changed.
    Schedule,
}
