//! Which tasks somebody means: one small language for every command and page.
//!
//! ```text
//! status=failed,cancelled class=send_mail error~"429" created>2h params.user.id=42
//! ```
//!
//! A filter is a list of terms, and a task is meant if all of them hold. A term
//! is a field, an operator, and a value; several values with commas between mean
//! any of them. A value with spaces, commas or quotes stands in double quotes.
//!
//! | field | operators | value |
//! |---|---|---|
//! | `status` | `=` `!=` | `waiting`, `running`, `stopped` (or `succeeded`), `failed`, `cancelled` |
//! | `class` `queue` `instance` `correlation` `error` | `=` `!=` `~` `!~` | a text; `~` finds it anywhere inside, in either case |
//! | `id` `priority` `attempts` `retries` | `=` `!=` `>` `>=` `<` `<=` | a whole number |
//! | `created` `updated` `due` `started` `ended` | `>` `>=` `<` `<=` | an age: `created>2h` was created **more than two hours ago**, `created<2h` **within the last two hours**; or a time: `created>2026-12-24` was created **after** it |
//! | `params.…` `context.…` | all of them | the path of a field, and its value |
//!
//! `started` and `ended` are about the last attempt of a task. What ran between A and
//! B is `started<B ended>A`; a task without an attempt is not meant.
//!
//! `!=` and `!~` hold wherever `=` and `~` do not: also where there is nothing.
//! Reading and printing are in `filter/parse.rs`; to find the tasks, see
//! [`task_engine_operations::search`].

mod parse;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value as JsonValue;

use crate::json::Json;
use crate::secret::request;
use crate::task::{TaskId, TaskRow, TaskStatus};
use crate::unique::CONTEXT_KEY;

pub use parse::InvalidFilter;

/// Which tasks are meant: those for which every term holds. Without terms, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

/// One condition. It always has a value that its field and operator can have:
/// it comes from the parser, or from a constructor here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// What is compared.
    pub field: Field,
    /// How.
    pub operator: Operator,
    /// At least one; more than one only for `=`, `!=`, `~` and `!~`.
    pub values: Vec<Value>,
}

/// What a term is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Field {
    Id,
    Status,
    Class,
    Queue,
    Instance,
    Correlation,
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

/// How a term compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Operator {
    Is,
    IsNot,
    Has,
    HasNot,
    More,
    Least,
    Less,
    Most,
}

/// What a term compares with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Value {
    Text(String),
    Number(i64),
    Status(TaskStatus),
    Age(Duration),
    At(Timestamp),
}

