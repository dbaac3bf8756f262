//! Unique tasks: one task per key, also with concurrent creators, and a replaced task
//! runs with the new values.

use std::collections::BTreeMap;
use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_core::task::{NewTask, TaskDetails, TaskId, TaskStatus};
use task_engine_core::unique::key_of;
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_store::contract::CancelReport;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestEngine, WORK, new_task};
use crate::waiting::wait_for;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn numbered(class: &str, n: usize) -> NewTask {
    NewTask::new(class, Json::encode(&serde_json::json!({ "n": n })).unwrap()).unwrap()
}

pub(crate) fn unique(task: NewTask, unique: Unique) -> NewTask {
    task.unique(unique).expect("a key")
}

pub(crate) fn number(parameters: &Json) -> usize {
    let parameters: BTreeMap<String, usize> = parameters.decode().expect("numbered");
    parameters["n"]
}

pub(crate) async fn create_one(fixture: &Fixture, task: NewTask) -> Creation {
    let creations = fixture.store.create_each(&[task]).await.expect("create");
    assert_eq!(creations.len(), 1);
    creations[0]
}

/// Where the task is that has the key.
#[derive(Debug, Clone, Copy)]
enum KeyHolderState {
    Waits,
    WaitsForARetry,
    Runs,
    Stopped,
    Failed,
    Cancelled,
}

impl KeyHolderState {
    const ALL: [Self; 6] = [
        Self::Waits,
        Self::WaitsForARetry,
        Self::Runs,
        Self::Stopped,
        Self::Failed,
        Self::Cancelled,
    ];

    fn status(self) -> TaskStatus {
        match self {
            Self::Waits | Self::WaitsForARetry => TaskStatus::Waiting,
            Self::Runs => TaskStatus::Running,
            Self::Stopped => TaskStatus::Stopped,
            Self::Failed => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }

    /// A task that has this key and is in this state.
    async fn make(self, fixture: &Fixture, engine: &mut TestEngine, key: &str) -> TaskId {
        let task = unique(numbered(WORK, 0), Unique::by(key));
        let task = if matches!(self, Self::Waits) { task.after(HOUR) } else { task };
        let created = create_one(fixture, task).await;
        let Creation::Created(id) = created else { panic!("{key}: {created:?}") };
        let ending = match self {
            Self::Waits => return id,
            Self::Cancelled => {
                let reports = fixture.store.cancel(&[id]).await.expect("cancel");
                assert_eq!(reports, [CancelReport::Cancelled]);
                return id;
            }
            _ => engine.claim_one().await,
        };
        assert_eq!(ending.task_id(), id);
        let ending = match self {
            Self::WaitsForARetry => ending.fails_and_retries(HOUR),
            Self::Stopped => ending.succeeds(),
            Self::Failed => ending.fails(),
            _ => return id,
        };
        assert_eq!(engine.record(&[ending]).await, []);
        id
    }
}

/// For every scope, action and state of the task with the key, the store does what the
/// model expects.
pub async fn unique_key_respects_scope_and_status(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for scope in [Scope::Waiting, Scope::Active, Scope::Within(HOUR)] {
        for answer in OnConflict::ALL {
            for holder in KeyHolderState::ALL {
                let key = format!("{scope:?} {answer:?} {holder:?}");
                let old = holder.make(&fixture, &mut engine, &key).await;
                let before = fixture.details(old).await;
                let new = numbered(WORK, 1).after(HOUR * 2).priority(3).queue("slow").unwrap();
                let new = unique(new, Unique::by(&key).scope(scope).on_conflict(answer));
                let creation = create_one(&fixture, new).await;
                let status = holder.status();
                if !scope.covers(status, Duration::ZERO) {
                    let Creation::Created(id) = creation else { panic!("{key}: {creation:?}") };
                    assert_ne!(id, old, "{key}");
                    assert_eq!(fixture.details(old).await, before, "{key}");
                    assert_is(&fixture.details(id).await, &key, 1, HOUR * 2);
                } else if answer.changes(status) {
                    assert_eq!(creation, Creation::Replaced(old), "{key}");
                    let after = fixture.details(old).await;
                    let n = usize::from(answer.takes_parameters());
                    let wait = if answer.takes_time() { HOUR * 2 } else { HOUR };
                    assert_is(&after, &key, n, wait);
                    assert_eq!(after.row.attempts, before.row.attempts, "{key}");
                    assert_eq!(after.row.retry_number, 0, "{key}: it has all its retries");
                    assert_eq!(after.row.created_at, before.row.created_at, "{key}");
                    let all = answer == OnConflict::Replace;
                    let place = if all { ("slow", 3) } else { ("default", 0) };
                    assert_eq!((after.row.queue.as_str(), after.row.priority), place, "{key}");
                } else {
                    assert_eq!(creation, Creation::Kept(old), "{key}");
                    assert_eq!(fixture.details(old).await, before, "{key}");
                }
            }
        }
    }
}

fn assert_is(details: &TaskDetails, key: &str, n: usize, wait: Duration) {
    assert_eq!(details.row.status, TaskStatus::Waiting, "{key}");
    assert_eq!(key_of(&details.context).as_deref(), Some(key));
    assert_eq!(number(&details.parameters), n, "{key}");
    let off = details.row.scheduled_at.duration_since(details.row.created_at).as_secs_f64()
        - wait.as_secs_f64();
    assert!((-1.0..20.0).contains(&off), "{key}: due {off} s off");
}

/// A replaced retry runs as the next attempt, with the values of the last call.
pub async fn replaced_task_runs_with_new_values(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let key = Unique::by("k").scope(Scope::Waiting).on_conflict(OnConflict::Replace);
    let mut first = unique(numbered(WORK, 1), key.clone());
    first.context = Json::parse(r#"{"from":"first"}"#).unwrap();
    let id = create_one(&fixture, first).await.id();
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_retries(HOUR)]).await, []);
    let mut second = unique(numbered(WORK, 2).priority(5), key);
    second.context = Json::parse(r#"{"by":"second"}"#).unwrap();
    assert_eq!(create_one(&fixture, second).await, Creation::Replaced(id));

    engine.wake();
    let hold = engine.claim_one().await;
    assert_eq!((hold.task_id(), hold.id().attempt, hold.task.retry_number), (id, 2, 0));
    assert_eq!((number(&hold.task.parameters), hold.task.priority), (2, 5));
    let context: serde_json::Value = hold.task.context.decode().unwrap();
    assert_eq!(context, serde_json::json!({"by": "second", "unique_key": "k"}));
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    assert_eq!(fixture.details(id).await.executions.len(), 2);
}

