//! Operations on a store while engines run.

use std::time::Duration;

use task_engine::{TaskId, TaskStatus};
use task_engine_core::change::DeleteReport;
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_test_harness::TestServer;

use crate::commands::{Action, TaskSpec};
use crate::harness::context::TestContext;
use crate::registry::StoreKind;

/// F39: tasks are cancelled and retried at random while engines run them. The reports of
/// the operations are correct.
pub fn operator_races(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    let flaky = TaskSpec { ms: 5, action: Action::Fail, ..TaskSpec::default() };
    let count = if ctx.soak { 2000 } else { 200 };
    let mut ids = ctx.create_many(count, &TaskSpec::work(15));
    ids.extend(ctx.create(&vec![flaky.task_with_retries(0); count]));
    let store = ctx.store();
    let (mut cancelled, mut requeued, mut requested) = (0, 0, 0);
    for _ in 0..count / 5 {
        let mut some: Vec<TaskId> = (0..20).map(|_| ids[ctx.rng.usize(0..ids.len())]).collect();
        some.sort_unstable();
        some.dedup();
        if ctx.rng.bool() {
            let reports = ctx.block_on(store.cancel(&some)).expect("answered");
            cancelled += reports.iter().filter(|r| **r == CancelReport::Cancelled).count();
            requested += reports.iter().filter(|r| **r == CancelReport::Requested).count();
        } else {
            let reports = ctx.block_on(store.retry(&some)).expect("answered");
            for (id, report) in some.iter().zip(&reports) {
                if *report == RetryReport::Waiting {
                    requeued += 1;
                    ctx.requeued(*id);
                }
            }
        }
        ctx.sleep_random(0..20);
    }
    let history = ctx.settle_and_check();
    let waited = history
        .executions()
        .filter(|(_, e)| e.instance_id.is_none() && e.ends_task == Some(TaskStatus::Cancelled));
    assert_eq!(waited.count(), cancelled, "as many were cancelled as was said");
    let ends = history.executions().filter(|(_, e)| e.ends_task.is_some()).count();
    assert_eq!(ends, ids.len() + requeued, "each that was sent back ended once more");
    let ended: Vec<TaskId> = ids.clone();
    let removed = ctx.block_on(store.delete(&ended)).expect("answered");
    let gone = removed.iter().filter(|report| **report == DeleteReport::Deleted).count();
    assert_eq!(gone, ids.len(), "all have ended, and are removed");
    ctx.note(format!("{cancelled} cancelled, {requested} asked to end, {requeued} sent back"));
}

/// F37: ids beyond 2³¹ and beyond 2⁵³.
pub fn large_ids(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    for start in [(1_i64 << 31) - 3, (1 << 53) - 3] {
        begin_ids_at(ctx, start);
        let ids = ctx.create_many(10, &TaskSpec::work(1));
        assert_eq!(ids[0].0, start);
        assert_eq!(ids[9].0, start + 9, "exact, and in config");
    }
    let history = ctx.settle_and_check();
    assert!(history.tasks.contains_key(&((1 << 53) + 1)), "a number that no double has");
}

fn begin_ids_at(ctx: &TestContext, start: i64) {
    if ctx.kind == StoreKind::Postgres {
        let command =
            format!("ALTER TABLE task_engine.created_tasks ALTER COLUMN id RESTART WITH {start}");
        ctx.block_on(ctx.sql().batch_execute(&command)).expect("restarted");
        return;
    }
    let db = rusqlite::Connection::open(&ctx.direct).expect("opened");
    db.busy_timeout(Duration::from_secs(10)).expect("timeout");
    let set = "INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq) VALUES ( \
         (SELECT rowid FROM sqlite_sequence WHERE name = 'task_engine_created_tasks'), \
         'task_engine_created_tasks', ?1)";
    db.execute(set, [start - 1]).expect("restarted");
}

