//! Operations on schedules.

use serde_json::{Value, json};
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_core::schedule::{
    InvalidDefinition, InvalidSchedule, Schedule, ScheduleDefinition,
};
use task_engine_core::secret::{Secrets, UnexpectedPlaceholder};
use task_engine_core::unique::{Creation, Unique};
use task_engine_store::schedules::{ChangeOutcome, ScheduleError, Schedules};

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};

impl Operator {
    /// Adds a schedule.
    pub async fn add_schedule(
        &self,
        schedule: &Schedule,
    ) -> Result<OperationReport, OperationError> {
        let name = schedule.name();
        let definition = schedule.definition().map_err(ScheduleError::from)?;
        if self.store.schedule(name).await?.0.is_some() {
            return Err(ScheduleError::Exists(name.to_owned()).into());
        }
        self.check_schedule(&self.store.instances(None).await?, &definition)?;
        let work = async {
            self.schedules().add(schedule).await?;
            Ok(OperationReport::of(OperationOutcome::Added))
        };
        let audited = AuditedOperation::new("schedules.add", name).detail(rule_of(&definition));
        self.audited(audited, work).await
    }

    /// Changes a schedule: `change` makes the new definition of the stored one.
    ///
    /// Placeholders in new parameters become the stored secrets.
    pub async fn set_schedule(
        &self,
        name: &str,
        change: impl Fn(&ScheduleDefinition) -> ScheduleDefinition + Send + Sync,
    ) -> Result<OperationReport, OperationError> {
        let engines = self.store.instances(None).await?;
        let secrets = Secrets::of(&engines);
        let changed = |stored: &ScheduleDefinition| changed(name, stored, &change, &secrets);
        let stored = self.schedule(name).await?.definition();
        let stored = stored.map_err(|why| OperationError::Conflict(why.to_string()))?;
        let definition = changed(&stored).map_err(ScheduleError::from)?;
        let invalid = |why| InvalidSchedule { name: name.to_owned(), why };
        definition.check(name).map_err(|why| ScheduleError::from(invalid(why)))?;
        if (&definition.class, &definition.parameters) != (&stored.class, &stored.parameters) {
            self.check_schedule(&engines, &definition)?;
        }
        let work = async {
            let done = self.schedules().change(name, &changed).await?;
            Ok(written(done, OperationOutcome::Changed, OperationOutcome::Unchanged))
        };
        let audited = AuditedOperation::new("schedules.set", name).detail(rule_of(&definition));
        self.audited(audited, work).await
    }

    /// Stops a schedule from firing until it is resumed.
    ///
    /// The reason is that of the operator.
    pub async fn pause_schedule(&self, name: &str) -> Result<OperationReport, OperationError> {
        self.schedule(name).await?;
        let work = async {
            let done = self.schedules().pause(name, self.reason.as_deref()).await?;
            Ok(written(done, OperationOutcome::Paused, OperationOutcome::AlreadyPaused))
        };
        self.audited(AuditedOperation::new("schedules.pause", name), work).await
    }

    /// Lets a schedule fire again.
    pub async fn resume_schedule(&self, name: &str) -> Result<OperationReport, OperationError> {
        self.schedule(name).await?;
        let work = async {
            let done = self.schedules().resume(name).await?;
            Ok(written(done, OperationOutcome::Resumed, OperationOutcome::NotPaused))
        };
        self.audited(AuditedOperation::new("schedules.resume", name), work).await
    }

    /// Creates one task of a schedule now; once for each `unique`.
    pub async fn run_schedule(
        &self,
        name: &str,
        unique: Option<Unique>,
    ) -> Result<OperationReport, OperationError> {
        self.schedule(name).await?;
        let work = async {
            let created = self.schedules().run(name, unique, Some(&self.actor.name)).await?;
            Ok(OperationReport {
                task_ids: vec![created.id()],
                ..OperationReport::of(creation_outcome(&created))
            })
        };
        self.audited(AuditedOperation::new("schedules.run", name), work).await
    }

    /// Removes a schedule; its tasks stay.
    pub async fn remove_schedule(&self, name: &str) -> Result<OperationReport, OperationError> {
        self.schedule(name).await?;
        let work = async {
            self.schedules().remove(name).await?;
            Ok(OperationReport::of(OperationOutcome::Removed))
        };
        self.audited(AuditedOperation::new("schedules.remove", name), work).await
    }

    fn schedules(&self) -> Schedules<'_> {
        Schedules::of(&*self.store)
    }

    async fn schedule(&self, name: &str) -> Result<ScheduleRow, OperationError> {
        let row = self.store.schedule(name).await?.0;
        row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()).into())
    }
}

/// Returns the outcome of creating one task.
#[must_use]
pub fn creation_outcome(creation: &Creation) -> OperationOutcome {
    match creation {
        Creation::Created(_) => OperationOutcome::Created,
        Creation::Kept(_) => OperationOutcome::Kept,
        Creation::Replaced(_) => OperationOutcome::Replaced,
    }
}

fn changed(
    name: &str,
    stored: &ScheduleDefinition,
    change: &impl Fn(&ScheduleDefinition) -> ScheduleDefinition,
    secrets: &Secrets,
) -> Result<ScheduleDefinition, InvalidSchedule> {
    let mut new = change(stored);
    if new.parameters != stored.parameters {
        let invalid = |found: UnexpectedPlaceholder| InvalidSchedule {
            name: name.to_owned(),
            why: found.into(),
        };
        secrets.restore(&mut new, stored).map_err(invalid)?;
    }
    Ok(new)
}

fn written(
    done: ChangeOutcome,
    changed: OperationOutcome,
    unchanged: OperationOutcome,
) -> OperationReport {
    OperationReport::of(if done == ChangeOutcome::Changed { changed } else { unchanged })
}

fn rule_of(definition: &ScheduleDefinition) -> Value {
    json!({
        "rule": definition.rule,
        "time_zone": definition.time_zone,
        "class": definition.class,
    })
}

impl From<ScheduleError> for OperationError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Store(error) => error.into(),
            ScheduleError::Invalid(InvalidSchedule {
                why: InvalidDefinition::Placeholder(found),
                ..
            }) => Self::placeholder("/parameters", &found),
            ScheduleError::NotFound(_) => Self::NotFound(error.to_string()),
            ScheduleError::Exists(_) => Self::Conflict(error.to_string()),
            _ => Self::invalid(error.to_string()),
        }
    }
}
