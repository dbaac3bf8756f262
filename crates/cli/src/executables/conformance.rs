//! `task-engine check --worker`: plays the engine's side of the worker protocol against any
//! program, without a database.

mod cases;
mod dialogue;

use std::io::Write;

use serde::Serialize;

use self::cases::Case;
use self::dialogue::Dialogue;
use super::announcement::Announcement;
use super::config::{self, Program, Worker};
use crate::error::CliError;

/// The outcome of one case.
#[derive(Debug, Serialize)]
pub(crate) struct CaseOutcome {
    pub(crate) case: &'static str,
    /// What the worker did wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// What a check found.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerReport {
    pub(crate) classes: Vec<String>,
    pub(crate) cases: Vec<CaseOutcome>,
    /// Cases whose class the worker does not announce.
    pub(crate) left_out: Vec<&'static str>,
}

impl WorkerReport {
    pub(crate) fn problems(&self) -> usize {
        self.cases.iter().filter(|case| case.problem.is_some()).count()
    }
}

/// Runs all cases. `on_case` is called after each.
pub(crate) async fn check(
    command: &str,
    mut on_case: impl FnMut(&CaseOutcome) -> std::io::Result<()>,
) -> Result<WorkerReport, CliError> {
    let mut report = WorkerReport { classes: Vec::new(), cases: Vec::new(), left_out: Vec::new() };
    let mut add = |cases: &mut Vec<CaseOutcome>, case, result: Result<(), String>| {
        let outcome = CaseOutcome { case, problem: result.err() };
        let written = on_case(&outcome);
        cases.push(outcome);
        written
    };
    let announced = start(command).await;
    let (mut dialogue, announcement) = match announced {
        Ok(started) => started,
        Err(why) => {
            add(&mut report.cases, "announcement", Err(why))?;
            return Ok(report);
        }
    };
    report.classes = announcement.classes.keys().cloned().collect();
    add(&mut report.cases, "announcement", options(&announcement))?;
    for case in Case::ALL {
        if !case.classes().iter().all(|class| announcement.classes.contains_key(*class)) {
            report.left_out.push(case.name());
            continue;
        }
        // Each case has a worker that works: one problem is reported once.
        if dialogue.is_over() || case.needs_own_process() {
            match start(command).await {
                Ok((next, _)) => dialogue = next,
                Err(why) => {
                    add(
                        &mut report.cases,
                        case.name(),
                        Err(format!("it could not be started again: {why}")),
                    )?;
                    break;
                }
            }
        }
        let result = case.run(&mut dialogue).await;
        if result.is_err() {
            dialogue.kill();
        }
        add(&mut report.cases, case.name(), result)?;
    }
    dialogue.kill();
    Ok(report)
}

/// Starts the command as an engine does, with the environment of this program.
async fn start(command: &str) -> Result<(Dialogue, Announcement), String> {
    let program = Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".to_owned(), command.to_owned()],
        environment: std::env::vars().collect(),
        folder: std::env::current_dir().map_err(|error| error.to_string())?,
    };
    let worker = Worker { name: "checked".to_owned(), program, processes: 1, concurrency: 1 };
    Dialogue::start(&worker).await
}

/// The options of the announced classes.
fn options(announcement: &Announcement) -> Result<(), String> {
    config::connected("checked", announcement, &toml::Table::new())
        .map(drop)
        .map_err(|errors| errors.join("; "))
}

/// Prints outcomes as they come.
pub(crate) fn print(out: &mut impl Write, outcome: &CaseOutcome) -> std::io::Result<()> {
    match &outcome.problem {
        None => writeln!(out, "ok      {}", outcome.case),
        Some(why) => writeln!(out, "FAILED  {}: {}", outcome.case, crate::escape::escape(why)),
    }?;
    out.flush()
}
