//! The contract of readers.

use jiff::Timestamp;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::InstanceRow;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::queue::{PausedQueue, QueueRow};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{FiredSlot, ScheduleRow};
use task_engine_core::task::{TaskDetails, TaskId, TaskListQuery, TaskRow};
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::audit::{AuditEntry, AuditFilter};
use task_engine_store::contract::{ReadStore, StoreFuture};
use task_engine_store::lock::BlockingSession;
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{RollupQuery, RollupRow};
use task_engine_store::scan::{CreationTimes, Scan, ScanPage};

use crate::store::{PgStore, STATEMENT, calls};

impl ReadStore for PgStore {
    calls! {
        STATEMENT => fn tasks<'a>(filter: &'a TaskListQuery) -> Vec<TaskRow>;
        STATEMENT => fn task<'a>(id: TaskId) -> Option<TaskDetails>;
        STATEMENT => fn scan<'a>(scan: &'a Scan) -> ScanPage;
        STATEMENT => fn creation_times<'a>(ids: &'a [TaskId]) -> CreationTimes;
        STATEMENT => fn logs<'a>(id: TaskId, filter: &'a LogFilter) -> Vec<LogRow>;
        STATEMENT => fn flow<'a>(page: &'a FlowPage) -> Vec<FlowTask>;
        STATEMENT => fn instances<'a>(name: Option<&'a str>) -> Vec<InstanceRow>;
        STATEMENT => fn blocking_sessions<'a>() -> Vec<BlockingSession>;
        STATEMENT => fn queues<'a>() -> Vec<QueueRow>;
        STATEMENT => fn paused_queues<'a>() -> Vec<PausedQueue>;
        STATEMENT => fn queue_position<'a>(query: &'a QueuePositionQuery) -> Option<QueuePosition>;
        STATEMENT => fn schedule<'a>(name: &'a str) -> (Option<ScheduleRow>, Timestamp);
        STATEMENT => fn schedules<'a>(after: Option<&'a str>, limit: u32) -> Vec<ScheduleRow>;
        STATEMENT => fn fired_slots<'a>(schedule_id: i64, limit: u32) -> Vec<FiredSlot>;
        STATEMENT => fn schedule_events<'a>(schedule_id: i64, limit: u32) -> Vec<ScheduleEvent>;
        STATEMENT => fn activity<'a>(query: ActivityQuery) -> Activity;
        STATEMENT => fn endings<'a>(query: &'a EndingsQuery) -> Vec<EndingRow>;
        STATEMENT => fn failure_counts<'a>() -> FailureCounts;
        STATEMENT => fn rollups<'a>(query: RollupQuery) -> Vec<RollupRow>;
        STATEMENT => fn audit_page<'a>(filter: &'a AuditFilter) -> Vec<AuditEntry>;
    }
}
