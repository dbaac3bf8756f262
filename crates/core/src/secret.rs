//! Parameters that are nobody's business but the code's.
//!
//! A class names them ([`Task::SECRETS`](crate::task::Task::SECRETS)), and each task
//! remembers the names in its context, so that it stays protected when no engine
//! is known. The store keeps the values, because the code needs them, and an
//! export carries them. Everywhere else `[secret]` stands in their place: an
//! engine takes them out of errors, logs and progress before it writes those, and
//! whoever shows a task takes them out of all the rest ([`Redactor`]).
//!
//! A secret is found in a text as it is, and with the escapes of JSON, of string
//! literals and of addresses. What the code makes of it otherwise (a hash, a part,
//! base64) is another text, which nothing here can know.

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
use crate::report::LogRow;
use crate::schedule::Definition;
use crate::schedule::row::ScheduleRow;
use crate::task::{ClassRules, TaskDetails};

pub use placeholder::{UnexpectedPlaceholder, refuse_placeholders, restore};

/// What stands in the place of a secret.
pub const SHOWN: &str = "[secret]";
/// Under this name, the context of a task has the paths of its secrets.
pub(crate) const CONTEXT_NAME: &str = "secret_parameters";
/// The longest path.
pub const PATH_BYTES_MAX: usize = 200;
/// More paths than these have no class.
pub const PATHS_MAX: usize = 100;
/// Shorter texts are everywhere: to take them out of a message would spoil it,
/// and hide nothing.
const CHARS_MIN: usize = 4;

/// Why something is not the path of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecretPath {
    /// No path.
    #[error(
        "{0:?} is not the path of a secret parameter; write names with dots between, like \"password\" or \"card.number\", of at most {PATH_BYTES_MAX} bytes and without control characters"
    )]
    Path(String),
    /// Too many.
    #[error("{0} secret parameters are too many (at most {PATHS_MAX}); name a whole object")]
    TooMany(usize),
}

/// Whether all of these are paths of parameters.
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

/// Takes the secrets of one task out of whatever is shown of it. Without
/// secrets, it changes nothing.
#[derive(Clone, Default, PartialEq)]
pub struct Redactor {
    /// What must not be seen.
    texts: Vec<String>,
    /// The parameters without it; `None` if there are no secrets.
    parameters: Option<Json>,
    /// Whether the marks of a request are hidden; not by a redactor that hides
    /// nothing at all, the default.
    hides_request: bool,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} texts)", self.texts.len())
    }
}

/// The parameters of a task as a log may have them.
pub fn shown<'a>(parameters: &'a Json, context: &Json) -> Cow<'a, Json> {
    match Redactor::of(parameters, context, &[""; 0]).parameters {
        Some(without) => Cow::Owned(without),
        None => Cow::Borrowed(parameters),
    }
}

impl Redactor {
    /// For a task with these parameters and this context, of a class that has
    /// these secrets. Those that the context names are secrets, too.
    #[must_use]
    pub fn of(parameters: &Json, context: &Json, paths: &[impl AsRef<str>]) -> Self {
        let Some(own) = paths_in(context) else {
            // Somebody meant something, and nobody knows what.
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

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parameters.is_none()
    }

    /// The parameters as they may be seen; `None` if there are no secrets, and
    /// they may be seen as they are.
    #[must_use]
    pub fn parameters(&self) -> Option<&Json> {
        self.parameters.as_ref()
    }

    /// A text without the secrets. One that ends in the middle of a secret,
    /// because somebody has cut it, ends before it.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.texts.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut places = self.places(text);
        for reading in unescape::readings(text) {
            let found = self.places(&reading.text);
            places.extend(found.into_iter().map(|(begin, end)| reading.place(begin, end)));
        }
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        places.sort_unstable();
        let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
        for (begin, end) in places {
            if begin >= at {
                shown.push_str(&text[at..begin]);
                shown.push_str(SHOWN);
            }
            at = at.max(end);
        }
        shown.push_str(&text[at..]);
        Cow::Owned(shown)
    }

    /// Where secrets are in a text, from byte to byte.
    fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for secret in &self.texts {
            let mut from = 0;
            while let Some(at) = text[from..].find(secret.as_str()) {
                let begin = from + at;
                places.push((begin, begin + secret.len()));
                // The next may begin inside this one.
                from = begin + text[begin..].chars().next().map_or(1, char::len_utf8);
            }
            places.extend(cut_at_the_end(text, secret).map(|begin| (begin, text.len())));
        }
        places
    }

    /// JSON without the secrets in its texts, names and numbers.
    #[must_use]
    pub fn json(&self, json: &Json) -> Json {
        if self.texts.is_empty() {
            return json.clone();
        }
        rewrite::without_texts(json, self)
    }

    /// Whether this is, whole, a secret.
    pub fn is_secret(&self, text: &str) -> bool {
        self.texts.iter().any(|secret| secret == text)
    }

    /// An error without the secrets.
    pub fn error(&self, error: &mut TaskError) {
        let lines = error.backtrace.iter_mut();
        for text in lines.chain([&mut error.exception, &mut error.message]) {
            self.replace(text);
        }
    }

    /// A task without the secrets, with all that is recorded about it.
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
            self.ending(&mut execution.result, &mut execution.error);
            execution.progress.iter_mut().for_each(|it| self.replace(&mut it.message));
        }
        for late in &mut task.late_results {
            self.ending(&mut late.result, &mut late.error);
        }
    }

    fn ending(&self, result: &mut Option<Json>, error: &mut Option<TaskError>) {
        result.iter_mut().for_each(|result| *result = self.json(result));
        error.iter_mut().for_each(|error| self.error(error));
    }

    /// Lines of a log without the secrets.
    pub fn log(&self, lines: &mut [LogRow]) {
        lines.iter_mut().for_each(|line| self.replace(&mut line.message));
    }

    fn replace(&self, text: &mut String) {
        if let Cow::Owned(shown) = self.text(text) {
            *text = shown;
        }
    }
}

