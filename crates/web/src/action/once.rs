//! Tasks that are created once, however often a request for them comes.
//!
//! Each has a key of its own, which the store keeps unique in its class for as
//! long as the task is on record; and each has the mark of its request in its
//! context, so that a key that comes again with something else is noticed.

use std::time::Duration;

use jiff::tz::TimeZone;
use task_engine_model::search::Search;
use task_engine_model::{Creation, Filter, NewTask, Scope, Store, StoreError, TaskId, Unique};

use super::{Done, create as create_all};
use crate::app::App;
use crate::problem::Problem;

/// Where the mark of the request is in the context of a task.
const CONTEXT_MARK: &str = "http_request";

/// For as long as the task is on record.
const LASTING: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The mark of a request: what it says.
pub(crate) fn mark_of(request: &[u8]) -> String {
    format!("b3-{}", &blake3::hash(request).to_hex()[..32])
}

/// Something that no other form has, in a hidden field: a form that is sent twice
/// creates what it creates once.
pub(crate) fn one_time() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

/// What makes a task of a request the only one.
pub(crate) fn unique(key: &str, at: usize) -> Unique {
    Unique::by(format!("http:{key}:{at}")).scope(Scope::Within(LASTING))
}

/// Gives each task of a request its key and the request's mark.
pub(crate) fn mark_all(tasks: &mut [NewTask], key: &str, mark: &str) -> Result<(), Problem> {
    for (at, task) in tasks.iter_mut().enumerate() {
        if task.unique.is_some() {
            return Err(Problem::bad(
                "A task has a `key` of its own, or the request has an Idempotency-Key, not both.",
            ));
        }
        task.unique = Some(unique(key, at));
        task.add_context(CONTEXT_MARK, mark).map_err(|bad| Problem::bad(bad.to_string()))?;
    }
    Ok(())
}

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
