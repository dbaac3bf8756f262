//! Dependencies: tasks that start after others have ended, created together as a flow.
//!
//! A [`Flow`] is written by the application. [`Flow::resolve`] checks it and puts its tasks in
//! order; stores create the resulting [`NewFlow`]. [`decide_dependent`] decides what happens
//! to a task when the tasks that it depends on end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptId, TaskError};
use crate::claim::ClaimId;
use crate::json::Json;
use crate::queue::BoundedCount;
use crate::step::AWAITED;
use crate::suggest::nearest;
use crate::task::{InvalidTask, NAME_BYTES_MAX, NewTask, Task, TaskId, TaskStatus};

mod batch;

pub use batch::{Batch, IntoTask};

/// The most tasks that a flow may have when it is created.
pub const FLOW_TASKS_MAX: usize = 10_000;
/// The most dependencies that a flow may have when it is created.
pub const FLOW_DEPENDENCIES_MAX: usize = 100_000;

/// The field in the context of a task with its name in its flow.
pub const FLOW_TASK: &str = "flow_task";
/// The field in the context of a task that depends on others.
pub const DEPENDENT: &str = "dependent";

/// The condition under which a task may start, by the end of a task that it depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DependencyCondition {
    /// After it has succeeded. If it fails or is cancelled, the dependent task is cancelled.
    #[default]
    Success,
    /// After it has ended, whatever its status.
    End,
    /// After it has failed or was cancelled. A task with several such dependencies starts
    /// when all of them have ended and at least one has not succeeded; it is cancelled if
    /// all have succeeded.
    Failure,
}

enum_tokens!(DependencyCondition { Success = "success", End = "end", Failure = "failure" });

/// A task that another one depends on: a task of the same flow, by its name, or an existing one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DependencyTarget {
    /// A task of the same flow.
    Name(String),
    /// A task that exists already.
    Id(TaskId),
}

impl fmt::Display for DependencyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Id(id) => write!(f, "task {id}"),
        }
    }
}

impl From<&str> for DependencyTarget {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for DependencyTarget {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<TaskId> for DependencyTarget {
    fn from(id: TaskId) -> Self {
        Self::Id(id)
    }
}

/// One or more tasks that another one depends on: a name, an id, or a list of them.
pub trait IntoDependencies {
    /// Returns the tasks.
    fn into_dependencies(self) -> Vec<DependencyTarget>;
}

macro_rules! one_dependency {
    ($($type:ty),*) => {$(
        impl IntoDependencies for $type {
            fn into_dependencies(self) -> Vec<DependencyTarget> {
                vec![self.into()]
            }
        }
    )*};
}
one_dependency!(&str, String, TaskId, DependencyTarget);

impl<T: Into<DependencyTarget>, const N: usize> IntoDependencies for [T; N] {
    fn into_dependencies(self) -> Vec<DependencyTarget> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Into<DependencyTarget>> IntoDependencies for Vec<T> {
    fn into_dependencies(self) -> Vec<DependencyTarget> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Into<DependencyTarget> + Clone> IntoDependencies for &[T] {
    fn into_dependencies(self) -> Vec<DependencyTarget> {
        self.iter().cloned().map(Into::into).collect()
    }
}

/// A builder of tasks that depend on each other and are created together, all or none.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::{Flow, Json, NewTask};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let task = |class: &str| NewTask::new(class, Json::parse("{}")?).map_err(Box::<dyn std::error::Error>::from);
/// let flow = Flow::new()
///     .add("extract", task("extract")?)
///     .add("load", task("load")?).after("extract")
///     .add("report", task("report")?).after_end(["extract", "load"])
///     .add("alert", task("alert")?).after_failure("load");
/// assert_eq!(flow.resolve()?.tasks.len(), 4);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is created until it is passed to `create_flow`"]
pub struct Flow {
    name: Option<String>,
    correlation_id: Option<String>,
    tasks: Vec<FlowTaskDraft>,
    /// The first error of a task that could not be made.
    invalid: Option<InvalidFlow>,
}

#[derive(Debug, Clone)]
struct FlowTaskDraft {
    name: String,
    task: NewTask,
    dependencies: Vec<(DependencyTarget, DependencyCondition)>,
}

impl Flow {
    /// Creates a flow without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name that lists of flows show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the correlation id that its tasks share.
    ///
    /// Without one, they get that of the task that creates the flow, or of the first existing task
    /// that it depends on, or a new one.
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Adds a task.
    ///
    /// Its name is unique in the flow.
    #[allow(clippy::needless_pass_by_value)] // As `TaskEngine::create`.
    pub fn task<T: Task>(mut self, name: impl Into<String>, task: T) -> Self {
        match NewTask::of(&task) {
            Ok(task) => self.add(name, task),
            Err(error) => {
                self.invalid.get_or_insert(error.into());
                self
            }
        }
    }

    /// Adds a task with options of its own, or of a class that is known only by name.
    pub fn add(mut self, name: impl Into<String>, task: NewTask) -> Self {
        self.tasks.push(FlowTaskDraft { name: name.into(), task, dependencies: Vec::new() });
        self
    }

    /// Starts the last task after these have succeeded: names of tasks of the flow, or ids of
    /// existing tasks.
    ///
    /// If one of them fails or is cancelled, the last task is cancelled.
    pub fn after(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::Success)
    }

    /// Starts the last task after these have ended, whatever their status.
    pub fn after_end(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::End)
    }

