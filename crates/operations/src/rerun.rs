//! Creating tasks again, with what they depend on.
//!
//! A new task depends on the new one of a task that is selected with it. Otherwise it depends
//! on the same task as the old one, and reads its result. A task that was removed is left out:
//! it has no result any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use task_engine_core::dependency::{
    Dependency, DependencyRow, DependencyState, DependencyTarget, DependentNext, Flow,
    decide_dependent,
};
use task_engine_core::flow::name_in_flow;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::flows;
use crate::operator::OperationError;
use crate::report::{OperationOutcome, OperationReport, TaskOutcome};

/// Creates again those of these tasks that depend on others, and the selected tasks that these
/// depend on: all of a flow in one transaction. Others are left to [`rerun`].
pub(crate) async fn rerun_dependents(
    store: &dyn Store,
    ids: &[TaskId],
    report: &mut OperationReport,
) -> Result<(), OperationError> {
    let rows = flows::dependencies(store, ids, flows::DEPENDENCIES_READ_MAX).await?;
    if rows.len() >= flows::DEPENDENCIES_READ_MAX {
        return Err(OperationError::invalid(format!(
            "the tasks have {} dependencies or more, which is too many at once; select fewer tasks",
            flows::DEPENDENCIES_READ_MAX
        )));
    }
    let mut again = TasksToRerun::read(store, ids, rows, report).await?;
    again.skip_cancelled(report);
    while let Some((correlation_id, some)) = again.next_flow() {
        again.create(store, correlation_id, &some, report).await?;
    }
    Ok(())
}

/// Creates again tasks that depend on none.
pub(crate) async fn rerun(
    store: &dyn Store,
    ids: &[TaskId],
) -> Result<Vec<TaskOutcome>, StoreError> {
    let (mut tasks, mut again) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in ids {
        let outcome = match store.task(*id).await? {
            None => OperationOutcome::NotFound,
            Some(old) => match NewTask::rerun_of(&old) {
                Err(_) => OperationOutcome::SkippedInvalid,
                Ok(new) => {
                    again.push(new);
                    OperationOutcome::Rerun
                }
            },
        };
        tasks.push(TaskOutcome { id: *id, outcome, created: None });
    }
    let created = store.create(&again).await?;
    let recreated = tasks.iter_mut().filter(|task| task.outcome == OperationOutcome::Rerun);
    for (task, new) in recreated.zip(created) {
        task.created = Some(new);
    }
    Ok(tasks)
}

/// Tasks that are created again together.
#[derive(Default)]
struct TasksToRerun {
    /// What the old tasks depend on, without removed tasks.
    dependencies: BTreeMap<TaskId, Vec<DependencyRow>>,
    /// Those that are not created yet.
    open: BTreeMap<TaskId, TaskToRerun>,
    /// Their ids, by correlation id.
    flows: BTreeMap<String, BTreeSet<TaskId>>,
    /// The new tasks of the old ones.
    created: HashMap<TaskId, TaskId>,
}

struct TaskToRerun {
    correlation_id: String,
    name: String,
    new: NewTask,
}

impl TasksToRerun {
    async fn read(
        store: &dyn Store,
        ids: &[TaskId],
        rows: Vec<DependencyRow>,
        report: &mut OperationReport,
    ) -> Result<Self, StoreError> {
        let selected: HashSet<TaskId> = ids.iter().copied().collect();
        let mut again = Self::default();
        for row in rows {
            let dependencies = again.dependencies.entry(row.task_id).or_default();
            if row.status.is_some() {
                let on = row.depends_on;
                dependencies.push(row);
                if selected.contains(&on) {
                    again.dependencies.entry(on).or_default();
                }
            }
        }
        // Nothing is left of what it depended on: it is created as any other task.
        let needed: HashSet<TaskId> =
            again.dependencies.values().flatten().map(|row| row.depends_on).collect();
        again.dependencies.retain(|id, rows| !rows.is_empty() || needed.contains(id));
        for id in again.dependencies.keys() {
            let outcome = match store.task(*id).await? {
                None => OperationOutcome::NotFound,
                Some(old) => match NewTask::rerun_of(&old) {
                    Err(_) => OperationOutcome::SkippedInvalid,
                    Ok(new) => {
                        let name =
                            name_in_flow(&old.context).unwrap_or_else(|| old.row.class.clone());
                        let correlation_id = old.correlation_id;
                        again.flows.entry(correlation_id.clone()).or_default().insert(*id);
                        again.open.insert(*id, TaskToRerun { correlation_id, name, new });
                        continue;
                    }
                },
            };
            report.add_task(TaskOutcome { id: *id, outcome, created: None });
        }
        Ok(again)
    }

