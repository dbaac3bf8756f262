//! Checks of the server, the tables and the tasks.
//!
//! Each check runs on its own: if one cannot be answered, because a session has locked a
//! table for example, it reports that, and the others still run.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::display::span;
use task_engine_core::queue::PausedQueue;
use task_engine_core::task::TaskId;
use task_engine_store::check::{
    Check, CheckDepth, CheckFacts, FAILED_MAX, FailedClass, Inventory, LANES_MAX, Verdict,
    WaitingLane,
};
use task_engine_store::error::StoreError;
use task_engine_store::lock::BlockingSession;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::executor::Executor as _;
use crate::locks::{OpenTransaction, unnamed_blocker};
use crate::store::{StoreInner, from_micros};

const SQL: &str = include_str!("../sql/operators/checks.sql");
const SERVER: &str = statement(SQL, "server");
const VERSION: &str = statement(SQL, "version");
const HIDDEN_SESSIONS: &str = statement(SQL, "hidden_sessions");
const RELATION_KINDS: &str = statement(SQL, "relation_kinds");
const DISTRIBUTED: &str = statement(SQL, "distributed");
const VACUUM: &str = statement(SQL, "vacuum");
const SEQUENCES: &str = statement(SQL, "sequences");
const LANES: &str = statement(SQL, "lanes");
const FAILED: &str = statement(SQL, "failed");
const PAUSES: &str = statement(SQL, "pauses");
const LATE_SCHEDULES: &str = statement(SQL, "late_schedules");
const BROKEN_SCHEDULES: &str = statement(SQL, "broken_schedules");

const INVENTORY: &str = statement(include_str!("../sql/operators/verify.sql"), "inventory");

const VERSION_MIN: i32 = 130_000;
const LATENCY_WARNING: Duration = Duration::from_millis(50);
const SKEW_WARNING: Duration = Duration::from_secs(5);
const DEAD_ROWS_WARNING: i64 = 200_000;
/// PostgreSQL refuses writes at 2^31.
const TRANSACTION_AGE_WRONG: i64 = 1_500_000_000;

impl StoreInner {
    pub(crate) async fn checks(&self, depth: CheckDepth) -> Result<Vec<Check>, StoreError> {
        let mut checks = self.check_server().await?;
        let tables = self.tables_version().await;
        let has_tables = tables.verdict == Verdict::Ok;
        checks.push(tables);
        if depth >= CheckDepth::Standard {
            if has_tables {
                checks.push(attempt("schema", self.drift().await));
                checks.push(attempt("distribution", self.distribution().await));
            }
            checks.push(attempt("wake_ups", self.wake_ups().await));
        }
        checks.push(attempt("transactions", self.transactions().await));
        checks.push(attempt("vacuum", self.vacuum().await));
        checks.push(attempt("ids", self.ids().await));
        if has_tables {
            match self.facts(depth).await {
                Ok(facts) => checks.extend(facts.evaluate()),
                Err(error) => {
                    let here = "; see the check of transactions";
                    let message = error.to_string().replace(&unnamed_blocker(), here);
                    checks.push(Check::unknown("tasks", message));
                }
            }
            if depth >= CheckDepth::Deep {
                let ledger = self.verify().await.map(|violations| Check::of_ledger(&violations));
                checks.push(attempt("ledger", ledger));
            }
        }
        Ok(checks)
    }

    /// With a shorter timeout than other statements: a user waits for it.
    pub(crate) async fn query_briefly(
        &self,
        statement: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        // A bitmap would be of the whole index, where the first rows are enough.
        let timeout = "SET LOCAL lock_timeout = '1s'; SET LOCAL enable_bitmapscan = off";
        transaction.batch_execute(timeout).await?;
        let rows = transaction.query(&self.schema.sql(statement), params).await;
        Ok(rows?)
    }

    async fn check_server(&self) -> Result<Vec<Check>, StoreError> {
        // The first one may open a connection.
        let client = self.connections.work().await?;
        let begun = Instant::now();
        client.batch_execute("").await?;
        let latency = begun.elapsed();
        let before = Timestamp::now();
        let row = client.query_one(SERVER, &[]).await?;
        let after = Timestamp::now();
        drop(client);
        Ok(vec![
            connection(latency),
            version(&row),
            writable(&row),
            durability(&row),
            clock(row.get("now"), before, after),
            connections(row.get("connections"), row.get("connections_max")),
            transaction_ids(row.get("transaction_age"), row.get("freeze_age_max")),
        ])
    }

