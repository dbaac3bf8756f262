//! Pools of the application that tasks are created on.

use std::fmt;

use task_engine_core::dependency::{CreatedFlow, NewFlow};
use task_engine_core::task::NewTask;
use task_engine_core::unique::Creation;
use task_engine_postgres::Schema;
use task_engine_store::contract::StoreFuture;

/// A pool of connections to PostgreSQL on which tasks are created.
///
/// It is `Pool` of deadpool-postgres, or `PgPool` of sqlx (feature `sqlx`).
///
/// See [`TaskEngine::from_pool`](crate::TaskEngine::from_pool).
pub trait CreationPool: sealed::Sealed + fmt::Debug + Send + Sync + 'static {
    /// Creates tasks on a connection of the pool, all or none.
    #[doc(hidden)]
    fn create<'a>(
        &'a self,
        schema: &'a str,
        tasks: &'a [NewTask],
    ) -> StoreFuture<'a, Vec<Creation>>;

    /// Creates a flow on a connection of the pool.
    #[doc(hidden)]
    fn create_flow<'a>(
        &'a self,
        schema: &'a str,
        flow: &'a NewFlow,
    ) -> StoreFuture<'a, CreatedFlow>;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for task_engine_postgres::deadpool_postgres::Pool {}

impl CreationPool for task_engine_postgres::deadpool_postgres::Pool {
    fn create<'a>(
        &'a self,
        schema: &'a str,
        tasks: &'a [NewTask],
    ) -> StoreFuture<'a, Vec<Creation>> {
        Box::pin(async move { Schema::named(schema)?.create_each_with(self, tasks).await })
    }

    fn create_flow<'a>(
        &'a self,
        schema: &'a str,
        flow: &'a NewFlow,
    ) -> StoreFuture<'a, CreatedFlow> {
        Box::pin(async move { Schema::named(schema)?.create_flow_with(self, flow).await })
    }
}

#[cfg(feature = "sqlx")]
impl sealed::Sealed for task_engine_postgres::sqlx::PgPool {}

#[cfg(feature = "sqlx")]
impl CreationPool for task_engine_postgres::sqlx::PgPool {
    fn create<'a>(
        &'a self,
        schema: &'a str,
        tasks: &'a [NewTask],
    ) -> StoreFuture<'a, Vec<Creation>> {
        Box::pin(async move { Schema::named(schema)?.create_each_with_sqlx(self, tasks).await })
    }

    fn create_flow<'a>(
        &'a self,
        schema: &'a str,
        flow: &'a NewFlow,
    ) -> StoreFuture<'a, CreatedFlow> {
        Box::pin(async move { Schema::named(schema)?.create_flow_with_sqlx(self, flow).await })
    }
}
