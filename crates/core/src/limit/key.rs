//! Keys: which limits apply to a task, and with which key.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Limit, LimitId, LimitTarget};
use crate::json::Json;

/// The field of the context with the limits that a task names: `{"api": "acme"}`.
pub const CONTEXT_NAME: &str = "limits";

/// The longest key that is stored as it is.
///
/// Of a longer one, a hash is the key.
pub const TASK_KEY_BYTES_MAX: usize = 200;

/// Marks the queue of a due task that waits in the lane of its key: claims of tasks without
/// limits do not see it. Names of queues contain no control characters.
const LIMITED: char = '\u{1f}';

/// Marks the queue of a task that waits for tasks that it depends on: no claim sees it.
const BLOCKED: char = '\u{1e}';

/// Returns the queue in the waiting row of a task that waits in the lane of its key.
#[must_use]
pub fn limited_queue(queue: &str) -> String {
    format!("{LIMITED}{queue}")
}

/// Returns the queue in the waiting row of a task that waits for tasks that it depends on.
#[must_use]
pub fn blocked_queue(queue: &str) -> String {
    format!("{BLOCKED}{queue}")
}

/// Returns whether a waiting row is one of a task that waits for tasks that it depends on.
#[must_use]
pub fn is_blocked_queue(stored: &str) -> bool {
    stored.starts_with(BLOCKED)
}

/// Returns the queue of a task, by its waiting row.
#[must_use]
pub fn plain_queue(stored: &str) -> &str {
    stored.strip_prefix([LIMITED, BLOCKED]).unwrap_or(stored)
}

/// A limit, and the key that a task has for it.
///
/// The key is empty if the limit has none, or the task has no value for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LimitKey(pub LimitId, pub String);

/// The limits of a task with their keys, in the order of their ids: tasks with the same lane key
/// start under the same conditions.
///
/// Stored as text, `[[3, "acme"], [5, ""]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneKey(pub Vec<LimitKey>);

impl LaneKey {
    /// Reads the stored text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text that is stored.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the keys that a task closes when the service behind it is overloaded: those of
    /// limits with keys, or all if no limit has one.
    #[must_use]
    pub fn closed_by_task(&self) -> Vec<&LimitKey> {
        let keyed: Vec<&LimitKey> =
            self.0.iter().filter(|LimitKey(_, key)| !key.is_empty()).collect();
        if keyed.is_empty() { self.0.iter().collect() } else { keyed }
    }

    /// Returns whether these are exactly the limits that apply to tasks of a class and queue,
    /// besides limits that tasks name.
    ///
    /// If not, limits were added or removed since.
    #[must_use]
    pub fn is_current(&self, class: &str, queue: &str, limits: &[(LimitId, Limit)]) -> bool {
        let in_lane = |id: LimitId| self.0.iter().any(|LimitKey(limit, _)| *limit == id);
        limits.iter().all(|(id, limit)| !limit.applies_to(class, queue) || in_lane(*id))
    }
}

/// Returns the lane key of a task: the limits of its class and queue, and those that it names.
#[must_use]
pub fn lane_key(
    class: &str,
    queue: &str,
    parameters: &Json,
    context: &Json,
    limits: &[(LimitId, Limit)],
    hash: fn(&str) -> String,
) -> LaneKey {
    let named = named_keys(context);
    let is_named = |limit: &Limit| {
        limit.target == LimitTarget::Named && named.iter().any(|(name, _)| *name == limit.name)
    };
    let of_task =
        limits.iter().filter(|(_, limit)| limit.applies_to(class, queue) || is_named(limit));
    let mut keys: Vec<LimitKey> = of_task
        .map(|(id, limit)| LimitKey(*id, limit_key(limit, parameters, context, hash)))
        .collect();
    keys.sort();
    LaneKey(keys)
}

/// Returns the key of a task for a limit: the one that the task names, or else the value of the
/// limit's parameter.
///
/// A number or a boolean counts by its text, and a missing value is the empty key. A long text, a
/// list or an object counts by its hash.
#[must_use]
pub fn limit_key(
    limit: &Limit,
    parameters: &Json,
    context: &Json,
    hash: fn(&str) -> String,
) -> String {
    let named = named_keys(context).into_iter().find(|(name, _)| *name == limit.name);
    let value = named.map(|(_, value)| value).filter(|value| !value.is_null()).or_else(|| {
        let parameter = limit.options.key.as_ref()?;
        parameters.decode::<serde_json::Map<String, Value>>().ok()?.remove(parameter)
    });
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => short(text, hash),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(number)) => short(number.to_string(), hash),
        Some(other) => hashed(&other.to_string(), hash),
    }
}

/// Control characters and quotes take more room in the stored text.
fn short(text: String, hash: fn(&str) -> String) -> String {
    let stored = serde_json::to_string(&text).map_or(usize::MAX, |json| json.len());
    if stored > TASK_KEY_BYTES_MAX + 2 { hashed(&text, hash) } else { text }
}

fn hashed(text: &str, hash: fn(&str) -> String) -> String {
    let mut key = String::from("hash:");
    let _ = write!(key, "{}", hash(text));
    key
}

/// The limits that a task names in its context, with their keys.
pub(crate) fn named_keys(context: &Json) -> Vec<(String, Value)> {
    let context: serde_json::Map<String, Value> = context.decode().unwrap_or_default();
    match context.get(CONTEXT_NAME) {
        Some(Value::Object(named)) => {
            named.iter().map(|(name, key)| (name.clone(), key.clone())).collect()
        }
        _ => Vec::new(),
    }
}
