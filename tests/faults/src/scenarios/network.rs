//! Connections that break, stall, or only seem to be there.

use std::time::Duration;

use task_engine_test_harness::{ServerOptions, TestServer};

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::harness::machine::Network;
use crate::harness::proxy::{Proxy, ProxyMode};

/// A proxy before the shared server; engines and producers go through it.
pub(super) fn behind_proxy(ctx: &mut TestContext) -> Proxy {
    let server = TestServer::shared();
    ctx.use_server(server);
    let proxy = Proxy::start(&ctx.handle(), server.port());
    ctx.database = proxy.url(&ctx.database);
    proxy
}

/// F3: the claim is committed, its answer never arrives, and the engine dies.
pub fn claim_without_answer(ctx: &mut TestContext) {
    let proxy = behind_proxy(ctx);
    let mut first = ctx.options("first");
    first.supervised = false;
    ctx.engines.start(first);
    ctx.wait_alive(&["first"]);
    ctx.create_many(2000, &TaskSpec::work(1));
    let held = "SELECT task_id FROM task_engine.held_attempts";
    let sql = ctx.sql();
    // A claim is under way at almost every moment; the answer to it is kept.
    ctx.wait_until("a claim is committed, and its answer is not there", || {
        proxy.set(ProxyMode::Open);
        ctx.sleep(Duration::from_millis(50));
        proxy.set(ProxyMode::HoldAnswers);
        ctx.sleep(Duration::from_millis(300));
        let rows = ctx.block_on(sql.query(held, &[])).expect("a list");
        let witness = ctx.witness();
        rows.iter().any(|row| !witness.attempts.contains_key(&(row.get(0), 1)))
    });
    ctx.engines.kill("first");
    proxy.set(ProxyMode::Open);
    ctx.start(&["second"]);
    let history = ctx.settle_and_check();
    assert!(history.count("InstanceLost") > 0, "it is on record as lost");
}

/// F10: the backend that listens is killed. Wake-ups work again without a restart.
pub fn listener_killed(ctx: &mut TestContext) {
    ctx.use_default_store();
    let mut options = ctx.options("a");
    options.config.poll_ms = 10_000;
    ctx.engines.start(options);
    ctx.wait_alive(&["a"]);
    let sql = ctx.sql();
    let listeners = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE 'LISTEN%'";
    let listening = || -> Option<i32> {
        let rows = ctx.block_on(sql.query(listeners, &[])).expect("a list");
        rows.first().map(|row| row.get(0))
    };
    let mut times = Vec::new();
    for _ in 0..3 {
        ctx.wait_until("an engine listens", || listening().is_some());
        let victim = listening().expect("a listener");
        ctx.block_on(sql.execute("SELECT pg_terminate_backend($1)", &[&victim])).expect("killed");
        times.push(
            ctx.wait_until("another listens", || listening().is_some_and(|pid| pid != victim)),
        );
        let before = ctx.finished();
        ctx.create_many(1, &TaskSpec::work(1));
        times.push(ctx.wait_until("it is picked up", || ctx.finished() > before));
    }
    let longest = times.into_iter().max().unwrap_or_default();
    assert!(longest < Duration::from_secs(5), "{longest:?}, and the poll is every 10 s");
    ctx.note(format!("back within {:.1} s", longest.as_secs_f64()));
    ctx.settle_and_check();
}

/// F11: packets are lost both ways, and no end of a connection arrives.
pub fn half_open(ctx: &mut TestContext) {
    let settings = vec!["listen_addresses=*".to_owned()];
    let server = TestServer::start_with(ServerOptions { settings, ..ServerOptions::default() });
    let file = server.directory().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&file).expect("rules");
    std::fs::write(&file, rules + "host all all 10.213.0.0/16 trust\n").expect("rules");
    ctx.use_server(&server);
    ctx.block_on(ctx.sql().execute("SELECT pg_reload_conf()", &[])).expect("reloaded");
    let network = Network::new();
    let mut far = ctx.options("far");
    far.wrapper = network.wrapper();
    far.config.database = far.config.database.replace("127.0.0.1", &network.gateway());
    ctx.engines.start(far);
    ctx.wait_alive(&["far"]);
    ctx.create_many(5, &TaskSpec::work(3000));
    ctx.wait_until("tasks run", || ctx.started() == 5);
    let window = ctx.monitor_usage();
    network.wire(false);
    ctx.start(&["near"]);
    ctx.produce(100, 5, 100, TaskSpec::work(5));
    let noticed_after = ctx.wait_until("the engine says that it is cut off", || {
        ctx.engines.logged("far").contains("heartbeat failed")
    });
    ctx.wait_until("others have done its work", || ctx.finished() >= 105);
    network.wire(true);
    let back = ctx.wait_until("it is back", || ctx.engines.logged("far").contains("declared lost"));
    ctx.wait_alive(&["far", "near"]);
    let used = window.close();
    assert!(noticed_after < Duration::from_secs(30), "{noticed_after:?}");
    assert!(used.cpu < 0.5, "it spins: {used}");
    ctx.note(format!(
        "it said so after {:.0} s, was back {:.1} s after it was healed; {used}",
        noticed_after.as_secs_f64(),
        back.as_secs_f64()
    ));
    ctx.create_many(20, &TaskSpec::work(5));
    ctx.settle_and_check();
}