    /// Starts the last task after all of these have ended, if at least one of them has failed or
    /// was cancelled.
    ///
    /// If all of them succeed, the last task is cancelled.
    pub fn after_failure(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::Failure)
    }

    /// Adds dependencies of the last task.
    pub fn depend(mut self, on: impl IntoDependencies, condition: DependencyCondition) -> Self {
        let on = on.into_dependencies();
        match self.tasks.last_mut() {
            Some(last) => last.dependencies.extend(on.into_iter().map(|on| (on, condition))),
            None if self.invalid.is_none() => self.invalid = Some(InvalidFlow::NoTask),
            None => {}
        }
        self
    }

    /// Returns how many tasks it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether it has no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Checks the flow, and puts each task after those that it depends on.
    ///
    /// # Errors
    /// Fails with [`InvalidFlow`] if a name or a task is invalid, or if tasks wait for each other.
    pub fn resolve(self) -> Result<NewFlow, InvalidFlow> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        if self.tasks.is_empty() {
            return Err(InvalidFlow::NoTask);
        }
        if self.tasks.len() > FLOW_TASKS_MAX {
            return Err(InvalidFlow::TooManyTasks(self.tasks.len()));
        }
        for name in self.name.iter().chain(&self.correlation_id) {
            check_flow_name(name)?;
        }
        let mut places = HashMap::new();
        for (place, draft) in self.tasks.iter().enumerate() {
            check_flow_name(&draft.name)?;
            if places.insert(draft.name.as_str(), place).is_some() {
                return Err(InvalidFlow::DuplicateName(draft.name.clone()));
            }
        }
        let resolved: Vec<_> = self
            .tasks
            .iter()
            .map(|draft| resolve_dependencies(draft, &places))
            .collect::<Result<_, _>>()?;
        let dependencies = resolved.iter().map(Vec::len).sum();
        if dependencies > FLOW_DEPENDENCIES_MAX {
            return Err(InvalidFlow::TooManyDependencies(dependencies));
        }
        let order =
            order(&resolved).map_err(|cycle| InvalidFlow::Cycle(names_of(&self.tasks, &cycle)))?;
        let mut new_places = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            new_places[*old] = new;
        }
        let mut tasks: Vec<Option<FlowTaskDraft>> = self.tasks.into_iter().map(Some).collect();
        let mut ordered = Vec::with_capacity(order.len());
        for old in order {
            let Some(draft) = tasks[old].take() else { continue };
            let dependencies = resolved[old].iter().map(|dependency| {
                let on = match dependency.on {
                    DependencyRef::InFlow(place) => DependencyRef::InFlow(new_places[place]),
                    existing @ DependencyRef::Existing(_) => existing,
                };
                NewDependency { on, condition: dependency.condition }
            });
            let dependencies = dependencies.collect();
            ordered.push(NewFlowTask { name: draft.name, task: draft.task, dependencies });
        }
        let mut flow =
            NewFlow { name: self.name, correlation_id: self.correlation_id, tasks: ordered };
        flow.mark_tasks()?;
        Ok(flow)
    }
}

