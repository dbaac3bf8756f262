//! Measures how fast the engine is on a database, and what it costs.
//!
//! ```text
//! cargo run --release -p task-engine-bench -- --scenario drain --tasks 200000
//! ```
//!
//! # Map
//! - `options`: the command line; `scenarios`: one file per kind of scenario;
//! - `database` (`postgres`, `sqlite`): the temporary schema or file;
//! - `engines`: engines in processes of their own; `engine`, `observed`: such a
//!   process; `event`: the lines it writes; `durable_tasks`: handlers with steps;
//! - `costs`, `proc`: resources that the database and the engines use;
//! - `metric`, `report`, `summary`: values of one repeat, of all, and as a table.

mod costs;
mod database;
mod durable_tasks;
mod engine;
mod engines;
mod error;
mod event;
mod metric;
mod observed;
mod options;
mod postgres;
mod proc;
mod report;
mod scenarios;
mod sqlite;
mod summary;
mod tasks;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use database::BenchDatabase;
use error::BenchError;
use metric::Measurement;
use options::{Arguments, BenchSettings, Mode, Scenario};
use report::{BenchReport, Measured};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Arguments::parse();
    let done = match args.mode {
        Some(Mode::Engine(engine)) => engine::run(&args.database, engine).await,
        None => run(&args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

async fn run(args: &Arguments) -> Result<(), BenchError> {
    let settings = args.settings()?;
    let mut signals = Signals::new()?;
    let database = BenchDatabase::connect(&args.database).await?;
    eprintln!("{}, in {}", database.version(), database.name());
    if cfg!(debug_assertions) {
        eprintln!("This is a debug build; its figures are not those of a release build.");
    }

    let (version, scenarios) = (database.version(), args.scenarios());
    let measured = tokio::select! {
        measured = measure_all(&database, &scenarios, &settings) => measured,
        () = signals.next() => Err(BenchError::Failure("interrupted; nothing is left behind".to_owned())),
    };
    let name = database.name();
    let removed = tokio::select! {
        removed = database.remove() => removed,
        () = signals.next() => Err(BenchError::Failure(format!("interrupted; {name} may be left behind"))),
    };
    print(&BenchReport::new(version, settings, measured?), args.json)?;
    removed
}

/// Runs all scenarios once, then all once more, and so on: a change of the
/// machine's load affects all of them alike.
async fn measure_all(
    database: &BenchDatabase,
    scenarios: &[Scenario],
    settings: &BenchSettings,
) -> Result<Measured, BenchError> {
    if settings.inserts_tasks() {
        eprintln!(
            "Inserting {} finished, {} future, {} unserved and {} sleeping tasks …",
            settings.history, settings.future, settings.unserved, settings.sleepers
        );
    }
    database.prepare(settings).await?;
    let mut other_connections = 0;
    let mut measurements: Vec<(Scenario, Vec<Measurement>)> =
        scenarios.iter().map(|scenario| (*scenario, Vec::new())).collect();
    for repeat in 1..=settings.repeats {
        for (scenario, measurements) in &mut measurements {
            let began = Instant::now();
            let measurement = scenarios::measure(*scenario, database, settings).await?;
            eprintln!(
                "{repeat}/{} {}: {}",
                settings.repeats,
                scenario.name(),
                summary::in_short(&measurement)
            );
            measurements.push(measurement);
            let others = database.other_connections(began.elapsed()).await?;
            other_connections = others.on_server.max(other_connections);
            database.clear(settings).await?;
        }
    }
    Ok(Measured { measurements, other_connections })
}

fn print(report: &BenchReport, json: bool) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        summary::print(report, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// SIGINT and SIGTERM, which must not leave a schema behind.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, BenchError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
