//! `task-engine doctor`.

use std::io::Write;

use clap::Args;
use task_engine_core::display::count;
use task_engine_operations::checks::checks;
use task_engine_store::check::{Check, CheckDepth, Verdict};

use crate::console::Console;
use crate::database::{Database, OpenMode};
use crate::error::CliError;
use crate::escape::{escape, escape_lines};
use crate::json_output::write_json_line;

/// Of a longer remedy, --json has all lines.
const REMEDY_LINES: usize = 12;

/// Check the database, engines and tasks, and show how to fix them
#[derive(Debug, Args)]
#[command(after_help = "\
Verdicts: ok, warning (it may be intended, or may become wrong), wrong, unknown
(it could not be checked). The exit code is 6 if something is wrong.

Nothing is changed. To compare the tables, a schema is created in a transaction
that is rolled back; and a notification is sent and received.")]
pub(crate) struct Arguments {
    /// Also read everything: the invariants of all tasks, and all of an SQLite file
    #[arg(long)]
    deep: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let depth = if args.deep { CheckDepth::Deep } else { CheckDepth::Standard };
    let database = console.database()?;
    let (location, checks) = match database.open(OpenMode::MustExist).await {
        Ok(store) => {
            let checks = match checks(&*store, depth).await {
                Ok(checks) => checks,
                Err(error) => vec![unreachable(&error.to_string())],
            };
            (store.location(), checks)
        }
        // An unreachable server is a finding, too.
        Err(CliError::Failure(why)) if matches!(database, Database::Postgres { .. }) => {
            (database.location(), vec![cannot_be_opened(&why)])
        }
        Err(error) => return Err(error),
    };
    let mut out = console.results();
    if args.json {
        let report = serde_json::json!({ "database": location, "checks": checks });
        write_json_line(&mut out, &report)?;
    } else {
        for check in &checks {
            show(&mut out, check)?;
        }
    }
    out.flush()?;
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (wrong, warnings) = (number(Verdict::Wrong), number(Verdict::Warning));
    let counts = format!(
        "{wrong} wrong, {}, of {}",
        count(warnings, "warning"),
        count(checks.len(), "check")
    );
    if wrong > 0 {
        return Err(CliError::Unhealthy(format!("{location}: {counts}")));
    }
    console.message(format_args!("{location}: {counts}"));
    Ok(())
}

fn cannot_be_opened(why: &str) -> Check {
    match why.split_once("; ") {
        Some((message, remedy)) if message.contains("the encoding of") => {
            Check::bad("encoding", Verdict::Wrong, message, remedy)
        }
        _ => unreachable(why),
    }
}

fn unreachable(why: &str) -> Check {
    Check::bad(
        "connection",
        Verdict::Wrong,
        why,
        "start the server, or fix the URL: TASK_ENGINE_DATABASE_URL or --database",
    )
}

fn show(out: &mut impl Write, check: &Check) -> Result<(), CliError> {
    let (title, verdict) = (check.title(), check.verdict.as_str());
    let mut lines = check.message.lines();
    let first = lines.next().unwrap_or_default();
    writeln!(out, "{verdict:8} {title:18} {}", escape(first))?;
    for line in lines {
        writeln!(out, "{:27} {}", "", escape(line))?;
    }
    if let Some(remedy) = &check.remedy {
        let lines: Vec<&str> = remedy.lines().collect();
        for line in lines.iter().take(REMEDY_LINES) {
            writeln!(out, "{:27} → {}", "", escape_lines(line))?;
        }
        if lines.len() > REMEDY_LINES {
            let more = lines.len() - REMEDY_LINES;
            writeln!(out, "{:27}   ({more} more lines; --json has them all)", "")?;
        }
    }
    Ok(())
}
