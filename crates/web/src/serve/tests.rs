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
    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }
}

/// The response until the server closes the connection.
async fn response(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

const GET: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn incomplete_head_times_out() {
    let site = site(Limits { connections: 9, head: SOON, body: LATE }).await;
    for half in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: localhost\r\nx: "] {
        let answer = response(site.send(half).await).await;
        assert!(!answer.contains("200 OK"), "{half:?}: {answer}");
    }
    let kept = GET.replace("close", "keep-alive");
    assert!(response(site.send(&kept).await).await.contains("200 OK"), "and no second one");
}

#[tokio::test]
async fn incomplete_body_times_out() {
    let site = site(Limits { connections: 9, head: LATE, body: SOON }).await;
    let half = "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let answer = response(site.send(half).await).await;
    assert!(answer.contains("400 Bad Request") && answer.contains("complete"), "{answer}");
}

#[tokio::test]
async fn new_connection_evicts_idle_one() {
    let site = site(Limits { connections: 2, head: SOON, body: LATE }).await;
    let (_one, _other) = (site.send("GET").await, site.send("GET").await);
    assert!(response(site.send(GET).await).await.contains("200 OK"));
}

/// The response to a probe with a time limit.
async fn probe(site: &Site) -> String {
    let answer = async { response(site.send(GET).await).await };
    timeout(Duration::from_secs(5), answer).await.expect("the probe is answered")
}

#[tokio::test]
async fn slow_connections_do_not_starve_probes() {
    let site = site(Limits { connections: 50, head: LATE, body: LATE }).await;
    let begun = ["", "GET / HT", "GET / HTTP/1.1\r\nhost: localhost\r\nx: "];
    let mut slow = Vec::new();
    for n in 0..400 {
        slow.push(site.send(begun[n % 3]).await);
        if n % 20 == 0 {
            assert!(probe(&site).await.contains("200 OK"), "with {n} slow connections");
        }
    }
}

#[tokio::test]
async fn slow_bodies_do_not_starve_probes() {
    let site = site(Limits { connections: 20, head: LATE, body: LATE }).await;
    let half = "POST /login HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 99\r\n\r\nsecret=";
    let mut slow = Vec::new();
    for n in 0..100 {
        slow.push(site.send(half).await);
        if n % 10 == 0 {
            assert!(probe(&site).await.contains("200 OK"), "with {n} slow bodies");
        }
    }
}

#[tokio::test]
async fn oversized_length_is_refused_early() {
    let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
    for length in ["99999999999999", "16777217"] {
        let huge = format!(
            "POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let answer = response(site.send(&huge).await).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}

#[tokio::test]
async fn ambiguous_hosts_are_refused() {
    let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
    let two = GET.replace("host: localhost", "host: localhost\r\nhost: localhost");
    let other = GET.replace("GET /livez", "GET http://evil.test/livez");
    for request in [two, other] {
        let answer = response(site.send(&request).await).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}: {answer}");
    }
    let same = GET.replace("GET /livez", "GET http://localhost/livez");
    assert!(response(site.send(&same).await).await.contains("200 OK"));
}

#[tokio::test]
async fn stops_with_open_event_stream() {
    let site = site(Limits { connections: 9, head: LATE, body: LATE }).await;
    let listens = "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut listener = site.send(listens).await;
    listener.read_u8().await.unwrap();
    site.stop.cancel();
    site.serving.await.unwrap();
    assert!(response(listener).await.contains("stats"));
}
