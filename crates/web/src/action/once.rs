//! Tasks that are created once, however often a request for them comes.
//!
//! Each has a key of its own, which the store keeps unique in its class for as
//! long as the task is on record; and each has the mark of its request in its
//! context, so that a key that comes again with something else is noticed.

use std::time::Duration;

use jiff::tz::TimeZone;
use task_engine_model::search::Search;
use task_engine_model::{Creation, Filter, NewTask, Store, StoreError, TaskId};

use super::{Done, create as create_all};
use crate::app::App;
use crate::problem::Problem;

/// Where the mark of the request is in the context of a task.
pub(crate) const CONTEXT_MARK: &str = "http_request";

pub(super) async fn create(app: &App, tasks: &[NewTask], mark: &str) -> Result<Done, Problem> {
    let done = create_all(app, tasks).await?;
    let (new, old): (Vec<Creation>, Vec<Creation>) =
        done.creations.iter().partition(|creation| creation.is_new());
    let mut old: Vec<TaskId> = old.into_iter().map(Creation::id).collect();
    old.sort_unstable();
    old.dedup();
    if old.is_empty() || are_of_request(&*app.store, &old, mark).await? {
        return Ok(done);
    }
    let undone = undo(&*app.store, &new).await?;
    Err(Problem::new(
        axum::http::StatusCode::UNPROCESSABLE_ENTITY,
        "Another request",
        format!(
            "This Idempotency-Key was used for another request, which created task {}.{undone} Use a new key for each request, and the same one only to send it again.",
            old[0]
        ),
    ))
}

async fn are_of_request(store: &dyn Store, ids: &[TaskId], mark: &str) -> Result<bool, StoreError> {
    let of_request = Filter::parse(&format!("context.{CONTEXT_MARK}={mark}"), &TimeZone::UTC)
        .map_err(|bad| StoreError::BadData(bad.to_string()))?;
    let search = Search {
        filter: Filter::of_ids(ids).and(of_request),
        before: None,
        limit: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        patience: Duration::from_secs(10),
    };
    Ok(search.run(store).await?.tasks.len() == ids.len())
}

/// The longer of two lists of the same key: what came after the end of the
/// shorter one is new, and was not meant.
async fn undo(store: &dyn Store, new: &[Creation]) -> Result<String, StoreError> {
    if new.is_empty() {
        return Ok(" Nothing was created.".to_owned());
    }
    let ids: Vec<TaskId> = new.iter().map(|creation| creation.id()).collect();
    store.cancel(&ids).await?;
    store.remove(&ids).await?;
    Ok(" What was new in this one was cancelled.".to_owned())
}
