//! Schedules: writing, firing once, and wake-ups.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::json::Json;
use task_engine_core::schedule::decision::firing;
use task_engine_core::schedule::row::{
    Firing, SchedulePause, ScheduleRow, ScheduleState, ScheduleWrite,
};
use task_engine_core::schedule::{Schedule, ScheduleDefinition};
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_core::unique::{Creation, Scope, Unique};
use task_engine_store::contract::{Store, WakeUp};
use task_engine_store::schedules::{ScheduleError, Schedules};

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_task};
use crate::waiting::{race, run_concurrently, wait_for, within};

pub(crate) const HOUR: SignedDuration = SignedDuration::from_hours(1);
const ROUNDS: usize = 25;

/// All fields of a schedule are read back unchanged.
pub async fn schedule_round_trips_unchanged(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let (none, now) = fixture.store.schedule("nightly").await.expect("schedule");
    assert_eq!(none, None);
    let state = ScheduleState {
        declared: Some("what the code said".into()),
        paused: Some(SchedulePause { at: now, reason: Some("audit".into()) }),
        error: Some("no such zone".into()),
        next_at: None,
        ..state(&fixture, &hourly("nightly")).await
    };
    let write = ScheduleWrite { name: "nightly".into(), expected: None, state: state.clone() };
    assert!(fixture.store.write_schedule(&write).await.expect("write"));
    let row = row(&fixture, "nightly").await;
    assert_eq!(row.state.declared, state.declared);
    assert_eq!((&row.state.paused, &row.state.error), (&state.paused, &state.error));
    assert_eq!((row.state.next_at, row.last_slot, row.last_task), (None, None, None));
    assert_eq!(row.definition(), ScheduleDefinition::from_json(&state.definition));
    assert!(row.created_at >= now && row.updated_at >= now);
    for name in ["b", "a", "c"] {
        Schedules::of(&*fixture.store).add(&hourly(name)).await.expect("add");
    }
    let names = async |after, limit| -> Vec<String> {
        let rows = fixture.store.schedules(after, limit).await.expect("schedules");
        rows.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(None, 10).await, ["a", "b", "c", "nightly"]);
    assert_eq!(names(Some("a"), 2).await, ["b", "c"]);
}

/// A write that is based on an older version, or on no schedule where there is one,
/// changes nothing.
pub async fn stale_schedule_version_is_not_written(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let state = state(&fixture, &hourly("a")).await;
    let write = |expected| ScheduleWrite { name: "a".into(), expected, state: state.clone() };
    assert!(fixture.store.write_schedule(&write(None)).await.expect("write"));
    assert!(!fixture.store.write_schedule(&write(None)).await.expect("write"));
    let first = row(&fixture, "a").await.version;
    assert!(fixture.store.write_schedule(&write(Some(first))).await.expect("write"));
    assert!(!fixture.store.write_schedule(&write(Some(first))).await.expect("write"));
    // Of many concurrent writers, one succeeds.
    let seen = row(&fixture, "a").await.version;
    let written = run_concurrently(others(db).await.into_iter().map(|other| {
        let write = write(Some(seen));
        async move { other.write_schedule(&write).await.expect("write") }
    }))
    .await;
    assert_eq!(written.iter().filter(|won| **won).count(), 1);
    let again = Schedules::of(&*fixture.store).add(&hourly("a")).await;
    assert!(matches!(again, Err(ScheduleError::Exists(_))), "{again:?}");
}

