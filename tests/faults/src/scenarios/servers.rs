//! Servers that crash, refuse, fill up, or are replaced.

use std::time::Duration;

use task_engine_conformance::{Plan, TestServer};

use crate::harness::arena::Arena;
use crate::harness::fleet::send;
use crate::harness::machine::{Volume, must};
use crate::harness::proxy::Proxy;
use crate::orders::Duty;

fn server(settings: &[&str]) -> TestServer {
    let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    TestServer::start_as(Plan { settings, ..Plan::default() })
}

/// F14: the server crashes under load, in two ways.
pub fn crash(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    arena.start(&["a", "b"]);
    let crashes = if arena.soak { 8 } else { 3 };
    arena.produce(crashes * 150, 5, 20, Duty::work(5));
    let window = arena.window();
    for crash in 1..=crashes {
        arena.until("work goes on", || arena.done() >= crash * 80);
        if arena.chance.bool() {
            server.stop_immediate();
        } else {
            server.kill();
        }
        arena.endure_some(0..1500);
        server.start_again();
        arena.remember();
    }
    let used = window.close();
    arena.note(format!("{crashes} crashes; {used}"));
    arena.account();
}

/// A primary and its standby, and engines that reach them through a proxy.
fn pair(arena: &mut Arena) -> (TestServer, TestServer, Proxy) {
    let primary = TestServer::start();
    arena.on_server(&primary);
    let plan = Plan { standby_of: Some(primary.port()), ..Plan::default() };
    let standby = TestServer::start_as(plan);
    let proxy = Proxy::start(&arena.handle(), primary.port());
    arena.database = proxy.url(&arena.database);
    (primary, standby, proxy)
}

fn fail_over(arena: &mut Arena, primary: &TestServer, standby: &TestServer, proxy: &Proxy) {
    primary.kill();
    arena.direct = arena.direct.replace(&primary.port().to_string(), &standby.port().to_string());
    let promoted = arena.wait(arena.sql().query_one("SELECT pg_promote()", &[]));
    assert!(promoted.expect("an answer").get::<_, bool>(0), "it is promoted");
    proxy.lead_to(standby.port());
}

/// F15: the primary dies, a synchronous standby takes over: nothing is lost.
pub fn failover_sync(arena: &mut Arena) {
    let (primary, standby, proxy) = pair(arena);
    make_synchronous(arena);
    arena.start(&["a", "b"]);
    arena.produce(500, 5, 20, Duty::work(5));
    arena.until("work goes on", || arena.done() > 100);
    fail_over(arena, &primary, &standby, &proxy);
    arena.account();
}

/// Whatever is confirmed from now on is known to the standby.
fn make_synchronous(arena: &Arena) {
    let sql = arena.sql();
    for command in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
        arena.wait(sql.batch_execute(command)).expect("a setting");
    }
    let state = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
    arena.until("the standby is in step", || {
        !arena.wait(sql.query(state, &[])).expect("a list").is_empty()
    });
}

/// F15: the primary dies, and engines know the standby by their URL.
pub fn failover_hosts_killed(arena: &mut Arena) {
    failover_hosts(arena, TestServer::kill);
}

/// F15: the primary is suspended with all its connections, and engines know the
/// standby by their URL.
pub fn failover_hosts_frozen(arena: &mut Arena) {
    failover_hosts(arena, TestServer::freeze);
}

/// How long whoever watches over the servers takes to see that the first is gone.
const PROMOTED_AFTER: Duration = Duration::from_secs(3);

