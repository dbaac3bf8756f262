//! Flows: tasks that depend on others.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::dependency::{
    AddMembersOutcome, CreatedFlow, DependencyCondition, DependencyRef, NewFlow, NewFlowTask,
    NewMembers,
};
use task_engine_core::flow::Origin;
use task_engine_core::json::Json;
use task_engine_core::limit::blocked_queue;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::create::Insert;
use crate::dependents::{BlockedTask, Resolver, block, condition, newest_end};
use crate::error::JobError;
use crate::limits::check_named;
use crate::read::{HeldTasks, held_tasks};
use crate::savepoint::{in_savepoint, lock};
use crate::steps::OpenAttempts;
use crate::task_operations::{TaskLocation, find};
use crate::unique;
use crate::value::read;

/// The field of a context with the name of the flow.
const CORRELATION_ID: &str = "correlation_id";

/// Creates a flow in a transaction of rusqlite: its tasks exist if it commits.
///
/// A [`rusqlite::Transaction`] can be passed as it is. After an error the transaction is as it was
/// before the call.
///
/// Outside of a transaction this is one of its own. Engines learn of the tasks within
/// milliseconds of the commit. No other transaction can write to the file until the
/// transaction ends.
pub fn create_flow_in(connection: &Connection, flow: &NewFlow) -> Result<CreatedFlow, StoreError> {
    in_savepoint(connection, |tx| {
        lock(tx)?;
        create(tx, flow)
    })
}

/// The caller is in a transaction, has the lock of the writer, and rolls back if this fails.
pub(crate) fn create(tx: &JobTransaction<'_>, flow: &NewFlow) -> Result<CreatedFlow, JobError> {
    tx.brings_work.set(true);
    let mut creation = FlowCreation::begin(tx, flow)?;
    for task in &flow.tasks {
        creation.create(task)?;
    }
    creation.finish(flow.name.as_deref())
}

/// Creates tasks that the dependents of a running task wait for, too.
pub(crate) fn add_members(
    tx: &JobTransaction<'_>,
    members: &NewMembers,
) -> Result<AddMembersOutcome, JobError> {
    let running = members.id.task_id;
    if !OpenAttempts::new(tx).contains(members.id, members.claim_id)? {
        return Ok(AddMembersOutcome::AttemptOver);
    }
    let dependents = dependents_to_extend(tx, running)?;
    if !dependents.iter().any(|dependent| dependent.is_blocked) {
        return Ok(AddMembersOutcome::NoDependents);
    }
    if let Some(member) = members.tasks.iter().find(|member| member.unique.is_some()) {
        let message = format!(
            "a member of class {:?} has a unique key, and members are always new tasks",
            member.class
        );
        return Err(StoreError::Refused(message).into());
    }
    let created = crate::create::create(tx, &members.tasks)?;
    let ids: Vec<TaskId> = created.into_iter().map(Creation::id).collect();
    // Their ids are higher than what the dependents wait for now.
    for dependent in dependents {
        for id in &ids {
            depend(tx, dependent.id, *id, dependent.condition)?;
        }
    }
    Ok(AddMembersOutcome::Added(ids))
}

/// A task that will depend on the members of a running one.
struct ExtendedDependent {
    id: TaskId,
    condition: DependencyCondition,
    /// Otherwise it was cancelled, and a retry restores it.
    is_blocked: bool,
}

fn dependents_to_extend(
    tx: &JobTransaction<'_>,
    running: TaskId,
) -> Result<Vec<ExtendedDependent>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/flows", "dependents_to_extend"))?;
    let mut rows = statement.query([running.0])?;
    let mut dependents = Vec::new();
    let mut held: Option<HeldTasks> = None;
    while let Some(row) = rows.next()? {
        let id = TaskId(read(row, 0)?);
        let is_blocked: bool = read(row, 2)?;
        if !is_blocked {
            let held = match &mut held {
                Some(held) => held,
                none => none.insert(held_tasks(tx)?),
            };
            // A retry has started it.
            if !matches!(find(tx, held, id)?, TaskLocation::Ended(..)) {
                continue;
            }
        }
        dependents.push(ExtendedDependent { id, condition: condition(row, 1)?, is_blocked });
    }
    Ok(dependents)
}

fn depend(
    tx: &JobTransaction<'_>,
    id: TaskId,
    on: TaskId,
    condition: DependencyCondition,
) -> Result<(), JobError> {
    let mut depend = tx.db.prepare_cached(sql!("engine/flows", "depend"))?;
    depend.execute(params![id.0, on.0, condition.as_str()])?;
    Ok(())
}

/// A flow that is being created.
struct FlowCreation<'t> {
    tx: &'t JobTransaction<'t>,
    insert: Insert<'t>,
    held: Option<HeldTasks>,
    correlation_id: Option<String>,
    /// The tasks so far, in their order.
    ids: Vec<TaskId>,
    /// Tasks that were there before, and whether the engine of one does not know that others
    /// depend on it.
    existing: HashMap<TaskId, bool>,
    /// Tasks that depend on those that were there before: they may have ended.
    undecided: Vec<BlockedTask>,
}

impl<'t> FlowCreation<'t> {
    fn begin(tx: &'t JobTransaction<'t>, flow: &NewFlow) -> Result<Self, JobError> {
        let tasks: Vec<NewTask> = flow.tasks.iter().map(|task| task.task.clone()).collect();
        check_named(tx, &tasks)?;
        let mut creation = Self {
            tx,
            insert: Insert::prepare(tx)?,
            held: None,
            correlation_id: flow.correlation_id.clone(),
            ids: Vec::with_capacity(flow.tasks.len()),
            existing: HashMap::new(),
            undecided: Vec::new(),
        };
        for dependency in flow.tasks.iter().flat_map(|task| &task.dependencies) {
            if let DependencyRef::Existing(id) = dependency.on {
                creation.depend_on_existing(id)?;
            }
        }
        Ok(creation)
    }

