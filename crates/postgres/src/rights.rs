//! Checks that the database user has the rights of an engine. Without the check, an
//! engine would claim tasks whose results it cannot write.

use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;

use crate::executor::{Executor as _, PooledConnection};
use crate::store::StoreInner;

const MISSING_RIGHTS: &str =
    statement(include_str!("../sql/operators/checks.sql"), "missing_rights");

/// The most statements that a message shows.
const SHOWN_MAX: usize = 10;

impl StoreInner {
    pub(crate) async fn check_rights(&self, client: &PooledConnection) -> Result<(), StoreError> {
        let missing = client.query(MISSING_RIGHTS, &[&self.schema.name()]).await?;
        let Some(first) = missing.first() else {
            return Ok(());
        };
        let user: &str = first.get("name");
        let mut statements: Vec<String> = missing
            .iter()
            .take(SHOWN_MAX)
            .map(|row| format!("  {};", row.get::<_, &str>("statement")))
            .collect();
        if missing.len() > SHOWN_MAX {
            statements.push(format!("  … and {} more like these", missing.len() - SHOWN_MAX));
        }
        Err(StoreError::Refused(format!(
            "user {user} lacks rights that an engine needs. Run this as the owner of the tables (all of them at once: docs/production.md, \"Users\"):\n{}",
            statements.join("\n")
        )))
    }
}