    async fn tables_version(&self) -> Check {
        const NAME: &str = "tables";
        let newest = crate::migrate::newest();
        let rows = match self.query_briefly(VERSION, &[]).await {
            Ok(rows) => rows,
            Err(StoreError::Version(_)) => {
                let remedy = "task-engine migrate, as the owner of the tables";
                return Check::bad(NAME, Verdict::Wrong, "there are none", remedy);
            }
            Err(error) => return Check::unknown(NAME, error.to_string()),
        };
        let there = rows.first().and_then(|row| row.get::<_, Option<i32>>("version")).unwrap_or(0);
        if there == newest {
            return Check::ok(NAME, format!("version {there} in schema {}", self.schema));
        }
        let (needs, remedy) = if there > newest {
            ("this program knows versions up to", "upgrade task-engine")
        } else {
            ("this program needs version", "task-engine migrate, as the owner of the tables")
        };
        Check::bad(NAME, Verdict::Wrong, format!("version {there}; {needs} {newest}"), remedy)
    }

    async fn transactions(&self) -> Result<Check, StoreError> {
        let found = open_transactions(&self.open_transactions().await?);
        if found.verdict != Verdict::Ok {
            return Ok(found);
        }
        let rows = self.query_briefly(HIDDEN_SESSIONS, &[]).await?;
        let Some(row) = rows.first().filter(|row| row.get::<_, i64>("hidden") > 0) else {
            return Ok(found);
        };
        let message = format!(
            "{} sessions of other users are open, and this user may not see their transactions",
            row.get::<_, i64>("hidden")
        );
        let remedy =
            format!("as a superuser: GRANT pg_read_all_stats TO {};", row.get::<_, &str>("name"));
        Ok(Check::bad(found.name, Verdict::Unknown, message, remedy))
    }

    /// Claims find rows by their address, and creation locks rows of one server:
    /// the tables must be ordinary ones.
    async fn distribution(&self) -> Result<Check, StoreError> {
        const NAME: &str = "distribution";
        let schema = self.schema.to_string();
        let rows = self.query_briefly(RELATION_KINDS, &[&schema]).await?;
        let Some(row) = rows.first() else {
            return Ok(Check::unknown(NAME, "the catalog says nothing about the tables"));
        };
        let mut odd: Vec<String> = row.get("odd");
        if row.get("has_citus") {
            let distributed = self.query_briefly(DISTRIBUTED, &[&schema]).await?;
            odd.extend(
                distributed
                    .iter()
                    .map(|row| format!("{} (distributed by Citus)", row.get::<_, &str>("name"))),
            );
        }
        if odd.is_empty() {
            return Ok(Check::ok(NAME, "all tables are ordinary tables of this server"));
        }
        Ok(Check::bad(
            NAME,
            Verdict::Wrong,
            format!("not ordinary tables: {}; claims and records fail on them", odd.join(", ")),
            "SELECT undistribute_table('…') for each of them, or move to an ordinary database: task-engine export, then import",
        ))
    }

    async fn vacuum(&self) -> Result<Check, StoreError> {
        const NAME: &str = "vacuum";
        let autovacuum =
            self.query_briefly("SELECT current_setting('autovacuum')::boolean", &[]).await?;
        if autovacuum.first().is_some_and(|row| !row.get::<_, bool>(0)) {
            return Ok(Check::bad(
                NAME,
                Verdict::Wrong,
                "autovacuum is off: dead rows pile up, and claims become slow",
                "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();",
            ));
        }
        let rows = self.query_briefly(VACUUM, &[&self.schema.to_string()]).await?;
        let schema = &self.schema;
        let off = rows.iter().filter(|row| row.get("is_off"));
        let off: Vec<&str> = off.map(|row| row.get("name")).collect();
        if !off.is_empty() {
            let reset =
                |name: &&str| format!("ALTER TABLE {schema}.{name} RESET (autovacuum_enabled);");
            return Ok(Check::bad(
                NAME,
                Verdict::Wrong,
                format!("autovacuum is off for {}", off.join(", ")),
                off.iter().map(reset).collect::<Vec<_>>().join(" "),
            ));
        }
        let bloated: Vec<&Row> = rows
            .iter()
            .filter(|row| {
                let (dead, live): (i64, i64) = (row.get("dead"), row.get("live"));
                dead > DEAD_ROWS_WARNING && dead > live / 2
            })
            .collect();
        if bloated.is_empty() {
            let dead: i64 = rows.iter().map(|row| row.get::<_, i64>("dead")).sum();
            return Ok(Check::ok(NAME, format!("{dead} dead rows in {} tables", rows.len())));
        }
        let vacuum = bloated.iter().map(|row| row.get("name"));
        let vacuum = vacuum.map(|name: &str| format!("VACUUM {schema}.{name};"));
        Ok(Check::bad(
            NAME,
            Verdict::Warning,
            bloated.iter().map(|row| dead_rows(row)).collect::<Vec<_>>().join("; "),
            format!("{} and see the open transactions", vacuum.collect::<Vec<_>>().join(" ")),
        ))
    }

