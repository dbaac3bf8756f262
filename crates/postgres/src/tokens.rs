//! Access tokens of the dashboard.

use jiff::Timestamp;
use task_engine_core::ParseError;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use task_engine_store::token::{NewToken, TOUCH_EVERY, TokenHash, TokenRow};
use tokio_postgres::Row;

use crate::error::error_text;
use crate::executor::Executor as _;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/operators/tokens.sql");
const TOKEN_ADD: &str = statement(SQL, "token_add");
const TOKENS: &str = statement(SQL, "tokens");
const TOKEN_REVOKE: &str = statement(SQL, "token_revoke");
const TOKEN_BY_HASH: &str = statement(SQL, "token_by_hash");
const TOKEN_TOUCH: &str = statement(SQL, "token_touch");

impl StoreInner {
    pub(crate) async fn add_token(&self, new: &NewToken) -> Result<i64, StoreError> {
        let client = self.connections.work().await?;
        let expires_in = new.expires_in().map(micros);
        let row = client
            .query_opt(
                &self.schema.sql(TOKEN_ADD),
                &[&new.name(), &new.role().as_str(), &&new.hash()[..], &expires_in],
            )
            .await?;
        row.map(|row| read(&row, "id")).ok_or_else(|| new.name_taken())
    }

    pub(crate) async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client.query(&self.schema.sql(TOKENS), &[]).await?;
        rows.iter().map(token).collect()
    }

    pub(crate) async fn revoke_token(&self, name: &str) -> Result<bool, StoreError> {
        // No name has one, and PostgreSQL would complain.
        if name.contains('\0') {
            return Ok(false);
        }
        let client = self.connections.work().await?;
        let revoked = client.execute(&self.schema.sql(TOKEN_REVOKE), &[&name]).await?;
        Ok(revoked > 0)
    }

    pub(crate) async fn token_by_hash(
        &self,
        hash: &TokenHash,
    ) -> Result<Option<TokenRow>, StoreError> {
        let client = self.connections.work().await?;
        let row = client
            .query_opt(&self.schema.sql(TOKEN_BY_HASH), &[&&hash[..], &micros(TOUCH_EVERY)])
            .await?;
        let Some(row) = row else { return Ok(None) };
        let mut token = token(&row)?;
        if read(&row, "is_stale") {
            let sql = self.schema.sql(TOKEN_TOUCH);
            // It is good, whether or not that can be written down.
            match client.query_opt(&sql, &[&token.id, &micros(TOUCH_EVERY)]).await {
                Ok(Some(touched)) => {
                    token.last_used_at = touched.get::<_, Option<Timestamp>>("last_used_at");
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!("the use of a token is not noted: {}", error_text(&error));
                }
            }
        }
        Ok(Some(token))
    }
}

fn token(row: &Row) -> Result<TokenRow, StoreError> {
    Ok(TokenRow {
        id: read(row, "id"),
        name: read(row, "name"),
        role: row
            .get::<_, &str>("role")
            .parse()
            .map_err(|bad: ParseError| StoreError::Version(bad.to_string()))?,
        created_at: read(row, "created_at"),
        expires_at: read(row, "expires_at"),
        last_used_at: read(row, "last_used_at"),
        revoked_at: read(row, "revoked_at"),
    })
}
