use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A server that sends `A` or `B`, and then echoes every byte.
async fn echo(name: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(&[name]).await.unwrap();
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

struct Line(TcpStream);

impl Line {
    async fn dial(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap())
    }

    async fn hear(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).await.map(|_| byte[0])
    }

    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.hear()).await.is_err()
    }

    async fn say(&mut self, byte: u8) {
        self.0.write_all(&[byte]).await.unwrap();
    }
}

async fn begin() -> (Proxy, Line) {
    let port = echo(b'A').await;
    let proxy = tokio::task::spawn_blocking(move || Proxy::start(&Handle::current(), port));
    let proxy = proxy.await.unwrap();
    let mut line = Line::dial(&proxy).await;
    assert_eq!(line.hear().await.unwrap(), b'A');
    (proxy, line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_forwards_delays_and_stalls() {
    let (proxy, mut line) = begin().await;
    line.say(1).await;
    assert_eq!(line.hear().await.unwrap(), 1);
    proxy.set(ProxyMode::Delay(Duration::from_millis(50)));
    let begun = Instant::now();
    line.say(2).await;
    assert_eq!(line.hear().await.unwrap(), 2);
    assert!(begun.elapsed() >= Duration::from_millis(100), "there and back");
    proxy.set(ProxyMode::Stall);
    line.say(3).await;
    let mut other = Line::dial(&proxy).await;
    assert!(line.is_silent().await && other.is_silent().await);
    proxy.set(ProxyMode::Open);
    assert_eq!(line.hear().await.unwrap(), 3, "nothing is lost");
    assert_eq!(other.hear().await.unwrap(), b'A');
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_cut_three_ways() {
    let (proxy, mut line) = begin().await;
    proxy.cut();
    assert_eq!(line.hear().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    proxy.cut_after(3);
    let mut line = Line::dial(&proxy).await;
    assert_eq!(line.hear().await.unwrap(), b'A');
    line.say(1).await;
    assert_eq!(line.hear().await.unwrap(), 1);
    line.say(2).await;
    assert_eq!(line.hear().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    proxy.cut_after(0);
    let mut line = Line::dial(&proxy).await;
    line.hear().await.unwrap();
    proxy.lead_to(echo(b'B').await);
    assert!(line.hear().await.is_err());
    assert_eq!(Line::dial(&proxy).await.hear().await.unwrap(), b'B');
}
