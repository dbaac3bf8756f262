//! Activity: running tasks, recent endings, and the position in the queue.

use std::time::Duration;

use task_engine_core::progress::{ProgressReport, Report};
use task_engine_core::queue::BoundedCount;
use task_engine_core::queue::QueuePause;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::queue_position::QueuePositionQuery;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_instance, new_task, sample_error, with_classes};

const HOUR: Duration = Duration::from_secs(3600);

async fn moving(fixture: &Fixture, per_lane: i64, soon: Duration) -> Activity {
    fixture.store.activity(ActivityQuery { per_lane, soon }).await.expect("moving")
}

async fn endings(fixture: &Fixture, look: EndingsQuery) -> Vec<EndingRow> {
    fixture.store.endings(&look).await.expect("endings")
}

async fn queue_position(
    fixture: &Fixture,
    id: TaskId,
    queues: &[&str],
    classes: &[&str],
) -> Option<BoundedCount> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let look = QueuePositionQuery { id, queues: names(queues), classes: names(classes) };
    fixture.store.queue_position(&look).await.expect("position").map(|position| position.tasks)
}

/// The attempts that engines hold, with all their fields, and the newest task.
pub async fn activity_is_reported(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let nothing = moving(&fixture, 10, HOUR).await;
    assert_eq!((nothing.newest, nothing.held.len(), nothing.next.len()), (None, 0, 0));
    let mut engine = fixture.engine("a").await;
    let ids = fixture.create_all(&vec![new_task(WORK).priority(3); 4]).await;
    let holds = engine.claim(3).await;
    engine.record(&[holds[0].succeeds()]).await;
    let said = Report {
        id: holds[1].id(),
        version: 1,
        lines_total: 0,
        progress: Some(ProgressReport::new(40.0, "half")),
        lines: Vec::new(),
    };
    fixture.store.report(&[said]).await.expect("report");

    let now = moving(&Fixture::open(db).await, 10, Duration::ZERO).await;
    assert_eq!(now.newest, ids.last().copied());
    let held: Vec<_> = now.held.iter().map(|held| (held.task_id, held.attempt)).collect();
    assert_eq!(held, [(holds[1].task_id(), 1), (holds[2].task_id(), 1)]);
    let first = &now.held[0];
    assert_eq!((first.class.as_str(), first.queue.as_str()), (WORK, "default"));
    assert_eq!((first.priority, first.instance_id), (3, engine.id));
    assert!(first.claimed_at <= now.now);
    let progress = first.progress.as_ref().expect("it said something");
    assert_eq!((progress.percent, progress.message.as_str()), (40.0, "half"));
    assert_eq!(now.held[1].progress, None);
    assert_eq!(now.next.len(), 1, "one waits: {:?}", now.next);
    assert_eq!(now.next[0].task_id, ids[3]);
}

/// At most this many tasks of each lane, in claim order, including those that are due
/// soon.
pub async fn next_tasks_come_per_lane(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture
        .create_all(&[
            new_task("b").after(Duration::from_secs(60)),
            new_task("a"),
            new_task("a"),
            new_task("a"),
            new_task("a").priority(-5),
            new_task("b").after(2 * HOUR),
        ])
        .await;
    let next =
        |moving: Activity| -> Vec<_> { moving.next.iter().map(|next| next.task_id).collect() };
    let mut due = next(moving(&fixture, 2, Duration::ZERO).await);
    due.sort();
    assert_eq!(due, [ids[1], ids[2], ids[4]]);
    let mut soon = next(moving(&fixture, 2, HOUR).await);
    soon.sort();
    assert_eq!(soon, [ids[0], ids[1], ids[2], ids[4]]);
    assert_eq!(next(moving(&fixture, 9, 10_000 * HOUR).await).len(), 6);
}

/// Each attempt once, oldest first, with the status of its task.
pub async fn endings_are_filtered(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let ids = fixture.create_all(&vec![new_task(WORK); 6]).await;
    let holds = engine.claim(5).await;
    engine.record(&[holds[4].succeeds()]).await;
    engine.record(&[holds[0].fails_and_retries(HOUR)]).await;
    engine.record(&[holds[1].fails()]).await;
    fixture.store.cancel(&[ids[5]]).await.expect("cancel");

    let mut look = EndingsQuery::new(100, HOUR);
    assert_eq!(endings(&fixture, look.clone()).await, [], "nowhere");
    look.of(ids[4]);
    look.of(ids[3]);
    let found = endings(&fixture, look.clone()).await;
    assert_eq!(found.iter().map(EndingRow::id).collect::<Vec<_>>(), [holds[4].id()]);
    let ending = &found[0];
    assert_eq!((ending.class.as_str(), ending.queue.as_str()), (WORK, "default"));
    assert_eq!((ending.instance_id, ending.instance.as_deref()), (Some(engine.id), Some("a")));
    assert_eq!((ending.ends_task, ending.error.as_deref()), (Some(TaskStatus::Stopped), None));
    assert!(ending.started_at.is_some_and(|began| began <= ending.stopped_at));

    look.below(ids.clone(), 9);
    look.after(ids[3]);
    let found = endings(&Fixture::open(db).await, look).await;
    let of: Vec<_> = found.iter().map(|ending| (ending.task_id, ending.ends_task)).collect();
    let expected = [
        (ids[4], Some(TaskStatus::Stopped)),
        (ids[0], None),
        (ids[1], Some(TaskStatus::Failed)),
        (ids[5], Some(TaskStatus::Cancelled)),
    ];
    assert_eq!(of, expected);
    assert_eq!(found[2].error, Some(sample_error().to_string()));
    assert!(found[1].retry_at.is_some() && found[1].error.is_some());
    assert_eq!(found[3].instance_id, None, "it was never claimed");

    let mut look = EndingsQuery::new(100, HOUR);
    look.after(ids[4]);
    let found = endings(&fixture, look).await;
    assert_eq!(found.iter().map(|ending| ending.task_id).collect::<Vec<_>>(), [ids[5]]);
}

