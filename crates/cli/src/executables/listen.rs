//! `start --listen`: workers of other machines and containers connect, and send the lines
//! of a process over their connection. Each connection is an engine session of its own.

mod address;
mod session;

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use task_engine::{Engine, StopHandle, Stopped};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(crate) use self::address::ListenAddress;
use self::session::{ConnectionEnd, serve};
use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;

const TOKEN_VARIABLE: &str = "TASK_ENGINE_LISTEN_TOKEN";
/// How many workers may be connected. Each has two threads here, and an engine
/// session that sends heartbeats.
const SESSIONS_MAX: usize = 500;
/// How many connections may be in their handshake. A worker announces itself at once, so
/// that the oldest are closed for new ones.
const HANDSHAKES_MAX: usize = 100;
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of `accept`, which is a shortage of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Access of workers.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Workers that connect")]
pub(crate) struct ListenOptions {
    /// Let workers connect there: HOST:PORT, PORT of this machine, or unix:PATH. They send
    /// the token in TASK_ENGINE_LISTEN_TOKEN; another address than one of this machine
    /// needs it, and a certificate
    #[arg(long, value_name = "ADDRESS", value_parser = ListenAddress::parse)]
    pub(crate) listen: Option<ListenAddress>,
    /// The certificate chain for TLS, a PEM file
    #[arg(long, value_name = "FILE", requires = "listen", requires = "listen_key")]
    listen_certificate: Option<PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "listen_certificate")]
    listen_key: Option<PathBuf>,
    /// Accept connections of other machines without TLS: something else protects them
    #[arg(long, requires = "listen", conflicts_with = "listen_certificate")]
    listen_without_tls: bool,
}

/// Makes the engine of a session, without its classes.
pub(crate) type SessionEngine = Arc<dyn Fn() -> Engine<()> + Send + Sync>;

/// What every connection needs.
struct Shared {
    engine: SessionEngine,
    /// Options of the engine's file for classes that workers announce.
    options: toml::Table,
    /// Required of TCP connections.
    token: Option<String>,
    stop: StopHandle,
    /// A permit for each session.
    sessions: Arc<Semaphore>,
}