    async fn ids(&self) -> Result<Check, StoreError> {
        const NAME: &str = "ids";
        let rows = self.query_briefly(SEQUENCES, &[&self.schema.to_string()]).await?;
        let Some(row) = rows.first() else {
            return Ok(Check::unknown(NAME, "there are no sequences"));
        };
        let (name, used): (&str, f64) = (row.get("name"), row.get("used"));
        Ok(if used > 0.8 {
            Check::bad(
                NAME,
                Verdict::Wrong,
                format!("{name} has used {:.0} % of its numbers", used * 100.0),
                "export, and import into a new database with --new-ids",
            )
        } else {
            Check::ok(NAME, format!("{name} has used {:.1} % of its numbers", used * 100.0))
        })
    }

    pub(crate) async fn inventory(&self) -> Result<Inventory, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        let settings = "SET LOCAL enable_seqscan = on; SET LOCAL statement_timeout = 0";
        transaction.batch_execute(settings).await?;
        let row = transaction.query_one(&self.schema.sql(INVENTORY), &[]).await?;
        Ok(Inventory {
            tasks: row.get("tasks"),
            waiting: row.get("waiting"),
            running: row.get("running"),
            executions: row.get("executions"),
            schedules: row.get("schedules"),
            steps: row.get("steps"),
            signals: row.get("signals"),
            suspended: row.get("suspended"),
        })
    }

    async fn facts(&self, depth: CheckDepth) -> Result<CheckFacts, StoreError> {
        let us = |row: &Row, column| from_micros(row.get::<_, i64>(column));
        let lanes =
            self.query_briefly(LANES, &[&i32::try_from(LANES_MAX).unwrap_or(i32::MAX)]).await?;
        let lanes = lanes.iter().map(|row| WaitingLane {
            queue: row.get("queue"),
            class: row.get("task_class"),
            due_for: row.get::<_, Option<i64>>("due_for_us").map(from_micros),
        });
        let pauses = self.query_briefly(PAUSES, &[]).await?;
        let paused = pauses.iter().map(|row| PausedQueue {
            queue: row.get("queue"),
            reason: row.get("reason"),
            paused_at: row.get("paused_at"),
        });
        let limit = if depth >= CheckDepth::Deep { i64::MAX } else { i64::from(FAILED_MAX) };
        let failed = self.query_briefly(FAILED, &[&limit]).await?;
        let failed = failed.iter().map(|row| FailedClass {
            class: row.get("task_class"),
            tasks: row.get("failed"),
            newest: TaskId(row.get("newest")),
        });
        let failed: Vec<_> = failed.collect();
        let held = self.query_briefly(crate::activity::HELD, &[]).await?;
        let now = self.query_briefly("SELECT clock_timestamp() AS now", &[]).await?;
        let late = self.query_briefly(LATE_SCHEDULES, &[]).await?;
        let late = late.iter().map(|row| (row.get("name"), us(row, "late_us"), row.get("waits")));
        let broken = self.query_briefly(BROKEN_SCHEDULES, &[]).await?;
        let broken = broken.iter().map(|row| (row.get("name"), row.get("error")));
        Ok(CheckFacts {
            instances: self.instances(None).await?,
            lanes: lanes.collect(),
            paused: paused.collect(),
            paused_for: pauses.iter().map(|row| us(row, "paused_us")).collect(),
            broken_schedules: broken.collect(),
            due_schedules: late.collect(),
            failed_and_more: failed.iter().map(|one| one.tasks).sum::<i64>() >= limit,
            failed,
            held: held.iter().map(crate::activity::held_attempt).collect(),
            now: now.first().map_or(Timestamp::UNIX_EPOCH, |row| row.get("now")),
        })
    }
}

/// A check that fails is reported as unknown.
fn attempt(name: &'static str, outcome: Result<Check, StoreError>) -> Check {
    outcome.unwrap_or_else(|error| Check::unknown(name, error.to_string()))
}

