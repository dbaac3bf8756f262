//! The tasks that a transaction has created and not yet committed: for tests.

use jiff::Timestamp;
use task_engine_core::json::Json;
use task_engine_core::task::CreatedTask;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::store_error;
use crate::schema::Schema;

const CREATED: &str = statement(include_str!("../sql/testing/created.sql"), "created");

impl Schema {
    /// Returns the tasks of a class that this transaction has created, oldest first, with
    /// tokio-postgres.
    ///
    /// Outside of a transaction nothing is uncommitted.
    pub async fn created_in(
        &self,
        transaction: &impl GenericClient,
        class: &str,
    ) -> Result<Vec<CreatedTask>, StoreError> {
        let rows = transaction.query_typed(&self.sql(CREATED), &[(&class, Type::TEXT)]).await;
        let created = |row: &tokio_postgres::Row| CreatedColumns {
            id: row.get(0),
            class: row.get(1),
            parameters: row.get(2),
            context: row.get(3),
            queue: row.get(4),
            priority: row.get(5),
            scheduled_at: row.get(6),
            created_at: row.get(7),
        };
        let rows = rows.map_err(|error| store_error(&error))?;
        Ok(rows.iter().map(|row| created(row).into()).collect())
    }

    /// Returns the tasks of a class that this transaction has created, oldest first, with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn created_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        class: &str,
    ) -> Result<Vec<CreatedTask>, StoreError> {
        use sqlx::Row as _;
        let statement = sqlx::AssertSqlSafe(self.sql(CREATED).into_owned());
        let rows = sqlx::query(statement).bind(class).fetch_all(connection).await;
        let rows = rows.map_err(|error| StoreError::Refused(error.to_string()))?;
        let created = |row: &sqlx::postgres::PgRow| CreatedColumns {
            id: row.get(0),
            class: row.get(1),
            parameters: row.get(2),
            context: row.get(3),
            queue: row.get(4),
            priority: row.get(5),
            scheduled_at: row.get(6),
            created_at: row.get(7),
        };
        Ok(rows.iter().map(|row| created(row).into()).collect())
    }
}

/// A row of either driver.
struct CreatedColumns {
    id: i64,
    class: String,
    parameters: String,
    context: String,
    queue: String,
    priority: i32,
    scheduled_at: i64,
    created_at: i64,
}

impl From<CreatedColumns> for CreatedTask {
    fn from(row: CreatedColumns) -> Self {
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
        Self {
            id: TaskId(row.id),
            class: row.class,
            parameters: Json::from_store(row.parameters),
            context: Json::from_store(row.context),
            queue: row.queue,
            priority: row.priority,
            due_at: time(row.scheduled_at),
            created_at: time(row.created_at),
        }
    }
}
