//! The errors of handlers.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptEnd, RetryAdvice, TaskError};
use task_engine_core::display::span;

/// The error of a handler, which says why the task failed and whether it may be retried.
///
/// `?` converts any error into one: it is recorded with its type, its causes and its place, and
/// retried by the rule.
///
/// It does not implement `Error` itself, so that `?` can convert every error.
///
/// ```
/// use std::time::Duration;
/// use task_engine::Failure;
///
/// fn fetch(url: &str, status: u16) -> Result<u64, Failure> {
///     match status {
///         404 => Err(Failure::no_retry(format!("{url} does not exist"))),
///         503 => Err(Failure::retry_after("busy", Duration::from_secs(30))),
///         429 => Err(Failure::rate_limited(Duration::from_secs(60))), // Uses no retry.
///         500 => Err(Failure::named("ServerBroken", "internal server error")),
///         _ => Ok(url.parse::<u64>()?), // Any error.
///     }
/// }
///
/// assert_eq!(fetch("/a", 500).unwrap_err().exception(), "ServerBroken");
/// assert_eq!(fetch("/a", 200).unwrap_err().message(), "invalid digit found in string");
/// ```
#[derive(Debug)]
pub struct Failure {
    exception: String,
    message: String,
    /// Boxed, so that a `Result` with a failure stays small.
    trace: Box<FailureTrace>,
    kind: FailureKind,
}

/// Which [`AttemptEnd`] it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    Error(RetryAdvice),
    Panic,
    ResultNotStorable,
    /// Not a failure: the task is postponed by this time.
    Snooze(Duration),
    /// The same, and its limits start no attempts for this time.
    RateLimited(Duration),
}

#[derive(Debug)]
enum FailureTrace {
    /// Where the failure was made, and the calls that led there.
    Here(&'static Location<'static>, Backtrace),
    /// Lines that are known already.
    Known(Vec<String>),
}

impl Failure {
    /// Creates a failure that must not be retried.
    #[must_use]
    #[track_caller]
    pub fn no_retry(error: impl Into<Self>) -> Self {
        let mut failure = error.into();
        failure.kind = FailureKind::Error(RetryAdvice::NoRetry);
        failure
    }

    /// Creates a failure that is retried after this wait instead of the rule's, if the rule still
    /// allows a retry.
    #[must_use]
    #[track_caller]
    pub fn retry_after(error: impl Into<Self>, wait: Duration) -> Self {
        let mut failure = error.into();
        failure.kind = FailureKind::Error(RetryAdvice::RetryAfter(wait));
        failure
    }

    /// Postpones the task by this time; this is no failure and uses no retry.
    ///
    /// Use it for work that cannot be done now, although nothing is wrong: a file that has not
    /// arrived, a service that is closed at night. For a service that refuses calls because there
    /// are too many, see [`rate_limited`](Self::rate_limited).
    ///
    /// The task waits by the database's clock, at most a year, and can be
    /// cancelled meanwhile. The attempt is recorded as `snoozed`; errors, error
    /// rates and alerts do not count it. Nothing limits how often a task may be
    /// postponed: code that must give up some day compares [`Context::attempt`] or
    /// the time with a limit of its own.
    ///
    /// [`Context::attempt`]: crate::Context::attempt
    #[must_use]
    pub fn snooze(time: Duration) -> Self {
        Self::snooze_because(time, format!("postponed by {}", span(time)))
    }

    /// Postpones the task like [`snooze`](Self::snooze), with a reason, which `why` and `show`
    /// print.
    #[must_use]
    pub fn snooze_because(time: Duration, reason: impl Into<String>) -> Self {
        let mut failure = Self::with_backtrace_lines(TaskError::SNOOZED, reason.into(), Vec::new());
        failure.kind = FailureKind::Snooze(time);
        failure
    }

    /// Postpones the task because a service accepts its calls only after this time.
    ///
    /// The service refused the call because there were too many.
    ///
    /// This is no failure and uses no retry, as with [`snooze`](Self::snooze). If the task has
    /// limits, their keys are closed as well: no task with the same keys starts for this time, in
    /// any engine. If some of its limits have keys, only those are closed.
    ///
    /// Without limits, it is a snooze. If the store cannot be reached, only this task waits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::Failure;
    /// fn check(status: u16, retry_after_secs: u64) -> Result<(), Failure> {
    ///     match status {
    ///         429 => Err(Failure::rate_limited(Duration::from_secs(retry_after_secs))),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// # assert!(check(429, 30).is_err());
    /// ```
    #[must_use]
    pub fn rate_limited(retry_after: Duration) -> Self {
        Self::rate_limited_because(retry_after, format!("rate limited for {}", span(retry_after)))
    }

    /// Postpones the task like [`rate_limited`](Self::rate_limited), with a reason, which `why` and
    /// `show` print.
    #[must_use]
    pub fn rate_limited_because(retry_after: Duration, reason: impl Into<String>) -> Self {
        let mut failure = Self::snooze_because(retry_after, reason);
        failure.kind = FailureKind::RateLimited(retry_after);
        failure
    }

