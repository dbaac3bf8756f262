//! Progress and logs of running attempts, and their responses to cancel requests.

use rusqlite::params;
use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::cancel::{CancelOutcome, CancelReaction, CancelRow};
use task_engine_core::progress::{LogFilter, LogLevel, LogRow, ProgressRow, Report};
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{ExecutionRow, TaskId};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::value::read;

/// Writes reports of attempts. There is one writer, so none is skipped.
pub(crate) fn report(
    tx: &JobTransaction<'_>,
    reports: &[Report],
) -> Result<Vec<AttemptId>, JobError> {
    let mut progress = tx.db.prepare_cached(sql!("engine/progress", "report_progress"))?;
    let mut log = tx.db.prepare_cached(sql!("engine/progress", "report_line"))?;
    for report in reports {
        let AttemptId { task_id, attempt } = report.id;
        for line in &report.lines {
            log.execute(params![
                task_id.0,
                attempt,
                line.line,
                tx.moment.of(line.at),
                line.level.as_str(),
                line.message,
            ])?;
        }
        let far = report.progress.as_ref();
        progress.execute(params![
            task_id.0,
            attempt,
            report.version,
            report.lines_total,
            far.map(|far| far.percent),
            far.map(|far| &far.message),
            far.map(|far| tx.moment.of(far.at)),
        ])?;
    }
    Ok(Vec::new())
}

pub(crate) fn logs(
    tx: &JobTransaction<'_>,
    id: TaskId,
    filter: &LogFilter,
) -> Result<Vec<LogRow>, JobError> {
    let statement = if filter.newest {
        sql!("engine/progress", "logs_newest")
    } else {
        sql!("engine/progress", "logs")
    };
    let (after, before) = filter.bounds();
    let mut statement = tx.db.prepare_cached(statement)?;
    let bounds = params![id.0, after.0, after.1, before.0, before.1, filter.limit];
    let rows = statement.query_map(bounds, |row| {
        Ok(LogRow {
            attempt: read(row, 0)?,
            line: read(row, 1)?,
            logged_at: read(row, 2)?,
            level: read::<String>(row, 3)?.parse().unwrap_or(LogLevel::Info),
            message: read(row, 4)?,
        })
    })?;
    let mut lines: Vec<LogRow> = rows.collect::<rusqlite::Result<_>>()?;
    if filter.newest {
        lines.reverse();
    }
    Ok(lines)
}

/// Adds progress, log lines and the outcome of a cancel request to an execution.
pub(crate) fn complete(
    tx: &JobTransaction<'_>,
    id: TaskId,
    execution: &mut ExecutionRow,
) -> Result<(), JobError> {
    let runs = execution.status == ExecutionStatus::Running;
    let mut ask = tx.db.prepare_cached(sql!("engine/progress", "execution_reports"))?;
    ask.query_row(params![id.0, execution.attempt], |row| {
        let percent: Option<f64> = read(row, 0)?;
        let (message, at): (Option<String>, Option<i64>) = (read(row, 1)?, read(row, 2)?);
        if let (Some(percent), Some(message), Some(at)) = (percent, message, at) {
            execution.progress = Some(ProgressRow { percent, message, reported_at: timestamp(at) });
        }
        execution.log_lines = read(row, 3)?;
        if let Some(requested_at) = read::<Option<i64>>(row, 4)? {
            let answer: Option<String> = read(row, 6)?;
            let answer: Option<CancelReaction> = answer.and_then(|word| word.parse().ok());
            execution.cancel = Some(CancelRow {
                requested_at: timestamp(requested_at),
                delivered_at: read(row, 5)?,
                outcome: CancelOutcome::of(runs, answer),
            });
        }
        Ok(())
    })?;
    Ok(())
}

/// Writes the cancel response of an attempt that has just ended.
pub(crate) fn write_cancel_response(
    tx: &JobTransaction<'_>,
    ending: &AttemptRecord,
) -> Result<(), JobError> {
    if let Some(response) = ending.cancel_response {
        tx.db.prepare_cached(sql!("engine/progress", "cancellation"))?.execute(params![
            ending.id.task_id.0,
            ending.id.attempt,
            tx.moment.of(response.delivered),
            response.reaction.as_str(),
        ])?;
    }
    Ok(())
}
