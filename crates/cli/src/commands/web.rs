//! `task-engine web`.

use std::net::SocketAddr;

use clap::Args;

use crate::console::Console;
use crate::exit::Fault;
use crate::web::{DEFAULT_ADDRESS, Serving, Signals, WebOptions, address};

/// Serve the dashboard and the HTTP API, without an engine
///
/// Listens on this machine alone, where everybody may do everything. On any
/// other address it needs a password (TASK_ENGINE_WEB_PASSWORD) or a token
/// (`task-engine tokens create`).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to listen: an address and a port, or a port of this machine
    #[arg(default_value = DEFAULT_ADDRESS, value_name = "ADDRESS", value_parser = address)]
    address: SocketAddr,
    #[command(flatten)]
    options: WebOptions,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let mut stop = Signals::listen()?;
    let begin = async {
        let store = console.database()?.open_to_watch().await?;
        console.say(format_args!("Database: {}", store.location()));
        Serving::begin(console, store, args.address, &args.options, None).await
    };
    let mut serving = tokio::select! {
        serving = begin => serving?,
        () = stop.asked() => return Ok(()),
    };
    tokio::select! {
        () = stop.asked() => {
            serving.end().await;
            Ok(())
        }
        fault = serving.broken() => Err(fault),
    }
}