/// The secrets of classes, as engines have said.
#[derive(Debug, Clone, Default)]
pub struct Secrets(BTreeMap<String, BTreeSet<String>>);

impl Secrets {
    /// What these engines have declared about their classes.
    #[must_use]
    pub fn of(engines: &[InstanceRow]) -> Self {
        let mut secrets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (class, ClassRules { secret, .. }) in engines.iter().flat_map(|one| &one.classes) {
            if !secret.is_empty() {
                secrets.entry(class.clone()).or_default().extend(secret.iter().cloned());
            }
        }
        Self(secrets)
    }

    /// Whether any class has one.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The paths of a class.
    #[must_use]
    pub fn of_class(&self, class: &str) -> Vec<String> {
        self.0.get(class).into_iter().flatten().cloned().collect()
    }

    /// What takes the secrets out of a task.
    #[must_use]
    pub fn redactor(&self, class: &str, parameters: &Json, context: &Json) -> Redactor {
        Redactor::of(parameters, context, &self.of_class(class))
    }

    /// Takes the secrets of its tasks out of a schedule, also out of one that only
    /// another version of this program understands.
    pub fn schedule(&self, row: &mut ScheduleRow) {
        #[derive(Deserialize)]
        struct Known {
            class: String,
            context: Box<RawValue>,
        }
        let definition = &mut row.state.definition;
        let Ok(known) = definition.decode::<Known>() else { return };
        let context = Json::from_store(known.context.get().to_owned());
        let paths = match paths_in(&context) {
            Some(own) => [own, self.of_class(&known.class)].concat(),
            None => vec!["*".to_owned()],
        };
        let paths: Vec<_> = paths.iter().map(|path| format!("parameters.{path}")).collect();
        let redactor = Redactor::of(definition, &Json::empty_object(), &paths);
        if let Some(shown) = redactor.parameters() {
            *definition = shown.clone();
        }
    }

    /// What somebody wrote who has seen `stored` without its secrets: placeholders
    /// become what is stored, and what was secret stays so. Nothing moves to
    /// another class, where it may be no secret.
    pub fn restore(
        &self,
        new: &mut Definition,
        stored: &Definition,
    ) -> Result<(), UnexpectedPlaceholder> {
        if new.class != stored.class {
            return refuse_placeholders(&new.parameters, true);
        }
        let before = &stored.parameters;
        let redactor = self.redactor(&stored.class, before, &stored.context);
        new.parameters = restore(&new.parameters, before, redactor.parameters())?;
        if let Some(paths) = paths_in(&stored.context).filter(|paths| !paths.is_empty()) {
            name_in(&mut new.context, paths);
        }
        Ok(())
    }

    /// The same as [`Self::redactor`], for a task with all that is recorded about it.
    #[must_use]
    pub fn redactor_of(&self, task: &TaskDetails) -> Redactor {
        self.redactor(&task.row.class, &task.parameters, &task.context)
    }
}

/// The paths that a context names; `None` if what it has there is something else.
pub fn paths_in(context: &Json) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        secret_parameters: Vec<String>,
    }
    // The usual case costs no parsing.
    if !context.as_str().contains(CONTEXT_NAME) {
        return Some(Vec::new());
    }
    context.decode::<Named>().ok().map(|named| named.secret_parameters)
}

/// Adds paths to those that a context names.
fn name_in(context: &mut Json, mut paths: Vec<String>) {
    let Ok(mut fields) = context.decode::<BTreeMap<String, Box<RawValue>>>() else { return };
    paths.extend(paths_in(context).unwrap_or_default());
    paths.sort();
    paths.dedup();
    if let Ok(named) = serde_json::value::to_raw_value(&paths) {
        fields.insert(CONTEXT_NAME.to_owned(), named);
    }
    if let Ok(named) = Json::encode(&fields) {
        *context = named;
    }
}

/// The secrets, and their lines: a log has lines.
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

/// Where the beginning of a secret begins that a text ends with.
fn cut_at_the_end(text: &str, secret: &str) -> Option<usize> {
    let lengths = secret.char_indices().skip(CHARS_MIN).map(|(length, _)| length);
    let cut = lengths.filter(|length| text.ends_with(&secret[..*length])).max();
    cut.map(|length| text.len() - length)
}

#[cfg(test)]
mod tests;
