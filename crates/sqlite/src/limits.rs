//! The limits of a store, as claims and readers use them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Row;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use task_engine_core::json::Json;
use task_engine_core::limit::{
    CONTEXT_NAME, LIMITS_MAX, LaneKey, Limit, LimitId, LimitOptions, LimitRow, LimitTarget,
    lane_key,
};
use task_engine_core::task::NewTask;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::value::read;

/// All limits of a database, and the classes whose tasks name limits.
#[derive(Debug, Default)]
pub(crate) struct LimitSet {
    pub(crate) rows: Vec<LimitRow>,
    /// The same, as keys are computed from them.
    limits: Vec<(LimitId, Limit)>,
    /// Their options as claims copy them: weights may be many.
    without_weights: HashMap<LimitId, LimitOptions>,
    classes_naming_limits: HashSet<String>,
}

/// What is in use, as every claim asks.
pub(crate) struct LimitsInUse {
    /// Whether there are limits, or tasks in lanes of their own.
    pub(crate) any: bool,
    version: i64,
}

/// The limits that the last claim has read.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitCache(Arc<Mutex<Option<CachedLimits>>>);

#[derive(Debug)]
struct CachedLimits {
    version: i64,
    limits: Arc<LimitSet>,
}

impl LimitCache {
    /// The limits of this version, read if they are not cached.
    pub(crate) fn get(
        &self,
        tx: &JobTransaction<'_>,
        in_use: &LimitsInUse,
    ) -> Result<Arc<LimitSet>, JobError> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = &*cached
            && cached.version == in_use.version
        {
            return Ok(cached.limits.clone());
        }
        let limits = Arc::new(LimitSet::read(tx)?);
        *cached = Some(CachedLimits { version: in_use.version, limits: limits.clone() });
        Ok(limits)
    }
}

pub(crate) fn in_use(tx: &JobTransaction<'_>) -> Result<LimitsInUse, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/limits", "limits_in_use"))?;
    Ok(statement
        .query_row([], |row| Ok(LimitsInUse { any: read(row, 0)?, version: read(row, 1)? }))?)
}

/// What claims have cached is out of date, and tasks may be allowed to start.
pub(crate) fn changed(tx: &JobTransaction<'_>) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("engine/limits", "limits_changed"))?.execute([])?;
    tx.brings_work.set(true);
    Ok(())
}