fn connection(latency: Duration) -> Check {
    const NAME: &str = "connection";
    let ms = format!("a round trip takes {:.1} ms", latency.as_secs_f64() * 1000.0);
    if latency > LATENCY_WARNING {
        let remedy = "run engines near the database; each claim and each record is a round trip";
        return Check::bad(NAME, Verdict::Warning, ms, remedy);
    }
    Check::ok(NAME, ms)
}

fn version(row: &Row) -> Check {
    const NAME: &str = "server";
    let (number, text): (i32, &str) = (row.get("version_number"), row.get("version"));
    if number < VERSION_MIN {
        let reason = format!("PostgreSQL {text} is older than 13");
        return Check::bad(NAME, Verdict::Wrong, reason, "upgrade the server");
    }
    Check::ok(NAME, format!("PostgreSQL {text}"))
}

fn writable(row: &Row) -> Check {
    const NAME: &str = "writable";
    if row.get("is_standby") {
        let remedy = "name the primary in the URL, or promote this one: SELECT pg_promote();";
        return Check::bad(
            NAME,
            Verdict::Wrong,
            "the server is a standby: it takes no writes",
            remedy,
        );
    }
    if row.get("is_read_only") {
        return Check::bad(
            NAME,
            Verdict::Wrong,
            "default_transaction_read_only is on: nothing can be written",
            "find who set it: ALTER DATABASE, ALTER ROLE, or ALTER SYSTEM … RESET default_transaction_read_only;",
        );
    }
    Check::ok(NAME, "the server takes writes")
}

fn durability(row: &Row) -> Check {
    const NAME: &str = "durability";
    let synchronous: &str = row.get("synchronous_commit");
    let (fsync, full_pages): (bool, bool) = (row.get("fsync"), row.get("full_page_writes"));
    let wrong = |setting: &str, why: &str| {
        let remedy = format!(
            "ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf(); (or RESET it where ALTER DATABASE or ALTER ROLE has set it)"
        );
        Check::bad(NAME, Verdict::Wrong, format!("{setting} is off: {why}"), remedy)
    };
    if !fsync {
        return wrong("fsync", "a crash of the machine can lose everything");
    }
    if !full_pages {
        return wrong("full_page_writes", "a crash of the machine can damage the tables");
    }
    if synchronous == "off" {
        return wrong(
            "synchronous_commit",
            "a crash of the server undoes what it has said to be done",
        );
    }
    Check::ok(
        NAME,
        format!("fsync and full_page_writes are on, synchronous_commit is {synchronous}"),
    )
}

fn clock(theirs: Timestamp, before: Timestamp, after: Timestamp) -> Check {
    const NAME: &str = "clock";
    // Anything between the two is possible.
    let skew = if theirs < before {
        before.duration_since(theirs)
    } else if theirs > after {
        theirs.duration_since(after)
    } else {
        return Check::ok(NAME, "this machine and the database tell the same time");
    };
    let skew = skew.unsigned_abs();
    let words = format!("this machine and the database differ by {}", span(skew));
    if skew > SKEW_WARNING {
        let remedy = "set both by NTP; tasks keep to the database's clock, so only what you read here is off";
        return Check::bad(NAME, Verdict::Warning, words, remedy);
    }
    Check::ok(NAME, words)
}

fn connections(used: i64, max: i64) -> Check {
    const NAME: &str = "connections";
    let words = format!("{used} of {max} are in use");
    if used * 100 >= max * 95 {
        let remedy = "find who has them: SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1; or raise max_connections";
        Check::bad(NAME, Verdict::Wrong, words, remedy)
    } else if used * 100 >= max * 80 {
        Check::bad(
            NAME,
            Verdict::Warning,
            words,
            "each engine needs up to 11; raise max_connections",
        )
    } else {
        Check::ok(NAME, words)
    }
}

fn transaction_ids(age: i64, freeze_max: i64) -> Check {
    const NAME: &str = "transaction_ids";
    let words = format!("the oldest is {age} transactions old; the server stops at 2147483647");
    if age > TRANSACTION_AGE_WRONG {
        Check::bad(
            NAME,
            Verdict::Wrong,
            words,
            "VACUUM (FREEZE) as a superuser, and end old transactions",
        )
    } else if age > freeze_max.saturating_mul(3) / 2 {
        let remedy = "autovacuum does not keep up: see held transactions, then VACUUM (FREEZE)";
        Check::bad(NAME, Verdict::Warning, words, remedy)
    } else {
        Check::ok(NAME, words)
    }
}

