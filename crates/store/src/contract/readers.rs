//! What dashboards, the command line and applications read. Nothing here changes anything.

use jiff::Timestamp;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::InstanceRow;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::queue::{PausedQueue, QueueRow};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{FiredSlot, ScheduleRow};
use task_engine_core::task::{TaskDetails, TaskId, TaskListQuery, TaskRow};

use super::{StoreBase, StoreFuture};
use crate::activity::{Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts};
use crate::audit::{AuditEntry, AuditFilter};
use crate::lock::BlockingSession;
use crate::queue_position::{QueuePosition, QueuePositionQuery};
use crate::rollup::{RollupQuery, RollupRow};
use crate::scan::{CreationTimes, Scan, ScanPage};

/// The methods of a store for readers.
pub trait ReadStore: StoreBase {
    /// Returns a page of tasks, newest first.
    fn tasks<'a>(&'a self, filter: &'a TaskListQuery) -> StoreFuture<'a, Vec<TaskRow>>;

    /// Returns everything about one task.
    fn task(&self, id: TaskId) -> StoreFuture<'_, Option<TaskDetails>>;

    /// Returns one bounded step of a search, newest first.
    fn scan<'a>(&'a self, scan: &'a Scan) -> StoreFuture<'a, ScanPage>;

    /// Returns for each id the nearest task at or below it, and its creation time.
    ///
    /// The results are in this order, and each takes one probe of the key.
    fn creation_times<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, CreationTimes>;

    /// Lines of a task's log, in the order of attempts and lines.
    fn logs<'a>(&'a self, id: TaskId, filter: &'a LogFilter) -> StoreFuture<'a, Vec<LogRow>>;

    /// Returns a page of the tasks of a flow, oldest first.
    ///
    /// An unknown flow is empty.
    fn flow<'a>(&'a self, page: &'a FlowPage) -> StoreFuture<'a, Vec<FlowTask>>;

    /// Returns the engine sessions of this name, or all; the newest first.
    ///
    /// Ended sessions that hold no attempt are left out, except the last of a name. Of all names,
    /// those that ended longer ago than [`ENDED_KEPT`](task_engine_core::instance::ENDED_KEPT) are
    /// left out as well, except the last that declared the same secrets.
    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>>;

    /// Sessions of the database server that block others or may do so: they have locked a table of
    /// this store, or have a transaction open.
    ///
    /// Empty if a store cannot tell.
    fn blocking_sessions(&self) -> StoreFuture<'_, Vec<BlockingSession>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the known queues, by name: at most some thousands, their tasks counted up to a
    /// limit.
    fn queues(&self) -> StoreFuture<'_, Vec<QueueRow>>;

    /// Returns the paused queues, by name.
    fn paused_queues(&self) -> StoreFuture<'_, Vec<PausedQueue>>;

    /// Returns what is ahead of a waiting task.
    ///
    /// `None` if it does not wait.
    fn queue_position<'a>(
        &'a self,
        query: &'a QueuePositionQuery,
    ) -> StoreFuture<'a, Option<QueuePosition>>;

    /// Returns a schedule by its name, and the database's time.
    fn schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (Option<ScheduleRow>, Timestamp)>;

    /// Returns a page of schedules, by name, from after this one on.
    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>>;

    /// Returns the newest fired slots of a schedule, newest first.
    fn fired_slots(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<FiredSlot>>;

    /// Returns the newest events of a schedule other than its firing, newest first.
    fn schedule_events(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<ScheduleEvent>>;

    /// Returns the attempts that engines hold, and the first tasks of each lane.
    fn activity(&self, query: ActivityQuery) -> StoreFuture<'_, Activity>;

    /// Attempts that have ended lately; the oldest first, each once.
    fn endings<'a>(&'a self, query: &'a EndingsQuery) -> StoreFuture<'a, Vec<EndingRow>>;

    /// Returns how many tasks have failed or were cancelled, counted up to a limit.
    fn failure_counts(&self) -> StoreFuture<'_, FailureCounts>;

    /// Returns the recent counters of all engines, by step and class, in this order.
    ///
    /// The first minute is whole; steps and classes without an attempt are left out.
    fn rollups(&self, query: RollupQuery) -> StoreFuture<'_, Vec<RollupRow>>;

    /// Returns a page of the audit log, newest first.
    fn audit_page<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<AuditEntry>>;
}
