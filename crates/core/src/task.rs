//! Tasks: the classes and tasks that applications write, and the rows that stores return.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::flow;
use crate::json::{InvalidJson, Json};
use crate::limit::{self, ClassLimit, LIMITS_MAX, LimitOptions, Rate};
use crate::parse_error::ParseError;
use crate::retry::{RetryOverride, RetryRule, millis};
use crate::schema::Schema;
use crate::secret;
use crate::secret::InvalidSecretPath;
use crate::traceparent::{InvalidTraceparent, Traceparent};
use crate::unique::{KEY_BYTES_MAX, Unique};

mod row;
mod status;

pub use row::{CreatedTask, ExecutionRow, LateResult, TaskDetails, TaskListQuery, TaskRow};
pub use status::{ExecutionStatus, TaskStatus};

/// A task class: a type whose fields are the parameters that are stored.
///
/// The code that runs is a plain function that you pass to `Engine::handle`. An application that
/// only creates tasks needs none.
///
/// With the crate `task-engine`, `#[derive(Serialize, Deserialize, Task)]` implements it, and
/// `#[task(…)]` sets its options. Or implement it by hand:
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
/// A class may also set retries and other [options](Self::options), parameters that
/// are [secret](Self::SECRETS), and when its tasks are [unique](Self::unique).
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::{TaskOptions, RetryRule, Task, Unique};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Charge { order: u64, card: String }
///
/// impl Task for Charge {
///     const CLASS: &'static str = "charge";
///     const SECRETS: &'static [&'static str] = &["card"];
///
///     fn options() -> TaskOptions {
///         TaskOptions::default()
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    label = "the trait `Task` is not implemented for `{Self}`",
    note = "add `#[derive(Serialize, Deserialize, Task)]` to the type"
)]
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the class, which selects the code that runs.
    ///
    /// Set it before you rename a type whose tasks are stored.
    const CLASS: &'static str;

    /// The paths of parameters that only the task's code may see, like `"password"` or
    /// `"card.number"`.
    ///
    /// A path may name a whole object. Output for people shows `[secret]` instead: see
    /// [`crate::secret`].
    const SECRETS: &'static [&'static str] = &[];

    /// Returns the options of the class: its retries, timeout, queue and priority.
    #[must_use]
    fn options() -> TaskOptions {
        TaskOptions::default()
    }

    /// Returns the uniqueness of this task, if it is unique.
    ///
    /// It is called at every creation.
    #[must_use]
    fn unique(&self) -> Option<Unique> {
        None
    }
}

/// The options of the tasks of a class, which [`Task::options`] returns.
///
/// A task may set its own queue, priority and retry rule when it is created.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use std::time::Duration;
/// use task_engine::{RetryRule, TaskOptions};
///
/// let options = TaskOptions::default()
///     .retry(RetryRule::every(Duration::from_secs(60), 3))
///     .timeout(Duration::from_secs(30))
///     .queue("mail");
/// assert_eq!(options.retry.maximum, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TaskOptions {
    /// When a failed attempt is retried.
    pub retry: RetryRule,
    /// How long an attempt may run.
    #[serde(rename = "timeout_ms", with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The queue that new tasks go to.
    pub queue: String,
    /// The priority of new tasks.
    pub priority: i32,
    /// How long asynchronous code may take to end by itself after a cancel request, before it is
    /// dropped.
    ///
    /// Default: one second.
    #[serde(rename = "cancel_grace_ms", with = "millis::optional")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<Duration>,
    /// The paths of secret parameters: see [`crate::secret`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret: Vec<String>,
    /// The JSON Schema of the parameters: see [`crate::schema`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// Its limits.
    ///
    /// They are not stored with the engine, but as limits of the database, where an operator may
    /// change them.
    #[serde(skip)]
    pub limits: Vec<ClassLimit>,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            retry: RetryRule::default(),
            timeout: None,
            queue: DEFAULT_QUEUE.to_owned(),
            priority: 0,
            cancel_grace: None,
            secret: Vec::new(),
            schema: None,
            limits: Vec::new(),
        }
    }
}

impl TaskOptions {
    /// Sets when a failed attempt is retried, and how often.
    #[must_use]
    pub fn retry(mut self, rule: RetryRule) -> Self {
        self.retry = rule;
        self
    }

