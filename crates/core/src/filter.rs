//! Filters select tasks: one small language for every command and page.
//!
//! ```text
//! status=failed,cancelled class=send_mail error~"429" created>now-2h params.user.id=42
//! ```
//!
//! A filter is a list of terms. A task matches if all of them hold. A term is a
//! field, an operator and a value; of several values, separated by commas, any may
//! hold. A value with spaces, commas or quotes is written in double quotes.
//!
//! | field | operators | value |
//! |---|---|---|
//! | `status` | `=` `!=` | `waiting`, `running`, `stopped` (or `succeeded`), `failed`, `cancelled` |
//! | `class` `queue` `instance` `correlation` `error` | `=` `!=` `~` `!~` | a text; `~` finds it anywhere inside, in either case |
//! | `id` `parent` `priority` `attempts` `retries` | `=` `!=` `>` `>=` `<` `<=` | a whole number |
//! | `created` `updated` `due` `started` `ended` | `>` `>=` `<` `<=` | a point in time: `2026-12-24`, `"2026-12-24 18:00"`, `2026-12-24T18:00:00Z`, `now`, `now-2h`, `now+10m`. `>` is later, `<` is earlier: `created>now-2h` was created within the last two hours |
//! | `params.…` `context.…` | all of them | the path of a field, and its value |
//!
//! `started` and `ended` are the times of a task's last attempt; a task without an
//! attempt does not match. Tasks that ran between A and B are `started<B ended>A`.
//!
//! `!=` and `!~` hold wherever `=` and `~` do not: also where there is no value.
//! A duration alone (`created>2h`) is refused: it could mean "older than" or "later
//! than". Parsing and printing are in `filter/parse.rs`; to find the tasks, see
//! `task_engine_operations::search`.

mod parse;

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as JsonValue;

use crate::json::Json;
use crate::secret::request;
use crate::task::{TaskId, TaskRow, TaskStatus};
use crate::unique::CONTEXT_KEY;

pub use parse::InvalidFilter;

/// Selects the tasks for which every term holds; without terms, all tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

/// One condition.
///
/// It always has a value that its field and operator can have: it comes from the parser, or from a
/// constructor here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The field that is compared.
    pub field: FilterField,
    /// How.
    pub operator: FilterOperator,
    /// At least one; more than one only for `=`, `!=`, `~` and `!~`.
    pub values: Vec<Value>,
}

/// The field that a term compares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum FilterField {
    Id,
    Status,
    Class,
    Queue,
    Instance,
    Correlation,
    Parent,
    Error,
    Priority,
    Attempts,
    Retries,
    Created,
    Updated,
    Due,
    Started,
    Ended,
    Params(Vec<String>),
    Context(Vec<String>),
}

/// The comparison of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum FilterOperator {
    Is,
    IsNot,
    Has,
    HasNot,
    More,
    Least,
    Less,
    Most,
}

/// The value that a term compares with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Value {
    Text(String),
    Number(i64),
    Status(TaskStatus),
    Time(FilterTime),
}

/// A point in time, fixed or relative to the time of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum FilterTime {
    At(Timestamp),
    FromNow(SignedDuration),
}

impl FilterTime {
    /// Returns the point in time, seen from now.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::FromNow(offset) => now.saturating_add(offset).unwrap_or(now),
        }
    }
}

/// A task with all fields that a filter can ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTask {
    /// The task as it is now.
    pub row: TaskRow,
    /// The id that all tasks of its flow share.
    pub correlation_id: String,
    /// The task that created it, if one did.
    pub parent_id: Option<TaskId>,
    /// Its parameters; empty if the filter did not ask.
    pub parameters: Json,
    /// Its context; empty if the filter did not ask.
    pub context: Json,
    /// When its last attempt began.
    pub started_at: Option<Timestamp>,
    /// When its last attempt ended; `None` while one runs.
    pub ended_at: Option<Timestamp>,
}

impl Filter {
    /// Creates a filter for these tasks.
    #[must_use]
    pub fn of_ids(ids: &[TaskId]) -> Self {
        let values = ids.iter().map(|id| Value::Number(id.0)).collect();
        Self { terms: vec![Term { field: FilterField::Id, operator: FilterOperator::Is, values }] }
    }

