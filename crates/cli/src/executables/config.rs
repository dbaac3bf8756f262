//! `task-engine.toml`: which executable runs for which class, and how.
//!
//! All mistakes of a file are found at once, each with its line and column, and
//! without a database.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use task_engine::model::json::BYTES_MAX;
use task_engine::model::queue::check_queue_name;
use task_engine::model::report::LINES_MAX;
use task_engine::model::retry::DELAY_MAX;
use task_engine::model::secret;
use task_engine::model::task::NAME_BYTES_MAX;
use task_engine::{ClassRules, RetryRule};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::times::duration;

/// The file that is read if none is named.
pub(crate) const FILE: &str = "task-engine.toml";

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What an executable gets of the engine's environment without being asked for.
const PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
const GRACE: Duration = Duration::from_secs(5);

const TOP_KEYS: [&str; 1] = ["class"];
const CLASS_KEYS: [&str; 15] = [
    "command",
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
const RETRY_KEYS: [&str; 5] = ["maximum", "first_delay", "factor", "cap", "jitter"];

/// Classes that every engine of this program has.
const BUILT_IN: [&str; 6] = [
    "WaitingTask",
    "FailingTask",
    "FailingNotRetryTask",
    "FailingNotRetryExceptionTask",
    "ReportingTask",
    "WitnessTask",
];

/// A class and the executable that runs for it.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    pub(crate) class: String,
    /// Found already: an absolute path.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// All of its environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    pub(crate) mode: Mode,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One process a task.
    Once,
    /// Processes that stay, and take a line a task.
    Lines {
        /// How many processes at the most.
        processes: usize,
        /// How many tasks each has at a time; if nothing is said, what it says.
        concurrency: Option<usize>,
    },
}

