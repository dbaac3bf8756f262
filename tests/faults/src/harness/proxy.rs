//! A TCP proxy that delays, stalls, cuts and redirects.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// What the proxy does with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// Forwards it.
    Open,
    /// Delays each piece.
    Delay(Duration),
    /// Forwards this many bytes per interval.
    Trickle(usize, Duration),
    /// Accepts connections and forwards nothing.
    Stall,
    /// Forwards requests, but no replies.
    HoldAnswers,
    /// Resets all connections.
    Reset,
}

#[derive(Debug, Clone, Copy)]
struct State {
    mode: ProxyMode,
    target: SocketAddr,
    /// Changes to reset the current connections.
    cut: u64,
    /// Connections before this time are stalled.
    abandoned: u64,
    time: u64,
}

/// A proxy before a server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: watch::Sender<State>,
    /// Resets a connection after this many bytes; 0 for never.
    bytes_max: Arc<AtomicU64>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Before the server at this port.
    pub fn start(runtime: &Handle, port: u16) -> Self {
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let state = watch::Sender::new(State {
            mode: ProxyMode::Open,
            target,
            cut: 0,
            abandoned: 0,
            time: 1,
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        let bytes_max = Arc::new(AtomicU64::new(0));
        let (watched, limit) = (state.subscribe(), bytes_max.clone());
        let accepting = runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, watched.clone(), limit.clone()));
            }
        });
        Self { port, state, bytes_max, accepting }
    }

    /// A URL that goes through this proxy.
    #[must_use]
    pub fn url(&self, direct: &str) -> String {
        let (before, after) = direct.rsplit_once('@').expect("a URL with a user");
        let database = after.split_once('/').map_or("", |(_, database)| database);
        format!("{before}@127.0.0.1:{}/{database}", self.port)
    }

    /// Sets how data is forwarded.
    pub fn set(&self, mode: ProxyMode) {
        self.state.send_modify(|state| state.mode = mode);
    }

    /// Resets all connections that are there.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut += 1);
    }

    /// From now on, current connections forward nothing and report no error. New ones
    /// work.
    pub fn abandon(&self) {
        self.state.send_modify(|state| {
            state.time += 1;
            state.abandoned = state.time;
        });
    }

    /// From now on, resets each connection after this many bytes; 0 for never.
    pub fn cut_after(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Resets all connections, and leads new ones to another server.
    pub fn lead_to(&self, port: u16) {
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        self.state.send_modify(|state| {
            state.target = target;
            state.cut += 1;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.state.send_modify(|state| {
            state.mode = ProxyMode::Reset;
            state.cut += 1;
        });
    }
}

async fn serve(client: TcpStream, mut state: watch::Receiver<State>, limit: Arc<AtomicU64>) {
    let _ = client.set_nodelay(true);
    let State { cut: born, time, .. } = *state.borrow();
    let connected = async {
        // A stalled connection is accepted, and forwards nothing until the proxy is
        // healed.
        let open = state.wait_for(|now| now.mode != ProxyMode::Stall).await;
        let target = open.map_err(io::Error::other)?.target;
        let server = TcpStream::connect(target).await?;
        server.set_nodelay(true)?;
        Ok::<_, io::Error>(server)
    };
    let Ok(server) = connected.await else {
        reset(&client);
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let left = Arc::new(AtomicU64::new(0));
    let mut there = Flow {
        state: state.clone(),
        limit: limit.clone(),
        left: left.clone(),
        time,
        answers: false,
    };
    let mut back = Flow { state: state.clone(), limit, left, time, answers: true };
    tokio::select! {
        _ = there.pass(&from_client, &to_server) => {}
        _ = back.pass(&from_server, &to_client) => {}
        _ = state.wait_for(|now| now.cut != born || now.mode == ProxyMode::Reset) => {}
    }
    for half in [to_client, to_server] {
        reset(half.as_ref());
        // A drop would send the end of the stream first.
        half.forget();
    }
}

/// Closed so, the other side gets a reset instead of an end.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

struct Flow {
    state: watch::Receiver<State>,
    limit: Arc<AtomicU64>,
    /// The bytes that both directions have passed.
    left: Arc<AtomicU64>,
    time: u64,
    answers: bool,
}

impl Flow {
    async fn pass(&mut self, from: &OwnedReadHalf, to: &OwnedWriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let count = read(from, &mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let passed = self.left.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
            let most = self.limit.load(Ordering::Relaxed);
            if most > 0 && passed > most {
                return Err(io::Error::other("enough bytes"));
            }
            self.send(&buffer[..count], to).await?;
        }
    }

    async fn send(&mut self, mut bytes: &[u8], to: &OwnedWriteHalf) -> io::Result<()> {
        while !bytes.is_empty() {
            let (answers, time) = (self.answers, self.time);
            let holds = move |now: &State| {
                now.mode == ProxyMode::Stall
                    || answers && now.mode == ProxyMode::HoldAnswers
                    || time < now.abandoned
            };
            let open = self.state.wait_for(|now| !holds(now)).await;
            let mode = open.map_err(io::Error::other)?.mode;
            let most = match mode {
                ProxyMode::Trickle(most, wait) => {
                    tokio::time::sleep(wait).await;
                    most
                }
                ProxyMode::Delay(wait) => {
                    tokio::time::sleep(wait).await;
                    usize::MAX
                }
                _ => usize::MAX,
            };
            let (now, later) = bytes.split_at(most.min(bytes.len()));
            write(to, now).await?;
            bytes = later;
        }
        Ok(())
    }
}

async fn read(from: &OwnedReadHalf, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

async fn write(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
