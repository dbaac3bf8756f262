//! Clocks that are wrong, and time that passes unseen.

use std::path::Path;
use std::time::Duration;

use task_engine_test_harness::{ServerOptions, TestServer};

use crate::commands::TaskSpec;
use crate::harness::context::TestContext;
use crate::harness::machine::{ControlGroup, faketime_library, run_command};
use crate::registry::StoreKind;

/// F5: a whole machine with two engines freezes, and continues later.
pub fn freeze(ctx: &mut TestContext) {
    ctx.use_default_store();
    let group = ControlGroup::new("freezer");
    for name in ["cold", "colder"] {
        let mut options = ctx.options(name);
        options.wrapper = group.wrapper();
        ctx.engines.start(options);
    }
    ctx.wait_alive(&["cold", "colder"]);
    ctx.create_many(10, &TaskSpec::work(1000));
    ctx.wait_until("tasks run", || ctx.started() == 10);
    group.freeze();
    ctx.wait_until("all is still", || group.is_frozen());
    ctx.start(&["warm"]);
    ctx.wait_until("others have done it", || ctx.finished() >= 10);
    group.thaw();
    ctx.wait_until("they know", || {
        ["cold", "colder"].iter().all(|name| ctx.engines.logged(name).contains("declared lost"))
    });
    ctx.wait_alive(&["cold", "colder", "warm"]);
    ctx.create_many(30, &TaskSpec::work(5));
    let history = ctx.settle_and_check();
    assert_eq!(history.count("InstanceLost"), 10);
    for name in ["cold", "colder"] {
        let lives = history.instances.values().filter(|life| life.name == name).count();
        assert_eq!(lives, 2, "a new life, with a new id");
        ctx.engines.forget(name);
    }
}

/// F6: the monotonic clock of one engine is ten days ahead.
pub fn other_boot_time(ctx: &mut TestContext) {
    ctx.use_default_store();
    let days = 864_000.to_string();
    let mut odd = ctx.options("odd");
    odd.wrapper =
        ["unshare", "-T", "--boottime", &days, "--monotonic", &days].map(str::to_owned).to_vec();
    // Its processes are in another time namespace and write other times, so it gets its
    // own tasks.
    odd.config.witness = ctx.path("witness-of-odd");
    ctx.engines.start(odd);
    ctx.wait_alive(&["odd"]);
    ctx.create_many(50, &TaskSpec::work(5));
    ctx.settle();
    ctx.engines.stop("odd");
    shift_times(&ctx.path("witness-of-odd"), &ctx.path("witness"), -864_000_000_000);
    ctx.start(&["even"]);
    ctx.create_many(50, &TaskSpec::work(5));
    ctx.settle_and_check();
}

fn shift_times(from: &Path, to: &Path, by: i64) {
    let text = std::fs::read_to_string(from).expect("lines");
    let mut shifted = String::new();
    for line in text.lines() {
        let (words, time) = line.rsplit_once(' ').expect("words");
        let time: i64 = time.parse().expect("a time");
        assert!(time + by / 2 > crate::witness::now_us(), "its clock is ahead: {time}");
        shifted += &format!("{words} {}\n", time + by);
    }
    std::fs::write(to, shifted).expect("a file");
}