impl Executable {
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
pub(crate) struct Mistake {
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// For whom a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Programs and folders must be there.
    Run,
    /// They may be elsewhere: with the engine.
    Create,
}

/// Reads the text of a file that lies in `folder`, which must be absolute.
pub(crate) fn parse(
    text: &str,
    folder: &Path,
    purpose: Purpose,
) -> Result<Vec<Executable>, Vec<Mistake>> {
    let mut reader = Reader { text, folder, purpose, mistakes: Vec::new() };
    let executables = match DeTable::parse(text) {
        Ok(table) => reader.file(table.get_ref()),
        Err(error) => {
            let message = match error.message() {
                "duplicate key" => "this name is there twice; each class and key is given once",
                other => other,
            };
            reader.mistake(error.span().unwrap_or(0..0), message.trim_end().replace('\n', ", "));
            Vec::new()
        }
    };
    if reader.mistakes.is_empty() {
        Ok(executables)
    } else {
        reader.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        Err(reader.mistakes)
    }
}

struct Reader<'a> {
    text: &'a str,
    folder: &'a Path,
    purpose: Purpose,
    mistakes: Vec<Mistake>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        let before = &self.text[..span.start.min(self.text.len())];
        let line_begins = before.rfind('\n').map_or(0, |at| at + 1);
        self.mistakes.push(Mistake {
            line: before.matches('\n').count() + 1,
            column: before[line_begins..].chars().count() + 1,
            message: message.into(),
        });
    }

    fn file(&mut self, table: &DeTable<'_>) -> Vec<Executable> {
        self.unknown_keys(table, &TOP_KEYS, "a file has tables like [class.NAME]");
        let Some((_, classes)) = entry(table, "class") else {
            self.mistake(
                0..0,
                "there is no class; write [class.NAME] and command = [\"./PROGRAM\"]",
            );
            return Vec::new();
        };
        let Some(classes) = self.table(classes, "class") else {
            return Vec::new();
        };
        let mut executables = Vec::new();
        for (name, value) in classes {
            self.class_name(name);
            if let Some(table) = self.table(value, &format!("class {}", name.get_ref())) {
                executables.extend(self.class(name, table));
            }
        }
        executables
    }

    fn class_name(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>) {
        let text = name.get_ref();
        let plain = text.strip_prefix("TaskEngine::Tasks::").unwrap_or(text);
        if BUILT_IN.contains(&plain) {
            self.mistake(
                name.span(),
                format!("{text} is a class of the engine itself; choose another name"),
            );
        }
        if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
            let message = format!(
                "the name of a class has 1 to {NAME_BYTES_MAX} bytes, without control characters"
            );
            self.mistake(name.span(), message);
        }
    }

    fn class(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        table: &DeTable<'_>,
    ) -> Option<Executable> {
        self.unknown_keys(table, &CLASS_KEYS, "see `task-engine start --help`");
        let environment = self.environment(table);
        let Some((_, command)) = entry(table, "command") else {
            let message = format!(
                "class {} has no command; write command = [\"./PROGRAM\", \"ARGUMENT\"]",
                name.get_ref()
            );
            self.mistake(name.span(), message);
            return None;
        };
        let command = self.command(command);
        let mode = self.mode(table);
        let folder = self.work_folder(table);
        let executable = Executable {
            class: name.get_ref().to_string(),
            environment,
            folder,
            mode,
            timeout: self.duration(table, "timeout", DELAY_MAX),
            grace: self.duration(table, "grace", DELAY_MAX).unwrap_or(GRACE),
            retry: self.retry(table),
            queue: self.queue(table),
            priority: self.whole(table, "priority", i32::MIN.into(), i32::MAX.into()).unwrap_or(0),
            result_bytes: self
                .whole(table, "result_bytes", 1, most(BYTES_MAX))
                .unwrap_or(BYTES_MAX),
            log_lines: self.whole(table, "log_lines", 0, most(LINES_MAX)).unwrap_or(usize::MAX),
            secret: self.secret(table),
            program: PathBuf::new(),
            arguments: Vec::new(),
        };
        let (program, arguments) = command?;
        Some(Executable { program, arguments, ..executable })
    }

    /// The program, found, and its arguments.
    fn command(&mut self, value: &Value<'_>) -> Option<(PathBuf, Vec<String>)> {
        if let Some(text) = value.get_ref().as_str() {
            let words: Vec<String> =
                text.split_whitespace().map(|word| format!("{word:?}")).collect();
            let message = format!(
                "a command is a list, because no shell reads it: command = [{}]",
                words.join(", ")
            );
            self.mistake(value.span(), message);
            return None;
        }
        let words = self.texts(value, "command")?;
        let Some((program, arguments)) =
            words.split_first().filter(|(program, _)| !program.is_empty())
        else {
            self.mistake(value.span(), "the command is empty; its first text is the program");
            return None;
        };
        let place = value.get_ref().as_array().and_then(|words| words.iter().next());
        let place = place.map_or(value.span(), Spanned::span);
        if words.iter().any(|word| word.contains('\0')) {
            self.mistake(value.span(), "a command cannot contain the character NUL");
            return None;
        }
        match find(program, self.folder) {
            Ok(found) => Some((found, arguments.to_vec())),
            Err(_) if self.purpose == Purpose::Create => Some((program.into(), arguments.to_vec())),
            Err(message) => {
                self.mistake(place, message);
                None
            }
        }
    }

    fn mode(&mut self, table: &DeTable<'_>) -> Mode {
        let processes = self.whole(table, "processes", 1, 1000);
        let concurrency = self.whole(table, "concurrency", 1, 10_000);
        let lines = match entry(table, "mode") {
            None => false,
            Some((_, value)) => match value.get_ref().as_str() {
                Some("once") => false,
                Some("lines") => true,
                _ => {
                    self.mistake(value.span(), "a mode is \"once\" (one process a task) or \"lines\" (processes that stay)");
                    return Mode::Once;
                }
            },
        };
        if lines {
            if let Some((key, _)) = entry(table, "log_lines") {
                self.mistake(key.span(), "log_lines is for one process a task only");
            }
            return Mode::Lines { processes: processes.unwrap_or(1), concurrency };
        }
        for key in ["processes", "concurrency"] {
            if let Some((key, _)) = entry(table, key) {
                let message = format!(
                    "{} is for mode = \"lines\" only; how many processes run at a time is said by the workers of the engine",
                    key.get_ref()
                );
                self.mistake(key.span(), message);
            }
        }
        Mode::Once
    }

    fn work_folder(&mut self, table: &DeTable<'_>) -> PathBuf {
        let Some((_, value)) = entry(table, "folder") else {
            return self.folder.to_owned();
        };
        let Some(text) = self.text(value, "folder") else {
            return self.folder.to_owned();
        };
        let folder = self.folder.join(text);
        if self.purpose == Purpose::Run && !folder.is_dir() {
            self.mistake(value.span(), format!("there is no folder {}", folder.display()));
        }
        folder
    }

    /// What is named, over what is passed on, over what is always there.
    fn environment(&mut self, table: &DeTable<'_>) -> Vec<(String, String)> {
        let mut environment: Vec<(String, String)> = PASSED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        for (name, value) in [("PATH", DEFAULT_PATH), ("LANG", "C.UTF-8")] {
            if !environment.iter().any(|(there, _)| there == name) {
                environment.push((name.to_owned(), value.to_owned()));
            }
        }
        if let Some((_, value)) = entry(table, "pass_env") {
            for name in self.texts(value, "pass_env").unwrap_or_default() {
                self.variable_name(&name, value.span());
                if let Ok(set) = env::var(&name) {
                    environment.push((name, set));
                }
            }
        }
        if let Some((_, value)) = entry(table, "env")
            && let Some(named) = self.table(value, "env")
        {
            for (name, value) in named {
                self.variable_name(name.get_ref(), name.span());
                if let Some(text) = self.text(value, name.get_ref()) {
                    environment.push((name.get_ref().to_string(), text));
                }
            }
        }
        environment
    }

    fn variable_name(&mut self, name: &str, span: Range<usize>) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.mistake(span, format!("{name:?} cannot be the name of a variable"));
        } else if name.starts_with("TASK_ENGINE_") && FACTS.contains(&name) {
            self.mistake(span, format!("{name} is set by the engine for each attempt"));
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

    fn duration(&mut self, table: &DeTable<'_>, key: &str, most: Duration) -> Option<Duration> {
        let (_, value) = entry(table, key)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            other => {
                let message = format!("{key} is a duration like \"30s\", not {}", kind(other));
                self.mistake(value.span(), message);
                return None;
            }
        };
        match duration(&text) {
            Ok(time) if time.is_zero() => self.mistake(value.span(), format!("{key} cannot be 0")),
            Ok(time) if time > most => {
                self.mistake(value.span(), format!("{key} is more than a year"));
            }
            Ok(time) => return Some(time),
            Err(why) => self.mistake(value.span(), format!("{key} = {text:?}: {why}")),
        }
        None
    }

    fn whole<N: TryFrom<i64>>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        least: i64,
        most: i64,
    ) -> Option<N> {
        let (_, value) = entry(table, key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        let fits = number.filter(|number| (least..=most).contains(number));
        let fits = fits.and_then(|number| N::try_from(number).ok());
        if fits.is_none() {
            let message = format!("{key} is a whole number from {least} to {most}");
            self.mistake(value.span(), message);
        }
        fits
    }

    fn number(&mut self, table: &DeTable<'_>, key: &str, least: f64, most: f64) -> Option<f64> {
        let (_, value) = entry(table, key)?;
        let text = match value.get_ref() {
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => "",
        };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.mistake(value.span(), format!("{key} is a number from {least} to {most}"));
        }
        number
    }

    fn text(&mut self, value: &Value<'_>, key: &str) -> Option<String> {
        let text = value.get_ref().as_str().filter(|text| !text.contains('\0'));
        if text.is_none() {
            let message = format!("{key} is a text in quotes, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
        }
        text.map(str::to_owned)
    }

    fn texts(&mut self, value: &Value<'_>, key: &str) -> Option<Vec<String>> {
        let Some(list) = value.get_ref().as_array() else {
            let message = format!("{key} is a list of texts, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
            return None;
        };
        list.iter().map(|value| self.text(value, "each of the list")).collect()
    }

    fn table<'t, 'i>(&mut self, value: &'t Value<'i>, what: &str) -> Option<&'t DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let message = format!("{what} is a table, not {}", kind(value.get_ref()));
            self.mistake(value.span(), message);
        }
        table
    }

    fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[&str], otherwise: &str) {
        for key in table.keys() {
            let name = key.get_ref();
            if known.contains(&&**name) {
                continue;
            }
            let hint = match nearest(name, known) {
                Some(meant) => format!("did you mean {meant}?"),
                None if known.len() > 1 => format!("known are {}", known.join(", ")),
                None => otherwise.to_owned(),
            };
            self.mistake(key.span(), format!("{name:?} is not a known key; {hint}"));
        }
    }
}

