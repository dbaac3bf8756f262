//! Durable tasks, as far as a file differs from a server.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Engine, File, task};
use rusqlite::Connection;
use task_engine_core::attempt::{AttemptId, AttemptRecord, NextState, TaskError};
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::recovery::Reclaim;
use task_engine_core::step::{
    NewCall, NewStep, SignalStatus, SignalTarget, StepContent, StepKind, StepOutcome,
    SuspendOutcome, Suspension, WaitOutcome,
};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::Unique;
use task_engine_sqlite::{SqliteStore, record_step_in, recorded_step_in, signal_in};
use task_engine_store::claim::ClaimedTask;
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(3600);

/// A held task.
struct Scene {
    file: File,
    store: SqliteStore,
    engine: Engine,
    claim: ClaimId,
    task: ClaimedTask,
}

async fn scene() -> Scene {
    scene_of(task("work")).await
}

async fn scene_of(task: NewTask) -> Scene {
    let file = File::with_tables().await;
    let store = file.open();
    store.create(&[task]).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    let (claim, mut tasks) = engine.claim(1).await;
    file.connect().execute_batch("CREATE TABLE effects (task_id INTEGER)").unwrap();
    Scene { file, store, engine, claim, task: tasks.tasks.remove(0) }
}

impl Scene {
    fn id(&self) -> TaskId {
        self.task.id.task_id
    }

    fn step(&self, name: &str, number: u32, content: StepContent) -> NewStep {
        NewStep {
            id: self.task.id,
            claim_id: self.claim,
            name: name.to_owned(),
            number,
            content,
            lasted: Duration::ZERO,
        }
    }

    fn result(&self, name: &str, number: u32) -> NewStep {
        self.step(name, number, StepContent::Value(json(&number.to_string())))
    }

    async fn record(&self, step: NewStep) -> StepOutcome {
        self.store.record_steps(&[step]).await.unwrap().remove(0)
    }

    async fn call(&self, number: u32, children: usize) -> Vec<TaskId> {
        let call = NewCall {
            id: self.task.id,
            claim_id: self.claim,
            name: "work".to_owned(),
            number,
            children: vec![task("work"); children],
        };
        match self.store.record_call(&call).await.unwrap() {
            StepOutcome::Recorded { children, .. } => children,
            other => panic!("{other:?}"),
        }
    }

    fn snooze(&self) -> AttemptRecord {
        AttemptRecord {
            result: None,
            error: Some(TaskError::new(TaskError::SNOOZED, "it waits")),
            next: NextState::Wait { after: HOUR, retry_number: self.task.retry_number },
            ..self.engine.success(self.claim, &self.task)
        }
    }

    async fn suspend_for_signal(&self, name: &str) -> SuspendOutcome {
        self.suspend(vec![name.to_owned()], None).await
    }

    async fn suspend_for_children(&self) -> SuspendOutcome {
        self.suspend(Vec::new(), Some(TaskId(0))).await
    }

    async fn suspend(&self, signals: Vec<String>, children_from: Option<TaskId>) -> SuspendOutcome {
        let record = self.snooze();
        let suspension = Suspension { record, until: None, signals, children_from };
        self.store.suspend(&[suspension]).await.unwrap().remove(0)
    }

    async fn signal(&self, name: &str) -> SignalStatus {
        let target = SignalTarget::Id(self.id());
        self.store.signal(&target, name, &Json::null()).await.unwrap().status
    }

    /// Claims the next task, and ends it.
    async fn end_next_task(&mut self) -> TaskId {
        let (claim, tasks) = self.engine.claim(1).await;
        let task = &tasks.tasks[0];
        let ending = self.engine.success(claim, task);
        assert_eq!(self.store.record(&[ending], &[claim]).await.unwrap(), []);
        task.id.task_id
    }

    /// Claims the task of this scene again.
    async fn continue_task(&mut self) {
        let (claim, mut tasks) = self.engine.claim(1).await;
        assert_eq!(tasks.tasks.len(), 1);
        let task = tasks.tasks.remove(0);
        assert_eq!(task.id, AttemptId { attempt: self.task.id.attempt + 1, ..self.task.id });
        (self.claim, self.task) = (claim, task);
    }

