//! Shared by the cases about flows: tasks that are found by their names, and an engine that
//! is driven step by step.

use std::collections::BTreeMap;

use task_engine_core::attempt::{AttemptEnd, AttemptRecord, TaskError};
use task_engine_core::dependency::{
    CreatedFlow, DependencyCondition, DependencyRow, FLOW_TASK, Flow, NewFlow,
};
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId, TaskRow, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, TestEngine, WORK, new_task};

/// How an attempt ends its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestEnd {
    /// It succeeds.
    Succeeds,
    /// It fails, without a retry.
    Fails,
    /// It is cancelled.
    IsCancelled,
}

impl TestEnd {
    /// All ends.
    pub const ALL: [Self; 3] = [Self::Succeeds, Self::Fails, Self::IsCancelled];

    /// The status of the task after it.
    #[must_use]
    pub fn status(self) -> TaskStatus {
        match self {
            Self::Succeeds => TaskStatus::Stopped,
            Self::Fails => TaskStatus::Failed,
            Self::IsCancelled => TaskStatus::Cancelled,
        }
    }

    /// The end of this attempt.
    #[must_use]
    pub fn of(self, hold: &TestAttempt) -> AttemptRecord {
        match self {
            // The result is the id of the task.
            Self::Succeeds => {
                let result = Json::encode(&hold.task_id()).expect("JSON");
                hold.ends(AttemptEnd::Success(result), &RetryRule::never())
            }
            Self::Fails => hold.fails(),
            Self::IsCancelled => hold.is_cancelled(),
        }
    }
}

/// A store with flows, and an engine.
#[derive(Debug)]
pub struct TestFlows {
    /// The store.
    pub fixture: Fixture,
    /// Its engine.
    pub engine: TestEngine,
    /// The tasks, by their names.
    ids: BTreeMap<String, TaskId>,
    /// The attempts that it holds.
    holds: BTreeMap<TaskId, TestAttempt>,
}

impl TestFlows {
    /// A store with an engine, without tasks.
    pub async fn open(db: &dyn TestDatabase) -> Self {
        let fixture = Fixture::open(db).await;
        let engine = fixture.engine("a").await;
        Self { fixture, engine, ids: BTreeMap::new(), holds: BTreeMap::new() }
    }

    /// The same with this flow.
    pub async fn with(db: &dyn TestDatabase, flow: Flow) -> Self {
        let mut flows = Self::open(db).await;
        flows.create(flow).await;
        flows
    }

    /// Creates a flow. Its names are new.
    pub async fn create(&mut self, flow: Flow) -> CreatedFlow {
        let new = resolved(flow);
        let created = self.fixture.store.create_flow(&new).await.expect("create_flow");
        assert_eq!(created.ids.len(), new.tasks.len(), "one id a task");
        for (task, id) in new.tasks.iter().zip(&created.ids) {
            assert!(self.ids.insert(task.name.clone(), *id).is_none(), "{:?} is new", task.name);
        }
        created
    }

