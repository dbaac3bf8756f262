//! Whether all is well with the file, its tables, and the work in it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use task_engine_core::limit::{is_blocked_queue, plain_queue};
use task_engine_core::task::TaskId;
use task_engine_store::check::{
    Check, CheckDepth, CheckFacts, FAILED_MAX, FailedClass, LANES_MAX, Verdict, WaitingLane,
};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::AFTER_BLOCKED;
use crate::migrate;
use crate::moment::{between, timestamp};
use crate::value::read;

const WAL_WARNING_BYTES: u64 = 256 << 20;
const HOUR_US: i64 = 3_600_000_000;

pub(crate) fn checks(
    tx: &JobTransaction<'_>,
    path: Option<&Path>,
    depth: CheckDepth,
) -> Vec<Check> {
    let mut checks =
        vec![attempt("journal", journal(tx, path)), attempt("durability", synchronous(tx))];
    if let Some(path) = path {
        checks.push(permissions(path));
        checks.push(wal(path));
    }
    let version = attempt("tables", version(tx));
    let has_tables = version.verdict == Verdict::Ok;
    checks.push(version);
    if depth >= CheckDepth::Standard && has_tables {
        checks.push(attempt("schema", drift(tx)));
    }
    match facts(tx, depth) {
        Ok(facts) => checks.extend(facts.evaluate()),
        Err(fault) => checks.push(Check::unknown("tasks", words(fault))),
    }
    if depth >= CheckDepth::Deep {
        checks.push(attempt("file", quick_check(tx)));
        if has_tables {
            checks.push(attempt("ledger", ledger(tx)));
        }
    }
    checks
}

/// A check that fails is reported as unknown.
fn attempt(name: &'static str, outcome: Result<Check, JobError>) -> Check {
    outcome.unwrap_or_else(|fault| Check::unknown(name, words(fault)))
}

fn words(fault: JobError) -> String {
    fault.explain("the file").to_string()
}

fn journal(tx: &JobTransaction<'_>, path: Option<&Path>) -> Result<Check, JobError> {
    const NAME: &str = "journal";
    let mode: String = tx.db.query_row("PRAGMA journal_mode", [], |row| read(row, 0))?;
    Ok(match (mode.as_str(), path) {
        ("wal", _) => Check::ok(NAME, "journal_mode is wal"),
        (_, None) => Check::ok(NAME, "in memory: gone with its process"),
        (other, Some(_)) => Check::bad(
            NAME,
            Verdict::Wrong,
            format!("journal_mode is {other}: readers and the writer stop each other"),
            "PRAGMA journal_mode = WAL",
        ),
    })
}

/// Of this program's connections. Other programs may set it differently for theirs.
fn synchronous(tx: &JobTransaction<'_>) -> Result<Check, JobError> {
    const NAME: &str = "durability";
    let level: i64 = tx.db.query_row("PRAGMA synchronous", [], |row| read(row, 0))?;
    Ok(match level {
        2 | 3 => Check::ok(NAME, "synchronous is FULL: a commit survives a power cut"),
        _ => Check::bad(
            NAME,
            Verdict::Wrong,
            format!("synchronous is {level}: a power cut can undo commits"),
            "PRAGMA synchronous = FULL",
        ),
    })
}

