//! `task-engine.toml`: which executable runs for which class, and how; regular
//! tasks; limits; and the database.
//!
//! serde reads the file (`file`) and stops at the first value that it cannot read.
//! The checks here then report all that is wrong with the values. Every error has
//! its line and column; no database is needed.

mod announced;
mod file;
mod limits;
mod programs;
mod schedules;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use task_engine::limit::{ClassLimit, Limit};
use task_engine::{RetryRule, Schedule, TaskOptions};
use task_engine_core::json::{BYTES_MAX, Json};
use task_engine_core::progress::LINES_MAX;
use task_engine_core::queue::check_queue_name;
use task_engine_core::schema::Schema;
use task_engine_core::secret;
use task_engine_core::suggest::nearest;
use task_engine_core::task::NAME_BYTES_MAX;
use toml::Spanned;

use self::announced::AnnouncingFile;
pub(super) use self::announced::connected;
use self::file::{
    ClassTable, Concurrency, ConfigFile, ConfigText, DatabaseOnly, ModeName, Processes, RetryTable,
    SpannedName, Texts, WorkerTable,
};
use self::limits::FileLimits;
pub(super) use self::programs::{ATTEMPT_VARIABLES, DEPENDENCIES_VARIABLE};
use crate::database::Database;

/// The file that is read if none is named.
pub(crate) const FILE: &str = "task-engine.toml";

const GRACE: Duration = Duration::from_secs(5);
/// How many tasks one worker has at a time, in all of its processes.
const SLOTS_MAX: usize = 10_000;

/// The content of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// The URL; the path of an embedded database is absolute.
    pub(crate) database: Option<String>,
    pub(crate) classes: Vec<Executable>,
    pub(crate) schedules: Vec<Schedule>,
    /// The limits of queues, and those that tasks name.
    pub(crate) limits: Vec<Limit>,
    /// If workers of the file announce their classes: the file, to be read with them.
    pub(super) announcing: Option<AnnouncingFile>,
    /// Options of classes that have no program in the file: a worker announces them.
    pub(crate) options: toml::Table,
}

/// A class and the executable that runs for it.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) class: String,
    pub(crate) mode: ExecutableMode,
    pub(crate) timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    pub(crate) retry: RetryRule,
    pub(crate) queue: Option<String>,
    pub(crate) priority: i32,
    pub(crate) result_bytes: usize,
    pub(crate) log_lines: usize,
    /// The paths of parameters that are not shown.
    pub(crate) secret: Vec<String>,
    pub(crate) limits: Vec<ClassLimit>,
    /// The JSON Schema of its parameters, if its worker announced one.
    pub(crate) schema: Option<Json>,
}

/// How an executable gets its tasks.
#[derive(Debug, Clone)]
pub(crate) enum ExecutableMode {
    /// One process a task.
    Once(Program),
    /// Processes that stay, and take a line a task.
    Lines(Arc<Worker>),
}

/// How a process is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    /// Found already: an absolute path.
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// All of its environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
}

/// Processes that stay, for one class or several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) program: Program,
    /// The most processes.
    pub(crate) processes: usize,
    /// How many tasks each has at a time.
    pub(crate) concurrency: usize,
}

impl Config {
    /// The workers that announce their classes when they start.
    pub(crate) fn announcing(&self) -> &[Arc<Worker>] {
        self.announcing.as_ref().map_or(&[], |file| &file.workers)
    }
}

impl Worker {
    /// How many tasks all of its processes have at a time.
    pub(crate) fn slots(&self) -> usize {
        self.processes * self.concurrency
    }
}

impl Executable {
    fn new(class: &str, mode: ExecutableMode) -> Self {
        Self {
            class: class.to_owned(),
            mode,
            timeout: None,
            grace: GRACE,
            retry: RetryRule::default(),
            queue: None,
            priority: 0,
            result_bytes: BYTES_MAX,
            log_lines: LINES_MAX,
            secret: Vec::new(),
            limits: Vec::new(),
            schema: None,
        }
    }

    pub(crate) fn program(&self) -> &Program {
        match &self.mode {
            ExecutableMode::Once(program) => program,
            ExecutableMode::Lines(worker) => &worker.program,
        }
    }

