//! Current activity, for readers.

use std::time::Duration;

use task_engine_core::instance::InstanceId;
use task_engine_core::progress::ProgressRow;
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts, HeldAttempt, NextTask,
};
use task_engine_store::error::StoreError;
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::{Executor as _, PgTransaction};
use crate::locks::blocking_session;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/readers/activity.sql");
pub(crate) const HELD: &str = statement(SQL, "activity_held");
const NEWEST: &str = statement(SQL, "activity_newest");
const NEXT: &str = statement(SQL, "activity_next");
const ENDINGS: &str = statement(SQL, "endings");
const FAILURE_COUNTS: &str = statement(SQL, "failure_counts");
const QUEUE_POSITION: &str = statement(SQL, "queue_position");
const LOCKED_BY: &str = statement(SQL, "locked_by");

impl StoreInner {
    pub(crate) async fn activity(&self, look: ActivityQuery) -> Result<Activity, StoreError> {
        let mut client = self.connections.work().await?;
        // One snapshot for all of it: in each, a task is in one place.
        let transaction = client.snapshot().await?;
        let newest = transaction.query_one(&self.schema.sql(NEWEST), &[]).await?;
        let held = transaction.query(&self.schema.sql(HELD), &[]).await?;
        let next = self.next(&transaction, look).await?;
        Ok(Activity {
            now: newest.get("now"),
            newest: newest.get::<_, Option<i64>>("newest").map(TaskId),
            held: held.iter().map(held_attempt).collect(),
            next,
        })
    }

    async fn next(
        &self,
        transaction: &PgTransaction<'_>,
        look: ActivityQuery,
    ) -> Result<Vec<NextTask>, StoreError> {
        let soon = soonest(look.soon);
        let rows = transaction
            .query(
                &self.schema.sql(NEXT),
                &[&look.per_lane, &ActivityQuery::LANES_MAX, &soon, &ActivityQuery::TASKS_MAX],
            )
            .await?;
        let next = |row: &Row| NextTask {
            task_id: TaskId(read(row, "task_id")),
            queue: read(row, "queue"),
            class: read(row, "task_class"),
            priority: read(row, "priority"),
            due_at: read(row, "due_at"),
        };
        Ok(rows.iter().map(next).collect())
    }

    pub(crate) async fn endings(&self, look: &EndingsQuery) -> Result<Vec<EndingRow>, StoreError> {
        let (low, high): (Vec<i64>, Vec<i64>) =
            look.ids.iter().map(|(low, high)| (low.0, high.0)).unzip();
        let client = self.connections.work().await?;
        let rows = client
            .query(&self.schema.sql(ENDINGS), &[&low, &high, &look.limit, &soonest(look.age_max)])
            .await?;
        Ok(rows.iter().map(ending_row).collect())
    }

    pub(crate) async fn failure_counts(&self) -> Result<FailureCounts, StoreError> {
        let client = self.connections.work().await?;
        let rows = client
            .query(&self.schema.sql(FAILURE_COUNTS), &[&(FailureCounts::COUNTED_MAX + 1)])
            .await?;
        let seen = |at: usize| rows.get(at).map_or(0, |row| read(row, "seen"));
        Ok(FailureCounts::of(seen(0), seen(1)))
    }

    pub(crate) async fn queue_position(
        &self,
        look: &QueuePositionQuery,
    ) -> Result<Option<QueuePosition>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client
            .query(
                &self.schema.sql(QUEUE_POSITION),
                &[&look.id.0, &look.queues, &look.classes, &(BoundedCount::PER_LANE_MAX + 1)],
            )
            .await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut tasks = BoundedCount::default();
        for seen in rows.iter().filter_map(|row| row.get::<_, Option<i64>>("seen")) {
            tasks.add(seen);
        }
        let locked_by = client
            .query_opt(&self.schema.sql(LOCKED_BY), &[&look.id.0])
            .await?
            .map(|row| blocking_session(&row));
        Ok(Some(QueuePosition { tasks, locked_by }))
    }
}

/// Microseconds, at most the maximum of the calendar.
fn soonest(time: Duration) -> i64 {
    const MAX: Duration = Duration::from_secs(100 * 366 * 86_400);
    micros(time.min(MAX))
}

pub(crate) fn held_attempt(row: &Row) -> HeldAttempt {
    let progress = || {
        Some(ProgressRow {
            percent: row.get::<_, Option<f64>>("percent")?,
            message: read::<Option<String>>(row, "message")?,
            reported_at: read::<Option<jiff::Timestamp>>(row, "reported_at")?,
        })
    };
    HeldAttempt {
        task_id: TaskId(read(row, "task_id")),
        attempt: read(row, "attempt"),
        class: read(row, "task_class"),
        queue: read(row, "queue"),
        priority: read(row, "priority"),
        instance_id: InstanceId(read(row, "instance_id")),
        claimed_at: read(row, "claimed_at"),
        progress: progress(),
    }
}

fn ending_row(row: &Row) -> EndingRow {
    EndingRow {
        task_id: TaskId(read(row, "task_id")),
        attempt: read(row, "attempt"),
        class: read(row, "task_class"),
        queue: read(row, "queue"),
        instance_id: row.get::<_, Option<i64>>("instance_id").map(InstanceId),
        instance: read(row, "instance"),
        started_at: read(row, "started_at"),
        stopped_at: read(row, "stopped_at"),
        ends_task: row.get::<_, Option<&str>>("ends_task").and_then(|word| word.parse().ok()),
        retry_at: read(row, "retry_at"),
        error: read(row, "error"),
    }
}
