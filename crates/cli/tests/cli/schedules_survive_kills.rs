//! Engines are killed at random while schedules fire: every slot fires once, and
//! has one task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Store, TaskId};
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_core::task::TaskListQuery;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

#[test]
fn on_postgresql_with_four_engines() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    let sandbox = sandbox_on(&url);
    kill_at_random(&sandbox, 4, &runtime, || {
        Arc::new(runtime.block_on(PgStore::connect(&url)).unwrap())
    });
}

#[test]
fn on_sqlite_with_three_engines() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sandbox = sandbox();
    kill_at_random(&sandbox, 3, &runtime, || {
        Arc::new(SqliteStore::open(sandbox.path("task-engine.db")).unwrap())
    });
}

const STEP: SignedDuration = SignedDuration::from_millis(200);
/// Slots of the fast schedule that are fired before the test ends. Fewer than
/// are kept, so that each can be looked at.
const SLOTS: i64 = 60;

fn kill_at_random(
    sandbox: &Sandbox,
    engines: usize,
    runtime: &tokio::runtime::Runtime,
    open: impl Fn() -> Arc<dyn Store>,
) {
    let missed = ["--missed", "all:1000"];
    let add = |name: &str, rule: &[&str]| {
        let what = ["schedules", "add", name, "WaitingTask", r#"{"waiting_time": 0}"#];
        sandbox.ok(&[&what, rule, &missed].concat());
    };
    add("fast", &["--every", "200ms"]);
    add("second", &["--cron", "* * * * * *"]);
    let start = |n: usize| {
        let name = format!("engine-{n}");
        let settings = ["--recovery", "auto", "--heartbeat", "200ms", "--dead-after", "1s"];
        sandbox.start(&[&["start", "--quiet", "--instance", &name], &settings[..]].concat())
    };
    let mut running: Vec<RunningProgram> = (0..engines).map(start).collect();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let store = open();
    let row = |name: &str| -> ScheduleRow {
        runtime.block_on(store.schedule(name)).unwrap().0.expect("a schedule")
    };
    let passed = |row: &ScheduleRow| {
        let last = row.last_slot.unwrap_or(row.state.anchor);
        last.duration_since(row.state.anchor).as_millis() / STEP.as_millis()
    };
    let begun = Instant::now();
    let mut killed = 0;
    while passed(&row("fast")) < i128::from(SLOTS) {
        assert!(begun.elapsed() < Duration::from_secs(120), "slots do not fire any more");
        std::thread::sleep(Duration::from_millis(chance.u64(50..500)));
        let victim = chance.usize(0..engines);
        running[victim].signal("KILL");
        killed += 1;
        let next = start(victim);
        std::mem::replace(&mut running[victim], next).end();
    }
    for name in ["fast", "second"] {
        sandbox.ok(&["schedules", "pause", name]);
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{killed} engines killed in {seconds:.1} s");
    assert!(killed > 5, "the test is too short to kill an engine");

    // Every slot of the schedules, from the first to the last.
    let tasks = tasks(runtime, &*store);
    for (name, step) in [("fast", STEP), ("second", SignedDuration::from_secs(1))] {
        let row = row(name);
        let mut fired = runtime.block_on(store.fired_slots(row.version.id, 1000)).unwrap();
        fired.reverse();
        let first = fired[0].slot;
        let born = if name == "fast" { row.state.anchor + step } else { first };
        assert_eq!(first, born, "{name}: the first one fired");
        let slots: Vec<Timestamp> = fired.iter().map(|slot| slot.slot).collect();
        let count = i32::try_from(slots.len()).unwrap();
        let expected: Vec<Timestamp> = (0..count).map(|n| first + step * n).collect();
        assert_eq!(slots, expected, "{name}: none is left out, none is there twice");
        assert_eq!(Some(slots[slots.len() - 1]), row.last_slot);
        // One task each, and no task but those.
        let ours: BTreeMap<Timestamp, TaskId> = tasks
            .iter()
            .filter(|(from, ..)| from == name)
            .map(|(_, slot, id)| (*slot, *id))
            .collect();
        let number = tasks.iter().filter(|(from, ..)| from == name).count();
        assert_eq!(number, slots.len(), "{name}: one task a slot");
        for slot in &fired {
            assert_eq!(ours.get(&slot.slot), Some(&slot.task_id), "{name}: {}", slot.slot);
        }
    }
    wait_until("what the dead have left is recovered", || {
        let filter = TaskListQuery { limit: 10_000, ..TaskListQuery::default() };
        let rows = runtime.block_on(store.tasks(&filter)).unwrap();
        let open = |status: &str| rows.iter().any(|row| row.status.as_str() == status);
        !open("running")
    });
    assert_eq!(runtime.block_on(store.verify()).unwrap(), []);
    drop(running);
}

/// The tasks that schedules have created: schedule, slot, task.
fn tasks(runtime: &tokio::runtime::Runtime, store: &dyn Store) -> Vec<(String, Timestamp, TaskId)> {
    let filter = TaskListQuery { limit: 10_000, ..TaskListQuery::default() };
    let rows = runtime.block_on(store.tasks(&filter)).unwrap();
    rows.iter()
        .map(|row| {
            let task = runtime.block_on(store.task(row.id)).unwrap().expect("a task");
            let context: serde_json::Value = task.context.decode().unwrap();
            let word = |key: &str| context[key].as_str().expect("a word").to_owned();
            (word("schedule"), word("slot").parse().unwrap(), row.id)
        })
        .collect()
}

#[test]
fn skipped_slots_and_manual_runs_are_shown() {
    let sandbox = sandbox();
    let parameters = r#"{"waiting_time": 0}"#;
    sandbox.ok(&["schedules", "add", "tick", "WaitingTask", parameters, "--every", "100ms"]);
    sandbox.ok(&["schedule", "run", "tick"]);
    let shown = sandbox.ok(&["schedules", "show", "tick"]);
    assert!(shown.contains("manual run") && shown.contains("by terminal:"), "{shown}");
    let details = || -> serde_json::Value {
        serde_json::from_str(&sandbox.ok(&["schedules", "show", "tick", "--json"])).expect("JSON")
    };
    // Slots pass before there is an engine; the last of them is made good.
    let first: Timestamp = details()["next_at"].as_str().expect("a time").parse().expect("a time");
    let third = first + SignedDuration::from_millis(200);
    wait_until("two slots are missed", || Timestamp::now() > third);
    let engine = sandbox.start(&["start"]);
    wait_until("it fires", || !details()["last_slot"].is_null());
    sandbox.ok(&["schedules", "pause", "tick"]);
    let events = details()["events"].clone();
    let kinds: Vec<_> = events
        .as_array()
        .expect("a list")
        .iter()
        .rev()
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(kinds[..2], ["manual", "skipped_missed"], "{events}");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}
