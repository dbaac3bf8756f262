//! Servers that crash, refuse, fill up, or are replaced.

use std::time::Duration;

use task_engine_test_harness::{ServerOptions, TestServer};

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::harness::machine::{Volume, run_command};
use crate::harness::proxy::Proxy;
use crate::harness::supervisor::send;

fn server(settings: &[&str]) -> TestServer {
    let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    TestServer::start_with(ServerOptions { settings, ..ServerOptions::default() })
}

/// F14: the server crashes under load, in two ways.
pub fn crash(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    ctx.start(&["a", "b"]);
    let crashes = if ctx.soak { 8 } else { 3 };
    ctx.produce(crashes * 150, 5, 20, TaskSpec::work(5));
    let window = ctx.monitor_usage();
    for crash in 1..=crashes {
        ctx.wait_until("work goes on", || ctx.finished() >= crash * 80);
        if ctx.rng.bool() {
            server.stop_immediate();
        } else {
            server.kill();
        }
        ctx.sleep_random(0..1500);
        server.start_again();
        ctx.snapshot();
    }
    let used = window.close();
    ctx.note(format!("{crashes} crashes; {used}"));
    ctx.settle_and_check();
}

/// A primary and its standby, and engines that reach them through a proxy.
fn pair(ctx: &mut TestContext) -> (TestServer, TestServer, Proxy) {
    let primary = TestServer::start();
    ctx.use_server(&primary);
    let options = ServerOptions { standby_of: Some(primary.port()), ..ServerOptions::default() };
    let standby = TestServer::start_with(options);
    let proxy = Proxy::start(&ctx.handle(), primary.port());
    ctx.database = proxy.url(&ctx.database);
    (primary, standby, proxy)
}

fn fail_over(ctx: &mut TestContext, primary: &TestServer, standby: &TestServer, proxy: &Proxy) {
    primary.kill();
    ctx.direct = ctx.direct.replace(&primary.port().to_string(), &standby.port().to_string());
    let promoted = ctx.block_on(ctx.sql().query_one("SELECT pg_promote()", &[]));
    assert!(promoted.expect("an answer").get::<_, bool>(0), "it is promoted");
    proxy.lead_to(standby.port());
}

/// F15: the primary dies, a synchronous standby takes over: no task is lost.
pub fn failover_sync(ctx: &mut TestContext) {
    let (primary, standby, proxy) = pair(ctx);
    make_synchronous(ctx);
    ctx.start(&["a", "b"]);
    ctx.produce(500, 5, 20, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 100);
    fail_over(ctx, &primary, &standby, &proxy);
    ctx.settle_and_check();
}

/// Everything that is confirmed from now on is on the standby.
fn make_synchronous(ctx: &TestContext) {
    let sql = ctx.sql();
    for command in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
        ctx.block_on(sql.batch_execute(command)).expect("a setting");
    }
    let state = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
    ctx.wait_until("the standby is in step", || {
        !ctx.block_on(sql.query(state, &[])).expect("a list").is_empty()
    });
}

/// F15: the primary dies, and the URL of the engines names the standby.
pub fn failover_hosts_killed(ctx: &mut TestContext) {
    failover_hosts(ctx, TestServer::kill);
}

/// F15: the primary is suspended with all its connections, and the URL of the engines
/// names the standby.
pub fn failover_hosts_frozen(ctx: &mut TestContext) {
    failover_hosts(ctx, TestServer::freeze);
}

/// The time until the cluster manager notices that the primary is down.
const PROMOTED_AFTER: Duration = Duration::from_secs(3);