    async fn suspended(&self) -> bool {
        self.store.heartbeat(self.engine.id).await.unwrap().tasks_suspended
    }

    fn effects(&self) -> i64 {
        count(&self.file.connect(), "effects")
    }

    async fn verify(&self) {
        assert_eq!(self.store.verify().await.unwrap(), []);
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn count(connection: &Connection, table: &str) -> i64 {
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn step_commits_with_application_transaction() {
    let scene = scene().await;
    let mut connection = scene.file.connect();
    let step = scene.result("pay", 1);
    for commit in [false, true] {
        let transaction = connection.transaction().unwrap();
        transaction.execute("INSERT INTO effects VALUES (1)", []).unwrap();
        assert_eq!(recorded_step_in(&transaction, scene.id(), "pay").unwrap(), None);
        record_step_in(&transaction, &step).unwrap();
        let row = recorded_step_in(&transaction, scene.id(), "pay").unwrap().unwrap();
        assert_eq!((row.number, row.kind, row.result), (1, StepKind::Step, Some(json("1"))));
        if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
        let steps = scene.store.steps(scene.id()).await.unwrap().steps;
        assert_eq!(steps.len(), usize::from(commit));
        assert_eq!(scene.effects(), i64::from(commit));
    }
    scene.verify().await;
}

#[tokio::test]
async fn second_record_rolls_transaction_back() {
    let scene = scene().await;
    assert!(matches!(scene.record(scene.result("pay", 1)).await, StepOutcome::Recorded { .. }));
    let mut connection = scene.file.connect();
    let transaction = connection.transaction().unwrap();
    transaction.execute("INSERT INTO effects VALUES (1)", []).unwrap();
    let again = record_step_in(&transaction, &scene.result("pay", 2)).unwrap_err();
    let message = format!(
        "step \"pay\" of task {} is recorded already; roll back: the recorded result counts",
        scene.id()
    );
    assert_eq!(again, StoreError::Refused(message));
    assert!(transaction.is_autocommit());
    drop(transaction);
    assert_eq!(scene.effects(), 0);
    let steps = scene.store.steps(scene.id()).await.unwrap().steps;
    assert_eq!((steps.len(), steps[0].number), (1, 1));
}

#[tokio::test]
async fn step_of_ended_attempt_rolls_transaction_back() {
    let scene = scene().await;
    assert!(scene.store.declare_lost(scene.engine.id, true).await.unwrap());
    scene.store.reclaim(Reclaim::Lost(scene.engine.id)).await.unwrap();
    assert_eq!(scene.record(scene.result("pay", 1)).await, StepOutcome::AttemptOver);
    let mut connection = scene.file.connect();
    let transaction = connection.transaction().unwrap();
    transaction.execute("INSERT INTO effects VALUES (1)", []).unwrap();
    let over = record_step_in(&transaction, &scene.result("pay", 1));
    assert_eq!(over, Err(StoreError::AttemptOver(scene.task.id)));
    assert!(transaction.is_autocommit());
    drop(transaction);
    assert_eq!(scene.effects(), 0);
    scene.verify().await;
}

/// After an error that is not about the step, the application decides.
#[tokio::test]
async fn other_error_keeps_transaction_open() {
    let scene = scene().await;
    let mut connection = scene.file.connect();
    let transaction = connection.transaction().unwrap();
    transaction.execute("INSERT INTO effects VALUES (1)", []).unwrap();
    let refused = record_step_in(&transaction, &scene.result("", 1));
    assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    let target = SignalTarget::Id(scene.id());
    let refused = signal_in(&transaction, &target, "a#1", &Json::null());
    let why = "invalid name of a signal: \"a#1\"";
    assert!(matches!(&refused, Err(StoreError::Refused(it)) if it.contains(why)), "{refused:?}");
    transaction.commit().unwrap();
    assert_eq!(scene.effects(), 1);
}

#[tokio::test]
async fn signal_in_transaction_wakes_after_commit() {
    let mut scene = scene().await;
    assert_eq!(scene.suspend_for_signal("paid").await, SuspendOutcome::Suspended(None));
    assert!(scene.suspended().await);

    // A second store on the file hears of the commit.
    let (heard, listener) = (Arc::new(Notify::new()), scene.file.open());
    let listening = tokio::spawn({
        let heard = heard.clone();
        async move {
            let hear = move |wake_up| {
                if wake_up == WakeUp::Work {
                    heard.notify_one();
                }
            };
            listener.listen(&hear).await
        }
    });
    heard.notified().await;

    let mut connection = scene.file.connect();
    let target = SignalTarget::Id(scene.id());
    let transaction = connection.transaction().unwrap();
    let sent = signal_in(&transaction, &target, "paid", &json("7")).unwrap();
    assert_eq!((sent.task_id, sent.status), (Some(scene.id()), SignalStatus::Delivered));
    transaction.rollback().unwrap();
    assert!(scene.store.steps(scene.id()).await.unwrap().signals.is_empty());
    assert!(scene.engine.claim(1).await.1.tasks.is_empty());

    let transaction = connection.transaction().unwrap();
    signal_in(&transaction, &target, "paid", &json("7")).unwrap();
    transaction.commit().unwrap();
    tokio::time::timeout(Duration::from_secs(10), heard.notified()).await.expect("a wake-up");
    listening.abort();
    scene.continue_task().await;
    let signals = scene.store.steps(scene.id()).await.unwrap().signals;
    assert_eq!((signals[0].payload.as_str(), signals[0].timed_out), ("7", false));
    assert!(!scene.suspended().await);
    scene.verify().await;
}

#[tokio::test]
async fn signal_statuses() {
    let mut scene = scene_of(task("work").unique(Unique::by("order-1")).unwrap()).await;
    let unique = |key: &str| SignalTarget::UniqueKey { class: "work".into(), key: key.into() };
    let missing = scene.store.signal(&unique("order-2"), "paid", &Json::null()).await.unwrap();
    assert_eq!((missing.task_id, missing.status), (None, SignalStatus::NotFound));
    let kept = scene.store.signal(&unique("order-1"), "paid", &json("1")).await.unwrap();
    assert_eq!((kept.task_id, kept.status), (Some(scene.id()), SignalStatus::Kept));
    assert_eq!(scene.signal("paid").await, SignalStatus::Duplicate);

    // The write of a wait returns the early signal, and a suspension is over at once.
    let wait = scene.record(scene.step("paid", 1, StepContent::Wait(HOUR))).await;
    let StepOutcome::Recorded { signal: Some(signal), until: Some(until), now, .. } = wait else {
        panic!("{wait:?}");
    };
    assert_eq!(signal.payload.as_str(), "1");
    assert_eq!(until.as_microsecond() - now.as_microsecond(), 3_600_000_000);
    assert_eq!(scene.suspend_for_signal("paid").await, SuspendOutcome::Suspended(None));
    assert!(!scene.suspended().await);
    scene.continue_task().await;

    let (id, claim) = (scene.task.id, scene.claim);
    let won = scene.store.time_out(id, claim, "paid").await.unwrap();
    assert_eq!(won, WaitOutcome::Decided(signal));
    let lost = scene.store.time_out(id, claim, "sent").await.unwrap();
    assert!(matches!(&lost, WaitOutcome::Decided(row) if row.timed_out), "{lost:?}");
    assert_eq!(scene.store.time_out(id, claim, "sent").await.unwrap(), lost);
    assert_eq!(scene.signal("sent").await, SignalStatus::TimedOut);
    let ending = scene.engine.success(claim, &scene.task);
    scene.store.record(&[ending], &[claim]).await.unwrap();
    assert_eq!(scene.signal("late").await, SignalStatus::TaskEnded);
    let over = scene.store.time_out(id, claim, "late").await.unwrap();
    assert_eq!(over, WaitOutcome::AttemptOver);
    scene.verify().await;
}

#[tokio::test]
async fn parent_continues_after_last_child() {
    let mut scene = scene().await;
    let children = scene.call(1, 3).await;
    let again = NewCall {
        id: scene.task.id,
        claim_id: scene.claim,
        name: "work".to_owned(),
        number: 1,
        children: vec![task("work")],
    };
    assert_eq!(scene.store.record_call(&again).await.unwrap(), StepOutcome::Exists);
    let steps = scene.store.steps(scene.id()).await.unwrap().steps;
    assert_eq!(steps[0].children(), children);
    let first = SuspendOutcome::Suspended(Some(children[0]));
    assert_eq!(scene.suspend_for_children().await, first);
    // The engine lost the answer.
    assert_eq!(scene.suspend_for_children().await, first);

    let outcomes = scene.store.child_outcomes(&newest(&children)).await.unwrap();
    assert_eq!(outcomes, [None, None, None]);
    for (n, child) in children.iter().enumerate() {
        assert_eq!(scene.end_next_task().await, *child);
        let due = scene.store.resume_parents(&[*child]).await.unwrap();
        assert_eq!(due, u64::from(n == 2), "after child {n}");
    }
    scene.store.delete(&children[..1]).await.unwrap();
    let outcomes = scene.store.child_outcomes(&newest(&children)).await.unwrap();
    let statuses: Vec<_> = outcomes.into_iter().map(|it| it.unwrap().status).collect();
    assert_eq!(statuses, [None, Some(TaskStatus::Stopped), Some(TaskStatus::Stopped)]);
    scene.continue_task().await;
    // All children have ended: the task is due at once.
    assert_eq!(scene.suspend_for_children().await, SuspendOutcome::Suspended(None));
    scene.continue_task().await;
    scene.verify().await;
}

#[tokio::test]
async fn missed_wake_ups_are_made_up() {
    let mut scene = scene().await;
    let children = scene.call(1, 2).await;
    scene.suspend_for_children().await;
    scene.end_next_task().await;
    // The first child has ended: the second one is watched.
    assert_eq!(scene.store.resume_missed(TaskId(0), 10).await.unwrap(), None);
    let watching: i64 = scene
        .file
        .connect()
        .query_row("SELECT watching FROM task_engine_suspended_tasks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(watching, children[1].0);
    scene.end_next_task().await;
    assert_eq!(scene.store.resume_missed(TaskId(0), 1).await.unwrap(), Some(scene.id()));
    assert_eq!(scene.store.resume_missed(scene.id(), 1).await.unwrap(), None);
    scene.continue_task().await;

    // A signal that another program has only inserted.
    scene.suspend_for_signal("paid").await;
    let insert = format!(
        "INSERT INTO task_engine_signals (task_id, name, payload, sent_at) VALUES ({}, 'paid', '1', 0)",
        scene.id()
    );
    scene.file.connect().execute_batch(&insert).unwrap();
    scene.store.resume_missed(TaskId(0), 10).await.unwrap();
    scene.continue_task().await;
    assert!(!scene.suspended().await);
    scene.verify().await;
}

#[tokio::test]
async fn row_of_resumed_task_is_removed() {
    let mut scene = scene().await;
    scene.suspend_for_signal("paid").await;
    // An operator continues the task before the signal.
    scene.store.retry(&[scene.id()]).await.unwrap();
    scene.continue_task().await;
    assert_eq!(scene.signal("paid").await, SignalStatus::Kept);
    assert_eq!(count(&scene.file.connect(), "task_engine_suspended_tasks"), 0);

    scene.suspend_for_signal("sent").await;
    scene.store.retry(&[scene.id()]).await.unwrap();
    scene.continue_task().await;
    assert!(scene.suspended().await);
    scene.store.resume_missed(TaskId(0), 10).await.unwrap();
    assert!(!scene.suspended().await);
    scene.verify().await;
}

#[tokio::test]
async fn cancel_request_ends_suspended_task() {
    let scene = scene().await;
    scene.store.cancel(&[scene.id()]).await.unwrap();
    assert_eq!(scene.suspend_for_signal("paid").await, SuspendOutcome::Suspended(None));
    let task = scene.store.task(scene.id()).await.unwrap().unwrap();
    assert_eq!(task.row.status, TaskStatus::Cancelled);
    assert!(!scene.suspended().await);
    assert_eq!(scene.signal("paid").await, SignalStatus::TaskEnded);
    scene.verify().await;
}

#[tokio::test]
async fn suspension_of_reclaimed_attempt_is_late() {
    let scene = scene().await;
    assert!(scene.store.declare_lost(scene.engine.id, true).await.unwrap());
    scene.store.reclaim(Reclaim::Lost(scene.engine.id)).await.unwrap();
    assert_eq!(scene.suspend_for_signal("paid").await, SuspendOutcome::Late);
    assert_eq!(count(&scene.file.connect(), "task_engine_suspended_tasks"), 0);
    scene.verify().await;
}

#[tokio::test]
async fn retention_keeps_children_of_open_tasks() {
    let mut scene = scene().await;
    let children = scene.call(1, 2).await;
    scene.suspend_for_children().await;
    let stopped = scene.end_next_task().await;
    scene.store.cancel(&children[1..]).await.unwrap();
    let prune = async |status| scene.store.prune(status, Duration::ZERO, 10).await.unwrap();
    assert_eq!(prune(TaskStatus::Stopped).await, 0);
    assert_eq!(prune(TaskStatus::Cancelled).await, 0);
    assert_eq!(stopped, children[0]);

    // The parent was cancelled: an operator may retry it, so its children stay with it.
    scene.store.cancel(&[scene.id()]).await.unwrap();
    assert_eq!(prune(TaskStatus::Stopped).await, 0);
    assert_eq!(prune(TaskStatus::Cancelled).await, 1);
    assert_eq!(prune(TaskStatus::Stopped).await, 1);
    assert_eq!(prune(TaskStatus::Cancelled).await, 1);
    let connection = scene.file.connect();
    for table in ["steps", "task_dependencies", "suspended_tasks"] {
        assert_eq!(count(&connection, &format!("task_engine_{table}")), 0, "{table}");
    }
    scene.verify().await;
}

#[tokio::test]
async fn task_is_created_with_steps() {
    let scene = scene().await;
    scene.record(scene.result("pay", 1)).await;
    scene.signal("paid").await;
    scene.signal("sent").await;
    scene.record(scene.step("paid", 2, StepContent::Wait(HOUR))).await;
    let children = scene.call(3, 2).await;
    scene.record(scene.step("sent", 4, StepContent::Wait(HOUR))).await;

    let copy = scene.store.create_with_steps(&task("work"), scene.id(), 4).await.unwrap();
    let (old, new) = (scene.store.steps(scene.id()).await, scene.store.steps(copy).await);
    let (old, new) = (old.unwrap(), new.unwrap());
    assert!(new.steps.iter().all(|step| step.attempt == 0));
    let facts = |steps: &[task_engine_core::step::StepRow]| {
        let facts = steps.iter().map(|step| {
            (step.name.clone(), step.number, step.kind, step.result.clone(), step.until)
        });
        facts.collect::<Vec<_>>()
    };
    assert_eq!(facts(&new.steps), facts(&old.steps[..3]));
    let names: Vec<_> = new.signals.iter().map(|signal| signal.name.as_str()).collect();
    assert_eq!(names, ["paid"]);
    let connection = scene.file.connect();
    let mut statement = connection
        .prepare("SELECT depends_on FROM task_engine_task_dependencies WHERE task_id = ?1")
        .unwrap();
    let ids = statement.query_map([copy.0], |row| row.get(0)).unwrap();
    assert_eq!(ids.map(|id| TaskId(id.unwrap())).collect::<Vec<_>>(), children);
    scene.verify().await;
}

#[tokio::test]
async fn recovery_restarts_retries_after_step() {
    let mut scene = scene().await;
    let mut retry_numbers = Vec::new();
    for (name, records_step) in [("b", false), ("c", true), ("d", false)] {
        if records_step {
            scene.record(scene.result("pay", 1)).await;
        }
        assert!(scene.store.declare_lost(scene.engine.id, true).await.unwrap());
        let lost = scene.store.reclaim(Reclaim::Lost(scene.engine.id)).await.unwrap();
        let NextState::Wait { retry_number, .. } = lost[0].next else {
            panic!("{lost:?}");
        };
        retry_numbers.push(retry_number);
        scene.store.retry(&[scene.id()]).await.unwrap();
        scene.engine = Engine::register(&scene.store, name).await;
        scene.continue_task().await;
    }
    assert_eq!(retry_numbers, [1, 1, 2]);
    scene.verify().await;
}

/// The newest end of each.
fn newest(children: &[TaskId]) -> Vec<(TaskId, Option<i32>)> {
    children.iter().map(|child| (*child, None)).collect()
}