fn check_flow_name(name: &str) -> Result<(), InvalidFlow> {
    let is_valid =
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_valid {
        return Ok(());
    }
    Err(InvalidFlow::Name(name.chars().take(NAME_BYTES_MAX).collect()))
}

fn resolve_dependencies(
    draft: &FlowTaskDraft,
    places: &HashMap<&str, usize>,
) -> Result<Vec<NewDependency>, InvalidFlow> {
    if !draft.dependencies.is_empty() && draft.task.unique.is_some() {
        return Err(InvalidFlow::UniqueTask(draft.name.clone()));
    }
    let mut resolved: Vec<NewDependency> = Vec::with_capacity(draft.dependencies.len());
    let mut known: HashMap<DependencyRef, DependencyCondition> = HashMap::new();
    for (target, condition) in &draft.dependencies {
        let on = match target {
            DependencyTarget::Id(id) => DependencyRef::Existing(*id),
            DependencyTarget::Name(name) => match places.get(name.as_str()) {
                Some(place) => DependencyRef::InFlow(*place),
                None => {
                    return Err(InvalidFlow::UnknownName {
                        task: draft.name.clone(),
                        name: name.chars().take(NAME_BYTES_MAX).collect(),
                        similar: nearest(name, places.keys().copied()).map(str::to_owned),
                    });
                }
            },
        };
        match known.insert(on, *condition) {
            None => resolved.push(NewDependency { on, condition: *condition }),
            Some(first) if first == *condition => {}
            Some(_) => {
                return Err(InvalidFlow::TwoConditions {
                    task: draft.name.clone(),
                    on: target.to_string(),
                });
            }
        }
    }
    Ok(resolved)
}

/// An order in which each task comes after those that it depends on, the earliest first; or a
/// cycle.
fn order(dependencies: &[Vec<NewDependency>]) -> Result<Vec<usize>, Vec<usize>> {
    let on = |task: usize| {
        dependencies[task].iter().filter_map(|dependency| match dependency.on {
            DependencyRef::InFlow(place) => Some(place),
            DependencyRef::Existing(_) => None,
        })
    };
    let mut open: Vec<usize> = (0..dependencies.len()).map(|task| on(task).count()).collect();
    let mut dependents = vec![Vec::new(); dependencies.len()];
    for task in 0..dependencies.len() {
        on(task).for_each(|place| dependents[place].push(task));
    }
    let mut ready: VecDeque<usize> =
        (0..dependencies.len()).filter(|task| open[*task] == 0).collect();
    let mut order = Vec::with_capacity(dependencies.len());
    while let Some(task) = ready.pop_front() {
        order.push(task);
        for dependent in &dependents[task] {
            open[*dependent] -= 1;
            if open[*dependent] == 0 {
                ready.push_back(*dependent);
            }
        }
    }
    if order.len() == dependencies.len() {
        return Ok(order);
    }
    // Each open task depends on an open one: following them leads into a cycle.
    let Some(mut task) = (0..open.len()).find(|task| open[*task] > 0) else {
        return Ok(order);
    };
    let (mut path, mut seen) = (Vec::new(), HashSet::new());
    while seen.insert(task) {
        path.push(task);
        task = on(task).find(|place| open[*place] > 0).unwrap_or(task);
    }
    let start = path.iter().position(|place| *place == task).unwrap_or(0);
    let mut cycle = path.split_off(start);
    cycle.push(task);
    cycle.reverse();
    Err(cycle)
}

fn names_of(tasks: &[FlowTaskDraft], places: &[usize]) -> Vec<String> {
    places.iter().map(|place| tasks[*place].name.clone()).collect()
}

/// A flow that a store creates: checked, and each task after those that it depends on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NewFlow {
    /// The name that lists show.
    pub name: Option<String>,
    /// The correlation id of its tasks.
    ///
    /// Without one, the store takes that of the first existing task that it depends on, or makes
    /// one.
    pub correlation_id: Option<String>,
    /// Its tasks.
    pub tasks: Vec<NewFlowTask>,
}

/// A task of a flow to create.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NewFlowTask {
    /// Its name in the flow.
    pub name: String,
    /// The task.
    pub task: NewTask,
    /// What it depends on, each task at most once.
    pub dependencies: Vec<NewDependency>,
}

