//! Changes of limits: by engines, which declare theirs, and by operators.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::params;
use task_engine_core::attempt::AttemptId;
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, InvalidLimit, LIMITS_MAX, Limit, LimitChange, LimitCleared, LimitId,
    LimitKey, LimitOptions, LimitRow, LimitTarget, check_declared,
};
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limit_keys::{LoadedKey, write_key};
use crate::limits::{LimitSet, changed};
use crate::moment::micros;
use crate::value::read;

/// Retention keeps a key for so long after its last use.
const KEY_KEPT: Duration = Duration::from_secs(3600);

/// Stores what an engine declares. The last declaration decides, but what an operator has set
/// applies.
pub(crate) fn declare(
    tx: &JobTransaction<'_>,
    declared: &DeclaredLimits,
) -> Result<Vec<(String, LimitChange)>, JobError> {
    check_declared(&declared.limits).map_err(|why| invalid(&why))?;
    let stored = LimitSet::read(tx)?;
    let mut outcomes = Vec::new();
    for limit in &declared.limits {
        outcomes.push((limit.name.clone(), declare_one(tx, stored.by_name(&limit.name), limit)?));
    }
    let is_declared = |name: &str| declared.limits.iter().any(|limit| limit.name == name);
    for row in &stored.rows {
        let LimitTarget::Class(class) = &row.limit.target else { continue };
        let is_over = row.declared.is_some() && !is_declared(&row.limit.name);
        if !is_over || !declared.classes.contains(class) {
            continue;
        }
        if row.set_by_operator {
            update(tx, row, None, Some(&row.limit.options))?;
        } else {
            remove(tx, row)?;
            outcomes.push((row.limit.name.clone(), LimitChange::Removed));
        }
    }
    let is_new = |limit: &&Limit| {
        stored.by_name(&limit.name).is_none_or(|row| row.limit.target != limit.target)
    };
    let after = LimitSet::read(tx)?;
    for limit in declared.limits.iter().filter(is_new) {
        check_number(&after, &limit.target, 0)?;
    }
    Ok(outcomes)
}

/// Refuses more limits of a class or queue than are possible.
fn check_number(limits: &LimitSet, target: &LimitTarget, more: usize) -> Result<(), JobError> {
    let same_target = limits.rows.iter().filter(|row| row.limit.target == *target);
    let count = same_target.count() + more;
    if count > LIMITS_MAX && *target != LimitTarget::Named {
        let why = InvalidLimit::TooMany { what: target_text(target), count };
        return Err(StoreError::Refused(why.to_string()).into());
    }
    Ok(())
}

fn declare_one(
    tx: &JobTransaction<'_>,
    stored: Option<&LimitRow>,
    limit: &Limit,
) -> Result<LimitChange, JobError> {
    let options = &limit.options;
    let Some(row) = stored else {
        add(tx, limit, Some(options), None)?;
        return Ok(LimitChange::Added);
    };
    if row.limit.target != limit.target {
        if row.set_by_operator {
            return Ok(LimitChange::Overridden);
        }
        remove(tx, row)?;
        add(tx, limit, Some(options), None)?;
        return Ok(LimitChange::Changed);
    }
    let is_new = row.declared.as_ref() != Some(options);
    if row.set_by_operator {
        if is_new {
            update(tx, row, Some(options), Some(&row.limit.options))?;
        }
        let applies = row.limit.options == *options;
        return Ok(if applies { LimitChange::Unchanged } else { LimitChange::Overridden });
    }
    if !is_new {
        return Ok(LimitChange::Unchanged);
    }
    update(tx, row, Some(options), None)?;
    Ok(LimitChange::Changed)
}

