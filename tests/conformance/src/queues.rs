//! Queues: paused ones are not claimed, claimers take only their own lanes, and claimers
//! of one engine are independent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::instance::NewInstance;
use task_engine_core::queue::BoundedCount;
use task_engine_core::queue::{Lanes, QueuePause, QueueRow};
use task_engine_core::task::{NewTask, TaskOptions, TaskStatus};
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::WakeUp;

use crate::TestDatabase;
use crate::fixture::{
    Fixture, TestAttempt, TestEngine, WORK, new_instance, new_task, task_ids, with_classes,
};
use crate::waiting::run_concurrently;
use crate::wake_ups::Listener;

const NOTHING: ClaimRest = ClaimRest::Nothing { next_in: None };

fn task_in(queue: &str) -> NewTask {
    new_task(WORK).queue(queue).expect("a queue")
}

fn serving(name: &str, queues: &[&str]) -> NewInstance {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    NewInstance { queues, ..new_instance(name) }
}

fn lanes(queues: &[&str]) -> Lanes {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    Lanes::new(queues, vec![WORK.to_owned()])
}

async fn pause(fixture: &Fixture, queue: &str) -> bool {
    let pause = QueuePause::new(queue, None).expect("a pause");
    fixture.store.pause_queue(&pause).await.expect("pause_queue")
}

async fn resume(fixture: &Fixture, queue: &str) -> bool {
    fixture.store.resume_queue(queue).await.expect("resume_queue")
}

/// A claim takes nothing from a paused queue, whatever the claimer has cached, and does
/// not report that there is more. Running tasks are recorded as usual.
pub async fn paused_queue_is_not_claimed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mail = fixture.create_all(&vec![task_in("mail"); 10]).await;
    let mut engine = fixture.register(serving("a", &["mail", "other"])).await;
    let running = engine.claim(3).await;
    assert!(pause(&Fixture::open(db).await, "mail").await);
    assert_eq!(task_ids(&engine.claim_all(3).await), [], "mail is paused");

    let other = fixture.create_all(&vec![task_in("other"); 5]).await;
    assert_eq!(task_ids(&engine.claim_all(3).await), other);
    fixture.create(task_in("mail").priority(9)).await;
    fixture.create(task_in("mail").after(Duration::from_secs(60))).await;
    engine.wake();
    let (none, rest) = engine.claim_up_to(3).await;
    assert_eq!((task_ids(&none), rest), (vec![], NOTHING));
    let endings: Vec<_> = running.iter().map(TestAttempt::succeeds).collect();
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(fixture.status(mail[0]).await, TaskStatus::Stopped);
    assert_eq!(fixture.status(mail[3]).await, TaskStatus::Waiting);

    // Two lanes of one priority, one of them in a paused queue.
    let other = fixture.create(task_in("other")).await;
    engine.wake();
    assert_eq!(task_ids(&engine.claim_all(3).await), [other]);
}

/// A pause is stored with its reason. A second pause replaces the reason. A resume ends
/// it, once.
pub async fn pause_lasts_until_resumed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    assert_eq!(fixture.store.paused_queues().await.expect("paused_queues"), []);
    let because =
        |reason: &str| QueuePause::new("mail \"é\"", Some(reason.to_owned())).expect("a pause");
    assert!(fixture.store.pause_queue(&because("provider is down")).await.expect("pause"));
    let other = Fixture::open(db).await;
    let paused = other.store.paused_queues().await.expect("paused_queues");
    let [first] = &paused[..] else { panic!("one, not {paused:?}") };
    assert_eq!(first.queue, "mail \"é\"");
    assert_eq!(first.reason.as_deref(), Some("provider is down"));
    let now = fixture.now().await;
    assert!(first.paused_at.duration_until(now).as_secs().abs() < 60, "{first:?}, now {now}");

    assert!(!other.store.pause_queue(&because("for good")).await.expect("pause"));
    let again = QueuePause::new("mail \"é\"", None).expect("a pause");
    assert!(!other.store.pause_queue(&again).await.expect("pause"));
    assert!(pause(&other, "another").await);
    let paused = fixture.store.paused_queues().await.expect("paused_queues");
    assert_eq!(paused.len(), 2);
    assert_eq!(paused[0].queue, "another", "by name");
    assert_eq!(paused[1].reason.as_deref(), Some("for good"), "kept if there is no new one");
    assert_eq!(paused[1].paused_at, first.paused_at);

    assert!(resume(&fixture, "mail \"é\"").await);
    assert!(!resume(&fixture, "mail \"é\"").await);
    assert!(!resume(&fixture, "never paused").await);
    assert_eq!(fixture.store.paused_queues().await.expect("paused_queues").len(), 1);
}

