//! Secret parameters: only the code of a task may see them.
//!
//! A class lists their paths ([`Task::SECRETS`](crate::task::Task::SECRETS)), and each task
//! has the paths in its context, so that it stays protected when no engine is registered.
//! The store keeps the values, because the code needs them, and an export contains them.
//! Everywhere else they are replaced by `[secret]`: an engine redacts errors, logs and
//! progress before it writes them, and readers redact the rest ([`Redactor`]).
//!
//! A secret is found in plain text and with the escapes of JSON, string literals and URLs.
//! A value derived from it (a hash, a part, base64) is not recognised.

mod placeholder;
pub mod request;
mod rewrite;
mod unescape;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::attempt::TaskError;
use crate::instance::InstanceRow;
use crate::json::Json;
use crate::progress::LogRow;
use crate::schedule::ScheduleDefinition;
use crate::schedule::row::ScheduleRow;
use crate::step::{StepKind, TaskSteps};
use crate::task::{TaskDetails, TaskOptions};

pub use placeholder::{UnexpectedPlaceholder, refuse_placeholders, restore};

/// Replaces a secret in output.
pub const PLACEHOLDER: &str = "[secret]";
/// The field of the context with the paths of a task's secrets.
pub(crate) const CONTEXT_NAME: &str = "secret_parameters";
/// The longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 200;
/// The most paths of a class.
pub const PATHS_MAX: usize = 100;
/// Shorter texts are not redacted in messages: they occur everywhere, so replacing them
/// would garble the message and hide nothing.
const CHARS_MIN: usize = 4;

/// The error of an invalid path of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecretPath {
    /// The text is not a path like `password` or `card.number`.
    #[error(
        "{0:?} is not the path of a secret parameter; use names separated by dots, like \"password\" or \"card.number\", of at most {PATH_BYTES_MAX} bytes and without control characters"
    )]
    Path(String),
    /// A task has too many paths: name a whole object instead.
    #[error("{0} secret parameters are too many (at most {PATHS_MAX}); name a whole object")]
    TooMany(usize),
}

/// Checks paths of secret parameters.
pub fn check(paths: &[impl AsRef<str>]) -> Result<(), InvalidSecretPath> {
    if paths.len() > PATHS_MAX {
        return Err(InvalidSecretPath::TooMany(paths.len()));
    }
    for path in paths.iter().map(AsRef::as_ref) {
        let named = path.split('.').all(|step| !step.trim().is_empty());
        if !named || path.len() > PATH_BYTES_MAX || path.chars().any(char::is_control) {
            return Err(InvalidSecretPath::Path(path.chars().take(PATH_BYTES_MAX).collect()));
        }
    }
    Ok(())
}

/// Redacts the secrets of one task.
///
/// Without secrets it changes nothing.
#[derive(Clone, Default, PartialEq)]
pub struct Redactor {
    /// The secret texts.
    texts: Vec<String>,
    /// The redacted parameters; `None` if there are no secrets.
    parameters: Option<Json>,
    /// Whether it hides the marks of an HTTP request. The default redactor does not.
    hides_request: bool,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} texts)", self.texts.len())
    }
}

/// Returns the parameters of a task without its secrets, for logs.
pub fn redacted<'a>(parameters: &'a Json, context: &Json) -> Cow<'a, Json> {
    match Redactor::of(parameters, context, &[""; 0]).parameters {
        Some(redacted) => Cow::Owned(redacted),
        None => Cow::Borrowed(parameters),
    }
}

impl Redactor {
    /// Creates a redactor for a task with these parameters and this context, of a class with these
    /// secret paths.
    ///
    /// The paths in the context are added.
    #[must_use]
    pub fn of(parameters: &Json, context: &Json, paths: &[impl AsRef<str>]) -> Self {
        let Some(own) = paths_in(context) else {
            // The paths are unreadable: treat every parameter as secret.
            return Self::with(parameters, &["*".to_owned()]);
        };
        let mut all: Vec<String> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        all.extend(own);
        if all.is_empty() {
            return Self { hides_request: true, ..Self::default() };
        }
        Self::with(parameters, &all)
    }

    fn with(parameters: &Json, paths: &[String]) -> Self {
        let paths: Vec<Vec<&str>> = paths.iter().map(|path| path.split('.').collect()).collect();
        let mut secrets = BTreeSet::new();
        let parameters = rewrite::without_paths(parameters, &paths, &mut secrets);
        let texts = parts(secrets);
        let mut redactor = Self { texts, parameters: None, hides_request: true };
        redactor.parameters = Some(redactor.json(&parameters));
        redactor
    }

