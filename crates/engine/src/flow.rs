//! Flows: tasks that start after others have ended, created together.

use std::collections::BTreeMap;
use std::ops::Index;

use task_engine_core::dependency::{
    CreatedFlow, DependencyCondition, DependencyRef, DependencyTarget, Flow, FlowRow, FlowsQuery,
    IntoDependencies, InvalidFlow, NewFlow,
};
use task_engine_core::flow;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::traceparent::Traceparent;
use task_engine_store::error::StoreError;

use crate::create::CreateError;
use crate::tasks::TaskEngine;
use crate::transaction::Transaction;

/// How many tasks of a flow are counted for its status: all that it can have when it is
/// created, and as many that are added.
const TASKS_COUNTED_MAX: u32 = 20_000;

/// The ids of the tasks of a flow that was created.
///
/// ```
/// # use task_engine::{Flow, TaskEngine, Task, TaskStatus};
/// # #[derive(serde::Serialize, serde::Deserialize, Task)]
/// # struct Extract;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
/// # tasks.migrate().await?;
/// let flow = tasks.create_flow(Flow::new().task("extract", Extract)).await?;
/// assert_eq!(flow.id("extract"), Some(flow["extract"]));
/// assert_eq!(tasks.get(flow["extract"]).await?.unwrap().row.status, TaskStatus::Waiting);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowTasks {
    /// The correlation id that they share.
    pub correlation_id: String,
    /// Their ids, by their names in the flow.
    pub ids: BTreeMap<String, TaskId>,
}

impl FlowTasks {
    fn of(names: Vec<String>, created: CreatedFlow) -> Self {
        let ids = names.into_iter().zip(created.ids).collect();
        Self { correlation_id: created.correlation_id, ids }
    }

    /// Returns the id of the task with this name.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<TaskId> {
        self.ids.get(name).copied()
    }
}

/// The id of the task with this name.
///
/// # Panics
/// Panics if the flow has no such task.
impl Index<&str> for FlowTasks {
    type Output = TaskId;

    fn index(&self, name: &str) -> &TaskId {
        self.ids.get(name).unwrap_or_else(|| panic!("the flow has no task {name:?}"))
    }
}

impl TaskEngine {
    /// Creates the tasks of a [`Flow`] or of a [`Batch`](crate::Batch), all or none.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use task_engine::{Flow, Task, TaskEngine};
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// struct Extract { day: String }
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// struct Load;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// # tasks.migrate().await?;
    /// let flow = Flow::new()
    ///     .task("extract", Extract { day: "2026-11-16".into() })
    ///     .task("load", Load).after("extract");
    /// let created = tasks.create_flow(flow).await?;
    /// println!("task {} loads", created["load"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails with [`CreateError::Flow`](crate::CreateError::Flow) if the flow is invalid, for example
    /// because tasks wait for each other. No task is created then.
    pub async fn create_flow(&self, flow: impl Into<Flow>) -> Result<FlowTasks, CreateError> {
        let flow = self.prepare_flow(flow)?;
        let created = self.insert_flow(&flow).await?;
        Ok(FlowTasks::of(names(&flow), created))
    }

