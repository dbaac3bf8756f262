//! Checks the invariants. Each check is a statement that returns violations in
//! words.

use task_engine_core::json::Json;
use task_engine_store::check::Inventory;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::value::read;

/// Statements of `sql/operators/verify.sql`; their names say what each looks for.
macro_rules! checks {
    ($($name:literal),+ $(,)?) => {
        [$(sql!("operators/verify", $name)),+]
    };
}

pub(crate) fn verify(tx: &JobTransaction<'_>) -> Result<Vec<String>, JobError> {
    let mut violations = Vec::new();
    for check in checks![
        "file",
        "task_without_state",
        "waiting_and_held",
        "held_twice",
        "waiting_but_not_created",
        "ended_but_not_created",
        "waiting_with_old_attempt",
        "held_with_old_attempt",
        "ran_after_success",
        "incoherent_ending",
        "held_by_unknown_instance",
        "report_without_attempt",
        "log_lines_out_of_range",
        "cancelled_but_not_ended",
        "key_without_task",
        "fired_without_schedule",
    ] {
        let mut statement = tx.db.prepare(check)?;
        for violation in statement.query_map([], |row| row.get(0))? {
            violations.push(violation?);
        }
    }
    violations.extend(unreadable(tx)?);
    Ok(violations)
}

/// Values that no engine can read. The tables refuse most of them, but a file
/// knows nothing of digits and levels when they are written by SQL.
fn unreadable(tx: &JobTransaction<'_>) -> Result<Vec<String>, JobError> {
    let mut violations = Vec::new();
    let mut statement = tx.db.prepare(sql!("operators/verify", "stored_json"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, what): (i64, String) = (read(row, 0)?, read(row, 1)?);
        let text = String::from_utf8(read(row, 2)?).map_err(|_| "it is not UTF-8".to_owned());
        let parse = if read(row, 3)? { Json::parse_object } else { Json::parse };
        if let Err(why) = text.and_then(|text| parse(text).map_err(|why| why.to_string())) {
            violations.push(format!("{what} of task {id} cannot be read: {why}"));
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
        })
    })?)
}