    /// Returns whether there are no secrets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parameters.is_none()
    }

    /// Returns the redacted parameters; `None` if there are no secrets.
    #[must_use]
    pub fn parameters(&self) -> Option<&Json> {
        self.parameters.as_ref()
    }

    /// Redacts a text.
    ///
    /// The beginning of a secret at the end of a text that was cut is redacted, too.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.texts.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut places = self.places(text);
        for reading in unescape::readings(text) {
            let in_reading = self.places(&reading.text);
            places.extend(in_reading.into_iter().map(|(begin, end)| reading.place(begin, end)));
        }
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        places.sort_unstable();
        let (mut redacted, mut at) = (String::with_capacity(text.len()), 0);
        for (begin, end) in places {
            if begin >= at {
                redacted.push_str(&text[at..begin]);
                redacted.push_str(PLACEHOLDER);
            }
            at = at.max(end);
        }
        redacted.push_str(&text[at..]);
        Cow::Owned(redacted)
    }

    /// The byte ranges of secrets in a text.
    fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for secret in &self.texts {
            let mut from = 0;
            while let Some(at) = text[from..].find(secret.as_str()) {
                let begin = from + at;
                places.push((begin, begin + secret.len()));
                // The next occurrence may overlap this one.
                from = begin + text[begin..].chars().next().map_or(1, char::len_utf8);
            }
            places.extend(secret_cut_at_end(text, secret).map(|begin| (begin, text.len())));
        }
        places
    }

    /// Redacts the strings, names and numbers of a JSON value.
    #[must_use]
    pub fn json(&self, json: &Json) -> Json {
        if self.texts.is_empty() {
            return json.clone();
        }
        rewrite::without_texts(json, self)
    }

    /// Returns whether the whole text is a secret.
    pub fn is_secret(&self, text: &str) -> bool {
        self.texts.iter().any(|secret| secret == text)
    }

    /// Redacts an error.
    pub fn error(&self, error: &mut TaskError) {
        let lines = error.backtrace.iter_mut();
        for text in lines.chain([&mut error.exception, &mut error.message]) {
            self.replace(text);
        }
    }

    /// Redacts a task and everything recorded about it.
    pub fn task(&self, task: &mut TaskDetails) {
        if self.hides_request {
            request::hide(&mut task.context);
        }
        let Some(parameters) = &self.parameters else { return };
        task.parameters = parameters.clone();
        task.context = self.json(&task.context);
        self.replace(&mut task.correlation_id);
        task.row.error.iter_mut().for_each(|error| self.error(error));
        for execution in &mut task.executions {
            self.end(&mut execution.result, &mut execution.error);
            execution.progress.iter_mut().for_each(|it| self.replace(&mut it.message));
        }
        for late in &mut task.late_results {
            self.end(&mut late.result, &mut late.error);
        }
    }

    fn end(&self, result: &mut Option<Json>, error: &mut Option<TaskError>) {
        result.iter_mut().for_each(|result| *result = self.json(result));
        error.iter_mut().for_each(|error| self.error(error));
    }

    /// Redacts lines of a log.
    pub fn log(&self, lines: &mut [LogRow]) {
        lines.iter_mut().for_each(|line| self.replace(&mut line.message));
    }

    /// Redacts recorded steps and signals.
    ///
    /// The ids of child tasks are no secrets.
    pub fn steps(&self, steps: &mut TaskSteps) {
        for step in &mut steps.steps {
            self.replace(&mut step.name);
            if step.kind != StepKind::Call {
                step.result.iter_mut().for_each(|result| *result = self.json(result));
            }
        }
        for signal in &mut steps.signals {
            self.replace(&mut signal.name);
            signal.payload = self.json(&signal.payload);
        }
    }

    fn replace(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.text(text) {
            *text = redacted;
        }
    }
}

/// The secret paths of classes, as engines declared them.
#[derive(Debug, Clone, Default)]
pub struct Secrets(BTreeMap<String, BTreeSet<String>>);

impl Secrets {
    /// Returns the secret paths that these engines declared.
    #[must_use]
    pub fn of(engines: &[InstanceRow]) -> Self {
        let mut secrets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (class, TaskOptions { secret, .. }) in engines.iter().flat_map(|one| &one.classes) {
            if !secret.is_empty() {
                secrets.entry(class.clone()).or_default().extend(secret.iter().cloned());
            }
        }
        Self(secrets)
    }