/// Stores what an operator sets.
pub(crate) fn set(tx: &JobTransaction<'_>, limit: &Limit) -> Result<LimitChange, JobError> {
    limit.check().map_err(|why| invalid(&why))?;
    let stored = LimitSet::read(tx)?;
    let Some(row) = stored.by_name(&limit.name) else {
        check_number(&stored, &limit.target, 1)?;
        add(tx, limit, None, Some(&limit.options))?;
        return Ok(LimitChange::Added);
    };
    if row.limit.target != limit.target {
        return Err(JobError::Store(StoreError::Refused(format!(
            "limit {:?} applies to {}, not to {}; clear it first: task-engine limits clear",
            limit.name,
            target_text(&row.limit.target),
            target_text(&limit.target)
        ))));
    }
    if row.set_by_operator && row.limit.options == limit.options {
        return Ok(LimitChange::Unchanged);
    }
    update(tx, row, row.declared.as_ref(), Some(&limit.options))?;
    Ok(LimitChange::Changed)
}

/// Removes a limit, or what an operator has set.
pub(crate) fn clear(tx: &JobTransaction<'_>, name: &str) -> Result<LimitCleared, JobError> {
    let stored = LimitSet::read(tx)?;
    let Some(row) = stored.by_name(name) else {
        return Ok(LimitCleared::NotFound);
    };
    match &row.declared {
        _ if !row.set_by_operator => Ok(LimitCleared::OnlyDeclared),
        Some(declared) => {
            update(tx, row, Some(declared), None)?;
            Ok(LimitCleared::Declared)
        }
        None => {
            remove(tx, row)?;
            Ok(LimitCleared::Removed)
        }
    }
}

pub(crate) fn close(tx: &JobTransaction<'_>, keys: &[ClosedKey]) -> Result<(), JobError> {
    let mut close = tx.db.prepare_cached(sql!("engine/limits", "close_key"))?;
    for closed in keys {
        let until = tx.moment.after(closed.closed_for);
        close.execute(params![closed.limit.0, closed.key, until, closed.reason])?;
    }
    Ok(())
}

pub(crate) fn open(tx: &JobTransaction<'_>, name: &str, key: &str) -> Result<bool, JobError> {
    let mut open = tx.db.prepare_cached(sql!("operators/limits", "open_key"))?;
    let is_opened = open.execute(params![name, key, tx.now()])? > 0;
    tx.brings_work.set(is_opened || tx.brings_work.get());
    Ok(is_opened)
}

/// Removes keys that are not in use, and what is left of removed limits.
pub(crate) fn prune(tx: &JobTransaction<'_>, limit: u32) -> Result<u64, JobError> {
    let run = |statement: &str, parameters: &[i64]| -> Result<u64, JobError> {
        let mut statement = tx.db.prepare_cached(statement)?;
        Ok(statement.execute(rusqlite::params_from_iter(parameters))? as u64)
    };
    let limit = u64::from(limit);
    let left = |pruned: u64| limit.saturating_sub(pruned) as i64;
    let mut pruned = run(sql!("engine/limits", "prune_removed_keys"), &[limit as i64])?;
    run(sql!("engine/limits", "prune_removed_starts"), &[])?;
    run(sql!("engine/limits", "prune_removed_closed_keys"), &[])?;
    run(sql!("engine/limits", "prune_closed_keys"), &[tx.now()])?;
    for row in LimitSet::read(tx)?.rows {
        let window = row.limit.options.rate.map_or(Duration::ZERO, |rate| rate.per);
        let unused_since = tx.now() - micros(KEY_KEPT.max(window * 2));
        let id = i64::from(row.id.0);
        let keys = run(sql!("engine/limits", "prune_keys"), &[id, unused_since, left(pruned)])?;
        if keys > 0 {
            run(sql!("engine/limits", "prune_starts"), &[id])?;
        }
        pruned += keys;
    }
    Ok(pruned)
}

/// Adds a limit with what engines declare, what an operator sets, or both.
pub(crate) fn add(
    tx: &JobTransaction<'_>,
    limit: &Limit,
    declared: Option<&LimitOptions>,
    operator: Option<&LimitOptions>,
) -> Result<(), JobError> {
    let (target, target_name) = match &limit.target {
        LimitTarget::Class(name) => ("class", Some(name)),
        LimitTarget::Queue(name) => ("queue", Some(name)),
        LimitTarget::Named => ("named", None),
    };
    tx.db.prepare_cached(sql!("operators/limits", "limit_insert"))?.execute(params![
        limit.name,
        target,
        target_name,
        text(declared)?,
        text(operator)?,
        tx.now(),
    ])?;
    let id = LimitId(i32::try_from(tx.db.last_insert_rowid()).unwrap_or(i32::MAX));
    // Tasks that name it, and were moved to lanes while it did not exist.
    let limits = LimitSet::read(tx)?;
    let mut back = tx.db.prepare_cached(sql!("engine/limits", "move_back"))?;
    for class in limits.classes_naming_limits() {
        back.execute([class, &limit.name])?;
    }
    count_running(tx, &limits, id)?;
    changed(tx)
}

