//! Claims: each task at least once, one attempt at a time, in order, and only the
//! requested classes and queues.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::json::Json;
use task_engine_core::task::{NewTask, TaskId, TaskOptions, TaskStatus};
use task_engine_store::claim::ClaimRest;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_instance, new_task, task_ids, with_classes};
use crate::waiting::{poll_then_drop, run_concurrently, wait_for};

/// A claim brings everything that an engine needs to run the task.
pub async fn claim_returns_complete_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let due: Timestamp = "2020-01-02T03:04:05.678Z".parse().unwrap();
    let mut task =
        NewTask::new(WORK, Json::parse(r#"{"a":[1,2]}"#).unwrap()).unwrap().priority(9).at(due);
    task.context = Json::parse(r#"{"correlation_id":"7"}"#).unwrap();
    let id = fixture.create(task).await;
    let mut engine = fixture.engine("a").await;
    let (holds, _) = engine.claim_up_to(10).await;
    let [hold] = &holds[..] else { panic!("one task, not {holds:?}") };
    let claimed = &hold.task;
    assert_eq!((claimed.id.task_id, claimed.id.attempt), (id, 1));
    assert_eq!(claimed.retry_number, 0);
    assert_eq!(claimed.class, WORK);
    assert_eq!(claimed.queue, "default");
    assert_eq!(claimed.priority, 9);
    assert_eq!(claimed.due_at, due);
    let value = |json: &Json| json.decode::<serde_json::Value>().unwrap();
    assert_eq!(value(&claimed.parameters), serde_json::json!({"a": [1, 2]}));
    assert_eq!(value(&claimed.context), serde_json::json!({"correlation_id": "7"}));

    let row = fixture.details(id).await.row;
    assert_eq!((row.status, row.attempts), (TaskStatus::Running, 1));
    assert_eq!(row.instance.as_deref(), Some("a"));
}

/// A claim takes at most its limit, and reports that there is more.
pub async fn claim_respects_its_limit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(5).await;
    let mut engine = fixture.engine("a").await;
    let (holds, rest) = engine.claim_up_to(3).await;
    assert_eq!(task_ids(&holds), ids[..3]);
    assert_eq!(rest, ClaimRest::More);
    assert_eq!(fixture.list(Some(TaskStatus::Waiting)).await.len(), 2);
    assert_eq!(task_ids(&engine.claim_all(3).await), ids[3..]);
    let (none, rest) = engine.claim_up_to(3).await;
    assert_eq!(none.len(), 0);
    assert_eq!(rest, ClaimRest::Nothing { next_in: None });
}

/// Many claimers on many handles claim thousands of tasks, each exactly once.
pub async fn concurrent_claimers_claim_each_task_once(db: &dyn TestDatabase) {
    const COUNT: usize = 4000;
    let mut ids = Fixture::open(db).await.create_work(COUNT).await;
    let mut claimers = Vec::new();
    for handle in 0..4 {
        let fixture = Fixture::open(db).await;
        for n in 0..2 {
            let mut engine = fixture.engine(&format!("engine-{handle}-{n}")).await;
            claimers.push(async move { engine.claim_all(17 + 20 * n).await });
        }
    }
    let holds = run_concurrently(claimers).await.concat();
    assert!(holds.iter().all(|hold| hold.id().attempt == 1));
    let mut claimed = task_ids(&holds);
    claimed.sort();
    ids.sort();
    assert_eq!(claimed.len(), COUNT, "each once");
    assert_eq!(claimed, ids);
}

/// Higher priority first, then the earlier time, then the smaller id, for all classes and
/// batch sizes.
pub async fn claims_follow_priority_time_and_id(db: &dyn TestDatabase) {
    let classes = ["a", "b", "c"];
    let options = classes.map(|class| (class, TaskOptions::default().retry));
    let fixture = Fixture::open(db).await;
    let due = |secs: i64| Timestamp::from_second(1_000_000_000 + secs).unwrap();
    let mut tasks = Vec::new();
    for n in 0..60_i64 {
        let priority = [0, i32::MAX, -3, 8, i32::MIN][(n % 5) as usize];
        let class = classes[(n % 3) as usize];
        tasks.push(new_task(class).priority(priority).at(due((n * 7) % 4)));
    }
    let ids = fixture.create_all(&tasks).await;
    let mut expected: Vec<(i32, i64, TaskId)> = tasks
        .iter()
        .zip(0..)
        .zip(ids)
        .map(|((task, n), id)| (task.priority, (n * 7_i64) % 4, id))
        .collect();
    expected.sort_by_key(|(priority, due, id)| (std::cmp::Reverse(*priority), *due, *id));
    let expected: Vec<_> = expected.into_iter().map(|(.., id)| id).collect();

    let mut engine = fixture.register(with_classes(new_instance("e"), &options)).await;
    let mut claimed = Vec::new();
    for limit in [1, 4, 7, 13, 60] {
        claimed.extend(task_ids(&engine.claim_up_to(limit).await.0));
    }
    claimed.extend(task_ids(&engine.claim_all(60).await));
    assert_eq!(claimed, expected);
}

/// A claim returns only the requested classes and queues. Other tasks do not make it
/// report that there is more.
pub async fn claim_respects_classes_and_queues(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut ids = BTreeMap::new();
    for class in ["mine", "yours"] {
        for queue in ["fast", "slow", "other"] {
            let task = new_task(class).queue(queue).unwrap();
            ids.insert((class, queue), fixture.create(task).await);
        }
    }
    let rule = TaskOptions::default().retry;
    let mut mine = with_classes(new_instance("mine"), &[("mine", rule)]);
    mine.queues = vec!["slow".into(), "fast".into()];
    let mut mine = fixture.register(mine).await;
    let mut claimed = task_ids(&mine.claim_all(10).await);
    claimed.sort();
    assert_eq!(claimed, [ids[&("mine", "fast")], ids[&("mine", "slow")]]);
    let (_, rest) = mine.claim_up_to(10).await;
    assert_eq!(rest, ClaimRest::Nothing { next_in: None });

    let both = [("mine", rule), ("yours", rule)];
    let mut other = with_classes(new_instance("other"), &both);
    other.queues = vec!["other".into()];
    let mut other = fixture.register(other).await;
    assert_eq!(other.claim_all(10).await.len(), 2);
    assert_eq!(fixture.list(Some(TaskStatus::Waiting)).await.len(), 2);
}

/// Many tasks of a higher priority that cannot run (unknown class, or not yet due) do not
/// hide tasks that can.
pub async fn unserved_tasks_do_not_hide_others(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let unknown = vec![new_task("unknown").priority(5); 3000];
    fixture.create_all(&unknown).await;
    let later = new_task(WORK).priority(9).after(Duration::from_secs(7200));
    fixture.create_all(&vec![later; 3000]).await;
    let ids = fixture.create_work(10).await;
    let mut engine = fixture.engine("a").await;
    assert_eq!(task_ids(&engine.claim_all(4).await), ids);
}

/// A future task is not claimed. The claim reports the time until it is due.
pub async fn future_task_is_not_claimed_early(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let (_, rest) = engine.claim_up_to(10).await;
    assert_eq!(rest, ClaimRest::Nothing { next_in: None });

    let hours = |n: u64| Duration::from_secs(3600 * n);
    let id = fixture.create(new_task(WORK).after(hours(2))).await;
    fixture.create(new_task(WORK).priority(-5).after(hours(3))).await;
    // Due earlier, but of a class that this engine does not serve.
    fixture.create(new_task("unknown").after(hours(1))).await;
    let other_queue = new_task(WORK).after(hours(1)).queue("other").unwrap();
    fixture.create(other_queue).await;
    let next_in = engine_is_told_to_wait(engine.claim_up_to(10).await);
    assert!(
        next_in <= hours(2) && next_in > hours(2) - Duration::from_secs(60),
        "{next_in:?} instead of 2 hours"
    );
    let sooner = new_task(WORK).priority(-9).after(Duration::from_secs(600));
    fixture.create(sooner).await;
    engine.wake();
    let next_in = engine_is_told_to_wait(engine.claim_up_to(10).await);
    assert!(next_in <= Duration::from_secs(600), "{next_in:?}");
    assert!(next_in > Duration::from_secs(540), "{next_in:?}");
    assert_eq!(fixture.status(id).await, TaskStatus::Waiting);
}

/// A task that is due in 150 ms can be claimed when the reported time is over, and not
/// before it is due.
pub async fn scheduled_task_is_claimed_on_time(db: &dyn TestDatabase) {
    let wait = Duration::from_millis(150);
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let asked = Instant::now();
    let id = fixture.create(new_task(WORK).after(wait)).await;
    // Rounding may wake an engine a moment too early, but not again and again.
    for _ in 0..5 {
        let (holds, rest) = engine.claim_up_to(10).await;
        if let [hold] = &holds[..] {
            let waited = asked.elapsed();
            // A store may round its clock to the millisecond.
            assert!(waited >= wait - Duration::from_millis(2), "{waited:?}");
            let row = fixture.details(id).await.row;
            let due_after = hold.task.due_at.duration_since(row.created_at);
            assert!(due_after >= SignedDuration::from_millis(149), "{due_after}");
            return;
        }
        let ClaimRest::Nothing { next_in: Some(next_in) } = rest else {
            panic!("a task is due soon, but the rest is {rest:?}")
        };
        assert!(next_in <= wait, "{next_in:?}");
        tokio::time::sleep(next_in).await;
    }
    panic!("not available at the time that its claim reported");
}

/// The cached positions of a claimer never hide a newer task that sorts first, by an
/// earlier time or a higher priority.
pub async fn late_tasks_sorting_first_are_claimed(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let old: Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
    fixture.create_work(50).await;
    engine.claim(20).await;
    // Without a wake-up: the claimer scans again before it reports "empty".
    let older = fixture.create(new_task(WORK).at(old)).await;
    let rest = task_ids(&engine.claim_all(7).await);
    assert_eq!(rest.len(), 31);
    assert!(rest.contains(&older));
    // The same once more from an empty queue.
    let older = fixture.create(new_task(WORK).at(old)).await;
    assert_eq!(task_ids(&engine.claim_all(7).await), [older]);

    // CancelResponse by a wake-up: first in line.
    fixture.create_work(50).await;
    engine.claim(20).await;
    let older = fixture.create(new_task(WORK).at(old)).await;
    let higher = fixture.create(new_task(WORK).priority(1)).await;
    engine.wake();
    let rest = task_ids(&engine.claim_all(7).await);
    assert_eq!(rest[..2], [higher, older]);
    assert_eq!(rest.len(), 32);
}

/// A claim whose caller is dropped takes nothing, or its tasks are reported at the
/// heartbeat. No task is held without its engine knowing it.
pub async fn lost_claim_reply_is_found_again(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut ids = fixture.create_work(200).await;
    let mut engine = fixture.engine("a").await;
    for steps in 0..20 {
        let claim_id = engine.next_claim_id();
        let claim = engine.claimer().claim(claim_id, 10);
        if let Some(answer) = poll_then_drop(claim, steps % 5).await {
            answer.expect("claim");
        }
    }
    // A dropped claim may still be in progress. So this claims repeatedly, and releases
    // unknown claims, until it has all tasks.
    ids.sort();
    let mut holds = Vec::new();
    wait_for("every task is in known hands", async || {
        holds.extend(engine.claim_all(50).await);
        let mut unknown = engine.heartbeat().await.claims;
        unknown.retain(|claim| holds.iter().all(|hold| hold.claim_id != *claim));
        engine.reclaim_unknown(unknown).await;
        (holds.len() >= ids.len()).then_some(())
    })
    .await;
    assert!(holds.iter().all(|hold| hold.task.retry_number == 0));
    let mut claimed = task_ids(&holds);
    claimed.sort();
    assert_eq!(claimed, ids);
}

fn engine_is_told_to_wait(
    (holds, rest): (Vec<crate::fixture::TestAttempt>, ClaimRest),
) -> Duration {
    assert_eq!(holds.len(), 0, "nothing is due");
    match rest {
        ClaimRest::Nothing { next_in: Some(next_in) } => next_in,
        other => panic!("a task is due later, but the rest is {other:?}"),
    }
}
