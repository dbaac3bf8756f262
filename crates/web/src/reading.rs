//! What is shown of tasks and schedules, to people and to programs: without what
//! their classes have declared secret. Only what is written back is read elsewhere.

use std::ops::Deref;

use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::report::{LogFilter, LogRow};
use task_engine_core::schedule::history::ScheduleDetails;
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_core::secret::{Redactor, Secrets, refuse_placeholders, restore};
use task_engine_core::task::{NewTask, TaskDetails, TaskId};
use task_engine_operations::why::{Explanation, why};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::Schedules;
use task_engine_store::token::Role;

use crate::access::Actor;
use crate::action::{Choice, no_task, schedule_problem, stray_placeholder};
use crate::app::Inner;
use crate::problem::Problem;

/// A task as it may be seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) task: TaskDetails,
    /// Takes its secrets out of whatever else is shown of it.
    redactor: Redactor,
}

impl Deref for Seen {
    type Target = TaskDetails;

    fn deref(&self) -> &TaskDetails {
        &self.task
    }
}

impl Seen {
    /// Whether something was left out.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.redactor.is_empty()
    }
}

impl Inner {
    /// A task without its secrets.
    pub(crate) async fn task(&self, id: TaskId) -> Result<Seen, Problem> {
        let mut task = self.store.task(id).await?.ok_or_else(|| no_task(id))?;
        let redactor = self.secrets().await?.redactor_of(&task);
        redactor.task(&mut task);
        Ok(Seen { task, redactor })
    }

    /// The same with all its parameters, for who may see them and has asked: it
    /// is in the audit.
    pub(crate) async fn task_revealed(&self, id: TaskId) -> Result<TaskDetails, Problem> {
        self.store.task(id).await?.ok_or_else(|| no_task(id))
    }

    /// A task, and why it is where it is.
    pub(crate) async fn why(&self, id: TaskId) -> Result<(Explanation, Seen), Problem> {
        let mut why = why(&*self.store, id).await?.ok_or_else(|| no_task(id))?;
        let redactor = self.secrets().await?.redactor_of(&why.task);
        redactor.task(&mut why.task);
        let seen = Seen { task: why.task.clone(), redactor };
        Ok((why, seen))
    }

    /// Lines of a task's log.
    pub(crate) async fn logs(
        &self,
        seen: &Seen,
        filter: &LogFilter,
    ) -> Result<Vec<LogRow>, Problem> {
        let mut lines = self.store.logs(seen.task.row.id, filter).await?;
        seen.redactor.log(&mut lines);
        Ok(lines)
    }

    /// A page of schedules, by name.
    pub(crate) async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ScheduleRow>, Problem> {
        let mut rows = self.store.schedules(after, limit).await?;
        let secrets = self.secrets().await?;
        rows.iter_mut().for_each(|row| secrets.schedule(row));
        Ok(rows)
    }

    /// A schedule with what became of its last slots.
    pub(crate) async fn schedule(
        &self,
        name: &str,
        limit: u32,
    ) -> Result<ScheduleDetails, Problem> {
        let found = Schedules::of(&*self.store).show(name, limit).await;
        let mut details = found.map_err(schedule_problem)?;
        self.secrets().await?.schedule(&mut details.row);
        Ok(details)
    }

    /// This filter as somebody may ask by it. The answers to `params.password~a`
    /// would tell a secret letter by letter.
    pub(crate) async fn allowed(&self, actor: &Actor, filter: Filter) -> Result<Filter, Problem> {
        if actor.role >= Role::Admin {
            return Ok(filter);
        }
        if filter.asks_about_request() {
            return Err(Problem::forbidden(
                "Only an admin may ask by the request that created a task (context.http_request).",
            ));
        }
        let filter = if filter.asks_about_unique_key() {
            filter.and(Filter::without_idempotency_keys())
        } else {
            filter
        };
        if !filter.asks_about_parameters() {
            return Ok(filter);
        }
        if self.secrets().await?.any() {
            return Err(Problem::forbidden(
                "Some classes have secret parameters, so only an admin may ask by parameters (params.…).",
            ));
        }
        // No engine that is known has said so. The tasks themselves may.
        Ok(filter.and(Filter::without_secrets()))
    }

    /// The same for what is chosen.
    pub(crate) async fn allowed_choice(
        &self,
        actor: &Actor,
        choice: Choice,
    ) -> Result<Choice, Problem> {
        match choice {
            Choice::Filter(filter) => self.allowed(actor, filter).await.map(Choice::Filter),
            ids @ Choice::Ids(_) => Ok(ids),
        }
    }

    /// New tasks that remember which of their parameters are secret, so that they
    /// stay so when no engine is known that says it.
    pub(crate) async fn with_secrets_named(
        &self,
        tasks: &[NewTask],
    ) -> Result<Vec<NewTask>, Problem> {
        let secrets = self.secrets().await?;
        let named = tasks.iter().map(|task| task.clone().secret(&secrets.of_class(&task.class)));
        named.collect::<Result<_, _>>().map_err(|bad| Problem::bad(bad.to_string()))
    }

    /// An edit by somebody who has seen the task without its secrets: placeholders
    /// in new parameters become what is stored.
    pub(crate) async fn with_secrets_restored(
        &self,
        id: TaskId,
        edit: Edit,
    ) -> Result<Edit, Problem> {
        let Some(parameters) = &edit.parameters else { return Ok(edit) };
        let task = self.store.task(id).await?.ok_or_else(|| no_task(id))?;
        let redactor = self.secrets().await?.redactor_of(&task);
        let restored = restore(parameters, &task.task_parameters, redactor.parameters())
            .map_err(|stray| stray_placeholder("/parameters", &stray))?;
        Ok(Edit { parameters: Some(restored), ..edit })
    }

    /// Refuses placeholders in the parameters of new tasks, each with where they
    /// are in the body.
    pub(crate) async fn check_placeholders<'a>(
        &self,
        tasks: impl IntoIterator<Item = (&'a NewTask, String)>,
    ) -> Result<(), Problem> {
        let secrets = self.secrets().await?;
        for (task, place) in tasks {
            let inside = !secrets.of_class(&task.class).is_empty();
            refuse_placeholders(&task.parameters, inside)
                .map_err(|stray| stray_placeholder(&place, &stray))?;
        }
        Ok(())
    }

    /// What engines have declared secret.
    pub(crate) async fn secrets(&self) -> Result<Secrets, StoreError> {
        Ok(Secrets::of(&self.glance.now().await?.engines))
    }
}