/// Changes the options of a limit.
fn update(
    tx: &JobTransaction<'_>,
    row: &LimitRow,
    declared: Option<&LimitOptions>,
    operator: Option<&LimitOptions>,
) -> Result<(), JobError> {
    let (before, Some(now)) = (&row.limit.options, operator.or(declared)) else {
        return remove(tx, row);
    };
    if before.key != now.key {
        // Other keys: under a new id, so that waiting tasks move to other lanes.
        remove(tx, row)?;
        let limit = Limit { options: now.clone(), ..row.limit.clone() };
        return add(tx, &limit, declared, operator);
    }
    tx.db.prepare_cached(sql!("operators/limits", "limit_update"))?.execute(params![
        row.id.0,
        text(declared)?,
        text(operator)?,
        tx.now(),
    ])?;
    if before.rate != now.rate {
        tx.db
            .prepare_cached(sql!("operators/limits", "limit_starts_delete"))?
            .execute([row.id.0])?;
    }
    if before != now {
        count_running(tx, &LimitSet::read(tx)?, row.id)?;
    }
    changed(tx)
}

fn remove(tx: &JobTransaction<'_>, row: &LimitRow) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("operators/limits", "limit_delete"))?.execute([row.id.0])?;
    changed(tx)
}

/// Attempts that run already hold the keys of a limit that is new or was changed.
pub(crate) fn count_running(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
    id: LimitId,
) -> Result<(), JobError> {
    if !limits.get(id).is_some_and(|limit| limit.options.has_state()) {
        return Ok(());
    }
    let mut running: BTreeMap<LimitKey, Vec<AttemptId>> = BTreeMap::new();
    for (attempt, keys) in running_tasks(tx, limits)? {
        for key in keys.into_iter().filter(|key| key.0 == id) {
            running.entry(key).or_default().push(attempt);
        }
    }
    for (key, attempts) in running {
        let (loaded, state) = LoadedKey::read(tx, limits, &key, 1)?;
        let mut holders: Vec<AttemptId> = loaded.holders.iter().map(|one| one.id).collect();
        for attempt in attempts {
            if !holders.contains(&attempt) {
                holders.push(attempt);
            }
        }
        write_key(tx, &key, state.total, &holders)?;
    }
    Ok(())
}

/// The attempts that engines hold, with the limits and keys of their tasks.
pub(crate) fn running_tasks(
    tx: &JobTransaction<'_>,
    limits: &LimitSet,
) -> Result<Vec<(AttemptId, Vec<LimitKey>)>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/limits", "running_tasks"))?;
    let rows = statement.query_map([], |row| {
        let id = AttemptId { task_id: TaskId(read(row, 0)?), attempt: read(row, 1)? };
        let (class, queue): (String, String) = (read(row, 2)?, read(row, 3)?);
        let (parameters, context) = (read(row, 4)?, read(row, 5)?);
        Ok((id, limits.lane_key(&class, &queue, &parameters, &context).0))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn text(options: Option<&LimitOptions>) -> Result<Option<String>, JobError> {
    Ok(options.map(serde_json::to_string).transpose()?)
}

fn invalid(why: &InvalidLimit) -> JobError {
    JobError::Store(StoreError::InvalidData(why.to_string()))
}

fn target_text(target: &LimitTarget) -> String {
    match target {
        LimitTarget::Class(name) => format!("class {name:?}"),
        LimitTarget::Queue(name) => format!("queue {name:?}"),
        LimitTarget::Named => "tasks that name it".to_owned(),
    }
}
