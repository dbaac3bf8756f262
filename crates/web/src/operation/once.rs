//! Tasks that are created once, however often a request for them comes.
//!
//! Each has a key of its own, which the store keeps unique in its class for as long as the task
//! exists. Each also has the mark of its request in its context, so that the same key with another
//! request is noticed.
//!
//! A mark is a hash of the request without its secret parameters, made with the
//! key of the database. Neither a reader of marks nor a client that sends a request
//! again learns anything about a secret: a wrong guess gets the same answer as a
//! right one.

use std::collections::BTreeMap;
use std::time::Duration;

use task_engine_core::dependency::NewFlow;
use task_engine_core::filter::Filter;
use task_engine_core::json::Json;
use task_engine_core::secret::request::{CONTEXT_MARK, unique_key};
use task_engine_core::task::{InvalidTask, NewTask, TaskId};
use task_engine_core::unique::{Creation, Scope, Unique};
use task_engine_operations::OperationError;
use task_engine_operations::flows::{self, FlowReport};
use task_engine_operations::search::Search;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::error::ApiError;
use crate::keys::DerivedKeys;

/// For as long as the task exists.
const LASTING: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The mark of a request: a hash of its content without secrets, and of which parameters
/// are secret. Marks whose first two parts differ cannot be compared.
pub(crate) fn mark_of(keys: &DerivedKeys, secrets: &str, request: &[u8]) -> String {
    let hash = |text: &[u8]| blake3::keyed_hash(&keys.requests, text).to_hex();
    format!("{}.{}.{}", keys.name, &hash(secrets.as_bytes())[..8], &hash(request)[..32])
}

/// A random value in a hidden field of a form: a form that is sent twice creates its
/// task once.
pub(crate) fn one_time() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

/// The key of a form, made of that field.
pub(crate) fn form_key(one_time: &str) -> String {
    format!("form-{}", &blake3::hash(one_time.as_bytes()).to_hex()[..32])
}

/// Keeps a task of a request unique.
pub(crate) fn unique(key: &str, at: usize) -> Unique {
    Unique::by(unique_key(key, at)).scope(Scope::Within(LASTING))
}

/// Gives each task of a request its key and its mark of the request.
pub(crate) fn mark_all(tasks: &mut [NewTask], key: &str, marks: &[String]) -> Result<(), ApiError> {
    for (at, (task, mark)) in tasks.iter_mut().zip(marks).enumerate() {
        if task.unique.is_some() {
            return Err(ApiError::bad_request(
                "A task has a `key` of its own, or the request has an Idempotency-Key, not both.",
            ));
        }
        task.unique = Some(unique(key, at));
        task.add_context(CONTEXT_MARK, mark)
            .map_err(|bad| ApiError::bad_request(bad.to_string()))?;
    }
    Ok(())
}

/// Checks that tasks which existed before were created by the same request.
pub(super) async fn check(
    store: &dyn Store,
    creations: &[Creation],
    marks: &[String],
) -> Result<(), OperationError> {
    let (new, old): (Vec<_>, Vec<_>) =
        creations.iter().zip(marks).partition(|(creation, _)| creation.is_new());
    let old: BTreeMap<_, _> = old.into_iter().map(|(it, mark)| (it.id(), mark.as_str())).collect();
    let Some(first) = old.keys().next().copied() else { return Ok(()) };
    if are_of_request(store, &old).await? {
        return Ok(());
    }
    let new: Vec<_> = new.into_iter().map(|(creation, _)| creation.id()).collect();
    let undone = undo(store, &new).await?;
    Err(OperationError::KeyReused(format!(
        "this Idempotency-Key was used for another request, which created task {first}.{undone} Use a new key for each request, and the same one only to send it again"
    )))
}

/// Gives a flow the key and the mark of its request. Its correlation id is made of the key, so
/// that the flow is found again; its first task, which depends on none, has the key.
pub(super) fn mark_flow(flow: &mut NewFlow, key: &str, mark: &str) -> Result<(), OperationError> {
    let hash = blake3::hash(key.as_bytes()).to_hex();
    let id = || format!("request-{}", &hash[..32]);
    flow.correlation_id.get_or_insert_with(id);
    let invalid = |bad: InvalidTask| OperationError::invalid(bad.to_string());
    for task in &mut flow.tasks {
        task.task.add_context(CONTEXT_MARK, mark).map_err(invalid)?;
    }
    if let Some(first) = flow.tasks.iter_mut().find(|task| task.dependencies.is_empty()) {
        first.task.unique = Some(unique(key, 0));
    }
    Ok(())
}

