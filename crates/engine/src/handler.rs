//! The functions that run tasks.

use std::future::Future;

use serde::Serialize;
use task_engine_core::json::Json;

use crate::context::Context;
use crate::failure::Failure;

/// A function that runs tasks of the type `T` in an engine with the state `S`: see
/// [`Engine::handle`](crate::Engine::handle).
///
/// Implemented for asynchronous functions of the task, of its [`Context`], of both in
/// this order, or of neither. The function returns `Result<R, E>`: any `R` that is
/// `Serialize`, and any error `E`, as for [`Failure`]. `A` only distinguishes the
/// four forms; the compiler infers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot run tasks in an engine with the state `{S}`",
    label = "not a handler for this engine",
    note = "write `async fn f(task: T, cx: Context<S>) -> Result<R, E>`; `task`, `cx` or both may be left out",
    note = "`T` derives `Task`, `S` is the state that the engine was made with, `R` is `Serialize`, and `E` is an error type (`Failure`, `anyhow::Error`, `std::io::Error`, …)"
)]
pub trait Handler<T, S, A>: Send + Sync + 'static {
    /// Runs one task.
    fn call(&self, task: T, cx: Context<S>) -> impl Future<Output = Result<Json, Failure>> + Send;
}

/// A function that runs tasks and blocks its thread: see
/// [`Engine::handle_blocking`](crate::Engine::handle_blocking).
///
/// It has the same four forms as a [`Handler`], without `async`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot run tasks in an engine with the state `{S}`",
    label = "not a blocking handler for this engine",
    note = "write `fn f(task: T, cx: Context<S>) -> Result<R, E>`; `task`, `cx` or both may be left out",
    note = "`T` derives `Task`, `S` is the state that the engine was made with, `R` is `Serialize`, and `E` is an error type (`Failure`, `anyhow::Error`, `std::io::Error`, …)"
)]
pub trait BlockingHandler<T, S, A>: Send + Sync + 'static {
    /// Runs one task.
    fn call(&self, task: T, cx: Context<S>) -> Result<Json, Failure>;
}

/// The four forms of a handler. They make the implementations distinct.
#[allow(missing_debug_implementations, unreachable_pub)] // Named only by inference.
mod form {
    pub enum TaskAndContext {}
    pub enum TaskOnly {}
    pub enum ContextOnly {}
    pub enum NoArguments {}
}

macro_rules! handlers {
    ($(
        $form:ident: ($($argument:ty),*) = |$task:pat_param, $cx:pat_param| ($($value:expr),*);
    )*) => {$(
        impl<T, S, R, E, F, Fut> Handler<T, S, form::$form> for F
        where
            T: Send + 'static,
            S: Send + Sync + 'static,
            R: Serialize,
            E: Into<Failure>,
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<R, E>> + Send,
        {
            async fn call(&self, $task: T, $cx: Context<S>) -> Result<Json, Failure> {
                encode(self($($value),*).await)
            }
        }

        impl<T, S, R, E, F> BlockingHandler<T, S, form::$form> for F
        where
            R: Serialize,
            E: Into<Failure>,
            F: Fn($($argument),*) -> Result<R, E> + Send + Sync + 'static,
        {
            fn call(&self, $task: T, $cx: Context<S>) -> Result<Json, Failure> {
                encode(self($($value),*))
            }
        }
    )*};
}

handlers! {
    TaskAndContext: (T, Context<S>) = |task, cx| (task, cx);
    TaskOnly: (T) = |task, _| (task);
    ContextOnly: (Context<S>) = |_, cx| (cx);
    NoArguments: () = |_, _| ();
}

fn encode<R: Serialize>(returned: Result<R, impl Into<Failure>>) -> Result<Json, Failure> {
    let result = returned.map_err(Into::into)?;
    Json::encode(&result).map_err(|error| Failure::result_not_storable(&error))
}
