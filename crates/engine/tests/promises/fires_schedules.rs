//! Schedules fire on time, once, and as declared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use task_engine::core::schedule::row::{FiredSlot, ScheduleRow, ScheduleState, ScheduleWrite};
use task_engine::postgres::PgStore;
use task_engine::samples::handle_samples;
use task_engine::store::schedules::Schedules;
use task_engine::{
    Context, Engine, EngineError, Failure, Json, Missed, Overlap, Schedule, Task, TaskEngine,
    TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};

use crate::statements::StatementCounter;
use crate::store::{Fresh, TIMEOUT, on_every_store, start, task};

on_every_store! {
    slot_starts_on_time
    changed_declaration_replaces_schedule
    invalid_declaration_stops_start
    missed_slots_follow_policy
    new_schedule_is_noticed_at_once
    broken_schedule_does_not_delay_others
    waiting_slot_fires_after_end
    many_engines_fire_each_slot_once
    stopped_engine_fires_nothing
}

#[derive(Serialize, Deserialize)]
struct Tick {}

impl Task for Tick {
    const CLASS: &'static str = "tick";
}

async fn tick(_: Tick, _: Context<()>) -> Result<(), Failure> {
    Ok(())
}

const OFTEN: Duration = Duration::from_millis(200);

/// However busy the machine is, no slot is left out.
fn often(name: &str) -> Schedule {
    Schedule::every(name, OFTEN).task(&Tick {}).missed(Missed::All(100))
}

fn daily(name: &str) -> Schedule {
    Schedule::cron(name, "0 3 * * *").time_zone("Europe/Paris").task(&Tick {})
}

async fn row(fresh: &Fresh, name: &str) -> ScheduleRow {
    fresh.store.schedule(name).await.unwrap().0.expect("the schedule is there")
}

async fn fired(fresh: &Fresh, name: &str) -> Vec<FiredSlot> {
    match fresh.store.schedule(name).await.unwrap().0 {
        Some(row) => fresh.store.fired_slots(row.version.id, 1000).await.unwrap(),
        None => Vec::new(),
    }
}