/// The flow of an earlier request with the same key, if there is one.
pub(super) async fn created_flow(
    store: &dyn Store,
    flow: &NewFlow,
    mark: &str,
) -> Result<Option<FlowReport>, OperationError> {
    let Some(id) = flow.correlation_id.as_deref() else { return Ok(None) };
    let Some(details) = flows::read(store, id, flows::TASKS_READ_MAX).await? else {
        return Ok(None);
    };
    let Some(first) = details.tasks.first() else { return Ok(None) };
    let marks = BTreeMap::from([(first.row.id, mark)]);
    if !are_of_request(store, &marks).await? {
        return Err(OperationError::KeyReused(format!(
            "flow {id} exists already, and another request created it; nothing was created. Use a new key for each request, and the same one only to send it again"
        )));
    }
    // The first of each name: others were created by hand.
    let mut tasks = BTreeMap::new();
    for task in details.tasks {
        if let Some(name) = task.name {
            tasks.entry(name).or_insert(task.row.id);
        }
    }
    Ok(Some(FlowReport { correlation_id: details.correlation_id, tasks }))
}

/// Removes what was created by the second of two requests with the same key that came at the
/// same time, and returns the flow of the first.
///
/// The first task of the second one is that of the first, by its key, so it has not run twice;
/// what depends on it has hardly started.
pub(super) async fn undo_second_flow(
    store: &dyn Store,
    flow: &NewFlow,
    second: &FlowReport,
    mark: &str,
) -> Result<Option<FlowReport>, OperationError> {
    let Some(first) = created_flow(store, flow, mark).await? else { return Ok(None) };
    let own: Vec<TaskId> = second
        .tasks
        .iter()
        .filter(|(name, id)| first.tasks.get(*name) != Some(id))
        .map(|(_, id)| *id)
        .collect();
    if own.is_empty() {
        return Ok(None);
    }
    undo(store, &own).await?;
    Ok(Some(first))
}

/// Whether these tasks have these marks. Some marks cannot be compared: one that was made with
/// another key (the task was imported), or when other parameters of its class were secret. Then the
/// Idempotency-Key alone decides, and nothing is created twice.
async fn are_of_request(
    store: &dyn Store,
    marks: &BTreeMap<TaskId, &str>,
) -> Result<bool, StoreError> {
    let ids: Vec<TaskId> = marks.keys().copied().collect();
    let search = Search {
        filter: Filter::of_ids(&ids).and(Filter::with_request()),
        before: None,
        limit: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        timeout: Duration::from_secs(10),
    };
    let found = search.run(store).await?.tasks;
    let pairs: Vec<(String, &str)> = found
        .iter()
        .filter_map(|task| Some((mark_in(&task.context)?, *marks.get(&task.row.id)?)))
        .collect();
    Ok(pairs.len() == ids.len() && fit(&pairs))
}

fn mark_in(context: &Json) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Marked {
        http_request: String,
    }
    context.decode::<Marked>().ok().map(|marked| marked.http_request)
}

/// Marks that tasks have, each with that of the request.
fn fit(pairs: &[(String, &str)]) -> bool {
    fn made_by(mark: &str) -> Option<&str> {
        mark.rsplit_once('.').map(|(made_by, _)| made_by)
    }
    pairs.iter().any(|(own, new)| made_by(own) != made_by(new))
        || pairs.iter().all(|(own, new)| own == new)
}

/// Removes the tasks that were created for the wrong request: the second list of
/// tasks with the same key was longer than the first.
async fn undo(store: &dyn Store, new: &[TaskId]) -> Result<String, StoreError> {
    if new.is_empty() {
        return Ok(" Nothing was created.".to_owned());
    }
    store.cancel(new).await?;
    store.delete(new).await?;
    Ok(" The tasks that this request had created were deleted.".to_owned())
}

#[cfg(test)]
mod tests {
    use task_engine_store::login::DatabaseKey;

    use super::*;

    #[test]
    fn marks_need_the_key() {
        let mark = |key: u8, secrets: &str, request: &str| {
            mark_of(&DerivedKeys::of(&DatabaseKey([key; 32]), None), secrets, request.as_bytes())
        };
        let own = mark(1, "a", "x");
        let fits = |mark: String| fit(&[(mark, own.as_str())]);
        assert!(fits(mark(1, "a", "x")) && !fits(mark(1, "a", "y")));
        assert!(fits(mark(2, "a", "y")) && fits(mark(1, "b", "y")), "not comparable");
        assert!(!own.contains(&blake3::hash(b"x").to_hex()[..8]), "{own}");
    }
}
