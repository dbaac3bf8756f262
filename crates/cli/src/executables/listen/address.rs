//! Where workers connect to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::web;

/// An address of this machine, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// `8643`, `0.0.0.0:8643`, `[::1]:8643` or `unix:PATH`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("write the path of the socket, like unix:/run/workers.sock".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => web::address(text).map(Self::Tcp).map_err(|_| {
                format!("{text:?} is not an address; it looks like 127.0.0.1:8643, 8643 for a port of this machine, or unix:/run/workers.sock")
            }),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| Ok(ListenAddress::Tcp(text.parse().unwrap()));
        assert_eq!(ListenAddress::parse("8643"), tcp("127.0.0.1:8643"));
        assert_eq!(ListenAddress::parse("0.0.0.0:1"), tcp("0.0.0.0:1"));
        assert_eq!(ListenAddress::parse("unix:a b"), Ok(ListenAddress::Unix("a b".into())));
        for wrong in ["unix:", "localhost", "tcp://127.0.0.1:1", ""] {
            assert!(ListenAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