/// Old endings are left out, and at most the requested number is read.
pub async fn endings_respect_age_and_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let ids = fixture.create_all(&vec![new_task(WORK); 5]).await;
    let holds = engine.claim(5).await;
    let endings_of: Vec<_> = holds.iter().map(|hold| hold.succeeds()).collect();
    engine.record(&endings_of).await;
    let mut look = EndingsQuery::new(2, HOUR);
    look.below(vec![ids[3]], 1);
    let found = endings(&fixture, look.clone()).await;
    let mut found: Vec<_> = found.iter().map(|ending| ending.task_id).collect();
    found.sort();
    assert_eq!(found, [ids[2], ids[3]]);
    look.age_max = Duration::ZERO;
    assert_eq!(endings(&fixture, look).await, []);
}

/// A retried task is not counted, whatever its status is now.
pub async fn failure_counts_are_current(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let count = |counted| BoundedCount { counted, and_more: false };
    let failure_counts = async || fixture.store.failure_counts().await.expect("failure_counts");
    assert_eq!(failure_counts().await, FailureCounts::default());
    let ids = fixture.create_all(&vec![new_task(WORK); 5]).await;
    let holds = engine.claim(4).await;
    let fails: Vec<_> = holds[..3].iter().map(|hold| hold.fails()).collect();
    engine.record(&fails).await;
    engine.record(&[holds[3].succeeds()]).await;
    fixture.store.cancel(&[ids[4]]).await.expect("cancel");
    assert_eq!(failure_counts().await, FailureCounts { failed: count(3), cancelled: count(1) });
    fixture.store.retry(&ids[..2]).await.expect("retry");
    assert_eq!(failure_counts().await.failed, count(1), "two wait");
    let again = engine.claim(2).await;
    assert_eq!(failure_counts().await.failed, count(1), "two run");
    engine.record(&[again[0].succeeds(), again[1].fails()]).await;
    assert_eq!(failure_counts().await, FailureCounts { failed: count(2), cancelled: count(1) });
}

/// The place of a task is the place in which it is claimed.
pub async fn queue_position_matches_claim_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let classes = ["a", "b"];
    let rules = classes.map(|class| (class, RetryRule::default()));
    let mut new = with_classes(new_instance("e"), &rules);
    new.queues = vec!["x".to_owned(), "y".to_owned()];
    let mut engine = fixture.register(new).await;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut tasks: Vec<NewTask> = Vec::new();
    for _ in 0..60 {
        let task = new_task(classes[rng.usize(0..2)]).priority(rng.i32(-1..2));
        tasks.push(task.queue(["x", "y"][rng.usize(0..2)]).expect("a queue"));
    }
    // In three batches, so that times differ and are equal.
    let mut ids = Vec::new();
    for batch in tasks.chunks(20) {
        ids.extend(fixture.create_all(batch).await);
    }
    fixture.create(new_task("a").queue("x").expect("a queue").priority(1).after(HOUR)).await;
    let mut places = Vec::new();
    for id in &ids {
        let position =
            queue_position(&fixture, *id, &["x", "y"], &classes).await.expect("it waits");
        assert!(!position.and_more);
        places.push((position.counted, *id));
    }
    places.sort();
    let claimed = engine.claim_all(ids.len()).await;
    let order: Vec<_> = claimed.iter().map(crate::fixture::TestAttempt::task_id).collect();
    assert_eq!(places.iter().map(|(_, id)| *id).collect::<Vec<_>>(), order);
    assert_eq!(places.iter().map(|(place, _)| *place).collect::<Vec<_>>(), Vec::from_iter(0..60));
    assert_eq!(queue_position(&fixture, ids[0], &["x"], &classes).await, None, "it runs");
    assert_eq!(
        queue_position(&fixture, TaskId(1 << 40), &["x"], &classes).await,
        None,
        "it never was"
    );
}

/// Only tasks that the same engines claim are counted.
pub async fn queue_position_skips_paused_and_unserved(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let of = |class: &str, queue: &str| new_task(class).queue(queue).expect("a queue");
    let ids = fixture
        .create_all(&[of("a", "x"), of("a", "y"), of("b", "x"), of("c", "x"), of("a", "x")])
        .await;
    let mine = ids[4];
    let places = async |queues: &[&str], classes: &[&str]| {
        queue_position(&fixture, mine, queues, classes).await.expect("it waits").counted
    };
    assert_eq!(places(&["x", "y"], &["a", "b"]).await, 3);
    assert_eq!(places(&["x"], &["a", "b"]).await, 2);
    assert_eq!(places(&["x", "y"], &["a"]).await, 2);
    assert_eq!(places(&[], &[]).await, 0);
    fixture.store.pause_queue(&QueuePause::new("y", None).expect("a pause")).await.expect("pause");
    assert_eq!(places(&["x", "y"], &["a", "b"]).await, 2);
}
