//! Transactions of the application in the database of the tasks.

use task_engine_core::completion::Completion;
use task_engine_core::dependency::{CreatedFlow, NewFlow};
use task_engine_core::json::Json;
use task_engine_core::step::{NewStep, SignalReport, SignalTarget};
use task_engine_core::task::NewTask;
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;

use crate::create::CreateError;

/// A transaction of the application in which tasks can be created and completed.
///
/// Pass a reference to one of these types to [`Create::in_tx`](crate::Create::in_tx) or
/// [`Context::complete_in`](crate::Context::complete_in):
///
/// - `Transaction` of tokio-postgres;
/// - `Transaction` or `PgConnection` of sqlx (feature `sqlx`);
/// - `Transaction` or `Connection` of rusqlite.
pub trait Transaction: sealed::Sealed + Sized {
    /// The type that the calls return: a future of a `T`, or for rusqlite the `T` itself.
    type Answer<T: Send + 'static>;

    /// Creates tasks, if they could be prepared.
    #[doc(hidden)]
    fn create(
        self,
        schema: &str,
        tasks: Result<Vec<NewTask>, CreateError>,
    ) -> Self::Answer<Result<Vec<Creation>, CreateError>>;

    /// Creates a flow, if it could be prepared.
    #[doc(hidden)]
    fn create_flow(
        self,
        schema: &str,
        flow: Result<NewFlow, CreateError>,
    ) -> Self::Answer<Result<CreatedFlow, CreateError>>;

    /// Writes a completion, if there is one to write.
    #[doc(hidden)]
    fn complete(
        self,
        completion: Result<Completion, StoreError>,
    ) -> Self::Answer<Result<(), StoreError>>;

    /// Records a step, if it could be prepared.
    #[doc(hidden)]
    fn record_step(
        self,
        schema: &str,
        step: Result<NewStep, StoreError>,
    ) -> Self::Answer<Result<(), StoreError>>;

    /// Sends a signal, if its payload could be encoded.
    #[doc(hidden)]
    fn signal(
        self,
        schema: &str,
        target: SignalTarget,
        name: String,
        payload: Result<Json, StoreError>,
    ) -> Self::Answer<Result<SignalReport, StoreError>>;

    /// Changes the value of an answer.
    #[doc(hidden)]
    fn map<T: Send + 'static, U: Send + 'static>(
        answer: Self::Answer<T>,
        change: impl FnOnce(T) -> U + Send + 'static,
    ) -> Self::Answer<U>;
}

mod sealed {
    pub trait Sealed {}
}