    /// Returns whether any class has secrets.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the secret paths of a class.
    #[must_use]
    pub fn of_class(&self, class: &str) -> Vec<String> {
        self.0.get(class).into_iter().flatten().cloned().collect()
    }

    /// Returns the redactor for a task.
    #[must_use]
    pub fn redactor(&self, class: &str, parameters: &Json, context: &Json) -> Redactor {
        Redactor::of(parameters, context, &self.of_class(class))
    }

    /// Redacts the parameters of a schedule, also of one that another version of this
    /// program wrote.
    pub fn schedule(&self, row: &mut ScheduleRow) {
        #[derive(Deserialize)]
        struct TaskFields {
            class: String,
            context: Box<RawValue>,
        }
        let definition = &mut row.state.definition;
        let Ok(fields) = definition.decode::<TaskFields>() else { return };
        let context = Json::from_store(fields.context.get().to_owned());
        let paths = match paths_in(&context) {
            Some(own) => [own, self.of_class(&fields.class)].concat(),
            None => vec!["*".to_owned()],
        };
        let paths: Vec<_> = paths.iter().map(|path| format!("parameters.{path}")).collect();
        let redactor = Redactor::of(definition, &Json::empty_object(), &paths);
        if let Some(redacted) = redactor.parameters() {
            *definition = redacted.clone();
        }
    }

    /// Restores secrets in a definition that a user edited without seeing them: placeholders become
    /// the stored values, and secret paths stay secret.
    ///
    /// Values never move to another class, where they may not be secret.
    pub fn restore(
        &self,
        new: &mut ScheduleDefinition,
        stored: &ScheduleDefinition,
    ) -> Result<(), UnexpectedPlaceholder> {
        if new.class != stored.class {
            return refuse_placeholders(&new.parameters, true);
        }
        let before = &stored.parameters;
        let redactor = self.redactor(&stored.class, before, &stored.context);
        new.parameters = restore(&new.parameters, before, redactor.parameters())?;
        if let Some(paths) = paths_in(&stored.context).filter(|paths| !paths.is_empty()) {
            add_paths(&mut new.context, paths);
        }
        Ok(())
    }

    /// Returns the redactor for a task with its details.
    #[must_use]
    pub fn redactor_of(&self, task: &TaskDetails) -> Redactor {
        self.redactor(&task.row.class, &task.parameters, &task.context)
    }
}

/// Returns the secret paths in a context; `None` if the field is not a list of texts.
pub fn paths_in(context: &Json) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct SecretPaths {
        #[serde(default)]
        secret_parameters: Vec<String>,
    }
    // The common case needs no parsing.
    if !context.as_str().contains(CONTEXT_NAME) {
        return Some(Vec::new());
    }
    context.decode::<SecretPaths>().ok().map(|paths| paths.secret_parameters)
}

/// Adds secret paths to a context.
fn add_paths(context: &mut Json, mut paths: Vec<String>) {
    let Ok(mut fields) = context.decode::<BTreeMap<String, Box<RawValue>>>() else { return };
    paths.extend(paths_in(context).unwrap_or_default());
    paths.sort();
    paths.dedup();
    if let Ok(paths) = serde_json::value::to_raw_value(&paths) {
        fields.insert(CONTEXT_NAME.to_owned(), paths);
    }
    if let Ok(with_paths) = Json::encode(&fields) {
        *context = with_paths;
    }
}

/// The secrets, and the lines of secrets with several lines: logs have single lines.
fn parts(secrets: BTreeSet<String>) -> Vec<String> {
    let mut parts = BTreeSet::new();
    for secret in secrets {
        if secret.contains('\n') {
            parts.extend(secret.lines().map(|line| line.trim().to_owned()));
        }
        parts.insert(secret);
    }
    parts.retain(|part| part.chars().count() >= CHARS_MIN);
    parts.into_iter().collect()
}

/// The position of the beginning of a secret at the end of a text.
fn secret_cut_at_end(text: &str, secret: &str) -> Option<usize> {
    let lengths = secret.char_indices().skip(CHARS_MIN).map(|(length, _)| length);
    let cut = lengths.filter(|length| text.ends_with(&secret[..*length])).max();
    cut.map(|length| text.len() - length)
}

#[cfg(test)]
mod tests;
