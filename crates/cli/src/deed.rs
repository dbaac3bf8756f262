//! What is changed from a terminal leaves the same trace as what is changed through
//! the dashboard: a line in the audit before, another with the outcome after. If
//! the first cannot be written, nothing is done.
//!
//! Not what creates tasks: whoever may do that need not have rights on the audit.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use task_engine::{Json, Store};
use task_engine_core::process::host_name;
use task_engine_core::task::NAME_BYTES_MAX;
use task_engine_store::audit::{AuditOutcome, NewAuditEntry, TARGET_BYTES_MAX};
use task_engine_store::token::TERMINAL;

use crate::error::CliError;

/// Something that is about to be done.
pub(crate) struct Deed<'a> {
    action: String,
    target: String,
    reason: Option<&'a str>,
    detail: Value,
}

impl<'a> Deed<'a> {
    /// The names are those of the dashboard.
    pub(crate) fn new(action: impl Into<String>, target: impl Into<String>) -> Self {
        Self { action: action.into(), target: target.into(), reason: None, detail: json!({}) }
    }

    pub(crate) fn reason(mut self, reason: Option<&'a str>) -> Self {
        self.reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        self
    }

    /// What is not in the target. Never parameters: they may be secret.
    pub(crate) fn detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }

    /// Does it. `became` says what, and to how many.
    pub(crate) async fn perform<T, E: Into<CliError>>(
        self,
        store: &dyn Store,
        work: impl Future<Output = Result<T, E>>,
        became: impl FnOnce(&T) -> (String, u64),
    ) -> Result<T, CliError> {
        let begun = self.begin(store).await?;
        let result = work.await.map_err(Into::into);
        let counts = result.as_ref().ok().map(became).into_iter().collect();
        begun.end(store, &counts, result.as_ref().err()).await;
        result
    }

    /// Writes down what is to be done.
    pub(crate) async fn begin(self, store: &dyn Store) -> Result<Begun, CliError> {
        let detail = encoded(&self.detail);
        let target = shortened(&self.target);
        let reason = self.reason.map(str::to_owned);
        let entry = NewAuditEntry::asked(actor(), self.action, &target, reason, detail)
            .map_err(|bad| CliError::Usage(bad.to_string()))?;
        let asked = store.audit(&entry).await?;
        Ok(Begun { entry, asked })
    }
}

/// Something that is on record, and is being done.
pub(crate) struct Begun {
    entry: NewAuditEntry,
    asked: i64,
}

impl Begun {
    /// Writes down what became of it: how many fared how, and what went wrong.
    pub(crate) async fn end(
        self,
        store: &dyn Store,
        counts: &BTreeMap<String, u64>,
        fault: Option<&CliError>,
    ) {
        let (outcome, detail) = match fault {
            None => (AuditOutcome::Done, json!({ "counts": counts })),
            Some(fault @ (CliError::Usage(_) | CliError::NotFound(_) | CliError::Conflict(_))) => {
                (AuditOutcome::Refused, json!({ "detail": fault.to_string() }))
            }
            Some(fault) => {
                (AuditOutcome::Failed, json!({ "counts": counts, "detail": fault.to_string() }))
            }
        };
        let ended = self.entry.ended(self.asked, outcome, encoded(&detail));
        if let Err(error) = store.audit(&ended).await {
            tracing::warn!(%error, asked = self.asked, "the outcome is missing in the audit");
        }
    }
}

/// Who types, as far as the system says.
pub(crate) fn actor() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    let mut actor = String::new();
    for c in format!("{TERMINAL}{user}@{}", host_name()).chars() {
        if !c.is_control() && actor.len() + c.len_utf8() <= NAME_BYTES_MAX {
            actor.push(c);
        }
    }
    actor
}

fn shortened(target: &str) -> String {
    // A character takes up to 8 bytes when it is made visible.
    const CHARS_MAX: usize = TARGET_BYTES_MAX / 8 - 1;
    let mut shown: String = target.chars().take(CHARS_MAX).collect();
    if shown.len() < target.len() {
        shown.push('…');
    }
    shown
}

fn encoded(detail: &Value) -> Json {
    Json::encode(detail).unwrap_or_else(|_| Json::empty_object())
}