/// Due schedules are returned with the database's time, the longest due first, and with
/// the time until the next one.
pub async fn only_due_schedules_are_found(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let nothing = fixture.store.due_schedules(10).await.expect("due");
    assert!(nothing.rows.is_empty() && nothing.next_in.is_none() && !nothing.blocked);
    let now = nothing.now;
    put(&fixture, &hourly("late"), now - HOUR).await;
    put(&fixture, &hourly("later"), now - HOUR - HOUR).await;
    put(&fixture, &hourly("soon"), now + HOUR).await;
    put(&fixture, &hourly("never"), now + HOUR * 100).await;
    let due = fixture.store.due_schedules(10).await.expect("due");
    let names: Vec<_> = due.rows.iter().map(|due| due.row.name.as_str()).collect();
    assert_eq!(names, ["later", "late"]);
    assert!(due.now >= now);
    let next_in = due.next_in.expect("one comes");
    assert!(next_in <= HOUR.unsigned_abs() && next_in > HOUR.unsigned_abs() / 2, "{next_in:?}");
    let one = fixture.store.due_schedules(1).await.expect("due");
    assert_eq!(one.rows.len(), 1);
    assert_eq!(one.rows[0].row.name, "later");
}

/// The task has the values of the schedule, is due at its slot, and its context names the
/// schedule.
pub async fn slot_creates_its_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let parameters = Json::parse(r#"{"n":123456789012345678901234567890}"#).expect("JSON");
    let mut task = NewTask::new(WORK, parameters.clone()).expect("a task").priority(7);
    task.context = Json::parse(r#"{"retry":{"maximum":1}}"#).expect("JSON");
    let schedule = Schedule::cron("nightly", "0 * * * *").new_task(task);
    let slot = put_due(&fixture, &schedule, 0).await;
    assert_eq!(fire_due(&fixture).await, 1);
    let row = row(&fixture, "nightly").await;
    assert_eq!(row.last_slot, Some(slot));
    let fired = fixture.store.fired_slots(row.version.id, 10).await.expect("fired slots");
    assert_eq!(fired.len(), 1);
    assert_eq!((fired[0].slot, Some(fired[0].task_id)), (slot, row.last_task));
    let details = fixture.details(fired[0].task_id).await;
    assert_eq!(details.row.scheduled_at, slot);
    assert_eq!((details.row.priority, details.row.queue.as_str()), (7, "default"));
    let found: serde_json::Value = details.context.decode().expect("JSON");
    assert_eq!(found["schedule"], "nightly");
    assert_eq!(found["slot"], slot.to_string());
    assert_eq!(found["retry"]["maximum"], 1);
    assert!(details.parameters.as_str().contains("123456789012345678901234567890"));
    let next = row.state.next_at.expect("it goes on");
    assert!(next > slot && next.duration_since(slot) <= HOUR, "{next}");
}

/// Concurrent engines create one task for a slot.
pub async fn one_engine_fires_each_slot(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let others = others(db).await;
    put_due(&fixture, &hourly("a"), 0).await;
    put_due(&fixture, &hourly("b"), 0).await;
    // Due again at once, so that the next round is another slot.
    let by_hand = async |name: &str| {
        let seen = row(&fixture, name).await;
        let slot = seen.state.next_at.expect("a slot");
        Firing {
            schedule: seen.version,
            slots: vec![(slot, new_task(WORK))],
            next_at: Some(slot + SignedDuration::from_micros(1)),
            skipped: None,
            after: None,
        }
    };
    for round in 0..ROUNDS {
        let firings = [by_hand("a").await, by_hand("b").await];
        let won = run_concurrently(others.iter().enumerate().map(|(n, other)| {
            let (mut firings, other) = (firings.clone(), other.clone());
            // In any order, without deadlocks.
            if n % 2 == 1 {
                firings.reverse();
            }
            async move {
                let won = other.fire_schedules(&firings).await.expect("fire");
                firings.map(|firing| firing.schedule.id).into_iter().zip(won).collect::<Vec<_>>()
            }
        }))
        .await;
        let mut winners = BTreeSet::new();
        for (id, won) in won.into_iter().flatten() {
            assert!(!won || winners.insert(id), "fired twice in round {round}");
        }
        // Two engines may each have locked a schedule that the other one needs. Then one
        // of them fired its part, and all replies are correct.
        for firing in firings {
            let again = fixture.store.fire_schedules(std::slice::from_ref(&firing)).await;
            let open = !winners.contains(&firing.schedule.id);
            assert_eq!(again.expect("fire"), [open], "round {round}");
        }
        assert_eq!(fixture.list(None).await.len(), 2 * (round + 1), "round {round}");
    }
}

/// Either the slot fires by the old definition, or the change comes first and it does not
/// fire.
pub async fn change_and_firing_have_one_winner(db: &dyn TestDatabase) {
    let (fixture, other) = (Fixture::open(db).await, Fixture::open(db).await);
    let (mut fired, mut changed) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        put_due(&fixture, &hourly(&name), 0).await;
        let seen = row(&fixture, &name).await;
        let due = fixture.store.due_schedules(100).await.expect("due");
        let due_row = due.rows.iter().find(|due| due.row.name == name).expect("it is due");
        let firing = firing(due_row, due.now).expect("a firing");
        let paused = ScheduleState {
            paused: Some(SchedulePause { at: due.now, reason: None }),
            next_at: None,
            ..seen.state
        };
        let write =
            ScheduleWrite { name: name.clone(), expected: Some(seen.version), state: paused };
        let (first, second) = (fixture.store.clone(), other.store.clone());
        let (won, written) = race(
            async move { first.fire_schedules(&[firing]).await.expect("fire")[0] },
            async move { second.write_schedule(&write).await.expect("write") },
        )
        .await;
        assert!(!(won && written), "round {round}: both");
        fired += usize::from(won);
        changed += usize::from(written);
        let tasks = fixture.list(None).await.len();
        assert_eq!(tasks, fired, "round {round}");
        Schedules::of(&*fixture.store).remove(&name).await.expect("remove");
    }
    assert_eq!(fired + changed, ROUNDS, "one of the two");
}