/// A task with all that a filter can ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTask {
    /// The task as it is now.
    pub row: TaskRow,
    /// What it shares with all tasks of its flow.
    pub correlation_id: String,
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
    /// These tasks.
    #[must_use]
    pub fn of_ids(ids: &[TaskId]) -> Self {
        let values = ids.iter().map(|id| Value::Number(id.0)).collect();
        Self { terms: vec![Term { field: Field::Id, operator: Operator::Is, values }] }
    }

    /// Whether it means every task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it says anything about the status.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.terms.iter().any(|term| term.field == Field::Status)
    }

    /// Whether it asks about parameters. Whoever may not see them must not ask,
    /// either: `params.password~a` and its answer would tell them letter by letter.
    #[must_use]
    pub fn asks_about_parameters(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.field, Field::Params(_)))
    }

    /// Whether it asks about the hash of an HTTP request, which readers do not see.
    #[must_use]
    pub fn asks_about_request(&self) -> bool {
        self.asks_context(request::CONTEXT_MARK)
    }

    /// Whether it asks about unique keys, of which readers see some: see
    /// [`Self::without_idempotency_keys`].
    #[must_use]
    pub fn asks_about_unique_key(&self) -> bool {
        self.asks_context(CONTEXT_KEY)
    }

    fn asks_context(&self, name: &str) -> bool {
        let asks = |path: &[String]| path.first().is_some_and(|first| first == name);
        self.terms.iter().any(|term| matches!(&term.field, Field::Context(path) if asks(path)))
    }

    /// Tasks whose unique key is not made of an `Idempotency-Key`.
    #[must_use]
    pub fn without_idempotency_keys() -> Self {
        let field = Field::Context(vec![CONTEXT_KEY.to_owned()]);
        let values = vec![Value::Text(request::KEY_PREFIX.to_owned())];
        Self { terms: vec![Term { field, operator: Operator::HasNot, values }] }
    }

    /// Tasks that were created by an HTTP request with an `Idempotency-Key`.
    #[must_use]
    pub fn with_request() -> Self {
        let field = Field::Context(vec![request::CONTEXT_MARK.to_owned()]);
        let values = vec![Value::Text(String::new())];
        Self { terms: vec![Term { field, operator: Operator::Has, values }] }
    }

    /// Tasks that name no secrets of their own.
    #[must_use]
    pub fn without_secrets() -> Self {
        let field = Field::Context(vec![crate::secret::CONTEXT_NAME.to_owned()]);
        let values = vec![Value::Text(String::new())];
        Self { terms: vec![Term { field, operator: Operator::HasNot, values }] }
    }

    /// The statuses that a task may have which is meant.
    #[must_use]
    pub fn statuses(&self) -> Vec<TaskStatus> {
        let mut statuses = TaskStatus::ALL.to_vec();
        for term in self.terms.iter().filter(|term| term.field == Field::Status) {
            let named = |status: &TaskStatus| term.values.contains(&Value::Status(*status));
            statuses.retain(|status| named(status) == (term.operator == Operator::Is));
        }
        statuses
    }

    /// The same, and the task is in one of these.
    #[must_use]
    pub fn and_status(mut self, any: &[TaskStatus]) -> Self {
        let values = any.iter().copied().map(Value::Status).collect();
        self.terms.push(Term { field: Field::Status, operator: Operator::Is, values });
        self
    }

    /// The same, and the task is of this class.
    #[must_use]
    pub fn and_class(mut self, class: impl Into<String>) -> Self {
        let values = vec![Value::Text(class.into())];
        self.terms.push(Term { field: Field::Class, operator: Operator::Is, values });
        self
    }

    /// The same, and the task belongs to this flow.
    #[must_use]
    pub fn and_correlation(mut self, id: impl Into<String>) -> Self {
        let values = vec![Value::Text(id.into())];
        self.terms.push(Term { field: Field::Correlation, operator: Operator::Is, values });
        self
    }

    /// The same, and its error is of this kind, or has exactly this message.
    #[must_use]
    pub fn and_error(mut self, kind: impl Into<String>) -> Self {
        let values = vec![Value::Text(kind.into())];
        self.terms.push(Term { field: Field::Error, operator: Operator::Is, values });
        self
    }

    /// The same, and its error has this text in it, in either case.
    #[must_use]
    pub fn and_error_with(mut self, text: impl Into<String>) -> Self {
        let values = vec![Value::Text(text.into())];
        self.terms.push(Term { field: Field::Error, operator: Operator::Has, values });
        self
    }

    /// The same, and the task last changed at least this long ago.
    #[must_use]
    pub fn and_unchanged_for(mut self, age: Duration) -> Self {
        let values = vec![Value::Age(age)];
        self.terms.push(Term { field: Field::Updated, operator: Operator::Least, values });
        self
    }

    /// The same without what it says about the status.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.terms.retain(|term| term.field != Field::Status);
        self
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// Whether a task is meant, at this time by the database's clock.
    #[must_use]
    pub fn matches(&self, task: &FoundTask, now: Timestamp) -> bool {
        self.terms.iter().all(|term| term.holds(task, now))
    }

    /// Whether the JSON of tasks has to be at hand.
    pub fn needs_json(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.field, Field::Params(_) | Field::Context(_)))
    }

    /// Its terms; all of them hold.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
}

impl Term {
    fn holds(&self, task: &FoundTask, now: Timestamp) -> bool {
        let row = &task.row;
        match &self.field {
            Field::Id => self.number(row.id.0),
            Field::Priority => self.number(row.priority.into()),
            Field::Attempts => self.number(row.attempts.into()),
            Field::Retries => self.number(row.retry_number.into()),
            Field::Status => self.any(|value| *value == Value::Status(row.status)),
            Field::Class => self.text(Some(&row.class)),
            Field::Queue => self.text(Some(&row.queue)),
            Field::Instance => self.text(row.instance.as_deref()),
            Field::Correlation => self.text(Some(&task.correlation_id)),
            Field::Error => self.error(row),
            Field::Created => self.time(Some(row.created_at), now),
            Field::Updated => self.time(Some(row.updated_at), now),
            Field::Due => self.time(Some(row.scheduled_at), now),
            Field::Started => self.time(task.started_at, now),
            Field::Ended => self.time(task.ended_at, now),
            Field::Params(path) => self.json(&task.parameters, path),
            Field::Context(path) => self.json(&task.context, path),
        }
    }

    /// Any of the values, or for a negation none of them.
    fn any(&self, is: impl Fn(&Value) -> bool) -> bool {
        let negated = matches!(self.operator, Operator::IsNot | Operator::HasNot);
        self.values.iter().any(is) != negated
    }

