//! The audit log, which records what operators did and is only appended to.
//!
//! An action has two entries. The first, `started`, is written before anything is
//! done; if it cannot be written, nothing is done. The second has the outcome, and
//! names the first. An action whose process died in between therefore has the entry
//! `started` alone.
//!
//! Entries are removed by retention alone, and never before [`KEPT_MIN`].

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::StoreError;
use task_engine_core::ParseError;
use task_engine_core::json::Json;
use task_engine_core::queue::REASON_BYTES_MAX;
use task_engine_core::task::{NAME_BYTES_MAX, TaskId};

/// The longest target of an action.
pub const TARGET_BYTES_MAX: usize = 4096;
/// The longest detail.
pub const DETAIL_BYTES_MAX: usize = 8 * 1024;

/// Entries are kept at least this long: the tables themselves refuse to delete
/// younger ones.
pub const KEPT_MIN: Duration = Duration::from_secs(90 * 86_400);

/// A query for entries; without any field, it matches the newest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only entries before this one: the next page.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
    /// Only of actors that have this text in their name.
    pub actor: Option<String>,
    /// Only of this action, like `tasks.retry`, or of all actions with this prefix, like
    /// `tasks`.
    pub action: Option<String>,
    /// Only from this time on.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub until: Option<Timestamp>,
    /// Only about this task, by its id.
    ///
    /// An operation by a filter names no ids.
    pub task: Option<TaskId>,
}

impl AuditFilter {
    /// Returns the newest entries.
    #[must_use]
    pub fn newest(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Returns whether it leaves out any entries but those of other pages.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        *self != Self { before: self.before, limit: self.limit, ..Self::default() }
    }
}

/// Refuses to remove entries that are younger than [`KEPT_MIN`].
pub fn check_prune(age: Duration) -> Result<(), StoreError> {
    if age >= KEPT_MIN {
        return Ok(());
    }
    Err(StoreError::InvalidData(format!(
        "audit entries are kept for at least {} days; ask to remove older ones",
        KEPT_MIN.as_secs() / 86_400
    )))
}

/// The outcome of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It is about to be done.
    Started,
    /// It was done.
    Done,
    /// It was not allowed or not possible; nothing was changed.
    Refused,
    /// It was tried, and went wrong; some of it may have been done.
    Failed,
}

task_engine_core::enum_tokens!(AuditOutcome {
    Started = "started", Done = "done", Refused = "refused", Failed = "failed",
});

impl FromStr for AuditOutcome {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text).ok_or_else(|| {
            ParseError(format!("no outcome {text:?}; there are started, done, refused, failed"))
        })
    }
}

/// An entry on its way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEntry {
    actor: String,
    action: String,
    target: String,
    reason: Option<String>,
    detail: Json,
    outcome: AuditOutcome,
    of: Option<i64>,
}

/// The error of an invalid entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAuditEntry {
    /// The name of the actor or of the action is invalid.
    #[error(
        "the {what} of an audit entry is a text of 1 to {NAME_BYTES_MAX} bytes without control characters, this is {text:?}"
    )]
    Name {
        /// `actor` or `action`.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The target is too long: name fewer tasks, or use a shorter filter.
    #[error(
        "{bytes} bytes to say what an action is done to are too many (at most {TARGET_BYTES_MAX}); name fewer, or use a shorter filter"
    )]
    Target {
        /// The length of the text.
        bytes: usize,
    },
    /// The reason is empty, too long, or has control characters.
    #[error(
        "a reason is a text of 1 to {REASON_BYTES_MAX} bytes without control characters; leave it out if there is none"
    )]
    Reason,
    /// The detail is too long.
    #[error("{bytes} bytes of detail are too many for an audit entry (at most {DETAIL_BYTES_MAX})")]
    DetailTooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// The detail is not an object.
    #[error("the detail of an audit entry: {0}")]
    Detail(#[from] task_engine_core::json::InvalidJson),
}

impl From<InvalidAuditEntry> for StoreError {
    fn from(error: InvalidAuditEntry) -> Self {
        Self::InvalidData(error.to_string())
    }
}

impl NewAuditEntry {
    /// Creates an operation that is about to run.
    ///
    /// `action` is a token like `tasks.retry`; `target` is an id, a filter, the name of a queue.
    ///
    /// Control characters in the target become visible: a filter may have some.
    pub fn started(
        actor: impl Into<String>,
        action: impl Into<String>,
        target: &str,
        reason: Option<String>,
        detail: Json,
    ) -> Result<Self, InvalidAuditEntry> {
        let actor = checked("actor", actor.into())?;
        let action = checked("action", action.into())?;
        let target = visible(target);
        if target.len() > TARGET_BYTES_MAX {
            return Err(InvalidAuditEntry::Target { bytes: target.len() });
        }
        if reason.as_ref().is_some_and(|reason| !is_plain(reason, REASON_BYTES_MAX)) {
            return Err(InvalidAuditEntry::Reason);
        }
        let detail = detail.into_object()?;
        let bytes = detail.as_str().len();
        if bytes > DETAIL_BYTES_MAX {
            return Err(InvalidAuditEntry::DetailTooLong { bytes });
        }
        let outcome = AuditOutcome::Started;
        Ok(Self { actor, action, target, reason, detail, outcome, of: None })
    }