/// A dependency of a task to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewDependency {
    /// The task that it depends on.
    pub on: DependencyRef,
    /// When it may start.
    pub condition: DependencyCondition,
}

/// A task that a task of a flow depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DependencyRef {
    /// The task at this place of the flow, which is lower than that of the dependent task.
    InFlow(usize),
    /// A task that exists already.
    Existing(TaskId),
}

impl NewFlow {
    /// Creates a flow of one task that depends on existing tasks.
    pub fn of_task(
        task: NewTask,
        on: &[(TaskId, DependencyCondition)],
    ) -> Result<Self, InvalidFlow> {
        let mut flow = Flow::new().add(task.class.clone(), task);
        for (id, condition) in on {
            flow = flow.depend(*id, *condition);
        }
        let mut flow = flow.resolve()?;
        // It has no name in a flow: only its class is known.
        for task in &mut flow.tasks {
            remove_context(&mut task.task, FLOW_TASK);
        }
        Ok(flow)
    }

    /// Writes into the contexts of its tasks what engines and readers need: the name of each
    /// task, whether others wait for it, and whether it depends on others.
    fn mark_tasks(&mut self) -> Result<(), InvalidFlow> {
        let mut awaited = vec![false; self.tasks.len()];
        for dependency in self.tasks.iter().flat_map(|task| &task.dependencies) {
            if let DependencyRef::InFlow(place) = dependency.on {
                awaited[place] = true;
            }
        }
        for (task, awaited) in self.tasks.iter_mut().zip(awaited) {
            task.task.add_context(FLOW_TASK, &task.name)?;
            if awaited {
                task.task.add_context(AWAITED, &true)?;
            }
            if !task.dependencies.is_empty() {
                task.task.add_context(DEPENDENT, &true)?;
            }
        }
        Ok(())
    }
}

fn remove_context(task: &mut NewTask, name: &str) {
    let Ok(mut context) =
        task.context.decode::<BTreeMap<String, Box<serde_json::value::RawValue>>>()
    else {
        return;
    };
    if context.remove(name).is_some()
        && let Ok(json) = Json::encode(&context)
    {
        task.context = json;
    }
}

/// Tasks that join a running one.
///
/// All tasks that depend on the running task depend on them, too, under the same conditions.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NewMembers {
    /// The running attempt.
    pub id: AttemptId,
    /// The claim that it belongs to.
    pub claim_id: ClaimId,
    /// The tasks, prepared for creation, with [`AWAITED`] in their contexts.
    pub tasks: Vec<NewTask>,
}

impl NewMembers {
    /// Creates a request to add these tasks as members beside a running attempt.
    pub fn new(id: AttemptId, claim_id: ClaimId, tasks: Vec<NewTask>) -> Result<Self, InvalidTask> {
        let mut members = Self { id, claim_id, tasks };
        for task in &mut members.tasks {
            task.add_context(AWAITED, &true)?;
        }
        Ok(members)
    }
}

/// The outcome of adding members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddMembersOutcome {
    /// They were created.
    Added(Vec<TaskId>),
    /// No task that has not started depends on the running task: nothing was created.
    NoDependents,
    /// The attempt has ended, or its claim was reclaimed: nothing was created.
    AttemptOver,
}

/// A flow that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedFlow {
    /// The correlation id of its tasks.
    pub correlation_id: String,
    /// Its tasks, in the order of [`NewFlow::tasks`].
    pub ids: Vec<TaskId>,
}

