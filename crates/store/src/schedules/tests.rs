use std::time::Duration;

use super::*;
use task_engine_core::json::Json;
use task_engine_core::schedule::row::ScheduleVersion;
use task_engine_core::schedule::{Missed, Overlap};
use task_engine_core::task::NewTask;

fn time(text: &str) -> Timestamp {
    format!("2027-01-01T{text}Z").parse().unwrap()
}

fn hourly() -> Schedule {
    let task = NewTask::new("a", Json::empty_object()).unwrap();
    Schedule::cron("x", "0 * * * *").new_task(task)
}

fn row(state: ScheduleState, last_slot: Option<&str>) -> ScheduleRow {
    ScheduleRow {
        name: "x".into(),
        version: ScheduleVersion { id: 1, version: 1 },
        state,
        last_slot: last_slot.map(time),
        last_task: None,
        created_at: time("00:00:00"),
        updated_at: time("00:00:00"),
    }
}

fn declare(row: Option<&ScheduleRow>, schedule: &Schedule, now: &str) -> Option<ScheduleState> {
    declare_state("x", row, &schedule.definition().unwrap(), time(now)).unwrap()
}

#[test]
fn new_declaration_starts_now() {
    let state = declare(None, &hourly(), "02:30:00.123456").unwrap();
    assert_eq!(state.next_at, Some(time("03:00:00")));
    assert_eq!(state.anchor, time("02:30:00.123"));
    let every = Schedule::every("x", Duration::from_secs(60))
        .new_task(NewTask::new("a", Json::empty_object()).unwrap());
    let state = declare(None, &every, "02:30:00.123456").unwrap();
    assert_eq!(state.next_at, Some(time("02:31:00.123")));
}

#[test]
fn equal_declaration_keeps_operator_changes() {
    let mut stored = row(declare(None, &hourly(), "02:30:00").unwrap(), None);
    let changed = hourly().overlap(Overlap::Skip).definition().unwrap();
    stored.state = define_state("x", Some(&stored), &changed, time("02:40:00")).unwrap();
    assert_eq!(declare(Some(&stored), &hourly(), "02:50:00"), None);
    let newer = declare(Some(&stored), &hourly().missed(Missed::Skip), "02:50:00").unwrap();
    assert_eq!(newer.overlap, Overlap::Allow);
    assert_eq!(newer.next_at, Some(time("03:00:00")));
}

#[test]
fn missed_slot_survives_unrelated_change() {
    let stored = row(declare(None, &hourly(), "02:30:00").unwrap(), None);
    let late = "05:10:00";
    let kept = declare(Some(&stored), &hourly().missed(Missed::All(9)), late).unwrap();
    assert_eq!(kept.next_at, Some(time("03:00:00")));
    let task = NewTask::new("a", Json::empty_object()).unwrap();
    let other = Schedule::cron("x", "30 * * * *").new_task(task);
    let moved = declare(Some(&stored), &other, late).unwrap();
    assert_eq!(moved.next_at, Some(time("05:30:00")));
}

#[test]
fn slot_fires_once_despite_clock_change() {
    let mut stored = row(declare(None, &hourly(), "02:30:00").unwrap(), Some("04:00:00"));
    stored.state.next_at = Some(time("05:00:00"));
    let other = hourly().time_zone("Europe/Paris");
    let moved = declare(Some(&stored), &other, "02:30:00").unwrap();
    assert_eq!(moved.next_at, Some(time("05:00:00")));
}

#[test]
fn declaration_keeps_pause_clears_error() {
    let mut stored = row(declare(None, &hourly(), "02:30:00").unwrap(), None);
    stored.state.next_at = None;
    stored.state.error = Some("downgraded".into());
    let healed = declare(Some(&stored), &hourly(), "02:50:00").unwrap();
    assert_eq!((healed.error, healed.next_at), (None, Some(time("03:00:00"))));
    stored.state.paused =
        Some(SchedulePause { at: time("02:40:00"), reason: Some("audit".into()) });
    assert_eq!(declare(Some(&stored), &hourly(), "02:50:00"), None);
    let changed = hourly().missed(Missed::Skip);
    let changed = declare(Some(&stored), &changed, "02:50:00").unwrap();
    assert_eq!(changed.next_at, None);
    assert_eq!(changed.paused, stored.state.paused);
}
