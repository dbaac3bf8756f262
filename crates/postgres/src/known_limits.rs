//! The limits as a claimer knows them: read when they are needed, and again when they have
//! changed.

use std::collections::HashSet;

use task_engine_core::limit::{
    LaneKey, Limit, LimitId, LimitKey, LimitOptions, LimitTarget, plain_queue,
};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::json::JsonBytes;
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/limits.sql");
const READ_LIMITS: &str = statement(SQL, "read_limits");
const LIMITED_TARGETS: &str = statement(SQL, "limited_targets");

/// How a claimer takes tasks from a lane of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Its tasks have no limits.
    Plain,
    /// Its tasks have limits, and are moved to the lanes of their keys when they are due.
    Intake,
    /// The lanes of all keys of a queue, class and priority.
    Limited,
}

/// Limits and their targets, at one moment.
#[derive(Debug, Default)]
pub(crate) struct KnownLimits {
    pub(crate) version: i64,
    pub(crate) limits: Vec<(LimitId, Limit)>,
    /// Whether tasks may wait in lanes of keys, also of limits that were removed.
    has_targets: bool,
    classes: HashSet<String>,
    queues: HashSet<String>,
}

impl KnownLimits {
    pub(crate) async fn read(inner: &StoreInner) -> Result<Self, StoreError> {
        let client = inner.connections.work().await?;
        let (targets, limits) = (inner.schema.sql(LIMITED_TARGETS), inner.schema.sql(READ_LIMITS));
        // Targets last: those of the limits that were read are among them.
        let limits = client.query_cached(&limits, &[]).await?;
        let targets = client.query_cached(&targets, &[]).await?;
        let mut known = Self::default();
        for row in &limits {
            known.version = row.get("version");
            known.limits.extend(limit(row));
        }
        for row in &targets {
            known.has_targets = true;
            if !row.get::<_, bool>("in_use") {
                continue;
            }
            let (class, queue): (String, String) = (read(row, "task_class"), read(row, "queue"));
            if queue.is_empty() {
                known.classes.insert(class)
            } else {
                known.queues.insert(queue)
            };
        }
        Ok(known)
    }

    /// Whether no task has ever had limits.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_targets
    }

    pub(crate) fn kind(&self, queue: &str, class: &str) -> LaneKind {
        if plain_queue(queue) != queue {
            LaneKind::Limited
        } else if self.classes.contains(class) || self.queues.contains(queue) {
            LaneKind::Intake
        } else {
            LaneKind::Plain
        }
    }

    /// The options of a limit; `None` if it was removed.
    pub(crate) fn options(&self, id: LimitId) -> Option<&LimitOptions> {
        let found = self.limits.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.limits[found].1.options)
    }

    /// The weight of a key; 0 if it has none.
    pub(crate) fn weight(&self, LimitKey(id, key): &LimitKey) -> usize {
        let weight = self.options(*id).and_then(|options| options.weights.get(key));
        weight.map_or(0, |weight| *weight as usize)
    }

    /// How many tasks a lane starts in its turn.
    pub(crate) fn lane_weight(&self, lane: &LaneKey) -> usize {
        lane.0.iter().map(|key| self.weight(key)).max().unwrap_or(0).max(1)
    }

    /// Whether a limit of this class and queue, or one that a task may name, is in order.
    pub(crate) fn may_be_in_order(&self, queue: &str, class: &str) -> bool {
        let applies =
            |limit: &Limit| limit.applies_to(class, queue) || limit.target == LimitTarget::Named;
        self.limits.iter().any(|(_, limit)| limit.options.in_order && applies(limit))
    }

    /// Whether a key is that of a limit in order.
    pub(crate) fn is_in_order(&self, key: &LimitKey) -> bool {
        self.options(key.0).is_some_and(|options| options.in_order)
    }

    /// Whether the keys of a lane are those that its tasks have by these limits: those of
    /// limits in order, or all.
    pub(crate) fn is_current(&self, lane: &LaneKey, queue: &str, class: &str) -> bool {
        let queue = plain_queue(queue);
        let in_order = lane.0.iter().any(|key| self.is_in_order(key));
        let counts = |limit: &Limit| limit.options.in_order || !in_order;
        let has = |id: LimitId| lane.0.iter().any(|LimitKey(of, _)| *of == id);
        let applies = |limit: &Limit| limit.applies_to(class, queue);
        lane.0.iter().all(|key| self.options(key.0).is_some_and(|o| o.in_order == in_order))
            && self.limits.iter().all(|(id, limit)| {
                !applies(limit)
                    || !counts(limit)
                    || (has(*id) && limit.options.in_order == in_order)
            })
    }
}

/// A row of a limit. `None` if there are no limits.
pub(crate) fn limit(row: &Row) -> Option<(LimitId, Limit)> {
    let id: Option<i32> = row.get("id");
    let id = LimitId(id?);
    let name: String = read(row, "name");
    let options = limit_options(row, "options", &name)?;
    Some((id, Limit { name, target: limit_target(row), options }))
}

pub(crate) fn limit_target(row: &Row) -> LimitTarget {
    match (read(row, "task_class"), read(row, "queue")) {
        (Some(class), _) => LimitTarget::Class(class),
        (None, Some(queue)) => LimitTarget::Queue(queue),
        (None, None) => LimitTarget::Named,
    }
}

/// The options of a limit. Unreadable ones, written by a newer version, are logged.
pub(crate) fn limit_options(row: &Row, column: &str, name: &str) -> Option<LimitOptions> {
    let stored = row.get::<_, Option<JsonBytes<'_>>>(column)?;
    match serde_json::from_slice(stored.0) {
        Ok(options) => Some(options),
        Err(error) => {
            tracing::error!("the options of limit {name:?} cannot be read: {error}");
            None
        }
    }
}
