//! Which slots of a schedule fire: missed, overlapping and old ones.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use task_engine_core::schedule::row::{FIRED_SLOTS_KEPT, Firing};
use task_engine_core::schedule::{Missed, Overlap, Schedule};
use task_engine_core::task::TaskStatus;
use task_engine_store::error::StoreError;
use task_engine_store::schedules::{ChangeOutcome, ScheduleError, Schedules};

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_task};
use crate::schedules::{HOUR, fire_due, hourly, often, put, put_due, row};
use crate::waiting::wait_for;

/// After hours without an engine: none, the last, or all up to a bound.
pub async fn missed_slots_follow_policy(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for (missed, expected) in
        [(Missed::Skip, 0), (Missed::Last, 1), (Missed::All(100), 5), (Missed::All(3), 3)]
    {
        let name = missed.to_string();
        // Away from the full hour, so that the last slot is old, too.
        let rule = minutes_ago(&fixture, 30).await;
        let schedule = Schedule::cron(&name, rule).new_task(new_task(WORK)).missed(missed);
        put_due(&fixture, &schedule, 4).await;
        let before = fixture.list(None).await.len();
        fire_due(&fixture).await;
        assert_eq!(fixture.list(None).await.len() - before, expected, "{missed}");
        let row = row(&fixture, &name).await;
        let fired = fixture.store.fired_slots(row.version.id, 100).await.expect("slots");
        assert_eq!(fired.len(), expected, "{missed}");
        assert!(fired.windows(2).all(|pair| pair[0].slot.duration_since(pair[1].slot) == HOUR));
        assert_eq!(fire_due(&fixture).await, 0, "{missed}: it is up to date");
    }
}

/// Waiting, held, or waiting for a retry: a task that has not ended leaves the
/// next slot out. Ended or removed: the next slot fires.
pub async fn overlapping_slot_is_skipped(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    Schedules::of(&*fixture.store).add(&often("a").overlap(Overlap::Skip)).await.expect("add");
    let tasks = async || {
        until_due(&fixture).await;
        assert_eq!(fire_due(&fixture).await, 1);
        fixture.list(None).await.len()
    };
    assert_eq!(tasks().await, 1);
    assert_eq!(tasks().await, 1, "it waits");
    let hold = engine.claim_one().await;
    assert_eq!(tasks().await, 1, "it is held");
    engine.record(&[hold.fails_and_retries(Duration::from_secs(3600))]).await;
    assert_eq!(tasks().await, 1, "it waits for a retry");
    fixture.store.cancel(&[hold.task_id()]).await.expect("cancel");
    assert_eq!(tasks().await, 2, "it has ended");
    // An operator sends the last one back after its end.
    let last = row(&fixture, "a").await.last_task.expect("a task");
    fixture.store.cancel(&[last]).await.expect("cancel");
    fixture.store.retry(&[last]).await.expect("retry");
    assert_eq!(tasks().await, 2, "it waits again");
    let hold = engine.claim_one().await;
    assert_eq!(hold.task_id(), last);
    assert_eq!(tasks().await, 2, "it is held again");
    engine.record(&[hold.succeeds()]).await;
    engine.finish(hold.claim_id).await;
    fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await.expect("prune");
    assert_eq!(tasks().await, 2, "one is gone, and one has come");
}

/// The slot stays due until the task has ended. Slots that pass in the meantime become
/// one.
pub async fn overlapping_slot_waits_for_task(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    Schedules::of(&*fixture.store).add(&often("a").overlap(Overlap::Wait)).await.expect("add");
    until_due(&fixture).await;
    assert_eq!(fire_due(&fixture).await, 1);
    for round in 1..4 {
        until_blocked(&fixture, 1).await;
        assert_eq!(fire_due(&fixture).await, 0, "it waits");
        // A decision that was made before the task existed is refused.
        let seen = row(&fixture, "a").await;
        let slot = seen.state.next_at.expect("a slot");
        let hasty = Firing {
            schedule: seen.version,
            slots: vec![(slot, new_task(WORK))],
            next_at: Some(slot + HOUR),
            skipped: None,
            after: seen.last_task,
        };
        assert_eq!(fixture.store.fire_schedules(&[hasty]).await.expect("fire"), [false]);
        let hold = engine.claim_one().await;
        assert_eq!(fire_due(&fixture).await, 0, "it is held");
        engine.record(&[hold.succeeds()]).await;
        assert_eq!(fire_due(&fixture).await, 1, "it has ended");
        assert_eq!(fixture.list(None).await.len(), round + 1);
        assert!(row(&fixture, "a").await.last_slot >= Some(slot));
    }
}

