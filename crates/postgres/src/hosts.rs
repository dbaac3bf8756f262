//! The servers of a URL, and which of them to connect to.
//!
//! A URL may name several servers, of which one accepts writes: a primary and its
//! standbys. The driver would wait for a silent server without a limit after the first
//! packet, so each server has a time limit here, for everything up to the first
//! statement.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use task_engine_store::error::StoreError;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::store_error;

/// The time limit for one server, unless the URL sets it (`connect_timeout`).
const ONE_HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where another server may be the right one.
const EACH_HOST_TIMEOUT: Duration = Duration::from_secs(2);

const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) type Connected =
    (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

/// The servers of a URL, in its order.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: Vec<OneHost>,
    /// Which of them is tried first: the one that connected last.
    preferred: AtomicUsize,
    any_order: bool,
    timeout: Duration,
    database: String,
}

#[derive(Debug)]
struct OneHost {
    host: Host,
    port: u16,
    config: Config,
}

/// Why a server cannot be used.
#[derive(Debug)]
enum HostError {
    Silent(Duration),
    Store(StoreError),
}

impl Hosts {
    /// `names_session_attrs`: whether the URL sets `target_session_attrs`.
    pub(crate) fn new(url: &Config, names_session_attrs: bool) -> Result<Self, StoreError> {
        let count = url.get_hosts().len();
        let ports = url.get_ports();
        if ports.len() > 1 && ports.len() != count {
            return Err(StoreError::Refused(format!(
                "the database URL names {count} hosts and {} ports; name one port for all, or one for each",
                ports.len()
            )));
        }
        let default = if count > 1 { EACH_HOST_TIMEOUT } else { ONE_HOST_TIMEOUT };
        let timeout = url.get_connect_timeout().copied().unwrap_or(default);
        let hosts = url.get_hosts().iter().enumerate().map(|(n, host)| {
            let port = ports.get(n).or(ports.first()).copied().unwrap_or(5432);
            let mut config = for_one_host(url, host, port, timeout);
            if let Some(address) = url.get_hostaddrs().get(n) {
                config.hostaddr(*address);
            }
            if count > 1 && !names_session_attrs {
                // Tasks are written: a standby is of no use.
                config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            OneHost { host: host.clone(), port, config }
        });
        Ok(Self {
            hosts: hosts.collect(),
            preferred: AtomicUsize::new(0),
            any_order: url.get_load_balance_hosts() == LoadBalanceHosts::Random,
            timeout,
            database: url.get_dbname().or(url.get_user()).unwrap_or_default().to_owned(),
        })
    }

    /// Where the servers are, without the password.
    pub(crate) fn location(&self) -> String {
        let names: Vec<String> = self.hosts.iter().map(OneHost::name).collect();
        format!("postgres://{}/{}", names.join(","), self.database)
    }

    /// The time limit for connecting to one server.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Connects to the first that accepts, starting with the last successful one.
    pub(crate) async fn connect(&self, tls: &MakeRustlsConnect) -> Result<Connected, StoreError> {
        let count = self.hosts.len();
        let first = if self.any_order {
            fastrand::usize(..count)
        } else {
            self.preferred.load(Ordering::Relaxed)
        };
        let mut errors = Vec::new();
        for n in (0..count).map(|n| (first + n) % count) {
            match self.hosts[n].connect(tls, self.timeout).await {
                Ok(connected) => {
                    self.preferred.store(n, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(error) => errors.push((n, error)),
            }
        }
        errors.sort_by_key(|(n, _)| *n);
        Err(self.explain(&errors))
    }

    /// Whether the server that was connected to last answers a new connection,
    /// if only by refusing it. If not, the next one is outcome first from now on.
    pub(crate) async fn answers(&self, tls: &MakeRustlsConnect) -> bool {
        let n = self.preferred.load(Ordering::Relaxed);
        let outcome = self.hosts[n].connect(tls, self.timeout).await;
        let silent = matches!(outcome, Err(HostError::Silent(_)));
        if silent {
            let next = (n + 1) % self.hosts.len();
            let _ = self.preferred.compare_exchange(n, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        !silent
    }

    fn explain(&self, errors: &[(usize, HostError)]) -> StoreError {
        let place = self.location();
        let refused =
            |error: &HostError| matches!(error, HostError::Store(error) if !error.is_temporary());
        let all_refuse = errors.iter().all(|(_, error)| refused(error));
        let mut text = match (errors, all_refuse) {
            ([(_, error)], true) => format!("{place} refuses the connection: {error}"),
            ([(_, error)], false) => format!("{place} cannot be reached: {error}"),
            (errors, _) => {
                let mut text = format!("no server of {place} can be used");
                for (number, (n, error)) in errors.iter().enumerate() {
                    let mark = if number == 0 { ':' } else { ';' };
                    let _ = write!(text, "{mark} {}: {error}", self.hosts[*n].name());
                }
                text
            }
        };
        if all_refuse {
            text.push_str("; check user, password and database in the URL");
            StoreError::Refused(text)
        } else {
            StoreError::Unavailable(text)
        }
    }
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent(timeout) => {
                write!(f, "no answer within {} s (connect_timeout)", timeout.as_secs_f64())
            }
            Self::Store(error) => {
                let text = error.to_string();
                if text.contains("does not allow writes") {
                    f.write_str("it takes no writes; it is a standby, or read-only")
                } else {
                    f.write_str(&text)
                }
            }
        }
    }
}

impl OneHost {
    fn name(&self) -> String {
        match &self.host {
            Host::Tcp(host) if host.contains(':') => format!("[{host}]:{}", self.port),
            Host::Tcp(host) => format!("{host}:{}", self.port),
            Host::Unix(path) => format!("{}:{}", path.display(), self.port),
        }
    }

    /// Each address of the host has the time limit for itself.
    async fn connect(
        &self,
        tls: &MakeRustlsConnect,
        timeout: Duration,
    ) -> Result<Connected, HostError> {
        let addresses = match tokio::time::timeout(timeout, self.addresses()).await {
            Ok(addresses) => addresses.map_err(HostError::Store)?,
            Err(_) => return Err(HostError::Silent(timeout)),
        };
        let mut last = HostError::Silent(timeout);
        for address in addresses {
            let mut config = self.config.clone();
            if let Some(address) = address {
                config.hostaddr(address);
            }
            last = match tokio::time::timeout(timeout, config.connect(tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => HostError::Store(store_error(&error)),
                Err(_) => HostError::Silent(timeout),
            };
        }
        Err(last)
    }

    /// `None`: no name to resolve.
    async fn addresses(&self) -> Result<Vec<Option<IpAddr>>, StoreError> {
        let Host::Tcp(host) = &self.host else { return Ok(vec![None]) };
        if !self.config.get_hostaddrs().is_empty() {
            return Ok(vec![None]);
        }
        match tokio::net::lookup_host((host.as_str(), self.port)).await {
            Ok(found) => Ok(found.map(|address| Some(address.ip())).collect()),
            Err(error) => Err(StoreError::Unavailable(format!("its name is not known: {error}"))),
        }
    }
}

/// The settings of a URL for one of its hosts. The driver cannot remove hosts.
fn for_one_host(url: &Config, host: &Host, port: u16, timeout: Duration) -> Config {
    let mut config = Config::new();
    match host {
        Host::Tcp(name) => config.host(name),
        Host::Unix(path) => config.host_path(path),
    };
    config.port(port).connect_timeout(timeout);
    if let Some(user) = url.get_user() {
        config.user(user);
    }
    if let Some(password) = url.get_password() {
        config.password(password);
    }
    if let Some(name) = url.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = url.get_options() {
        config.options(options);
    }
    if let Some(name) = url.get_application_name() {
        config.application_name(name);
    }
    let is_local = match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Host::Unix(_) => true,
    };
    let ssl_mode = match url.get_ssl_mode() {
        SslMode::Prefer if is_local => SslMode::Disable,
        mode => mode,
    };
    config
        .ssl_mode(ssl_mode)
        .ssl_negotiation(url.get_ssl_negotiation())
        .channel_binding(url.get_channel_binding())
        .target_session_attrs(url.get_target_session_attrs())
        .tcp_user_timeout(url.get_tcp_user_timeout().copied().unwrap_or(TCP_USER_TIMEOUT))
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(5))
        .keepalives_interval(Duration::from_secs(3))
        .keepalives_retries(3);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Hosts {
        Hosts::new(&url.parse().unwrap(), url.contains("target_session_attrs")).unwrap()
    }

    #[test]
    fn places_name_all_hosts() {
        for (url, place) in [
            ("postgres://u:secret@a/d", "postgres://a:5432/d"),
            ("postgres://u:secret@a:1,b:2/d", "postgres://a:1,b:2/d"),
            ("postgres://u@a,b:7/", "postgres://a:5432,b:7/u"),
        ] {
            assert_eq!(hosts(url).location(), place, "{url}");
        }
    }

    #[test]
    fn several_hosts_must_take_writes() {
        let wanted = |url: &str| hosts(url).hosts[0].config.get_target_session_attrs();
        assert_eq!(wanted("postgres://u@a/d"), TargetSessionAttrs::Any);
        assert_eq!(wanted("postgres://u@a,b/d"), TargetSessionAttrs::ReadWrite);
        assert_eq!(wanted("postgres://u@a,b/d?target_session_attrs=any"), TargetSessionAttrs::Any);
    }

    #[test]
    fn each_host_has_a_timeout() {
        let seconds = |url: &str| hosts(url).timeout().as_secs();
        assert_eq!(seconds("postgres://u@a/d"), 10);
        assert_eq!(seconds("postgres://u@a,b/d"), 2);
        assert_eq!(seconds("postgres://u@a,b/d?connect_timeout=7"), 7);
    }
}