/// Claimers at full speed on several handles: no claim that begins after the pause takes
/// from the queue, and no task is lost.
pub async fn claim_after_pause_skips_queue(db: &dyn TestDatabase) {
    const COUNT: usize = 1500;
    let rule = TaskOptions::default().retry;
    let fixture = Fixture::open(db).await;
    for round in 0..4 {
        // One lane, or many: two forms of the claim.
        let classes: &[&str] = if round % 2 == 0 { &["a"] } else { &["a", "b", "c"] };
        let tasks: Vec<_> = (0..COUNT)
            .map(|n| new_task(classes[n % classes.len()]).queue("mail").expect("a queue"))
            .collect();
        let ids: BTreeSet<_> = fixture.create_all(&tasks).await.into_iter().collect();
        let rules: Vec<_> = classes.iter().map(|class| (*class, rule)).collect();
        let is_paused = Arc::new(AtomicBool::new(false));
        let mut claimers = Vec::new();
        for n in 0..3 {
            let new = with_classes(serving(&format!("{round}-{n}"), &["mail", "other"]), &rules);
            let mut engine = Fixture::open(db).await.register(new).await;
            let is_paused = is_paused.clone();
            claimers.push(async move {
                let (mut before, mut after) = (Vec::new(), 0);
                // Some claims with and some without cached positions.
                while after < 6 {
                    let begun_paused = is_paused.load(Ordering::SeqCst);
                    if after % 2 == 1 {
                        engine.wake();
                    }
                    let (holds, _) = engine.claim_up_to(7).await;
                    if begun_paused {
                        assert_eq!(task_ids(&holds), [], "taken from a paused queue");
                        after += 1;
                    }
                    before.extend(holds);
                }
                (engine, before)
            });
        }
        let pausing = Fixture::open(db).await;
        let pauser = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..30))).await;
            assert!(pause(&pausing, "mail").await);
            is_paused.store(true, Ordering::SeqCst);
        });
        let engines = run_concurrently(claimers).await;
        pauser.await.expect("the pause");
        assert!(resume(&fixture, "mail").await);
        let mut claimed = Vec::new();
        for (mut engine, before) in engines {
            engine.wake();
            claimed.extend(task_ids(&before));
            claimed.extend(task_ids(&engine.claim_all(50).await));
        }
        assert_eq!(claimed.len(), COUNT, "round {round}: each once");
        assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), ids, "round {round}");
    }
}

/// A claimer that has reported "empty" finds the tasks of a resumed queue.
pub async fn next_claim_sees_resume(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_all(&vec![task_in("mail"); 3]).await;
    let mut engine = fixture.register(serving("a", &["mail"])).await;
    for _ in 0..3 {
        pause(&fixture, "mail").await;
        assert_eq!(engine.claim_up_to(5).await.1, NOTHING);
        assert_eq!(engine.claim_up_to(5).await.1, NOTHING);
        resume(&Fixture::open(db).await, "mail").await;
        let holds = engine.claim(3).await;
        assert_eq!(task_ids(&holds), ids);
        let released: Vec<_> = holds.iter().map(TestAttempt::is_released).collect();
        engine.record(&released).await;
    }
}

/// A claimer with a lowest priority takes nothing below it, does not report it, and does
/// not read it.
pub async fn pause_respects_minimum_priority(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let engine = fixture.engine("a").await;
    let mut ids = Vec::new();
    for priority in [i32::MIN, -1, 4, 5, 6, i32::MAX] {
        ids.push(fixture.create(new_task(WORK).priority(priority)).await);
    }
    fixture.create_all(&vec![new_task(WORK); 2000]).await;
    let soon = new_task(WORK).priority(3).after(Duration::from_secs(60));
    fixture.create(soon).await;
    let from =
        |lowest_priority: i32| engine.with_lanes(Lanes { lowest_priority, ..lanes(&["default"]) });
    let mut highest = from(i32::MAX);
    assert_eq!(task_ids(&highest.claim_all(3).await), [ids[5]]);
    let mut urgent = from(5);
    assert_eq!(task_ids(&urgent.claim_all(1).await), [ids[4], ids[3]]);
    assert_eq!(urgent.claim_up_to(10).await.1, NOTHING);
    let later = new_task(WORK).priority(5).after(Duration::from_secs(600));
    fixture.create(later).await;
    urgent.wake();
    let ClaimRest::Nothing { next_in: Some(next_in) } = urgent.claim_up_to(10).await.1 else {
        panic!("a task of priority 5 is due later")
    };
    assert!(next_in > Duration::from_secs(500), "{next_in:?}");
    let mut all = from(i32::MIN);
    let rest = task_ids(&all.claim_all(500).await);
    assert_eq!((rest.len(), rest[0], rest[2002]), (2003, ids[2], ids[0]));
}