    /// What a task depends on; empty for most.
    fn dependencies(&self, id: TaskId) -> &[DependencyRow] {
        self.dependencies.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Leaves out tasks that would be cancelled as soon as they are created, because a task that is
    /// not created again did not end as they need.
    ///
    /// The same applies to the tasks that depend on them.
    fn skip_cancelled(&mut self, report: &mut OperationReport) {
        loop {
            let open: Vec<TaskId> = self.open.keys().copied().collect();
            let before = open.len();
            // Most tasks have higher ids than those that they depend on: one pass is enough.
            for id in open {
                if self.is_cancelled_at_once(id) {
                    self.take(id);
                    let outcome = OperationOutcome::SkippedDependency;
                    report.add_task(TaskOutcome { id, outcome, created: None });
                }
            }
            if self.open.len() == before {
                return;
            }
        }
    }

    fn is_cancelled_at_once(&self, id: TaskId) -> bool {
        let dependency = |row: &DependencyRow| Dependency {
            id: row.depends_on,
            name: None,
            condition: row.condition,
            state: match row.status {
                _ if self.open.contains_key(&row.depends_on) => DependencyState::Open,
                Some(TaskStatus::Waiting | TaskStatus::Running) => DependencyState::Open,
                Some(ended) => DependencyState::Ended(ended),
                None => DependencyState::Removed,
            },
        };
        let dependencies: Vec<Dependency> = self.dependencies(id).iter().map(dependency).collect();
        matches!(decide_dependent(&dependencies), DependentNext::Cancel(_))
    }

    /// The tasks to create next: those of one flow, without those that depend on a task of
    /// another flow that is not created yet.
    fn next_flow(&self) -> Option<(String, Vec<TaskId>)> {
        self.flows.iter().find_map(|(correlation_id, tasks)| {
            let mut ready = tasks.clone();
            loop {
                let before = ready.len();
                for id in tasks {
                    let mut on = self.dependencies(*id).iter().map(|row| row.depends_on);
                    if on.any(|on| self.open.contains_key(&on) && !ready.contains(&on)) {
                        ready.remove(id);
                    }
                }
                if ready.len() == before {
                    break;
                }
            }
            (!ready.is_empty()).then(|| (correlation_id.clone(), ready.into_iter().collect()))
        })
    }

    /// Takes a task out of those that are not created yet.
    fn take(&mut self, id: TaskId) -> Option<TaskToRerun> {
        let task = self.open.remove(&id)?;
        if let Some(tasks) = self.flows.get_mut(&task.correlation_id) {
            tasks.remove(&id);
            if tasks.is_empty() {
                self.flows.remove(&task.correlation_id);
            }
        }
        Some(task)
    }

    /// Creates some of the tasks in one transaction.
    async fn create(
        &mut self,
        store: &dyn Store,
        correlation_id: String,
        ids: &[TaskId],
        report: &mut OperationReport,
    ) -> Result<(), OperationError> {
        let mut names: HashMap<TaskId, String> = HashMap::new();
        let mut old_ids: HashMap<String, TaskId> = HashMap::new();
        let mut tasks = Vec::new();
        for id in ids {
            let Some(task) = self.take(*id) else { continue };
            // Copies of one task have the same name.
            let is_used = old_ids.contains_key(&task.name);
            let name = if is_used { format!("{} {id}", task.name) } else { task.name };
            old_ids.insert(name.clone(), *id);
            names.insert(*id, name.clone());
            tasks.push((*id, name, task.new));
        }
        let mut flow = Flow::new().correlation(correlation_id);
        for (id, name, task) in tasks {
            flow = flow.add(name, task);
            for row in self.dependencies(id) {
                let on = match names.get(&row.depends_on) {
                    Some(name) => DependencyTarget::Name(name.clone()),
                    None => {
                        let new = self.created.get(&row.depends_on).copied();
                        DependencyTarget::Id(new.unwrap_or(row.depends_on))
                    }
                };
                flow = flow.depend(on, row.condition);
            }
        }
        let flow =
            flow.resolve().map_err(|invalid| OperationError::invalid(invalid.to_string()))?;
        let created = store.create_flow(&flow).await?;
        for (task, new) in flow.tasks.iter().zip(created.ids) {
            let Some(id) = old_ids.get(&task.name).copied() else { continue };
            self.created.insert(id, new);
            let outcome = OperationOutcome::Rerun;
            report.add_task(TaskOutcome { id, outcome, created: Some(new) });
        }
        Ok(())
    }
}
