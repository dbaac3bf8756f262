//! Shared by the cases about durable tasks: steps, suspensions, signals and children of an
//! attempt that is driven step by step.

use std::time::Duration;

use task_engine_core::attempt::{AttemptEnd, AttemptId, TaskError};
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::step::{
    AWAITED, NewCall, NewStep, SignalRow, SignalStatus, SignalTarget, StepContent, StepOutcome,
    SuspendOutcome, Suspension, TaskSteps, WaitOutcome,
};
use task_engine_core::task::{NewTask, TaskId};

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK, new_task};

/// Longer than any case.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A store, an engine, and one attempt that it holds.
pub async fn held(db: &dyn TestDatabase) -> (Fixture, TestEngine, TestAttempt) {
    held_task(db, new_task(WORK)).await
}

/// The same with this task.
pub async fn held_task(db: &dyn TestDatabase, task: NewTask) -> (Fixture, TestEngine, TestAttempt) {
    let fixture = Fixture::open(db).await;
    fixture.create(task).await;
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    (fixture, engine, hold)
}

/// JSON of a test.
#[must_use]
pub fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}

/// A task that its parent awaits, as engines create it.
#[must_use]
pub fn child() -> NewTask {
    awaited(new_task(WORK))
}

/// The same task as a child.
#[must_use]
pub fn awaited(mut task: NewTask) -> NewTask {
    task.add_context(AWAITED, &true).expect("a context");
    task
}

impl TestAttempt {
    /// A step of this attempt.
    #[must_use]
    pub fn step(&self, name: &str, number: u32, content: StepContent) -> NewStep {
        NewStep {
            id: self.id(),
            claim_id: self.claim_id,
            name: name.to_owned(),
            number,
            content,
            lasted: Duration::ZERO,
        }
    }

    /// A step with its number as the result.
    #[must_use]
    pub fn result(&self, name: &str, number: u32) -> NewStep {
        self.step(name, number, StepContent::Value(json(&number.to_string())))
    }

    /// A step that creates these children.
    #[must_use]
    pub fn call(&self, name: &str, number: u32, children: Vec<NewTask>) -> NewCall {
        NewCall { id: self.id(), claim_id: self.claim_id, name: name.to_owned(), number, children }
    }

    /// Its end, because the task waits for one of these signals, for at most an hour.
    #[must_use]
    pub fn waits_for(&self, signals: &[&str]) -> Suspension {
        let error = TaskError::new(TaskError::SNOOZED, "it waits");
        Suspension {
            record: self.ends(AttemptEnd::Snoozed(error, HOUR), &RetryRule::never()),
            until: None,
            signals: signals.iter().map(|name| (*name).to_owned()).collect(),
            children_from: None,
        }
    }

    /// Its end, because the task waits for all its children.
    #[must_use]
    pub fn waits_for_children(&self) -> Suspension {
        Suspension { children_from: Some(TaskId(1)), ..self.waits_for(&[]) }
    }
}

impl Fixture {
    /// Everything that is recorded about the steps of a task.
    pub async fn steps(&self, id: TaskId) -> TaskSteps {
        self.store.steps(id).await.expect("steps")
    }

    /// The signals of a task.
    pub async fn signals(&self, id: TaskId) -> Vec<SignalRow> {
        self.steps(id).await.signals
    }

    /// The names of the recorded steps, in order.
    pub async fn step_names(&self, id: TaskId) -> Vec<String> {
        self.steps(id).await.steps.into_iter().map(|step| step.name).collect()
    }

    /// Records one step.
    pub async fn record_step(&self, step: NewStep) -> StepOutcome {
        let outcomes = self.store.record_steps(&[step]).await.expect("record_steps");
        assert_eq!(outcomes.len(), 1, "one outcome a step");
        outcomes.into_iter().next().expect("an outcome")
    }

    /// Records a step that must be new.
    pub async fn must_record(&self, step: NewStep) {
        let outcome = self.record_step(step).await;
        assert!(matches!(outcome, StepOutcome::Recorded { .. }), "{outcome:?}");
    }

    /// Creates children, and returns them.
    pub async fn call(&self, call: &NewCall) -> Vec<TaskId> {
        match self.store.record_call(call).await.expect("record_call") {
            StepOutcome::Recorded { children, .. } => children,
            refused => panic!("{refused:?}"),
        }
    }

    /// Suspends one task.
    pub async fn suspend(&self, suspension: Suspension) -> SuspendOutcome {
        let outcomes = self.store.suspend(&[suspension]).await.expect("suspend");
        assert_eq!(outcomes.len(), 1, "one outcome a suspension");
        outcomes[0]
    }

    /// Sends a signal.
    pub async fn signal(&self, id: TaskId, name: &str, payload: &str) -> SignalStatus {
        let target = SignalTarget::Id(id);
        let report = self.store.signal(&target, name, &json(payload)).await.expect("signal");
        let found = (report.status != SignalStatus::NotFound).then_some(id);
        assert_eq!(report.task_id, found, "{report:?}");
        report.status
    }

    /// Decides a wait.
    pub async fn time_out(&self, hold: &TestAttempt, name: &str) -> WaitOutcome {
        self.store.time_out(hold.id(), hold.claim_id, name).await.expect("time_out")
    }

    /// Tells that tasks have ended. Returns how many parents are due.
    pub async fn resume_parents(&self, ended: &[TaskId]) -> u64 {
        self.store.resume_parents(ended).await.expect("resume_parents")
    }

    /// Looks at all suspended tasks.
    pub async fn resume_missed(&self) {
        let mut after = TaskId(0);
        while let Some(last) = self.store.resume_missed(after, 2).await.expect("resume_missed") {
            assert!(last > after, "{last} after {after}");
            after = last;
        }
    }
}

impl TestEngine {
    /// Whether the store has suspended tasks.
    pub async fn sees_suspended_tasks(&self) -> bool {
        self.heartbeat().await.tasks_suspended
    }

    /// Claims the next attempt of this task, and nothing else is due.
    pub async fn continues(&mut self, hold: &TestAttempt) -> TestAttempt {
        let holds = self.claim_all(10).await;
        let ids: Vec<AttemptId> = holds.iter().map(TestAttempt::id).collect();
        assert_eq!(ids, [AttemptId { attempt: hold.id().attempt + 1, ..hold.id() }]);
        holds.into_iter().next().expect("an attempt")
    }

    /// Nothing is due.
    pub async fn has_no_work(&mut self) {
        let holds = self.claim_all(10).await;
        assert!(holds.is_empty(), "{holds:?}");
    }
}
