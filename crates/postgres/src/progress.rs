//! Progress and logs of running attempts.

use task_engine_core::attempt::AttemptId;
use task_engine_core::progress::{LogFilter, LogLevel, LogLine, LogRow, ProgressReport, Report};
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::must_repeat;
use crate::executor::Executor as _;
use crate::record::attempt_id;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/progress.sql");
const REPORT: &str = statement(SQL, "report");
const LOGS: &str = statement(SQL, "logs");
const LOGS_NEWEST: &str = statement(SQL, "logs_newest");

impl StoreInner {
    pub(crate) async fn report(&self, reports: &[Report]) -> Result<Vec<AttemptId>, StoreError> {
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.connections.work().await?;
        let sql = self.schema.sql(REPORT);
        let of = reports.iter();
        let task_ids: Vec<i64> = of.clone().map(|r| r.id.task_id.0).collect();
        let attempts: Vec<i32> = of.clone().map(|r| r.id.attempt).collect();
        let versions: Vec<i64> = of.clone().map(|r| r.version).collect();
        let said: Vec<i32> = of.clone().map(|r| r.lines_total).collect();
        let progress: Vec<Option<&ProgressReport>> =
            of.clone().map(|r| r.progress.as_ref()).collect();
        let percents: Vec<_> = progress.iter().map(|p| p.map(|p| p.percent)).collect();
        let messages: Vec<_> = progress.iter().map(|p| p.map(|p| p.message.as_str())).collect();
        let lines: Vec<(AttemptId, &LogLine)> =
            of.flat_map(|r| r.lines.iter().map(|line| (r.id, line))).collect();
        let line_tasks: Vec<i64> = lines.iter().map(|(id, _)| id.task_id.0).collect();
        let line_attempts: Vec<i32> = lines.iter().map(|(id, _)| id.attempt).collect();
        let numbers: Vec<i32> = lines.iter().map(|(_, line)| line.line).collect();
        let levels: Vec<&str> = lines.iter().map(|(_, line)| line.level.as_str()).collect();
        let texts: Vec<&str> = lines.iter().map(|(_, line)| line.message.as_str()).collect();
        loop {
            // How long ago it was is taken at each run.
            let progress_ago: Vec<_> =
                progress.iter().map(|p| p.map(|p| micros(p.at.elapsed()))).collect();
            let lines_ago: Vec<i64> =
                lines.iter().map(|(_, line)| micros(line.at.elapsed())).collect();
            let parameters: [&(dyn ToSql + Sync); 13] = [
                &task_ids,
                &attempts,
                &versions,
                &said,
                &percents,
                &messages,
                &progress_ago,
                &line_tasks,
                &line_attempts,
                &numbers,
                &lines_ago,
                &levels,
                &texts,
            ];
            match client.query_cached(&sql, &parameters).await {
                Err(e) if must_repeat(&e) => {}
                Err(e) => return Err(e.into()),
                Ok(passed_over) => return Ok(passed_over.iter().map(attempt_id).collect()),
            }
        }
    }

    pub(crate) async fn logs(
        &self,
        id: TaskId,
        filter: &LogFilter,
    ) -> Result<Vec<LogRow>, StoreError> {
        let client = self.connections.work().await?;
        let sql = self.schema.sql(if filter.newest { LOGS_NEWEST } else { LOGS });
        let (after, before) = filter.bounds();
        let limit = i64::from(filter.limit);
        let rows =
            client.query(&sql, &[&id.0, &after.0, &after.1, &before.0, &before.1, &limit]).await?;
        let mut lines: Vec<LogRow> = rows.iter().map(log_row).collect();
        if filter.newest {
            lines.reverse();
        }
        Ok(lines)
    }
}

fn log_row(row: &Row) -> LogRow {
    LogRow {
        attempt: read(row, "attempt"),
        line: read(row, "line"),
        logged_at: read(row, "logged_at"),
        level: row.get::<_, &str>("level").parse().unwrap_or(LogLevel::Info),
        message: read(row, "message"),
    }
}
