//! Steps in transactions of the application.

use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use task_engine_core::json::Json;
use task_engine_core::step::NewStep;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;

use super::attempt::{CURRENT_STEP, StepState, store_failure};
use crate::context::Context;

/// A transaction that steps are recorded in ([`Context::step_in`]): a `Transaction` of
/// tokio-postgres, or of sqlx (with the feature `sqlx`, also a `PgConnection`).
pub trait StepTransaction: sealed::Sealed + Send {
    /// The result of a recorded step, as JSON.
    #[doc(hidden)]
    fn recorded_step(
        &mut self,
        schema: &str,
        id: TaskId,
        name: &str,
    ) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Records a step.
    #[doc(hidden)]
    fn record_step(
        &mut self,
        schema: &str,
        step: &NewStep,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

mod sealed {
    pub trait Sealed {}
}

impl<S> Context<S> {
    /// Runs code in a transaction of the application, in the database of the tasks, and
    /// records its result in the same transaction: the effects of the step and its record
    /// commit together, or neither does. So the effects happen exactly once, even if the
    /// engine dies. Commit the transaction after it.
    ///
    /// If the step is recorded already, its code does not run, and its result is returned.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")] mod example {
    /// # use task_engine::{Failure, Context, Task, postgres::tokio_postgres};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)] struct Order { item: i64 }
    /// # struct App { url: String }
    /// async fn order(task: Order, cx: Context<App>) -> Result<(), Failure> {
    ///     # let (mut client, connection) = tokio_postgres::connect(&cx.state().url, tokio_postgres::NoTls).await?;
    ///     # tokio::spawn(connection);
    ///     let mut tx = client.transaction().await?;
    ///     let left: i64 = cx
    ///         .step_in(&mut tx, "reserve", async |tx| {
    ///             let take = "UPDATE stock SET items = items - 1 WHERE id = $1 RETURNING items";
    ///             Ok::<_, Failure>(tx.query_one(take, &[&task.item]).await?.get(0))
    ///         })
    ///         .await?;
    ///     tx.commit().await?;
    ///     cx.log(format!("{left} left"));
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub async fn step_in<X, T, E>(
        &self,
        transaction: &mut X,
        name: &str,
        code: impl AsyncFnOnce(&mut X) -> Result<T, E>,
    ) -> Result<T, E>
    where
        X: StepTransaction,
        T: Serialize + DeserializeOwned,
    {
        let name = match self.or_exit(self.enter_step(name).await).await {
            StepState::Recorded(name, stored) => {
                return Ok(self.stored_result(&name, &stored).await);
            }
            StepState::Run(name) => name,
        };
        let schema = &self.handle.session.schema;
        let stored = transaction.recorded_step(schema, self.id.task_id, &name).await;
        let failed = |error| store_failure(&format!("step {name:?}"), &error);
        if let Some(stored) = self.or_exit(stored.map_err(failed)).await {
            return Ok(self.stored_result(&name, &Json::from_store(stored)).await);
        }
        let began = Instant::now();
        let value = CURRENT_STEP.scope(name.clone(), code(&mut *transaction)).await?;
        let result = self.encoded(&name, &value).await;
        let step = self.step_for_transaction(&name, result, began.elapsed());
        let step = self.or_exit(step).await;
        let recorded = transaction.record_step(schema, &step).await;
        self.or_exit(recorded.map_err(failed)).await;
        Ok(value)
    }

    /// The same in a transaction of rusqlite, for blocking handlers.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlite")] mod example {
    /// # use task_engine::{Failure, Context, sqlite::rusqlite};
    /// fn reserve(cx: Context<()>) -> Result<(), Failure> {
    ///     let mut connection = rusqlite::Connection::open("shop.db")?;
    ///     let tx = connection.transaction()?;
    ///     cx.step_in_blocking(&tx, "reserve", |tx| {
    ///         tx.execute("UPDATE stock SET items = items - 1", [])
    ///     })?;
    ///     tx.commit()?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn step_in_blocking<T, E>(
        &self,
        transaction: &task_engine_sqlite::rusqlite::Connection,
        name: &str,
        code: impl FnOnce(&task_engine_sqlite::rusqlite::Connection) -> Result<T, E>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
    {
        let entered = self.block_on(async { self.or_exit(self.enter_step(name).await).await });
        let name = match entered {
            StepState::Recorded(name, stored) => {
                return Ok(self.block_on(self.stored_result(&name, &stored)));
            }
            StepState::Run(name) => name,
        };
        let began = Instant::now();
        let value = CURRENT_STEP.sync_scope(name.clone(), || code(transaction))?;
        self.block_on(async {
            let result = self.encoded(&name, &value).await;
            let step = self.step_for_transaction(&name, result, began.elapsed());
            let step = self.or_exit(step).await;
            let recorded = task_engine_sqlite::record_step_in(transaction, &step);
            let failed = |error| store_failure(&format!("step {name:?}"), &error);
            self.or_exit(recorded.map_err(failed)).await;
        });
        Ok(value)
    }

    async fn stored_result<T: DeserializeOwned>(&self, name: &str, stored: &Json) -> T {
        self.decoded(&format!("the result of step {name:?}"), stored).await
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use task_engine_postgres::{Schema, tokio_postgres};

    use super::{NewStep, StepTransaction, StoreError, TaskId, sealed};

    impl sealed::Sealed for tokio_postgres::Transaction<'_> {}

    impl StepTransaction for tokio_postgres::Transaction<'_> {
        async fn recorded_step(
            &mut self,
            schema: &str,
            id: TaskId,
            name: &str,
        ) -> Result<Option<String>, StoreError> {
            Schema::named(schema)?.recorded_step_in(&*self, id, name).await
        }

        async fn record_step(&mut self, schema: &str, step: &NewStep) -> Result<(), StoreError> {
            Schema::named(schema)?.record_step_in(&*self, step).await
        }
    }
}

#[cfg(feature = "sqlx")]
mod sqlx {
    use task_engine_postgres::{Schema, sqlx};

    use super::{NewStep, StepTransaction, StoreError, TaskId, sealed};

    macro_rules! step_transaction {
        ($transaction:ty, |$tx:ident| $connection:expr) => {
            impl sealed::Sealed for $transaction {}

            impl StepTransaction for $transaction {
                async fn recorded_step(
                    &mut self,
                    schema: &str,
                    id: TaskId,
                    name: &str,
                ) -> Result<Option<String>, StoreError> {
                    let $tx = self;
                    Schema::named(schema)?.recorded_step_in_sqlx($connection, id, name).await
                }

                async fn record_step(
                    &mut self,
                    schema: &str,
                    step: &NewStep,
                ) -> Result<(), StoreError> {
                    let $tx = self;
                    Schema::named(schema)?.record_step_in_sqlx($connection, step).await
                }
            }
        };
    }

    step_transaction!(sqlx::PgConnection, |tx| tx);
    step_transaction!(sqlx::Transaction<'_, sqlx::Postgres>, |tx| &mut **tx);
}
