//! `task-engine web`.

use std::net::SocketAddr;

use clap::Args;

use crate::console::Console;
use crate::error::CliError;
use crate::signals::StopSignals;
use crate::web::{DEFAULT_ADDRESS, DashboardServer, WebOptions, address};

/// Serve the dashboard and the HTTP API, without an engine
///
/// Listens on this machine only, where every user may do everything. Any other
/// address needs a password (TASK_ENGINE_WEB_PASSWORD) or a token
/// (`task-engine tokens create`).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to listen: an address and a port, or a port of this machine
    #[arg(default_value = DEFAULT_ADDRESS, value_name = "ADDRESS", value_parser = address)]
    address: SocketAddr,
    #[command(flatten)]
    options: WebOptions,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let mut stop = StopSignals::listen()?;
    let begin = async {
        let store = console.database()?.open_to_watch().await?;
        console.message(format_args!("Database: {}", store.location()));
        DashboardServer::begin(console, store, args.address, &args.options, None).await
    };
    let mut server = tokio::select! {
        server = begin => server?,
        () = stop.recv() => return Ok(()),
    };
    tokio::select! {
        () = stop.recv() => {
            server.end().await;
            Ok(())
        }
        error = server.failed() => Err(error),
    }
}