/// Two claimers of one engine on one queue: each task once, each claim known.
pub async fn claimers_of_one_engine_share_tasks(db: &dyn TestDatabase) {
    const COUNT: usize = 2000;
    let fixture = Fixture::open(db).await;
    let ids: BTreeSet<_> = fixture.create_work(COUNT).await.into_iter().collect();
    let engine = fixture.engine("a").await;
    let pools: Vec<TestEngine> = (0..3).map(|_| engine.with_lanes(lanes(&["default"]))).collect();
    let claiming = pools.into_iter().map(|mut pool| async move { pool.claim_all(11).await });
    let holds = run_concurrently(claiming).await.concat();
    assert_eq!(holds.len(), COUNT, "each once");
    assert_eq!(task_ids(&holds).into_iter().collect::<BTreeSet<_>>(), ids);
    let claims: BTreeSet<_> = holds.iter().map(|hold| hold.claim_id).collect();
    assert_eq!(engine.heartbeat().await.claims.into_iter().collect::<BTreeSet<_>>(), claims);
}

/// One claimer of an engine is idle, another is busy and needs no wake-up. The first one
/// is still notified.
pub async fn one_awake_claimer_leaves_others_idle(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let listener = Listener::begin(db.open().await).await;
    let engine = fixture.engine("a").await;
    let (mut quiet, mut busy) =
        (engine.with_lanes(lanes(&["quiet"])), engine.with_lanes(lanes(&["busy"])));
    for round in 0..3 {
        assert_eq!(quiet.claim_up_to(1).await.1, NOTHING);
        assert_eq!(busy.claim_up_to(1).await.1, NOTHING);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(400) {
            fixture.create_all(&vec![task_in("busy"); 20]).await;
            for _ in 0..20 {
                busy.claim_one().await;
            }
        }
        listener.forget();
        let id = fixture.create(task_in("quiet")).await;
        listener.hears(WakeUp::Work).await;
        quiet.wake();
        assert_eq!(task_ids(&quiet.claim(1).await), [id], "round {round}");
    }
}

/// A resume notifies every listener, idle or not.
pub async fn resume_wakes_every_claimer(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.register(serving("a", &["mail"])).await;
    fixture.create_all(&vec![task_in("mail"); 2]).await;
    let listeners =
        [Listener::begin(fixture.store.clone()).await, Listener::begin(db.open().await).await];
    for asleep in [false, true] {
        pause(&fixture, "mail").await;
        if asleep {
            assert_eq!(engine.claim_up_to(1).await.1, NOTHING);
        }
        listeners.iter().for_each(Listener::forget);
        resume(&Fixture::open(db).await, "mail").await;
        for listener in &listeners {
            listener.hears(WakeUp::Work).await;
        }
        engine.wake();
        engine.claim_one().await;
    }
}

/// Every queue with tasks, a pause or an engine is listed once, by name.
pub async fn queues_are_listed_with_counts(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    assert_eq!(fixture.store.queues().await.expect("queues"), []);
    let mut engine = fixture.register(serving("a", &["busy", "idle"])).await;
    let gone = fixture.register(serving("gone", &["forgotten"])).await;
    gone.unregister().await;
    let mut tasks = vec![task_in("busy"); 5];
    tasks.push(new_task("unknown").queue("busy").expect("a queue"));
    tasks.push(task_in("busy").priority(7).after(Duration::from_secs(60)));
    tasks.extend(vec![new_task("unknown").queue("orphaned").expect("a queue"); 2]);
    fixture.create_all(&tasks).await;
    let holds = engine.claim(3).await;
    engine.record(&[holds[0].succeeds()]).await;
    let reason = QueuePause::new("paused", Some("why not".to_owned())).expect("a pause");
    fixture.store.pause_queue(&reason).await.expect("pause");
    pause(&fixture, "busy").await;

    let queues = Fixture::open(db).await.store.queues().await.expect("queues");
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["busy", "idle", "orphaned", "paused"]);
    let counts = |queue: &QueueRow| {
        let is_paused = queue.paused.is_some();
        (queue.due.counted, queue.later.counted, queue.running, is_paused)
    };
    let counts: Vec<_> = queues.iter().map(counts).collect();
    assert_eq!(counts, [(3, 1, 2, true), (0, 0, 0, false), (2, 0, 0, false), (0, 0, 0, true)]);
    let why = queues[3].paused.as_ref().and_then(|paused| paused.reason.as_deref());
    assert_eq!(why, Some("why not"));
    assert!(queues.iter().all(|queue| !queue.due.and_more && !queue.later.and_more));
}

/// Tasks are counted up to a limit.
pub async fn queue_counts_stop_at_limit(db: &dyn TestDatabase) {
    let limit = usize::try_from(BoundedCount::PER_LANE_MAX).expect("a count");
    let fixture = Fixture::open(db).await;
    fixture.create_all(&vec![new_task(WORK); limit + 1]).await;
    fixture.create_all(&vec![new_task(WORK).after(Duration::from_secs(60)); 3]).await;
    let queues = fixture.store.queues().await.expect("queues");
    let [queue] = &queues[..] else { panic!("one queue, not {queues:?}") };
    assert_eq!(queue.due, BoundedCount { counted: BoundedCount::PER_LANE_MAX, and_more: true });
    assert_eq!(queue.later, BoundedCount { counted: 3, and_more: false });
}