/// The error of a flow that cannot be created: change what the message names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFlow {
    /// The flow has no tasks, or a dependency is added before the first task.
    #[error("a flow needs a task before its dependencies")]
    NoTask,
    /// A batch has no members, so that its callbacks would wait for nothing.
    #[error("a batch needs at least one member")]
    NoMembers,
    /// The flow has more tasks than [`FLOW_TASKS_MAX`]: split it.
    #[error("a flow has at most {FLOW_TASKS_MAX} tasks, this one has {0}")]
    TooManyTasks(usize),
    /// The flow has more dependencies than [`FLOW_DEPENDENCIES_MAX`]: split it, or depend on fewer
    /// tasks.
    #[error("a flow has at most {FLOW_DEPENDENCIES_MAX} dependencies, this one has {0}")]
    TooManyDependencies(usize),
    /// The name of a task is empty, too long, or has control characters: choose another one.
    #[error(
        "a name in a flow has 1 to {NAME_BYTES_MAX} bytes and no control characters, not {0:?}"
    )]
    Name(String),
    /// Two tasks have the same name: rename one of them.
    #[error("two tasks of the flow have the name {0:?}")]
    DuplicateName(String),
    /// A task depends on a name that no task of the flow has: correct the name.
    #[error("task {task:?} depends on {name:?}, which is no task of the flow{}", did_you_mean(.similar))]
    UnknownName {
        /// The dependent task.
        task: String,
        /// The unknown name.
        name: String,
        /// A name that may be meant.
        similar: Option<String>,
    },
    /// A task depends on another one under two conditions: remove one of them.
    #[error("task {task:?} depends on {on} under two conditions; use one")]
    TwoConditions {
        /// The dependent task.
        task: String,
        /// What it depends on.
        on: String,
    },
    /// Tasks wait for each other in a cycle: remove one of these dependencies.
    #[error("the tasks of the flow wait for each other: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// A task is unique and depends on others, which is not possible: remove its key or its
    /// dependencies.
    #[error("task {0:?} has a unique key, and a task with a unique key cannot depend on others")]
    UniqueTask(String),
    /// A task of the flow is invalid: see [`InvalidTask`].
    #[error(transparent)]
    Task(#[from] InvalidTask),
}

fn did_you_mean(similar: &Option<String>) -> String {
    similar.as_ref().map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// A dependency between stored tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DependencyRow {
    /// The dependent task.
    pub task_id: TaskId,
    /// The task that it depends on.
    pub depends_on: TaskId,
    /// When it may start.
    pub condition: DependencyCondition,
    /// The name of the task that it depends on, if that has one.
    pub name: Option<String>,
    /// The status of the task that it depends on; `None` if that was removed.
    pub status: Option<TaskStatus>,
}

impl DependencyRow {
    /// Creates a row.
    #[must_use]
    pub fn new(
        task_id: TaskId,
        depends_on: TaskId,
        condition: DependencyCondition,
        name: Option<String>,
        status: Option<TaskStatus>,
    ) -> Self {
        Self { task_id, depends_on, condition, name, status }
    }
}

/// A page of flows, the newest first.
#[derive(Debug, Clone, Default)]
pub struct FlowsQuery {
    /// Only the flow with this correlation id.
    pub correlation_id: Option<String>,
    /// Only flows before this one: the last row of the previous page.
    pub before: Option<i64>,
    /// The most to return.
    pub limit: u32,
    /// How many tasks of each flow to count at most.
    pub tasks_counted_max: u32,
}

/// A flow that was created as such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowRow {
    /// Its number, in the order of creation.
    pub id: i64,
    /// The correlation id of its tasks.
    pub correlation_id: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// How many tasks are in which status.
    pub counts: FlowCounts,
}

/// The number of tasks of a flow in each status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// Waiting for tasks that they depend on.
    pub blocked: u32,
    /// Waiting for a worker or for their time.
    pub waiting: u32,
    /// Running.
    pub running: u32,
    /// Ended successfully.
    pub stopped: u32,
    /// Failed.
    pub failed: u32,
    /// Cancelled, without those that were not needed.
    pub cancelled: u32,
    /// Cancelled because they run only after a failure, and there was none.
    pub not_needed: u32,
    /// Whether there are more tasks, which were not counted.
    pub and_more: bool,
}

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// A task has not ended.
    Open,
    /// All tasks have ended, none of them failed.
    Succeeded,
    /// All tasks have ended, and one failed.
    Failed,
    /// All tasks have ended, none failed, and one was cancelled.
    Cancelled,
}

enum_tokens!(FlowState {
    Open = "open", Succeeded = "succeeded", Failed = "failed", Cancelled = "cancelled",
});

