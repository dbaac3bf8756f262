//! The audit log.

use std::time::Duration;

use task_engine_core::ParseError;
use task_engine_core::json::Json;
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry, check_prune};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::json::JsonIn;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/operators/audit.sql");
const AUDIT: &str = statement(SQL, "audit");
const AUDIT_PAGE: &str = statement(SQL, "audit_page");
const AUDIT_PRUNE: &str = statement(SQL, "prune_audit");

impl StoreInner {
    pub(crate) async fn audit(&self, entry: &NewAuditEntry) -> Result<i64, StoreError> {
        let client = self.connections.work().await?;
        let row = client
            .query_one(
                &self.schema.sql(AUDIT),
                &[
                    &entry.actor(),
                    &entry.action(),
                    &entry.target(),
                    &entry.reason(),
                    &JsonIn(entry.detail().as_str()),
                    &entry.outcome().as_str(),
                    &entry.of(),
                ],
            )
            .await?;
        Ok(read(&row, "id"))
    }

    pub(crate) async fn audit_page(
        &self,
        filter: &AuditFilter,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        // No entry has one, and PostgreSQL would complain.
        if [&filter.actor, &filter.action].into_iter().flatten().any(|text| text.contains('\0')) {
            return Ok(Vec::new());
        }
        let client = self.connections.work().await?;
        let rows = client
            .query(
                &self.schema.sql(AUDIT_PAGE),
                &[
                    &filter.before.unwrap_or(i64::MAX),
                    &i64::from(filter.limit),
                    &filter.actor,
                    &filter.action,
                    &filter.since,
                    &filter.until,
                    &filter.task.map(|id| id.to_string()),
                ],
            )
            .await?;
        rows.iter().map(entry).collect()
    }

    pub(crate) async fn prune_audit(&self, age: Duration, limit: u32) -> Result<u64, StoreError> {
        check_prune(age)?;
        let client = self.connections.work().await?;
        Ok(client
            .execute(&self.schema.sql(AUDIT_PRUNE), &[&micros(age), &i64::from(limit)])
            .await?)
    }
}

fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        id: read(row, "id"),
        at: read(row, "at"),
        actor: read(row, "actor"),
        action: read(row, "action"),
        target: read(row, "target"),
        reason: read(row, "reason"),
        detail: read::<Json>(row, "detail"),
        outcome: row
            .get::<_, &str>("outcome")
            .parse()
            .map_err(|bad: ParseError| StoreError::Version(bad.to_string()))?,
        of: read(row, "of_id"),
    })
}
