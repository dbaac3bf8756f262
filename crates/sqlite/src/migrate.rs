//! Brings the tables to this version.

use rusqlite::params;
use task_engine_store::contract::SchemaVersion;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;

/// In order; the number of each is its place, from 1 up.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_tasks", include_str!("../migrations/0001_tasks.sql")),
    ("0002_schedules", include_str!("../migrations/0002_schedules.sql")),
    ("0003_operators", include_str!("../migrations/0003_operators.sql")),
    ("0004_durable", include_str!("../migrations/0004_durable.sql")),
    ("0005_limits", include_str!("../migrations/0005_limits.sql")),
    ("0006_flows", include_str!("../migrations/0006_flows.sql")),
];

/// Applies missing migrations in the writer's transaction.
pub(crate) fn migrate(tx: &JobTransaction<'_>, place: &str) -> Result<Vec<String>, JobError> {
    tx.db.execute_batch(sql!("engine/migrations", "migrations_table"))?;
    let there: i64 =
        tx.db.query_row(sql!("engine/migrations", "migrations_version"), [], |row| row.get(0))?;
    let latest = MIGRATIONS.len() as i64;
    if there > latest {
        return Err(JobError::Store(StoreError::Version(format!(
            "{place} has tables of version {there}, and this program knows versions up to {latest}: upgrade task-engine"
        ))));
    }
    let mut applied = Vec::new();
    for (version, (name, text)) in (1_i64..).zip(MIGRATIONS) {
        if version > there {
            tx.db.execute_batch(text)?;
            tx.db.execute(
                sql!("engine/migrations", "migrations_insert"),
                params![version, name, tx.now()],
            )?;
            applied.push((*name).to_owned());
        }
    }
    Ok(applied)
}

pub(crate) fn schema_version(tx: &JobTransaction<'_>) -> Result<SchemaVersion, JobError> {
    let there = tx
        .db
        .query_row(sql!("engine/migrations", "migrations_version"), [], |row| row.get::<_, i64>(0));
    let there = match there {
        Ok(there) => Some(there),
        Err(error) if error.to_string().contains("no such table") => None,
        Err(error) => return Err(error.into()),
    };
    Ok(SchemaVersion { applied: there, known: latest() })
}

/// The version that this program needs.
pub(crate) fn latest() -> i64 {
    MIGRATIONS.len() as i64
}
