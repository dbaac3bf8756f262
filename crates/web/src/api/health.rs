//! Liveness and readiness probes.

use std::time::Duration;

use axum::extract::State;

use crate::app::App;
use crate::error::ApiError;

const READY_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, ApiError> {
    match tokio::time::timeout(READY_TIMEOUT, app.store.paused_queues()).await {
        Ok(Ok(_)) => Ok("ok\n"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(ApiError::unavailable("The database does not answer.")),
    }
}