    /// Creates the tasks of a flow in a transaction of the application: see
    /// [`Create::in_tx`](crate::Create::in_tx).
    ///
    /// With the PostgreSQL drivers it returns a future; with rusqlite, the result itself.
    ///
    /// Existing tasks that the flow depends on do not start before the transaction ends.
    ///
    /// ```no_run
    /// # use task_engine::{Flow, TaskEngine, postgres::tokio_postgres};
    /// # async fn example(tasks: TaskEngine, mut client: tokio_postgres::Client, flow: Flow) -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = client.transaction().await?;
    /// tx.execute("INSERT INTO imports DEFAULT VALUES", &[]).await?;
    /// let created = tasks.create_flow_in(&tx, flow).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub fn create_flow_in<X: Transaction>(
        &self,
        transaction: X,
        flow: impl Into<Flow>,
    ) -> X::Answer<Result<FlowTasks, CreateError>> {
        let flow = self.prepare_flow(flow);
        let names = flow.as_ref().map(names).unwrap_or_default();
        let created = transaction.create_flow(self.store().schema_name(), flow);
        X::map(created, |created| Ok(FlowTasks::of(names, created?)))
    }

    /// Returns the flow or batch with this correlation id, with the number of its tasks in each
    /// status.
    ///
    /// Returns `None` if none was created with this correlation id.
    ///
    /// ```no_run
    /// # use task_engine::{FlowState, TaskEngine};
    /// # async fn example(tasks: TaskEngine) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(flow) = tasks.flow_status("nightly 2026-11-16").await? {
    ///     println!("{} of {} tasks have ended", flow.counts.ended(), flow.counts.total());
    ///     assert_ne!(flow.counts.state(), FlowState::Failed);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn flow_status(&self, correlation_id: &str) -> Result<Option<FlowRow>, StoreError> {
        let query = FlowsQuery {
            correlation_id: Some(correlation_id.to_owned()),
            before: None,
            limit: 1,
            tasks_counted_max: TASKS_COUNTED_MAX,
        };
        Ok(self.store().flows(&query).await?.into_iter().next())
    }

    /// Returns a flow as it would be created here, for a store or a driver that is called directly.
    ///
    /// It is checked, and has parent, correlation id and span, and the changes of the hooks.
    pub fn prepare_flow(&self, flow: impl Into<Flow>) -> Result<NewFlow, CreateError> {
        self.prepared_flow(flow.into().resolve()?)
    }

    /// One task that depends on existing ones, as it is created here.
    pub(crate) fn dependent(
        &self,
        task: NewTask,
        correlation_id: Option<String>,
        on: &[(TaskId, DependencyCondition)],
    ) -> Result<NewFlow, CreateError> {
        let mut flow = NewFlow::of_task(task, on)?;
        flow.correlation_id = correlation_id;
        self.prepared_flow(flow)
    }

    fn prepared_flow(&self, mut flow: NewFlow) -> Result<NewFlow, CreateError> {
        let span = Traceparent::current();
        if flow.correlation_id.is_none() {
            flow.correlation_id = self.correlation_of_flow(&flow, span);
        }
        for one in &mut flow.tasks {
            // The correlation id of the flow is that of each of its tasks.
            if let Some(id) = &flow.correlation_id {
                flow::set_correlation(&mut one.task, id);
            }
            self.prepare_in_flow(span, &mut one.task)?;
            if !one.dependencies.is_empty() && one.task.unique.is_some() {
                return Err(InvalidFlow::UniqueTask(one.name.clone()).into());
            }
        }
        Ok(flow)
    }

    /// That of the task that creates the flow, or of its trace. The tasks of a flow that
    /// depends on existing tasks otherwise belong to the flow of the first of these, which
    /// the store knows.
    fn correlation_of_flow(&self, flow: &NewFlow, span: Option<Traceparent>) -> Option<String> {
        if let Some(parent) = self.parent() {
            return Some(parent.correlation_id.clone());
        }
        let existing = |on| matches!(on, DependencyRef::Existing(_));
        let mut dependencies = flow.tasks.iter().flat_map(|task| &task.dependencies);
        if dependencies.any(|dependency| existing(dependency.on)) {
            return None;
        }
        span.map(flow::correlation_of_trace)
    }

    /// Stores a flow that is prepared.
    pub(crate) async fn insert_flow(&self, flow: &NewFlow) -> Result<CreatedFlow, StoreError> {
        #[cfg(feature = "postgres")]
        if let Some(pool) = self.pool() {
            return pool.create_flow(self.store().schema_name(), flow).await;
        }
        self.store().create_flow(flow).await
    }
}

fn names(flow: &NewFlow) -> Vec<String> {
    flow.tasks.iter().map(|task| task.name.clone()).collect()
}

/// The ids among dependencies of a task that is in no flow.
pub(crate) fn existing_tasks(
    class: &str,
    on: impl IntoDependencies,
) -> Result<Vec<TaskId>, InvalidFlow> {
    let id = |target| match target {
        DependencyTarget::Id(id) => Ok(id),
        DependencyTarget::Name(name) => {
            Err(InvalidFlow::UnknownName { task: class.to_owned(), name, similar: None })
        }
    };
    on.into_dependencies().into_iter().map(id).collect()
}