fn failover_hosts(arena: &mut Arena, lose: fn(&TestServer)) {
    let primary = TestServer::start();
    arena.on_server(&primary);
    let plan = Plan { standby_of: Some(primary.port()), ..Plan::default() };
    let standby = TestServer::start_as(plan);
    make_synchronous(arena);
    let (first, second) = (primary.port().to_string(), standby.port().to_string());
    arena.database = arena.database.replace(&first, &format!("{first},127.0.0.1:{second}"));
    for name in ["a", "b"] {
        let mut plan = arena.plan(name);
        // No engine counts as lost meanwhile.
        (plan.order.heartbeat_ms, plan.order.lease_ms) = (1000, 60_000);
        arena.fleet.start(plan);
    }
    arena.produce(500, 5, 20, Duty::work(5));
    arena.until("work goes on", || arena.done() > 100);
    lose(&primary);
    arena.direct = arena.direct.replace(&first, &second);
    arena.endure(PROMOTED_AFTER);
    let promoted = arena.wait(arena.sql().query_one("SELECT pg_promote()", &[]));
    assert!(promoted.expect("an answer").get::<_, bool>(0), "it is promoted");
    let before = arena.done();
    let resumed = arena.until("work goes on", || arena.done() > before);
    assert!(resumed < Duration::from_secs(5), "{resumed:?} after the promotion");
    let created = arena.confirmed();
    arena.until("creation goes on", || arena.confirmed() > created || created >= 500);
    arena.account();
    let witness = arena.witness();
    let tasks: std::collections::HashSet<_> = witness.seen.keys().map(|(task, _)| task).collect();
    assert_eq!(tasks.len(), witness.seen.len(), "no task has begun twice");
    arena.note(format!("tasks go on {:.1} s after the promotion", resumed.as_secs_f64()));
    // A frozen one would not end by itself.
    if primary.is_running() {
        primary.kill();
    }
}

/// F15: the primary dies, an asynchronous standby that is behind takes over:
/// what it had not heard of is lost, by the server's doing. What it has is sound.
pub fn failover_async(arena: &mut Arena) {
    let (primary, standby, proxy) = pair(arena);
    arena.start(&["a", "b"]);
    arena.produce(500, 5, 20, Duty::work(5));
    arena.until("work goes on", || arena.done() > 100);
    let sql = arena.sql();
    let row = arena.wait(sql.query_one("SELECT pid FROM pg_stat_replication", &[]));
    let sender: i32 = row.expect("a standby").get(0);
    let sender = u32::try_from(sender).unwrap_or(0);
    send(sender, rustix::process::Signal::STOP);
    let before = arena.done();
    arena.until("more is done than the standby knows", || arena.done() > before + 50);
    fail_over(arena, &primary, &standby, &proxy);
    // One that is stopped does not see that its server is gone.
    send(sender, rustix::process::Signal::KILL);
    arena.settle();
    let told = |name: &str| {
        let log = arena.fleet.logged(name);
        log.contains("bytes of its log") || log.contains("has taken over")
    };
    arena.until("engines say that something may be lost", || told("a") && told("b"));
    arena.fleet.stop_all();
    let (_, broken) = arena.reckon_up();
    let lost = broken.iter().filter(|words| words.starts_with("I1:")).count();
    assert!(lost > 0, "the standby was behind, so something is lost");
    arena.note(format!("{lost} confirmed tasks lost by the server, as PostgreSQL says it may"));
    let unsound: Vec<_> = broken
        .iter()
        .filter(|words| ["I2: verify", "I6", "I8", "I9"].iter().any(|bad| words.starts_with(bad)))
        .collect();
    assert!(unsound.is_empty(), "{unsound:#?}");
}

/// F16: the server takes no writes for a time.
pub fn read_only(arena: &mut Arena) {
    let server = TestServer::start();
    arena.on_server(&server);
    arena.start(&["a", "b"]);
    arena.produce(300, 5, 30, Duty::work(5));
    arena.until("work goes on", || arena.done() > 50);
    let sql = arena.sql();
    let switch = |on: &str| {
        for command in [
            "SET default_transaction_read_only = off".to_owned(),
            format!("ALTER SYSTEM SET default_transaction_read_only = {on}"),
            "SELECT pg_reload_conf()".to_owned(),
        ] {
            arena.wait(sql.batch_execute(&command)).expect("a setting");
        }
    };
    switch("on");
    let window = arena.window();
    arena.until("engines say why", || arena.fleet.logged("a").contains("read-only"));
    arena.endure(Duration::from_secs(4));
    let used = window.close();
    assert!(used.cpu < 0.5, "it spins: {used}");
    switch("off");
    arena.note(format!("{used}"));
    arena.account();
}