fn failover_hosts(ctx: &mut TestContext, lose: fn(&TestServer)) {
    let primary = TestServer::start();
    ctx.use_server(&primary);
    let options = ServerOptions { standby_of: Some(primary.port()), ..ServerOptions::default() };
    let standby = TestServer::start_with(options);
    make_synchronous(ctx);
    let (first, second) = (primary.port().to_string(), standby.port().to_string());
    ctx.database = ctx.database.replace(&first, &format!("{first},127.0.0.1:{second}"));
    for name in ["a", "b"] {
        let mut options = ctx.options(name);
        // No engine counts as lost meanwhile.
        (options.config.heartbeat_ms, options.config.lease_ms) = (1000, 60_000);
        ctx.engines.start(options);
    }
    ctx.produce(500, 5, 20, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 100);
    lose(&primary);
    ctx.direct = ctx.direct.replace(&first, &second);
    ctx.sleep(PROMOTED_AFTER);
    let promoted = ctx.block_on(ctx.sql().query_one("SELECT pg_promote()", &[]));
    assert!(promoted.expect("an answer").get::<_, bool>(0), "it is promoted");
    let before = ctx.finished();
    let resumed = ctx.wait_until("work goes on", || ctx.finished() > before);
    assert!(resumed < Duration::from_secs(5), "{resumed:?} after the promotion");
    let created = ctx.confirmed();
    ctx.wait_until("creation goes on", || ctx.confirmed() > created || created >= 500);
    ctx.settle_and_check();
    let witness = ctx.witness();
    let tasks: std::collections::HashSet<_> =
        witness.attempts.keys().map(|(task, _)| task).collect();
    assert_eq!(tasks.len(), witness.attempts.len(), "no task has begun twice");
    ctx.note(format!("tasks go on {:.1} s after the promotion", resumed.as_secs_f64()));
    // A frozen one would not end by itself.
    if primary.is_running() {
        primary.kill();
    }
}

/// F15: the primary dies, an asynchronous standby that is behind takes over. The tasks
/// that it had not received are lost by the server. The others are sound.
pub fn failover_async(ctx: &mut TestContext) {
    let (primary, standby, proxy) = pair(ctx);
    ctx.start(&["a", "b"]);
    ctx.produce(500, 5, 20, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 100);
    let sql = ctx.sql();
    let row = ctx.block_on(sql.query_one("SELECT pid FROM pg_stat_replication", &[]));
    let sender: i32 = row.expect("a standby").get(0);
    let sender = u32::try_from(sender).unwrap_or(0);
    send(sender, rustix::process::Signal::STOP);
    let before = ctx.finished();
    ctx.wait_until("more is done than the standby knows", || ctx.finished() > before + 50);
    fail_over(ctx, &primary, &standby, &proxy);
    // A stopped engine does not notice that its server is down.
    send(sender, rustix::process::Signal::KILL);
    ctx.settle();
    let has_warned = |name: &str| {
        let log = ctx.engines.logged(name);
        log.contains("bytes of its log") || log.contains("has taken over")
    };
    ctx.wait_until("engines say that something may be lost", || has_warned("a") && has_warned("b"));
    ctx.engines.stop_all();
    let (_, broken) = ctx.collect_violations();
    let lost = broken.iter().filter(|words| words.starts_with("I1:")).count();
    assert!(lost > 0, "the standby was behind, so something is lost");
    ctx.note(format!("{lost} confirmed tasks lost by the server, as PostgreSQL says it may"));
    let unsound: Vec<_> = broken
        .iter()
        .filter(|words| ["I2: verify", "I6", "I8", "I9"].iter().any(|bad| words.starts_with(bad)))
        .collect();
    assert!(unsound.is_empty(), "{unsound:#?}");
}

/// F16: the server is read-only for a time.
pub fn read_only(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    ctx.start(&["a", "b"]);
    ctx.produce(300, 5, 30, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 50);
    let sql = ctx.sql();
    let switch = |on: &str| {
        for command in [
            "SET default_transaction_read_only = off".to_owned(),
            format!("ALTER SYSTEM SET default_transaction_read_only = {on}"),
            "SELECT pg_reload_conf()".to_owned(),
        ] {
            ctx.block_on(sql.batch_execute(&command)).expect("a setting");
        }
    };
    switch("on");
    let window = ctx.monitor_usage();
    ctx.wait_until("engines say why", || ctx.engines.logged("a").contains("read-only"));
    ctx.sleep(Duration::from_secs(4));
    let used = window.close();
    assert!(used.cpu < 0.5, "it spins: {used}");
    switch("off");
    ctx.note(format!("{used}"));
    ctx.settle_and_check();
}

/// F18: far more engines than the server has connections, all started at once.
pub fn no_connections_left(ctx: &mut TestContext) {
    let server = server(&["max_connections=30"]);
    ctx.use_server(&server);
    let sql = ctx.sql();
    ctx.create_many(600, &TaskSpec::work(5));
    let names: Vec<String> = (1..=12).map(|number| format!("e{number}")).collect();
    for name in &names {
        let mut options = ctx.options(name);
        options.config.lease_ms = 10_000;
        ctx.engines.start(options);
    }
    ctx.wait_until("all is done", || ctx.finished() >= 600);
    let query =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'task-engine-fault'";
    let row = ctx.block_on(sql.query_one(query, &[])).expect("a count");
    let crashes = ctx.engines.crashes().len();
    ctx.note(format!(
        "{} connections of 30 in use at the end, {crashes} engines had to be started again",
        row.get::<_, i64>(0)
    ));
    // Fewer, so that the check can connect.
    for name in &names[2..] {
        ctx.engines.stop(name);
    }
    ctx.create_many(50, &TaskSpec::work(5));
    ctx.settle_and_check();
}