impl LimitSet {
    pub(crate) fn read(tx: &JobTransaction<'_>) -> Result<Self, JobError> {
        let mut statement = tx.db.prepare_cached(sql!("engine/limits", "limits"))?;
        let mut found = statement.query([])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(limit_row(row)?);
        }
        let mut statement = tx.db.prepare_cached(sql!("engine/limits", "classes_naming_limits"))?;
        let classes = statement.query_map([], |row| read(row, 0))?;
        let classes_naming_limits = classes.collect::<rusqlite::Result<_>>()?;
        let limits = rows.iter().map(|row| (row.id, row.limit.clone())).collect();
        let without_weights = rows.iter().map(|row| {
            let mut options = row.limit.options.clone();
            options.weights.clear();
            (row.id, options)
        });
        let without_weights = without_weights.collect();
        Ok(Self { rows, limits, without_weights, classes_naming_limits })
    }

    /// Whether tasks of this class and queue may have limits.
    pub(crate) fn may_apply_to(&self, class: &str, queue: &str) -> bool {
        self.names_limits(class)
            || self.limits.iter().any(|(_, limit)| limit.applies_to(class, queue))
    }

    /// Whether tasks of this class may name limits.
    pub(crate) fn names_limits(&self, class: &str) -> bool {
        self.classes_naming_limits.contains(class)
    }

    pub(crate) fn classes_naming_limits(&self) -> impl Iterator<Item = &String> {
        self.classes_naming_limits.iter()
    }

    /// The limits that apply to all tasks of a class and queue.
    pub(crate) fn of_all<'a>(
        &'a self,
        class: &'a str,
        queue: &'a str,
    ) -> impl Iterator<Item = (LimitId, &'a Limit)> {
        let limits = self.limits.iter();
        limits.filter(move |(_, one)| one.applies_to(class, queue)).map(|(id, one)| (*id, one))
    }

    /// Whether a limit in order may apply to tasks of a class and queue.
    pub(crate) fn may_be_in_order(&self, class: &str, queue: &str) -> bool {
        let may_apply = |limit: &Limit| self.names_limits(class) || limit.applies_to(class, queue);
        self.limits.iter().any(|(_, limit)| limit.options.in_order && may_apply(limit))
    }

    pub(crate) fn get(&self, id: LimitId) -> Option<&Limit> {
        self.limits.iter().find(|(of, _)| *of == id).map(|(_, limit)| limit)
    }

    pub(crate) fn options_without_weights(&self, id: LimitId) -> Option<LimitOptions> {
        self.without_weights.get(&id).cloned()
    }

    pub(crate) fn row(&self, id: LimitId) -> Option<&LimitRow> {
        self.rows.iter().find(|row| row.id == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&LimitRow> {
        self.rows.iter().find(|row| row.limit.name == name)
    }

    /// The limits of a task with their keys.
    pub(crate) fn lane_key(
        &self,
        class: &str,
        queue: &str,
        parameters: &Json,
        context: &Json,
    ) -> LaneKey {
        lane_key(class, queue, parameters, context, &self.limits, sha256_hex)
    }

    /// Whether no limit was added or removed since tasks were moved to this lane.
    pub(crate) fn is_current(&self, key: &LaneKey, class: &str, queue: &str) -> bool {
        key.is_current(class, queue, &self.limits)
            && key.0.iter().all(|one| self.get(one.0).is_some())
    }
}

fn limit_row(row: &Row<'_>) -> Result<LimitRow, JobError> {
    let declared = options(read(row, 4)?)?;
    let operator = options(read(row, 5)?)?;
    let target_name: String = read(row, 3)?;
    let target = match read::<String>(row, 2)?.as_str() {
        "class" => LimitTarget::Class(target_name),
        "queue" => LimitTarget::Queue(target_name),
        _ => LimitTarget::Named,
    };
    let set_by_operator = operator.is_some();
    Ok(LimitRow {
        id: LimitId(read(row, 0)?),
        limit: Limit {
            name: read(row, 1)?,
            target,
            options: operator.or_else(|| declared.clone()).unwrap_or_default(),
        },
        declared,
        set_by_operator,
        changed_at: read(row, 6)?,
    })
}

fn options(stored: Option<String>) -> Result<Option<LimitOptions>, JobError> {
    Ok(stored.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// The hash that stands for a long key.
fn sha256_hex(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The limits that a context names.
pub(crate) fn named_limits(context: &Json) -> Vec<String> {
    // Most contexts are not parsed.
    if !context.as_str().contains(CONTEXT_NAME) {
        return Vec::new();
    }
    let context: Map<String, Value> = context.decode().unwrap_or_default();
    match context.get(CONTEXT_NAME) {
        Some(Value::Object(named)) => named.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// Refuses tasks that name limits that do not exist, and registers the classes of the others.
pub(crate) fn check_named(tx: &JobTransaction<'_>, tasks: &[NewTask]) -> Result<(), JobError> {
    let mut classes = BTreeSet::new();
    for task in tasks {
        let named = named_limits(&task.context);
        if named.is_empty() {
            continue;
        }
        if named.len() > LIMITS_MAX {
            return Err(refused(format!(
                "a task of class {:?} names {} limits; at most {LIMITS_MAX} are possible",
                task.class,
                named.len()
            )));
        }
        let mut exists = tx.db.prepare_cached(sql!("engine/limits", "limit_exists"))?;
        for name in named {
            if !exists.exists([&name])? {
                return Err(refused(format!(
                    "limit {name:?} does not exist; declare it in an engine, or set it: task-engine limits set"
                )));
            }
        }
        classes.insert(task.class.as_str());
    }
    classes.into_iter().try_for_each(|class| register_class(tx, class))
}

/// From now on, claims look at the contexts of tasks of this class.
pub(crate) fn register_class(tx: &JobTransaction<'_>, class: &str) -> Result<(), JobError> {
    let mut insert = tx.db.prepare_cached(sql!("engine/limits", "class_names_limits"))?;
    if insert.execute([class])? == 1 {
        changed(tx)?;
    }
    Ok(())
}

fn refused(why: String) -> JobError {
    JobError::Store(StoreError::InvalidData(why))
}
