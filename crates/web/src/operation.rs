//! Operations by pages and by the HTTP API, and the creation of tasks.
//!
//! Operations are audited by the operations layer. Tasks that programs create are not: each has
//! its creator in its context, and a program may create thousands in a minute.

mod once;

use task_engine::{CreateError, TaskEngine};
use task_engine_core::dependency::NewFlow;
use task_engine_core::display::{capitalize, count};
use task_engine_core::secret::request::CONTEXT_CREATOR;
use task_engine_core::task::NewTask;
use task_engine_core::unique::Creation;
use task_engine_operations::flows::{self, FlowReport};
use task_engine_operations::schedules::creation_outcome;
use task_engine_operations::{Actor, AuditedOperation, OperationError, OperationReport, Operator};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::ScheduleError;
use task_engine_store::token::Role;

use crate::app::{App, AppState};
use crate::error::ApiError;

pub(crate) use once::{form_key, mark_all, mark_of, one_time, unique};

impl AppState {
    /// Performs operations for this actor.
    pub(crate) fn operator(&self, actor: &Actor) -> Operator {
        Operator::new(self.store.clone(), actor.clone())
    }
}

/// Performs an operation for an actor.
pub(crate) async fn perform<T, W>(
    app: &App,
    actor: &Actor,
    reason: Option<&str>,
    work: impl FnOnce(Operator) -> W,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    W: Future<Output = Result<T, OperationError>> + Send + 'static,
{
    let result = uninterrupted(app, work(app.operator(actor).reason(reason))).await?;
    Ok(result.inspect_err(|error| {
        tracing::info!(actor = actor.name, %error, "an operation was refused or failed");
    })?)
}

/// An operation on the queue, engine, limit, schedule or token of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedOperation {
    PauseQueue,
    ResumeQueue,
    Recover,
    ClearLimit,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
    RemoveSchedule,
    RevokeToken,
}

impl NamedOperation {
    /// The role that it needs.
    pub(crate) fn needs(self) -> Role {
        match self {
            Self::RemoveSchedule | Self::RevokeToken => Role::Admin,
            _ => Role::Operator,
        }
    }

    pub(crate) async fn perform(
        self,
        operator: Operator,
        name: String,
    ) -> Result<OperationReport, OperationError> {
        match self {
            Self::PauseQueue => operator.pause_queue(&name).await,
            Self::ResumeQueue => operator.resume_queue(&name).await,
            Self::Recover => operator.recover(&name).await,
            Self::ClearLimit => operator.clear_limit(&name).await,
            Self::PauseSchedule => operator.pause_schedule(&name).await,
            Self::ResumeSchedule => operator.resume_schedule(&name).await,
            Self::RunSchedule => operator.run_schedule(&name, None).await,
            Self::RemoveSchedule => operator.remove_schedule(&name).await,
            Self::RevokeToken => operator.revoke_token(&name).await,
        }
    }
}

/// Tasks that are to be created.
#[derive(Debug)]
pub(crate) struct NewTasks {
    pub(crate) tasks: Vec<NewTask>,
    /// The marks of the request, if it creates its tasks once however often it comes.
    pub(crate) marks: Option<Vec<String>>,
}

impl NewTasks {
    /// Creates them for a program.
    pub(crate) async fn create_for(
        self,
        app: &App,
        actor: &Actor,
    ) -> Result<Vec<Creation>, ApiError> {
        let (new, actor) = (self, actor.clone());
        let work = app.clone();
        Ok(uninterrupted(app, async move { new.create(&work, &actor).await }).await??)
    }

    /// Creates them for a person, with entries in the audit.
    pub(crate) async fn create_audited(
        self,
        app: App,
        operator: Operator,
    ) -> Result<OperationReport, OperationError> {
        let target = match &self.tasks[..] {
            [task] => task.class.clone(),
            tasks => count(tasks.len(), "task"),
        };
        let work = async {
            let creations = self.create(&app, operator.actor()).await?;
            let mut report = OperationReport::default();
            for creation in &creations {
                report.add(creation_outcome(creation));
                report.task_ids.push(creation.id());
            }
            Ok(report)
        };
        operator.audited(AuditedOperation::new("tasks.create", target), work).await
    }

