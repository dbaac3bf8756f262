//! What people do to a store that is at work.

use std::time::Duration;

use task_engine::{TaskId, TaskStatus};
use task_engine_conformance::TestServer;
use task_engine_core::change::DeleteReport;
use task_engine_store::contract::{CancelReport, RetryReport};

use crate::harness::arena::Arena;
use crate::orders::{Deed, Duty};
use crate::registry::Kind;

/// F39: tasks are cancelled and sent back at random while engines run them. What
/// the operator is told is what has happened.
pub fn operator_races(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    let flaky = Duty { ms: 5, deed: Deed::Fail, attempts: None };
    let count = if arena.soak { 2000 } else { 200 };
    let mut ids = arena.create_many(count, &Duty::work(15));
    ids.extend(arena.create(&vec![flaky.task_with_retries(0); count]));
    let store = arena.store();
    let (mut cancelled, mut sent_back, mut requested) = (0, 0, 0);
    for _ in 0..count / 5 {
        let mut some: Vec<TaskId> =
            (0..20).map(|_| ids[arena.chance.usize(0..ids.len())]).collect();
        some.sort_unstable();
        some.dedup();
        if arena.chance.bool() {
            let reports = arena.wait(store.cancel(&some)).expect("answered");
            cancelled += reports.iter().filter(|r| **r == CancelReport::Cancelled).count();
            requested += reports.iter().filter(|r| **r == CancelReport::Requested).count();
        } else {
            let reports = arena.wait(store.retry(&some)).expect("answered");
            for (id, report) in some.iter().zip(&reports) {
                if *report == RetryReport::Waiting {
                    sent_back += 1;
                    arena.sent_back(*id);
                }
            }
        }
        arena.endure_some(0..20);
    }
    let history = arena.account();
    let waited = history
        .executions()
        .filter(|(_, e)| e.instance_id.is_none() && e.ends_task == Some(TaskStatus::Cancelled));
    assert_eq!(waited.count(), cancelled, "as many were cancelled as was said");
    let ends = history.executions().filter(|(_, e)| e.ends_task.is_some()).count();
    assert_eq!(ends, ids.len() + sent_back, "each that was sent back ended once more");
    let ended: Vec<TaskId> = ids.clone();
    let removed = arena.wait(store.delete(&ended)).expect("answered");
    let gone = removed.iter().filter(|report| **report == DeleteReport::Deleted).count();
    assert_eq!(gone, ids.len(), "all have ended, and are removed");
    arena.note(format!("{cancelled} cancelled, {requested} asked to end, {sent_back} sent back"));
}

/// F37: ids beyond 2³¹ and beyond 2⁵³.
pub fn large_ids(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    for start in [(1_i64 << 31) - 3, (1 << 53) - 3] {
        begin_ids_at(arena, start);
        let ids = arena.create_many(10, &Duty::work(1));
        assert_eq!(ids[0].0, start);
        assert_eq!(ids[9].0, start + 9, "exact, and in order");
    }
    let history = arena.account();
    assert!(history.tasks.contains_key(&((1 << 53) + 1)), "a number that no double has");
}

fn begin_ids_at(arena: &Arena, start: i64) {
    if arena.kind == Kind::Postgres {
        let command =
            format!("ALTER TABLE task_engine.created_tasks ALTER COLUMN id RESTART WITH {start}");
        arena.wait(arena.sql().batch_execute(&command)).expect("restarted");
        return;
    }
    let db = rusqlite::Connection::open(&arena.direct).expect("opened");
    db.busy_timeout(Duration::from_secs(10)).expect("timeout");
    let set = "INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq) VALUES ( \
         (SELECT rowid FROM sqlite_sequence WHERE name = 'task_engine_created_tasks'), \
         'task_engine_created_tasks', ?1)";
    db.execute(set, [start - 1]).expect("restarted");
}

