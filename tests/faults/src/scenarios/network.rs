//! Connections that break, stall, or only seem to be there.

use std::time::Duration;

use task_engine_conformance::{Plan, TestServer};

use crate::harness::arena::Arena;
use crate::harness::machine::Network;
use crate::harness::proxy::{Proxy, Way};
use crate::orders::Duty;

/// A proxy before the shared server; engines and producers go through it.
fn behind_proxy(arena: &mut Arena) -> Proxy {
    let server = TestServer::shared();
    arena.on_server(server);
    let proxy = Proxy::start(&arena.handle(), server.port());
    arena.database = proxy.url(&arena.database);
    proxy
}

/// F3: the claim is committed, its answer never arrives, and the engine dies.
pub fn claim_without_answer(arena: &mut Arena) {
    let proxy = behind_proxy(arena);
    let mut first = arena.plan("first");
    first.supervised = false;
    arena.fleet.start(first);
    arena.until_alive(&["first"]);
    arena.create_many(2000, &Duty::work(1));
    let held = "SELECT task_id FROM task_engine.held_attempts";
    let sql = arena.sql();
    // A claim is under way at almost every moment; the answer to it is kept.
    arena.until("a claim is committed, and its answer is not there", || {
        proxy.set(Way::Open);
        arena.endure(Duration::from_millis(50));
        proxy.set(Way::HoldAnswers);
        arena.endure(Duration::from_millis(300));
        let rows = arena.wait(sql.query(held, &[])).expect("a list");
        let witness = arena.witness();
        rows.iter().any(|row| !witness.seen.contains_key(&(row.get(0), 1)))
    });
    arena.fleet.kill("first");
    proxy.set(Way::Open);
    arena.start(&["second"]);
    let history = arena.account();
    assert!(history.count("InstanceLost") > 0, "it is on record as lost");
}

/// F10: the backend that listens is killed; wake-ups come back by themselves.
pub fn listener_killed(arena: &mut Arena) {
    arena.on_usual_store();
    let mut plan = arena.plan("a");
    plan.order.poll_ms = 10_000;
    arena.fleet.start(plan);
    arena.until_alive(&["a"]);
    let sql = arena.sql();
    let listeners = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE 'LISTEN%'";
    let listening = || -> Option<i32> {
        let rows = arena.wait(sql.query(listeners, &[])).expect("a list");
        rows.first().map(|row| row.get(0))
    };
    let mut times = Vec::new();
    for _ in 0..3 {
        arena.until("somebody listens", || listening().is_some());
        let victim = listening().expect("a listener");
        arena.wait(sql.execute("SELECT pg_terminate_backend($1)", &[&victim])).expect("killed");
        times.push(arena.until("another listens", || listening().is_some_and(|pid| pid != victim)));
        let before = arena.done();
        arena.create_many(1, &Duty::work(1));
        times.push(arena.until("it is picked up", || arena.done() > before));
    }
    let longest = times.into_iter().max().unwrap_or_default();
    assert!(longest < Duration::from_secs(5), "{longest:?}, and the poll is every 10 s");
    arena.note(format!("back within {:.1} s", longest.as_secs_f64()));
    arena.account();
}

/// F11: packets are lost both ways, and no end of a connection arrives.
pub fn half_open(arena: &mut Arena) {
    let settings = vec!["listen_addresses=*".to_owned()];
    let server = TestServer::start_as(Plan { settings, ..Plan::default() });
    let file = server.directory().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&file).expect("rules");
    std::fs::write(&file, rules + "host all all 10.213.0.0/16 trust\n").expect("rules");
    arena.on_server(&server);
    arena.wait(arena.sql().execute("SELECT pg_reload_conf()", &[])).expect("reloaded");
    let network = Network::new();
    let mut far = arena.plan("far");
    far.around = network.around();
    far.order.database = far.order.database.replace("127.0.0.1", &network.gateway());
    arena.fleet.start(far);
    arena.until_alive(&["far"]);
    arena.create_many(5, &Duty::work(3000));
    arena.until("tasks run", || arena.begun() == 5);
    let window = arena.window();
    network.wire(false);
    arena.start(&["near"]);
    arena.produce(100, 5, 100, Duty::work(5));
    let told = arena.until("the engine says that it is cut off", || {
        arena.fleet.logged("far").contains("no heartbeat")
    });
    arena.until("others have done its work", || arena.done() >= 105);
    network.wire(true);
    let back = arena.until("it is back", || arena.fleet.logged("far").contains("declared lost"));
    arena.until_alive(&["far", "near"]);
    let used = window.close();
    assert!(told < Duration::from_secs(30), "{told:?}");
    assert!(used.cpu < 0.5, "it spins: {used}");
    arena.note(format!(
        "it said so after {:.0} s, was back {:.1} s after it was healed; {used}",
        told.as_secs_f64(),
        back.as_secs_f64()
    ));
    arena.create_many(20, &Duty::work(5));
    arena.account();
}

