//! The router on a socket.
//!
//! There are only so many places for connections: the engine beside the dashboard
//! needs files and memory, too. Half a request, or none, is waited for only so
//! long. When all places are taken, a new connection gets that of one that is
//! waited for (`serve/places.rs`), so that slow clients cannot keep a probe of
//! `/livez` out.

mod places;

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
use places::{Place, Places};

/// How long requests may take after the server is to stop.
const GRACE: Duration = Duration::from_secs(5);
/// So many connections at once.
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
    let places = Places::new(limits.connections);
    let connections = TaskTracker::new();
    loop {
        let next = async {
            let (stream, peer) = accept(&listener).await;
            (stream, peer, places.take(peer.ip()).await)
        };
        let (stream, peer, place) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let router = router.clone();
        connections.spawn(answer(limits, router, stream, peer, stop.clone(), place));
    }
    connections.close();
    // Somebody reads slowly, or not at all: that is no reason to stay.
    let _ = timeout(GRACE, connections.wait()).await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(next) => return next,
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
    place: Place,
) {
    let place = Arc::new(place);
    let of_service = Arc::clone(&place);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (router, place) = (router.clone(), Arc::clone(&of_service));
        async move {
            place.works();
            let body = |body| impatient(Body::new(body), limits.body, Arc::clone(&place));
            let mut request = request.map(body);
            request.extensions_mut().insert(ConnectInfo(peer));
            let response = router.oneshot(request).await;
            place.waits();
            response
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // What broke is on the other end.
        _ = connection.as_mut() => return,
        () = place.given_away() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The same body, as long as it comes in time.
fn impatient(body: Body, within: Duration, place: Arc<Place>) -> Body {
    let deadline = Instant::now() + within;
    let parts = stream::unfold(Some(body.into_data_stream()), move |body| {
        let place = Arc::clone(&place);
        async move {
            let mut body = body?;
            place.waits();
            let part = timeout_at(deadline, body.next()).await;
            place.works();
            match part {
                Ok(part) => Some((part?, Some(body))),
                Err(late) => Some((Err(axum::Error::new(late)), None)),
            }
        }
    });
    Body::from_stream(parts)
}

#[cfg(test)]
mod tests {
    use task_engine::sqlite::SqliteStore;
    use task_engine_store::token::Role;
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

    /// The answer to a probe, which gives up as probes do.
    async fn probe(site: &Site) -> String {
        let answer = async { heard(site.says(GET).await).await };
        timeout(Duration::from_secs(5), answer).await.expect("the probe is answered")
    }

    #[tokio::test]
    async fn slow_connections_do_not_starve_probes() {
        let site = site(Limits { connections: 50, head: LATE, body: LATE }).await;
        let begun = ["", "GET / HT", "GET / HTTP/1.1\r\nhost: localhost\r\nx: "];
        let mut slow = Vec::new();
        for n in 0..400 {
            slow.push(site.says(begun[n % 3]).await);
            if n % 20 == 0 {
                assert!(probe(&site).await.contains("200 OK"), "beside {n} slow connections");
            }
        }
    }

    #[tokio::test]
    async fn slow_bodies_do_not_starve_probes() {
        let site = site(Limits { connections: 20, head: LATE, body: LATE }).await;
        let half = "POST /login HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 99\r\n\r\nsecret=";
        let mut slow = Vec::new();
        for n in 0..100 {
            slow.push(site.says(half).await);
            if n % 10 == 0 {
                assert!(probe(&site).await.contains("200 OK"), "beside {n} slow bodies");
            }
        }
    }

    #[tokio::test]
    async fn absurd_length_is_refused_at_once() {
        let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
        for length in ["99999999999999", "16777217"] {
            let huge = format!(
                "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            let answer = heard(site.says(&huge).await).await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
    }

    #[tokio::test]
    async fn ambiguous_hosts_are_refused() {
        let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
        let two = GET.replace("host: localhost", "host: localhost\r\nhost: localhost");
        let other = GET.replace("GET /livez", "GET http://evil.test/livez");
        for request in [two, other] {
            let answer = heard(site.says(&request).await).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
        }
        let same = GET.replace("GET /livez", "GET http://localhost/livez");
        assert!(heard(site.says(&same).await).await.contains("200 OK"));
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
