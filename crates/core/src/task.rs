//! What was asked for, and what is known about it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attempt::TaskError;
use crate::cancel::CancelRow;
use crate::flow;
use crate::json::{InvalidJson, Json};
use crate::parse_error::ParseError;
use crate::report::ProgressRow;
use crate::retry::{RetryOverride, RetryRule, millis};
use crate::secret;
use crate::secret::InvalidSecretPath;
use crate::traceparent::{InvalidTraceparent, Traceparent};
use crate::unique::{KEY_BYTES_MAX, Unique};

/// A task class in Rust: *what is stored*. How it runs is a plain function
/// that the engine is given; an application that only creates tasks has none.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct SendMail { to: String }
///
/// impl task_engine::Task for SendMail {
///     const CLASS: &'static str = "send_mail";
/// }
/// ```
///
/// A class may say more: retries and other [rules](Self::rules), parameters that
/// are [secret](Self::SECRETS), and what makes its tasks [unique](Self::unique).
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::{ClassRules, RetryRule, Task, Unique};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Charge { order: u64, card: String }
///
/// impl Task for Charge {
///     const CLASS: &'static str = "charge";
///     const SECRETS: &'static [&'static str] = &["card"];
///
///     fn rules() -> ClassRules {
///         ClassRules::default()
///             .retry(RetryRule::times(3))
///             .timeout(Duration::from_secs(20))
///             .queue("payments")
///             .priority(5)
///     }
///
///     fn unique(&self) -> Option<Unique> {
///         Some(Unique::by(format!("order {}", self.order)))
///     }
/// }
/// ```
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// The name that says which code runs.
    const CLASS: &'static str;

    /// Parameters that nobody may see but the code, by their paths, like
    /// `"password"` or `"card.number"`; a whole object may be one. Wherever
    /// people look, `[secret]` stands in their place: see [`crate::secret`].
    const SECRETS: &'static [&'static str] = &[];

    /// Retries, timeout, queue and priority of the class.
    #[must_use]
    fn rules() -> ClassRules {
        ClassRules::default()
    }

    /// What makes a task of this class unique, if anything does: computed from
    /// its parameters, for every creation of it.
    #[must_use]
    fn unique(&self) -> Option<Unique> {
        None
    }
}

/// What holds for every task of a class, unless the task says otherwise: see
/// [`Task::rules`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClassRules {
    /// When a failed attempt is tried again.
    pub retry: RetryRule,
    /// How long an attempt may run.
    #[serde(rename = "timeout_ms", with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The queue that new tasks go to.
    pub queue: String,
    /// The priority of new tasks.
    pub priority: i32,
    /// How long asynchronous code has to end by itself when somebody cancels its
    /// task, before it is dropped; a second if nothing is said.
    #[serde(rename = "cancel_grace_ms", with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<Duration>,
    /// The paths of parameters that are not shown: see [`crate::secret`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret: Vec<String>,
}

impl Default for ClassRules {
    fn default() -> Self {
        Self {
            retry: RetryRule::default(),
            timeout: None,
            queue: DEFAULT_QUEUE.to_owned(),
            priority: 0,
            cancel_grace: None,
            secret: Vec::new(),
        }
    }
}

impl ClassRules {
    /// The same with another rule for retries.
    #[must_use]
    pub fn retry(mut self, rule: RetryRule) -> Self {
        self.retry = rule;
        self
    }

    /// The same with a limit on the time of an attempt.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// The same with another queue for new tasks.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// The same with another priority for new tasks.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The same with these parameters as secrets, too: see [`crate::secret`]. A
    /// class that is a Rust type names its own in [`Task::SECRETS`].
    #[must_use]
    pub fn secret(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.secret.extend(paths.into_iter().map(Into::into));
        self
    }

    /// The rules of a class that is a Rust type, with its secrets.
    #[must_use]
    pub fn of<T: Task>() -> Self {
        let mut rules = T::rules();
        for path in T::SECRETS {
            if !rules.secret.iter().any(|known| known == path) {
                rules.secret.push((*path).to_owned());
            }
        }
        rules
    }

    /// The same with another time to end by itself for what is cancelled.
    #[must_use]
    pub fn cancel_grace(mut self, time: Duration) -> Self {
        self.cancel_grace = Some(time);
        self
    }
}