/// A driver whose calls are futures. `$connection` makes what the store's functions take.
#[cfg(feature = "postgres")]
macro_rules! asynchronous {
    ($a:lifetime, $transaction:ty, |$this:ident| $connection:expr, $create:ident, $flow:ident, $complete:ident, $step:ident, $signal:ident) => {
        impl<$a> sealed::Sealed for $transaction {}

        impl<$a> Transaction for $transaction {
            type Answer<T: Send + 'static> = Pin<Box<dyn Future<Output = T> + Send + $a>>;

            fn create(
                self,
                schema: &str,
                tasks: Result<Vec<NewTask>, CreateError>,
            ) -> Self::Answer<Result<Vec<Creation>, CreateError>> {
                let schema = Schema::named(schema);
                let $this = self;
                Box::pin(async move { Ok(schema?.$create($connection, &tasks?).await?) })
            }

            fn create_flow(
                self,
                schema: &str,
                flow: Result<NewFlow, CreateError>,
            ) -> Self::Answer<Result<CreatedFlow, CreateError>> {
                let schema = Schema::named(schema);
                let $this = self;
                Box::pin(async move { Ok(schema?.$flow($connection, &flow?).await?) })
            }

            fn complete(
                self,
                completion: Result<Completion, StoreError>,
            ) -> Self::Answer<Result<(), StoreError>> {
                let $this = self;
                Box::pin(async move {
                    let completion = completion?;
                    Schema::named(&completion.schema)?.$complete($connection, &completion).await
                })
            }

            fn record_step(
                self,
                schema: &str,
                step: Result<NewStep, StoreError>,
            ) -> Self::Answer<Result<(), StoreError>> {
                let schema = Schema::named(schema);
                let $this = self;
                Box::pin(async move { schema?.$step($connection, &step?).await })
            }

            fn signal(
                self,
                schema: &str,
                target: SignalTarget,
                name: String,
                payload: Result<Json, StoreError>,
            ) -> Self::Answer<Result<SignalReport, StoreError>> {
                let schema = Schema::named(schema);
                let $this = self;
                Box::pin(
                    async move { schema?.$signal($connection, &target, &name, &payload?).await },
                )
            }

            fn map<T: Send + 'static, U: Send + 'static>(
                answer: Self::Answer<T>,
                change: impl FnOnce(T) -> U + Send + 'static,
            ) -> Self::Answer<U> {
                Box::pin(async move { change(answer.await) })
            }
        }
    };
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::pin::Pin;

    use task_engine_postgres::{Schema, tokio_postgres};

    use super::{
        Completion, CreateError, CreatedFlow, Creation, Json, NewFlow, NewStep, NewTask,
        SignalReport, SignalTarget, StoreError, Transaction, sealed,
    };

    asynchronous!('a, &'a tokio_postgres::Transaction<'_>, |tx| tx, create_each_in, create_flow_in, complete_in, record_step_in, signal_in);
    asynchronous!('a, &'a mut tokio_postgres::Transaction<'_>, |tx| &*tx, create_each_in, create_flow_in, complete_in, record_step_in, signal_in);
}

#[cfg(feature = "sqlx")]
mod sqlx {
    use std::pin::Pin;

    use task_engine_postgres::{Schema, sqlx};

    use super::{
        Completion, CreateError, CreatedFlow, Creation, Json, NewFlow, NewStep, NewTask,
        SignalReport, SignalTarget, StoreError, Transaction, sealed,
    };

    asynchronous!('a, &'a mut sqlx::PgConnection, |tx| tx, create_each_in_sqlx, create_flow_in_sqlx, complete_in_sqlx, record_step_in_sqlx, signal_in_sqlx);
    asynchronous!(
        'a,
        &'a mut sqlx::Transaction<'_, sqlx::Postgres>,
        |tx| &mut **tx,
        create_each_in_sqlx,
        create_flow_in_sqlx,
        complete_in_sqlx,
        record_step_in_sqlx,
        signal_in_sqlx
    );
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use task_engine_sqlite::{
        complete_in, create_each_in, create_flow_in, record_step_in, rusqlite, signal_in,
    };

    use super::{
        Completion, CreateError, CreatedFlow, Creation, Json, NewFlow, NewStep, NewTask,
        SignalReport, SignalTarget, StoreError, Transaction, sealed,
    };

    macro_rules! immediate {
        ($($transaction:ty),*) => {$(
            impl sealed::Sealed for $transaction {}

            impl Transaction for $transaction {
                type Answer<T: Send + 'static> = T;

                fn create(
                    self,
                    _: &str,
                    tasks: Result<Vec<NewTask>, CreateError>,
                ) -> Result<Vec<Creation>, CreateError> {
                    Ok(create_each_in(self, &tasks?)?)
                }

                fn create_flow(
                    self,
                    _: &str,
                    flow: Result<NewFlow, CreateError>,
                ) -> Result<CreatedFlow, CreateError> {
                    Ok(create_flow_in(self, &flow?)?)
                }

                fn complete(
                    self,
                    completion: Result<Completion, StoreError>,
                ) -> Result<(), StoreError> {
                    complete_in(self, &completion?)
                }

                fn record_step(
                    self,
                    _: &str,
                    step: Result<NewStep, StoreError>,
                ) -> Result<(), StoreError> {
                    record_step_in(self, &step?)
                }

                fn signal(
                    self,
                    _: &str,
                    target: SignalTarget,
                    name: String,
                    payload: Result<Json, StoreError>,
                ) -> Result<SignalReport, StoreError> {
                    signal_in(self, &target, &name, &payload?)
                }

                fn map<T: Send + 'static, U: Send + 'static>(
                    answer: T,
                    change: impl FnOnce(T) -> U + Send + 'static,
                ) -> U {
                    change(answer)
                }
            }
        )*};
    }

    immediate!(&rusqlite::Connection, &rusqlite::Transaction<'_>, &mut rusqlite::Transaction<'_>);
}
