//! Batches: members that run side by side, and tasks that run after all of them.

use super::{Flow, InvalidFlow};
use crate::task::{InvalidTask, NewTask, Task};

/// A value that can be created as a task: a [`Task`], or a [`NewTask`] with options of its own.
pub trait IntoTask {
    /// Returns the task to create.
    fn into_task(self) -> Result<NewTask, InvalidTask>;
}

impl<T: Task> IntoTask for T {
    fn into_task(self) -> Result<NewTask, InvalidTask> {
        NewTask::of(&self)
    }
}

impl IntoTask for NewTask {
    fn into_task(self) -> Result<NewTask, InvalidTask> {
        Ok(self)
    }
}

/// A builder of tasks that run side by side, and of tasks that run when all of them have ended.
///
/// It is a [`Flow`]: its members are named `member 1`, `member 2` and so on, its callbacks
/// `on_success`, `on_failure` and `on_end`.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::dependency::Batch;
/// use task_engine::{Flow, Json, NewTask};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let page = |n: u32| Json::parse(format!(r#"{{"page": {n}}}"#)).map(|page| NewTask::new("render", page));
/// let report = NewTask::new("report", Json::null())?;
/// let batch = Batch::new().name("catalogue").members([page(1)??, page(2)??]).on_success(report);
/// assert_eq!(Flow::from(batch).resolve()?.tasks.len(), 3);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is created until it is passed to `create_flow`"]
pub struct Batch {
    flow: Flow,
    /// The tasks that run after the members, by the name of their condition.
    callbacks: Vec<(&'static str, Result<NewTask, InvalidTask>)>,
}

const ON_SUCCESS: &str = "on_success";
const ON_FAILURE: &str = "on_failure";
const ON_END: &str = "on_end";

impl Batch {
    /// Creates a batch without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name that lists of flows show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.flow = self.flow.name(name);
        self
    }

    /// Sets the correlation id that its tasks share: see [`Flow::correlation`].
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.flow = self.flow.correlation(id);
        self
    }

    /// Adds a member.
    pub fn member(mut self, task: impl IntoTask) -> Self {
        let name = format!("member {}", self.flow.len() + 1);
        match task.into_task() {
            Ok(task) => self.flow = self.flow.add(name, task),
            Err(error) => {
                self.flow.invalid.get_or_insert(error.into());
            }
        }
        self
    }

    /// Adds members.
    pub fn members<T: IntoTask>(self, tasks: impl IntoIterator<Item = T>) -> Self {
        tasks.into_iter().fold(self, Self::member)
    }

    /// Runs this task when all members have succeeded.
    ///
    /// If one of them fails or is cancelled, this task is cancelled.
    pub fn on_success(self, task: impl IntoTask) -> Self {
        self.callback(ON_SUCCESS, task)
    }

    /// Runs this task when all members have ended, if at least one of them has failed or was
    /// cancelled.
    ///
    /// Otherwise this task is cancelled.
    pub fn on_failure(self, task: impl IntoTask) -> Self {
        self.callback(ON_FAILURE, task)
    }

    /// Runs this task when all members have ended, whatever their status.
    pub fn on_end(self, task: impl IntoTask) -> Self {
        self.callback(ON_END, task)
    }

    /// A second callback of a kind is refused as a duplicate name.
    fn callback(mut self, name: &'static str, task: impl IntoTask) -> Self {
        self.callbacks.push((name, task.into_task()));
        self
    }
}

impl From<Batch> for Flow {
    fn from(batch: Batch) -> Self {
        let Batch { mut flow, callbacks } = batch;
        let members: Vec<String> = flow.tasks.iter().map(|draft| draft.name.clone()).collect();
        if members.is_empty() {
            flow.invalid.get_or_insert(InvalidFlow::NoMembers);
        }
        for (name, task) in callbacks {
            match task {
                Ok(task) => {
                    flow = flow.add(name, task);
                    flow = match name {
                        ON_SUCCESS => flow.after(members.as_slice()),
                        ON_FAILURE => flow.after_failure(members.as_slice()),
                        _ => flow.after_end(members.as_slice()),
                    };
                }
                Err(error) => {
                    flow.invalid.get_or_insert(error.into());
                }
            }
        }
        flow
    }
}