/// The queue of tasks that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// Identifies a task for as long as its record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(Self(id)),
            _ => Err(ParseError(format!("a task id is a whole number from 1 up, not {text:?}"))),
        }
    }
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// It will run when its time has come and a worker is free.
    Waiting,
    /// An engine holds it.
    Running,
    /// It ended successfully.
    #[serde(alias = "succeeded")]
    Stopped,
    /// It failed, and is not retried any more.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Another word for `stopped`, for input: other systems call it so.
    pub const SUCCEEDED: &'static str = "succeeded";

    /// All of them, in the order of a task's life.
    pub const ALL: [Self; 5] =
        [Self::Waiting, Self::Running, Self::Stopped, Self::Failed, Self::Cancelled];

    /// The word, as it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The word for people who may not know it: `stopped (succeeded)`.
    #[must_use]
    pub fn explained(self) -> &'static str {
        match self {
            Self::Stopped => "stopped (succeeded)",
            other => other.as_str(),
        }
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TaskStatus {
    type Err = ParseError;

    /// Also reads [`SUCCEEDED`](Self::SUCCEEDED).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == Self::SUCCEEDED {
            return Ok(Self::Stopped);
        }
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            ParseError(format!(
                "no status {text:?}; there are waiting, running, stopped (or succeeded), failed, cancelled"
            ))
        })
    }
}

/// A task to be created: for many at once, for a transaction of the application's
/// own, for a class that is known by its name alone. Else
/// [`Client::create`](task_engine::client::Client::create) is shorter.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::{Json, NewTask, Task};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct SendMail { to: String }
/// # impl Task for SendMail { const CLASS: &'static str = "send_mail"; }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let typed = NewTask::of(&SendMail { to: "ada".into() })?.after(Duration::from_secs(60));
/// let named = NewTask::new("send_mail", Json::parse(r#"{"to": "ada"}"#)?)?.priority(5);
/// assert_eq!(typed.parameters.as_str(), r#"{"to":"ada"}"#);
/// assert_eq!(named.queue("mail")?.queue, "mail");
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct NewTask {
    /// The class.
    pub class: String,
    /// A JSON object that belongs to the application alone.
    pub parameters: Json,
    /// A JSON object that belongs to the engine: `retry`, `correlation_id`, …
    pub context: Json,
    /// The queue.
    pub queue: String,
    /// Higher runs first.
    pub priority: i32,
    /// From when on it may run.
    pub due: Due,
    /// What makes it unique, if anything does.
    pub unique: Option<Unique>,
}

/// Without its secrets: applications log what they create.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("class", &self.class)
            .field("parameters", &secret::shown(&self.parameters, &self.context))
            .field("context", &self.context)
            .field("queue", &self.queue)
            .field("priority", &self.priority)
            .field("due", &self.due)
            .field("unique", &self.unique)
            .finish()
    }
}

/// A task as it was created, before anything has happened to it: for tests.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedTask {
    /// Its id.
    pub id: TaskId,
    /// Its class.
    pub class: String,
    /// Its parameters.
    pub parameters: Json,
    /// Its context.
    pub context: Json,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// From when on it may run.
    pub due_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
}

/// From when on a new task may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// After this wait, counted by the database's clock.
    After(Duration),
    /// At this time, as the database's clock has it.
    At(Timestamp),
}

/// The longest name of a class or queue, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// Why a task cannot be created as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTask {
    /// The parameters are not storable.
    #[error("parameters of {class}: {why}")]
    Parameters {
        /// The class.
        class: String,
        /// What is wrong.
        why: InvalidJson,
    },
    /// A class or queue needs a name.
    #[error(
        "a {what} needs a name of 1 to {NAME_BYTES_MAX} bytes without control characters, not {name:?}"
    )]
    Name {
        /// `class` or `queue`.
        what: &'static str,
        /// The name as given.
        name: String,
    },
    /// The context is not storable.
    #[error("context of {class}: {why}")]
    Context {
        /// The class.
        class: String,
        /// What is wrong.
        why: InvalidJson,
    },
    /// A unique task needs a key.
    #[error(
        "a unique key needs 1 to {KEY_BYTES_MAX} bytes without the character \\u0000, this one has {bytes}; use a hash of what is longer"
    )]
    Key {
        /// The length of the key.
        bytes: usize,
    },
    /// A period that nothing is unique within.
    #[error("a task is unique within a period of at least 1 ms and at most 100 years")]
    Period,
    /// A correlation id that no store would take.
    #[error(
        "a correlation id is a text of 1 to {NAME_BYTES_MAX} bytes without control characters, not {0:?}"
    )]
    Correlation(String),
    /// A secret that cannot be named so.
    #[error("class {class}: {why}")]
    Secret {
        /// The class.
        class: String,
        /// What is wrong.
        why: InvalidSecretPath,
    },
    /// A trace context that nobody could read.
    #[error(transparent)]
    Traceparent(#[from] InvalidTraceparent),
}

