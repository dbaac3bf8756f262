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
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{RollupQuery, RollupRow};
use task_engine_store::scan::{CreationTimes, Scan, ScanPage};

use crate::store::{SqliteStore, jobs};
use crate::{activity, audit, flow, instances, progress, queues, read, rollups, scan, schedules};

impl ReadStore for SqliteStore {
    jobs! {
        reader fn tasks<'a>(filter: &'a TaskListQuery) -> Vec<TaskRow> =>
            move |tx| read::tasks(tx, &filter);
        reader fn task<'a>(id: TaskId) -> Option<TaskDetails> => move |tx| read::task(tx, id);
        reader fn scan<'a>(scan: &'a Scan) -> ScanPage => move |tx| scan::scan(tx, &scan);
        reader fn creation_times<'a>(ids: &'a [TaskId]) -> CreationTimes =>
            move |tx| scan::creation_times(tx, &ids);
        reader fn logs<'a>(id: TaskId, filter: &'a LogFilter) -> Vec<LogRow> =>
            move |tx| progress::logs(tx, id, &filter);
        reader fn flow<'a>(page: &'a FlowPage) -> Vec<FlowTask> => move |tx| flow::flow(tx, &page);
        reader fn queues<'a>() -> Vec<QueueRow> => queues::queues;
        reader fn paused_queues<'a>() -> Vec<PausedQueue> => queues::paused;
        reader fn queue_position<'a>(query: &'a QueuePositionQuery) -> Option<QueuePosition> =>
            move |tx| activity::queue_position(tx, &query);
        reader fn schedule<'a>(name: &'a str) -> (Option<ScheduleRow>, Timestamp) =>
            move |tx| schedules::schedule(tx, &name);
        reader fn fired_slots<'a>(schedule_id: i64, limit: u32) -> Vec<FiredSlot> =>
            move |tx| schedules::fired_slots(tx, schedule_id, limit);
        reader fn schedule_events<'a>(schedule_id: i64, limit: u32) -> Vec<ScheduleEvent> =>
            move |tx| schedules::events(tx, schedule_id, limit);
        reader fn activity<'a>(query: ActivityQuery) -> Activity =>
            move |tx| activity::activity(tx, query);
        reader fn endings<'a>(query: &'a EndingsQuery) -> Vec<EndingRow> =>
            move |tx| activity::endings(tx, &query);
        reader fn failure_counts<'a>() -> FailureCounts => activity::failure_counts;
        reader fn rollups<'a>(query: RollupQuery) -> Vec<RollupRow> =>
            move |tx| rollups::rollups(tx, query);
        reader fn audit_page<'a>(filter: &'a AuditFilter) -> Vec<AuditEntry> =>
            move |tx| audit::page(tx, &filter);
    }

    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>> {
        let name = name.map(str::to_owned);
        Box::pin(self.reader().run(move |tx| instances::instances(tx, name.as_deref())))
    }

    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>> {
        let after = after.map(str::to_owned);
        Box::pin(self.reader().run(move |tx| schedules::schedules(tx, after.as_deref(), limit)))
    }
}
