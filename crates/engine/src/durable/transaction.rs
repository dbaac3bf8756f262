//! Steps in transactions of the application.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use task_engine_core::json::Json;
use task_engine_store::error::StoreError;

use crate::context::Context;
use crate::transaction::Transaction;

impl<S> Context<S> {
    /// Returns the result of a step that is recorded; `None` if it has to run: see
    /// [`step_in`](Self::step_in).
    pub async fn recorded<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let found = self.find_step(name).await;
        let (name, stored) = self.or_exit(found).await?;
        Some(self.decoded(&format!("the result of step {name:?}"), &stored).await)
    }

    /// Records a step of a durable task in a transaction of the application.
    ///
    /// The transaction is in the database of the tasks. Its effects and the record of the step
    /// commit together, or neither does.
    ///
    /// So the effects happen exactly once, even if the engine dies. Call it last, with `?`, and
    /// commit. Ask [`recorded`](Self::recorded) first whether the step has to run.
    ///
    /// The transaction is one of tokio-postgres, of sqlx (feature `sqlx`) or of rusqlite. With
    /// the first two, this returns a future; with rusqlite, the result itself.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")] mod example {
    /// # use task_engine::{Failure, Context, Task, postgres::tokio_postgres};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)] struct Order { item: i64 }
    /// # struct App { url: String }
    /// async fn order(task: Order, cx: Context<App>) -> Result<i64, Failure> {
    ///     # let (mut client, connection) = tokio_postgres::connect(&cx.state().url, tokio_postgres::NoTls).await?;
    ///     # tokio::spawn(connection);
    ///     let left: i64 = match cx.recorded("reserve").await {
    ///         Some(left) => left,
    ///         None => {
    ///             let tx = client.transaction().await?;
    ///             let take = "UPDATE stock SET items = items - 1 WHERE id = $1 RETURNING items";
    ///             let left = tx.query_one(take, &[&task.item]).await?.get(0);
    ///             cx.step_in(&tx, "reserve", &left).await?;
    ///             tx.commit().await?;
    ///             left
    ///         }
    ///     };
    ///     Ok(left)
    /// }
    /// # }
    /// ```
    pub fn step_in<X: Transaction>(
        &self,
        transaction: X,
        name: &str,
        result: &impl Serialize,
    ) -> X::Answer<Result<(), StoreError>> {
        let step = Json::encode(result)
            .map_err(|error| format!("the result of step {name:?} cannot be stored: {error}"))
            .and_then(|result| {
                self.step_for_transaction(name, result, Duration::ZERO).map_err(|f| f.to_string())
            })
            .map_err(StoreError::InvalidData);
        transaction.record_step(&self.handle.session.schema, step)
    }
}
