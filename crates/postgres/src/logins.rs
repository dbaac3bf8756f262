//! Logins to the dashboard.

use std::time::Duration;

use task_engine_store::error::StoreError;
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::sql::statement;

use crate::executor::Executor as _;
use crate::store::{StoreInner, micros};

const SQL: &str = include_str!("../sql/operators/logins.sql");
const DATABASE_KEY: &str = statement(SQL, "database_key");
const LOGIN_END: &str = statement(SQL, "login_end");
const LOGIN_IS_ENDED: &str = statement(SQL, "login_is_ended");

impl StoreInner {
    pub(crate) async fn database_key(&self) -> Result<DatabaseKey, StoreError> {
        let client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(DATABASE_KEY), &[]).await?;
        let key = <[u8; 32]>::try_from(row.get::<_, &[u8]>("key"));
        key.map(DatabaseKey).map_err(|_| {
            StoreError::Refused("the key in the table database_key is not of 32 bytes".to_owned())
        })
    }

    pub(crate) async fn end_login(
        &self,
        login: LoginId,
        lasts: Duration,
    ) -> Result<(), StoreError> {
        let client = self.connections.work().await?;
        client.execute(&self.schema.sql(LOGIN_END), &[&&login.0[..], &micros(lasts)]).await?;
        Ok(())
    }

    pub(crate) async fn is_login_ended(&self, login: LoginId) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(LOGIN_IS_ENDED), &[&&login.0[..]]).await?;
        Ok(row.get("is_ended"))
    }
}