    /// Returns whether it matches every task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether it says anything about the status.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.terms.iter().any(|term| term.field == FilterField::Status)
    }

    /// Returns whether it asks about parameters.
    ///
    /// A reader who may not see them must not ask either: the answers to `params.password~a` reveal
    /// them letter by letter.
    #[must_use]
    pub fn asks_about_parameters(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.field, FilterField::Params(_)))
    }

    /// Returns whether it asks about the hash of an HTTP request, which readers do not see.
    #[must_use]
    pub fn asks_about_request(&self) -> bool {
        self.asks_context(request::CONTEXT_MARK)
    }

    /// Returns whether it asks about unique keys, of which readers see some: see
    /// [`Self::without_idempotency_keys`].
    #[must_use]
    pub fn asks_about_unique_key(&self) -> bool {
        self.asks_context(CONTEXT_KEY)
    }

    fn asks_context(&self, name: &str) -> bool {
        let asks = |path: &[String]| path.first().is_some_and(|first| first == name);
        self.terms
            .iter()
            .any(|term| matches!(&term.field, FilterField::Context(path) if asks(path)))
    }

    /// Creates a filter for tasks whose unique key is not made of an `Idempotency-Key`.
    #[must_use]
    pub fn without_idempotency_keys() -> Self {
        let field = FilterField::Context(vec![CONTEXT_KEY.to_owned()]);
        let values = vec![Value::Text(request::KEY_PREFIX.to_owned())];
        Self { terms: vec![Term { field, operator: FilterOperator::HasNot, values }] }
    }

    /// Creates a filter for tasks that were created by an HTTP request with an `Idempotency-Key`.
    #[must_use]
    pub fn with_request() -> Self {
        let field = FilterField::Context(vec![request::CONTEXT_MARK.to_owned()]);
        let values = vec![Value::Text(String::new())];
        Self { terms: vec![Term { field, operator: FilterOperator::Has, values }] }
    }

    /// Creates a filter for tasks that name no secrets of their own.
    #[must_use]
    pub fn without_secrets() -> Self {
        let field = FilterField::Context(vec![crate::secret::CONTEXT_NAME.to_owned()]);
        let values = vec![Value::Text(String::new())];
        Self { terms: vec![Term { field, operator: FilterOperator::HasNot, values }] }
    }

    /// Returns the statuses that a matching task may have.
    #[must_use]
    pub fn statuses(&self) -> Vec<TaskStatus> {
        let mut statuses = TaskStatus::ALL.to_vec();
        for term in self.terms.iter().filter(|term| term.field == FilterField::Status) {
            let named = |status: &TaskStatus| term.values.contains(&Value::Status(*status));
            statuses.retain(|status| named(status) == (term.operator == FilterOperator::Is));
        }
        statuses
    }

    /// Adds the term that the task is in one of these statuses.
    #[must_use]
    pub fn and_status(mut self, any: &[TaskStatus]) -> Self {
        let values = any.iter().copied().map(Value::Status).collect();
        self.terms.push(Term { field: FilterField::Status, operator: FilterOperator::Is, values });
        self
    }

    /// Adds the term that the task is of this class.
    #[must_use]
    pub fn and_class(mut self, class: impl Into<String>) -> Self {
        let values = vec![Value::Text(class.into())];
        self.terms.push(Term { field: FilterField::Class, operator: FilterOperator::Is, values });
        self
    }

    /// Adds the term that the task belongs to this flow.
    #[must_use]
    pub fn and_correlation(mut self, id: impl Into<String>) -> Self {
        let values = vec![Value::Text(id.into())];
        self.terms.push(Term {
            field: FilterField::Correlation,
            operator: FilterOperator::Is,
            values,
        });
        self
    }

    /// Adds the term that the error of the task is of this kind, or has exactly this message.
    #[must_use]
    pub fn and_error(mut self, kind: impl Into<String>) -> Self {
        let values = vec![Value::Text(kind.into())];
        self.terms.push(Term { field: FilterField::Error, operator: FilterOperator::Is, values });
        self
    }

    /// Adds the term that the error of the task contains this text, in upper or lower case.
    #[must_use]
    pub fn and_error_with(mut self, text: impl Into<String>) -> Self {
        let values = vec![Value::Text(text.into())];
        self.terms.push(Term { field: FilterField::Error, operator: FilterOperator::Has, values });
        self
    }

    /// Adds the term that the task last changed at least this long ago.
    #[must_use]
    pub fn and_unchanged_for(mut self, age: Duration) -> Self {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let values = vec![Value::Time(FilterTime::FromNow(-age))];
        self.terms.push(Term {
            field: FilterField::Updated,
            operator: FilterOperator::Most,
            values,
        });
        self
    }

    /// Removes the terms about the status.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.terms.retain(|term| term.field != FilterField::Status);
        self
    }

    /// Returns a filter that matches what both of these filters match.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// Returns whether a task matches, at this time by the database's clock.
    #[must_use]
    pub fn matches(&self, task: &FoundTask, now: Timestamp) -> bool {
        self.terms.iter().all(|term| term.holds(task, now))
    }

    /// Returns whether it needs the JSON of tasks.
    pub fn needs_json(&self) -> bool {
        self.terms
            .iter()
            .any(|term| matches!(term.field, FilterField::Params(_) | FilterField::Context(_)))
    }

    /// Returns its terms; all of them hold.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
}

