//! Tasks with limits: engines, connections, clocks and servers fail meanwhile.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use task_engine_test_harness::{ServerOptions, TestPooler, TestServer};

use super::clocks::faked_clock;
use super::network::behind_proxy;
use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::harness::machine::run_command;
use crate::harness::proxy::ProxyMode;
use crate::limits::limited_task;
use crate::registry::StoreKind;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How many tasks have limits.
fn count(ctx: &TestContext) -> usize {
    if ctx.soak { 1500 } else { 240 }
}

fn produce(ctx: &mut TestContext) {
    let count = count(ctx);
    ctx.produce(count, 12, 20, TaskSpec::work(20));
    ctx.wait_until("work has begun", || ctx.finished() > 10);
}

/// Notes how many attempts were witnessed, and checks all promises.
fn finish(ctx: &mut TestContext) {
    ctx.settle_and_check();
    let attempts = ctx.started();
    ctx.note(format!("{attempts} attempts with limits"));
}

/// F43: engines are killed, or suspended for longer than their lease, at random.
pub fn limited_kill_storm(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.limit_tasks();
    ctx.start(&NAMES);
    produce(ctx);
    let count = count(ctx);
    let (mut killed, mut suspended) = (0, 0);
    let mut asleep: Option<(&str, Instant)> = None;
    while ctx.finished() < count * 4 / 5 || killed == 0 || suspended == 0 {
        ctx.sleep_random(50..400);
        let victim = *ctx.rng.choice(&NAMES).expect("three names");
        if let Some((name, until)) = asleep {
            if until < Instant::now() {
                ctx.engines.signal(name, Signal::CONT);
                asleep = None;
            }
        } else if ctx.rng.u8(..3) == 0 && ctx.engines.signal(victim, Signal::STOP) {
            let pause = Duration::from_millis(ctx.rng.u64(200..3500));
            asleep = Some((victim, Instant::now() + pause));
            suspended += 1;
        }
        let is_asleep = asleep.is_some_and(|(name, _)| name == victim);
        if !is_asleep && ctx.rng.bool() {
            killed += u32::from(ctx.engines.kill(victim));
        }
    }
    if let Some((name, _)) = asleep {
        ctx.engines.signal(name, Signal::CONT);
    }
    ctx.note(format!("{killed} engines killed, {suspended} suspended"));
    finish(ctx);
}

/// F44: connections are slow, cut, reset, stalled and killed.
pub fn limited_bad_line(ctx: &mut TestContext) {
    let proxy = behind_proxy(ctx);
    ctx.limit_tasks();
    ctx.start(&NAMES);
    produce(ctx);
    let mut ways = vec![
        ProxyMode::Delay(Duration::from_millis(30)),
        ProxyMode::Reset,
        ProxyMode::Stall,
        ProxyMode::HoldAnswers,
        ProxyMode::HoldAnswers,
    ];
    ctx.rng.shuffle(&mut ways);
    for mode in ways {
        proxy.set(mode);
        ctx.sleep_random(200..1200);
        proxy.set(ProxyMode::Open);
        if ctx.rng.bool() {
            proxy.cut();
        }
        ctx.sleep_random(100..500);
    }
    finish(ctx);
}

/// F44: the server crashes and starts again.
pub fn limited_crash(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    ctx.limit_tasks();
    ctx.start(&NAMES[..2]);
    produce(ctx);
    let crashes = if ctx.soak { 8 } else { 2 };
    for crash in 1..=crashes {
        let done = count(ctx) * crash / (crashes + 2);
        ctx.wait_until("work goes on", || ctx.finished() >= done);
        if ctx.rng.bool() {
            server.stop_immediate();
        } else {
            server.kill();
        }
        ctx.sleep_random(0..800);
        server.start_again();
    }
    ctx.note(format!("{crashes} crashes"));
    finish(ctx);
}

/// F45: all connections use a pooler in transaction mode, and engines are killed.
pub fn limited_pooler(ctx: &mut TestContext) {
    let server = TestServer::start();
    ctx.use_server(&server);
    ctx.limit_tasks();
    let pooler = TestPooler::start(&server, "transaction", 2);
    ctx.database = pooler.through(&ctx.database);
    ctx.start(&NAMES[..2]);
    produce(ctx);
    let done = count(ctx) / 3;
    ctx.wait_until("work goes on", || ctx.finished() > done);
    ctx.engines.kill("a");
    finish(ctx);
    drop(pooler);
}

/// F45: the clock of an engine is wrong and steps, that of another one is right.
pub fn limited_clock_steps(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.limit_tasks();
    let file = ctx.path("offset");
    let set = |offset: &str| std::fs::write(&file, offset).expect("a file");
    set("+0s");
    let mut wrong = ctx.options("wrong");
    wrong.environment = faked_clock(&file).to_vec();
    ctx.engines.start(wrong);
    ctx.start(&["right"]);
    ctx.wait_alive(&["right", "wrong"]);
    produce(ctx);
    for (step, offset) in ["+120s", "-300s", "+3600s", "+0s"].into_iter().enumerate() {
        set(offset);
        let done = count(ctx) * (step + 1) / 6;
        ctx.wait_until(format_args!("work goes on at {offset}"), || ctx.finished() >= done);
    }
    finish(ctx);
}

/// F47: the clock of the database is set back. Keys with a rate do not wait for the time before.
pub fn limited_clock_set_back(ctx: &mut TestContext) {
    const TASKS: usize = 60;
    let file = ctx.path("offset");
    run_command("chmod", &["755", &ctx.path("").display().to_string()]);
    let set = |offset: &str| std::fs::write(&file, offset).expect("a file");
    set("+420s");
    let faked = faked_clock(&file);
    let server = (ctx.kind == StoreKind::Postgres).then(|| {
        let environment = faked.iter().map(|(name, value)| format!("{name}={value}")).collect();
        TestServer::start_with(ServerOptions { environment, ..ServerOptions::default() })
    });
    // The clock of a file is that of the process that writes to it.
    let environment = if server.is_none() { faked.to_vec() } else { Vec::new() };
    match &server {
        Some(server) => ctx.use_server(server),
        None => ctx.use_default_store(),
    };
    ctx.limit_tasks();
    for name in &NAMES[..2] {
        let mut options = ctx.options(name);
        options.config.lease_ms = 5000;
        options.environment.clone_from(&environment);
        ctx.engines.start(options);
    }
    ctx.wait_alive(&NAMES[..2]);
    // Due by every clock, so that the order of tasks is the same by each.
    let due = jiff::Timestamp::now() - Duration::from_secs(86_400);
    let tasks: Vec<_> =
        (0..TASKS).map(|number| limited_task(number, &TaskSpec::work(5)).at(due)).collect();
    for offset in ["+420s", "+300s", "+0s"] {
        set(offset);
        ctx.create(&tasks);
        // All of them: after a step back, a retry of the time before is due in the future.
        ctx.settle();
    }
    finish(ctx);
}
