//! Regular tasks: a slot fires once, whoever sees it, and by the policies of its
//! schedule.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::json::Json;
use task_engine_core::schedule::decision::firing;
use task_engine_core::schedule::row::{
    FIRED_SLOTS_KEPT, Firing, SchedulePause, ScheduleRow, ScheduleState, ScheduleWrite,
};
use task_engine_core::schedule::{Missed, Overlap, Schedule, ScheduleDefinition};
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_core::unique::{Creation, Scope, Unique};
use task_engine_store::contract::{Store, WakeUp};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::{Done, ScheduleError, Schedules};

use crate::Database;
use crate::bench::{Bench, WORK, new_task};
use crate::waiting::{all_at_once, at_once, eventually, within};

pub(crate) const HOUR: SignedDuration = SignedDuration::from_hours(1);
const ROUNDS: usize = 25;

/// Everything that is written comes back, also what only an operator sees.
pub async fn a_schedule_is_kept_as_it_was_written(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let (none, now) = bench.store.schedule("nightly").await.expect("schedule");
    assert_eq!(none, None);
    let state = ScheduleState {
        declared: Some("what the code said".into()),
        paused: Some(SchedulePause { at: now, reason: Some("audit".into()) }),
        error: Some("no such zone".into()),
        next_at: None,
        ..state(&bench, &hourly("nightly")).await
    };
    let write = ScheduleWrite { name: "nightly".into(), expected: None, state: state.clone() };
    assert!(bench.store.write_schedule(&write).await.expect("write"));
    let row = row(&bench, "nightly").await;
    assert_eq!(row.state.declared, state.declared);
    assert_eq!((&row.state.paused, &row.state.error), (&state.paused, &state.error));
    assert_eq!((row.state.next_at, row.last_slot, row.last_task), (None, None, None));
    assert_eq!(row.definition(), ScheduleDefinition::from_json(&state.definition));
    assert!(row.created_at >= now && row.updated_at >= now);
    for name in ["b", "a", "c"] {
        Schedules::of(&*bench.store).add(&hourly(name)).await.expect("add");
    }
    let names = async |after, limit| -> Vec<String> {
        let rows = bench.store.schedules(after, limit).await.expect("schedules");
        rows.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(None, 10).await, ["a", "b", "c", "nightly"]);
    assert_eq!(names(Some("a"), 2).await, ["b", "c"]);
}

/// A write that is based on an older version, or on no schedule where there is
/// one, changes nothing.
pub async fn who_has_seen_an_older_version_writes_nothing(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let state = state(&bench, &hourly("a")).await;
    let write = |expected| ScheduleWrite { name: "a".into(), expected, state: state.clone() };
    assert!(bench.store.write_schedule(&write(None)).await.expect("write"));
    assert!(!bench.store.write_schedule(&write(None)).await.expect("write"));
    let first = row(&bench, "a").await.version;
    assert!(bench.store.write_schedule(&write(Some(first))).await.expect("write"));
    assert!(!bench.store.write_schedule(&write(Some(first))).await.expect("write"));
    // Of many who write at once, one does.
    let seen = row(&bench, "a").await.version;
    let written = all_at_once(others(db).await.into_iter().map(|other| {
        let write = write(Some(seen));
        async move { other.write_schedule(&write).await.expect("write") }
    }))
    .await;
    assert_eq!(written.iter().filter(|won| **won).count(), 1);
    let again = Schedules::of(&*bench.store).add(&hourly("a")).await;
    assert!(matches!(again, Err(ScheduleError::Exists(_))), "{again:?}");
}

/// Due ones come with the database's time, the longest due first; the rest is
/// told as a wait.
pub async fn only_what_is_due_is_found(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let nothing = bench.store.due_schedules(10).await.expect("due");
    assert!(nothing.rows.is_empty() && nothing.next_in.is_none() && !nothing.blocked);
    let now = nothing.now;
    put(&bench, &hourly("late"), now - HOUR).await;
    put(&bench, &hourly("later"), now - HOUR - HOUR).await;
    put(&bench, &hourly("soon"), now + HOUR).await;
    put(&bench, &hourly("never"), now + HOUR * 100).await;
    let due = bench.store.due_schedules(10).await.expect("due");
    let names: Vec<_> = due.rows.iter().map(|due| due.row.name.as_str()).collect();
    assert_eq!(names, ["later", "late"]);
    assert!(due.now >= now);
    let next_in = due.next_in.expect("one comes");
    assert!(next_in <= HOUR.unsigned_abs() && next_in > HOUR.unsigned_abs() / 2, "{next_in:?}");
    let one = bench.store.due_schedules(1).await.expect("due");
    assert_eq!(one.rows.len(), 1);
    assert_eq!(one.rows[0].row.name, "later");
}

