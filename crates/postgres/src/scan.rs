//! One step of a search: how far it goes, and its tasks.

use task_engine_core::filter::FoundTask;
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage, ScanSource};
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::executor::Executor as _;
use crate::read::{json, task_row};
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/readers/scan.sql");
const CREATION_TIMES: &str = statement(SQL, "creation_times");

impl StoreInner {
    pub(crate) async fn scan(&self, scan: &Scan) -> Result<ScanPage, StoreError> {
        let client = self.connections.work().await?;
        let (from, before) = (scan.from.0, scan.before.0);
        let source = SourceColumns::of(scan);
        let rows = i64::from(scan.rows);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&from, &before, &rows];
        parameters.extend(source.parameters());
        let bound = self.schema.sql(source.bound());
        let bound = client.query_one(&bound, &parameters).await?;
        let now = bound.get("now");
        let lowest: Option<i64> = bound.get("lowest");
        let more = bound.get::<_, i64>("rows") >= rows;
        let Some(lowest) = lowest else {
            return Ok(ScanPage { tasks: Vec::new(), down_to: None, now });
        };

        let limit = i64::from(scan.tasks);
        let (created_from, created_until) = scan.created_between(now);
        let (ended_from, ended_until) = scan.ended_between(now);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
            &lowest,
            &before,
            &limit,
            &scan.classes,
            &scan.queues,
            &created_from,
            &created_until,
            &ended_from,
            &ended_until,
            &scan.with_error,
            &scan.with_json,
        ];
        parameters.extend(source.parameters());
        let step = self.schema.sql(source.step());
        let step = client.query(&step, &parameters).await?;
        let tasks: Vec<_> = step.iter().map(found_task).collect();
        let down_to = match tasks.last() {
            Some(last) if tasks.len() >= scan.tasks as usize => Some(last.row.id),
            _ => more.then_some(TaskId(lowest)),
        };
        Ok(ScanPage { tasks, down_to, now })
    }

    pub(crate) async fn creation_times(&self, ids: &[TaskId]) -> Result<CreationTimes, StoreError> {
        let client = self.connections.work().await?;
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let rows = client.query(&self.schema.sql(CREATION_TIMES), &[&ids]).await?;
        let task = |row: &Row| {
            let id = TaskId(row.get::<_, Option<i64>>("id")?);
            Some((id, row.get::<_, Option<jiff::Timestamp>>("created_at")?))
        };
        let now = rows.first().map_or(jiff::Timestamp::UNIX_EPOCH, |row| read(row, "now"));
        Ok(CreationTimes { tasks: rows.iter().map(task).collect(), now })
    }
}

/// Where a search reads ids, with the parameters of its statements.
enum SourceColumns<'a> {
    All,
    Flow { name: &'a str, own_task: Option<i64> },
    Ids(Vec<i64>),
    Status { waiting: bool, running: bool, ended: Vec<&'static str> },
}

impl<'a> SourceColumns<'a> {
    fn of(scan: &'a Scan) -> Self {
        match &scan.source {
            ScanSource::All => Self::All,
            ScanSource::Flow(name) => {
                Self::Flow { name, own_task: scan.own_task_of_flow().map(|id| id.0) }
            }
            ScanSource::Ids(ids) => Self::Ids(ids.iter().map(|id| id.0).collect()),
            ScanSource::WithStatus(statuses) => {
                let ended = |status: &&TaskStatus| {
                    !matches!(status, TaskStatus::Waiting | TaskStatus::Running)
                };
                Self::Status {
                    waiting: statuses.contains(&TaskStatus::Waiting),
                    running: statuses.contains(&TaskStatus::Running),
                    ended: statuses.iter().filter(ended).map(|status| status.as_str()).collect(),
                }
            }
        }
    }

    fn bound(&self) -> &'static str {
        match self {
            Self::All => const { statement(SQL, "scan_bound_all") },
            Self::Flow { .. } => const { statement(SQL, "scan_bound_flow") },
            Self::Ids(_) => const { statement(SQL, "scan_bound_ids") },
            Self::Status { .. } => const { statement(SQL, "scan_bound_status") },
        }
    }

    fn step(&self) -> &'static str {
        match self {
            Self::All => const { statement(SQL, "scan_all") },
            Self::Flow { .. } => const { statement(SQL, "scan_flow") },
            Self::Ids(_) => const { statement(SQL, "scan_ids") },
            Self::Status { .. } => const { statement(SQL, "scan_status") },
        }
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        match self {
            Self::All => Vec::new(),
            Self::Flow { name, own_task } => vec![name, own_task],
            Self::Ids(ids) => vec![ids],
            Self::Status { waiting, running, ended } => vec![waiting, running, ended],
        }
    }
}

fn found_task(row: &Row) -> FoundTask {
    let object = |column| json(row, column).unwrap_or_else(Json::empty_object);
    let row_now = task_row(row);
    let runs = row_now.status == TaskStatus::Running;
    FoundTask {
        started_at: if runs { Some(row_now.updated_at) } else { read(row, "last_started_at") },
        ended_at: if runs { None } else { read(row, "last_stopped_at") },
        row: row_now,
        correlation_id: read(row, "correlation_id"),
        parent_id: read::<Option<i64>>(row, "parent_id").map(TaskId),
        parameters: object("task_parameters"),
        context: object("context"),
    }
}
