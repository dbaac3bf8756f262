//! The router on a socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::dashboard::Dashboard;

/// How long requests may take after the server is to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a dashboard until `stop` is cancelled.
pub async fn serve(
    dashboard: Dashboard,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let router = dashboard.stop_with(stop.clone()).router();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let asked = stop.clone();
    let serving = axum::serve(listener, service)
        .with_graceful_shutdown(async move { asked.cancelled().await });
    tokio::select! {
        served = serving => served,
        // Somebody reads slowly, or not at all: that is no reason to stay.
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => Ok(()),
    }
}
