//! `task-engine instances`.

use std::io::Write;

use clap::Args;
use task_engine_core::display::{relative, span};
use task_engine_core::instance::InstanceSummary;

use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::pools;
use crate::table::table;

/// List engines, live and dead
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON, one engine a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let engines = store.instances(None).await?;
    if args.json {
        return console.print_json(engines.iter().map(InstanceSummary::from));
    }
    if engines.is_empty() {
        console.message(format_args!(
            "No engine has run recently on {}. Start one: {}",
            store.location(),
            console.command("start")
        ));
        return Ok(());
    }
    let now = now().timestamp();
    let rows = engines.iter().map(|engine| {
        vec![
            summary(&engine.name, 40),
            engine.state().label().to_owned(),
            summary(&engine.host, 40),
            engine.pid.to_string(),
            engine.workers.to_string(),
            pools::show(&engine.pools),
            engine.held.to_string(),
            format!("{} ago", span(engine.heartbeat_age)),
            relative(engine.started_at, now),
        ]
    });
    let header =
        ["NAME", "STATE", "HOST", "PID", "WORKERS", "QUEUES", "TASKS", "HEARTBEAT", "STARTED"];
    let mut out = console.results();
    writeln!(out, "{}", table(&header, &[3, 4, 6], rows.collect()))?;
    out.flush()?;
    let mut advised = std::collections::BTreeSet::new();
    for engine in engines.iter().filter(|engine| !engine.is_alive() && engine.held > 0) {
        if advised.insert(&engine.name) {
            console.message(format_args!(
                "{} is dead and holds tasks. Recover them: {}",
                escape(&engine.name),
                console.command(&format!("recover {}", crate::console::quoted(&engine.name)))
            ));
        }
    }
    Ok(())
}
