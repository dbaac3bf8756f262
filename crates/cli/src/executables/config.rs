//! `task-engine.toml`: which executable runs for which class, and how; regular
//! tasks; and the database.
//!
//! All mistakes of a file are found at once, each with its line and column, and
//! without a database.

mod programs;
mod schedules;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use task_engine::{ClassRules, RetryRule, Schedule};
use task_engine_core::json::BYTES_MAX;
use task_engine_core::queue::check_queue_name;
use task_engine_core::report::LINES_MAX;
use task_engine_core::retry::DELAY_MAX;
use task_engine_core::secret;
use task_engine_core::task::NAME_BYTES_MAX;
use toml::de::DeTable;

pub(super) use self::programs::ATTEMPT_VARIABLES;
use self::programs::PROGRAM_KEYS;
pub(crate) use self::values::nearest;
use self::values::{Key, Value, entry, most};
use crate::database::Database;

/// The file that is read if none is named.
pub(crate) const FILE: &str = "task-engine.toml";

const GRACE: Duration = Duration::from_secs(5);
/// How many tasks one worker has at a time, in all of its processes.
const SLOTS_MAX: usize = 10_000;

const TOP_KEYS: [&str; 4] = ["class", "worker", "schedule", "database"];
const CLASS_KEYS: [&str; 16] = [
    "command",
    "worker",
    "mode",
    "processes",
    "concurrency",
    "env",
    "pass_env",
    "folder",
    "timeout",
    "grace",
    "retry",
    "queue",
    "priority",
    "result_bytes",
    "log_lines",
    "secret",
];
const WORKER_KEYS: [&str; 7] =
    ["command", "classes", "processes", "concurrency", "env", "pass_env", "folder"];
const RETRY_KEYS: [&str; 5] = ["maximum", "first_delay", "factor", "cap", "jitter"];

/// What a file says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// The URL; the path of an embedded database is absolute.
    pub(crate) database: Option<String>,
    pub(crate) classes: Vec<Executable>,
    pub(crate) schedules: Vec<Schedule>,
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
}

/// How an executable meets its tasks.
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
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) program: Program,
    /// How many processes at the most.
    pub(crate) processes: usize,
    /// How many tasks each has at a time.
    pub(crate) concurrency: usize,
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
        }
    }

    pub(crate) fn program(&self) -> &Program {
        match &self.mode {
            ExecutableMode::Once(program) => program,
            ExecutableMode::Lines(worker) => &worker.program,
        }
    }

    /// The rules of the class. The time limit is not among them: it is kept
    /// here, where the end of an attempt can wait for the end of its processes.
    pub(crate) fn rules(&self) -> ClassRules {
        let mut rules = ClassRules::default().retry(self.retry).cancel_grace(self.grace);
        if let Some(queue) = &self.queue {
            rules.queue.clone_from(queue);
        }
        rules.priority = self.priority;
        rules.secret.clone_from(&self.secret);
        rules
    }
}

/// Something in a file that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// For whom a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigPurpose {
    /// Programs and folders must be there.
    Run,
    /// They may be elsewhere: with the engine.
    Create,
    /// Only the database is asked for.
    Database,
}

/// Reads the text of a file that lies in `folder`, which must be absolute.
pub(crate) fn parse(text: &str, folder: &Path, purpose: ConfigPurpose) -> Result<Config, Vec<ConfigError>> {
    let mut reader = Reader { text, folder, purpose, mistakes: Vec::new() };
    let config = match DeTable::parse(text) {
        Ok(table) => reader.file(table.get_ref()),
        Err(error) => {
            let message = match error.message() {
                "duplicate key" => "this name is there twice; each class and key is given once",
                other => other,
            };
            reader.mistake(error.span().unwrap_or(0..0), message.trim_end().replace('\n', ", "));
            Config::default()
        }
    };
    if reader.mistakes.is_empty() {
        Ok(config)
    } else {
        reader.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(reader.mistakes)
    }
}

struct Reader<'a> {
    text: &'a str,
    folder: &'a Path,
    purpose: ConfigPurpose,
    mistakes: Vec<ConfigError>,
}