fn dead_rows(row: &Row) -> String {
    let (name, dead, live): (&str, i64, i64) = (row.get("name"), row.get("dead"), row.get("live"));
    let last = row.get::<_, Option<i64>>("vacuumed_secs").and_then(|secs| u64::try_from(secs).ok());
    let last =
        last.map_or("never".to_owned(), |secs| format!("{} ago", span(Duration::from_secs(secs))));
    format!("{name} has {dead} dead rows beside {live}; it was last vacuumed {last}")
}

impl OpenTransaction {
    fn verdict(&self) -> Verdict {
        const MOMENT: Duration = Duration::from_millis(500);
        const LONG: Duration = Duration::from_secs(60);
        const TOO_LONG: Duration = Duration::from_secs(3600);
        let BlockingSession { state, locks, waiting, open_for, .. } = &self.session;
        let idle = state.starts_with("idle in transaction");
        // A session whose age this user may not see counts as old: it has a lock on our
        // tables.
        let age = open_for.unwrap_or(LONG);
        if age > MOMENT && (!locks.is_empty() || idle && *waiting > 0) {
            return Verdict::Wrong;
        }
        match (self.holds_rows || idle, age) {
            (true, age) if age > TOO_LONG => Verdict::Wrong,
            (true, age) if age > LONG => Verdict::Warning,
            _ => Verdict::Ok,
        }
    }
}

fn open_transactions(all: &[OpenTransaction]) -> Check {
    const NAME: &str = "transactions";
    let worst = all.iter().map(OpenTransaction::verdict).max().unwrap_or(Verdict::Ok);
    if worst == Verdict::Ok {
        let oldest = all.iter().filter_map(|open| open.session.open_for).max();
        let words = oldest.map_or("no other transaction is open".to_owned(), |age| {
            format!("{} open, the oldest for {}", all.len(), span(age))
        });
        return Check::ok(NAME, words);
    }
    let guilty: Vec<_> = all.iter().filter(|open| open.verdict() != Verdict::Ok).collect();
    let words = guilty.iter().map(|open| {
        let rows = if open.holds_rows { ", keeps vacuum from removing dead rows" } else { "" };
        format!("{}{rows}", open.session)
    });
    let remedy =
        guilty.iter().map(|open| format!("SELECT pg_terminate_backend({});", open.session.pid));
    Check::bad(
        NAME,
        worst,
        words.collect::<Vec<_>>().join("; "),
        remedy.collect::<Vec<_>>().join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_verdict_depends_on_blocked_work() {
        let lock = vec!["waiting_tasks (AccessExclusiveLock)".to_owned()];
        for (secs, state, holds_rows, locks, waiting, verdict) in [
            (1, "active", true, vec![], 0, Verdict::Ok),
            (59, "idle in transaction", true, vec![], 0, Verdict::Ok),
            (61, "idle in transaction", false, vec![], 0, Verdict::Warning),
            (61, "active", true, vec![], 0, Verdict::Warning),
            (9999, "active", false, vec![], 0, Verdict::Ok),
            (3601, "active", true, vec![], 0, Verdict::Wrong),
            (1, "idle in transaction", false, lock, 0, Verdict::Wrong),
            (1, "idle in transaction", true, vec![], 3, Verdict::Wrong),
        ] {
            let session = BlockingSession {
                state: state.to_owned(),
                open_for: Some(Duration::from_secs(secs)),
                locks,
                waiting,
                ..BlockingSession::default()
            };
            let one = OpenTransaction { session, holds_rows };
            assert_eq!(open_transactions(std::slice::from_ref(&one)).verdict, verdict, "{one:?}");
        }
    }

    #[test]
    fn resource_limits_are_reported_early() {
        for (used, verdict) in [(5, Verdict::Ok), (80, Verdict::Warning), (95, Verdict::Wrong)] {
            assert_eq!(connections(used, 100).verdict, verdict);
        }
        for (age, verdict) in
            [(1000, Verdict::Ok), (400_000_000, Verdict::Warning), (1_600_000_000, Verdict::Wrong)]
        {
            assert_eq!(transaction_ids(age, 200_000_000).verdict, verdict);
        }
    }

    #[test]
    fn small_clock_differences_are_accepted() {
        let at = |secs| Timestamp::from_second(secs).unwrap();
        assert_eq!(clock(at(100), at(99), at(101)).verdict, Verdict::Ok);
        assert_eq!(clock(at(97), at(99), at(101)).verdict, Verdict::Ok);
        assert_eq!(clock(at(120), at(99), at(101)).verdict, Verdict::Warning);
    }
}