/// A schedule that is removed while it fires loses its slots, and its task is kept or was
/// not created. `verify` checks the rest.
pub async fn removal_and_firing_stay_consistent(db: &dyn TestDatabase) {
    let (fixture, other) = (Fixture::open(db).await, Fixture::open(db).await);
    let mut fired = 0;
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        put_due(&fixture, &hourly(&name), 0).await;
        let due = fixture.store.due_schedules(100).await.expect("due");
        let firing = firing(&due.rows[0], due.now).expect("a firing");
        let id = due.rows[0].row.version.id;
        let (first, second) = (fixture.store.clone(), other.store.clone());
        let (won, removed) = race(
            async move { first.fire_schedules(&[firing]).await.expect("fire")[0] },
            async move { second.remove_schedule(&name).await.expect("remove") },
        )
        .await;
        assert!(removed, "round {round}");
        fired += usize::from(won);
        assert_eq!(fixture.list(None).await.len(), fired, "round {round}");
        assert_eq!(fixture.store.fired_slots(id, 10).await.expect("slots"), [], "round {round}");
    }
}

/// A decision about the old schedule does not fire the new one.
pub async fn reused_name_is_new_schedule(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    put_due(&fixture, &hourly("a"), 0).await;
    let due = fixture.store.due_schedules(10).await.expect("due");
    let firing = firing(&due.rows[0], due.now).expect("a firing");
    assert!(fixture.store.remove_schedule("a").await.expect("remove"));
    put_due(&fixture, &hourly("a"), 0).await;
    assert_eq!(fixture.store.fire_schedules(&[firing]).await.expect("fire"), [false]);
    assert!(fixture.list(None).await.is_empty());
}

/// The fired slots are removed with the schedule. The created tasks are kept.
pub async fn schedule_removal_keeps_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    put_due(&fixture, &hourly("a"), 0).await;
    assert_eq!(fire_due(&fixture).await, 1);
    let id = row(&fixture, "a").await.version.id;
    assert!(fixture.store.remove_schedule("a").await.expect("remove"));
    assert!(!fixture.store.remove_schedule("a").await.expect("remove"));
    assert_eq!(fixture.store.fired_slots(id, 10).await.expect("slots"), []);
    assert_eq!(fixture.list(Some(TaskStatus::Waiting)).await.len(), 1);
}