    /// The options of the class. The time limit is not among them: it is kept
    /// here, where the end of an attempt can wait for the end of its processes.
    pub(crate) fn options(&self) -> TaskOptions {
        let mut options = TaskOptions::default().retry(self.retry).cancel_grace(self.grace);
        if let Some(queue) = &self.queue {
            options.queue.clone_from(queue);
        }
        options.priority = self.priority;
        options.secret.clone_from(&self.secret);
        options.limits.clone_from(&self.limits);
        options.schema = self.schema.as_ref().map(Schema::from);
        options
    }
}

/// An error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// Why a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigPurpose {
    /// To run its programs: they and their folders must exist.
    Run,
    /// The same, and other workers connect.
    Listen,
    /// To create tasks: programs may exist on the engine's machine only.
    Create,
    /// To find the database.
    Database,
}

/// Reads the text of a file in `folder`, which must be absolute.
pub(crate) fn parse(
    text: &str,
    folder: &Path,
    purpose: ConfigPurpose,
) -> Result<Config, Vec<ConfigError>> {
    let announces = purpose == ConfigPurpose::Listen;
    let mut checker = Checker { text, folder, purpose, announces, errors: Vec::new() };
    let config = if purpose == ConfigPurpose::Database {
        toml::from_str::<DatabaseOnly>(text)
            .map(|file| Config { database: checker.database(file.database), ..Config::default() })
    } else {
        toml::from_str::<ConfigFile>(text).map(|file| checker.read_file(file))
    };
    let config = config.unwrap_or_else(|error| {
        checker.error(error.span().unwrap_or(0..0), message(&error));
        Config::default()
    });
    if checker.errors.is_empty() {
        Ok(config)
    } else {
        checker.errors.sort_by_key(|error| (error.line, error.column));
        Err(checker.errors)
    }
}

/// The message of the parser, with the known key that was most likely meant.
fn message(error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    if message == "duplicate key" {
        return "this name is used twice; each class and key is given once".to_owned();
    }
    // serde's form: unknown field `a`, expected one of `b`, `c`
    let mut names = message.split('`').skip(1).step_by(2);
    let (true, Some(unknown)) = (message.starts_with("unknown "), names.next()) else {
        return message;
    };
    let known: Vec<&str> = names.collect();
    let hint = match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", known.join(", ")),
    };
    format!("{unknown:?} is not known here; {hint}")
}

struct Checker<'a> {
    text: &'a str,
    folder: &'a Path,
    purpose: ConfigPurpose,
    /// Whether workers announce classes, so that a class needs no program in the file.
    announces: bool,
    errors: Vec<ConfigError>,
}

/// The workers of a file by name, and which of them has which class.
#[derive(Default)]
struct Workers {
    by_name: BTreeMap<String, Arc<Worker>>,
    of_class: BTreeMap<String, String>,
}

