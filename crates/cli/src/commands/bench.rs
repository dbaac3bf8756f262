//! `task-engine bench`: how fast the engine is on a database, and what it
//! costs.
//!
//! # Map
//! - `options`: what can be asked; `scenarios`: what is then measured, one file
//!   a kind;
//! - `arena` (`postgres`, `sqlite`): the throw-away schema or file;
//! - `fleet`: engines as processes of their own; `engine`, `witnessed`: what
//!   such a process does; `event`: what it tells;
//! - `costs`, `proc`: what the database and the engines use meanwhile;
//! - `measure`, `outcome`: figures of a repeat, and of all;
//! - `summary`, `baseline`, `report`, `chart`: what becomes of them.

mod arena;
mod baseline;
mod chart;
mod costs;
pub(crate) mod engine;
mod event;
mod fleet;
mod measure;
mod options;
mod outcome;
mod postgres;
mod proc;
mod report;
mod scenarios;
mod sqlite;
mod summary;
mod tasks;
mod witnessed;

use std::io::Write;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::console::Console;
use crate::error::CliError;
use arena::Arena;
use baseline::Comparison;
use measure::Take;
pub(crate) use options::Arguments;
use options::{Scenario, Settings};
use outcome::{Measured, Outcome};

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    // All that can be wrong is found before minutes are spent.
    let settings = args.settings()?;
    let scenarios = args.scenarios();
    let baseline = args.baseline.as_deref().map(baseline::read).transpose()?;
    if let Some(file) = &args.report {
        report::check(file)?;
    }
    let mut signals = Signals::new()?;
    let arena = Arena::find(&console.database()?).await?;
    console.say(format_args!("{}, in {}", arena.database(), arena.place()));
    if cfg!(debug_assertions) {
        console.say("This is a debug build: its figures are not those of a release build.");
    }

    let database = arena.database();
    let measured = tokio::select! {
        measured = measure_all(console, &arena, &scenarios, &settings) => measured,
        () = signals.next() => Err(CliError::Failure("interrupted; nothing is left behind".to_owned())),
    };
    let place = arena.place();
    let removed = tokio::select! {
        removed = arena.remove() => removed,
        () = signals.next() => Err(CliError::Failure(format!("interrupted; {place} may be left behind"))),
    };
    let mut outcome = Outcome::new(database, settings, measured?);
    outcome.comparison = baseline.map(|old| Comparison::new(&old, &outcome, args.tolerance));
    if let Some(file) = &args.report {
        report::write(file, &outcome)?;
        console.say(format_args!("Wrote {}", file.display()));
    }
    print(console, &outcome, args.json)?;
    removed?;
    outcome.comparison.map_or(Ok(()), |comparison| comparison.verdict())
}

/// Each scenario once, then each once more: what changes on the machine in the
/// meantime meets all of them.
async fn measure_all(
    console: &Console,
    arena: &Arena,
    scenarios: &[Scenario],
    settings: &Settings,
) -> Result<Measured, CliError> {
    if settings.history > 0 || settings.future > 0 || settings.crowd > 0 {
        console.say(format_args!(
            "Filling in {} finished, {} future and {} other waiting tasks …",
            settings.history, settings.future, settings.crowd
        ));
    }
    arena.prepare(settings).await?;
    let mut strangers = 0;
    let mut takes: Vec<(Scenario, Vec<Take>)> =
        scenarios.iter().map(|scenario| (*scenario, Vec::new())).collect();
    for repeat in 1..=settings.repeats {
        for (scenario, takes) in &mut takes {
            let began = Instant::now();
            let take = scenarios::take(*scenario, arena, settings).await?;
            console.say(format_args!(
                "{repeat}/{} {}: {}",
                settings.repeats,
                scenario.name(),
                summary::in_short(&take)
            ));
            takes.push(take);
            strangers = arena.strangers(began.elapsed()).await?.on_server.max(strangers);
            arena.tidy(settings).await?;
        }
    }
    Ok(Measured { takes, strangers })
}

fn print(console: &Console, outcome: &Outcome, json: bool) -> Result<(), CliError> {
    let mut out = console.results();
    if json {
        serde_json::to_writer_pretty(&mut out, outcome).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        summary::print(outcome, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Ctrl-C and SIGTERM, which must not leave a schema behind.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::Failure(format!("no signal handlers: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