/// The workers of a file by name, and which of them has which class.
#[derive(Default)]
struct Workers {
    by_name: BTreeMap<String, Arc<Worker>>,
    of_class: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn file(&mut self, table: &DeTable<'_>) -> Config {
        let database = entry(table, "database").and_then(|(_, value)| self.database(value));
        if self.purpose == ConfigPurpose::Database {
            return Config { database, ..Config::default() };
        }
        self.unknown_keys(table, &TOP_KEYS, "a file has tables like [class.NAME]");
        if !["class", "worker", "schedule"].iter().any(|key| entry(table, key).is_some()) {
            self.mistake(
                0..0,
                "there is no class; write [class.NAME] and command = [\"./PROGRAM\"]",
            );
            return Config::default();
        }
        let mut workers = Workers::default();
        let worker_tables = self.named_tables(table, "worker");
        for (name, table) in &worker_tables {
            self.worker(name, table, &mut workers);
        }
        let mut classes = Vec::new();
        for (name, table) in self.named_tables(table, "class") {
            self.class_name(name.get_ref(), name.span());
            classes.extend(self.class(name, table, &mut workers));
        }
        for (name, _) in worker_tables {
            if !workers.of_class.values().any(|worker| *worker == **name.get_ref()) {
                let message = format!(
                    "worker {0} serves no class; write classes = [\"NAME\"], or worker = \"{0}\" in a class",
                    name.get_ref()
                );
                self.mistake(name.span(), message);
            }
        }
        let named = |class: &str| classes.iter().any(|one: &Executable| one.class == class);
        let listed = workers.of_class.iter().filter(|(class, _)| !named(class));
        let listed: Vec<_> = listed
            .filter_map(|(class, name)| {
                let worker = workers.by_name.get(name)?;
                Some(Executable::new(class, ExecutableMode::Lines(worker.clone())))
            })
            .collect();
        classes.extend(listed);
        let mut schedules = Vec::new();
        for (name, table) in self.named_tables(table, "schedule") {
            schedules.extend(self.schedule(name, table, &classes));
        }
        Config { database, classes, schedules }
    }

    /// The tables `[KIND.NAME]`.
    fn named_tables<'t, 'i>(
        &mut self,
        table: &'t DeTable<'i>,
        kind: &str,
    ) -> Vec<(&'t Key<'i>, &'t DeTable<'i>)> {
        let Some((_, value)) = entry(table, kind) else {
            return Vec::new();
        };
        let Some(tables) = self.table(value, kind) else {
            return Vec::new();
        };
        let mut named = Vec::new();
        for (name, value) in tables {
            if let Some(table) = self.table(value, &format!("{kind} {}", name.get_ref())) {
                named.push((name, table));
            }
        }
        named
    }

    /// The URL of the database. A path is seen from the folder of the file.
    fn database(&mut self, value: &Value<'_>) -> Option<String> {
        let url = self.text(value, "database")?;
        match Database::parse(&url, None) {
            Ok(Database::File(path)) => {
                Some(format!("sqlite:{}", self.folder.join(path).display()))
            }
            Ok(_) => Some(url),
            Err(wrong) => {
                let wrong = wrong.to_string();
                self.mistake(value.span(), wrong.lines().next().unwrap_or_default());
                None
            }
        }
    }

