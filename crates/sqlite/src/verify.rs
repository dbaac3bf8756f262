//! Checks the invariants. Each check is a statement that returns violations in
//! words.

use task_engine_core::json::Json;
use task_engine_store::check::Inventory;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::value::read;

/// Names of statements in `sql/verify`, which say what each looks for.
macro_rules! checks {
    ($($name:literal),+ $(,)?) => {
        [$(include_str!(concat!("../sql/verify/", $name, ".sql"))),+]
    };
}

pub(crate) fn verify(tx: &JobTransaction<'_>) -> Result<Vec<String>, JobError> {
    let mut violations = Vec::new();
    for check in checks![
        "00_file",
        "01_nowhere",
        "02_waits_and_is_held",
        "03_held_twice",
        "04_waits_uncreated",
        "05_ended_uncreated",
        "06_waits_with_an_old_number",
        "07_held_with_an_old_number",
        "08_ran_after_its_end",
        "09_ended_without_a_word",
        "11_held_by_nobody",
        "12_said_by_nobody",
        "13_lines_unsaid",
        "14_cancelled_unended",
        "15_key_of_nobody",
        "16_fired_by_nobody",
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
    let mut statement = tx.db.prepare(include_str!("../sql/verify/10_stored_json.sql"))?;
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
    Ok(tx.db.query_row(sql!("inventory"), [], |row| {
        Ok(Inventory {
            tasks: row.get(0)?,
            waiting: row.get(1)?,
            running: row.get(2)?,
            executions: row.get(3)?,
            schedules: row.get(4)?,
        })
    })?)
}