    /// Creates a failure with a name, which replaces the type of the error, and a message.
    #[must_use]
    #[track_caller]
    pub fn named(exception: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            exception: exception.into(),
            message: message.into(),
            trace: Box::new(FailureTrace::Here(Location::caller(), Backtrace::disabled())),
            kind: FailureKind::Error(RetryAdvice::ByRule),
        }
    }

    /// Replaces the backtrace with these lines, for errors of another program.
    #[must_use]
    pub fn with_trace(mut self, lines: Vec<String>) -> Self {
        self.trace = Box::new(FailureTrace::Known(lines));
        self
    }

    /// Returns the kind of the error: its type, or the name given to [`named`](Self::named).
    #[must_use]
    pub fn exception(&self) -> &str {
        &self.exception
    }

    /// Returns how long the task is postponed, if this is a [`snooze`](Self::snooze) or a [rate
    /// limit](Self::rate_limited).
    #[must_use]
    pub fn snoozes(&self) -> Option<Duration> {
        match self.kind {
            FailureKind::Snooze(time) | FailureKind::RateLimited(time) => Some(time),
            _ => None,
        }
    }

    /// Returns how long the keys of the task's limits are closed, if this is a [rate
    /// limit](Self::rate_limited).
    #[must_use]
    pub fn rate_limited_for(&self) -> Option<Duration> {
        match self.kind {
            FailureKind::RateLimited(time) => Some(time),
            _ => None,
        }
    }

    /// Returns the message of the error, with its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn panic(message: String, backtrace: Vec<String>) -> Self {
        let failure = Self::with_backtrace_lines(TaskError::PANIC, message, backtrace);
        Self { kind: FailureKind::Panic, ..failure }
    }

    /// The result cannot be encoded.
    pub(crate) fn result_not_storable(why: &impl fmt::Display) -> Self {
        let message = format!("the result cannot be stored: {why}");
        let failure =
            Self::with_backtrace_lines(TaskError::RESULT_NOT_STORABLE, message, Vec::new());
        Self { kind: FailureKind::ResultNotStorable, ..failure }
    }

    pub(crate) fn with_backtrace_lines(
        exception: &str,
        message: String,
        backtrace: Vec<String>,
    ) -> Self {
        Self {
            exception: exception.to_owned(),
            message,
            trace: Box::new(FailureTrace::Known(backtrace)),
            kind: FailureKind::Error(RetryAdvice::ByRule),
        }
    }

    pub(crate) fn into_end(self) -> AttemptEnd {
        let backtrace = match *self.trace {
            FailureTrace::Known(lines) => lines,
            FailureTrace::Here(place, calls) => {
                std::iter::once(place.to_string()).chain(frames(&calls)).collect()
            }
        };
        let mut error = TaskError::new(self.exception, self.message).with_backtrace(backtrace);
        let is_snooze = matches!(self.kind, FailureKind::Snooze(_) | FailureKind::RateLimited(_));
        if !is_snooze && error.exception == TaskError::SNOOZED {
            // Only the name distinguishes a recorded snooze from a failure.
            error.exception = "Failure".to_owned();
        }
        match self.kind {
            FailureKind::Error(advice) => AttemptEnd::Failure(error, advice),
            FailureKind::Panic => AttemptEnd::Panic(error),
            FailureKind::ResultNotStorable => AttemptEnd::ResultNotStorable(error),
            FailureKind::Snooze(time) | FailureKind::RateLimited(time) => {
                AttemptEnd::Snoozed(error, time)
            }
        }
    }
}

/// Its kind and its message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.exception, self.message)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let error = error.into();
        let mut message = error.to_string();
        let mut root: &(dyn Error + 'static) = &*error;
        while let Some(cause) = root.source() {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            root = cause;
        }
        Self {
            exception: exception_name(std::any::type_name::<E>(), root),
            message,
            trace: Box::new(FailureTrace::Here(Location::caller(), Backtrace::force_capture())),
            kind: FailureKind::Error(RetryAdvice::ByRule),
        }
    }
}

