//! How the tasks have ended that a task depends on, for its program.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use task_engine::{Context, EndedDependency, Failure, Json, TaskId, TaskStatus};
use task_engine_core::attempt::TaskError;

/// A variable of a process has at most 128 KiB on Linux.
pub(super) const VARIABLE_BYTES_MAX: usize = 100_000;
/// Of a line of a long-running process.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A task that has ended, as a program reads it.
#[derive(Serialize)]
struct Ended<'a> {
    id: TaskId,
    status: Option<TaskStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a TaskError>,
    /// Whether the result is left out because all of them together are too large.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    result_omitted: bool,
}

/// An object of the tasks that this one depends on, by their names, or by their ids if they
/// have none. `None` if it depends on none.
pub(super) async fn read(
    cx: &Context<()>,
    bytes_max: usize,
) -> Result<Option<Box<RawValue>>, Failure> {
    if !cx.has_dependencies() {
        return Ok(None);
    }
    let ended = cx.dependencies().await?;
    let whole = object(&ended, true)?;
    let fits = whole.get().len() <= bytes_max;
    Ok(Some(if fits { whole } else { object(&ended, false)? }))
}

fn object(ended: &[EndedDependency], results: bool) -> Result<Box<RawValue>, Failure> {
    let mut by_name = BTreeMap::new();
    for one in ended {
        let name = one.name.clone().unwrap_or_else(|| one.id.to_string());
        let entry = Ended {
            id: one.id,
            status: one.status,
            result: one.result.as_ref().filter(|_| results),
            error: one.error.as_ref().filter(|_| results),
            result_omitted: !results,
        };
        by_name.insert(name, entry);
    }
    Ok(serde_json::value::to_raw_value(&by_name)?)
}