/// A period counts from the creation, and ends.
pub async fn unique_period_ends(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let within = |period| unique(new_task(WORK), Unique::by("k").scope(Scope::Within(period)));
    let first = create_one(&fixture, within(HOUR)).await.id();
    assert_eq!(create_one(&fixture, within(HOUR)).await, Creation::Kept(first));
    let short = Duration::from_millis(20);
    let second = wait_for("the period ends", async || {
        Some(create_one(&fixture, within(short)).await).filter(|creation| creation.is_new())
    });
    let second = second.await.id();
    assert_ne!(second, first);
    assert_eq!(fixture.status(first).await, TaskStatus::Waiting, "only its key has gone over");
    assert_eq!(create_one(&fixture, within(HOUR)).await, Creation::Kept(second));
}

/// A key is a key of its class.
pub async fn classes_have_separate_keys(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for class in ["a", "b"] {
        for key in ["k", "K", "k ", "'; DROP TABLE tasks; --", "ключ", "\u{1F511}"] {
            let task = unique(new_task(class), Unique::by(key));
            let created = create_one(&fixture, task.clone()).await;
            assert!(created.is_new(), "{class} {key}: {created:?}");
            assert_eq!(create_one(&fixture, task).await, Creation::Kept(created.id()));
            assert_eq!(key_of(&fixture.details(created.id()).await.context).as_deref(), Some(key));
        }
    }
    assert!(create_one(&fixture, new_task("a")).await.is_new(), "without a key");
}