impl NewTask {
    /// A task of a class that is known by its name alone.
    pub fn new(class: impl Into<String>, parameters: Json) -> Result<Self, InvalidTask> {
        let class = checked_name("class", class.into())?;
        let parameters = parameters
            .into_parameters()
            .map_err(|why| InvalidTask::Parameters { class: class.clone(), why })?;
        Ok(Self {
            class,
            parameters,
            context: Json::empty_object(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: 0,
            due: Due::Now,
            unique: None,
        })
    }

    /// A task of a class that is a Rust type, with the rules of its class.
    pub fn of<T: Task>(task: &T) -> Result<Self, InvalidTask> {
        let parameters = Json::encode_parameters(task)
            .map_err(|why| InvalidTask::Parameters { class: T::CLASS.to_owned(), why })?;
        let rules = ClassRules::of::<T>();
        let new = Self::new(T::CLASS, parameters)?.priority(rules.priority).queue(rules.queue)?;
        let new = new.secret(&rules.secret)?;
        match task.unique() {
            Some(unique) => new.unique(unique),
            None => Ok(new),
        }
    }

    /// Runs it at a time.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Runs it after a wait.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.due = Due::After(wait);
        self
    }

    /// Sets its priority: higher runs first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Puts it into a queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Result<Self, InvalidTask> {
        self.queue = checked_name("queue", queue.into())?;
        Ok(self)
    }

    /// Gives it a retry rule of its own: a whole [`RetryRule`], or with
    /// [`RetryOverride`] what differs from the rule of its class.
    #[must_use]
    pub fn retry(mut self, rule: impl Into<RetryOverride>) -> Self {
        let rule: RetryOverride = rule.into();
        let mut context: serde_json::Map<String, serde_json::Value> =
            self.context.decode().unwrap_or_default();
        context.insert("retry".into(), serde_json::json!(rule));
        self.context = Json::from_store(serde_json::Value::Object(context).to_string());
        self
    }

    /// Makes it unique.
    pub fn unique(mut self, unique: Unique) -> Result<Self, InvalidTask> {
        unique.check()?;
        self.unique = Some(unique);
        Ok(self)
    }

    /// Names parameters that nobody may see but the code: see [`crate::secret`].
    /// They are added to those that are named already.
    pub fn secret(mut self, paths: &[impl AsRef<str>]) -> Result<Self, InvalidTask> {
        if paths.is_empty() {
            return Ok(self);
        }
        let wrong = |why| InvalidTask::Secret { class: self.class.clone(), why };
        secret::check(paths).map_err(wrong)?;
        let mut all = secret::paths_in(&self.context).unwrap_or_default();
        all.extend(paths.iter().map(|path| path.as_ref().to_owned()));
        all.sort();
        all.dedup();
        secret::check(&all).map_err(wrong)?;
        self.add_context(secret::CONTEXT_NAME, &all)?;
        Ok(self)
    }

    /// Adds a field to its context, or replaces it.
    pub fn add_context<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), InvalidTask> {
        let wrong = |why| InvalidTask::Context { class: self.class.clone(), why };
        let unreadable = |e: serde_json::Error| wrong(InvalidJson::Syntax(e.to_string()));
        let mut context: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            self.context.decode().map_err(unreadable)?;
        let value = Json::encode(value).map_err(wrong)?.decode().map_err(unreadable)?;
        context.insert(name.to_owned(), value);
        self.context = Json::encode(&context).map_err(wrong)?;
        Ok(())
    }

    /// Whether it can be stored: for whoever writes its fields.
    pub fn check(&self) -> Result<(), InvalidTask> {
        let class = checked_name("class", self.class.clone())?;
        checked_name("queue", self.queue.clone())?;
        let object = |json: &Json| json.clone().into_object().map(|_| ());
        object(&self.parameters)
            .map_err(|why| InvalidTask::Parameters { class: class.clone(), why })?;
        object(&self.context).map_err(|why| InvalidTask::Context { class, why })?;
        self.unique.as_ref().map_or(Ok(()), Unique::check)
    }

    /// Says which flow it belongs to. A plain number is the flow of the task
    /// that has this id.
    pub fn correlation(mut self, id: impl AsRef<str>) -> Result<Self, InvalidTask> {
        let id = id.as_ref();
        if !is_name(id) {
            return Err(InvalidTask::Correlation(id.chars().take(NAME_BYTES_MAX).collect()));
        }
        flow::set_correlation(&mut self, id);
        Ok(self)
    }

    /// Says which span it was created under: a `traceparent` of the W3C.
    pub fn traceparent(mut self, text: impl AsRef<str>) -> Result<Self, InvalidTask> {
        let traceparent: Traceparent = text.as_ref().parse()?;
        flow::set_traceparent(&mut self, traceparent);
        Ok(self)
    }
}