/// Variables that tell an executable which attempt it runs for.
pub(super) const FACTS: [&str; 6] = [
    "TASK_ENGINE_TASK_ID",
    "TASK_ENGINE_ATTEMPT",
    "TASK_ENGINE_RETRY_NUMBER",
    "TASK_ENGINE_CORRELATION_ID",
    "TASK_ENGINE_PARENT_ID",
    "TASK_ENGINE_CLASS",
];

fn most(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

type Entry<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Value<'i>);

fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<Entry<'t, 'i>> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The program that a name means: a path is seen from the folder of the file; a
/// bare name is looked for beside the file, then in PATH.
fn find(name: &str, folder: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path: PathBuf = folder.join(name).components().collect();
        return if path.exists() {
            runnable(path)
        } else {
            Err(format!("there is no program {}", path.display()))
        };
    }
    let beside = folder.join(name);
    if beside.is_file() {
        return runnable(beside);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let found = env::split_paths(&path)
        .filter(|place| place.is_absolute())
        .map(|place| place.join(name))
        .find(|path| path.is_file() && runnable(path.clone()).is_ok());
    found.ok_or_else(|| {
        format!("there is no program {name:?}, neither in {} nor in PATH", folder.display())
    })
}

fn runnable(path: PathBuf) -> Result<PathBuf, String> {
    let there = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !there.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    if there.permissions().mode() & 0o111 == 0 {
        return Err(format!("{0} may not be executed; run: chmod +x {0}", path.display()));
    }
    match interpreter(&path).filter(|named| named.is_absolute() && !named.exists()) {
        None => Ok(path),
        Some(named) if named.as_os_str().as_bytes().ends_with(b"\r") => Err(format!(
            "{} has the line ends of Windows, which its first line must not have; convert it",
            path.display()
        )),
        Some(named) => Err(format!(
            "{} cannot run: its first line names {}, which does not exist",
            path.display(),
            named.display()
        )),
    }
}

/// What runs a script, by its first line. The system would only say that there is
/// no such file, and mean this one.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(script).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(OsStr::from_bytes(words.next()?).into())
}

/// The known word that a mistyped one was most likely meant to be.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let ranked = known.iter().map(|known| (strsim::levenshtein(&word, known), *known));
    ranked.min().filter(|(away, known)| *away <= 1 + known.len() / 4).map(|(_, known)| known)
}

#[cfg(test)]
mod tests;