impl FlowCounts {
    /// Returns how many tasks were counted.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.open() + self.ended()
    }

    /// Returns how many of them have not ended.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.blocked + self.waiting + self.running
    }

    /// Returns how many of them have ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.stopped + self.failed + self.cancelled + self.not_needed
    }

    /// Returns the state of the flow.
    ///
    /// With more tasks than were counted, it is as far as is known.
    #[must_use]
    pub fn state(&self) -> FlowState {
        match self {
            counts if counts.open() > 0 => FlowState::Open,
            counts if counts.failed > 0 => FlowState::Failed,
            counts if counts.and_more => FlowState::Open,
            counts if counts.cancelled > 0 => FlowState::Cancelled,
            _ => FlowState::Succeeded,
        }
    }
}

/// The tasks that wait for others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockedTasks {
    /// How many there are, up to a limit.
    pub tasks: BoundedCount,
    /// Those that should have been decided: what they wait for ended more than a minute ago,
    /// or was removed.
    pub overdue: Vec<TaskId>,
}

impl BlockedTasks {
    /// Counts tasks up to a limit, each with whether it is overdue.
    ///
    /// One more than the limit shows that there are more.
    #[must_use]
    pub fn of(limit: i64, tasks: impl IntoIterator<Item = (TaskId, bool)>) -> Self {
        let mut blocked = Self::default();
        for (id, is_overdue) in tasks {
            if blocked.tasks.counted == limit {
                blocked.tasks.and_more = true;
                break;
            }
            blocked.tasks.counted += 1;
            if is_overdue {
                blocked.overdue.push(id);
            }
        }
        blocked
    }
}

/// A task that another one depends on, as far as the decision needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The task.
    pub id: TaskId,
    /// Its name in the flow.
    pub name: Option<String>,
    /// When the dependent task may start.
    pub condition: DependencyCondition,
    /// Its state.
    pub state: DependencyState,
}

/// The state of a task that another one depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyState {
    /// It has not ended, or it was retried and has not ended again.
    Open,
    /// It has ended in this status.
    Ended(TaskStatus),
    /// It does not exist any more.
    Removed,
}

/// The decision about a task that depends on others.
#[derive(Debug, Clone, PartialEq)]
pub enum DependentNext {
    /// It waits; this is the first task that has not ended.
    Wait(TaskId),
    /// It may start.
    Start,
    /// It ends as cancelled, with this error.
    Cancel(TaskError),
}

/// Decides what happens to a task that depends on these tasks, in the order of their ids.
///
/// If it needs the success of a task that has not succeeded, it is cancelled at once, even if
/// others have not ended. So no task waits for something that cannot happen.
#[must_use]
pub fn decide_dependent(dependencies: &[Dependency]) -> DependentNext {
    let on_success =
        dependencies.iter().filter(|one| one.condition == DependencyCondition::Success);
    for one in on_success {
        if let Some(error) = unsuccessful(one) {
            return DependentNext::Cancel(error);
        }
    }
    if let Some(open) = dependencies.iter().find(|one| one.state == DependencyState::Open) {
        return DependentNext::Wait(open.id);
    }
    let mut on_failure =
        dependencies.iter().filter(|one| one.condition == DependencyCondition::Failure).peekable();
    if on_failure.peek().is_some() && !on_failure.any(|one| unsuccessful(one).is_some()) {
        return DependentNext::Cancel(not_needed());
    }
    DependentNext::Start
}

fn unsuccessful(dependency: &Dependency) -> Option<TaskError> {
    match dependency.state {
        DependencyState::Open | DependencyState::Ended(TaskStatus::Stopped) => None,
        DependencyState::Ended(status) => {
            Some(dependency_failed(dependency.id, dependency.name.as_deref(), Some(status)))
        }
        DependencyState::Removed => {
            Some(dependency_failed(dependency.id, dependency.name.as_deref(), None))
        }
    }
}

/// Returns the error of a task that is cancelled because a task that it depends on did not succeed.
#[must_use]
pub fn dependency_failed(id: TaskId, name: Option<&str>, status: Option<TaskStatus>) -> TaskError {
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let ended = match status {
        Some(TaskStatus::Failed) => "failed",
        Some(_) => "was cancelled",
        None => "was removed",
    };
    TaskError::new(TaskError::DEPENDENCY_FAILED, format!("task {id}{name} {ended}"))
}

/// Returns the error of a task that runs only after a failure, if there was none.
#[must_use]
pub fn not_needed() -> TaskError {
    TaskError::new(TaskError::NOT_NEEDED, "all tasks that it depends on succeeded")
}

#[cfg(test)]
mod tests;