    /// Sets how long an attempt may run.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets the queue of new tasks.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// Sets the priority of new tasks.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Adds paths of secret parameters: see [`crate::secret`].
    ///
    /// A class that is a Rust type lists its own in [`Task::SECRETS`].
    #[must_use]
    pub fn secret(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.secret.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Publishes a JSON Schema of the parameters.
    ///
    /// The command line, the HTTP API and the dashboard then refuse parameters that do not fit it,
    /// as long as an engine with the class is alive. `create` and SQL check nothing.
    ///
    /// Of a schema with more than [64 KiB](crate::schema::BYTES_MAX), the engine warns and
    /// publishes nothing.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<Schema>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Publishes the schema of a type: see [`schema`](Self::schema).
    ///
    /// Needs the feature `schemars`.
    ///
    /// ```
    /// # extern crate task_engine_core as task_engine;
    /// use schemars::JsonSchema;
    /// use task_engine::TaskOptions;
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Resize { width: u32 }
    ///
    /// let options = TaskOptions::default().schema_of::<Resize>();
    /// # let schema = options.schema.unwrap();
    /// # assert_eq!(schema.as_value()["required"], serde_json::json!(["width"]));
    /// ```
    #[cfg(feature = "schemars")]
    #[must_use]
    pub fn schema_of<T: schemars::JsonSchema>(self) -> Self {
        self.schema(Schema::of::<T>())
    }

    /// Adds a limit for all tasks of the class, over all engines.
    ///
    /// It sets how many run at a time, how often they start, and whether they run in order.
    ///
    /// A class has at most three.
    ///
    /// It is named after the class: `sync`, `sync.rate` for a rate alone, `sync.order` for
    /// tasks in order, `sync.fair` for a key alone. Give further ones a name with
    /// [`limit_as`](Self::limit_as).
    ///
    /// ```
    /// # extern crate task_engine_core as task_engine;
    /// use std::time::Duration;
    /// use task_engine::TaskOptions;
    /// use task_engine::limit::{LimitOptions, Rate};
    ///
    /// // Two at a time for each customer, and at most 100 starts a second in all.
    /// let options = TaskOptions::default()
    ///     .limit(LimitOptions::max(2).key("customer_id"))
    ///     .rate(Rate::new(100, Duration::from_secs(1)));
    /// # assert_eq!(options.limits.len(), 2);
    /// // One at a time for each account, in the order of creation.
    /// let in_order = TaskOptions::default().limit(LimitOptions::in_order().key("account"));
    /// ```
    #[must_use]
    pub fn limit(mut self, options: LimitOptions) -> Self {
        self.limits.push(ClassLimit { name: None, options });
        self
    }

    /// Adds a limit with a name of its own.
    #[must_use]
    pub fn limit_as(mut self, name: impl Into<String>, options: LimitOptions) -> Self {
        self.limits.push(ClassLimit { name: Some(name.into()), options });
        self
    }

    /// Limits how often attempts of the class start: see [`limit`](Self::limit).
    #[must_use]
    pub fn rate(self, rate: Rate) -> Self {
        self.limit(LimitOptions::rate(rate))
    }

    /// Returns the options of a class that is a Rust type, with its secrets.
    #[must_use]
    pub fn of<T: Task>() -> Self {
        let mut options = T::options();
        for path in T::SECRETS {
            if !options.secret.iter().any(|known| known == path) {
                options.secret.push((*path).to_owned());
            }
        }
        options
    }

    /// Sets how long cancelled code may take to end by itself.
    #[must_use]
    pub fn cancel_grace(mut self, time: Duration) -> Self {
        self.cancel_grace = Some(time);
        self
    }
}

/// The queue of tasks for which no queue is set.
pub const DEFAULT_QUEUE: &str = "default";

/// The id of a task.
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
            _ => Err(ParseError(format!("invalid task id {text:?}: use a whole number from 1"))),
        }
    }
}

/// A task to create, with all that can be set before its creation.
///
/// Use it to create many tasks in one call, or tasks of a class that is known only by name.
/// Otherwise `TaskEngine::create` is shorter.
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
    /// A JSON object of the application.
    pub parameters: Json,
    /// A JSON object of the engine, with fields like `retry` and `correlation_id`.
    pub context: Json,
    /// The queue.
    pub queue: String,
    /// Higher runs first.
    pub priority: i32,
    /// The earliest time it may run.
    pub due: Due,
    /// Its uniqueness, if any.
    pub unique: Option<Unique>,
}

/// Omits secrets: applications log what they create.
impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("class", &self.class)
            .field("parameters", &secret::redacted(&self.parameters, &self.context))
            .field("context", &self.context)
            .field("queue", &self.queue)
            .field("priority", &self.priority)
            .field("due", &self.due)
            .field("unique", &self.unique)
            .finish()
    }
}

/// The earliest time a new task may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Due {
    /// The task may run at once.
    #[default]
    Now,
    /// The task may run after this wait, counted by the database's clock.
    After(Duration),
    /// The task may run at this time, by the database's clock.
    At(Timestamp),
}

