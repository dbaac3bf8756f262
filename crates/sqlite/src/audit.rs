//! The audit log.

use std::time::Duration;

use rusqlite::{Row, params};
use task_engine_core::ParseError;
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry, check_prune};
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::micros;
use crate::value::read;

pub(crate) fn audit(tx: &JobTransaction<'_>, entry: &NewAuditEntry) -> Result<i64, JobError> {
    tx.db.prepare_cached(sql!("operators/audit", "audit"))?.execute(params![
        tx.now(),
        entry.actor(),
        entry.action(),
        entry.target(),
        entry.reason(),
        entry.detail().as_str(),
        entry.outcome().as_str(),
        entry.of(),
    ])?;
    Ok(tx.db.last_insert_rowid())
}

pub(crate) fn prune(tx: &JobTransaction<'_>, age: Duration, limit: u32) -> Result<u64, JobError> {
    check_prune(age).map_err(JobError::Store)?;
    let before = tx.now().saturating_sub(micros(age));
    let pruned = tx
        .db
        .prepare_cached(sql!("operators/audit", "prune_audit"))?
        .execute(params![before, limit])?;
    Ok(pruned as u64)
}

pub(crate) fn page(
    tx: &JobTransaction<'_>,
    filter: &AuditFilter,
) -> Result<Vec<AuditEntry>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/audit", "audit_page"))?;
    let mut rows = statement.query(params![
        filter.before.unwrap_or(i64::MAX),
        filter.limit,
        filter.actor,
        filter.action,
        filter.since.map(|time| time.as_microsecond()),
        filter.until.map(|time| time.as_microsecond()),
        filter.task.map(|id| id.to_string()),
    ])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> Result<AuditEntry, JobError> {
    Ok(AuditEntry {
        id: read(row, 0)?,
        at: read(row, 1)?,
        actor: read(row, 2)?,
        action: read(row, 3)?,
        target: read(row, 4)?,
        reason: read(row, 5)?,
        detail: read(row, 6)?,
        outcome: row
            .get::<_, String>(7)?
            .parse()
            .map_err(|bad: ParseError| StoreError::Version(bad.to_string()))?,
        of: read(row, 8)?,
    })
}