    /// Creates a flow that the store refuses.
    pub async fn refused(&self, flow: Flow) -> String {
        match self.fixture.store.create_flow(&resolved(flow)).await {
            Err(StoreError::Refused(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    /// Creates a task that belongs to no flow, under this name.
    pub async fn create_plain(&mut self, name: &str, task: NewTask) -> TaskId {
        let id = self.fixture.create(task).await;
        self.name(name, id);
        id
    }

    /// Finds this task by this name.
    pub fn name(&mut self, name: &str, id: TaskId) {
        self.ids.insert(name.to_owned(), id);
    }

    /// The task of this name.
    #[must_use]
    pub fn id(&self, name: &str) -> TaskId {
        *self.ids.get(name).unwrap_or_else(|| panic!("no task {name:?}"))
    }

    /// The attempt of this task that the engine holds.
    #[must_use]
    pub fn hold(&self, name: &str) -> &TestAttempt {
        self.holds.get(&self.id(name)).unwrap_or_else(|| panic!("{name:?} does not run"))
    }

    /// Claims all that is due: exactly these tasks.
    pub async fn starts(&mut self, names: &[&str]) {
        let found = self.claims().await;
        let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        expected.sort();
        assert_eq!(found, expected, "the tasks that start");
    }

    /// Claims all that is due, and returns the names in order.
    pub async fn claims(&mut self) -> Vec<String> {
        self.engine.wake();
        let mut names = Vec::new();
        for hold in self.engine.claim_all(1000).await {
            let id = hold.task_id();
            let name = self.ids.iter().find(|(_, known)| **known == id);
            names.push(name.map_or_else(|| id.to_string(), |(name, _)| name.clone()));
            assert!(self.holds.insert(id, hold).is_none(), "{names:?} is held already");
        }
        names.sort();
        names
    }

    /// Takes an attempt out of the engine's hands.
    pub fn take(&mut self, name: &str) -> TestAttempt {
        let id = self.id(name);
        self.holds.remove(&id).unwrap_or_else(|| panic!("{name:?} does not run"))
    }

    /// Records the end of a running task, without telling about it.
    pub async fn record(&mut self, name: &str, end: TestEnd) -> TestAttempt {
        let hold = self.take(name);
        assert_eq!(self.engine.record(&[end.of(&hold)]).await, [], "{name:?} ends");
        hold
    }

    /// Ends a running task, and resolves those that depend on it. Returns how many are due.
    pub async fn end(&mut self, name: &str, end: TestEnd) -> u64 {
        let hold = self.record(name, end).await;
        if self.holds.values().all(|other| other.claim_id != hold.claim_id) {
            self.engine.finish(hold.claim_id).await;
        }
        self.fixture.resume_parents(&[hold.task_id()]).await
    }

    /// Claims what is due, which must be this task, and ends it.
    pub async fn runs(&mut self, name: &str, end: TestEnd) -> u64 {
        self.starts(&[name]).await;
        self.end(name, end).await
    }

    /// The row of a task.
    pub async fn row(&self, name: &str) -> TaskRow {
        self.fixture.details(self.id(name)).await.row
    }

    /// The status of a task; `blocked` if it waits for others.
    pub async fn state(&self, name: &str) -> String {
        state_of(&self.row(name).await)
    }

    /// Checks the states of these tasks, as [`state`](Self::state) returns them.
    pub async fn states(&self, expected: &[(&str, &str)]) {
        let mut found = Vec::new();
        for (name, _) in expected {
            found.push((*name, self.state(name).await));
        }
        let expected: Vec<_> = expected.iter().map(|(a, b)| (*a, (*b).to_owned())).collect();
        assert_eq!(found, expected);
    }

    /// The error that the last attempt of a task ended with.
    pub async fn error(&self, name: &str) -> TaskError {
        let details = self.fixture.details(self.id(name)).await;
        let last = details.executions.last().and_then(|last| last.error.clone());
        last.unwrap_or_else(|| panic!("{name:?} has no error: {:?}", details.executions))
    }

    /// Retries tasks.
    pub async fn retry(&self, names: &[&str]) -> Vec<RetryReport> {
        let ids: Vec<TaskId> = names.iter().map(|name| self.id(name)).collect();
        self.fixture.store.retry(&ids).await.expect("retry")
    }

    /// Cancels a waiting task.
    pub async fn cancel(&self, name: &str) {
        let reports = self.fixture.store.cancel(&[self.id(name)]).await.expect("cancel");
        assert_eq!(reports, [CancelReport::Cancelled], "{name:?}");
    }

    /// What a task depends on: the name that the store knows, the condition and the status.
    pub async fn dependencies(&self, name: &str) -> Vec<DependencyRow> {
        let rows = self.fixture.store.dependencies(&[self.id(name)], 100_000).await;
        rows.expect("dependencies")
    }

    /// The broken invariants.
    pub async fn is_consistent(&self) {
        assert_eq!(self.fixture.store.verify().await.expect("verify"), []);
    }
}

/// A task of [`WORK`] in a flow.
#[must_use]
pub fn work() -> NewTask {
    new_task(WORK)
}

/// A flow of tasks of [`WORK`]: each with the names that it depends on successfully.
pub fn flow_of(tasks: &[(&str, &[&str])]) -> Flow {
    tasks
        .iter()
        .fold(Flow::new(), |flow, (name, after)| flow.add(*name, work()).after(after.to_vec()))
}

/// Tasks that each run after the one before: `t0`, `t1`, …
pub fn chain(count: usize) -> Flow {
    let mut flow = Flow::new().add("t0", work());
    for n in 1..count {
        flow = flow.add(format!("t{n}"), work()).after(format!("t{}", n - 1));
    }
    flow
}

/// A flow that must be valid.
#[must_use]
pub fn resolved(flow: Flow) -> NewFlow {
    flow.resolve().expect("a valid flow")
}

/// The status of a task; `blocked` if it waits for others.
#[must_use]
pub fn state_of(row: &TaskRow) -> String {
    match row.is_blocked {
        true => {
            assert_eq!(row.status, TaskStatus::Waiting, "{row:?}");
            "blocked".to_owned()
        }
        false => row.status.to_string(),
    }
}

/// The name of a task in its flow, and whether others wait for it: from its context.
#[must_use]
pub fn flow_context(context: &Json) -> (Option<String>, bool) {
    let context: BTreeMap<String, serde_json::Value> = context.decode().expect("a context");
    let name = context.get(FLOW_TASK).and_then(|name| name.as_str().map(str::to_owned));
    (name, context.get(task_engine_core::step::AWAITED) == Some(&true.into()))
}

/// What a row says, for comparisons: the task that it depends on, the condition, its name and
/// its status.
#[must_use]
pub fn brief(
    row: &DependencyRow,
) -> (TaskId, DependencyCondition, Option<&str>, Option<TaskStatus>) {
    (row.depends_on, row.condition, row.name.as_deref(), row.status)
}