/// In one call, the second task with a key conflicts with the first. Tasks without a key
/// are not affected. The replies are in order.
pub async fn duplicate_key_in_one_call(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let old = create_one(&fixture, unique(numbered(WORK, 0), Unique::by("old"))).await.id();
    let hold = engine.claim_one().await;
    assert_eq!(hold.task_id(), old);
    let replace = |key: &str| Unique::by(key).on_conflict(OnConflict::Replace);
    let waiting = |key: &str| Unique::by(key).scope(Scope::Waiting);
    let tasks = [
        unique(numbered(WORK, 1), Unique::by("z")),
        numbered(WORK, 2),
        unique(numbered(WORK, 3), Unique::by("old")),
        unique(numbered(WORK, 4), Unique::by("z")),
        unique(numbered(WORK, 5), waiting("old")),
        unique(numbered(WORK, 6), replace("a")),
        unique(numbered(WORK, 7).after(HOUR), replace("a")),
        unique(numbered(WORK, 8), Unique::by("a").on_conflict(OnConflict::ReplaceParameters)),
        unique(numbered(WORK, 9), Unique::by("old")),
        numbered(WORK, 10),
    ];
    let creations = fixture.store.create_each(&tasks).await.expect("create");
    let ids: Vec<_> = creations.iter().map(|creation| creation.id()).collect();
    use Creation::{Created, Kept, Replaced};
    let expected = [
        Created(ids[0]),
        Created(ids[1]),
        Kept(old),
        Kept(ids[0]),
        Created(ids[4]),
        Created(ids[5]),
        Replaced(ids[5]),
        Replaced(ids[5]),
        Kept(ids[4]),
        Created(ids[9]),
    ];
    assert_eq!(creations, expected);
    let new: Vec<_> = creations.iter().filter(|one| one.is_new()).map(|one| one.id()).collect();
    assert!(new.is_sorted_by(|a, b| a < b), "ids grow in the order of the call: {new:?}");
    assert_eq!(fixture.list(None).await.len(), 6);
    let a = fixture.details(ids[5]).await;
    assert_is(&a, "a", 8, HOUR);
    assert_eq!(key_of(&fixture.details(ids[1]).await.context), None);
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
}

/// A running task does not conflict with a waiting one, depending on the scope. Its own
/// retries are not creations.
pub async fn key_belongs_to_last_created(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let task = |n| unique(numbered(WORK, n), Unique::by("k").scope(Scope::Waiting));
    let first = create_one(&fixture, task(1)).await.id();
    let hold = engine.claim_one().await;
    let second = create_one(&fixture, task(2)).await;
    assert!(second.is_new());
    assert_eq!(engine.record(&[hold.fails_and_retries(HOUR)]).await, []);
    assert_eq!(
        fixture.list(Some(TaskStatus::Waiting)).await.len(),
        2,
        "a retry does not check uniqueness"
    );
    assert_eq!(create_one(&fixture, task(3)).await, Creation::Kept(second.id()));
    let reports = fixture.store.cancel(&[second.id()]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Cancelled]);
    assert!(
        create_one(&fixture, task(4)).await.is_new(),
        "the key is not that of {first} any more"
    );
}

/// Retention removes a key with its task, and leaves it if it is another's.
pub async fn retention_frees_keys(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let within = |n| unique(numbered(WORK, n), Unique::by("k").scope(Scope::Within(HOUR)));
    let prune = async || {
        let pruned = fixture.store.prune(TaskStatus::Cancelled, Duration::ZERO, 100);
        pruned.await.expect("prune")
    };
    let first = create_one(&fixture, within(1)).await.id();
    fixture.store.cancel(&[first]).await.expect("cancel");
    assert_eq!(create_one(&fixture, within(2)).await, Creation::Kept(first));
    assert_eq!(prune().await, 1);
    let second = create_one(&fixture, within(3)).await;
    assert!(second.is_new(), "{second:?}");
    fixture.store.cancel(&[second.id()]).await.expect("cancel");
    let third = create_one(&fixture, unique(numbered(WORK, 4), Unique::by("k"))).await;
    assert!(third.is_new(), "{third:?}");
    assert_eq!(prune().await, 1, "the second");
    assert_eq!(create_one(&fixture, within(5)).await, Creation::Kept(third.id()));
}

/// An invalid key or period is refused with the whole call, by the store too.
pub async fn invalid_keys_are_rejected(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for bad in [String::new(), "x".repeat(501)] {
        let mut task = new_task(WORK);
        task.unique = Some(Unique::by(bad));
        let refused = fixture.store.create_each(&[new_task(WORK), task]).await;
        assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    }
    assert_eq!(fixture.list(None).await, []);
    let longest = unique(new_task(WORK), Unique::by("é".repeat(250)));
    assert!(create_one(&fixture, longest).await.is_new());
}
