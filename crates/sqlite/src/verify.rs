//! Checks the invariants. Each check is a statement that returns the message of each
//! violation.

use task_engine_core::json::Json;
use task_engine_core::limit::{LaneKey, LimitKey};
use task_engine_store::check::{Inventory, Violation, ViolationKind};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limit_changes::running_tasks;
use crate::limit_keys::LoadedKey;
use crate::limits::LimitSet;
use crate::value::read;

/// Statements of `sql/operators/verify.sql`; their names say what each looks for.
macro_rules! checks {
    ($($kind:ident $name:literal),+ $(,)?) => {
        [$((ViolationKind::$kind, sql!("operators/verify", $name))),+]
    };
}

pub(crate) fn verify(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let mut violations = Vec::new();
    for (kind, check) in checks![
        DamagedFile "file",
        TaskLost "task_without_state",
        TaskInTwoStates "waiting_and_held",
        TaskInTwoStates "held_twice",
        TaskNotCreated "waiting_but_not_created",
        TaskNotCreated "ended_but_not_created",
        TaskNotCreated "durable_but_not_created",
        AttemptReused "waiting_with_old_attempt",
        AttemptReused "held_with_old_attempt",
        ContinuedAfterSuccess "ran_after_success",
        IncoherentEnd "incoherent_ending",
        UnknownInstance "held_by_unknown_instance",
        ReportWithoutAttempt "report_without_attempt",
        LogLineOutOfRange "log_lines_out_of_range",
        CancellationWithoutEnd "cancelled_but_not_ended",
        UniqueKeyMismatch "key_without_task",
        SlotMismatch "fired_without_schedule",
        LimitedRowInvalid "limited_row_invalid",
        BlockedRowInvalid "blocked_row_invalid",
        BlockedRowInvalid "not_marked_as_blocked",
    ] {
        let mut statement = tx.db.prepare(check)?;
        for violation in statement.query_map([], |row| row.get::<_, String>(0))? {
            violations.push(kind.violation(violation?));
        }
    }
    violations.extend(not_resumed(tx)?);
    violations.extend(wrong_lanes(tx)?);
    violations.extend(not_counted(tx)?);
    violations.extend(unreadable(tx)?);
    Ok(violations)
}

fn not_resumed(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let mut violations = Vec::new();
    for check in
        [sql!("operators/verify", "not_resumed"), sql!("operators/verify", "blocked_not_resumed")]
    {
        let mut statement = tx.db.prepare(check)?;
        for message in statement.query_map([tx.now()], |row| row.get::<_, String>(0))? {
            violations.push(ViolationKind::TaskNotResumed.violation(message?));
        }
    }
    Ok(violations)
}

/// Tasks in a lane with a key that is not theirs. A lane may lack limits that are new, and
/// have some that were removed.
fn wrong_lanes(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let limits = LimitSet::read(tx)?;
    let mut violations = Vec::new();
    let mut statement = tx.db.prepare(sql!("operators/verify", "limited_rows"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, class, queue): (i64, String, String) =
            (read(row, 0)?, read(row, 1)?, read(row, 2)?);
        let (parameters, context) = (read(row, 3)?, read(row, 4)?);
        let stored: String = read(row, 5)?;
        let own = limits.lane_key(&class, &queue, &parameters, &context);
        let is_own = |key: &LimitKey| limits.get(key.0).is_none() || own.0.contains(key);
        if !LaneKey::parse(&stored).is_some_and(|key| key.0.iter().all(is_own)) {
            let message = format!(
                "task {id} waits in the lane {stored}, but the keys of its limits are {}",
                own.to_text()
            );
            violations.push(ViolationKind::LimitedRowInvalid.violation(message));
        }
    }
    Ok(violations)
}

/// Running attempts that do not hold the keys of their limits.
fn not_counted(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let limits = LimitSet::read(tx)?;
    let mut violations = Vec::new();
    for (attempt, keys) in running_tasks(tx, &limits)? {
        for key in keys {
            let Some(limit) = limits.get(key.0).filter(|limit| limit.options.has_state()) else {
                continue;
            };
            let (loaded, _) = LoadedKey::read(tx, &limits, &key, 1)?;
            if loaded.holders.iter().all(|holder| holder.id != attempt) {
                let message = format!(
                    "task {}, attempt {} runs, but does not count for the key {:?} of the limit {:?}",
                    attempt.task_id, attempt.attempt, key.1, limit.name
                );
                violations.push(ViolationKind::LimitNotCounted.violation(message));
            }
        }
    }
    Ok(violations)
}

/// Values that no engine can read. The tables refuse most of them, but a file
/// knows nothing of digits and levels when they are written by SQL.
fn unreadable(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let mut violations = Vec::new();
    let mut statement = tx.db.prepare(sql!("operators/verify", "stored_json"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, what): (i64, String) = (read(row, 0)?, read(row, 1)?);
        let text = String::from_utf8(read(row, 2)?).map_err(|_| "it is not UTF-8".to_owned());
        let parse = if read(row, 3)? { Json::parse_object } else { Json::parse };
        if let Err(why) = text.and_then(|text| parse(text).map_err(|why| why.to_string())) {
            let message = format!("{what} of task {id} cannot be read: {why}");
            violations.push(ViolationKind::UnreadableValue.violation(message));
        }
    }
    Ok(violations)
}

pub(crate) fn inventory(tx: &JobTransaction<'_>) -> Result<Inventory, JobError> {
    Ok(tx.db.query_row(sql!("operators/verify", "inventory"), [], |row| {
        Ok(Inventory {
            tasks: row.get(0)?,
            waiting: row.get(1)?,
            running: row.get(2)?,
            executions: row.get(3)?,
            schedules: row.get(4)?,
            steps: row.get(5)?,
            signals: row.get(6)?,
            suspended: row.get(7)?,
        })
    })?)
}