impl Json {
    /// Parameters of a type without fields serialise to `null`; they mean `{}`.
    fn encode_parameters<T: Serialize>(value: &T) -> Result<Self, InvalidJson> {
        Self::encode(value)?.into_parameters()
    }

    fn into_parameters(self) -> Result<Self, InvalidJson> {
        if self.as_str() == "null" { Ok(Self::empty_object()) } else { self.into_object() }
    }
}

/// A name that can be stored, like that of a class.
pub fn checked_name(what: &'static str, name: String) -> Result<String, InvalidTask> {
    if is_name(&name) { Ok(name) } else { Err(InvalidTask::Name { what, name }) }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Which tasks to list: newest first.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only those in this status.
    pub status: Option<TaskStatus>,
    /// Only those of this class.
    pub class: Option<String>,
    /// Only those older than this one: the last row of the page before.
    pub before: Option<TaskId>,
    /// How many at the most.
    pub limit: u32,
}

/// A task as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRow {
    /// The task.
    pub id: TaskId,
    /// Where it is.
    pub status: TaskStatus,
    /// Its class.
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// When it was created.
    pub created_at: Timestamp,
    /// From when on it may run: its next attempt, if it waits for a retry.
    pub scheduled_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// How many attempts have begun or been claimed.
    pub attempts: i32,
    /// How many retries have been used.
    pub retry_number: i32,
    /// The engine that holds it, or that ended it.
    pub instance: Option<String>,
    /// The last error, if its last attempt failed. None after a snooze.
    pub error: Option<TaskError>,
}

/// A task with everything that is recorded about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskDetails {
    /// The task.
    #[serde(flatten)]
    pub row: TaskRow,
    /// Its parameters.
    pub parameters: Json,
    /// Its context.
    pub context: Json,
    /// Its attempts, oldest first.
    pub executions: Vec<ExecutionRow>,
    /// Whether somebody asked for the running attempt to be cancelled.
    pub cancel_requested: bool,
    /// What came after an attempt had ended: evidence, never a verdict.
    pub late_results: Vec<LateResult>,
    /// What it shares with all tasks of its flow.
    pub correlation_id: String,
    /// The task that created it, if one did.
    pub parent_id: Option<TaskId>,
}

/// One attempt, ended or running.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionRow {
    /// Its number.
    pub attempt: i32,
    /// Its retry number.
    pub retry_number: i32,
    /// `running`, `success`, `failure`, `snoozed` or `cancelled`.
    pub status: ExecutionStatus,
    /// The engine.
    pub instance: Option<String>,
    /// The worker.
    pub worker: Option<i32>,
    /// When it began; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub stopped_at: Option<Timestamp>,
    /// The result of a success.
    pub result: Option<Json>,
    /// The error of a failure, or the reason of a snooze.
    pub error: Option<TaskError>,
    /// The status that it ended the task with.
    pub ends_task: Option<TaskStatus>,
    /// When the next attempt was to begin.
    pub retry_at: Option<Timestamp>,
    /// How far it was when it last said so.
    pub progress: Option<ProgressRow>,
    /// How many lines it has said to its log, with those that were dropped.
    pub log_lines: i32,
    /// The wish to cancel it, and what became of that.
    pub cancel: Option<CancelRow>,
}

/// The status of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // The words say it.
pub enum ExecutionStatus {
    Running,
    Success,
    Failure,
    /// It postponed its task. Neither a success nor a failure: no retry is used.
    Snoozed,
    /// Not an attempt: the task was cancelled while it waited for this one.
    Cancelled,
}

impl ExecutionStatus {
    /// The status of an attempt that has ended. Should a cancel request meet a
    /// snooze, the task is cancelled, and the attempt counts as any cancelled one.
    /// `was_held`: an engine had claimed it.
    #[must_use]
    pub fn of_ended(
        error: Option<&TaskError>,
        ends_task: Option<TaskStatus>,
        was_held: bool,
    ) -> Self {
        match error {
            None => Self::Success,
            Some(_) if !was_held && ends_task == Some(TaskStatus::Cancelled) => Self::Cancelled,
            Some(error) if ends_task.is_none() && error.exception == TaskError::SNOOZED => {
                Self::Snoozed
            }
            Some(_) => Self::Failure,
        }
    }

