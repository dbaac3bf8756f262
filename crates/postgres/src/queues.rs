//! Queues: pause, resume, list.

use task_engine_core::queue::{BoundedCount, PausedQueue, QueueListBuilder, QueuePause, QueueRow};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::store::StoreInner;
use crate::value::read;

const PAUSE_QUEUE: &str = statement(include_str!("../sql/operators/queues.sql"), "pause_queue");
const RESUME_QUEUE: &str = statement(include_str!("../sql/operators/queues.sql"), "resume_queue");
const SQL: &str = include_str!("../sql/readers/queues.sql");
const PAUSED_QUEUES: &str = statement(SQL, "paused_queues");
const QUEUES_WAITING: &str = statement(SQL, "queues_waiting");
const QUEUES_RUNNING: &str = statement(SQL, "queues_running");
const QUEUES_SERVED: &str = statement(SQL, "queues_served");

impl StoreInner {
    pub(crate) async fn pause_queue(&self, pause: &QueuePause) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let row = client
            .query_one(&self.schema.sql(PAUSE_QUEUE), &[&pause.queue(), &pause.reason()])
            .await?;
        Ok(read(&row, "is_new"))
    }

    pub(crate) async fn resume_queue(&self, queue: &str) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let resumed = client.query(&self.schema.sql(RESUME_QUEUE), &[&queue]).await?;
        Ok(!resumed.is_empty())
    }

    pub(crate) async fn paused_queues(&self) -> Result<Vec<PausedQueue>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client.query(&self.schema.sql(PAUSED_QUEUES), &[]).await?;
        Ok(rows.iter().map(paused_queue).collect())
    }

    pub(crate) async fn queues(&self) -> Result<Vec<QueueRow>, StoreError> {
        let mut client = self.connections.work().await?;
        // One snapshot for all of it.
        let transaction = client.snapshot().await?;
        let ask = async |sql| transaction.query(&self.schema.sql(sql), &[]).await;
        let waiting = transaction
            .query(
                &self.schema.sql(QUEUES_WAITING),
                &[&(BoundedCount::PER_LANE_MAX + 1), &QueueListBuilder::LANES_MAX],
            )
            .await?;
        let mut list = QueueListBuilder::default();
        for row in &waiting {
            list.waiting(&read::<String>(row, "queue"), read(row, "due"), read(row, "later"));
        }
        for row in &ask(QUEUES_RUNNING).await? {
            list.running(&read::<String>(row, "queue"), read(row, "running"));
        }
        for row in &ask(QUEUES_SERVED).await? {
            list.served(&read::<String>(row, "queue"));
        }
        for row in &ask(PAUSED_QUEUES).await? {
            list.paused(paused_queue(row));
        }
        Ok(list.into_rows())
    }
}

fn paused_queue(row: &Row) -> PausedQueue {
    PausedQueue {
        queue: read(row, "queue"),
        reason: read(row, "reason"),
        paused_at: read(row, "paused_at"),
    }
}
