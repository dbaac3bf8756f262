//! Whether this server lives, and whether it can be of use.

use std::time::Duration;

use axum::extract::State;

use crate::app::App;
use crate::problem::Problem;

/// A database that takes longer does not answer.
const TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, Problem> {
    match tokio::time::timeout(TIMEOUT, app.store.paused_queues()).await {
        Ok(Ok(_)) => Ok("ok\n"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable("The database does not answer.")),
    }
}
