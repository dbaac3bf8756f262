//! Recorded steps of durable tasks.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::step::{
    NewCall, NewStep, StepContent, StepKind, StepOutcome, StepRow, TaskSteps,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::create::create;
use crate::ending::began;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::savepoint::{in_savepoint, lock, roll_back};
use crate::signals::{signal_of, signals_of};
use crate::value::read;

/// Records a step in a transaction of rusqlite, so that the step and the rows of the application
/// commit together.
///
/// A [`rusqlite::Transaction`] on the store's file can be passed as it is. Call it last: no other
/// transaction can write to the file until the transaction ends.
///
/// [`StoreError::AttemptOver`] means that the attempt has ended, and [`StoreError::Refused`] also
/// that a step of this name is recorded already: use [`recorded_step_in`] first. In both cases the
/// whole transaction has been rolled back, so that nothing of it can be committed. After any other
/// error it is as it was before the call.
pub fn record_step_in(connection: &Connection, step: &NewStep) -> Result<(), StoreError> {
    let outcome = in_savepoint(connection, |tx| {
        lock(tx)?;
        StepWriter::new(tx)?.record(step)
    })?;
    let error = match outcome {
        StepOutcome::Recorded { .. } => return Ok(()),
        StepOutcome::AttemptOver => StoreError::AttemptOver(step.id),
        StepOutcome::Exists => StoreError::Refused(format!(
            "step {:?} of task {} is recorded already; roll back: the recorded result counts",
            step.name, step.id.task_id
        )),
    };
    roll_back(connection);
    Err(error)
}

/// Returns a recorded step, as a transaction of the application sees it.
pub fn recorded_step_in(
    connection: &Connection,
    task_id: TaskId,
    name: &str,
) -> Result<Option<StepRow>, StoreError> {
    let step = step_of(&JobTransaction::new(connection), task_id, name);
    step.map_err(|error| error.explain(connection.path().unwrap_or("the database")))
}

/// Everything that is recorded about a task.
pub(crate) fn steps(tx: &JobTransaction<'_>, id: TaskId) -> Result<TaskSteps, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "steps"))?;
    let mut rows = statement.query([id.0])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(step_row(row)?);
    }
    Ok(TaskSteps { now: timestamp(tx.now()), steps, signals: signals_of(tx, id)? })
}

/// Records steps, each at most once.
pub(crate) fn record_steps(
    tx: &JobTransaction<'_>,
    steps: &[NewStep],
) -> Result<Vec<StepOutcome>, JobError> {
    let mut writer = StepWriter::new(tx)?;
    steps.iter().map(|step| writer.record(step)).collect()
}

/// Creates children and records the step that awaits them.
pub(crate) fn record_call(
    tx: &JobTransaction<'_>,
    call: &NewCall,
) -> Result<StepOutcome, JobError> {
    let mut writer = StepWriter::new(tx)?;
    // Before anything is created: the writer's transaction has no concurrent one.
    if let Some(refused) = writer.refusal(call.id, call.claim_id, &call.name)? {
        return Ok(refused);
    }
    let creations = create(tx, &call.children)?;
    let children: Vec<TaskId> = creations.into_iter().map(Creation::id).collect();
    if children.contains(&call.id.task_id) {
        let message =
            format!("task {} cannot wait for itself: a child has its unique key", call.id.task_id);
        return Err(StoreError::Refused(message).into());
    }
    let ids = serde_json::to_string(&children)?;
    writer.insert(&StepFields {
        id: call.id,
        name: &call.name,
        number: call.number,
        kind: StepKind::Call,
        result: Some(&ids),
        until: None,
        started_at: tx.now(),
    })?;
    let mut depend = tx.db.prepare_cached(sql!("engine/durable", "dependency_insert"))?;
    for child in &children {
        depend.execute([call.id.task_id.0, child.0])?;
    }
    Ok(StepOutcome::Recorded { now: timestamp(tx.now()), until: None, signal: None, children })
}

/// Creates a task with the first steps of another one. Refused if a task with its unique key
/// exists already.
pub(crate) fn create_with_steps(
    tx: &JobTransaction<'_>,
    task: &NewTask,
    from: TaskId,
    before_number: u32,
) -> Result<TaskId, JobError> {
    let creations = create(tx, std::slice::from_ref(task))?;
    let Some(creation) = creations.first() else {
        return Err(StoreError::Refused("no task was created".to_owned()).into());
    };
    let id = creation.id();
    if !creation.is_new() {
        let message = format!("task {id} has the unique key of the new task");
        return Err(StoreError::Refused(message).into());
    }
    let mut steps = tx.db.prepare_cached(sql!("engine/durable", "steps_copy"))?;
    steps.execute(params![id.0, from.0, before_number])?;
    let mut signals = tx.db.prepare_cached(sql!("engine/durable", "signals_copy"))?;
    signals.execute([id.0, from.0])?;
    tx.db.prepare_cached(sql!("engine/durable", "dependencies_copy"))?.execute([id.0])?;
    let mut conditions = tx.db.prepare_cached(sql!("engine/durable", "conditions_copy"))?;
    conditions.execute([id.0, from.0])?;
    Ok(id)
}

/// Records steps. What it reads and prepares serves many of them.
struct StepWriter<'t> {
    tx: &'t JobTransaction<'t>,
    open: OpenAttempts<'t>,
    exists: CachedStatement<'t>,
    insert: CachedStatement<'t>,
}