    /// Returns the entry of its end; `of` is the id of the entry of its start.
    ///
    /// It cannot be wrong, so that an outcome is never lost: a detail that is too long is replaced
    /// by its length.
    #[must_use]
    pub fn ended(&self, of: i64, outcome: AuditOutcome, detail: Json) -> Self {
        let bytes = detail.as_str().len();
        let detail = match detail.into_object() {
            Ok(detail) if bytes <= DETAIL_BYTES_MAX => detail,
            _ => Json::from_store(format!("{{\"detail_bytes\": {bytes}}}")),
        };
        Self { outcome, of: Some(of), detail, ..self.clone() }
    }

    /// Returns the user or program.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Returns the action.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    /// Returns its target.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the reason, if one was given.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns an object: counts, values before and after.
    #[must_use]
    pub fn detail(&self) -> &Json {
        &self.detail
    }

    /// Returns the outcome.
    #[must_use]
    pub fn outcome(&self) -> AuditOutcome {
        self.outcome
    }

    /// Returns the entry of its start.
    #[must_use]
    pub fn of(&self) -> Option<i64> {
        self.of
    }
}

/// A recorded entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Grows with time.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The user or program.
    pub actor: String,
    /// The action, like `tasks.retry`.
    pub action: String,
    /// Its target.
    pub target: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// An object: counts, values before and after.
    #[serde(serialize_with = "as_it_is")]
    pub detail: Json,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The entry of its start, if this one has the outcome.
    pub of: Option<i64>,
}

fn as_it_is<S: Serializer>(json: &Json, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(json.as_str()).map_err(serde::ser::Error::custom)?;
    raw.serialize(serializer)
}

fn checked(what: &'static str, text: String) -> Result<String, InvalidAuditEntry> {
    if is_plain(&text, NAME_BYTES_MAX) {
        Ok(text)
    } else {
        Err(InvalidAuditEntry::Name { what, text })
    }
}

fn is_plain(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(
        target: &str,
        reason: Option<&str>,
        detail: &str,
    ) -> Result<NewAuditEntry, InvalidAuditEntry> {
        let detail = Json::parse(detail).unwrap();
        NewAuditEntry::started("ada", "tasks.retry", target, reason.map(str::to_owned), detail)
    }

    #[test]
    fn entry_fields_are_checked() {
        let entry = started("status = \"a\0\n\"", Some("é"), "{}").unwrap();
        assert_eq!(entry.target(), r#"status = "a\u{0}\n""#);
        assert_eq!((entry.reason(), entry.of()), (Some("é"), None));
        for bad in ["", "a\0b", "a\nb", &"x".repeat(1001)] {
            assert_eq!(started("1", Some(bad), "{}"), Err(InvalidAuditEntry::Reason), "{bad:?}");
        }
        let long = "x".repeat(TARGET_BYTES_MAX + 1);
        assert_eq!(
            started(&long, None, "{}"),
            Err(InvalidAuditEntry::Target { bytes: long.len() })
        );
        let detail = format!("{{\"a\": \"{}\"}}", "x".repeat(DETAIL_BYTES_MAX));
        let error = started("1", None, &detail).unwrap_err();
        assert_eq!(error, InvalidAuditEntry::DetailTooLong { bytes: detail.len() });
        assert!(
            matches!(StoreError::from(error), StoreError::InvalidData(why) if why.contains("8192"))
        );
        assert!(matches!(started("1", None, "[]"), Err(InvalidAuditEntry::Detail(_))));
        for bad in ["", "a\x1b", &"x".repeat(201)] {
            let entry = NewAuditEntry::started(bad, "a", "1", None, Json::empty_object());
            assert!(matches!(entry, Err(InvalidAuditEntry::Name { what: "actor", .. })), "{bad:?}");
            let entry = NewAuditEntry::started("a", bad, "1", None, Json::empty_object());
            assert!(
                matches!(entry, Err(InvalidAuditEntry::Name { what: "action", .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn outcome_detail_is_bounded() {
        let started = started("1", Some("because"), "{}").unwrap();
        let done = started.ended(7, AuditOutcome::Done, Json::parse(r#"{"retried": 3}"#).unwrap());
        assert_eq!((done.of(), done.outcome()), (Some(7), AuditOutcome::Done));
        assert_eq!((done.reason(), done.detail().as_str()), (Some("because"), r#"{"retried": 3}"#));
        let long = Json::parse(format!("[\"{}\"]", "x".repeat(DETAIL_BYTES_MAX))).unwrap();
        let failed = started.ended(7, AuditOutcome::Failed, long);
        assert_eq!(failed.detail().as_str(), r#"{"detail_bytes": 8196}"#);
    }
}