/// F19: the volume of the tables is full; later there is room again.
pub fn data_volume_full(ctx: &mut TestContext) {
    let server = TestServer::start();
    let volume = Volume::mount(ctx.path("volume"), 48);
    let folder = volume.path().join("tables");
    std::fs::create_dir(&folder).expect("a folder");
    open_path(&ctx.path(""));
    run_command(
        "chown",
        &["--reference", &server.directory().display().to_string(), &folder.display().to_string()],
    );
    let admin = ctx.try_sql(&server.url("postgres")).expect("a connection");
    for command in [
        format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()),
        "CREATE DATABASE small TABLESPACE small".to_owned(),
    ] {
        ctx.block_on(admin.batch_execute(&command)).expect("made");
    }
    ctx.use_database(&server.url("small"));
    ctx.start(&["a", "b"]);
    ctx.produce(4000, 100, 10, TaskSpec::work(1));
    ctx.wait_until("work goes on", || ctx.finished() > 50);
    let ballast = volume.fill();
    let window = ctx.monitor_usage();
    ctx.wait_until("the producer gets an error", || {
        ctx.engines.logged("producer").contains("No space left")
    });
    ctx.sleep(Duration::from_secs(3));
    let used = window.close();
    std::fs::remove_file(ballast).expect("room");
    ctx.note(format!("{used}"));
    let history = ctx.settle_and_check();
    let failed =
        history.tasks.values().filter(|task| task.status != task_engine::TaskStatus::Stopped);
    assert_eq!(failed.count(), 0, "no task fails for the want of a disk");
    drop((admin, server));
}

/// Lets other users pass: the server is one.
fn open_path(folder: &std::path::Path) {
    run_command("chmod", &["755", &folder.display().to_string()]);
}

/// F20: the volume of the write-ahead log is full: the server panics and stays
/// down, until there is room.
pub fn wal_volume_full(ctx: &mut TestContext) {
    let server = server(&["min_wal_size=32MB", "max_wal_size=32MB"]);
    let volume = Volume::mount(ctx.path("volume"), 100);
    open_path(&ctx.path(""));
    server.stop_immediate();
    let (log, moved) = (server.directory().join("data/pg_wal"), volume.path().join("pg_wal"));
    let [log, moved] = [log, moved].map(|path| path.display().to_string());
    run_command("cp", &["-a", &log, &moved]);
    run_command("rm", &["-r", &log]);
    run_command("ln", &["-s", &moved, &log]);
    server.start_again();
    ctx.use_server(&server);
    ctx.start(&["a", "b"]);
    ctx.produce(20_000, 500, 1, TaskSpec::work(0));
    ctx.wait_until("work goes on", || ctx.finished() > 50);
    let ballast = volume.fill();
    let window = ctx.monitor_usage();
    ctx.wait_until("the server panics", || server.log().contains("PANIC"));
    server.wait_stopped();
    ctx.kill_producer();
    ctx.sleep(Duration::from_secs(2));
    let used = window.close();
    std::fs::remove_file(ballast).expect("room");
    server.start_again();
    ctx.note(format!("{used}"));
    ctx.settle_and_check();
    drop((server, volume));
}

/// F24: a session locks one table after the other in exclusive mode.
pub fn locked_tables(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    ctx.produce(400, 5, 30, TaskSpec::work(5));
    ctx.wait_until("work goes on", || ctx.finished() > 20);
    let sql = ctx.sql();
    let window = ctx.monitor_usage();
    for table in ["waiting_tasks", "claims", "ended_executions", "instances"] {
        let lock = format!("BEGIN; LOCK TABLE task_engine.{table} IN ACCESS EXCLUSIVE MODE");
        ctx.block_on(sql.batch_execute(&lock)).expect("locked");
        ctx.sleep(Duration::from_millis(if ctx.soak { 15_000 } else { 2500 }));
        ctx.block_on(sql.batch_execute("COMMIT")).expect("unlocked");
        ctx.sleep(Duration::from_millis(300));
    }
    let used = window.close();
    ctx.note(format!("{used}"));
    ctx.settle_and_check();
}
