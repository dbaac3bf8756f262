//! Events of a schedule: skipped slots and manual tasks. Their number is bounded.

use std::time::Duration;

use task_engine_core::schedule::history::{
    SCHEDULE_EVENTS_KEPT, ScheduleEvent, ScheduleEventKind, SkippedSlots,
};
use task_engine_core::schedule::row::Firing;
use task_engine_core::schedule::{Missed, Overlap};
use task_engine_core::unique::{Scope, Unique};
use task_engine_store::schedules::Schedules;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_task};
use crate::schedules::{HOUR, fire_due, hourly, put_due, row};

/// Five slots passed without an engine: one row names the skipped ones.
pub async fn missed_slots_are_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let first = put_due(&fixture, &hourly("last").missed(Missed::Last), 4).await;
    put_due(&fixture, &hourly("all").missed(Missed::All(9)), 4).await;
    assert_eq!(fire_due(&fixture).await, 2);
    let recorded = events(&fixture, "last").await;
    let [event] = &recorded[..] else { panic!("one event: {recorded:?}") };
    assert_eq!(event.kind, ScheduleEventKind::SkippedMissed);
    assert_eq!((event.first_slot, event.last_slot), (Some(first), Some(first + HOUR * 3)));
    assert_eq!((event.slots, event.task_id), (4, None));
    assert_eq!(events(&fixture, "all").await, [], "each of its slots fired");
    let details = Schedules::of(&*fixture.store).show("last", 10).await.expect("show");
    let history: Vec<_> = details.history().into_iter().map(|line| line.what).collect();
    assert_eq!(history, ["fired", "4 slots skipped"]);
}

/// A range of skipped slots that continues stays one row. After a slot has fired, a new
/// range begins.
pub async fn continued_skips_extend_one_event(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let slot = put_due(&fixture, &hourly("a").overlap(Overlap::Skip), 0).await;
    let skip = async |hours: i32, slots: i64| {
        let at = slot + HOUR * hours;
        let last = at + HOUR * (i32::try_from(slots).expect("few") - 1);
        let kind = ScheduleEventKind::SkippedOverlap;
        let firing = Firing {
            schedule: row(&fixture, "a").await.version,
            slots: Vec::new(),
            skipped: Some(SkippedSlots { kind, first: at, last, slots }),
            next_at: Some(last + HOUR),
            after: None,
        };
        assert_eq!(fixture.store.fire_schedules(&[firing]).await.expect("fire"), [true]);
    };
    skip(0, 1).await;
    skip(1, 3).await;
    skip(4, 1).await;
    let recorded = events(&fixture, "a").await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!((recorded[0].slots, recorded[0].first_slot), (5, Some(slot)));
    assert_eq!(recorded[0].last_slot, Some(slot + HOUR * 4));
    let fires = Firing {
        schedule: row(&fixture, "a").await.version,
        slots: vec![(slot + HOUR * 5, new_task(WORK))],
        skipped: None,
        next_at: Some(slot + HOUR * 6),
        after: None,
    };
    assert_eq!(fixture.store.fire_schedules(&[fires]).await.expect("fire"), [true]);
    skip(6, 2).await;
    let slots: Vec<_> = events(&fixture, "a").await.iter().map(|event| event.slots).collect();
    assert_eq!(slots, [2, 5]);
}

/// A manual task is recorded with its requester. A task that was kept is not recorded.
pub async fn manual_runs_are_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    schedules.add(&hourly("a")).await.expect("add");
    let once = || Unique::by("one click").scope(Scope::Within(Duration::from_secs(3600)));
    let id = schedules.run("a", Some(once()), Some("ada")).await.expect("run").id();
    schedules.run("a", Some(once()), Some("ada")).await.expect("run");
    let recorded = events(&fixture, "a").await;
    let [event] = &recorded[..] else { panic!("one event: {recorded:?}") };
    assert_eq!((event.kind, event.task_id), (ScheduleEventKind::Manual, Some(id)));
    assert_eq!(event.requested_by.as_deref(), Some("ada"));
    assert_eq!((event.first_slot, event.last_slot, event.slots), (None, None, 0));
    schedules.run("a", None, None).await.expect("run");
    let newest = events(&fixture, "a").await.remove(0);
    assert_eq!(newest.requested_by, None);
    assert_ne!(newest.task_id, Some(id));
}

/// The newest are kept, and none outlives its schedule.
pub async fn old_schedule_events_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    schedules.add(&hourly("a")).await.expect("add");
    schedules.add(&hourly("b")).await.expect("add");
    schedules.run("b", None, None).await.expect("run");
    let mut last = None;
    for _ in 0..SCHEDULE_EVENTS_KEPT + 5 {
        last = Some(schedules.run("a", None, None).await.expect("run").id());
    }
    let id = row(&fixture, "a").await.version.id;
    let kept = fixture.store.schedule_events(id, 1000).await.expect("events");
    assert_eq!(kept.len(), SCHEDULE_EVENTS_KEPT as usize);
    assert_eq!(kept[0].task_id, last);
    assert_eq!(events(&fixture, "b").await.len(), 1, "of another schedule");
    schedules.remove("a").await.expect("remove");
    assert_eq!(fixture.store.schedule_events(id, 1000).await.expect("events"), []);
}

async fn events(fixture: &Fixture, name: &str) -> Vec<ScheduleEvent> {
    let id = row(fixture, name).await.version.id;
    fixture.store.schedule_events(id, 100).await.expect("events")
}