/// The longest name of a class or queue, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// The error of a task that cannot be created: change what the message names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTask {
    /// The parameters are not valid JSON, or not storable: see [`InvalidJson`].
    #[error("parameters of {class}: {why}")]
    Parameters {
        /// The class.
        class: String,
        /// The problem.
        why: InvalidJson,
    },
    /// The name of a class or queue is empty, too long, or has control characters.
    #[error(
        "a {what} needs a name of 1 to {NAME_BYTES_MAX} bytes without control characters, not {name:?}"
    )]
    Name {
        /// `class` or `queue`.
        what: &'static str,
        /// The name as given.
        name: String,
    },
    /// The context is not storable: see [`InvalidJson`].
    #[error("context of {class}: {why}")]
    Context {
        /// The class.
        class: String,
        /// The problem.
        why: InvalidJson,
    },
    /// The key of a unique task is empty or too long: use a shorter key, for example a hash.
    #[error(
        "a unique key needs 1 to {KEY_BYTES_MAX} bytes without the character \\u0000, this one has {bytes}; use a hash of a longer key"
    )]
    Key {
        /// The length of the key.
        bytes: usize,
    },
    /// The period within which a task is unique is shorter than 1 ms or longer than 100 years.
    #[error("a task is unique within a period of at least 1 ms and at most 100 years")]
    Period,
    /// The correlation id is empty, too long, or has control characters.
    #[error(
        "a correlation id is a text of 1 to {NAME_BYTES_MAX} bytes without control characters, not {0:?}"
    )]
    Correlation(String),
    /// The path of a secret is invalid: see
    /// [`InvalidSecretPath`].
    #[error("class {class}: {why}")]
    Secret {
        /// The class.
        class: String,
        /// The problem.
        why: InvalidSecretPath,
    },
    /// The task names more than [`LIMITS_MAX`] limits: remove some.
    #[error("a task names at most {LIMITS_MAX} limits, not {0}")]
    TooManyLimits(usize),
    /// The trace context is not a W3C `traceparent`.
    #[error(transparent)]
    Traceparent(#[from] InvalidTraceparent),
}

impl NewTask {
    /// Creates a task of a class that is known only by name.
    ///
    /// # Errors
    /// Fails with [`InvalidTask`] if the name or the parameters cannot be stored.
    pub fn new(class: impl Into<String>, parameters: Json) -> Result<Self, InvalidTask> {
        let class = check_name("class", class.into())?;
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

    /// Creates a task of a class that is a Rust type, with the options of its class.
    ///
    /// # Errors
    /// Fails with [`InvalidTask`] if its parameters or its key cannot be stored.
    pub fn of<T: Task>(task: &T) -> Result<Self, InvalidTask> {
        let parameters = Json::encode_parameters(task)
            .map_err(|why| InvalidTask::Parameters { class: T::CLASS.to_owned(), why })?;
        let options = TaskOptions::of::<T>();
        let new =
            Self::new(T::CLASS, parameters)?.priority(options.priority).queue(options.queue)?;
        let new = new.secret(&options.secret)?;
        match task.unique() {
            Some(unique) => new.unique(unique),
            None => Ok(new),
        }
    }

    /// Sets the time at which the task may run.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Sets how long the task waits before it may run.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.due = Due::After(wait);
        self
    }

    /// Sets the priority of the task: higher runs first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the queue of the task.
    pub fn queue(mut self, queue: impl Into<String>) -> Result<Self, InvalidTask> {
        self.queue = check_name("queue", queue.into())?;
        Ok(self)
    }

    /// Sets retry rules of this task: a whole [`RetryRule`], or a [`RetryOverride`] of parts of the
    /// rule of its class.
    #[must_use]
    pub fn retry(mut self, rule: impl Into<RetryOverride>) -> Self {
        let rule: RetryOverride = rule.into();
        let mut context: serde_json::Map<String, serde_json::Value> =
            self.context.decode().unwrap_or_default();
        context.insert("retry".into(), serde_json::json!(rule));
        self.context = Json::from_store(serde_json::Value::Object(context).to_string());
        self
    }

    /// Makes the task unique, so that a second task with the same key is not created: see
    /// [`Unique`].
    pub fn unique(mut self, unique: Unique) -> Result<Self, InvalidTask> {
        unique.check()?;
        self.unique = Some(unique);
        Ok(self)
    }

    /// Adds paths of secret parameters: see [`crate::secret`].
    pub fn secret(mut self, paths: &[impl AsRef<str>]) -> Result<Self, InvalidTask> {
        if paths.is_empty() {
            return Ok(self);
        }
        let invalid = |why| InvalidTask::Secret { class: self.class.clone(), why };
        secret::check(paths).map_err(invalid)?;
        let mut all = secret::paths_in(&self.context).unwrap_or_default();
        all.extend(paths.iter().map(|path| path.as_ref().to_owned()));
        all.sort();
        all.dedup();
        secret::check(&all).map_err(invalid)?;
        self.add_context(secret::CONTEXT_NAME, &all)?;
        Ok(self)
    }