/// With the policy `all`, they run one after the other.
pub async fn waiting_missed_slots_run_in_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let rule = minutes_ago(&fixture, 30).await;
    let schedule = Schedule::cron("a", rule).new_task(new_task(WORK));
    put_due(&fixture, &schedule.overlap(Overlap::Wait).missed(Missed::All(3)), 4).await;
    for round in 1..=3 {
        assert_eq!(fire_due(&fixture).await, 1, "round {round}");
        let due = fixture.store.due_schedules(10).await.expect("due");
        assert!(due.rows.is_empty(), "round {round}");
        assert_eq!(due.blocked, round < 3, "round {round}");
        let hold = engine.claim_one().await;
        engine.record(&[hold.succeeds()]).await;
    }
    assert_eq!(fire_due(&fixture).await, 0, "it is up to date");
    let id = row(&fixture, "a").await.version.id;
    let fired = fixture.store.fired_slots(id, 10).await.expect("slots");
    assert_eq!(fired.len(), 3);
    assert!(fired.windows(2).all(|pair| pair[0].slot.duration_since(pair[1].slot) == HOUR));
}

/// Many schedules that wait for tasks, all due for longer, do not hide another one.
pub async fn waiting_slot_hides_no_other(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for n in 0..20 {
        let schedule = often(&format!("w{n}")).overlap(Overlap::Wait);
        put_due(&fixture, &schedule, 0).await;
    }
    assert_eq!(fire_due(&fixture).await, 20);
    let now = until_blocked(&fixture, 20).await;
    put(&fixture, &hourly("a"), now).await;
    let due = fixture.store.due_schedules(5).await.expect("due");
    assert_eq!(due.rows.len(), 1);
    assert_eq!(due.rows[0].row.name, "a");
}

/// A paused schedule does not fire, and slots that passed during the pause do not fire
/// later.
pub async fn paused_schedule_fires_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    put_due(&fixture, &hourly("a"), 3).await;
    assert_eq!(schedules.pause("a", Some("audit")).await.expect("pause"), ChangeOutcome::Changed);
    assert_eq!(schedules.pause("a", Some("audit")).await.expect("pause"), ChangeOutcome::Unchanged);
    assert_eq!(fire_due(&fixture).await, 0);
    let paused = row(&fixture, "a").await;
    assert_eq!(paused.state.paused.expect("paused").reason.as_deref(), Some("audit"));
    // A new definition does not wake it.
    let changed = schedules.declare(&hourly("a").missed(Missed::All(9))).await.expect("declare");
    assert_eq!(changed, ChangeOutcome::Changed);
    assert!(row(&fixture, "a").await.state.paused.is_some());
    let now = fixture.store.due_schedules(1).await.expect("due").now;
    assert_eq!(schedules.resume("a").await.expect("resume"), ChangeOutcome::Changed);
    assert_eq!(schedules.resume("a").await.expect("resume"), ChangeOutcome::Unchanged);
    assert_eq!(fire_due(&fixture).await, 0, "what passed is over");
    assert!(row(&fixture, "a").await.state.next_at.expect("it goes on") > now);
    for missing in [schedules.pause("b", None).await, schedules.resume("b").await] {
        assert!(matches!(missing, Err(ScheduleError::NotFound(_))), "{missing:?}");
    }
}

/// A slot that is due and not fired yet is fired by the new definition, if that
/// has the same slots.
pub async fn task_change_keeps_missed_slot(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedules = Schedules::of(&*fixture.store);
    let slot = put_due(&fixture, &hourly("a"), 0).await;
    let other = new_task("other").priority(3);
    let changed = Schedule::cron("a", "0 * * * *").new_task(other);
    assert_eq!(schedules.declare(&changed).await.expect("declare"), ChangeOutcome::Changed);
    assert_eq!(schedules.declare(&changed).await.expect("declare"), ChangeOutcome::Unchanged);
    assert_eq!(fire_due(&fixture).await, 1);
    let after = row(&fixture, "a").await;
    assert_eq!(after.last_slot, Some(slot));
    let task = fixture.details(after.last_task.expect("a task")).await;
    assert_eq!(task.row.class, "other");
    // Declared again, or with other slots: the slot that has fired is over.
    for schedule in [hourly("a"), Schedule::cron("a", "* * * * *").new_task(new_task(WORK))] {
        schedules.declare(&schedule).await.expect("declare");
        let next = row(&fixture, "a").await.state.next_at.expect("it goes on");
        assert!(next > slot, "{next}");
        assert_eq!(fixture.list(None).await.len(), 1);
    }
}

