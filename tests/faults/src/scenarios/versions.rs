//! Programs and tables of two versions.

use std::time::Duration;

use crate::harness::arena::Arena;
use crate::orders::Duty;
use crate::registry::Kind;

/// F25: under load the tables become those of a later version, as its migration
/// makes them: it adds. The first to try dies half way. Engines of this version
/// go on, and one that is killed comes back.
pub fn tables_of_a_later_version(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    arena.produce(300, 5, 10, Duty::work(5));
    arena.until("work goes on", || arena.done() > 30);
    migrate(arena, Migrator::Dies);
    arena.until("work goes on", || arena.done() > 80);
    migrate(arena, Migrator::Commits);
    arena.until("work goes on", || arena.done() > 130);
    arena.fleet.kill("a");
    arena.account();
    let refused = arena.wait(arena.store().migrate()).expect_err("tables that it does not know");
    assert!(refused.to_string().contains("upgrade task-engine"), "{refused}");
}

#[derive(Clone, Copy, PartialEq)]
enum Migrator {
    Dies,
    Commits,
}

fn migrate(arena: &Arena, migrator: Migrator) {
    match arena.kind {
        Kind::Postgres => migrate_postgres(arena, migrator),
        Kind::Sqlite => migrate_sqlite(arena, migrator),
    }
}

const POSTGRES: &str = "BEGIN;
    ALTER TABLE task_engine.created_tasks ADD COLUMN later text NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine.waiting_tasks ADD COLUMN later text NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine.ended_executions ADD COLUMN later text NOT NULL DEFAULT 'x';
    CREATE TABLE task_engine.later (id bigint PRIMARY KEY);
    INSERT INTO task_engine.migrations (version, name) VALUES (1000, 'later')";

fn migrate_postgres(arena: &Arena, migrator: Migrator) {
    let other = arena.sql();
    let mut client = arena.sql();
    // It waits for locks in an order of its own: one of two may be told to try again.
    while arena.wait(client.batch_execute(POSTGRES)).is_err() {
        client = arena.sql();
    }
    if migrator == Migrator::Commits {
        arena.wait(client.batch_execute("COMMIT")).expect("migrated");
        return;
    }
    let ask = "SELECT pg_backend_pid()";
    let process: i32 = arena.wait(client.query_one(ask, &[])).expect("a process").get(0);
    let killed = arena.wait(other.execute("SELECT pg_terminate_backend($1)", &[&process]));
    killed.expect("killed");
}

const SQLITE: &str = "BEGIN IMMEDIATE;
    ALTER TABLE task_engine_created_tasks ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine_waiting_tasks ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine_ended_executions ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    CREATE TABLE task_engine_later (id INTEGER PRIMARY KEY) STRICT;
    INSERT INTO task_engine_migrations (version, name, applied_at) VALUES (1000, 'later', 0)";

fn migrate_sqlite(arena: &Arena, migrator: Migrator) {
    let db = rusqlite::Connection::open(&arena.direct).expect("opened");
    db.busy_timeout(Duration::from_secs(30)).expect("timeout");
    db.execute_batch(SQLITE).expect("migrated");
    if migrator == Migrator::Commits {
        db.execute_batch("COMMIT").expect("committed");
    }
}