/// The task is as the schedule says, due at its slot, and its context says where
/// it comes from.
pub async fn a_slot_brings_its_task(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let parameters = Json::parse(r#"{"n":123456789012345678901234567890}"#).expect("JSON");
    let mut task = NewTask::new(WORK, parameters.clone()).expect("a task").priority(7);
    task.context = Json::parse(r#"{"retry":{"maximum":1}}"#).expect("JSON");
    let schedule = Schedule::cron("nightly", "0 * * * *").new_task(task);
    let slot = put_due(&bench, &schedule, 0).await;
    assert_eq!(turn(&bench).await, 1);
    let row = row(&bench, "nightly").await;
    assert_eq!(row.last_slot, Some(slot));
    let fired = bench.store.fired_slots(row.version.id, 10).await.expect("fired slots");
    assert_eq!(fired.len(), 1);
    assert_eq!((fired[0].slot, Some(fired[0].task_id)), (slot, row.last_task));
    let details = bench.details(fired[0].task_id).await;
    assert_eq!(details.row.scheduled_at, slot);
    assert_eq!((details.row.priority, details.row.queue.as_str()), (7, "default"));
    let found: serde_json::Value = details.context.decode().expect("JSON");
    assert_eq!(found["schedule"], "nightly");
    assert_eq!(found["slot"], slot.to_string());
    assert_eq!(found["retry"]["maximum"], 1);
    assert!(details.task_parameters.as_str().contains("123456789012345678901234567890"));
    let next = row.state.next_at.expect("it goes on");
    assert!(next > slot && next.duration_since(slot) <= HOUR, "{next}");
}

/// However many engines fire a slot at once: one task.
pub async fn of_many_who_see_a_slot_one_fires_it(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let others = others(db).await;
    put_due(&bench, &hourly("a"), 0).await;
    put_due(&bench, &hourly("b"), 0).await;
    // Due again at once, so that the next round is another slot.
    let by_hand = async |name: &str| {
        let seen = row(&bench, name).await;
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
        let won = all_at_once(others.iter().enumerate().map(|(n, other)| {
            let (mut firings, other) = (firings.clone(), other.clone());
            // In any order: nobody waits for anybody in a circle.
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
        // Two may have had one schedule each when they came to the other's; then
        // one of them won with what it had, and all were told the truth.
        for firing in firings {
            let again = bench.store.fire_schedules(std::slice::from_ref(&firing)).await;
            let open = !winners.contains(&firing.schedule.id);
            assert_eq!(again.expect("fire"), [open], "round {round}");
        }
        assert_eq!(bench.list(None).await.len(), 2 * (round + 1), "round {round}");
    }
}

/// Either the slot fires by the old definition, or the change comes first and it
/// does not.
pub async fn a_change_and_a_firing_have_one_winner(db: &dyn Database) {
    let (bench, other) = (Bench::open(db).await, Bench::open(db).await);
    let (mut fired, mut changed) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        put_due(&bench, &hourly(&name), 0).await;
        let seen = row(&bench, &name).await;
        let due = bench.store.due_schedules(100).await.expect("due");
        let due_row = due.rows.iter().find(|due| due.row.name == name).expect("it is due");
        let firing = firing(due_row, due.now).expect("a firing");
        let paused = ScheduleState {
            paused: Some(SchedulePause { at: due.now, reason: None }),
            next_at: None,
            ..seen.state
        };
        let write =
            ScheduleWrite { name: name.clone(), expected: Some(seen.version), state: paused };
        let (first, second) = (bench.store.clone(), other.store.clone());
        let (won, written) = at_once(
            async move { first.fire_schedules(&[firing]).await.expect("fire")[0] },
            async move { second.write_schedule(&write).await.expect("write") },
        )
        .await;
        assert!(!(won && written), "round {round}: both");
        fired += usize::from(won);
        changed += usize::from(written);
        let tasks = bench.list(None).await.len();
        assert_eq!(tasks, fired, "round {round}");
        Schedules::of(&*bench.store).remove(&name).await.expect("remove");
    }
    assert_eq!(fired + changed, ROUNDS, "one of the two");
}

/// A schedule that goes while it fires takes its slots along, and its task stays
/// or never was. `verify` has the rest to say.
pub async fn a_removal_and_a_firing_leave_no_halves(db: &dyn Database) {
    let (bench, other) = (Bench::open(db).await, Bench::open(db).await);
    let mut fired = 0;
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        put_due(&bench, &hourly(&name), 0).await;
        let due = bench.store.due_schedules(100).await.expect("due");
        let firing = firing(&due.rows[0], due.now).expect("a firing");
        let id = due.rows[0].row.version.id;
        let (first, second) = (bench.store.clone(), other.store.clone());
        let (won, removed) = at_once(
            async move { first.fire_schedules(&[firing]).await.expect("fire")[0] },
            async move { second.remove_schedule(&name).await.expect("remove") },
        )
        .await;
        assert!(removed, "round {round}");
        fired += usize::from(won);
        assert_eq!(bench.list(None).await.len(), fired, "round {round}");
        assert_eq!(bench.store.fired_slots(id, 10).await.expect("slots"), [], "round {round}");
    }
}

/// Who has seen the old one fires nothing of the new one.
pub async fn a_new_schedule_of_an_old_name_is_another(db: &dyn Database) {
    let bench = Bench::open(db).await;
    put_due(&bench, &hourly("a"), 0).await;
    let due = bench.store.due_schedules(10).await.expect("due");
    let firing = firing(&due.rows[0], due.now).expect("a firing");
    assert!(bench.store.remove_schedule("a").await.expect("remove"));
    put_due(&bench, &hourly("a"), 0).await;
    assert_eq!(bench.store.fire_schedules(&[firing]).await.expect("fire"), [false]);
    assert!(bench.list(None).await.is_empty());
}

/// After hours without an engine: none, the last, or all up to a bound.
pub async fn missed_slots_go_by_the_policy(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for (missed, expected) in
        [(Missed::Skip, 0), (Missed::Last, 1), (Missed::All(100), 5), (Missed::All(3), 3)]
    {
        let name = missed.to_string();
        // Away from the full hour, so that the last slot is old, too.
        let rule = minutes_ago(&bench, 30).await;
        let schedule = Schedule::cron(&name, rule).new_task(new_task(WORK)).missed(missed);
        put_due(&bench, &schedule, 4).await;
        let before = bench.list(None).await.len();
        turn(&bench).await;
        assert_eq!(bench.list(None).await.len() - before, expected, "{missed}");
        let row = row(&bench, &name).await;
        let fired = bench.store.fired_slots(row.version.id, 100).await.expect("slots");
        assert_eq!(fired.len(), expected, "{missed}");
        assert!(fired.windows(2).all(|pair| pair[0].slot.duration_since(pair[1].slot) == HOUR));
        assert_eq!(turn(&bench).await, 0, "{missed}: it is up to date");
    }
}

/// Waiting, held, or waiting for a retry: a task that has not ended leaves the
/// next slot out. Ended or removed: the next slot fires.
pub async fn a_slot_is_left_out_while_its_task_runs(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    Schedules::of(&*bench.store).add(&often("a").overlap(Overlap::Skip)).await.expect("add");
    let tasks = async || {
        until_due(&bench).await;
        assert_eq!(turn(&bench).await, 1);
        bench.list(None).await.len()
    };
    assert_eq!(tasks().await, 1);
    assert_eq!(tasks().await, 1, "it waits");
    let hold = engine.claim_one().await;
    assert_eq!(tasks().await, 1, "it is held");
    engine.record(&[hold.fails_and_waits(Duration::from_secs(3600))]).await;
    assert_eq!(tasks().await, 1, "it waits for a retry");
    bench.store.cancel(&[hold.task_id()]).await.expect("cancel");
    assert_eq!(tasks().await, 2, "it has ended");
    // An operator sends the last one back after its end.
    let last = row(&bench, "a").await.last_task.expect("a task");
    bench.store.cancel(&[last]).await.expect("cancel");
    bench.store.retry(&[last]).await.expect("retry");
    assert_eq!(tasks().await, 2, "it waits again");
    let hold = engine.claim_one().await;
    assert_eq!(hold.task_id(), last);
    assert_eq!(tasks().await, 2, "it is held again");
    engine.record(&[hold.succeeds()]).await;
    engine.finish(hold.claim_id).await;
    bench.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await.expect("prune");
    assert_eq!(tasks().await, 2, "one is gone, and one has come");
}

/// The slot stays due until the task has ended; those that came meanwhile become
/// one.
pub async fn a_slot_waits_until_its_task_has_ended(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    Schedules::of(&*bench.store).add(&often("a").overlap(Overlap::Wait)).await.expect("add");
    until_due(&bench).await;
    assert_eq!(turn(&bench).await, 1);
    for round in 1..4 {
        until_blocked(&bench, 1).await;
        assert_eq!(turn(&bench).await, 0, "it waits");
        // What somebody computed before the task was seen is refused.
        let seen = row(&bench, "a").await;
        let slot = seen.state.next_at.expect("a slot");
        let hasty = Firing {
            schedule: seen.version,
            slots: vec![(slot, new_task(WORK))],
            next_at: Some(slot + HOUR),
            skipped: None,
            after: seen.last_task,
        };
        assert_eq!(bench.store.fire_schedules(&[hasty]).await.expect("fire"), [false]);
        let hold = engine.claim_one().await;
        assert_eq!(turn(&bench).await, 0, "it is held");
        engine.record(&[hold.succeeds()]).await;
        assert_eq!(turn(&bench).await, 1, "it has ended");
        assert_eq!(bench.list(None).await.len(), round + 1);
        assert!(row(&bench, "a").await.last_slot >= Some(slot));
    }
}

/// With a policy that makes all good, they come one after the other.
pub async fn missed_slots_that_wait_follow_each_other(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let rule = minutes_ago(&bench, 30).await;
    let schedule = Schedule::cron("a", rule).new_task(new_task(WORK));
    put_due(&bench, &schedule.overlap(Overlap::Wait).missed(Missed::All(3)), 4).await;
    for round in 1..=3 {
        assert_eq!(turn(&bench).await, 1, "round {round}");
        let due = bench.store.due_schedules(10).await.expect("due");
        assert!(due.rows.is_empty(), "round {round}");
        assert_eq!(due.blocked, round < 3, "round {round}");
        let hold = engine.claim_one().await;
        engine.record(&[hold.succeeds()]).await;
    }
    assert_eq!(turn(&bench).await, 0, "it is up to date");
    let id = row(&bench, "a").await.version.id;
    let fired = bench.store.fired_slots(id, 10).await.expect("slots");
    assert_eq!(fired.len(), 3);
    assert!(fired.windows(2).all(|pair| pair[0].slot.duration_since(pair[1].slot) == HOUR));
}

/// A crowd of schedules that wait for tasks, all due for longer, does not keep
/// another one from being found.
pub async fn a_slot_that_waits_hides_no_other(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for n in 0..20 {
        let schedule = often(&format!("w{n}")).overlap(Overlap::Wait);
        put_due(&bench, &schedule, 0).await;
    }
    assert_eq!(turn(&bench).await, 20);
    let now = until_blocked(&bench, 20).await;
    put(&bench, &hourly("a"), now).await;
    let due = bench.store.due_schedules(5).await.expect("due");
    assert_eq!(due.rows.len(), 1);
    assert_eq!(due.rows[0].row.name, "a");
}

/// Nothing fires meanwhile, and what passed meanwhile does not fire after.
pub async fn a_paused_schedule_awaits_nothing(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let schedules = Schedules::of(&*bench.store);
    put_due(&bench, &hourly("a"), 3).await;
    assert_eq!(schedules.pause("a", Some("audit")).await.expect("pause"), Done::Changed);
    assert_eq!(schedules.pause("a", Some("audit")).await.expect("pause"), Done::Unchanged);
    assert_eq!(turn(&bench).await, 0);
    let paused = row(&bench, "a").await;
    assert_eq!(paused.state.paused.expect("paused").reason.as_deref(), Some("audit"));
    // A new definition does not wake it.
    let changed = schedules.declare(&hourly("a").missed(Missed::All(9))).await.expect("declare");
    assert_eq!(changed, Done::Changed);
    assert!(row(&bench, "a").await.state.paused.is_some());
    let now = bench.store.due_schedules(1).await.expect("due").now;
    assert_eq!(schedules.resume("a").await.expect("resume"), Done::Changed);
    assert_eq!(schedules.resume("a").await.expect("resume"), Done::Unchanged);
    assert_eq!(turn(&bench).await, 0, "what passed is over");
    assert!(row(&bench, "a").await.state.next_at.expect("it goes on") > now);
    for missing in [schedules.pause("b", None).await, schedules.resume("b").await] {
        assert!(matches!(missing, Err(ScheduleError::NotFound(_))), "{missing:?}");
    }
}

/// A slot that is due and not fired yet is fired by the new definition, if that
/// has the same slots.
pub async fn a_change_of_the_task_keeps_a_missed_slot(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let schedules = Schedules::of(&*bench.store);
    let slot = put_due(&bench, &hourly("a"), 0).await;
    let other = new_task("other").priority(3);
    let changed = Schedule::cron("a", "0 * * * *").new_task(other);
    assert_eq!(schedules.declare(&changed).await.expect("declare"), Done::Changed);
    assert_eq!(schedules.declare(&changed).await.expect("declare"), Done::Unchanged);
    assert_eq!(turn(&bench).await, 1);
    let after = row(&bench, "a").await;
    assert_eq!(after.last_slot, Some(slot));
    let task = bench.details(after.last_task.expect("a task")).await;
    assert_eq!(task.row.task_class, "other");
    // Declared again, or with other slots: the slot that has fired is over.
    for schedule in [hourly("a"), Schedule::cron("a", "* * * * *").new_task(new_task(WORK))] {
        schedules.declare(&schedule).await.expect("declare");
        let next = row(&bench, "a").await.state.next_at.expect("it goes on");
        assert!(next > slot, "{next}");
        assert_eq!(bench.list(None).await.len(), 1);
    }
}

/// The key of fired slots is the last word: the whole call is taken back.
pub async fn a_slot_that_has_fired_never_fires_again(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let slot = put_due(&bench, &hourly("a"), 0).await;
    put_due(&bench, &hourly("b"), 0).await;
    assert_eq!(turn(&bench).await, 2);
    let fire = async |name: &str, slot: Timestamp| Firing {
        schedule: row(&bench, name).await.version,
        slots: vec![(slot, new_task(WORK))],
        next_at: Some(slot + HOUR * 100),
        skipped: None,
        after: None,
    };
    let before = (row(&bench, "a").await, row(&bench, "b").await);
    let both = [fire("b", slot + HOUR).await, fire("a", slot).await];
    let refused = bench.store.fire_schedules(&both).await;
    assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    assert_eq!((row(&bench, "a").await, row(&bench, "b").await), before);
    assert_eq!(bench.list(None).await.len(), 2);
}

/// The newest ones are kept, a bounded number of them.
pub async fn old_slots_are_forgotten(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let schedule = Schedule::every("a", Duration::from_secs(3600))
        .new_task(new_task(WORK))
        .missed(Missed::All(70));
    for _ in 0..3 {
        let now = bench.store.due_schedules(1).await.expect("due").now;
        if bench.store.schedule("a").await.expect("schedule").0.is_none() {
            put(&bench, &schedule, now - HOUR * 1000).await;
            assert_eq!(turn(&bench).await, 1);
            continue;
        }
        // Slots of the future, as if time had passed.
        let seen = row(&bench, "a").await;
        let first = seen.state.next_at.expect("a slot");
        let slots = (0..70).map(|n| (first + HOUR * n, new_task(WORK))).collect();
        let next_at = Some(first + HOUR * 70);
        let firing = Firing { schedule: seen.version, slots, skipped: None, next_at, after: None };
        assert_eq!(bench.store.fire_schedules(&[firing]).await.expect("fire"), [true]);
    }
    assert_eq!(bench.list(None).await.len(), 210);
    let seen = row(&bench, "a").await;
    let one = Firing {
        schedule: seen.version,
        slots: vec![(seen.state.next_at.expect("a slot"), new_task(WORK))],
        next_at: seen.state.next_at.map(|next| next + HOUR),
        skipped: None,
        after: None,
    };
    assert_eq!(bench.store.fire_schedules(&[one]).await.expect("fire"), [true]);
    let fired = bench.store.fired_slots(seen.version.id, 1000).await.expect("slots");
    assert_eq!(fired.len(), FIRED_SLOTS_KEPT as usize);
    assert_eq!(Some(fired[0].slot), seen.state.next_at, "the newest stay");
}

/// The record of slots goes with a schedule, what it created stays.
pub async fn a_removal_leaves_the_tasks(db: &dyn Database) {
    let bench = Bench::open(db).await;
    put_due(&bench, &hourly("a"), 0).await;
    assert_eq!(turn(&bench).await, 1);
    let id = row(&bench, "a").await.version.id;
    assert!(bench.store.remove_schedule("a").await.expect("remove"));
    assert!(!bench.store.remove_schedule("a").await.expect("remove"));
    assert_eq!(bench.store.fired_slots(id, 10).await.expect("slots"), []);
    assert_eq!(bench.list(Some(TaskStatus::Waiting)).await.len(), 1);
}

/// A slot whose task was removed is forgotten, and still does not fire again.
pub async fn retention_removes_slots_with_their_tasks(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let slot = put_due(&bench, &hourly("a"), 0).await;
    assert_eq!(turn(&bench).await, 1);
    let hold = engine.claim_one().await;
    engine.record(&[hold.succeeds()]).await;
    engine.finish(hold.claim_id).await;
    let pruned = bench.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await;
    assert_eq!(pruned.expect("prune"), 1);
    let row = row(&bench, "a").await;
    assert_eq!(bench.store.fired_slots(row.version.id, 10).await.expect("slots"), []);
    assert!(row.state.next_at > Some(slot), "it goes on");
}

/// Many schedules cost nothing while they are not due.
pub async fn among_ten_thousand_the_due_ones_are_found(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let now = bench.store.due_schedules(1).await.expect("due").now;
    let template = state(&bench, &hourly("s")).await;
    for first in (0..10_000).step_by(500) {
        all_at_once((first..first + 500).map(|n| {
            let late = n % 1000 == 7;
            let next_at = if late { now - HOUR } else { now + HOUR };
            let state = ScheduleState { next_at: Some(next_at), ..template.clone() };
            let write = ScheduleWrite { name: format!("s{n}"), expected: None, state };
            let store = bench.store.clone();
            async move { assert!(store.write_schedule(&write).await.expect("write")) }
        }))
        .await;
    }
    let begun = Instant::now();
    let due = bench.store.due_schedules(100).await.expect("due");
    assert_eq!(due.rows.len(), 10);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(turn(&bench).await, 10);
    assert_eq!(turn(&bench).await, 0);
}

/// Whoever sleeps until the next slot hears of a change, here and elsewhere; not
/// of a firing, which wakes everybody by itself.
pub async fn a_change_wakes_and_a_firing_does_not(db: &dyn Database) {
    if !db.is_told() {
        return;
    }
    let bench = Bench::open(db).await;
    let schedules = Schedules::of(&*bench.store);
    let heard: Arc<Mutex<Vec<(usize, WakeUp)>>> = Arc::default();
    let mut listeners = Vec::new();
    for (n, store) in [bench.store.clone(), db.open().await].into_iter().enumerate() {
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
    eventually("listening begins", async || both().then_some(())).await;
    let told = async |what: &str| {
        within(Duration::from_secs(2), what, async || both().then_some(())).await;
    };
    let forget = || heard.lock().expect("an ear").clear();
    forget();
    schedules.add(&hourly("a")).await.expect("add");
    told("a new one").await;
    forget();
    schedules.pause("a", None).await.expect("pause");
    told("a pause").await;
    forget();
    schedules.remove("a").await.expect("remove");
    told("a removal").await;
    put_due(&bench, &hourly("b"), 0).await;
    told("another one").await;
    // Whatever is still under way arrives before what comes after it.
    eventually("silence", async || {
        forget();
        tokio::time::sleep(Duration::from_millis(50)).await;
        heard.lock().expect("an ear").is_empty().then_some(())
    })
    .await;
    assert_eq!(turn(&bench).await, 1);
    bench.create_work(1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let heard = heard.lock().expect("an ear").clone();
    assert!(!heard.iter().any(|(_, wake_up)| *wake_up == WakeUp::Schedule), "{heard:?}");
    listeners.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The net below lost wake-ups costs no query of its own.
pub async fn a_heartbeat_tells_when_the_next_slot_is(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let engine = bench.engine("a").await;
    assert_eq!(engine.heartbeat().await.next_schedule_in, None);
    let now = bench.store.due_schedules(1).await.expect("due").now;
    put(&bench, &hourly("a"), now + HOUR).await;
    let wait = engine.heartbeat().await.next_schedule_in.expect("a wait");
    assert!(wait <= HOUR.unsigned_abs() && wait > HOUR.unsigned_abs() / 2, "{wait:?}");
    put(&bench, &hourly("b"), now - HOUR).await;
    assert_eq!(engine.heartbeat().await.next_schedule_in, Some(Duration::ZERO));
}

/// A task by hand says which schedule it is of, and moves nothing.
pub async fn a_task_outside_the_slots(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let schedules = Schedules::of(&*bench.store);
    schedules.add(&hourly("a")).await.expect("add");
    let before = row(&bench, "a").await;
    let id = schedules.run("a", None, None).await.expect("run").id();
    assert_eq!(
        bench.details(id).await.context.decode::<serde_json::Value>().expect("JSON"),
        serde_json::json!({"schedule": "a"})
    );
    assert_eq!(row(&bench, "a").await, before);
    let once = || Unique::by("one click").scope(Scope::Within(Duration::from_secs(3600)));
    let first = schedules.run("a", Some(once()), None).await.expect("run");
    let second = schedules.run("a", Some(once()), None).await.expect("run");
    assert_eq!((first.is_new(), second), (true, Creation::Kept(first.id())));
    let missing = schedules.run("b", None, None).await;
    assert!(matches!(missing, Err(ScheduleError::NotFound(_))), "{missing:?}");
}

fn often(name: &str) -> Schedule {
    Schedule::every(name, Duration::from_millis(100)).new_task(new_task(WORK))
}

pub(crate) fn hourly(name: &str) -> Schedule {
    Schedule::cron(name, "0 * * * *").new_task(new_task(WORK))
}

/// A rule for every hour whose last slot was about so many minutes ago.
async fn minutes_ago(bench: &Bench, minutes: i64) -> String {
    let now = bench.store.due_schedules(1).await.expect("due").now;
    let then = now - SignedDuration::from_mins(minutes);
    then.strftime("%M * * * *").to_string()
}

async fn state(bench: &Bench, schedule: &Schedule) -> ScheduleState {
    let (_, now) = bench.store.schedule(schedule.name()).await.expect("schedule");
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
async fn put(bench: &Bench, schedule: &Schedule, next_at: Timestamp) {
    let write = ScheduleWrite {
        name: schedule.name().to_owned(),
        expected: None,
        state: ScheduleState { next_at: Some(next_at), ..state(bench, schedule).await },
    };
    assert!(bench.store.write_schedule(&write).await.expect("write"));
}

/// Stores a schedule whose last slot, and so many before it, nobody has fired.
pub(crate) async fn put_due(bench: &Bench, schedule: &Schedule, more: i32) -> Timestamp {
    let now = bench.store.due_schedules(1).await.expect("due").now;
    let definition = schedule.definition().expect("a definition");
    let anchor = state(bench, schedule).await.anchor;
    let timetable = definition.timetable(anchor).expect("a timetable");
    let last = timetable.newest(now - HOUR * 2, now, 1)[0];
    let first = last - HOUR * more;
    put(bench, schedule, first).await;
    first
}

async fn until_due(bench: &Bench) {
    eventually("a slot comes", async || {
        let due = bench.store.due_schedules(1).await.expect("due");
        (!due.rows.is_empty()).then_some(())
    })
    .await;
}

/// Waits until so many schedules are due whose tasks have not ended.
async fn until_blocked(bench: &Bench, number: usize) -> Timestamp {
    eventually("slots come and wait", async || {
        let due = bench.store.due_schedules(1).await.expect("due");
        let rows = bench.store.schedules(None, 100).await.expect("schedules");
        let passed = rows.iter().filter(|row| row.state.next_at <= Some(due.now)).count();
        assert!(due.rows.is_empty());
        (due.blocked && passed == number).then_some(due.now)
    })
    .await
}

/// Other engines.
async fn others(db: &dyn Database) -> Vec<Arc<dyn Store>> {
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(db.open().await);
    }
    others
}

pub(crate) async fn row(bench: &Bench, name: &str) -> ScheduleRow {
    bench.store.schedule(name).await.expect("schedule").0.expect("it is there")
}

/// What an engine does when its timer rings. Returns how many were moved on.
pub(crate) async fn turn(bench: &Bench) -> usize {
    let due = bench.store.due_schedules(100).await.expect("due");
    let firings: Vec<Firing> =
        due.rows.iter().map(|row| firing(row, due.now).expect("a firing")).collect();
    let fired = bench.store.fire_schedules(&firings).await.expect("fire");
    fired.into_iter().filter(|won| *won).count()
}
