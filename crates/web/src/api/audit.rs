//! The audit.

use axum::Json as JsonResponse;
use axum::extract::State;
use serde::Serialize;
use task_engine_operations::report::audit_sentence;
use task_engine_store::audit::{AuditEntry, AuditFilter};

use super::query::Query;
use super::times::time;
use crate::app::App;
use crate::error::ApiError;

#[derive(Serialize)]
pub(super) struct Audit {
    entries: Vec<Entry>,
    /// `before` of the next page.
    next: Option<i64>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    entry: AuditEntry,
    message: String,
}

pub(super) async fn list(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<Audit>, ApiError> {
    let query = query.with(&["before", "limit", "actor", "action", "task", "since", "until"])?;
    let limit = query.limit(50, 500)?;
    let moment = |name| {
        let read =
            |text: &str| time(text).map_err(|why| ApiError::parameter(name, format!("{why}.")));
        query.text(name).map(read).transpose()
    };
    let filter = AuditFilter {
        before: query.parse("before")?,
        limit,
        actor: query.text("actor").map(str::to_owned),
        action: query.text("action").map(str::to_owned),
        since: moment("since")?,
        until: moment("until")?,
        task: query.parse("task")?,
    };
    let entries = app.store.audit_page(&filter).await?;
    let last = entries.last().filter(|_| entries.len() >= limit as usize);
    let next = last.map(|last| last.id);
    let shown = |entry: AuditEntry| Entry { message: audit_sentence(&entry), entry };
    Ok(JsonResponse(Audit { entries: entries.into_iter().map(shown).collect(), next }))
}