/// A bound address.
pub(crate) struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    token: Option<String>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Checks the options and binds, if the engine listens.
    pub(crate) async fn bind(
        console: &Console,
        options: &ListenOptions,
    ) -> Result<Option<Self>, CliError> {
        let Some(address) = &options.listen else {
            return Ok(None);
        };
        let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        let tls = match (&options.listen_certificate, &options.listen_key) {
            (Some(certificate), Some(key)) => Some(acceptor(certificate, key)?),
            _ => None,
        };
        let failed = |error: io::Error| {
            let advice = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "; another program uses this address: choose another one"
                }
                io::ErrorKind::PermissionDenied => {
                    "; check the rights, or choose a port from 1024 up"
                }
                _ => "",
            };
            CliError::Failure(format!("workers cannot connect to {address}: {error}{advice}"))
        };
        let socket = match address {
            ListenAddress::Tcp(tcp) => {
                let is_local = tcp.ip().is_loopback();
                if !is_local && token.is_none() {
                    return Err(CliError::Usage(format!(
                        "--listen {address} is open to other machines: set a token in {TOKEN_VARIABLE}"
                    )));
                }
                if !is_local && tls.is_none() && !options.listen_without_tls {
                    return Err(CliError::Usage(format!(
                        "--listen {address} is open to other machines: use TLS (--listen-certificate and --listen-key), or pass --listen-without-tls if a proxy or a private network protects the connections"
                    )));
                }
                Socket::Tcp(TcpListener::bind(tcp).await.map_err(failed)?)
            }
            ListenAddress::Unix(path) => {
                if tls.is_some() {
                    return Err(CliError::Usage(
                        "--listen-certificate is for TCP; a Unix socket has no TLS".to_owned(),
                    ));
                }
                Socket::Unix(bind_unix(path).map_err(failed)?, path.clone())
            }
        };
        let listener = Self { socket, tls, token };
        console.message(format_args!("Workers connect to: {}", listener.url()));
        Ok(Some(listener))
    }

    /// The address, as clients read it in `TASK_ENGINE_CONNECT`.
    fn url(&self) -> String {
        match &self.socket {
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
            Socket::Tcp(listener) => {
                let scheme = if self.tls.is_some() { "tls" } else { "tcp" };
                let address = listener.local_addr();
                address
                    .map_or_else(|why| why.to_string(), |address| format!("{scheme}://{address}"))
            }
        }
    }

    /// Serves workers until the engine stops, and their tasks have ended.
    pub(crate) async fn run(
        self,
        engine: SessionEngine,
        options: toml::Table,
        stop: StopHandle,
    ) -> Stopped {
        let token = self.token.clone();
        let permits = Arc::new(Semaphore::new(SESSIONS_MAX));
        let stopping = stop.clone();
        let shared = Shared { engine, options, token, stop: stopping, sessions: permits };
        let shared = Arc::new(shared);
        let mut handshakes: VecDeque<CancellationToken> = VecDeque::new();
        let mut sessions: JoinSet<Stopped> = JoinSet::new();
        let mut all = Stopped::default();
        loop {
            let accepted = tokio::select! {
                () = stop.requested() => break,
                Some(ended) = sessions.join_next() => {
                    add(&mut all, ended.unwrap_or_default());
                    continue;
                }
                accepted = self.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("A worker could not connect: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            handshakes.retain(|handshake| !handshake.is_cancelled());
            if handshakes.len() == HANDSHAKES_MAX
                && let Some(oldest) = handshakes.pop_front()
            {
                oldest.cancel();
            }
            let handshake = CancellationToken::new();
            handshakes.push_back(handshake.clone());
            let (shared, tls) = (shared.clone(), self.tls.clone());
            sessions.spawn(async move {
                let served = match (stream, tls) {
                    (Stream::Unix(stream), _) => {
                        serve(stream, &peer, false, &shared, handshake.clone()).await
                    }
                    (Stream::Tcp(stream), None) => {
                        serve(stream, &peer, true, &shared, handshake.clone()).await
                    }
                    (Stream::Tcp(stream), Some(tls)) => {
                        let accepted = tokio::select! {
                            accepted = timeout(TLS_TIMEOUT, tls.accept(stream)) => accepted.ok(),
                            () = handshake.cancelled() => None,
                            () = shared.stop.requested() => None,
                        };
                        match accepted {
                            Some(Ok(stream)) => {
                                serve(stream, &peer, true, &shared, handshake.clone()).await
                            }
                            Some(Err(error)) => {
                                Err(ConnectionEnd::Refused(format!("TLS: {error}")))
                            }
                            None => Err(ConnectionEnd::Refused("TLS: no answer".to_owned())),
                        }
                    }
                };
                handshake.cancel();
                served.unwrap_or_else(|ConnectionEnd::Refused(why)| {
                    tracing::warn!("A worker from {peer} was refused: {}", escape(&why));
                    Stopped::default()
                })
            });
        }
        if let Socket::Unix(_, path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
        drop(self);
        while let Some(ended) = sessions.join_next().await {
            add(&mut all, ended.unwrap_or_default());
        }
        all
    }

    async fn accept(&self) -> io::Result<(Stream, String)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok((Stream::Tcp(stream), peer.to_string()))
            }
            Socket::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), format!("unix:{}", path.display())))
            }
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(tokio::net::UnixStream),
}

/// A connection in both directions.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// Notices a machine that is gone within 25 seconds, also with lines under way.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, 25_000)?;
    Ok(())
}

/// Only the user of the engine may connect. A file that a killed engine left is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(io::Error::other("there is a file that is no socket; choose another path"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, CliError> {
    let wrong = |file: &Path, why: String| {
        CliError::Usage(format!("{} cannot be used for TLS: {why}", file.display()))
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|why| wrong(certificate, why.to_string()))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| wrong(key, why.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|why| wrong(certificate, why.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// How several engines of this process ended, as one.
pub(crate) fn add(all: &mut Stopped, one: Stopped) {
    all.forced |= one.forced;
    all.released += one.released;
    all.unrecorded += one.unrecorded;
}