impl Checker<'_> {
    fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_begins = before.rfind('\n').map_or(0, |at| at + 1);
        self.errors.push(ConfigError {
            line: before.matches('\n').count() + 1,
            column: before[line_begins..].chars().count() + 1,
            message: message.into(),
        });
    }

    fn read_file(&mut self, file: ConfigFile) -> Config {
        let is_empty = file.class.is_empty() && file.worker.is_empty() && file.schedule.is_empty();
        if is_empty && self.purpose != ConfigPurpose::Listen {
            self.error(0..0, "there is no class; write [class.NAME] and command = [\"./PROGRAM\"]");
            return Config::default();
        }
        let mut workers = Workers::default();
        for (name, table) in &file.worker {
            self.worker(name, table, &mut workers);
        }
        let announcing = announcing(&file, &workers);
        self.announces |= !announcing.is_empty();
        let (mut classes, mut limits) = (Vec::new(), FileLimits::default());
        for (name, table) in &file.class {
            self.class_name(name.get_ref(), name.span());
            classes.extend(self.class(name, table, &mut workers, &mut limits));
        }
        let database = self.database(file.database);
        let limits = self.other_limits(&file.queue, &file.limit, &mut limits);
        // Classes that only their worker names.
        for (class, worker) in &workers.of_class {
            let is_known = classes.iter().any(|one: &Executable| one.class == *class);
            if let Some(worker) = workers.by_name.get(worker).filter(|_| !is_known) {
                classes.push(Executable::new(class, ExecutableMode::Lines(worker.clone())));
            }
        }
        let schedules = file.schedule.iter();
        let schedules =
            schedules.filter_map(|(name, table)| self.schedule(name, table, &classes)).collect();
        let announcing = (!announcing.is_empty())
            .then(|| AnnouncingFile::new(self.text, self.folder, self.purpose, announcing));
        let options =
            if self.announces { announced::options(self.text) } else { toml::Table::new() };
        Config { database, classes, schedules, limits, announcing, options }
    }

    /// The URL of the database. A path is relative to the folder of the file.
    fn database(&mut self, url: Option<Spanned<ConfigText>>) -> Option<String> {
        let url = url?;
        match Database::parse(url.get_ref(), None) {
            Ok(Database::File(path)) => {
                Some(format!("sqlite:{}", self.folder.join(path).display()))
            }
            Ok(_) => Some(url.get_ref().to_string()),
            Err(error) => {
                let message = error.to_string();
                self.error(url.span(), message.lines().next().unwrap_or_default());
                None
            }
        }
    }

    fn class_name(&mut self, name: &str, span: Range<usize>) {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let message = format!(
                "the name of a class has 1 to {NAME_BYTES_MAX} bytes, without control characters"
            );
            self.error(span, message);
        }
    }

    fn worker(&mut self, name: &SpannedName, table: &WorkerTable, workers: &mut Workers) {
        let (processes, concurrency) =
            self.slots(name, table.processes.as_ref(), table.concurrency.as_ref());
        for class in table.classes.iter().flat_map(|classes| classes.get_ref()) {
            self.class_name(class.get_ref(), class.span());
            let class_name = class.get_ref().to_string();
            if let Some(other) = workers.of_class.insert(class_name, name.get_ref().clone()) {
                let message =
                    format!("class {} is served by worker {other} already", &**class.get_ref());
                self.error(class.span(), message);
            }
        }
        let program = self.program(
            ("worker", name),
            table.command.as_ref(),
            table.env.as_ref(),
            table.pass_env.as_ref(),
            table.folder.as_ref(),
        );
        let program = program.unwrap_or_default();
        let name = name.get_ref().clone();
        let worker = Worker { name: name.clone(), program, processes, concurrency };
        workers.by_name.insert(name, Arc::new(worker));
    }

    /// How many processes, and how many tasks in each.
    fn slots(
        &mut self,
        name: &SpannedName,
        processes: Option<&Processes>,
        concurrency: Option<&Concurrency>,
    ) -> (usize, usize) {
        let processes = processes.map_or(1, |number| number.get_ref().0);
        let concurrency = concurrency.map_or(1, |number| number.get_ref().0);
        if processes * concurrency > SLOTS_MAX {
            let message = format!(
                "{}: processes × concurrency is {}, and at most {SLOTS_MAX}",
                name.get_ref(),
                processes * concurrency
            );
            self.error(name.span(), message);
        }
        (processes, concurrency)
    }

    fn class(
        &mut self,
        name: &SpannedName,
        table: &ClassTable,
        workers: &mut Workers,
        limits: &mut FileLimits,
    ) -> Option<Executable> {
        let mode = self.mode(name, table, workers);
        let queue = self.queue(table.queue.as_ref());
        let secret = self.secret(table.secret.as_ref());
        let limits = self.class_limits(name.get_ref(), table, &secret, limits);
        Some(Executable {
            timeout: table.timeout.map(|time| time.0),
            grace: table.grace.map_or(GRACE, |time| time.0),
            retry: retry_rule(&table.retry),
            queue,
            priority: table.priority.unwrap_or(0),
            result_bytes: table.result_bytes.map_or(BYTES_MAX, |number| number.0),
            log_lines: table.log_lines.map_or(LINES_MAX, |number| number.0),
            secret,
            limits,
            ..Executable::new(name.get_ref(), mode?)
        })
    }

    /// A program of its own, or the worker that serves it.
    fn mode(
        &mut self,
        name: &SpannedName,
        table: &ClassTable,
        workers: &mut Workers,
    ) -> Option<ExecutableMode> {
        let class = name.get_ref();
        let listed = workers.of_class.get(class).cloned();
        if let Some(worker) = &table.worker {
            let worker_name: &str = worker.get_ref();
            if !workers.by_name.contains_key(worker_name) {
                let known = workers.by_name.keys().map(String::as_str);
                let hint = match nearest(worker_name, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("write [worker.{worker_name}] with its command"),
                };
                let message = format!("there is no worker {worker_name:?}; {hint}");
                self.error(worker.span(), message);
            } else if let Some(other) = listed.as_ref().filter(|other| *other != worker_name) {
                self.error(worker.span(), format!("class {class} is listed in worker {other}"));
            }
            workers.of_class.insert(class.clone(), worker_name.to_owned());
        }
        let worker = table.worker.as_ref().map(|worker| worker.get_ref().to_string()).or(listed);
        let Some(worker) = worker else {
            return self.own_program(name, table);
        };
        for (key, span) in [
            ("command", span(&table.command)),
            ("env", span(&table.env)),
            ("pass_env", span(&table.pass_env)),
            ("folder", span(&table.folder)),
            ("mode", span(&table.mode)),
            ("processes", span(&table.processes)),
            ("concurrency", span(&table.concurrency)),
        ] {
            if let Some(span) = span {
                let message =
                    format!("{key} belongs into [worker.{worker}], which serves this class");
                self.error(span, message);
            }
        }
        workers.by_name.get(&worker).cloned().map(ExecutableMode::Lines)
    }

    /// The program of a class that no worker of the file serves.
    fn own_program(&mut self, name: &SpannedName, table: &ClassTable) -> Option<ExecutableMode> {
        let is_lines = table.mode.as_ref().is_some_and(|mode| *mode.get_ref() == ModeName::Lines);
        let (processes, concurrency) =
            self.slots(name, table.processes.as_ref(), table.concurrency.as_ref());
        for (key, span) in
            [("processes", span(&table.processes)), ("concurrency", span(&table.concurrency))]
        {
            if let Some(span) = span.filter(|_| !is_lines) {
                let message = format!(
                    "{key} is for mode = \"lines\" only; in mode = \"once\", each worker of the engine runs one process"
                );
                self.error(span, message);
            }
        }
        let is_create = self.purpose == ConfigPurpose::Create;
        if table.command.is_none() && (self.announces || is_create) {
            // A worker announces it: until then, nothing is known of its program.
            return is_create.then(|| ExecutableMode::Once(Program::default()));
        }
        let program = self.program(
            ("class", name),
            table.command.as_ref(),
            table.env.as_ref(),
            table.pass_env.as_ref(),
            table.folder.as_ref(),
        )?;
        let name = name.get_ref().clone();
        Some(if is_lines {
            ExecutableMode::Lines(Arc::new(Worker { name, program, processes, concurrency }))
        } else {
            ExecutableMode::Once(program)
        })
    }

    fn queue(&mut self, name: Option<&Spanned<ConfigText>>) -> Option<String> {
        let name = name?;
        if let Err(error) = check_queue_name(name.get_ref()) {
            self.error(name.span(), error.to_string());
        }
        Some(name.get_ref().to_string())
    }

    fn secret(&mut self, paths: Option<&Texts>) -> Vec<String> {
        let Some(named) = paths else {
            return Vec::new();
        };
        let paths: Vec<String> = named.get_ref().iter().map(|p| p.get_ref().to_string()).collect();
        if let Err(error) = secret::check(&paths) {
            self.error(named.span(), error.to_string());
        }
        paths
    }
}

