//! One step of a search: how far it goes, and what is there.

use task_engine_core::filter::FoundTask;
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage, ScanSource};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::store_error;
use crate::read::{json, task_row};
use crate::session::Ask as _;
use crate::store::Inner;
use crate::value::read;

const SCAN: &str = include_str!("../sql/scan.sql");
const SCAN_BOUND: &str = include_str!("../sql/scan_bound.sql");
const ALL: &str = include_str!("../sql/scan_all.sql");
const WAITING: &str = include_str!("../sql/scan_waiting.sql");
const RUNNING: &str = include_str!("../sql/scan_running.sql");
const UNHAPPY: &str = include_str!("../sql/scan_unhappy.sql");
const FLOW: &str = include_str!("../sql/scan_flow.sql");
const OWN: &str = include_str!("../sql/scan_own.sql");
const IDS: &str = include_str!("../sql/scan_ids.sql");
const CREATION_TIMES: &str = include_str!("../sql/creation_times.sql");

/// The markers in the two statements.
const BASE: &str = "/* base */";
const WITHIN: &str = "/* within */";
const UNION: &str = "\nUNION ALL\n";
const NEWEST: &str = "ORDER BY id DESC LIMIT $3";

impl Inner {
    pub(crate) async fn scan(&self, scan: &Scan) -> Result<ScanPage, StoreError> {
        let client = self.connections.work().await?;
        let (from, before) = (scan.from.0, scan.before.0);
        let own = scan.own_task_of_flow().map(|id| id.0);
        let flow: Vec<&(dyn ToSql + Sync)> = match &scan.base {
            ScanSource::Flow(name) => vec![name, &own],
            _ => Vec::new(),
        };
        let rows = i64::from(scan.rows);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&from, &before, &rows];
        parameters.extend(&flow);
        let base = places(&scan.base, 4).into_iter().map(|place| format!("({place}{NEWEST})"));
        let base = base.collect::<Vec<_>>().join(UNION);
        let bound = self.schema.moved(&SCAN_BOUND.replace(BASE, &base));
        let bound = client.query_one(&bound, &parameters).await.map_err(|e| store_error(&e))?;
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
        parameters.extend(&flow);
        let step = self.schema.moved(&SCAN.replace(WITHIN, &within(&scan.base, 12)));
        let step = client.query(&step, &parameters).await.map_err(|e| store_error(&e))?;
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
        let rows = client
            .query(&self.schema.sql(CREATION_TIMES), &[&ids])
            .await
            .map_err(|e| store_error(&e))?;
        let task = |row: &Row| {
            let id = TaskId(row.get::<_, Option<i64>>("id")?);
            Some((id, row.get::<_, Option<jiff::Timestamp>>("created_at")?))
        };
        let now = rows.first().map_or(jiff::Timestamp::UNIX_EPOCH, |row| read(row, "now"));
        Ok(CreationTimes { tasks: rows.iter().map(task).collect(), now })
    }
}

/// Which tasks a step looks at. All of them are a range of the key, which is read
/// many times faster than by one probe a task.
fn within(base: &ScanSource, free: usize) -> String {
    match base {
        ScanSource::All => "c.id >= $1 AND c.id < $2".to_owned(),
        base => {
            let places = places(base, free).join(UNION);
            format!("c.id = ANY (ARRAY(SELECT b.id FROM ({places}) AS b))")
        }
    }
}

/// Where to look: one statement a place, whose first free parameter is this.
fn places(base: &ScanSource, free: usize) -> Vec<String> {
    match base {
        ScanSource::All => vec![ALL.to_owned()],
        ScanSource::Flow(_) => {
            let named = FLOW.replace("/* flow */", &format!("${free}"));
            vec![named, OWN.replace("/* own */", &format!("${}", free + 1))]
        }
        ScanSource::Ids(ids) => {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            vec![IDS.replace("/* ids */", &ids.join(","))]
        }
        ScanSource::WithStatus(statuses) => {
            let mut places = Vec::new();
            let mut failure_counts = Vec::new();
            for status in statuses {
                match status {
                    TaskStatus::Waiting => places.push(WAITING.to_owned()),
                    TaskStatus::Running => places.push(RUNNING.to_owned()),
                    ended => failure_counts.push(format!("'{ended}'")),
                }
            }
            if !failure_counts.is_empty() {
                places.push(UNHAPPY.replace("/* statuses */", &failure_counts.join(", ")));
            }
            if places.is_empty() {
                // Nothing can be meant.
                places.push(format!("{ALL} AND false\n"));
            }
            places
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
        parameters: object("task_parameters"),
        context: object("context"),
    }
}