fn skewed(seconds: &str) -> Vec<(String, String)> {
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        set("LD_PRELOAD", &faketime_library()),
        set("FAKETIME", seconds),
        set("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]
}

/// F7: engines whose clocks are an hour fast and an hour slow, with a schedule.
pub fn skewed_engines(ctx: &mut TestContext) {
    ctx.use_default_store();
    for (name, skew) in [("right", None), ("fast", Some("+3600s")), ("slow", Some("-3600s"))] {
        let mut options = ctx.options(name);
        options.config.schedule = Some("every second".into());
        options.environment = skew.map(skewed).unwrap_or_default();
        ctx.engines.start(options);
    }
    ctx.wait_alive(&["right", "fast", "slow"]);
    ctx.create_many(200, &TaskSpec::work(20));
    ctx.sleep(Duration::from_secs(4));
    let store = ctx.store();
    ctx.block_on(store.remove_schedule("every second")).expect("removed");
    let history = ctx.settle_and_check();
    let early = history
        .executions()
        .filter(|(id, e)| e.started_at.is_some_and(|began| began < history.tasks[id].scheduled_at));
    assert_eq!(early.count(), 0, "nothing begins before its time");
    assert_eq!(history.count("InstanceLost"), 0, "no engine is declared lost because of a clock");
    slots_are_single(ctx, &history, 2..10);
}

/// The environment of a process whose clock is wrong by the offset in a file.
pub(super) fn faked_clock(file: &Path) -> [(String, String); 4] {
    [
        ("LD_PRELOAD".to_owned(), faketime_library()),
        ("FAKETIME_TIMESTAMP_FILE".to_owned(), file.display().to_string()),
        ("FAKETIME_NO_CACHE".to_owned(), "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
    ]
}

/// F8: the clock of the database steps, forward and back.
pub fn database_clock_steps(ctx: &mut TestContext) {
    let file = ctx.path("offset");
    run_command("chmod", &["755", &ctx.path("").display().to_string()]);
    let set = |offset: &str| std::fs::write(&file, offset).expect("a file");
    set("+0s");
    let faked = faked_clock(&file);
    let mut options = ctx.options("a");
    if ctx.kind == StoreKind::Postgres {
        let environment = faked.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let server =
            TestServer::start_with(ServerOptions { environment, ..ServerOptions::default() });
        ctx.use_server(&server);
        options.config.database.clone_from(&ctx.database);
        steps(ctx, &options, &set);
    } else {
        // The database's clock is that of the process that writes to the file.
        ctx.use_default_store();
        options.environment = faked.to_vec();
        steps(ctx, &options, &set);
    }
}

fn steps(
    ctx: &mut TestContext,
    options: &crate::harness::supervisor::EngineProcessOptions,
    set: &dyn Fn(&str),
) {
    for name in ["a", "b"] {
        let mut options = options.clone();
        name.clone_into(&mut options.config.instance);
        options.config.lease_ms = 5000;
        options.config.schedule = Some("every second".into());
        ctx.engines.start(options);
    }
    ctx.wait_alive(&["a", "b"]);
    for offset in ["+0s", "+120s", "-300s", "+130s"] {
        set(offset);
        let before = ctx.finished();
        // Due by every clock.
        ctx.produce(20, 5, 5, TaskSpec::work(5));
        if offset != "-300s" {
            // After a step back, earlier tasks are due in the future.
            ctx.wait_until(format_args!("work goes on at {offset}"), || {
                ctx.finished() >= before + 20
            });
        }
    }
    let store = ctx.store();
    ctx.wait_until("a slot has fired", || {
        let (row, _) = ctx.block_on(store.schedule("every second")).expect("an answer");
        row.is_some_and(|row| row.last_slot.is_some())
    });
    ctx.block_on(store.remove_schedule("every second")).expect("removed");
    let history = ctx.settle_and_check();
    slots_are_single(ctx, &history, 1..400);
}

/// I10, from the tasks: the context of a task of a schedule has its slot.
fn slots_are_single(
    ctx: &mut TestContext,
    history: &crate::history::History,
    range: std::ops::Range<usize>,
) {
    let mut slots = std::collections::BTreeMap::new();
    for task in history.tasks.values() {
        let context: serde_json::Value = task.context.decode().expect("an object");
        if let Some(slot) = context.get("slot") {
            *slots.entry(slot.to_string()).or_insert(0) += 1;
        }
    }
    let twice: Vec<_> = slots.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "I10: slots that fired twice: {twice:?}");
    assert!(range.contains(&slots.len()), "{} slots fired, not {range:?}", slots.len());
    ctx.note(format!("{} slots, each fired once", slots.len()));
}

/// F35: five engines with the same schedule, of which one after the other stops.
pub fn many_schedulers(ctx: &mut TestContext) {
    use rustix::process::Signal;
    ctx.use_default_store();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let mut options = ctx.options(name);
        options.config.schedule = Some("every second".into());
        ctx.engines.start(options);
    }
    ctx.wait_alive(&names);
    for name in &names[..4] {
        ctx.engines.signal(name, Signal::STOP);
        ctx.sleep_random(500..2200);
        ctx.engines.signal(name, Signal::CONT);
    }
    let store = ctx.store();
    ctx.block_on(store.remove_schedule("every second")).expect("removed");
    let history = ctx.settle_and_check();
    slots_are_single(ctx, &history, 2..20);
}
