//! Access: users, roles and host names.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::request::Parts;
use task_engine_store::token::Role;

pub use task_engine_operations::Actor;

type Authenticate = dyn Fn(&Parts) -> Option<Actor> + Send + Sync;

/// Decides which users have access to the dashboard, and under which host names.
///
/// ```
/// use task_engine_web::{Access, Actor, Role};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Users with a token or the password:
/// let access = Access::closed().password("correct horse")?;
/// // Everyone on this machine, read-only:
/// let access = Access::open_to(Role::Viewer);
/// // The users of the application:
/// let access = Access::by(|request| {
///     let user = request.headers.get("x-user")?.to_str().ok()?;
///     Some(Actor::new(user, Role::Operator))
/// });
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Access {
    /// The role of requests without credentials. `None`: no access.
    pub(crate) anonymous: Option<Role>,
    /// The password of the administrator.
    pub(crate) password: Option<String>,
    pub(crate) authenticate: Option<Arc<Authenticate>>,
    /// Public host names, in lower case, without a port.
    pub(crate) hosts: Vec<String>,
    /// Whether browsers reach it by HTTPS alone.
    pub(crate) https: bool,
    pub(crate) any_host: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("anonymous", &self.anonymous)
            .field("has_password", &self.password.is_some())
            .field("hosts", &self.hosts)
            .field("https", &self.https)
            .finish_non_exhaustive()
    }
}

/// The error of access settings that would be unsafe or cannot work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAccess {
    /// Other machines would have access without credentials: set a password or create a token.
    #[error(
        "{0} can be reached from other machines without credentials: set a password or create a token first, or use an address like 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The password is too short: it needs at least [`Access::PASSWORD_MIN`] characters.
    #[error("the password has {0} characters; it needs at least {MIN}", MIN = Access::PASSWORD_MIN)]
    Password(usize),
    /// The public URL is not an HTTP or HTTPS URL without a path.
    #[error("{0:?} is not a public URL; it looks like https://tasks.example.com")]
    Url(String),
}

impl Access {
    /// The least number of characters of a password.
    pub const PASSWORD_MIN: usize = 8;

    /// Gives access only to users with a token, or with the password if one is set.
    pub fn closed() -> Self {
        Self {
            anonymous: None,
            password: None,
            authenticate: None,
            hosts: Vec::new(),
            https: false,
            any_host: false,
        }
    }

    /// Gives requests without credentials this role; a token may have a higher one.
    ///
    /// Use it on loopback addresses only.
    pub fn open_to(role: Role) -> Self {
        Self { anonymous: Some(role), ..Self::closed() }
    }

    /// Lets the application authenticate its own users.
    ///
    /// If `authenticate` returns `None`, the request is refused.
    pub fn by(authenticate: impl Fn(&Parts) -> Option<Actor> + Send + Sync + 'static) -> Self {
        let authenticate: Arc<Authenticate> = Arc::new(authenticate);
        // The application checks host names itself.
        Self { authenticate: Some(authenticate), any_host: true, ..Self::closed() }
    }

    /// Sets the password of the role admin.
    ///
    /// # Errors
    /// Fails with [`InvalidAccess::Password`] if it is shorter than [`Access::PASSWORD_MIN`].
    pub fn password(mut self, password: impl Into<String>) -> Result<Self, InvalidAccess> {
        let password = password.into();
        let length = password.chars().count();
        if length < Self::PASSWORD_MIN {
            return Err(InvalidAccess::Password(length));
        }
        self.password = Some(password);
        Ok(self)
    }

    /// Sets the public URL, for a server behind a proxy or under a host name.
    ///
    /// With `https`, cookies are sent over HTTPS only.
    ///
    /// # Errors
    /// Fails with [`InvalidAccess::Url`] if it is not an HTTP or HTTPS URL without a path.
    pub fn public_url(mut self, url: &str) -> Result<Self, InvalidAccess> {
        let bad = || InvalidAccess::Url(url.to_owned());
        let (https, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(bad()),
        };
        let host = rest.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return Err(bad());
        }
        self.https = https;
        self.hosts.push(without_port(host).to_ascii_lowercase());
        Ok(self)
    }

    /// Checks that a server on this address needs credentials.
    ///
    /// `has_tokens` says whether the store has a valid token.
    pub fn check(&self, address: SocketAddr, has_tokens: bool) -> Result<(), InvalidAccess> {
        let protected = self.anonymous.is_none()
            && (self.password.is_some() || self.authenticate.is_some() || has_tokens);
        if address.ip().is_loopback() || protected {
            Ok(())
        } else {
            Err(InvalidAccess::Open(address))
        }
    }

    /// Whether this is a name of this server. Other names are refused: they may
    /// come from DNS rebinding.
    pub(crate) fn knows_host(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        self.any_host
            || name == "localhost"
            // Rebinding needs a name; an address is safe.
            || bare.parse::<std::net::IpAddr>().is_ok()
            || self.hosts.contains(&name)
    }
}

/// `[::1]:80` and `example.com:80`, without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
            if name.contains(':') && !name.ends_with(']') {
                host
            } else {
                name
            }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_hosts() {
        let access = Access::closed().public_url("https://Tasks.Example.com:8443/").unwrap();
        for (host, known) in [
            ("localhost", true),
            ("localhost:8642", true),
            ("127.0.0.1:8642", true),
            ("[::1]:8642", true),
            ("192.168.1.5", true),
            ("tasks.example.com", true),
            ("TASKS.example.com:443", true),
            ("evil.test", false),
            ("localhost.evil.test", false),
            ("tasks.example.com.evil.test", false),
            ("", false),
        ] {
            assert_eq!(access.knows_host(host), known, "{host}");
        }
    }

    #[test]
    fn open_access_needs_loopback() {
        let (here, elsewhere) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let open = Access::open_to(Role::Viewer);
        assert_eq!(open.check(here, false), Ok(()));
        assert_eq!(open.check(elsewhere, true), Err(InvalidAccess::Open(elsewhere)));
        assert_eq!(Access::closed().check(elsewhere, false), Err(InvalidAccess::Open(elsewhere)));
        assert_eq!(Access::closed().check(elsewhere, true), Ok(()));
        let password = Access::closed().password("long enough").unwrap();
        assert_eq!(password.check(elsewhere, false), Ok(()));
        assert_eq!(Access::closed().password("short").unwrap_err(), InvalidAccess::Password(5));
    }

    #[test]
    fn invalid_public_urls_are_refused() {
        for url in ["tasks.example.com", "https://", "https://a/b", "ftp://a", "https://u@a"] {
            assert!(Access::closed().public_url(url).is_err(), "{url}");
        }
    }
}
