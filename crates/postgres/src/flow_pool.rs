//! Creation of flows on a pool of the application.

use task_engine_core::dependency::{CreatedFlow, NewFlow};
use task_engine_store::error::StoreError;

use crate::error::pool_error;
use crate::schema::Schema;

impl Schema {
    /// Creates a flow, all or none, on a connection of a pool.
    pub async fn create_flow_with(
        &self,
        pool: &deadpool_postgres::Pool,
        flow: &NewFlow,
    ) -> Result<CreatedFlow, StoreError> {
        let client = pool.get().await.map_err(|e| pool_error(&e))?;
        // One statement is a transaction by itself.
        self.create_flow_in(&**client, flow).await
    }

    /// Creates a flow, all or none, on a connection of a pool of sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_flow_with_sqlx(
        &self,
        pool: &sqlx::PgPool,
        flow: &NewFlow,
    ) -> Result<CreatedFlow, StoreError> {
        let connection = pool.acquire().await;
        let mut connection = connection.map_err(|e| crate::create::sqlx_error(&e))?;
        self.create_flow_in_sqlx(&mut connection, flow).await
    }
}
