//! Clocks that are wrong, and time that passes unseen.

use std::path::Path;
use std::time::Duration;

use task_engine_conformance::{Plan, TestServer};

use crate::harness::arena::Arena;
use crate::harness::machine::{Group, faketime_library, must};
use crate::orders::Duty;
use crate::registry::Kind;

/// F5: a whole machine freezes, with two engines on it, and goes on later.
pub fn freeze(arena: &mut Arena) {
    arena.on_usual_store();
    let group = Group::new("freezer");
    for name in ["cold", "colder"] {
        let mut plan = arena.plan(name);
        plan.around = group.around();
        arena.fleet.start(plan);
    }
    arena.until_alive(&["cold", "colder"]);
    arena.create_many(10, &Duty::work(1000));
    arena.until("tasks run", || arena.begun() == 10);
    group.freeze();
    arena.until("all is still", || group.is_frozen());
    arena.start(&["warm"]);
    arena.until("others have done it", || arena.done() >= 10);
    group.thaw();
    arena.until("they know", || {
        ["cold", "colder"].iter().all(|name| arena.fleet.logged(name).contains("declared lost"))
    });
    arena.until_alive(&["cold", "colder", "warm"]);
    arena.create_many(30, &Duty::work(5));
    let history = arena.account();
    assert_eq!(history.count("InstanceLost"), 10);
    for name in ["cold", "colder"] {
        let lives = history.instances.values().filter(|life| life.name == name).count();
        assert_eq!(lives, 2, "a new life, with a new id");
        arena.fleet.forget(name);
    }
}

/// F6: an engine whose steady clocks are ten days ahead of the others'.
pub fn other_boot_time(arena: &mut Arena) {
    arena.on_usual_store();
    let days = 864_000.to_string();
    let mut odd = arena.plan("odd");
    odd.around =
        ["unshare", "-T", "--boottime", &days, "--monotonic", &days].map(str::to_owned).to_vec();
    // Its processes are in another time namespace: what it writes has another
    // time, so it is given tasks of its own to be seen by.
    odd.order.witness = arena.path("witness-of-odd");
    arena.fleet.start(odd);
    arena.until_alive(&["odd"]);
    arena.create_many(50, &Duty::work(5));
    arena.settle();
    arena.fleet.stop("odd");
    shift_times(&arena.path("witness-of-odd"), &arena.path("witness"), -864_000_000_000);
    arena.start(&["even"]);
    arena.create_many(50, &Duty::work(5));
    arena.account();
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
pub fn skewed_engines(arena: &mut Arena) {
    arena.on_usual_store();
    for (name, skew) in [("right", None), ("fast", Some("+3600s")), ("slow", Some("-3600s"))] {
        let mut plan = arena.plan(name);
        plan.order.schedule = Some("every second".into());
        plan.environment = skew.map(skewed).unwrap_or_default();
        arena.fleet.start(plan);
    }
    arena.until_alive(&["right", "fast", "slow"]);
    arena.create_many(200, &Duty::work(20));
    arena.endure(Duration::from_secs(4));
    let store = arena.store();
    arena.wait(store.remove_schedule("every second")).expect("removed");
    let history = arena.account();
    let early = history
        .executions()
        .filter(|(id, e)| e.started_at.is_some_and(|began| began < history.tasks[id].scheduled_at));
    assert_eq!(early.count(), 0, "nothing begins before its time");
    assert_eq!(history.count("InstanceLost"), 0, "nobody is given up for the sake of a clock");
    slots_are_single(arena, &history, 2..10);
}

/// F8: the clock of the database steps, forward and back.
pub fn database_clock_steps(arena: &mut Arena) {
    let file = arena.path("offset");
    must("chmod", &["755", &arena.path("").display().to_string()]);
    let set = |offset: &str| std::fs::write(&file, offset).expect("a file");
    set("+0s");
    let faked = [
        ("LD_PRELOAD".to_owned(), faketime_library()),
        ("FAKETIME_TIMESTAMP_FILE".to_owned(), file.display().to_string()),
        ("FAKETIME_NO_CACHE".to_owned(), "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
    ];
    let mut plan = arena.plan("a");
    if arena.kind == Kind::Postgres {
        let environment = faked.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let server = TestServer::start_as(Plan { environment, ..Plan::default() });
        arena.on_server(&server);
        plan.order.database.clone_from(&arena.database);
        steps(arena, &plan, &set);
    } else {
        // Here the database's clock is that of whoever writes to the file.
        arena.on_usual_store();
        plan.environment = faked.to_vec();
        steps(arena, &plan, &set);
    }
}

fn steps(arena: &mut Arena, plan: &crate::harness::fleet::EnginePlan, set: &dyn Fn(&str)) {
    for name in ["a", "b"] {
        let mut plan = plan.clone();
        name.clone_into(&mut plan.order.instance);
        plan.order.lease_ms = 5000;
        plan.order.schedule = Some("every second".into());
        arena.fleet.start(plan);
    }
    arena.until_alive(&["a", "b"]);
    for offset in ["+0s", "+120s", "-300s", "+130s"] {
        set(offset);
        let before = arena.done();
        // Due by whatever clock it is now.
        arena.produce(20, 5, 5, Duty::work(5));
        if offset != "-300s" {
            // After a step back, what was created before is due in the future.
            arena.until(format_args!("work goes on at {offset}"), || arena.done() >= before + 20);
        }
    }
    let store = arena.store();
    arena.until("a slot has fired", || {
        let (row, _) = arena.wait(store.schedule("every second")).expect("an answer");
        row.is_some_and(|row| row.last_slot.is_some())
    });
    arena.wait(store.remove_schedule("every second")).expect("removed");
    let history = arena.account();
    slots_are_single(arena, &history, 1..400);
}

/// I10, from the tasks: those of a schedule say which slot they are for.
fn slots_are_single(
    arena: &mut Arena,
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
    arena.note(format!("{} slots, each fired once", slots.len()));
}

/// F35: five engines with the same schedule, of which one after the other stops.
pub fn many_schedulers(arena: &mut Arena) {
    use rustix::process::Signal;
    arena.on_usual_store();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let mut plan = arena.plan(name);
        plan.order.schedule = Some("every second".into());
        arena.fleet.start(plan);
    }
    arena.until_alive(&names);
    for name in &names[..4] {
        arena.fleet.signal(name, Signal::STOP);
        arena.endure_some(500..2200);
        arena.fleet.signal(name, Signal::CONT);
    }
    let store = arena.store();
    arena.wait(store.remove_schedule("every second")).expect("removed");
    let history = arena.account();
    slots_are_single(arena, &history, 2..20);
}