/// The type of an error. Of a type that contains any error (`anyhow::Error`,
/// `eyre::Report`, `Box<dyn Error>`), it is the type of the root cause, so that
/// different errors stay different groups.
fn exception_name(type_name: &str, root: &(dyn Error + 'static)) -> String {
    let contains_any = matches!(type_name, "anyhow::Error" | "eyre::Report")
        || type_name.starts_with("alloc::boxed::Box<dyn core::error::Error");
    match type_name {
        // A text is not an error type.
        "&str" | "alloc::string::String" => "Failure".to_owned(),
        _ if contains_any => debug_name(root).unwrap_or_else(|| "Failure".to_owned()),
        _ => type_name.to_owned(),
    }
}

/// The name that `Debug` prints for an error: of its type, or of its variant. No other
/// name of a `dyn Error` exists. `None` for errors that are only a text.
fn debug_name(error: &(dyn Error + 'static)) -> Option<String> {
    if error.is::<std::io::Error>() {
        return Some(std::any::type_name::<std::io::Error>().to_owned());
    }
    // The alternate form: with the other one, anyhow and eyre print a report instead.
    let text = format!("{error:#?}");
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    // `Debug` of an I/O error prints its representation.
    if matches!(name, "Os" | "Custom" | "Kind") && rest.contains("kind: ") {
        return Some(std::any::type_name::<std::io::Error>().to_owned());
    }
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase() || name.contains("::"));
    let is_value = rest.is_empty() || rest.starts_with(" {") || rest.starts_with('(');
    (is_name && is_value).then(|| name.to_owned())
}

/// The application's frames of a backtrace, one per line, innermost first, without
/// those of the engine, the runtime and the standard library.
///
/// Resolving the names takes milliseconds. When thousands of tasks fail, only some
/// of them get their frames.
pub(crate) fn frames(backtrace: &Backtrace) -> Vec<String> {
    if backtrace.status() != BacktraceStatus::Captured || !within_budget() {
        return Vec::new();
    }
    application_frames(&backtrace.to_string())
}

fn application_frames(backtrace: &str) -> Vec<String> {
    const FRAMES_MAX: usize = 30;
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        match (line.strip_prefix("at "), line.split_once(": ")) {
            (Some(place), _) => {
                if let Some(frame) = frames.last_mut() {
                    frame.1 = place;
                }
            }
            (None, Some((_, name))) => frames.push((name, "")),
            (None, None) => {}
        }
    }
    // The engine and the runtime called the handler.
    let end = frames.iter().position(|(name, place)| calls_handlers(name, place));
    frames.truncate(end.unwrap_or(frames.len()));
    frames.retain(|(name, place)| is_of_application(name) && !is_foreign_file(place));
    let shown = frames.into_iter().take(FRAMES_MAX).map(|(name, place)| {
        if place.is_empty() { name.to_owned() } else { format!("{name} at {place}") }
    });
    shown.collect()
}

/// Whether this is [`guarded`](crate::panic::guarded). An inlined function has only
/// its name, without a path.
fn calls_handlers(name: &str, place: &str) -> bool {
    name.starts_with("task_engine::panic::guarded")
        || (name.starts_with("guarded<") && is_foreign_file(place))
}

/// Whether a file is of the standard library, the runtime or the engine. Files
/// below the working folder are shown as `./…`.
fn is_foreign_file(place: &str) -> bool {
    const OWN_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let is_own = || match (place.strip_prefix("./"), std::env::current_dir()) {
        (Some(below), Ok(folder)) => folder.join(below).starts_with(OWN_FOLDER),
        _ => place.starts_with(OWN_FOLDER),
    };
    place.starts_with("/rustc/")
        || place.contains("/library/std/src/")
        || ["/tokio-", "/tracing-", "/task-engine-"].iter().any(|folder| place.contains(folder))
        || is_own()
}

/// Whether a function is neither of the engine, nor of the runtime, nor of the
/// standard library. `<A as B>::f` is a function of `A`; if that is no path (a
/// parameter of a generic function), of `B`.
fn is_of_application(name: &str) -> bool {
    const CRATES: [&str; 8] =
        ["std", "core", "alloc", "test", "tokio", "tokio_util", "tracing", "panic_unwind"];
    const WITHOUT_A_PATH: [&str; 5] =
        ["main", "start_thread", "clone", "clone3", "rust_begin_unwind"];
    let path_of = |name: &str| -> String {
        let name = name.trim_start_matches(['<', '&', '*', '(', '[']);
        let name = ["mut ", "const ", "dyn ", "impl "]
            .iter()
            .fold(name, |name, word| name.strip_prefix(word).unwrap_or(name));
        name.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect()
    };
    let mut path = path_of(name);
    if !path.contains("::")
        && let Some((_, interface)) = name.split_once(" as ")
    {
        path = path_of(interface);
    }
    if path.starts_with("__") {
        return false;
    }
    match path.split_once("::") {
        None => !WITHOUT_A_PATH.contains(&path.as_str()),
        Some((crate_name, _)) => {
            !CRATES.contains(&crate_name)
                && crate_name != "task_engine"
                && !crate_name.starts_with("task_engine_")
        }
    }
}

/// At most twenty a second.
fn within_budget() -> bool {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    static SECOND_AND_COUNT: AtomicU64 = AtomicU64::new(0);
    const A_SECOND_MAX: u64 = 20;
    let second = BEGUN.get_or_init(Instant::now).elapsed().as_secs();
    let previous = SECOND_AND_COUNT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            Some(if packed >> 32 == second { packed + 1 } else { (second << 32) + 1 })
        })
        .unwrap_or_default();
    previous >> 32 != second || (previous & 0xFFFF_FFFF) < A_SECOND_MAX
}

#[cfg(test)]
mod tests;