    async fn create(mut self, app: &App, actor: &Actor) -> Result<Vec<Creation>, OperationError> {
        for task in &mut self.tasks {
            let added = task.add_context(CONTEXT_CREATOR, &actor.name);
            added.map_err(|invalid| OperationError::invalid(invalid.to_string()))?;
        }
        let tasks = app.with_secrets_named(&self.tasks).await?;
        let client = TaskEngine::new(app.store.clone());
        let creations = client.create_each(&tasks).await.map_err(|error| match error {
            CreateError::Store(error) => error.into(),
            error => OperationError::invalid(error.to_string()),
        })?;
        if let Some(marks) = &self.marks {
            once::check(&*app.store, &creations, marks).await?;
        }
        Ok(creations)
    }
}

/// A flow that is to be created.
#[derive(Debug)]
pub(crate) struct NewFlowRequest {
    pub(crate) flow: NewFlow,
    /// The key and the mark of the request, if it creates its flow once however often it comes.
    pub(crate) once: Option<(String, String)>,
}

impl NewFlowRequest {
    /// Creates it for a program; false if it exists already.
    pub(crate) async fn create_for(
        self,
        app: &App,
        actor: &Actor,
    ) -> Result<(FlowReport, bool), ApiError> {
        let (new, actor) = (self, actor.clone());
        let work = app.clone();
        Ok(uninterrupted(app, async move { new.create(&work, &actor).await }).await??)
    }

    async fn create(
        mut self,
        app: &App,
        actor: &Actor,
    ) -> Result<(FlowReport, bool), OperationError> {
        flows::prepare(&mut self.flow, Some(&actor.name), &app.secrets().await?)?;
        let Some((key, mark)) = &self.once else {
            return Ok((self.store(app).await?, true));
        };
        once::mark_flow(&mut self.flow, key, mark)?;
        let before = once::created_flow(&*app.store, &self.flow, mark).await?;
        if let Some(report) = before {
            return Ok((report, false));
        }
        let report = self.store(app).await?;
        match once::undo_second_flow(&*app.store, &self.flow, &report, mark).await? {
            Some(first) => Ok((first, false)),
            None => Ok((report, true)),
        }
    }

    async fn store(&self, app: &App) -> Result<FlowReport, OperationError> {
        let created = app.store.create_flow(&self.flow).await;
        let created = created.map_err(|error| match error {
            // It depends on a task that does not exist.
            StoreError::Refused(why) => {
                OperationError::Conflict(format!("{why}; nothing was created"))
            }
            error => error.into(),
        })?;
        Ok(FlowReport::of(&self.flow, &created))
    }
}

/// Completes work that has begun, even if the client disconnects.
async fn uninterrupted<T: Send + 'static>(
    app: &App,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ApiError> {
    let result = tokio::spawn(work).await.map_err(|_| {
        ApiError::new(
            axum::http::StatusCode::INTERNAL_SERVER_ERROR,
            "The server failed while it did this; its log says where. The audit says what was begun.",
        )
    });
    app.cache.invalidate().await;
    result
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        let detail = sentence(&error.to_string());
        match error {
            OperationError::Invalid { pointer, .. } if pointer.is_empty() => {
                Self::bad_request(detail)
            }
            OperationError::Invalid { pointer, .. } => Self::field(pointer, detail),
            OperationError::Parameters { pointer, .. } => Self::field(pointer, detail),
            OperationError::Forbidden(_) => Self::forbidden(detail),
            OperationError::NotFound(_) => Self::not_found(detail),
            OperationError::KeyReused(_) => {
                Self::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, detail)
            }
            OperationError::Store(error) => error.into(),
            OperationError::Partial { report, left, cause } => {
                let problem = Self::from(*cause);
                let done = report.total();
                let all = done + left as u64;
                let detail = format!("It failed after {done} of {all}. {}", problem.detail);
                Self { detail, ..problem }
            }
            _ => Self::conflict(detail),
        }
    }
}

impl From<ScheduleError> for ApiError {
    fn from(error: ScheduleError) -> Self {
        OperationError::from(error).into()
    }
}

/// A message as a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{}{end}", capitalize(text))
}
