//! Programs and tables of two versions.

use std::time::Duration;

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::registry::StoreKind;

/// F25: under load, the tables are migrated to a later version, which adds columns and
/// tables. The first migration dies half way. Engines of this version continue, and one
/// that is killed starts again.
pub fn tables_of_a_later_version(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    ctx.produce(300, 5, 10, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 30);
    migrate(ctx, Migrator::Dies);
    ctx.wait_until("work goes on", || ctx.finished() > 80);
    migrate(ctx, Migrator::Commits);
    ctx.wait_until("work goes on", || ctx.finished() > 130);
    ctx.engines.kill("a");
    ctx.settle_and_check();
    let refused = ctx.block_on(ctx.store().migrate()).expect_err("tables that it does not know");
    assert!(refused.to_string().contains("upgrade task-engine"), "{refused}");
}

#[derive(Clone, Copy, PartialEq)]
enum Migrator {
    Dies,
    Commits,
}

fn migrate(ctx: &TestContext, migrator: Migrator) {
    match ctx.kind {
        StoreKind::Postgres => migrate_postgres(ctx, migrator),
        StoreKind::Sqlite => migrate_sqlite(ctx, migrator),
    }
}

const POSTGRES: &str = "BEGIN;
    ALTER TABLE task_engine.created_tasks ADD COLUMN later text NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine.waiting_tasks ADD COLUMN later text NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine.ended_executions ADD COLUMN later text NOT NULL DEFAULT 'x';
    CREATE TABLE task_engine.later (id bigint PRIMARY KEY);
    INSERT INTO task_engine.migrations (version, name) VALUES (1000, 'later')";

fn migrate_postgres(ctx: &TestContext, migrator: Migrator) {
    let other = ctx.sql();
    let mut client = ctx.sql();
    // The migration locks tables in its own order, so it may be chosen as the victim of a
    // deadlock and must repeat.
    while ctx.block_on(client.batch_execute(POSTGRES)).is_err() {
        client = ctx.sql();
    }
    if migrator == Migrator::Commits {
        ctx.block_on(client.batch_execute("COMMIT")).expect("migrated");
        return;
    }
    let ask = "SELECT pg_backend_pid()";
    let process: i32 = ctx.block_on(client.query_one(ask, &[])).expect("a process").get(0);
    let killed = ctx.block_on(other.execute("SELECT pg_terminate_backend($1)", &[&process]));
    killed.expect("killed");
}

const SQLITE: &str = "BEGIN IMMEDIATE;
    ALTER TABLE task_engine_created_tasks ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine_waiting_tasks ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    ALTER TABLE task_engine_ended_executions ADD COLUMN later TEXT NOT NULL DEFAULT 'x';
    CREATE TABLE task_engine_later (id INTEGER PRIMARY KEY) STRICT;
    INSERT INTO task_engine_migrations (version, name, applied_at) VALUES (1000, 'later', 0)";

fn migrate_sqlite(ctx: &TestContext, migrator: Migrator) {
    let db = rusqlite::Connection::open(&ctx.direct).expect("opened");
    db.busy_timeout(Duration::from_secs(30)).expect("timeout");
    db.execute_batch(SQLITE).expect("migrated");
    if migrator == Migrator::Commits {
        db.execute_batch("COMMIT").expect("committed");
    }
}
