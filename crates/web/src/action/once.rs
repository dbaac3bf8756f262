//! Tasks that are created once, however often a request for them comes.
//!
//! Each has a key of its own, which the store keeps unique in its class for as
//! long as the task is on record; and each has the mark of its request in its
//! context, so that a key that comes again with something else is noticed.
//!
//! A mark is a hash of the request without its secret parameters, made with the
//! key of the database. So neither who reads marks nor who sends a request again
//! learns anything about a secret: a guess that is wrong gets the answer of one
//! that is right.

use std::time::Duration;

use task_engine_model::search::Search;
use task_engine_model::secret::request::{CONTEXT_MARK, unique_key};
use task_engine_model::{
    Creation, Filter, Json, NewTask, Scope, Store, StoreError, TaskId, Unique,
};

use super::{Done, create as create_all};
use crate::app::App;
use crate::keys::Made;
use crate::problem::Problem;

/// For as long as the task is on record.
const LASTING: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The mark of a request: what it says without its secrets, and which parameters
/// these are. Marks of which the first two parts differ cannot be compared.
pub(crate) fn mark_of(keys: &Made, secrets: &str, request: &[u8]) -> String {
    let hash = |text: &[u8]| blake3::keyed_hash(&keys.requests, text).to_hex();
    format!("{}.{}.{}", keys.name, &hash(secrets.as_bytes())[..8], &hash(request)[..32])
}

/// Something that no other form has, in a hidden field: a form that is sent twice
/// creates what it creates once.
pub(crate) fn one_time() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

/// The key of a form, of what is in that field.
pub(crate) fn form_key(one_time: &str) -> String {
    format!("form-{}", &blake3::hash(one_time.as_bytes()).to_hex()[..32])
}

/// What makes a task of a request the only one.
pub(crate) fn unique(key: &str, at: usize) -> Unique {
    Unique::by(unique_key(key, at)).scope(Scope::Within(LASTING))
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
    let search = Search {
        filter: Filter::of_ids(ids).and(Filter::with_request()),
        before: None,
        limit: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        patience: Duration::from_secs(10),
    };
    let found = search.run(store).await?.tasks;
    Ok(found.len() == ids.len() && found.iter().all(|task| fits(&task.context, mark)))
}

/// Whether a task may be of this request. A mark that was made with another key
/// (the task was imported), or when other parameters were secret, says nothing:
/// then the Idempotency-Key alone decides, and nothing is created twice.
fn fits(context: &Json, mark: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Marked {
        http_request: String,
    }
    let comparable = |mark: &str| mark.rsplit_once('.').map(|(made_by, _)| made_by.to_owned());
    context.decode::<Marked>().is_ok_and(|Marked { http_request: own }| {
        own == mark || comparable(&own) != comparable(mark)
    })
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

#[cfg(test)]
mod tests {
    use task_engine_model::login::DatabaseKey;

    use super::*;

    #[test]
    fn marks_need_the_key() {
        let mark = |key: u8, secrets: &str, request: &str| {
            mark_of(&Made::of(&DatabaseKey([key; 32]), None), secrets, request.as_bytes())
        };
        let own = mark(1, "a", "x");
        let fits = |mark: &str| {
            let context = Json::parse(format!(r#"{{"http_request": "{mark}"}}"#)).unwrap();
            fits(&context, &own)
        };
        assert!(fits(&mark(1, "a", "x")) && !fits(&mark(1, "a", "y")));
        assert!(fits(&mark(2, "a", "y")) && fits(&mark(1, "b", "y")), "not comparable");
        assert!(!own.contains(&blake3::hash(b"x").to_hex()[..8]), "{own}");
    }
}
