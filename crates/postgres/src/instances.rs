//! Engine sessions.

use jiff::Timestamp;
use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::{ENDED_KEPT, InstanceId, InstanceRow, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::process;
use task_engine_core::recovery::UnendedAttempt;
use task_engine_core::task::TaskId;
use task_engine_store::contract::HeartbeatReply;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::error::store_error;
use crate::executor::Executor as _;
use crate::failover::WalPosition;
use crate::json::JsonIn;
use crate::store::{StoreInner, from_micros, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/instances.sql");
const REGISTER: &str = statement(SQL, "register");
const HEARTBEAT: &str = statement(SQL, "heartbeat");
const UNREGISTER: &str = statement(SQL, "unregister");
const DECLARE_LOST: &str = statement(SQL, "declare_lost");
const INSTANCES: &str = statement(SQL, "instances");
const INSTANCES_PRUNE: &str = statement(SQL, "prune_instances");
const HELD: &str = statement(SQL, "held_attempts");

impl StoreInner {
    pub(crate) async fn register(&self, new: &NewInstance) -> Result<InstanceId, StoreError> {
        let client = self.connections.lifeline().await?;
        self.check_rights(&client).await?;
        let classes = serde_json::to_string(&new.classes)
            .map_err(|e| StoreError::Refused(format!("the options of the classes: {e}")))?;
        let pools = serde_json::to_string(&new.pools)
            .map_err(|e| StoreError::Refused(format!("the pools of workers: {e}")))?;
        let row = client
            .query_one(
                &self.schema.sql(REGISTER),
                &[
                    &new.name,
                    &new.host,
                    &new.pid,
                    &new.process,
                    &new.version,
                    &new.workers,
                    &new.queues,
                    &JsonIn(&classes),
                    &micros(new.lease),
                    &JsonIn(&pools),
                ],
            )
            .await
            .map_err(|e| match e.code() {
                Some(code) if *code == SqlState::UNIQUE_VIOLATION => {
                    StoreError::NameTaken(new.name.clone())
                }
                _ => store_error(&e),
            })?;
        Ok(InstanceId(row.get(0)))
    }

    pub(crate) async fn heartbeat(
        &self,
        instance: InstanceId,
    ) -> Result<HeartbeatReply, StoreError> {
        let client = self.connections.lifeline().await?;
        let rows = client.query_cached(&self.schema.sql(HEARTBEAT), &[&instance.0]).await?;
        let row = rows.first().ok_or(StoreError::InstanceOver)?;
        self.log_watch.check(WalPosition::of(row.get("log_file"), read(row, "log_bytes")));
        let cancel_tasks: Vec<i64> = read(row, "cancel_tasks");
        let cancel_attempts: Vec<i32> = read(row, "cancel_attempts");
        let instances =
            |column| row.get::<_, Vec<i64>>(column).into_iter().map(InstanceId).collect();
        Ok(HeartbeatReply {
            alive: read(row, "alive"),
            now: read(row, "now"),
            claims: row.get::<_, Vec<i64>>("claims").into_iter().map(ClaimId).collect(),
            cancel: cancel_tasks
                .into_iter()
                .zip(cancel_attempts)
                .map(|(id, attempt)| AttemptId { task_id: TaskId(id), attempt })
                .collect(),
            lingering: row.get::<_, Vec<i64>>("lingering").into_iter().map(TaskId).collect(),
            expired: instances("expired"),
            orphaned: instances("orphaned"),
            waiting_classes: read(row, "waiting_classes"),
            next_schedule_in: row.get::<_, Option<i64>>("next_schedule_us").map(from_micros),
            tasks_suspended: read(row, "tasks_suspended"),
        })
    }

    pub(crate) async fn unregister(&self, instance: InstanceId) -> Result<(), StoreError> {
        let client = self.connections.lifeline().await?;
        client
            .execute(&self.schema.sql(UNREGISTER), &[&instance.0])
            .await
            .map(|_| ())
            .map_err(|e| store_error(&e))
    }

    pub(crate) async fn declare_lost(
        &self,
        instance: InstanceId,
        process_gone: bool,
    ) -> Result<bool, StoreError> {
        let client = self.connections.lifeline().await?;
        client
            .query(&self.schema.sql(DECLARE_LOST), &[&instance.0, &process_gone])
            .await
            .map(|lost| !lost.is_empty())
            .map_err(|e| store_error(&e))
    }

    pub(crate) async fn instances(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<InstanceRow>, StoreError> {
        let client = self.connections.lifeline().await?;
        let rows = client.query(&self.schema.sql(INSTANCES), &[&name, &micros(ENDED_KEPT)]).await?;
        Ok(rows.iter().map(instance_row).collect())
    }

    pub(crate) async fn prune_instances(&self, limit: u32) -> Result<u64, StoreError> {
        let client = self.connections.work().await?;
        Ok(client
            .execute(&self.schema.sql(INSTANCES_PRUNE), &[&micros(ENDED_KEPT), &i64::from(limit)])
            .await?)
    }

    pub(crate) async fn held_attempts(
        &self,
        instance: InstanceId,
    ) -> Result<Vec<UnendedAttempt>, StoreError> {
        let client = self.connections.lifeline().await?;
        let rows = client.query(&self.schema.sql(HELD), &[&instance.0]).await?;
        let held = rows.iter().map(|row| UnendedAttempt {
            id: AttemptId { task_id: TaskId(read(row, "task_id")), attempt: read(row, "attempt") },
            class: read(row, "task_class"),
            claimed_at: read(row, "claimed_at"),
        });
        Ok(held.collect())
    }
}

fn instance_row(row: &Row) -> InstanceRow {
    let (stopped_at, lost_at): (Option<Timestamp>, Option<Timestamp>) =
        (read(row, "stopped_at"), read(row, "lost_at"));
    let process: Option<String> = read(row, "process");
    let ended = stopped_at.is_some() || lost_at.is_some();
    InstanceRow {
        process_gone: !ended && process.as_deref().is_some_and(process::is_gone),
        id: InstanceId(read(row, "id")),
        name: read(row, "name"),
        host: read(row, "host"),
        pid: read(row, "pid"),
        process,
        version: read(row, "version"),
        workers: read(row, "workers"),
        queues: read(row, "queues"),
        pools: read::<Json>(row, "pools").decode().unwrap_or_default(),
        classes: read::<Json>(row, "classes").decode().unwrap_or_default(),
        started_at: read(row, "started_at"),
        heartbeat_at: read(row, "heartbeat_at"),
        heartbeat_age: from_micros(read(row, "heartbeat_age_us")),
        lease: from_micros(read(row, "lease_us")),
        stopped_at,
        lost_at,
        held: read(row, "held"),
    }
}