/// F12: slow, trickling, cut, reset and stalled connections, under load.
pub fn bad_line(arena: &mut Arena) {
    let proxy = behind_proxy(arena);
    arena.start(&["a", "b"]);
    arena.until_alive(&["a", "b"]);
    arena.produce(400, 4, 30, Duty::work(5));
    let window = arena.window();
    let mut ways = vec![
        Way::Delay(Duration::from_millis(60)),
        Way::Trickle(100, Duration::from_millis(2)),
        Way::Reset,
        Way::Stall,
        Way::HoldAnswers,
    ];
    arena.chance.shuffle(&mut ways);
    for way in ways {
        proxy.set(way);
        arena.endure(Duration::from_millis(1500));
        proxy.set(Way::Open);
        if arena.chance.bool() {
            proxy.cut();
        }
        let bytes = arena.chance.u64(500..20_000);
        proxy.cut_after(bytes);
        arena.endure(Duration::from_millis(700));
        proxy.cut_after(0);
        proxy.cut();
    }
    let used = window.close();
    arena.note(format!("{used}"));
    arena.account();
}

/// F12: all connections that are there lead nowhere any more, though nobody
/// says so; new ones work.
pub fn dead_connections(arena: &mut Arena) {
    let proxy = behind_proxy(arena);
    let mut plan = arena.plan("a");
    plan.order.lease_ms = 30_000;
    plan.order.heartbeat_ms = 1000;
    arena.fleet.start(plan);
    arena.until_alive(&["a"]);
    arena.create_many(50, &Duty::work(20));
    arena.until("work has begun", || arena.done() > 5);
    let window = arena.window();
    proxy.abandon();
    arena.create_many(50, &Duty::work(5));
    let store = arena.store();
    let silent = arena.until("the engine is heard of again", || {
        let rows = arena.wait(store.instances(Some("a"))).unwrap_or_default();
        arena.fleet.logged("a").contains("no heartbeat")
            && rows.iter().any(|row| row.is_alive() && row.heartbeat_age.as_secs() < 3)
    });
    assert!(silent < Duration::from_secs(25), "silent for {silent:?}, and the lease is 30 s");
    let back = arena.until_within(Duration::from_secs(150), "all is done", || arena.done() >= 100);
    let used = window.close();
    arena.note(format!(
        "a heartbeat after {:.0} s, all done after {:.0} s; {used}",
        silent.as_secs_f64(),
        (silent + back).as_secs_f64()
    ));
    arena.account();
}

/// F13: every backend is killed, again and again.
pub fn backends_killed(arena: &mut Arena) {
    arena.on_usual_store();
    arena.start(&["a", "b"]);
    let (count, rounds) = if arena.soak { (6000, 100) } else { (600, 10) };
    arena.produce(count, 5, 30, Duty::work(5));
    let window = arena.window();
    let sql = arena.sql();
    let mut killed = 0;
    for round in 0..rounds {
        arena.endure_some(200..900);
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'task-engine-fault'";
        let row = arena.wait(sql.query_one(kill, &[])).expect("backends are killed");
        killed += row.get::<_, i64>(0);
        if round == rounds / 2 {
            arena.remember();
        }
    }
    let used = window.close();
    arena.note(format!("{killed} backends killed; {used}"));
    arena.account();
}
