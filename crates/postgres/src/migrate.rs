//! The tables and their versions.
//!
//! Migrations only ever add (expand first, contract in a later version), so
//! that the previous version of the engine runs on the next schema.

use task_engine_store::contract::SchemaVersion;
use task_engine_store::error::StoreError;
use tokio_postgres::error::SqlState;

use crate::error::{SqlError, error_text, store_error};
use crate::executor::Executor;
use crate::store::StoreInner;

const MIGRATIONS: &[(i32, &str, &str)] = &[
    (1, "tasks", include_str!("../migrations/0001_tasks.sql")),
    (2, "creation_and_completion", include_str!("../migrations/0002_creation_and_completion.sql")),
    (3, "schedules", include_str!("../migrations/0003_schedules.sql")),
    (4, "operators", include_str!("../migrations/0004_operators.sql")),
    (5, "durable", include_str!("../migrations/0005_durable.sql")),
    (6, "limits", include_str!("../migrations/0006_limits.sql")),
    (7, "flows", include_str!("../migrations/0007_flows.sql")),
];

impl StoreInner {
    pub(crate) async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        let mut client = self.connections.lifeline().await?;
        if self.version(&client).await? == Some(newest()) {
            return Ok(Vec::new());
        }
        let transaction = client.transaction().await?;
        let schema = &self.schema;
        // Two engines that start at once: the second waits, and finds it done.
        // The lock belongs to the transaction, so it cannot be left behind.
        let prepare = format!(
            "SELECT pg_advisory_xact_lock(hashtextextended('task_engine migrate {schema}', 0));
             CREATE SCHEMA IF NOT EXISTS \"{schema}\";
             CREATE TABLE IF NOT EXISTS \"{schema}\".migrations
               (version integer PRIMARY KEY, name text NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now())"
        );
        let explain = |e: SqlError| self.explain_migration(&e);
        refuse_sharding(&transaction).await?;
        transaction.batch_execute(&prepare).await.map_err(explain)?;
        let current = self.version(&transaction).await?.unwrap_or(0);
        let mut applied = Vec::new();
        for (version, name, statements) in MIGRATIONS.iter().filter(|m| m.0 > current) {
            transaction.batch_execute(&self.schema.sql(statements)).await.map_err(explain)?;
            let done =
                format!("INSERT INTO \"{schema}\".migrations (version, name) VALUES ($1, $2)");
            transaction.execute(&done, &[version, name]).await.map_err(explain)?;
            applied.push(format!("{version:04}_{name}"));
        }
        transaction.commit().await.map_err(explain)?;
        Ok(applied)
    }

    pub(crate) async fn schema_version(&self) -> Result<SchemaVersion, StoreError> {
        let client = self.connections.lifeline().await?;
        let there = self.any_version(&client).await?.map(i64::from);
        Ok(SchemaVersion { applied: there, known: i64::from(newest()) })
    }

    /// The version of the tables, or `None` if there are none. An error if this program
    /// does not know the version.
    async fn version(&self, client: &impl Executor) -> Result<Option<i32>, StoreError> {
        match self.any_version(client).await? {
            Some(version) if version > newest() => Err(StoreError::Version(format!(
                "the tables in schema {} are of version {version}, this program knows them up to version {}; upgrade task-engine",
                self.schema,
                newest()
            ))),
            version => Ok(version),
        }
    }

    async fn any_version(&self, client: &impl Executor) -> Result<Option<i32>, StoreError> {
        let ask = format!("SELECT max(version) FROM \"{}\".migrations", self.schema);
        match client.query_one(&ask, &[]).await {
            Ok(row) => Ok(row.get(0)),
            Err(e)
                if e.code().is_some_and(|code| {
                    *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME
                }) =>
            {
                Ok(None)
            }
            Err(e) if e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                Err(StoreError::Refused(format!(
                    "this user may not use the tables in schema {0} ({1}); as their owner, GRANT USAGE ON SCHEMA {0} and the other rights of docs/production.md to it",
                    self.schema,
                    error_text(&e)
                )))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn explain_migration(&self, error: &tokio_postgres::Error) -> StoreError {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return StoreError::Refused(format!(
                "this user may not create schema {0} or its tables ({1}); run `task-engine migrate` as an owner of the database, or GRANT CREATE ON DATABASE to this user",
                self.schema,
                error_text(error)
            ));
        }
        store_error(error)
    }
}

/// Citus would distribute a new schema, and distributed tables lack features that are
/// needed.
async fn refuse_sharding(transaction: &impl Executor) -> Result<(), StoreError> {
    const ASK: &str = "SELECT current_setting('citus.enable_schema_based_sharding', true) = 'on'";
    let row = transaction.query_one(ASK, &[]).await?;
    if row.get::<_, Option<bool>>(0) != Some(true) {
        return Ok(());
    }
    Err(StoreError::Refused(
        "Citus shards new schemas here, and Task Engine needs ordinary tables; turn that off for this database: ALTER DATABASE … SET citus.enable_schema_based_sharding = off".to_owned(),
    ))
}

/// The statements of the migrations, in order.
pub(crate) fn statements() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().map(|migration| migration.2)
}

pub(crate) fn newest() -> i32 {
    MIGRATIONS[MIGRATIONS.len() - 1].0
}

#[cfg(test)]
mod tests {
    /// PostgreSQL truncates longer names, with a NOTICE.
    #[test]
    fn names_fit_into_63_bytes() {
        for statements in super::statements() {
            let text = statements.lines().filter(|line| !line.trim_start().starts_with("--"));
            for name in text.flat_map(|line| line.split('"').skip(1).step_by(2)) {
                assert!(name.len() <= 63, "{} bytes: {name}", name.len());
            }
        }
    }
}