/// The key of fired slots decides: the whole call is rolled back.
pub async fn fired_slot_never_fires_again(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let slot = put_due(&fixture, &hourly("a"), 0).await;
    put_due(&fixture, &hourly("b"), 0).await;
    assert_eq!(fire_due(&fixture).await, 2);
    let fire = async |name: &str, slot: Timestamp| Firing {
        schedule: row(&fixture, name).await.version,
        slots: vec![(slot, new_task(WORK))],
        next_at: Some(slot + HOUR * 100),
        skipped: None,
        after: None,
    };
    let before = (row(&fixture, "a").await, row(&fixture, "b").await);
    let both = [fire("b", slot + HOUR).await, fire("a", slot).await];
    let refused = fixture.store.fire_schedules(&both).await;
    assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    assert_eq!((row(&fixture, "a").await, row(&fixture, "b").await), before);
    assert_eq!(fixture.list(None).await.len(), 2);
}

/// The newest ones are kept, a bounded number of them.
pub async fn old_slots_are_removed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let schedule = Schedule::every("a", Duration::from_secs(3600))
        .new_task(new_task(WORK))
        .missed(Missed::All(70));
    for _ in 0..3 {
        let now = fixture.store.due_schedules(1).await.expect("due").now;
        if fixture.store.schedule("a").await.expect("schedule").0.is_none() {
            put(&fixture, &schedule, now - HOUR * 1000).await;
            assert_eq!(fire_due(&fixture).await, 1);
            continue;
        }
        // Slots in the future, as if time had passed.
        let seen = row(&fixture, "a").await;
        let first = seen.state.next_at.expect("a slot");
        let slots = (0..70).map(|n| (first + HOUR * n, new_task(WORK))).collect();
        let next_at = Some(first + HOUR * 70);
        let firing = Firing { schedule: seen.version, slots, skipped: None, next_at, after: None };
        assert_eq!(fixture.store.fire_schedules(&[firing]).await.expect("fire"), [true]);
    }
    assert_eq!(fixture.list(None).await.len(), 210);
    let seen = row(&fixture, "a").await;
    let one = Firing {
        schedule: seen.version,
        slots: vec![(seen.state.next_at.expect("a slot"), new_task(WORK))],
        next_at: seen.state.next_at.map(|next| next + HOUR),
        skipped: None,
        after: None,
    };
    assert_eq!(fixture.store.fire_schedules(&[one]).await.expect("fire"), [true]);
    let fired = fixture.store.fired_slots(seen.version.id, 1000).await.expect("slots");
    assert_eq!(fired.len(), FIRED_SLOTS_KEPT as usize);
    assert_eq!(Some(fired[0].slot), seen.state.next_at, "the newest stay");
}

/// A slot whose task was removed is forgotten, and still does not fire again.
pub async fn retention_removes_slots_with_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let slot = put_due(&fixture, &hourly("a"), 0).await;
    assert_eq!(fire_due(&fixture).await, 1);
    let hold = engine.claim_one().await;
    engine.record(&[hold.succeeds()]).await;
    engine.finish(hold.claim_id).await;
    let pruned = fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await;
    assert_eq!(pruned.expect("prune"), 1);
    let row = row(&fixture, "a").await;
    assert_eq!(fixture.store.fired_slots(row.version.id, 10).await.expect("slots"), []);
    assert!(row.state.next_at > Some(slot), "it goes on");
}

/// A rule for every hour whose last slot was about this many minutes ago.
async fn minutes_ago(fixture: &Fixture, minutes: i64) -> String {
    let now = fixture.store.due_schedules(1).await.expect("due").now;
    let then = now - SignedDuration::from_mins(minutes);
    then.strftime("%M * * * *").to_string()
}

async fn until_due(fixture: &Fixture) {
    wait_for("a slot comes", async || {
        let due = fixture.store.due_schedules(1).await.expect("due");
        (!due.rows.is_empty()).then_some(())
    })
    .await;
}

/// Waits until this many schedules are due whose tasks have not ended.
async fn until_blocked(fixture: &Fixture, number: usize) -> Timestamp {
    wait_for("slots come and wait", async || {
        let due = fixture.store.due_schedules(1).await.expect("due");
        let rows = fixture.store.schedules(None, 100).await.expect("schedules");
        let passed = rows.iter().filter(|row| row.state.next_at <= Some(due.now)).count();
        assert!(due.rows.is_empty());
        (due.blocked && passed == number).then_some(due.now)
    })
    .await
}