    /// The word that is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Snoozed => "snoozed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What an attempt returned after it had already ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateResult {
    /// Which attempt.
    pub attempt: i32,
    /// When it came.
    pub arrived_at: Timestamp,
    /// When the attempt had ended.
    pub ended_at: Timestamp,
    /// The result that was discarded.
    pub result: Option<Json>,
    /// The error that was discarded.
    pub error: Option<TaskError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_without_fields_has_empty_parameters() {
        #[derive(Serialize, Deserialize)]
        struct Tidy;
        impl Task for Tidy {
            const CLASS: &'static str = "tidy";
        }
        assert_eq!(NewTask::of(&Tidy).unwrap().parameters, Json::empty_object());
    }

    #[test]
    fn a_class_says_queue_priority_and_key_of_its_tasks() {
        #[derive(Serialize, Deserialize)]
        struct Index {
            customer: u64,
        }
        impl Task for Index {
            const CLASS: &'static str = "index";
            fn rules() -> ClassRules {
                ClassRules::default().priority(7).queue("slow")
            }
            fn unique(&self) -> Option<Unique> {
                Some(Unique::by(format!("customer {}", self.customer)))
            }
        }
        let task = NewTask::of(&Index { customer: 3 }).unwrap();
        assert_eq!((task.priority, task.queue.as_str()), (7, "slow"));
        assert_eq!(task.unique, Some(Unique::by("customer 3")));
        assert_eq!(task.priority(-1).priority, -1, "the task's own word goes first");
    }

    #[test]
    fn rules_are_stored_with_times_in_milliseconds() {
        let minute = Duration::from_secs(60);
        let rules = ClassRules::default().timeout(minute).cancel_grace(Duration::MAX);
        let stored = serde_json::to_value(&rules).unwrap();
        assert_eq!(stored["timeout_ms"], 60_000);
        assert_eq!(stored["cancel_grace_ms"], u64::MAX);
        assert_eq!(serde_json::from_value::<ClassRules>(stored).unwrap().timeout, Some(minute));
        let stored = serde_json::to_value(ClassRules::default()).unwrap();
        assert_eq!(stored.get("timeout_ms"), None);
        assert_eq!(serde_json::from_value::<ClassRules>(stored).unwrap(), ClassRules::default());
    }

    #[test]
    fn a_context_grows_and_keeps_what_it_had() {
        let mut task = NewTask::new("a", Json::empty_object()).unwrap();
        task.context = Json::parse(r#"{"big":1970670598291982290123456789}"#).unwrap();
        task.add_context("id", "x").unwrap();
        task.add_context("id", &[1, 2]).unwrap();
        let expected = r#"{"big":1970670598291982290123456789,"id":[1,2]}"#;
        assert_eq!(task.context.as_str(), expected);
        let error = task.add_context("nul", "a\0").unwrap_err().to_string();
        assert!(error.contains("context of a") && error.contains("\\u0000"), "{error}");
        assert_eq!(task.context.as_str(), expected, "as it was");
    }

    #[test]
    fn bad_tasks_say_what_is_wrong() {
        let error = NewTask::new("", Json::empty_object()).unwrap_err();
        assert!(error.to_string().contains("a class needs a name"), "{error}");
        let error = NewTask::new("a", Json::parse("[1]").unwrap()).unwrap_err();
        assert!(error.to_string().contains("parameters of a: a JSON object is needed"), "{error}");
        assert!("0".parse::<TaskId>().is_err());
        assert!("x".parse::<TaskId>().is_err());
    }

    #[test]
    fn the_retry_rule_of_a_task_is_in_its_context() {
        let wanted = RetryOverride::default().maximum(3);
        let task = NewTask::new("a", Json::empty_object()).unwrap().retry(wanted);
        assert_eq!(task.context.as_str(), r#"{"retry":{"maximum":3}}"#);
        assert_eq!(RetryOverride::of(&task.context).unwrap(), wanted);
        assert_eq!(RetryOverride::of(&Json::empty_object()).unwrap(), RetryOverride::default());
        let odd = Json::parse(r#"{"retry":{"maximum":"many"}}"#).unwrap();
        assert!(RetryOverride::of(&odd).is_err());
    }
}