/// Waits until a schedule has fired so often; its slots, the oldest first.
async fn until_fired(fresh: &Fresh, name: &str, times: usize) -> Vec<FiredSlot> {
    let begun = Instant::now();
    loop {
        let mut slots = fired(fresh, name).await;
        if slots.len() >= times {
            slots.reverse();
            return slots;
        }
        assert!(begun.elapsed() < TIMEOUT, "{name} has fired {} times", slots.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// No slot is left out or fired twice; each has its own task.
fn assert_unbroken(slots: &[FiredSlot], step: Duration) {
    for pair in slots.windows(2) {
        assert_eq!(pair[1].slot.duration_since(pair[0].slot).unsigned_abs(), step);
    }
    let tasks: BTreeSet<_> = slots.iter().map(|slot| slot.task_id).collect();
    assert_eq!(tasks.len(), slots.len());
}

/// A schedule that awaits a slot of the past.
async fn put_late(fresh: &Fresh, schedule: &Schedule, late: SignedDuration) {
    let definition = schedule.definition().unwrap();
    let (_, now) = fresh.store.schedule(schedule.name()).await.unwrap();
    let anchor = now - late;
    let state = ScheduleState {
        definition: definition.to_json().unwrap(),
        declared: None,
        overlap: definition.overlap,
        anchor,
        paused: None,
        error: None,
        next_at: Some(anchor),
    };
    let write = ScheduleWrite { name: schedule.name().to_owned(), expected: None, state };
    assert!(fresh.store.write_schedule(&write).await.unwrap());
}

async fn slot_starts_on_time(fresh: Fresh) {
    let engine = start(fresh.engine().handle(tick).schedule(often("often")));
    let slots = until_fired(&fresh, "often", 12).await;
    assert_unbroken(&slots, OFTEN);
    let mut late = Vec::new();
    for slot in &slots[..10] {
        let task = fresh.until_status(slot.task_id, TaskStatus::Stopped).await;
        assert_eq!(task.row.scheduled_at, slot.slot);
        let context: serde_json::Value = task.context.decode().unwrap();
        assert_eq!(context, json!({"schedule": "often", "slot": slot.slot.to_string()}));
        let wait = task.executions[0].started_at.unwrap().duration_since(slot.slot);
        assert!(!wait.is_negative(), "{wait} before its time");
        late.push(wait.unsigned_abs());
    }
    late.sort();
    println!("started after their slots: {late:?}");
    // The bound is wide because the machine may be busy.
    assert!(late[5] < Duration::from_secs(2), "{late:?}");
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn changed_declaration_replaces_schedule(fresh: Fresh) {
    let schedules = Schedules::of(&*fresh.store);
    let run = async |schedule: Schedule| {
        let engine = start(fresh.engine().handle(tick).schedule(schedule));
        let first = fresh.create("tick", json!({})).await;
        fresh.until_status(first, TaskStatus::Stopped).await;
        engine.stop().await;
    };
    run(daily("nightly")).await;
    let declared = row(&fresh, "nightly").await;
    assert!(declared.state.next_at > Some(declared.created_at));
    // The same again: nothing is written.
    run(daily("nightly")).await;
    assert_eq!(row(&fresh, "nightly").await, declared);
    // An operator's change outlives it …
    let change = schedules.change("nightly", |definition| {
        Ok(task_engine::core::schedule::ScheduleDefinition { priority: 9, ..definition.clone() })
    });
    change.await.unwrap();
    schedules.pause("nightly", Some("audit")).await.unwrap();
    run(daily("nightly")).await;
    assert_eq!(row(&fresh, "nightly").await.definition().unwrap().priority, 9);
    // … but not a new declaration; only the pause does.
    run(daily("nightly").overlap(Overlap::Skip)).await;
    let newer = row(&fresh, "nightly").await;
    let definition = newer.definition().unwrap();
    assert_eq!((definition.priority, definition.overlap), (0, Overlap::Skip));
    assert_eq!(newer.state.paused.unwrap().reason.as_deref(), Some("audit"));
    // What is declared no longer stays.
    run(daily("another")).await;
    assert!(fresh.store.schedule("nightly").await.unwrap().0.is_some());
}

async fn invalid_declaration_stops_start(fresh: Fresh) {
    for (schedules, why) in [
        (vec![Schedule::cron("a", "0 25 * * *").task(&Tick {})], "hour: 25 is not between"),
        (vec![daily("a").time_zone("Europe/Pari")], "unknown time zone \"Europe/Pari\""),
        (vec![Schedule::cron("a", "@daily")], "schedule \"a\": it has no task"),
        (vec![daily("a"), daily("b"), daily("a")], "schedule \"a\" is declared twice"),
    ] {
        let engine = fresh.engine().handle(tick);
        let engine = schedules.into_iter().fold(engine, Engine::schedule);
        match start(engine).ended().await {
            Err(EngineError::Setting(message)) => assert!(message.contains(why), "{message}"),
            other => panic!("{why}: {other:?}"),
        }
    }
    assert!(fresh.store.schedules(None, 10).await.unwrap().is_empty());
}

async fn missed_slots_follow_policy(fresh: Fresh) {
    let hourly = |name: &str| Schedule::every(name, Duration::from_secs(3600)).task(&Tick {});
    // Slots four hours and a half ago, and every hour since.
    let late = SignedDuration::from_mins(270);
    let cases = [
        ("skip", Missed::Skip, 0),
        ("last", Missed::Last, 1),
        ("all", Missed::All(100), 5),
        ("some", Missed::All(2), 2),
    ];
    for (name, missed, _) in cases {
        put_late(&fresh, &hourly(name).missed(missed), late).await;
    }
    let engine = start(fresh.engine().handle(tick));
    for (name, _, expected) in cases {
        let begun = Instant::now();
        while row(&fresh, name).await.state.next_at <= Some(Timestamp::now()) {
            assert!(begun.elapsed() < TIMEOUT, "{name} is still late");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut slots = fired(&fresh, name).await;
        assert_eq!(slots.len(), expected, "{name}");
        slots.reverse();
        assert_unbroken(&slots, Duration::from_secs(3600));
        for slot in slots {
            fresh.until_status(slot.task_id, TaskStatus::Stopped).await;
        }
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn new_schedule_is_noticed_at_once(fresh: Fresh) {
    let engine = start(handle_samples(fresh.engine().handle(tick)));
    let first = fresh.create("tick", json!({})).await;
    fresh.until_status(first, TaskStatus::Stopped).await;
    // Much sooner than a heartbeat (5 s) would tell.
    let begun = Instant::now();
    Schedules::of(&*fresh.store).add(&often("often")).await.unwrap();
    until_fired(&fresh, "often", 2).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    engine.stop().await;
}

async fn broken_schedule_does_not_delay_others(fresh: Fresh) {
    put_late(&fresh, &often("newer"), SignedDuration::from_secs(2)).await;
    put_late(&fresh, &often("bad"), SignedDuration::from_secs(1)).await;
    // As a newer version might have written it, and one with a rule that is none.
    for (name, from, to) in [("newer", "{", "{\"moon\":1,"), ("bad", "every", "whenever")] {
        let seen = row(&fresh, name).await;
        let text = seen.state.definition.as_str().replacen(from, to, 1);
        let definition = Json::parse(text).unwrap();
        let state = ScheduleState { definition, ..seen.state };
        let write = ScheduleWrite { name: name.into(), expected: Some(seen.version), state };
        assert!(fresh.store.write_schedule(&write).await.unwrap());
    }
    put_late(&fresh, &often("good"), SignedDuration::ZERO).await;
    let engine = start(fresh.engine().handle(tick));
    until_fired(&fresh, "good", 3).await;
    for (name, why) in [("newer", "unknown field `moon`"), ("bad", "it needs 5 fields")] {
        let row = row(&fresh, name).await;
        let error = row.state.error.expect("an error");
        assert!(error.contains(why), "{error}");
        assert_eq!(row.state.next_at, None);
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn waiting_slot_fires_after_end(fresh: Fresh) {
    let sample = task("WaitingTask", json!({"waiting_time": 0.5}));
    let schedule = Schedule::every("often", OFTEN).new_task(sample).overlap(Overlap::Wait);
    let engine = start(handle_samples(fresh.engine()).schedule(schedule));
    let slots = until_fired(&fresh, "often", 3).await;
    for pair in slots.windows(2) {
        let before = fresh.until_status(pair[0].task_id, TaskStatus::Stopped).await;
        let ended = before.executions[0].stopped_at.unwrap();
        let wait = pair[1].fired_at.duration_since(ended);
        assert!(!wait.is_negative(), "{wait} before the end");
        assert!(wait.unsigned_abs() < Duration::from_secs(4), "{wait} after the end");
        // Those that came meanwhile have become one.
        assert!(pair[1].slot.duration_since(pair[0].slot).unsigned_abs() >= OFTEN * 2);
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn many_engines_fire_each_slot_once(fresh: Fresh) {
    let engines: Vec<_> = (0..5)
        .map(|n| {
            let engine = fresh.engine().instance(format!("engine-{n}"));
            start(engine.handle(tick).schedule(often("a")).schedule(often("b")))
        })
        .collect();
    for name in ["a", "b"] {
        assert_unbroken(&until_fired(&fresh, name, 15).await, OFTEN);
    }
    for engine in engines {
        engine.stop().await;
    }
    let slots = [fired(&fresh, "a").await, fired(&fresh, "b").await].concat();
    let filter = task_engine::core::task::TaskListQuery { limit: 1000, ..Default::default() };
    assert_eq!(fresh.store.tasks(&filter).await.unwrap().len(), slots.len());
    fresh.assert_sound().await;
}

async fn stopped_engine_fires_nothing(fresh: Fresh) {
    let engine = start(fresh.engine().handle(tick).schedule(often("often")));
    until_fired(&fresh, "often", 1).await;
    engine.stop().await;
    let before = fired(&fresh, "often").await;
    // At least two slots pass. No event reports that nothing fires, so time is the subject.
    tokio::time::sleep(OFTEN * 3).await;
    assert_eq!(fired(&fresh, "often").await, before);
}

/// A row that appears without a word, as after a notification that got lost, is
/// reported by the next heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_replaces_lost_schedule_wake_up() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Schedules::of(&*store).add(&often("often")).await.unwrap();
    Schedules::of(&*store).pause("often", None).await.unwrap();
    let heartbeat = (Duration::from_millis(300), Duration::from_secs(30));
    let engine =
        TaskEngine::new(store.clone()).engine(()).instance("a").heartbeat(heartbeat.0, heartbeat.1);
    let engine = start(engine.handle(tick));
    let client = connect(&url).await;
    let is_up = async || {
        let ask = "SELECT count(*) FROM task_engine.idle_claimers";
        client.query_one(ask, &[]).await.unwrap().get::<_, i64>(0) == 1
    };
    while !is_up().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let silent = "UPDATE task_engine.schedules SET paused_at = NULL, next_at = now()";
    client.batch_execute(silent).await.unwrap();
    let begun = Instant::now();
    let id = store.schedule("often").await.unwrap().0.unwrap().version.id;
    while store.fired_slots(id, 1).await.unwrap().is_empty() {
        assert!(begun.elapsed() < TIMEOUT, "it never fires");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.stop().await;
}

/// Somebody forgets a transaction that has written a schedule: the others fire on
/// time, and that one when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_schedule_does_not_delay_others() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    for name in ["held", "free"] {
        Schedules::of(&*store).add(&often(name)).await.unwrap();
    }
    let fresh = Fresh::on(store.clone());
    let mut client = connect(&url).await;
    let transaction = client.transaction().await.unwrap();
    let hold = "SELECT FROM task_engine.schedules WHERE name = 'held' FOR UPDATE";
    transaction.batch_execute(hold).await.unwrap();
    let engine = start(fresh.engine().handle(tick));
    let begun = Instant::now();
    assert_unbroken(&until_fired(&fresh, "free", 10).await, OFTEN);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(fired(&fresh, "held").await.is_empty());
    transaction.rollback().await.unwrap();
    assert_unbroken(&until_fired(&fresh, "held", 10).await, OFTEN);
    engine.stop().await;
    fresh.assert_sound().await;
}

/// A crash of PostgreSQL while schedules fire: no slot is lost or fired twice,
/// and firing goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_survive_postgresql_crash() {
    let server = Arc::new(tokio::task::spawn_blocking(TestServer::start).await.unwrap());
    let url = server.create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let schedule = often("often").missed(Missed::All(1000));
    let engines = ["a", "b"].map(|name| {
        start(
            TaskEngine::new(store.clone())
                .engine(())
                .instance(name)
                .handle(tick)
                .schedule(schedule.clone()),
        )
    });
    let count = async |store: &PgStore| match store.schedule("often").await {
        Ok((Some(row), _)) => store.fired_slots(row.version.id, 1000).await.unwrap_or_default(),
        _ => Vec::new(),
    };
    let begun = Instant::now();
    for wanted in [5, 20] {
        let mut slots = count(&store).await;
        while slots.len() < wanted {
            assert!(begun.elapsed() < TIMEOUT * 2, "{} slots", slots.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
            slots = count(&store).await;
        }
        slots.reverse();
        assert_unbroken(&slots, OFTEN);
        if wanted == 5 {
            let server = server.clone();
            tokio::task::spawn_blocking(move || {
                server.stop_immediate();
                server.start_again();
            })
            .await
            .unwrap();
        }
    }
    for engine in engines {
        engine.stop().await;
    }
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Ten thousand schedules that are not due cost an idle engine no query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_engine_ignores_ten_thousand_schedules() {
    let url = TestServer::shared().create_database().await;
    let counter = StatementCounter::start().await;
    let store = PgStore::connect(&counter.url(&url)).await.unwrap();
    store.migrate().await.unwrap();
    Schedules::of(&*store).add(&daily("s")).await.unwrap();
    let client = connect(&url).await;
    let many = "INSERT INTO task_engine.schedules
        (name, definition, overlap, anchor, next_at, created_at, updated_at)
      SELECT 's' || n, definition, overlap, anchor, next_at + n * interval '1 second', now(), now()
      FROM task_engine.schedules, generate_series(1, 9999) AS n";
    client.batch_execute(many).await.unwrap();
    // Not within the test, whatever the time of day.
    let later = "UPDATE task_engine.schedules SET next_at = next_at + interval '1 day'";
    client.batch_execute(later).await.unwrap();
    drop(client);
    let engine = start(handle_samples(TaskEngine::new(store).engine(()).instance("idle")));
    let statements = counter.idle_in_six_seconds().await;
    engine.stop().await;
    assert!(!statements.is_empty(), "it sends heartbeats");
    assert!(statements.len() <= 6, "{} in 6 s: {statements:#?}", statements.len());
}
