//! The schema of the tables.

use std::borrow::Cow;
use std::fmt;

use task_engine_store::error::StoreError;

/// The schema that holds the tables, `task_engine` by default.
///
/// With several schemas, one database holds several sets of tasks.
///
/// The statements in `sql/` are written for the default schema, so that they
/// can be read and run as they are; for another one the name is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: String,
}

const DEFAULT: &str = "task_engine";

impl Default for Schema {
    fn default() -> Self {
        Self { name: DEFAULT.to_owned() }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Schema {
    /// Creates a schema by its name: lower-case letters, digits and `_`, at most 40.
    pub fn named(name: &str) -> Result<Self, StoreError> {
        let fine = (1..=40).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if fine {
            Ok(Self { name: name.to_owned() })
        } else {
            Err(StoreError::Refused(format!(
                "{name:?} cannot be a schema: use up to 40 lower-case letters, digits and _, not starting with a digit"
            )))
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The channel of wake-ups: the book's, for the default schema.
    pub(crate) fn channel(&self) -> Cow<'static, str> {
        if self.name == DEFAULT {
            "task-engine".into()
        } else {
            format!("task-engine:{}", self.name).into()
        }
    }

    /// The channel that notifies engines of cancel requests.
    pub(crate) fn cancel_channel(&self) -> Cow<'static, str> {
        if self.name == DEFAULT {
            "task-engine-cancel".into()
        } else {
            format!("task-engine-cancel:{}", self.name).into()
        }
    }

    /// The channel that notifies engines of changed schedules.
    pub(crate) fn schedule_channel(&self) -> Cow<'static, str> {
        if self.name == DEFAULT {
            "task-engine-schedule".into()
        } else {
            format!("task-engine-schedule:{}", self.name).into()
        }
    }

    /// A statement for this schema.
    pub(crate) fn sql(&self, statement: &'static str) -> Cow<'static, str> {
        if self.name == DEFAULT { statement.into() } else { self.moved(statement).into() }
    }

    /// The same for a statement that was put together.
    pub(crate) fn moved(&self, statement: &str) -> String {
        if self.name == DEFAULT {
            return statement.to_owned();
        }
        statement
            .replace("task_engine.", &format!("\"{}\".", self.name))
            .replace("'task-engine'", &format!("'{}'", self.channel()))
            .replace("'task-engine-cancel'", &format!("'{}'", self.cancel_channel()))
            .replace("'task-engine-schedule'", &format!("'{}'", self.schedule_channel()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_cannot_contain_sql() {
        for bad in ["", "A", "1a", "a-b", "a\"b", "a b", "é", &"x".repeat(41)] {
            assert!(Schema::named(bad).is_err(), "{bad:?}");
        }
        assert!(Schema::named("jobs_2").is_ok());
    }

    #[test]
    fn statements_use_the_schema() {
        let schema = Schema::named("jobs").unwrap();
        let moved = schema.sql("SELECT pg_notify('task-engine', x) FROM task_engine.claims");
        assert_eq!(moved, "SELECT pg_notify('task-engine:jobs', x) FROM \"jobs\".claims");
        let moved = schema.sql("SELECT pg_notify('task-engine-schedule', '')");
        assert_eq!(moved, "SELECT pg_notify('task-engine-schedule:jobs', '')");
    }
}
