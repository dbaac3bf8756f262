//! Completes a task inside a transaction of the application, so that its effects
//! happen exactly once.
//!
//! A task may run more than once, because an engine can die after the effects of a
//! task and before its end is recorded. If the effects are writes to the store's
//! own database, both can be one commit: [`Context::complete_in`] writes the end of the
//! attempt in the application's transaction.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")] mod example {
//! use serde::{Deserialize, Serialize};
//! use task_engine::{Failure, Context, Task, postgres::tokio_postgres};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! struct Transfer { from: i64, to: i64, cents: i64 }
//!
//! struct App { url: String }
//!
//! async fn transfer(task: Transfer, cx: Context<App>) -> Result<(), Failure> {
//!     let (mut client, connection) =
//!         tokio_postgres::connect(&cx.state().url, tokio_postgres::NoTls).await?;
//!     tokio::spawn(connection);
//!     let transaction = client.transaction().await?;
//!     let book = "UPDATE accounts SET cents = cents + $2 WHERE id = $1";
//!     transaction.execute(book, &[&task.from, &-task.cents]).await?;
//!     transaction.execute(book, &[&task.to, &task.cents]).await?;
//!     cx.complete_in(&transaction, &()).await?; // last, and with `?`
//!     transaction.commit().await?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! With sqlx (feature `sqlx`) it is `cx.complete_in(&mut transaction, &())`, too:
//!
//! ```no_run
//! # #[cfg(feature = "sqlx")] mod example {
//! # use task_engine::{Failure, Context, postgres::sqlx::{self, Connection as _}};
//! # struct App { url: String }
//! async fn count(_: serde_json::Value, cx: Context<App>) -> Result<(), Failure> {
//!     let mut connection = sqlx::PgConnection::connect(&cx.state().url).await?;
//!     let mut transaction = connection.begin().await?;
//!     sqlx::query("UPDATE counter SET n = n + 1").execute(&mut *transaction).await?;
//!     cx.complete_in(&mut transaction, &()).await?;
//!     transaction.commit().await?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! On SQLite, use a blocking handler and a connection to the store's file:
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")] mod example {
//! # struct App { file: String }
//! use task_engine::{Failure, Context, sqlite::rusqlite};
//!
//! fn count(_: serde_json::Value, cx: Context<App>) -> Result<u64, Failure> {
//!     let mut connection = rusqlite::Connection::open(&cx.state().file)?;
//!     let transaction = connection.transaction()?;
//!     transaction.execute("UPDATE counter SET n = n + 1", [])?;
//!     cx.complete_in(&transaction, &1)?;
//!     transaction.commit()?;
//!     Ok(1)
//! }
//! # }
//! ```
//!
//! # What happens when
//! - *It commits.* The task is done, with the result that was passed to
//!   `complete_in`, whatever the handler returns or does after that, and even if its
//!   engine dies.
//! - *It rolls back, or is never committed.* The attempt has failed
//!   ([`NotCommitted`](TaskError::NOT_COMMITTED), or with the handler's error), and is
//!   retried by the rule. A handler may also try again, in a new transaction.
//! - *Recovery has ended the attempt*, because the engine was taken for dead.
//!   `complete_in` fails with [`StoreError::AttemptOver`], and the transaction can
//!   no longer be committed. A reclaimed attempt is never completed, and a completed
//!   task is never run again.
//! - *A user requests its cancellation meanwhile.* The completion wins.
//! - *The transaction stays open after the handler has returned.* The engine waits
//!   for its end with this one result; other results are recorded meanwhile.
//!
//! Only effects inside the transaction happen once. Effects elsewhere (mail, another
//! database) may still happen more than once.
//!
//! [`Context::complete_in`]: crate::Context::complete_in

use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(doc)]
use task_engine_core::attempt::TaskError;
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::Completion;
use task_engine_core::json::Json;
#[cfg(doc)]
use task_engine_store::error::StoreError;

use crate::attempt_handle::AttemptHandle;

/// Whether an attempt may have completed its task in a transaction.
#[derive(Debug, Default)]
pub(crate) struct Completing {
    state: AtomicU8,
}

/// Set before anything is written; 0 before that.
const CALLED: u8 = 1;
/// The attempt is over for its engine; its code may still run.
const CLOSED: u8 = 2;

const NO_CLAIM: ClaimId = ClaimId(0);

impl AttemptHandle {
    pub(crate) fn completion(&self, result: Json) -> Completion {
        // The code of an attempt that is over may still run. With an unknown claim
        // the store refuses the completion and aborts the transaction.
        let claim_id = if self.completing.begin() { self.claim } else { NO_CLAIM };
        Completion {
            id: self.id,
            claim_id,
            worker: Some(self.worker),
            began: self.began,
            result,
            schema: self.session.schema.clone(),
        }
    }
}

impl Completing {
    /// Before anything is written. False if the attempt is over.
    fn begin(&self) -> bool {
        let called = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state != CLOSED).then_some(CALLED)
        });
        called.is_ok()
    }

    /// From now on no completion is accepted. True if there may be one.
    pub(crate) fn close(&self) -> bool {
        self.state.swap(CLOSED, Ordering::AcqRel) == CALLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_without_completion_is_recorded() {
        assert!(!Completing::default().close());
    }

    #[test]
    fn repeated_completion_is_settled() {
        let completing = Completing::default();
        assert!(completing.begin());
        assert!(completing.begin());
        assert!(completing.close());
    }

    /// From a thread that survives a forced stop, or a task that a handler spawned.
    #[test]
    fn completion_after_end_is_refused() {
        let completing = Completing::default();
        assert!(!completing.close());
        assert!(!completing.begin());
        assert!(!completing.close());
    }
}
