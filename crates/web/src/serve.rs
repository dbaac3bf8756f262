//! The router on a socket.
//!
//! The number of connections is limited: an engine in the same process needs files
//! and memory, too. Reading a request has a time limit. When all slots are taken,
//! a new connection evicts an idle one (`serve/slots.rs`), so that slow clients
//! cannot block a probe of `/livez`.

mod slots;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures_util::{StreamExt as _, stream};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::dashboard::Dashboard;
use slots::{ConnectionSlot, ConnectionSlots};

/// Time for open requests after the server is asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent connections.
const CONNECTIONS_MAX: usize = 512;
/// For the head of a request, also of the next one on a kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// For the whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after `accept` failed.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Serves a dashboard on a socket until `stop` is cancelled.
///
/// Open requests have five seconds to end.
///
/// ```no_run
/// use task_engine::sqlite::SqliteStore;
/// use task_engine_web::{Access, Dashboard, Role, serve};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let dashboard = Dashboard::new(SqliteStore::open("tasks.db")?, Access::open_to(Role::Viewer));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8642").await?;
/// let stop = tokio_util::sync::CancellationToken::new();
/// serve(dashboard, listener, stop).await?;
/// # Ok(()) }
/// ```
pub async fn serve(
    dashboard: Dashboard,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let limits = Limits { connections: CONNECTIONS_MAX, head: HEAD_TIMEOUT, body: BODY_TIMEOUT };
    serve_within(limits, dashboard, listener, stop).await;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    head: Duration,
    body: Duration,
}

async fn serve_within(
    limits: Limits,
    dashboard: Dashboard,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let router = dashboard.stop_with(stop.clone()).router();
    let slots = ConnectionSlots::new(limits.connections);
    let connections = TaskTracker::new();
    loop {
        let next = async {
            let (stream, peer) = accept(&listener).await;
            (stream, peer, slots.take(peer.ip()).await)
        };
        let (stream, peer, slot) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let router = router.clone();
        connections.spawn(answer(limits, router, stream, peer, stop.clone(), slot));
    }
    connections.close();
    // A client that does not read must not delay the stop.
    let _ = timeout(STOP_TIMEOUT, connections.wait()).await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(next) => return next,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the dashboard cannot accept connections");
                sleep(ACCEPT_RETRY_AFTER).await;
            }
        }
    }
}

/// The client is gone already.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn answer(
    limits: Limits,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    stop: CancellationToken,
    slot: ConnectionSlot,
) {
    let slot = Arc::new(slot);
    let service_slot = Arc::clone(&slot);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (router, slot) = (router.clone(), Arc::clone(&service_slot));
        async move {
            slot.set_busy();
            let body = |body| with_deadline(Body::new(body), limits.body, Arc::clone(&slot));
            let mut request = request.map(body);
            request.extensions_mut().insert(ConnectInfo(peer));
            let response = router.oneshot(request).await;
            slot.set_idle();
            response
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // An error is that of the client.
        _ = connection.as_mut() => return,
        () = slot.evicted() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The body, with a time limit.
fn with_deadline(body: Body, within: Duration, slot: Arc<ConnectionSlot>) -> Body {
    let deadline = Instant::now() + within;
    let parts = stream::unfold(Some(body.into_data_stream()), move |body| {
        let slot = Arc::clone(&slot);
        async move {
            let mut body = body?;
            slot.set_idle();
            let part = timeout_at(deadline, body.next()).await;
            slot.set_busy();
            match part {
                Ok(part) => Some((part?, Some(body))),
                Err(late) => Some((Err(axum::Error::new(late)), None)),
            }
        }
    });
    Body::from_stream(parts)
}

#[cfg(test)]
mod tests;