    /// Prepares a task that is there already: its engine learns that others wait for it. If it
    /// was retried before, its last end does not count.
    fn depend_on_existing(&mut self, id: TaskId) -> Result<(), JobError> {
        if self.existing.contains_key(&id) {
            return Ok(());
        }
        let db = self.tx.db;
        let mut context = db.prepare_cached(sql!("engine/flows", "existing_task"))?;
        let context: Option<String> = context.query_row([id.0], |row| read(row, 0)).optional()?;
        let Some(context) = context else {
            let message = format!("task {id} does not exist, or was removed");
            return Err(StoreError::Refused(message).into());
        };
        if self.correlation_id.is_none() {
            let origin = Origin::of(id, &Json::from_store(context));
            self.correlation_id = Some(origin.correlation_id);
        }
        db.prepare_cached(sql!("engine/flows", "await_task"))?.execute([id.0])?;
        let held = match &mut self.held {
            Some(held) => held,
            none => none.insert(held_tasks(self.tx)?),
        };
        let place = find(self.tx, held, id)?;
        if matches!(place, TaskLocation::Waiting { .. } | TaskLocation::Held(_))
            && let Some(end) = newest_end(self.tx, id)?.filter(|end| end.ends_task.is_some())
        {
            db.prepare_cached(sql!("engine/flows", "reopen"))?
                .execute(params![id.0, end.attempt])?;
        }
        self.existing.insert(id, matches!(place, TaskLocation::Held(_)));
        Ok(())
    }

    fn create(&mut self, new: &NewFlowTask) -> Result<(), JobError> {
        if new.dependencies.is_empty() {
            return self.create_first(&new.task);
        }
        let id = self.add(&new.task, true)?;
        let mut on: BTreeMap<TaskId, DependencyCondition> = BTreeMap::new();
        for dependency in &new.dependencies {
            let target = match dependency.on {
                DependencyRef::Existing(id) => id,
                DependencyRef::InFlow(place) => *self.ids.get(place).ok_or_else(|| {
                    let message = format!("task {:?} comes before a dependency", new.name);
                    StoreError::Refused(message)
                })?,
            };
            // Two unique tasks of the flow may be one that exists.
            if *on.entry(target).or_insert(dependency.condition) != dependency.condition {
                let message = format!(
                    "task {:?} depends on task {target} under two conditions; use one",
                    new.name
                );
                return Err(StoreError::Refused(message).into());
            }
        }
        for (target, condition) in &on {
            depend(self.tx, id, *target, *condition)?;
        }
        let late = on.keys().any(|target| self.existing.get(target) == Some(&true));
        if let Some((lowest, _)) = on.first_key_value() {
            let attempt = AttemptId { task_id: id, attempt: 0 };
            let task = BlockedTask { id: attempt, blocked_on: *lowest };
            block(self.tx, &task, late)?;
            if on.keys().any(|target| self.existing.contains_key(target)) {
                self.undecided.push(task);
            }
        }
        self.ids.push(id);
        Ok(())
    }

    /// Creates a task that depends on none. A unique one may exist already.
    fn create_first(&mut self, task: &NewTask) -> Result<(), JobError> {
        let Some(unique) = &task.unique else {
            let id = self.add(task, false)?;
            self.ids.push(id);
            return Ok(());
        };
        let prepared = self.prepared(task)?;
        let task = prepared.as_ref().unwrap_or(task);
        let creation = unique::create(self.tx, &mut self.insert, &mut self.held, task, unique)?;
        if creation.is_new() {
            self.correlate(task, creation.id());
        } else {
            self.depend_on_existing(creation.id())?;
        }
        self.ids.push(creation.id());
        Ok(())
    }

    fn add(&mut self, task: &NewTask, is_blocked: bool) -> Result<TaskId, JobError> {
        let prepared = self.prepared(task)?;
        let task = prepared.as_ref().unwrap_or(task);
        let id = if is_blocked {
            self.insert.run_in(self.tx, task, &blocked_queue(&task.queue))?
        } else {
            self.insert.run(self.tx, task)?
        };
        self.correlate(task, id);
        Ok(id)
    }

    /// The task with the correlation id of the flow, as soon as that is known.
    fn prepared(&self, task: &NewTask) -> Result<Option<NewTask>, JobError> {
        let Some(correlation_id) = &self.correlation_id else {
            return Ok(None);
        };
        let mut task = task.clone();
        task.add_context(CORRELATION_ID, correlation_id)
            .map_err(|why| StoreError::Refused(why.to_string()))?;
        Ok(Some(task))
    }

    /// The first task begins the flow: without a correlation id of its own, the id of the task
    /// is that of the flow.
    fn correlate(&mut self, first: &NewTask, id: TaskId) {
        if self.correlation_id.is_none() {
            self.correlation_id = Some(Origin::of(id, &first.context).correlation_id);
        }
    }

    fn finish(self, name: Option<&str>) -> Result<CreatedFlow, JobError> {
        let mut resolver = Resolver::new(self.tx);
        for task in &self.undecided {
            resolver.decide(task)?;
        }
        resolver.resolve()?;
        let correlation_id = self.correlation_id.unwrap_or_default();
        let mut insert = self.tx.db.prepare_cached(sql!("engine/flows", "flow_insert"))?;
        insert.execute(params![correlation_id, name, self.tx.now()])?;
        Ok(CreatedFlow { correlation_id, ids: self.ids })
    }
}
