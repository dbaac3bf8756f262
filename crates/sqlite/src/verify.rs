//! Checks the invariants. Each check is a statement that returns the message of each
//! violation.

use task_engine_core::json::Json;
use task_engine_store::check::{Inventory, Violation, ViolationKind};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
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
    ] {
        let mut statement = tx.db.prepare(check)?;
        for violation in statement.query_map([], |row| row.get::<_, String>(0))? {
            violations.push(kind.violation(violation?));
        }
    }
    violations.extend(not_resumed(tx)?);
    violations.extend(unreadable(tx)?);
    Ok(violations)
}

fn not_resumed(tx: &JobTransaction<'_>) -> Result<Vec<Violation>, JobError> {
    let mut statement = tx.db.prepare(sql!("operators/verify", "not_resumed"))?;
    let messages = statement.query_map([tx.now()], |row| row.get::<_, String>(0))?;
    let violations = messages.map(|message| Ok(ViolationKind::TaskNotResumed.violation(message?)));
    violations.collect()
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