/// F36: callers give up at random moments; nothing is half done, and no
/// connection stays in a transaction.
pub fn callers_give_up(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a"]);
    let store = arena.store();
    let rounds = if arena.soak { 5000 } else { 300 };
    let (mut dropped, mut done) = (0, 0);
    for _ in 0..rounds {
        // From far too short to long enough, on a fast machine as on a slow one.
        let longest = 200 << arena.chance.u64(0..12);
        let limit = Duration::from_micros(arena.chance.u64(0..longest));
        let tasks = vec![Duty::work(1).task(); arena.chance.usize(1..20)];
        let ids: Vec<TaskId> = (0..5).map(|_| TaskId(arena.chance.i64(1..2000))).collect();
        let which = arena.chance.u8(0..3);
        let answered = arena.wait(async {
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
    let history = arena.account();
    if arena.kind == Kind::Postgres {
        let idle = "SELECT application_name || ': ' || query FROM pg_stat_activity \
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        let sql = arena.sql();
        let mut left = Vec::new();
        for _ in 0..100 {
            // Those of the account, just closed, may take a moment to go.
            let rows = arena.wait(sql.query(idle, &[])).expect("a list");
            left = rows.iter().map(|row| row.get::<_, String>(0)).collect();
            if left.is_empty() {
                break;
            }
            arena.endure(Duration::from_millis(50));
        }
        assert_eq!(left, Vec::<String>::new(), "connections are left in a transaction");
    }
    arena.note(format!("{dropped} calls given up, {done} not, {} tasks", history.tasks.len()));
}

/// F40: a copy is made while engines run, and engines are started on the copy.
pub fn restored_copy(arena: &mut Arena) {
    let server = TestServer::shared();
    if arena.kind == Kind::Postgres {
        arena.on_server(server);
    } else {
        arena.on_usual_store();
    }
    arena.start(&["a"]);
    arena.produce(300, 5, 10, Duty::work(10));
    arena.create_many(3, &Duty::work(4000));
    arena.until("work goes on", || arena.done() > 50);
    let copy = if arena.kind == Kind::Postgres {
        let copy = arena.wait(server.create_database());
        copy_postgres(server, &arena.direct, &copy);
        copy
    } else {
        let copy = arena.path("copy.db").display().to_string();
        let db = rusqlite::Connection::open(&arena.direct).expect("opened");
        db.busy_timeout(Duration::from_secs(10)).expect("timeout");
        db.execute("VACUUM INTO ?1", [&copy]).expect("copied");
        copy
    };
    // An engine of another name, because the first is alive.
    let mut plan = arena.plan("on-the-copy");
    plan.order.database.clone_from(&copy);
    plan.order.witness = arena.path("witness-of-the-copy");
    arena.fleet.start(plan);
    let original = std::mem::replace(&mut arena.direct, copy.clone());
    let store = arena.store();
    let settled = arena.settle_only();
    assert_eq!(arena.wait(store.verify()).expect("verified"), Vec::<String>::new());
    let tasks = arena.wait(store.inventory()).expect("counted").tasks;
    arena.fleet.stop("on-the-copy");
    arena.direct = original;
    arena.note(format!(
        "the copy has {tasks} tasks, sound; all ended {:.1} s after the start, those that ran when it was made, too",
        settled.as_secs_f64()
    ));
    arena.account();
}

fn copy_postgres(server: &TestServer, from: &str, to: &str) {
    let file = server.directory().join(format!("dump-{}", fastrand::u32(..)));
    let file = file.display().to_string();
    for (program, arguments) in
        [("pg_dump", vec!["-Fc", "-f", &file, from]), ("pg_restore", vec!["-d", to, &file])]
    {
        let output = server.program(program).args(&arguments).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {told}");
    }
}

/// F23: somebody keeps a snapshot open while engines work; the rate stays.
pub fn held_snapshot(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    arena.until_alive(&["a", "b"]);
    let count = if arena.soak { 20_000 } else { 1500 };
    let round = |arena: &Arena| {
        let before = arena.done();
        arena.create_many(count, &Duty::work(0));
        arena.until("a round is done", || arena.done() >= before + count).as_secs_f64()
    };
    round(arena);
    let free = round(arena);
    let sql = arena.sql();
    arena
        .wait(sql.batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task_engine.created_tasks",
        ))
        .expect("a snapshot");
    round(arena);
    let held = round(arena);
    arena.wait(sql.batch_execute("COMMIT")).expect("released");
    arena.note(format!("{:.0} % of the rate with a snapshot held", free / held * 100.0));
    assert!(held < free * 2.0 + 2.0, "{free:.1} s without, {held:.1} s with a snapshot held");
    arena.account();
}