/// Schedules that are not due cost nothing.
pub async fn due_schedules_are_found_among_many(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let now = fixture.store.due_schedules(1).await.expect("due").now;
    let template = state(&fixture, &hourly("s")).await;
    for first in (0..10_000).step_by(500) {
        run_concurrently((first..first + 500).map(|n| {
            let late = n % 1000 == 7;
            let next_at = if late { now - HOUR } else { now + HOUR };
            let state = ScheduleState { next_at: Some(next_at), ..template.clone() };
            let write = ScheduleWrite { name: format!("s{n}"), expected: None, state };
            let store = fixture.store.clone();
            async move { assert!(store.write_schedule(&write).await.expect("write")) }
        }))
        .await;
    }
    let begun = Instant::now();
    let due = fixture.store.due_schedules(100).await.expect("due");
    assert_eq!(due.rows.len(), 10);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(fire_due(&fixture).await, 10);
    assert_eq!(fire_due(&fixture).await, 0);
}

/// A listener that waits for the next slot is notified of a change, on every handle. It
/// is not notified of a firing, which creates a task and so wakes engines anyway.
pub async fn schedule_change_wakes(db: &dyn TestDatabase) {
    if !db.receives_wake_ups() {
        return;
    }
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    let heard: Arc<Mutex<Vec<(usize, WakeUp)>>> = Arc::default();
    let mut listeners = Vec::new();
    for (n, store) in [fixture.store.clone(), db.open().await].into_iter().enumerate() {
        let ear = heard.clone();
        listeners.push(tokio::spawn(async move {
            let hear = move |wake_up| ear.lock().expect("an ear").push((n, wake_up));
            store.listen(&hear).await
        }));
    }
    let both = || {
        let heard = heard.lock().expect("an ear");
        (0..2).all(|n| heard.contains(&(n, WakeUp::Schedule)))
    };
    wait_for("listening begins", async || both().then_some(())).await;
    let expect_wake_up = async |what: &str| {
        within(Duration::from_secs(2), what, async || both().then_some(())).await;
    };
    let forget = || heard.lock().expect("an ear").clear();
    forget();
    schedules.add(&hourly("a")).await.expect("add");
    expect_wake_up("a new one").await;
    forget();
    schedules.pause("a", None).await.expect("pause");
    expect_wake_up("a pause").await;
    forget();
    schedules.remove("a").await.expect("remove");
    expect_wake_up("a removal").await;
    put_due(&fixture, &hourly("b"), 0).await;
    expect_wake_up("another one").await;
    // The next lines check that no wake-up comes. No event reports its absence, so they wait
    // for a short time. First the earlier wake-ups must have arrived.
    wait_for("silence", async || {
        forget();
        tokio::time::sleep(Duration::from_millis(50)).await;
        heard.lock().expect("an ear").is_empty().then_some(())
    })
    .await;
    assert_eq!(fire_due(&fixture).await, 1);
    fixture.create_work(1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let heard = heard.lock().expect("an ear").clone();
    assert!(!heard.iter().any(|(_, wake_up)| *wake_up == WakeUp::Schedule), "{heard:?}");
    listeners.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The fallback for lost wake-ups needs no additional query.
pub async fn heartbeat_reports_next_slot(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    assert_eq!(engine.heartbeat().await.next_schedule_in, None);
    let now = fixture.store.due_schedules(1).await.expect("due").now;
    put(&fixture, &hourly("a"), now + HOUR).await;
    let wait = engine.heartbeat().await.next_schedule_in.expect("a wait");
    assert!(wait <= HOUR.unsigned_abs() && wait > HOUR.unsigned_abs() / 2, "{wait:?}");
    put(&fixture, &hourly("b"), now - HOUR).await;
    assert_eq!(engine.heartbeat().await.next_schedule_in, Some(Duration::ZERO));
}

/// A manual task names its schedule and does not change the next slot.
pub async fn manual_run_is_outside_slots(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    schedules.add(&hourly("a")).await.expect("add");
    let before = row(&fixture, "a").await;
    let id = schedules.run("a", None, None).await.expect("run").id();
    assert_eq!(
        fixture.details(id).await.context.decode::<serde_json::Value>().expect("JSON"),
        serde_json::json!({"schedule": "a"})
    );
    assert_eq!(row(&fixture, "a").await, before);
    let once = || Unique::by("one click").scope(Scope::Within(Duration::from_secs(3600)));
    let first = schedules.run("a", Some(once()), None).await.expect("run");
    let second = schedules.run("a", Some(once()), None).await.expect("run");
    assert_eq!((first.is_new(), second), (true, Creation::Kept(first.id())));
    let missing = schedules.run("b", None, None).await;
    assert!(matches!(missing, Err(ScheduleError::NotFound(_))), "{missing:?}");
}

pub(crate) fn often(name: &str) -> Schedule {
    Schedule::every(name, Duration::from_millis(100)).new_task(new_task(WORK))
}

pub(crate) fn hourly(name: &str) -> Schedule {
    Schedule::cron(name, "0 * * * *").new_task(new_task(WORK))
}

pub(crate) async fn state(fixture: &Fixture, schedule: &Schedule) -> ScheduleState {
    let (_, now) = fixture.store.schedule(schedule.name()).await.expect("schedule");
    let definition = schedule.definition().expect("a definition");
    let anchor = Timestamp::from_second(now.as_second() / 3600 * 3600).expect("a time");
    let timetable = definition.timetable(anchor).expect("a timetable");
    ScheduleState {
        definition: definition.to_json().expect("JSON"),
        declared: None,
        overlap: definition.overlap,
        anchor,
        paused: None,
        error: None,
        next_at: timetable.next_after(now),
    }
}

/// Stores a schedule that awaits a slot.
pub(crate) async fn put(fixture: &Fixture, schedule: &Schedule, next_at: Timestamp) {
    let write = ScheduleWrite {
        name: schedule.name().to_owned(),
        expected: None,
        state: ScheduleState { next_at: Some(next_at), ..state(fixture, schedule).await },
    };
    assert!(fixture.store.write_schedule(&write).await.expect("write"));
}

/// Stores a schedule whose last slots, this many, have not fired.
pub(crate) async fn put_due(fixture: &Fixture, schedule: &Schedule, more: i32) -> Timestamp {
    let now = fixture.store.due_schedules(1).await.expect("due").now;
    let definition = schedule.definition().expect("a definition");
    let anchor = state(fixture, schedule).await.anchor;
    let timetable = definition.timetable(anchor).expect("a timetable");
    let last = timetable.newest(now - HOUR * 2, now, 1)[0];
    let first = last - HOUR * more;
    put(fixture, schedule, first).await;
    first
}

/// Other engines.
async fn others(db: &dyn TestDatabase) -> Vec<Arc<dyn Store>> {
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(db.open().await);
    }
    others
}

pub(crate) async fn row(fixture: &Fixture, name: &str) -> ScheduleRow {
    fixture.store.schedule(name).await.expect("schedule").0.expect("it is there")
}

/// Fires due schedules as an engine does; returns how many were advanced.
pub(crate) async fn fire_due(fixture: &Fixture) -> usize {
    let due = fixture.store.due_schedules(100).await.expect("due");
    let firings: Vec<Firing> =
        due.rows.iter().map(|row| firing(row, due.now).expect("a firing")).collect();
    let fired = fixture.store.fire_schedules(&firings).await.expect("fire");
    fired.into_iter().filter(|won| *won).count()
}