impl Term {
    fn holds(&self, task: &FoundTask, now: Timestamp) -> bool {
        let row = &task.row;
        match &self.field {
            FilterField::Id => self.number(Some(row.id.0)),
            FilterField::Parent => self.number(task.parent_id.map(|id| id.0)),
            FilterField::Priority => self.number(Some(row.priority.into())),
            FilterField::Attempts => self.number(Some(row.attempts.into())),
            FilterField::Retries => self.number(Some(row.retry_number.into())),
            FilterField::Status => self.any(|value| *value == Value::Status(row.status)),
            FilterField::Class => self.text(Some(&row.class)),
            FilterField::Queue => self.text(Some(&row.queue)),
            FilterField::Instance => self.text(row.instance.as_deref()),
            FilterField::Correlation => self.text(Some(&task.correlation_id)),
            FilterField::Error => self.error(row),
            FilterField::Created => self.time(Some(row.created_at), now),
            FilterField::Updated => self.time(Some(row.updated_at), now),
            FilterField::Due => self.time(Some(row.scheduled_at), now),
            FilterField::Started => self.time(task.started_at, now),
            FilterField::Ended => self.time(task.ended_at, now),
            FilterField::Params(path) => self.json(&task.parameters, path),
            FilterField::Context(path) => self.json(&task.context, path),
        }
    }

    /// Any of the values, or for a negation none of them.
    fn any(&self, is: impl Fn(&Value) -> bool) -> bool {
        let negated = matches!(self.operator, FilterOperator::IsNot | FilterOperator::HasNot);
        self.values.iter().any(is) != negated
    }

    fn number(&self, found: Option<i64>) -> bool {
        self.any(|value| match (found, value) {
            (Some(found), Value::Number(wanted)) => self.operator.compares(found.cmp(wanted)),
            _ => false,
        })
    }

    fn text(&self, found: Option<&str>) -> bool {
        self.any(|value| match (found, value) {
            (Some(found), Value::Text(wanted)) => self.finds(found, wanted),
            _ => false,
        })
    }

    /// The kind of error, its message, or both as they are shown.
    fn error(&self, row: &TaskRow) -> bool {
        let Some(error) = &row.error else {
            return self.text(None);
        };
        let whole = error.to_string();
        self.any(|value| match value {
            Value::Text(wanted) => {
                [&error.exception, &error.message, &whole].iter().any(|it| self.finds(it, wanted))
            }
            _ => false,
        })
    }

    fn finds(&self, found: &str, wanted: &str) -> bool {
        match self.operator {
            FilterOperator::Has | FilterOperator::HasNot => {
                found.to_lowercase().contains(&wanted.to_lowercase())
            }
            _ => found == wanted,
        }
    }

    fn time(&self, found: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(found) = found else { return false };
        self.any(|value| match value {
            Value::Time(wanted) => self.operator.compares(found.cmp(&wanted.resolve(now))),
            _ => false,
        })
    }

    fn json(&self, json: &Json, path: &[String]) -> bool {
        let whole: Option<JsonValue> = json.decode().ok();
        let found = path.iter().try_fold(whole.as_ref(), |value, step| {
            let inner = match value? {
                JsonValue::Object(fields) => fields.get(step),
                JsonValue::Array(items) => items.get(step.parse::<usize>().ok()?),
                _ => None,
            };
            Some(inner)
        });
        let found = found.flatten();
        self.any(|value| match (found, value) {
            (Some(found), Value::Text(wanted)) => self.json_is(found, wanted),
            _ => false,
        })
    }

    /// Numbers compare as numbers, all else as text: a string without its
    /// quotes, everything else as JSON has it.
    fn json_is(&self, found: &JsonValue, wanted: &str) -> bool {
        let text = match found {
            JsonValue::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self.operator {
            FilterOperator::Has | FilterOperator::HasNot => self.finds(&text, wanted),
            FilterOperator::Is | FilterOperator::IsNot if text == wanted => true,
            operator => {
                let numbers = (found.is_number(), text.parse::<f64>(), wanted.parse::<f64>());
                match numbers {
                    (true, Ok(found), Ok(wanted)) => {
                        found.partial_cmp(&wanted).is_some_and(|order| operator.compares(order))
                    }
                    // Texts have an order, too: dates as they are usually written.
                    (false, ..) if found.is_string() => {
                        operator.compares(text.as_str().cmp(wanted))
                    }
                    _ => false,
                }
            }
        }
    }
}

impl FilterOperator {
    /// Whether the operator accepts this order. For a negation, this is the answer for
    /// `=`; the caller inverts it.
    fn compares(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Is | Self::IsNot | Self::Has | Self::HasNot => order.is_eq(),
            Self::More => order.is_gt(),
            Self::Least => order.is_ge(),
            Self::Less => order.is_lt(),
            Self::Most => order.is_le(),
        }
    }

    /// Returns the field as it is written in a filter.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Has => "~",
            Self::HasNot => "!~",
            Self::More => ">",
            Self::Least => ">=",
            Self::Less => "<",
            Self::Most => "<=",
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if n == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
