//! The router on a socket.
//!
//! Whoever connects gets a place for as long as they are of use: half a request,
//! or none, is waited for only so long, and there are only so many places. The
//! engine beside the dashboard needs files and memory, too.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::dashboard::Dashboard;

/// How long requests may take after the server is to stop.
const GRACE: Duration = Duration::from_secs(5);
/// So many connections at once; those who come then wait for a place.
const CONNECTIONS_MAX: usize = 512;
/// The first line and the headers of a request, also of the next one on a
/// connection that is kept, come within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// The whole body comes within this time.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// What is wrong with a socket that cannot accept may be over then.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Serves a dashboard until `stop` is cancelled.
pub async fn serve(
    dashboard: Dashboard,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let limits = Limits { connections: CONNECTIONS_MAX, head: HEAD_WITHIN, body: BODY_WITHIN };
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
    let places = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            next = accept(&listener, &places) => next,
            () = stop.cancelled() => break,
        };
        let router = router.clone();
        connections.spawn(answer(limits, router, stream, peer, stop.clone(), place));
    }
    connections.close();
    // Somebody reads slowly, or not at all: that is no reason to stay.
    let _ = timeout(GRACE, connections.wait()).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await.expect("places are never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, place),
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the dashboard cannot accept connections");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Somebody left before they came in.
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
    _place: OwnedSemaphorePermit,
) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| impatient(Body::new(body), limits.body));
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // What broke is on the other end.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The same body, as long as it comes in time.
fn impatient(body: Body, within: Duration) -> Body {
    let deadline = Instant::now() + within;
    let parts = stream::unfold(Some(body.into_data_stream()), move |body| async move {
        let mut body = body?;
        match timeout_at(deadline, body.next()).await {
            Ok(part) => Some((part?, Some(body))),
            Err(late) => Some((Err(axum::Error::new(late)), None)),
        }
    });
    Body::from_stream(parts)
}

#[cfg(test)]
mod tests {
    use task_engine::sqlite::SqliteStore;
    use task_engine_model::Store as _;
    use task_engine_model::token::Role;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::access::Access;

    const SOON: Duration = Duration::from_millis(200);
    const LATE: Duration = Duration::from_secs(60);

    struct Site {
        address: SocketAddr,
        stop: CancellationToken,
        serving: tokio::task::JoinHandle<()>,
    }

    async fn site(limits: Limits) -> Site {
        let store = SqliteStore::open_in_memory().unwrap();
        store.migrate().await.unwrap();
        let dashboard = Dashboard::new(Arc::new(store), Access::open_to(Role::Admin));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(serve_within(limits, dashboard, listener, stop.clone()));
        Site { address, stop, serving }
    }

    impl Site {
        async fn says(&self, text: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }
    }

    /// All that is answered until the other end hangs up.
    async fn heard(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    const GET: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn half_a_request_is_not_waited_for() {
        let site = site(Limits { connections: 9, head: SOON, body: LATE }).await;
        for half in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: localhost\r\nx: "] {
            let answer = heard(site.says(half).await).await;
            assert!(!answer.contains("200 OK"), "{half:?}: {answer}");
        }
        let kept = GET.replace("close", "keep-alive");
        assert!(heard(site.says(&kept).await).await.contains("200 OK"), "and no second one");
    }

    #[tokio::test]
    async fn half_a_body_is_not_waited_for() {
        let site = site(Limits { connections: 9, head: LATE, body: SOON }).await;
        let half = "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        let answer = heard(site.says(half).await).await;
        assert!(answer.contains("400 Bad Request") && answer.contains("complete"), "{answer}");
    }

    #[tokio::test]
    async fn who_finds_no_place_gets_the_next_one() {
        let site = site(Limits { connections: 2, head: SOON, body: LATE }).await;
        let (_one, _other) = (site.says("GET").await, site.says("GET").await);
        assert!(heard(site.says(GET).await).await.contains("200 OK"));
    }

    #[tokio::test]
    async fn it_stops_though_somebody_listens() {
        let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
        let listens = "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut listener = site.says(listens).await;
        listener.read_u8().await.unwrap();
        site.stop.cancel();
        site.serving.await.unwrap();
        assert!(heard(listener).await.contains("figures"));
    }
}