/// The workers that serve no class of the file.
fn announcing(file: &ConfigFile, workers: &Workers) -> Vec<Arc<Worker>> {
    let named = |name: &str| {
        let listed = workers.of_class.values().any(|worker| worker == name);
        let mut classes = file.class.values();
        listed || classes.any(|class| class.worker.as_ref().is_some_and(|w| &**w.get_ref() == name))
    };
    let quiet = workers.by_name.iter().filter(|(name, _)| !named(name));
    quiet.map(|(_, worker)| worker.clone()).collect()
}

fn span<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
    value.as_ref().map(Spanned::span)
}

fn retry_rule(table: &RetryTable) -> RetryRule {
    let mut rule = RetryRule::default();
    if let Some(maximum) = table.maximum {
        rule.maximum = u32::try_from(maximum.0).unwrap_or(u32::MAX);
    }
    rule.first_delay = table.first_delay.map_or(rule.first_delay, |time| time.0);
    rule.factor = table.factor.map_or(rule.factor, |number| number.0);
    rule.cap = table.cap.map_or(rule.cap, |time| time.0);
    rule.jitter = table.jitter.map_or(rule.jitter, |number| number.0);
    rule.restart_after_progress =
        table.restart_after_progress.unwrap_or(rule.restart_after_progress);
    rule
}

#[cfg(test)]
mod tests;