    /// Applies a named limit to the task, with this key.
    ///
    /// The key may be the customer whose account of an external service the task uses.
    ///
    /// It also sets the key for a limit of its class or queue. A task names at most three, and is
    /// refused if one does not exist when it is created.
    ///
    /// ```
    /// # extern crate task_engine_core as task_engine;
    /// use task_engine::{Json, NewTask};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let task = NewTask::new("sync", Json::parse("{}")?)?.limit("api", "acme")?;
    /// assert_eq!(task.context.as_str(), r#"{"limits":{"api":"acme"}}"#);
    /// # Ok(()) }
    /// ```
    pub fn limit(
        self,
        name: impl Into<String>,
        key: impl Into<String>,
    ) -> Result<Self, InvalidTask> {
        self.with_limit(name.into(), Some(key.into()))
    }

    /// Applies a named limit to the task without naming a key.
    ///
    /// The key is the value of the limit's parameter; if the limit has none, all such tasks share
    /// it.
    pub fn limit_named(self, name: impl Into<String>) -> Result<Self, InvalidTask> {
        self.with_limit(name.into(), None)
    }

    fn with_limit(mut self, name: String, key: Option<String>) -> Result<Self, InvalidTask> {
        let name = check_name("limit", name)?;
        let mut limits = limit::named_keys(&self.context);
        limits.retain(|(named, _)| *named != name);
        limits.push((name, key.map_or(serde_json::Value::Null, serde_json::Value::String)));
        if limits.len() > LIMITS_MAX {
            return Err(InvalidTask::TooManyLimits(limits.len()));
        }
        let limits: serde_json::Map<String, serde_json::Value> = limits.into_iter().collect();
        self.add_context(limit::CONTEXT_NAME, &limits)?;
        Ok(self)
    }

    /// Adds a field to its context, or replaces it.
    pub fn add_context<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), InvalidTask> {
        let invalid = |why| InvalidTask::Context { class: self.class.clone(), why };
        let unreadable = |e: serde_json::Error| invalid(InvalidJson::Syntax(e.to_string()));
        let mut context: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            self.context.decode().map_err(unreadable)?;
        let value = Json::encode(value).map_err(invalid)?.decode().map_err(unreadable)?;
        context.insert(name.to_owned(), value);
        self.context = Json::encode(&context).map_err(invalid)?;
        Ok(())
    }

    /// Checks whether it can be stored, after code has set its fields directly.
    pub fn check(&self) -> Result<(), InvalidTask> {
        let class = check_name("class", self.class.clone())?;
        check_name("queue", self.queue.clone())?;
        let object = |json: &Json| json.clone().into_object().map(|_| ());
        object(&self.parameters)
            .map_err(|why| InvalidTask::Parameters { class: class.clone(), why })?;
        object(&self.context).map_err(|why| InvalidTask::Context { class, why })?;
        self.unique.as_ref().map_or(Ok(()), Unique::check)
    }

    /// Sets the correlation id of the flow that the task belongs to.
    ///
    /// A plain number means the flow of the task with this id.
    pub fn correlation(mut self, id: impl AsRef<str>) -> Result<Self, InvalidTask> {
        let id = id.as_ref();
        if !is_name(id) {
            return Err(InvalidTask::Correlation(id.chars().take(NAME_BYTES_MAX).collect()));
        }
        flow::set_correlation(&mut self, id);
        Ok(self)
    }

    /// Sets the span that created it: a W3C `traceparent`.
    pub fn traceparent(mut self, text: impl AsRef<str>) -> Result<Self, InvalidTask> {
        let traceparent: Traceparent = text.as_ref().parse()?;
        flow::set_traceparent(&mut self, traceparent);
        Ok(self)
    }
}

impl Json {
    /// A type without fields serialises to `null`; its parameters are `{}`.
    fn encode_parameters<T: Serialize>(value: &T) -> Result<Self, InvalidJson> {
        Self::encode(value)?.into_parameters()
    }

    pub(crate) fn into_parameters(self) -> Result<Self, InvalidJson> {
        if self.as_str() == "null" { Ok(Self::empty_object()) } else { self.into_object() }
    }
}

/// Checks the name of a class, queue or schedule.
pub fn check_name(what: &'static str, name: String) -> Result<String, InvalidTask> {
    if is_name(&name) { Ok(name) } else { Err(InvalidTask::Name { what, name }) }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