/// F36: callers are dropped at random moments. Every call is complete or without effect,
/// and no connection stays in a transaction.
pub fn callers_give_up(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a"]);
    let store = ctx.store();
    let rounds = if ctx.soak { 5000 } else { 300 };
    let (mut dropped, mut done) = (0, 0);
    for _ in 0..rounds {
        // From far too short to long enough, on a fast machine as on a slow one.
        let longest = 200 << ctx.rng.u64(0..12);
        let limit = Duration::from_micros(ctx.rng.u64(0..longest));
        let tasks = vec![TaskSpec::work(1).task(); ctx.rng.usize(1..20)];
        let ids: Vec<TaskId> = (0..5).map(|_| TaskId(ctx.rng.i64(1..2000))).collect();
        let which = ctx.rng.u8(0..3);
        let answered = ctx.block_on(async {
            match which {
                0 => {
                    tokio::time::timeout(limit, store.create(&tasks)).await.map(|ids| ids.map(drop))
                }
                1 => tokio::time::timeout(limit, store.cancel(&ids)).await.map(|r| r.map(drop)),
                _ => tokio::time::timeout(limit, store.tasks(&Default::default()))
                    .await
                    .map(|r| r.map(drop)),
            }
        });
        match answered {
            Err(_) => dropped += 1,
            Ok(answer) => {
                answer.expect("an answer that came is a good one");
                done += 1;
            }
        }
    }
    assert!(dropped > 0 && done > 0, "{dropped} given up, {done} not");
    let history = ctx.settle_and_check();
    if ctx.kind == StoreKind::Postgres {
        let idle = "SELECT application_name || ': ' || query FROM pg_stat_activity \
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        let sql = ctx.sql();
        let mut left = Vec::new();
        for _ in 0..100 {
            // The connections of the check were just closed and may need a moment to end.
            let rows = ctx.block_on(sql.query(idle, &[])).expect("a list");
            left = rows.iter().map(|row| row.get::<_, String>(0)).collect();
            if left.is_empty() {
                break;
            }
            ctx.sleep(Duration::from_millis(50));
        }
        assert_eq!(left, Vec::<String>::new(), "connections are left in a transaction");
    }
    ctx.note(format!("{dropped} calls given up, {done} not, {} tasks", history.tasks.len()));
}

/// F40: a copy is made while engines run, and engines start on the copy.
pub fn restored_copy(ctx: &mut TestContext) {
    let server = TestServer::shared();
    if ctx.kind == StoreKind::Postgres {
        ctx.use_server(server);
    } else {
        ctx.use_default_store();
    }
    ctx.start(&["a"]);
    ctx.produce(300, 5, 10, TaskSpec::work(10));
    ctx.create_many(3, &TaskSpec::work(4000));
    ctx.wait_until("work goes on", || ctx.finished() > 50);
    let copy = if ctx.kind == StoreKind::Postgres {
        let copy = ctx.block_on(server.create_database());
        copy_postgres(server, &ctx.direct, &copy);
        copy
    } else {
        let copy = ctx.path("copy.db").display().to_string();
        let db = rusqlite::Connection::open(&ctx.direct).expect("opened");
        db.busy_timeout(Duration::from_secs(10)).expect("timeout");
        db.execute("VACUUM INTO ?1", [&copy]).expect("copied");
        copy
    };
    // An engine of another name, because the first is alive.
    let mut options = ctx.options("on-the-copy");
    options.config.database.clone_from(&copy);
    options.config.witness = ctx.path("witness-of-the-copy");
    ctx.engines.start(options);
    let original = std::mem::replace(&mut ctx.direct, copy.clone());
    let store = ctx.store();
    let settled = ctx.settle_only();
    assert_eq!(ctx.block_on(store.verify()).expect("verified"), []);
    let tasks = ctx.block_on(store.inventory()).expect("counted").tasks;
    ctx.engines.stop("on-the-copy");
    ctx.direct = original;
    ctx.note(format!(
        "the copy has {tasks} tasks, sound; all ended {:.1} s after the start, those that ran when it was made, too",
        settled.as_secs_f64()
    ));
    ctx.settle_and_check();
}

fn copy_postgres(server: &TestServer, from: &str, to: &str) {
    let file = server.directory().join(format!("dump-{}", fastrand::u32(..)));
    let file = file.display().to_string();
    for (program, arguments) in
        [("pg_dump", vec!["-Fc", "-f", &file, from]), ("pg_restore", vec!["-d", to, &file])]
    {
        let output = server.program(program).args(&arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {error}");
    }
}

/// F23: a snapshot is kept open while engines work. The rate does not drop.
pub fn held_snapshot(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    ctx.wait_alive(&["a", "b"]);
    let count = if ctx.soak { 20_000 } else { 1500 };
    let round = |ctx: &TestContext| {
        let before = ctx.finished();
        ctx.create_many(count, &TaskSpec::work(0));
        ctx.wait_until("a round is done", || ctx.finished() >= before + count).as_secs_f64()
    };
    round(ctx);
    let free = round(ctx);
    let sql = ctx.sql();
    ctx.block_on(sql.batch_execute(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task_engine.created_tasks",
    ))
    .expect("a snapshot");
    round(ctx);
    let held = round(ctx);
    ctx.block_on(sql.batch_execute("COMMIT")).expect("released");
    ctx.note(format!("{:.0} % of the rate with a snapshot held", free / held * 100.0));
    assert!(held < free * 2.0 + 2.0, "{free:.1} s without, {held:.1} s with a snapshot held");
    ctx.settle_and_check();
}