/// F12: slow, trickling, cut, reset and stalled connections, under load.
pub fn bad_line(ctx: &mut TestContext) {
    let proxy = behind_proxy(ctx);
    ctx.start(&["a", "b"]);
    ctx.wait_alive(&["a", "b"]);
    ctx.produce(400, 4, 30, TaskSpec::work(5));
    let window = ctx.monitor_usage();
    let mut ways = vec![
        ProxyMode::Delay(Duration::from_millis(60)),
        ProxyMode::Trickle(100, Duration::from_millis(2)),
        ProxyMode::Reset,
        ProxyMode::Stall,
        ProxyMode::HoldAnswers,
    ];
    ctx.rng.shuffle(&mut ways);
    for mode in ways {
        proxy.set(mode);
        ctx.sleep(Duration::from_millis(1500));
        proxy.set(ProxyMode::Open);
        if ctx.rng.bool() {
            proxy.cut();
        }
        let bytes = ctx.rng.u64(500..20_000);
        proxy.cut_after(bytes);
        ctx.sleep(Duration::from_millis(700));
        proxy.cut_after(0);
        proxy.cut();
    }
    let used = window.close();
    ctx.note(format!("{used}"));
    ctx.settle_and_check();
}

/// F12: all current connections forward nothing, without an error. New ones work.
pub fn dead_connections(ctx: &mut TestContext) {
    let proxy = behind_proxy(ctx);
    let mut options = ctx.options("a");
    options.config.lease_ms = 30_000;
    options.config.heartbeat_ms = 1000;
    ctx.engines.start(options);
    ctx.wait_alive(&["a"]);
    ctx.create_many(50, &TaskSpec::work(20));
    ctx.wait_until("work has begun", || ctx.finished() > 5);
    let window = ctx.monitor_usage();
    proxy.abandon();
    ctx.create_many(50, &TaskSpec::work(5));
    let store = ctx.store();
    let silent = ctx.wait_until("the engine is heard of again", || {
        let rows = ctx.block_on(store.instances(Some("a"))).unwrap_or_default();
        ctx.engines.logged("a").contains("heartbeat failed")
            && rows.iter().any(|row| row.is_alive() && row.heartbeat_age.as_secs() < 3)
    });
    assert!(silent < Duration::from_secs(25), "silent for {silent:?}, and the lease is 30 s");
    let back = ctx.wait_within(Duration::from_secs(150), "all is done", || ctx.finished() >= 100);
    let used = window.close();
    ctx.note(format!(
        "a heartbeat after {:.0} s, all done after {:.0} s; {used}",
        silent.as_secs_f64(),
        (silent + back).as_secs_f64()
    ));
    ctx.settle_and_check();
}

/// F13: every backend is killed, again and again.
pub fn backends_killed(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&["a", "b"]);
    let (count, rounds) = if ctx.soak { (6000, 100) } else { (600, 10) };
    ctx.produce(count, 5, 30, TaskSpec::work(5));
    let window = ctx.monitor_usage();
    let sql = ctx.sql();
    let mut killed = 0;
    for round in 0..rounds {
        ctx.sleep_random(200..900);
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'task-engine-fault'";
        let row = ctx.block_on(sql.query_one(kill, &[])).expect("backends are killed");
        killed += row.get::<_, i64>(0);
        if round == rounds / 2 {
            ctx.snapshot();
        }
    }
    let used = window.close();
    ctx.note(format!("{killed} backends killed; {used}"));
    ctx.settle_and_check();
}