/// The file, its write-ahead log and its index, which another user may have created.
fn permissions(path: &Path) -> Check {
    const NAME: &str = "permissions";
    for file in [path.to_owned(), with_suffix(path, "-wal"), with_suffix(path, "-shm")] {
        match std::fs::metadata(&file) {
            Ok(about) if about.permissions().readonly() => {
                return Check::bad(
                    NAME,
                    Verdict::Wrong,
                    format!("{} is read-only", file.display()),
                    format!("chmod u+w '{}'", file.display()),
                );
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file != path => {}
            Err(error) => return Check::unknown(NAME, format!("{}: {error}", file.display())),
        }
    }
    let mode = std::fs::metadata(path).map_or(0, |about| about.permissions().mode() & 0o777);
    if mode & 0o002 != 0 {
        return Check::bad(
            NAME,
            Verdict::Warning,
            format!("everybody on this machine may write {} ({mode:o})", path.display()),
            format!("chmod o-w '{}'", path.display()),
        );
    }
    Check::ok(NAME, "the file can be written, and not by everybody")
}

fn wal(path: &Path) -> Check {
    const NAME: &str = "write_ahead_log";
    let size = |file: &Path| std::fs::metadata(file).map_or(0, |about| about.len());
    let (log, file) = (size(&with_suffix(path, "-wal")), size(path));
    let words = format!("{} beside a file of {}", megabytes(log), megabytes(file));
    if log > WAL_WARNING_BYTES && log > file / 4 {
        return Check::bad(
            NAME,
            Verdict::Warning,
            format!("{words}: a transaction is open, so it cannot be emptied"),
            "end that transaction, then: PRAGMA wal_checkpoint(TRUNCATE)",
        );
    }
    Check::ok(NAME, words)
}

fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn version(tx: &JobTransaction<'_>) -> Result<Check, JobError> {
    const NAME: &str = "tables";
    let there = tx
        .db
        .query_row(sql!("engine/migrations", "migrations_version"), [], |row| row.get::<_, i64>(0));
    let latest = migrate::latest();
    Ok(match there {
        Ok(there) if there == latest => Check::ok(NAME, format!("version {there}")),
        Ok(there) if there > latest => Check::bad(
            NAME,
            Verdict::Wrong,
            format!("version {there}, and this program knows versions up to {latest}"),
            "upgrade task-engine",
        ),
        Ok(there) => Check::bad(
            NAME,
            Verdict::Wrong,
            format!("version {there}, and this program needs version {latest}"),
            "task-engine migrate",
        ),
        Err(error) if error.to_string().contains("no such table") => {
            Check::bad(NAME, Verdict::Wrong, "there are none", "task-engine migrate")
        }
        Err(error) => return Err(error.into()),
    })
}

type SchemaObjects = BTreeMap<String, (String, String)>;

/// Compares with a new database, created by the same migrations.
fn drift(tx: &JobTransaction<'_>) -> Result<Check, JobError> {
    const NAME: &str = "schema";
    let fresh = Connection::open_in_memory()?;
    migrate::migrate(&JobTransaction::new(&fresh), "a new database")?;
    let (expected, there) = (objects(&fresh)?, objects(tx.db)?);
    let mut wrong = Vec::new();
    let mut remedy = Vec::new();
    for (name, (kind, sql)) in &expected {
        match there.get(name) {
            None => {
                wrong.push(format!("the {kind} {name} is missing"));
                remedy.push(format!("{sql};"));
            }
            Some((_, other)) if other != sql => {
                wrong.push(format!("the {kind} {name} is not what this version makes"));
                remedy.push(format!("make it again as: {sql};"));
            }
            Some(_) => {}
        }
    }
    let more = there.iter().filter(|(name, _)| !expected.contains_key(*name));
    let more: Vec<_> =
        more.map(|(name, (kind, _))| format!("the {kind} {name} is not ours")).collect();
    if wrong.is_empty() && more.is_empty() {
        return Ok(Check::ok(
            NAME,
            format!("all {} objects are as they should be", expected.len()),
        ));
    }
    if wrong.is_empty() {
        let remedy = "DROP it, unless you made it yourself";
        return Ok(Check::bad(NAME, Verdict::Warning, more.join("; "), remedy));
    }
    wrong.extend(more);
    Ok(Check::bad(NAME, Verdict::Wrong, wrong.join("; "), remedy.join("\n")))
}

fn objects(db: &Connection) -> rusqlite::Result<SchemaObjects> {
    let mut statement = db.prepare(sql!("operators/checks", "objects"))?;
    let rows =
        statement.query_map([], |row| Ok((read(row, 1)?, (read(row, 0)?, read(row, 2)?))))?;
    rows.collect()
}

fn quick_check(tx: &JobTransaction<'_>) -> Result<Check, JobError> {
    const NAME: &str = "file";
    let mut statement = tx.db.prepare("PRAGMA quick_check(10)")?;
    let words: Vec<String> =
        statement.query_map([], |row| read(row, 0))?.collect::<rusqlite::Result<_>>()?;
    Ok(if words == ["ok"] {
        Check::ok(NAME, "quick_check finds nothing wrong")
    } else {
        Check::bad(
            NAME,
            Verdict::Wrong,
            words.join("; "),
            "restore a backup, or: sqlite3 FILE .recover",
        )
    })
}

fn ledger(tx: &JobTransaction<'_>) -> Result<Check, JobError> {
    Ok(Check::of_ledger(&crate::verify::verify(tx)?))
}

fn facts(tx: &JobTransaction<'_>, depth: CheckDepth) -> Result<CheckFacts, JobError> {
    let now = tx.now();
    let paused = crate::queues::paused(tx)?;
    let paused_for = paused.iter().map(|p| between(p.paused_at.as_microsecond(), now)).collect();
    let mut broken = tx.db.prepare_cached(sql!("operators/checks", "broken_schedules"))?;
    let broken = broken.query_map([], |row| Ok((read(row, 0)?, read(row, 1)?)))?;
    let limit = if depth >= CheckDepth::Deep { i64::MAX } else { i64::from(FAILED_MAX) };
    let mut failed = tx.db.prepare_cached(sql!("operators/checks", "failed"))?;
    let failed = failed.query_map(params![now - HOUR_US, limit], |row| {
        Ok(FailedClass {
            class: read(row, 0)?,
            tasks: read(row, 1)?,
            newest: TaskId(read(row, 2)?),
        })
    })?;
    let failed: Vec<_> = failed.collect::<rusqlite::Result<_>>()?;
    Ok(CheckFacts {
        instances: crate::instances::instances(tx, None)?,
        lanes: lanes(tx)?,
        paused,
        paused_for,
        broken_schedules: broken.collect::<rusqlite::Result<_>>()?,
        due_schedules: crate::schedules::late(tx)?,
        failed_and_more: failed.iter().map(|one| one.tasks).sum::<i64>() >= limit,
        failed,
        held: crate::activity::held(tx)?,
        now: timestamp(now),
    })
}

fn lanes(tx: &JobTransaction<'_>) -> Result<Vec<WaitingLane>, JobError> {
    let mut next = tx.db.prepare_cached(sql!("engine/instances", "next_waiting_class"))?;
    let mut first = tx.db.prepare_cached(sql!("operators/checks", "first_due"))?;
    let mut at = (String::new(), String::new());
    // Tasks that were moved to lanes of their keys are read separately.
    let mut lanes: BTreeMap<(String, String), Option<i64>> = BTreeMap::new();
    for _ in 0..LANES_MAX {
        let found = next.query_row(params![at.0, at.1], |row| Ok((read(row, 0)?, read(row, 1)?)));
        let Some(lane) = found.optional()? else { break };
        at = lane;
        if is_blocked_queue(&at.0) {
            at = (AFTER_BLOCKED.to_owned(), String::new());
            continue;
        }
        let due_at: Option<i64> =
            first.query_row(params![at.0, at.1, tx.now()], |row| read(row, 0))?;
        let first = lanes.entry((plain_queue(&at.0).to_owned(), at.1.clone())).or_default();
        *first = due_at.into_iter().chain(*first).min();
    }
    let lane = |((queue, class), due_at): (_, Option<i64>)| WaitingLane {
        queue,
        class,
        due_for: due_at.map(|due_at| between(due_at, tx.now())),
    };
    Ok(lanes.into_iter().map(lane).collect())
}
