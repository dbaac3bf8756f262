//! Tasks in any language: executables that run for classes, as
//! `task-engine.toml` says.
//!
//! - `config`: the file;
//! - `once`: one process a task; `lines`: processes that stay;
//! - `log`: what they print to the standard error;
//! - `child`: a process as the engine sees it; `supervisor`: the process between
//!   them, which leaves nothing behind.

mod child;
mod config;
mod lines;
mod log;
mod once;
pub(crate) mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;
use task_engine::model::words::count;
use task_engine::{ClassRules, Engine, Run};

pub(crate) use self::config::{Executable, FILE, Mistake, Mode, Purpose};
use crate::escape::escape;
use crate::exit::Fault;

/// What a file says.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) file: PathBuf,
    pub(crate) executables: Result<Vec<Executable>, Vec<Mistake>>,
}

/// Reads the named file; without a name, the one in the working folder, if it
/// is there.
pub(crate) fn read(file: Option<&Path>, purpose: Purpose) -> Result<Option<Read>, Fault> {
    let path = file.unwrap_or(Path::new(FILE));
    let wrong =
        |error: std::io::Error| Fault::Usage(format!("{} cannot be read: {error}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match file {
                None => Ok(None),
                Some(_) => Err(Fault::NotFound(format!("there is no file {}", path.display()))),
            };
        }
        Err(error) => return Err(wrong(error)),
    };
    let absolute = std::path::absolute(path).map_err(wrong)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    Ok(Some(Read { file: path.to_owned(), executables: config::parse(&text, folder, purpose) }))
}

/// The executables of a file that must have no mistakes; none without a file.
pub(crate) fn load(file: Option<&Path>, purpose: Purpose) -> Result<Vec<Executable>, Fault> {
    match read(file, purpose)? {
        None => Ok(Vec::new()),
        Some(Read { executables: Ok(executables), .. }) => Ok(executables),
        Some(Read { file, executables: Err(mistakes) }) => Err(complaint(&file, &mistakes)),
    }
}

/// The rules of a class, if the file in the working folder has it.
pub(crate) fn rules_of(class: &str) -> Result<Option<ClassRules>, Fault> {
    Ok(load(None, Purpose::Create)?
        .into_iter()
        .find(|one| one.class == class)
        .map(|one| one.rules()))
}

/// All mistakes of a file, one a line.
pub(crate) fn complaint(file: &Path, mistakes: &[Mistake]) -> Fault {
    let place = file.display();
    let lines = mistakes.iter().map(|Mistake { line, column, message }| {
        format!("\n  {place}:{line}:{column}: {}", escape(message))
    });
    let lines: String = lines.collect();
    Fault::Usage(format!("{} in {place}:{lines}", count(mistakes.len(), "mistake")))
}

/// Gives an engine the classes of a file.
pub(crate) fn handle_executables(engine: Engine<()>, executables: Vec<Executable>) -> Engine<()> {
    executables.into_iter().fold(engine, |engine, executable| {
        let (class, rules) = (executable.class.clone(), executable.rules());
        let executable = Arc::new(executable);
        match executable.mode {
            Mode::Once => {
                engine.handle_class(class, rules, move |parameters: Box<RawValue>, run| {
                    once::run(executable.clone(), parameters, run)
                })
            }
            Mode::Lines { .. } => {
                let pool = Arc::new(lines::Pool::new(executable));
                engine.handle_class(class, rules, move |parameters: Box<RawValue>, run| {
                    pool.clone().run(parameters, run)
                })
            }
        }
    })
}

/// Which attempt this is, as variables.
fn facts(run: &Run<()>) -> Vec<(&'static str, String)> {
    let parent = run.parent_id().map(|id| id.to_string()).unwrap_or_default();
    let values = [
        run.task_id().to_string(),
        run.attempt().to_string(),
        run.retry_number().to_string(),
        run.correlation_id().to_owned(),
        parent,
        run.class().to_owned(),
    ];
    config::FACTS.into_iter().zip(values).collect()
}