    fn class_name(&mut self, name: &str, span: std::ops::Range<usize>) {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let message = format!(
                "the name of a class has 1 to {NAME_BYTES_MAX} bytes, without control characters"
            );
            self.mistake(span, message);
        }
    }

    fn worker(&mut self, name: &Key<'_>, table: &DeTable<'_>, workers: &mut Workers) {
        self.unknown_keys(table, &WORKER_KEYS, "see `task-engine start --help`");
        let (processes, concurrency) = self.slots(name, table);
        if let Some((_, value)) = entry(table, "classes") {
            for class in self.texts(value, "classes").unwrap_or_default() {
                self.class_name(&class, value.span());
                let before = workers.of_class.insert(class.clone(), name.get_ref().to_string());
                if let Some(other) = before {
                    let message = format!("class {class} is served by worker {other} already");
                    self.mistake(value.span(), message);
                }
            }
        }
        let Some((_, command)) = entry(table, "command") else {
            let message = format!(
                "worker {} has no command; write command = [\"./PROGRAM\", \"ARGUMENT\"]",
                name.get_ref()
            );
            self.mistake(name.span(), message);
            return;
        };
        let program = self.program(table, command);
        let name = name.get_ref().to_string();
        let program = program.unwrap_or_default();
        let worker = Worker { name: name.clone(), program, processes, concurrency };
        workers.by_name.insert(name, Arc::new(worker));
    }

    /// How many processes, and how many tasks in each.
    fn slots(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> (usize, usize) {
        let processes = self.whole(table, "processes", 1, 1000).unwrap_or(1);
        let concurrency = self.whole(table, "concurrency", 1, most(SLOTS_MAX)).unwrap_or(1);
        if processes * concurrency > SLOTS_MAX {
            let message = format!(
                "{}: processes × concurrency is {}, and at most {SLOTS_MAX}",
                name.get_ref(),
                processes * concurrency
            );
            self.mistake(name.span(), message);
        }
        (processes, concurrency)
    }

    fn class(
        &mut self,
        name: &Key<'_>,
        table: &DeTable<'_>,
        workers: &mut Workers,
    ) -> Option<Executable> {
        self.unknown_keys(table, &CLASS_KEYS, "see `task-engine start --help`");
        let mode = self.mode(name, table, workers);
        let executable = Executable {
            timeout: self.duration(table, "timeout", DELAY_MAX),
            grace: self.duration(table, "grace", DELAY_MAX).unwrap_or(GRACE),
            retry: self.retry(table),
            queue: self.queue(table),
            priority: self.whole(table, "priority", i32::MIN.into(), i32::MAX.into()).unwrap_or(0),
            result_bytes: self
                .whole(table, "result_bytes", 1, most(BYTES_MAX))
                .unwrap_or(BYTES_MAX),
            log_lines: self.whole(table, "log_lines", 0, most(LINES_MAX)).unwrap_or(LINES_MAX),
            secret: self.secret(table),
            ..Executable::new(name.get_ref(), ExecutableMode::Once(Program::default()))
        };
        Some(Executable { mode: mode?, ..executable })
    }

    /// A program of its own, or the worker that serves it.
    fn mode(&mut self, name: &Key<'_>, table: &DeTable<'_>, workers: &mut Workers) -> Option<ExecutableMode> {
        let class = name.get_ref();
        let listed = workers.of_class.get(&**class).cloned();
        let named = entry(table, "worker").map(|(_, value)| (value, self.text(value, "worker")));
        if let Some((value, Some(worker))) = &named {
            if !workers.by_name.contains_key(worker) {
                let known: Vec<&str> = workers.by_name.keys().map(String::as_str).collect();
                let hint = match nearest(worker, &known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("write [worker.{worker}] with its command"),
                };
                self.mistake(value.span(), format!("there is no worker {worker:?}; {hint}"));
            } else if listed.as_ref().is_some_and(|other| other != worker) {
                let other = listed.clone().unwrap_or_default();
                let message = format!("class {class} is listed in worker {other}");
                self.mistake(value.span(), message);
            }
            workers.of_class.insert(class.to_string(), worker.clone());
        }
        let worker = named.and_then(|(_, name)| name).or(listed);
        let Some(worker) = worker else {
            return self.own_program(name, table);
        };
        for key in PROGRAM_KEYS.into_iter().chain(["mode", "processes", "concurrency"]) {
            if let Some((key, _)) = entry(table, key) {
                let message = format!(
                    "{0} belongs into [worker.{worker}], which serves this class",
                    key.get_ref()
                );
                self.mistake(key.span(), message);
            }
        }
        workers.by_name.get(&worker).cloned().map(ExecutableMode::Lines)
    }

    /// The program of a class that is served by no worker of the file.
    fn own_program(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> Option<ExecutableMode> {
        let lines = self.is_lines(table);
        let (processes, concurrency) = self.slots(name, table);
        if !lines {
            for key in ["processes", "concurrency"] {
                if let Some((key, _)) = entry(table, key) {
                    let message = format!(
                        "{} is for mode = \"lines\" only; how many processes run at a time is said by the workers of the engine",
                        key.get_ref()
                    );
                    self.mistake(key.span(), message);
                }
            }
        }
        let Some((_, command)) = entry(table, "command") else {
            let message = format!(
                "class {} has no command; write command = [\"./PROGRAM\", \"ARGUMENT\"]",
                name.get_ref()
            );
            self.mistake(name.span(), message);
            self.environment(table);
            return None;
        };
        let program = self.program(table, command)?;
        let name = name.get_ref().to_string();
        Some(if lines {
            ExecutableMode::Lines(Arc::new(Worker { name, program, processes, concurrency }))
        } else {
            ExecutableMode::Once(program)
        })
    }

    fn is_lines(&mut self, table: &DeTable<'_>) -> bool {
        let Some((_, value)) = entry(table, "mode") else {
            return false;
        };
        match value.get_ref().as_str() {
            Some("once") => false,
            Some("lines") => true,
            _ => {
                self.mistake(
                    value.span(),
                    "a mode is \"once\" (one process a task) or \"lines\" (processes that stay)",
                );
                false
            }
        }
    }

    fn retry(&mut self, table: &DeTable<'_>) -> RetryRule {
        let mut rule = RetryRule::default();
        let Some((_, value)) = entry(table, "retry") else {
            return rule;
        };
        let Some(table) = self.table(value, "retry") else {
            return rule;
        };
        self.unknown_keys(table, &RETRY_KEYS, "a retry rule has no more");
        if let Some(maximum) = self.whole(table, "maximum", 0, 1_000_000) {
            rule.maximum = maximum;
        }
        if let Some(delay) = self.duration(table, "first_delay", DELAY_MAX) {
            rule.first_delay = delay;
        }
        if let Some(cap) = self.duration(table, "cap", DELAY_MAX) {
            rule.cap = cap;
        }
        if let Some(factor) = self.number(table, "factor", 1.0, 1000.0) {
            rule.factor = factor;
        }
        if let Some(jitter) = self.number(table, "jitter", 0.0, 1.0) {
            rule.jitter = jitter;
        }
        rule
    }

    fn queue(&mut self, table: &DeTable<'_>) -> Option<String> {
        let (_, value) = entry(table, "queue")?;
        let name = self.text(value, "queue")?;
        if let Err(error) = check_queue_name(&name) {
            self.mistake(value.span(), error.to_string());
        }
        Some(name)
    }

    fn secret(&mut self, table: &DeTable<'_>) -> Vec<String> {
        let Some((_, value)) = entry(table, "secret") else {
            return Vec::new();
        };
        let paths = self.texts(value, "secret").unwrap_or_default();
        if let Err(why) = secret::check(&paths) {
            self.mistake(value.span(), why.to_string());
        }
        paths
    }
}

#[cfg(test)]
mod tests;
