//! The dashboard beside an engine, or on its own.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use task_engine::Store;
use task_engine_core::ParseError;
use task_engine_web::{Access, Dashboard, InvalidAccess, Recorder, Role};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::console::Console;
use crate::error::CliError;

pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:8642";
const PASSWORD_VARIABLE: &str = "TASK_ENGINE_WEB_PASSWORD";

/// Access to the dashboard.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Dashboard")]
pub(crate) struct WebOptions {
    /// The URL by which browsers reach the dashboard, if it is behind a proxy or
    /// has a name, like https://tasks.example.com
    #[arg(long, value_name = "URL")]
    web_url: Option<String>,
    /// What users on this machine may do without a password or token: viewer,
    /// operator, admin, or none [default: admin, and none with a password or a URL]
    #[arg(long, value_name = "ROLE", value_parser = AnonymousRole::parse)]
    web_role: Option<AnonymousRole>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AnonymousRole(Option<Role>);

impl AnonymousRole {
    fn parse(text: &str) -> Result<Self, ParseError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|role| Self(Some(role))) }
    }
}

/// `8642`, `:8642`, `0.0.0.0:8642` or `[::1]:8642`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("{text:?} is not an address; it looks like {DEFAULT_ADDRESS}, or 8642 for a port of this machine")
    })
}

impl WebOptions {
    fn access(&self, address: SocketAddr) -> Result<Access, InvalidAccess> {
        let password = std::env::var(PASSWORD_VARIABLE).ok().filter(|it| !it.is_empty());
        let anonymous = match (self.web_role, &password) {
            (Some(AnonymousRole(role)), _) => role,
            (None, Some(_)) => None,
            // A public URL means a proxy, so users come from other machines.
            (None, None) if self.web_url.is_some() => None,
            (None, None) => address.ip().is_loopback().then_some(Role::Admin),
        };
        let mut access = anonymous.map_or_else(Access::closed, Access::open_to);
        if let Some(password) = password {
            access = access.password(password)?;
        }
        if let Some(url) = &self.web_url {
            access = access.public_url(url)?;
        }
        Ok(access)
    }
}

/// Records the metrics of the engine in this process, for `/metrics`.
pub(crate) fn keep_metrics() -> Result<Recorder, CliError> {
    let recorder = Recorder::install().map_err(|taken| CliError::Failure(taken.to_string()))?;
    tokio::spawn(recorder.clone().keep());
    Ok(recorder)
}

/// A running dashboard.
pub(crate) struct DashboardServer {
    /// Its address for browsers.
    pub(crate) url: String,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl DashboardServer {
    /// Binds before it prints the address, so that the address works at once.
    pub(crate) async fn begin(
        console: &Console,
        store: Arc<dyn Store>,
        address: SocketAddr,
        options: &WebOptions,
        metrics: Option<Recorder>,
    ) -> Result<Self, CliError> {
        let access = options.access(address).map_err(|bad| CliError::Usage(bad.to_string()))?;
        let tokens = store.tokens().await.unwrap_or_default();
        let has_tokens = tokens.iter().any(|token| token.revoked_at.is_none());
        access.check(address, has_tokens).map_err(|bad| {
            CliError::Usage(format!(
                "{bad}. Set a password in {PASSWORD_VARIABLE}, or create a token with `task-engine tokens create NAME --role admin`"
            ))
        })?;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::AddrInUse => "; another program uses this port, perhaps another dashboard: choose another port, like `start --web 9000` or `web 9000`",
                ErrorKind::PermissionDenied => "; choose a port from 1024 up",
                _ => "",
            };
            CliError::Failure(format!("the dashboard cannot listen on {address}: {error}{advice}"))
        })?;
        let bound = listener.local_addr().unwrap_or(address);
        let url = options.web_url.clone().unwrap_or_else(|| format!("http://{bound}/"));
        console.message(format_args!("Dashboard: {url}"));
        let stop = CancellationToken::new();
        let mut dashboard = Dashboard::new(store, access);
        if let Some(metrics) = metrics {
            dashboard = dashboard.engine_metrics(move || metrics.render());
        }
        let task = tokio::spawn(task_engine_web::serve(dashboard, listener, stop.clone()));
        Ok(Self { url, stop, task })
    }

    /// Stops it after the open requests.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }

    /// Waits until it fails.
    pub(crate) async fn failed(&mut self) -> CliError {
        let why = match (&mut self.task).await {
            Ok(Ok(())) => "it ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        CliError::Failure(format!("the dashboard failed: {why}"))
    }
}
