//! Tasks in any language: executables that run for classes, configured in
//! `task-engine.toml`.
//!
//! - `config`: the file;
//! - `announcement`: the classes that a worker announces;
//! - `once`: one process a task; `lines`: processes that stay, and `protocol`: the
//!   lines they exchange with the engine; `durable`: their steps, sleeps, waits and calls;
//! - `listen`: workers that connect over a socket;
//! - `conformance`: checks any worker against the protocol;
//! - `log`: their standard error; `exception`: uncaught exceptions in it;
//! - `resources`: how many of them fit into the limits of the system;
//! - `child`: a process as the engine sees it; `supervisor`: the process between
//!   the two, which ends all that the executable started.

mod announcement;
mod child;
mod config;
pub(crate) mod conformance;
mod dependencies;
mod durable;
mod exception;
mod lines;
pub(crate) mod listen;
mod log;
mod once;
mod protocol;
pub(crate) mod resources;
pub(crate) mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;
use task_engine::{Context, Engine, TaskOptions};
use task_engine_core::display::count;

pub(crate) use self::config::{
    Config, ConfigError, ConfigPurpose, Executable, ExecutableMode, FILE, Worker,
};
use self::durable::ClassOptions;
use self::lines::{ProcessPool, ProcessSource};
use crate::error::CliError;
use crate::escape::escape;

/// A file and its content.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) file: PathBuf,
    pub(crate) config: Result<Config, Vec<ConfigError>>,
}

/// Reads the named file; without a name, the one in the working folder, if it
/// exists.
pub(crate) fn read(
    file: Option<&Path>,
    purpose: ConfigPurpose,
) -> Result<Option<LoadedConfig>, CliError> {
    let path = file.unwrap_or(Path::new(FILE));
    let wrong =
        |error: std::io::Error| CliError::Usage(format!("cannot read {}: {error}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match file {
                None => Ok(None),
                Some(_) => Err(CliError::NotFound(format!("there is no file {}", path.display()))),
            };
        }
        Err(error) => return Err(wrong(error)),
    };
    let absolute = std::path::absolute(path).map_err(wrong)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    Ok(Some(LoadedConfig { file: path.to_owned(), config: config::parse(&text, folder, purpose) }))
}

/// The content of a file that must have no errors; empty without a file.
pub(crate) fn load(file: Option<&Path>, purpose: ConfigPurpose) -> Result<Config, CliError> {
    match read(file, purpose)? {
        None => Ok(Config::default()),
        Some(LoadedConfig { config: Ok(config), .. }) => Ok(config),
        Some(LoadedConfig { file, config: Err(errors) }) => Err(config_error(&file, &errors)),
    }
}

/// A file with the classes that its workers announce: starts these workers once.
pub(crate) async fn with_announcements(config: Config, file: &Path) -> Result<Config, CliError> {
    let Some(announcing) = &config.announcing else {
        return Ok(config);
    };
    let announcements = announcing.workers.iter().map(|worker| async {
        let name = &worker.name;
        announcement::ask(worker).await.map_err(|why| {
            CliError::Failure(format!("Worker {} cannot be used: {}", escape(name), escape(&why)))
        })
    });
    let announcements = futures_util::future::try_join_all(announcements).await?;
    announcing.with(&announcements).map_err(|errors| {
        let lines: String = errors.iter().map(|why| format!("\n  {}", escape(why))).collect();
        let errors = count(errors.len(), "error");
        CliError::Usage(format!(
            "{errors} in {} with what its workers announce:{lines}",
            file.display()
        ))
    })
}

/// The options of a class, if the file in the working folder has it.
pub(crate) fn options_of(class: &str) -> Result<Option<TaskOptions>, CliError> {
    let config = load(None, ConfigPurpose::Create)?;
    Ok(config.classes.iter().find(|one| one.class == class).map(Executable::options))
}

/// All errors of a file, one a line.
pub(crate) fn config_error(file: &Path, errors: &[ConfigError]) -> CliError {
    let file = file.display();
    let lines = errors.iter().map(|ConfigError { line, column, message }| {
        format!("\n  {file}:{line}:{column}: {}", escape(message))
    });
    let lines: String = lines.collect();
    CliError::Usage(format!("{} in {file}:{lines}", count(errors.len(), "error")))
}

/// How many processes of programs run at a time, with so many workers for those
/// that run once.
pub(crate) fn programs(executables: &[Executable], workers: u64) -> u64 {
    let once = executables.iter().any(|one| matches!(one.mode, ExecutableMode::Once(_)));
    let lines = workers_of(executables);
    let lines: usize = lines.iter().map(|(worker, _)| worker.processes).sum();
    u64::try_from(lines).unwrap_or(u64::MAX).saturating_add(if once { workers } else { 0 })
}

/// The workers whose processes stay, each with its classes.
fn workers_of(executables: &[Executable]) -> Vec<(Arc<Worker>, Vec<&Executable>)> {
    let mut workers: Vec<(Arc<Worker>, Vec<&Executable>)> = Vec::new();
    for executable in executables {
        let ExecutableMode::Lines(worker) = &executable.mode else { continue };
        match workers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, worker)) {
            Some((_, classes)) => classes.push(executable),
            None => workers.push((worker.clone(), vec![executable])),
        }
    }
    workers
}

/// Gives an engine the classes of a file.
pub(crate) fn handle_executables(mut engine: Engine<()>, executables: &[Executable]) -> Engine<()> {
    for executable in executables {
        if matches!(executable.mode, ExecutableMode::Once(_)) {
            let (class, options) = (executable.class.clone(), executable.options());
            let executable = Arc::new(executable.clone());
            engine = engine.handle_class(class, options, move |parameters: Box<RawValue>, run| {
                once::run(executable.clone(), parameters, run)
            });
        }
    }
    let options = executables.iter().map(|one| (one.class.clone(), one.options()));
    let options: ClassOptions = Arc::new(options.collect());
    for (worker, classes) in workers_of(executables) {
        // No more tasks are claimed than its processes take.
        let slots = u16::try_from(worker.slots()).unwrap_or(u16::MAX);
        let names = classes.iter().map(|one| one.class.clone());
        engine = engine.class_workers(names, slots);
        let pool = ProcessPool::new(worker, ProcessSource::Program, &classes, options.clone());
        engine = handle_lines(engine, &Arc::new(pool), classes);
    }
    engine
}

/// Gives an engine classes that the processes of a pool execute.
fn handle_lines<'a>(
    mut engine: Engine<()>,
    pool: &Arc<ProcessPool>,
    classes: impl IntoIterator<Item = &'a Executable>,
) -> Engine<()> {
    for executable in classes {
        let (class, options) = (executable.class.clone(), executable.options());
        let (pool, executable) = (pool.clone(), Arc::new(executable.clone()));
        engine = engine.handle_class(class, options, move |parameters: Box<RawValue>, run| {
            pool.clone().run(executable.clone(), parameters, run)
        });
    }
    engine
}

/// The environment variables that identify the attempt.
fn variables(cx: &Context<()>) -> Vec<(&'static str, String)> {
    let parent = cx.parent_id().map(|id| id.to_string()).unwrap_or_default();
    let values = [
        cx.task_id().to_string(),
        cx.attempt().to_string(),
        cx.retry_number().to_string(),
        cx.correlation_id().to_owned(),
        parent,
        cx.class().to_owned(),
    ];
    config::ATTEMPT_VARIABLES.into_iter().zip(values).collect()
}