/// F18: far more engines than the server has connections, all started at once.
pub fn no_connections_left(arena: &mut Arena) {
    let server = server(&["max_connections=30"]);
    arena.on_server(&server);
    let sql = arena.sql();
    arena.create_many(600, &Duty::work(5));
    let names: Vec<String> = (1..=12).map(|number| format!("e{number}")).collect();
    for name in &names {
        let mut plan = arena.plan(name);
        plan.order.lease_ms = 10_000;
        arena.fleet.start(plan);
    }
    arena.until("all is done", || arena.done() >= 600);
    let query =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'task-engine-fault'";
    let row = arena.wait(sql.query_one(query, &[])).expect("a count");
    let crashes = arena.fleet.crashes().len();
    arena.note(format!(
        "{} connections of 30 in use at the end, {crashes} engines had to be started again",
        row.get::<_, i64>(0)
    ));
    // Fewer, so that the account can be made.
    for name in &names[2..] {
        arena.fleet.stop(name);
    }
    arena.create_many(50, &Duty::work(5));
    arena.account();
}

/// F19: the volume of the tables is full; later there is room again.
pub fn data_volume_full(arena: &mut Arena) {
    let server = TestServer::start();
    let volume = Volume::mount(arena.path("volume"), 48);
    let folder = volume.path().join("tables");
    std::fs::create_dir(&folder).expect("a folder");
    open_path(&arena.path(""));
    must(
        "chown",
        &["--reference", &server.directory().display().to_string(), &folder.display().to_string()],
    );
    let admin = arena.try_sql(&server.url("postgres")).expect("a connection");
    for command in [
        format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()),
        "CREATE DATABASE small TABLESPACE small".to_owned(),
    ] {
        arena.wait(admin.batch_execute(&command)).expect("made");
    }
    arena.on_database(&server.url("small"));
    arena.start(&["a", "b"]);
    arena.produce(4000, 100, 10, Duty::work(1));
    arena.until("work goes on", || arena.done() > 50);
    let ballast = volume.fill();
    let window = arena.window();
    arena
        .until("the producer is told", || arena.fleet.logged("producer").contains("No space left"));
    arena.endure(Duration::from_secs(3));
    let used = window.close();
    std::fs::remove_file(ballast).expect("room");
    arena.note(format!("{used}"));
    let history = arena.account();
    let failed =
        history.tasks.values().filter(|task| task.status != task_engine::TaskStatus::Stopped);
    assert_eq!(failed.count(), 0, "no task fails for the want of a disk");
    drop((admin, server));
}

/// Lets other users pass: the server is one.
fn open_path(folder: &std::path::Path) {
    must("chmod", &["755", &folder.display().to_string()]);
}

/// F20: the volume of the write-ahead log is full: the server panics and stays
/// down, until there is room.
pub fn wal_volume_full(arena: &mut Arena) {
    let server = server(&["min_wal_size=32MB", "max_wal_size=32MB"]);
    let volume = Volume::mount(arena.path("volume"), 100);
    open_path(&arena.path(""));
    server.stop_immediate();
    let (log, moved) = (server.directory().join("data/pg_wal"), volume.path().join("pg_wal"));
    let [log, moved] = [log, moved].map(|path| path.display().to_string());
    must("cp", &["-a", &log, &moved]);
    must("rm", &["-r", &log]);
    must("ln", &["-s", &moved, &log]);
    server.start_again();
    arena.on_server(&server);
    arena.start(&["a", "b"]);
    arena.produce(20_000, 500, 1, Duty::work(0));
    arena.until("work goes on", || arena.done() > 50);
    let ballast = volume.fill();
    let window = arena.window();
    arena.until("the server panics", || server.log().contains("PANIC"));
    server.has_gone();
    arena.kill_producer();
    arena.endure(Duration::from_secs(2));
    let used = window.close();
    std::fs::remove_file(ballast).expect("room");
    server.start_again();
    arena.note(format!("{used}"));
    arena.account();
    drop((server, volume));
}

/// F24: somebody locks a table against everybody, then the next one.
pub fn locked_tables(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    arena.produce(400, 5, 30, Duty::work(5));
    arena.until("work goes on", || arena.done() > 20);
    let sql = arena.sql();
    let window = arena.window();
    for table in ["waiting_tasks", "claims", "ended_executions", "instances"] {
        let lock = format!("BEGIN; LOCK TABLE task_engine.{table} IN ACCESS EXCLUSIVE MODE");
        arena.wait(sql.batch_execute(&lock)).expect("locked");
        arena.endure(Duration::from_millis(if arena.soak { 15_000 } else { 2500 }));
        arena.wait(sql.batch_execute("COMMIT")).expect("unlocked");
        arena.endure(Duration::from_millis(300));
    }
    let used = window.close();
    arena.note(format!("{used}"));
    arena.account();
}