/// A step as it is stored.
struct StepFields<'a> {
    id: AttemptId,
    name: &'a str,
    number: u32,
    kind: StepKind,
    result: Option<&'a str>,
    until: Option<i64>,
    started_at: i64,
}

impl<'t> StepWriter<'t> {
    fn new(tx: &'t JobTransaction<'t>) -> Result<Self, JobError> {
        Ok(Self {
            tx,
            open: OpenAttempts::new(tx),
            exists: tx.db.prepare_cached(sql!("engine/durable", "step"))?,
            insert: tx.db.prepare_cached(sql!("engine/durable", "step_insert"))?,
        })
    }

    fn record(&mut self, step: &NewStep) -> Result<StepOutcome, JobError> {
        if let Some(refused) = self.refusal(step.id, step.claim_id, &step.name)? {
            return Ok(refused);
        }
        let now = self.tx.now();
        let result = step.content.result();
        let until = match &step.content {
            StepContent::SleepFor(time) | StepContent::Wait(time) => {
                Some(self.tx.moment.after(*time))
            }
            StepContent::SleepUntil(time) => Some(time.as_microsecond()),
            StepContent::Value(_) | StepContent::ChildrenEnded(_) => None,
        };
        self.insert(&StepFields {
            id: step.id,
            name: &step.name,
            number: step.number,
            kind: step.content.kind(),
            result: result.as_ref().map(|result| result.as_str()),
            until,
            started_at: began(now, step.lasted),
        })?;
        let signal = match step.content {
            StepContent::Wait(_) => signal_of(self.tx, step.id.task_id, &step.name)?,
            _ => None,
        };
        Ok(StepOutcome::Recorded {
            now: timestamp(now),
            until: until.map(timestamp),
            signal,
            children: Vec::new(),
        })
    }

    /// Why a step cannot be recorded. A record of this name comes first: an engine that has
    /// lost the answer to its own record asks again, maybe after the end of the attempt.
    fn refusal(
        &mut self,
        id: AttemptId,
        claim_id: ClaimId,
        name: &str,
    ) -> Result<Option<StepOutcome>, JobError> {
        if self.exists.exists(params![id.task_id.0, name])? {
            return Ok(Some(StepOutcome::Exists));
        }
        Ok((!self.open.contains(id, claim_id)?).then_some(StepOutcome::AttemptOver))
    }

    fn insert(&mut self, step: &StepFields<'_>) -> Result<(), JobError> {
        self.insert.execute(params![
            step.id.task_id.0,
            step.name,
            step.number,
            step.id.attempt,
            step.kind.as_str(),
            step.result,
            step.until,
            step.started_at,
            self.tx.now(),
        ])?;
        Ok(())
    }
}

/// Attempts that may still write: their claim holds them, they have not ended, and their
/// tasks exist. Each claim is read once, because the steps of a batch often share one.
pub(crate) struct OpenAttempts<'t> {
    tx: &'t JobTransaction<'t>,
    claims: HashMap<ClaimId, Vec<AttemptId>>,
}

impl<'t> OpenAttempts<'t> {
    pub(crate) fn new(tx: &'t JobTransaction<'t>) -> Self {
        Self { tx, claims: HashMap::new() }
    }

    pub(crate) fn contains(&mut self, id: AttemptId, claim: ClaimId) -> Result<bool, JobError> {
        if !self.held_by(claim)?.contains(&id) {
            return Ok(false);
        }
        let key = params![id.task_id.0, id.attempt];
        let db = self.tx.db;
        Ok(!db.prepare_cached(sql!("engine/record", "ended_by"))?.exists(key)?
            && db.prepare_cached(sql!("engine/record", "task_exists"))?.exists([id.task_id.0])?)
    }

    fn held_by(&mut self, claim: ClaimId) -> Result<&[AttemptId], JobError> {
        if !self.claims.contains_key(&claim) {
            let mut statement = self.tx.db.prepare_cached(sql!("engine/complete", "claim"))?;
            let attempts = statement.query_row([claim.0], |row| read::<String>(row, 1)).optional();
            let attempts: Vec<(TaskId, i32, u32)> = match attempts? {
                Some(attempts) => serde_json::from_str(&attempts)?,
                None => Vec::new(),
            };
            let attempts = attempts.into_iter();
            let attempts = attempts.map(|(task_id, attempt, _)| AttemptId { task_id, attempt });
            self.claims.insert(claim, attempts.collect());
        }
        Ok(self.claims.get(&claim).map_or(&[], Vec::as_slice))
    }
}

fn step_of(
    tx: &JobTransaction<'_>,
    task_id: TaskId,
    name: &str,
) -> Result<Option<StepRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "step"))?;
    let mut rows = statement.query(params![task_id.0, name])?;
    rows.next()?.map(step_row).transpose()
}

fn step_row(row: &Row<'_>) -> Result<StepRow, JobError> {
    let kind: String = read(row, 2)?;
    let kind = StepKind::from_token(&kind).ok_or_else(|| {
        StoreError::Refused(format!("a stored step has the kind {kind:?}, which is unknown"))
    })?;
    Ok(StepRow {
        name: read(row, 0)?,
        number: read(row, 1)?,
        kind,
        attempt: read(row, 3)?,
        result: read(row, 4)?,
        until: read(row, 5)?,
        started_at: read(row, 6)?,
        recorded_at: read(row, 7)?,
    })
}