    fn number(&self, found: i64) -> bool {
        self.any(|value| match value {
            Value::Number(wanted) => self.operator.compares(found.cmp(wanted)),
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
            Operator::Has | Operator::HasNot => {
                found.to_lowercase().contains(&wanted.to_lowercase())
            }
            _ => found == wanted,
        }
    }

    /// An age grows into the past, so it compares the other way round.
    fn time(&self, found: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(found) = found else { return false };
        self.any(|value| match value {
            Value::At(wanted) => self.operator.compares(found.cmp(wanted)),
            Value::Age(age) => {
                let age = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
                let found = now.as_nanosecond() - found.as_nanosecond();
                self.operator.compares(found.cmp(&age))
            }
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
            Operator::Has | Operator::HasNot => self.finds(&text, wanted),
            Operator::Is | Operator::IsNot if text == wanted => true,
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

impl Operator {
    /// Whether this order is meant. A negation asks for the opposite of `=`, and
    /// is turned round by whoever asks.
    fn compares(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Is | Self::IsNot | Self::Has | Self::HasNot => order.is_eq(),
            Self::More => order.is_gt(),
            Self::Least => order.is_ge(),
            Self::Less => order.is_lt(),
            Self::Most => order.is_le(),
        }
    }

    /// As it is written in a filter.
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
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::attempt::TaskError;

    fn now() -> Timestamp {
        "2026-12-24T12:00:00Z".parse().unwrap()
    }

    fn task() -> FoundTask {
        let created_at: Timestamp = "2026-12-24T09:00:00Z".parse().unwrap();
        let row = TaskRow {
            id: TaskId(17),
            status: TaskStatus::Failed,
            class: "send_mail".into(),
            queue: "mail".into(),
            priority: 5,
            created_at,
            scheduled_at: created_at,
            updated_at: now(),
            attempts: 3,
            retry_number: 2,
            instance: Some("web-1".into()),
            error: Some(TaskError::new("Http", "429 Too Many Requests")),
        };
        let parameters = Json::parse(
            r#"{"user":{"id":42,"name":"Ann","vip":true,"none":null},"tags":["a","b"],"a.b":1.50}"#,
        );
        FoundTask {
            row,
            correlation_id: "order-17".into(),
            parameters: parameters.unwrap(),
            context: Json::parse(r#"{"rerun_of":9}"#).unwrap(),
            started_at: Some("2026-12-24T11:00:00Z".parse().unwrap()),
            ended_at: Some("2026-12-24T11:30:00Z".parse().unwrap()),
        }
    }

    #[test]
    fn terms_hold_or_do_not() {
        for (text, holds) in [
            ("", true),
            ("status=failed class=send_mail queue=mail", true),
            ("status=failed class=other", false),
            ("status=stopped,failed", true),
            ("status!=stopped,failed", false),
            ("class=a,send_mail", true),
            ("class~MAIL", true),
            ("class!~mail", false),
            ("class!=a,b", true),
            ("started>2026-12-24T10:00:00Z started<2026-12-24T11:10:00Z", true),
            ("started<2026-12-24T11:10:00Z ended>2026-12-24T11:20:00Z", true),
            ("ended>2026-12-24T11:30:00Z", false),
            ("ended<1h ended>20m", true),
            ("started<30m", false),
            ("error~429", true),
            (r#"error~"too many""#, true),
            ("error=Http", true),
            (r#"error="429 Too Many Requests""#, true),
            (r#"error="Http: 429 Too Many Requests""#, true),
            ("error=429", false),
            ("error!~429", false),
            ("id=17", true),
            ("id>=17 id<=17 id>16 id<18", true),
            ("id>17", false),
            ("id!=1,2,17", false),
            ("priority>=5 attempts=3 retries<3", true),
            ("instance=web-1 correlation=order-17", true),
            ("created>2h", true),
            ("created>3h", false),
            ("created>=3h", true),
            ("created<2h", false),
            ("created<1d", true),
            ("created>2026-12-24", true),
            ("created<2026-12-24T09:00:01Z", true),
            ("updated<1s due>1h", true),
            ("params.user.id=42 params.user.id=42.0", true),
            ("params.user.id>41 params.user.id<=42", true),
            ("params.user.id=4,42", true),
            ("params.user.id~4", true),
            ("params.user.name=Ann params.user.name~nn", true),
            ("params.user.name>Al params.user.name<B", true),
            ("params.user.vip=true params.user.none=null", true),
            ("params.user.vip>0", false),
            ("params.tags.1=b", true),
            ("params.tags.2=b", false),
            (r#"params."a.b"=1.5"#, true),
            ("params.nothing=1", false),
            ("params.nothing!=1", true),
            ("params.user.id.deeper!=1", true),
            ("context.rerun_of=9", true),
        ] {
            let filter = Filter::parse(text, &TimeZone::UTC).unwrap();
            assert_eq!(filter.matches(&task(), now()), holds, "{text}");
        }
    }

    #[test]
    fn where_there_is_nothing_only_negations_hold() {
        let mut task = task();
        (task.row.instance, task.row.error) = (None, None);
        for (text, holds) in [
            ("instance=web-1", false),
            ("instance!=web-1", true),
            (r#"error~"""#, false),
            ("error!~429", true),
        ] {
            let filter = Filter::parse(text, &TimeZone::UTC).unwrap();
            assert_eq!(filter.matches(&task, now()), holds, "{text}");
        }
    }
}
