//! All that changes something. What operators do is in the audit: a line before
//! it is done, another with the outcome after, so that whatever breaks in between
//! leaves a trace. What is refused at sight changes nothing and is only logged;
//! tasks that programs create have who created them in their context. A program
//! may send thousands of either in a minute.

mod once;
mod refusal;
mod tasks;

use std::collections::BTreeMap;

use serde::Serialize;
use task_engine::client::Client;
use task_engine_core::change::{Edit, EditReport};
use task_engine_core::display::count;
use task_engine_core::json::Json;
use task_engine_core::queue::QueuePause;
use task_engine_core::schedule::Schedule;
use task_engine_core::schedule::{InvalidDefinition, InvalidSchedule, ScheduleDefinition};
use task_engine_core::secret::request::CONTEXT_CREATOR;
use task_engine_core::secret::{Secrets, UnexpectedPlaceholder};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::audit::{AuditEntry, AuditOutcome, NewAuditEntry};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::schedules::{Done as ScheduleDone, ScheduleError, Schedules};
use task_engine_store::token::NewToken;

use crate::access::Actor;
use crate::app::App;
use crate::problem::Problem;

pub(crate) use once::{form_key, mark_all, mark_of, one_time};
pub(crate) use tasks::{Choice, MAX, Meant, Verb, meant};

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Action {
    Tasks(Verb, Choice),
    Edit(TaskId, Edit),
    Create(Vec<NewTask>),
    /// The same, and nothing if it was done before: by these marks of the request.
    CreateOnce(Vec<NewTask>, Vec<String>),
    PauseQueue(QueuePause),
    ResumeQueue(String),
    AddSchedule(Box<Schedule>),
    SetSchedule(Box<Schedule>),
    PauseSchedule(String, Option<String>),
    ResumeSchedule(String),
    /// Once, if there is a key of the request.
    RunSchedule(String, Option<String>),
    RemoveSchedule(String),
    Recover(String),
    /// The secret parameters of a task are shown to who asks.
    Reveal(TaskId),
    AddToken(NewToken),
    RevokeToken(String),
}

/// What became of it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Done {
    /// The line in the audit that says so; in that line itself it is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) audit_id: i64,
    /// How many fared how: `retried`, `is running`, ….
    pub(crate) counts: BTreeMap<String, u64>,
    /// The tasks that were created, or sent to wait by their recovery.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) task_ids: Vec<TaskId>,
    /// Whether a filter meant more tasks than one request may change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) and_more: bool,
    /// What became of each task that was to be created.
    #[serde(skip)]
    pub(crate) creations: Vec<Creation>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Done {
    fn one(what: &str) -> Self {
        Self { counts: BTreeMap::from([(what.to_owned(), 1)]), ..Self::default() }
    }

    pub(crate) fn add(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }
}

/// Does it for somebody, who says why or does not.
pub(crate) async fn perform(
    app: &App,
    actor: &Actor,
    action: Action,
    reason: Option<&str>,
) -> Result<Done, Problem> {
    let action = match action {
        Action::Tasks(verb, choice) => {
            Action::Tasks(verb, app.allowed_choice(actor, choice).await?)
        }
        Action::Edit(id, edit) => Action::Edit(id, app.with_secrets_restored(id, edit).await?),
        other => other,
    };
    let reason = reason.map(str::trim).filter(|reason| !reason.is_empty()).map(str::to_owned);
    let action = action.created_by(&actor.name)?;
    let (name, target) = (action.name(), action.target());
    let entry = NewAuditEntry::asked(&actor.name, name, &target, reason, action.detail()?)
        .map_err(|bad| Problem::bad(bad.to_string()))?;
    if let Err(problem) = refusal::check(app, &action).await {
        tracing::info!(actor = actor.name, action = name, target, "refused: {}", problem.detail);
        return Err(problem);
    }
    let app = app.clone();
    uninterrupted(async move { carry_out(&app, entry, action).await }).await
}

/// Creates tasks for a program. That it did so is in the context of each, not in
/// the audit.
pub(crate) async fn create_for(app: &App, actor: &Actor, action: Action) -> Result<Done, Problem> {
    let action = action.created_by(&actor.name)?;
    let (app, name) = (app.clone(), actor.name.clone());
    uninterrupted(async move {
        let done = action.apply(&app, &name).await;
        app.glance.forget().await;
        done
    })
    .await
}

/// Whoever asks may hang up; what was begun is ended, and its end is on record.
async fn uninterrupted(
    work: impl Future<Output = Result<Done, Problem>> + Send + 'static,
) -> Result<Done, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        Err(Problem::new(
            axum::http::StatusCode::INTERNAL_SERVER_ERROR,
            "Internal Server Error",
            "This server broke while it did so; its log says where. The audit says what was begun.",
        ))
    })
}

async fn carry_out(app: &App, entry: NewAuditEntry, action: Action) -> Result<Done, Problem> {
    let asked = app.store.audit(&entry).await?;
    let result = action.apply(app, entry.actor()).await;
    app.glance.forget().await;
    let (outcome, detail) = match &result {
        Ok(done) => (AuditOutcome::Done, Json::encode(&done)),
        Err(problem) if problem.status.is_client_error() => {
            (AuditOutcome::Refused, Json::encode(&problem))
        }
        Err(problem) => (AuditOutcome::Failed, Json::encode(&problem)),
    };
    let detail = detail.unwrap_or_else(|_| Json::empty_object());
    let written = app.store.audit(&entry.ended(asked, outcome, detail)).await;
    if let Err(error) = &written {
        tracing::warn!(%error, asked, "the outcome of an action is missing in the audit");
    }
    result.map(|done| Done { audit_id: written.unwrap_or(asked), ..done })
}

/// What an entry of the audit means, in a sentence.
pub(crate) fn words_of(entry: &AuditEntry) -> String {
    let of: serde_json::Value = entry.detail.decode().unwrap_or_default();
    let counts = of["counts"].as_object().into_iter().flatten();
    let mut each: Vec<_> =
        counts.filter_map(|(what, number)| Some((what.as_str(), number.as_u64()?))).collect();
    each.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let told: Vec<_> = each
        .iter()
        .map(|(what, number)| {
            if entry.action.starts_with("tasks.") {
                format!("{}: {what}", count(usize::try_from(*number).unwrap_or(usize::MAX), "task"))
            } else {
                (*what).to_owned()
            }
        })
        .collect();
    let more =
        if of["and_more"] == true { "; there may be more, do it again for the rest" } else { "" };
    match entry.outcome {
        AuditOutcome::Done if told.is_empty() => format!("{}: nothing was to do.", entry.target),
        AuditOutcome::Done => format!("{}: {}{more}.", entry.target, told.join(", ")),
        AuditOutcome::Asked => {
            format!("{}: asked for; what became of it is told apart.", entry.target)
        }
        _ => of["detail"].as_str().unwrap_or("It was not done.").to_owned(),
    }
}

impl Action {
    /// With who creates them in the context of new tasks.
    fn created_by(mut self, name: &str) -> Result<Self, Problem> {
        if let Self::Create(tasks) | Self::CreateOnce(tasks, _) = &mut self {
            for task in tasks {
                let added = task.add_context(CONTEXT_CREATOR, name);
                added.map_err(|bad| Problem::bad(bad.to_string()))?;
            }
        }
        Ok(self)
    }

    /// Its name in the audit.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Tasks(verb, _) => verb.action(),
            Self::Edit(..) => "tasks.edit",
            Self::Create(_) | Self::CreateOnce(..) => "tasks.create",
            Self::PauseQueue(_) => "queues.pause",
            Self::ResumeQueue(_) => "queues.resume",
            Self::AddSchedule(_) => "schedules.add",
            Self::SetSchedule(_) => "schedules.set",
            Self::PauseSchedule(..) => "schedules.pause",
            Self::ResumeSchedule(_) => "schedules.resume",
            Self::RunSchedule(..) => "schedules.run",
            Self::RemoveSchedule(_) => "schedules.remove",
            Self::Recover(_) => "instances.recover",
            Self::Reveal(_) => "tasks.reveal",
            Self::AddToken(_) => "tokens.create",
            Self::RevokeToken(_) => "tokens.revoke",
        }
    }

    fn target(&self) -> String {
        match self {
            Self::Tasks(_, choice) => choice.to_string(),
            Self::Edit(id, _) | Self::Reveal(id) => format!("task {id}"),
            Self::Create(tasks) | Self::CreateOnce(tasks, _) => match &tasks[..] {
                [task] => task.class.clone(),
                tasks => count(tasks.len(), "task"),
            },
            Self::PauseQueue(pause) => pause.queue().to_owned(),
            Self::AddToken(token) => token.name().to_owned(),
            Self::AddSchedule(schedule) | Self::SetSchedule(schedule) => schedule.name().to_owned(),
            Self::ResumeQueue(name)
            | Self::PauseSchedule(name, _)
            | Self::ResumeSchedule(name)
            | Self::RunSchedule(name, _)
            | Self::RemoveSchedule(name)
            | Self::Recover(name)
            | Self::RevokeToken(name) => name.clone(),
        }
    }

    /// What is not in the target. Never parameters: they may be secret.
    fn detail(&self) -> Result<Json, Problem> {
        let detail = match self {
            Self::AddSchedule(schedule) | Self::SetSchedule(schedule) => {
                let definition =
                    schedule.definition().map_err(|bad| Problem::bad(bad.to_string()))?;
                serde_json::json!({
                    "rule": definition.rule,
                    "time_zone": definition.time_zone,
                    "task_class": definition.task_class,
                })
            }
            Self::Edit(_, edit) => serde_json::json!({
                "parameters": edit.parameters.is_some(),
                "due": edit.due.is_some(),
                "priority": edit.priority,
                "queue": edit.queue,
            }),
            Self::AddToken(token) => serde_json::json!({
                "role": token.role(),
                "expires_in_secs": token.expires_in().map(|time| time.as_secs()),
            }),
            _ => serde_json::json!({}),
        };
        Json::encode(&detail).map_err(|error| Problem::bad(error.to_string()))
    }

    async fn apply(self, app: &App, actor: &str) -> Result<Done, Problem> {
        let store = &*app.store;
        let schedules = Schedules::of(store);
        match self {
            Self::Tasks(verb, choice) => tasks::apply(store, verb, &choice).await,
            Self::Edit(id, edit) => edited(id, store.edit(id, &edit).await?),
            Self::Create(tasks) => create(app, &tasks).await,
            Self::CreateOnce(tasks, marks) => once::create(app, &tasks, &marks).await,
            Self::AddToken(token) => add_token(store, &token).await,
            Self::PauseQueue(pause) => {
                let fresh = store.pause_queue(&pause).await?;
                Ok(Done::one(if fresh { "paused" } else { "was paused already" }))
            }
            Self::ResumeQueue(name) => {
                let was_paused = store.resume_queue(&name).await?;
                Ok(Done::one(if was_paused { "resumed" } else { "was not paused" }))
            }
            Self::AddSchedule(schedule) => told(schedules.add(&schedule).await),
            Self::SetSchedule(schedule) => set(&schedules, &schedule, &app.secrets().await?).await,
            Self::PauseSchedule(name, reason) => {
                told(schedules.pause(&name, reason.as_deref()).await)
            }
            Self::ResumeSchedule(name) => told(schedules.resume(&name).await),
            Self::RunSchedule(name, mark) => {
                let unique = mark.map(|key| once::unique(&key, 0));
                let created = schedules.run(&name, unique, Some(actor)).await;
                let created = created.map_err(schedule_problem)?;
                let (id, when) = (created.id(), if created.is_new() { "" } else { " before" });
                Ok(Done { task_ids: vec![id], ..Done::one(&format!("created task {id}{when}")) })
            }
            Self::RemoveSchedule(name) => {
                schedules.remove(&name).await.map_err(schedule_problem)?;
                Ok(Done::one("removed"))
            }
            Self::Recover(name) => tasks::recover(store, &name).await,
            Self::Reveal(id) => {
                store.task(id).await?.ok_or_else(|| no_task(id))?;
                Ok(Done::one("its secret parameters were shown"))
            }
            Self::RevokeToken(name) => {
                let revoked = store.revoke_token(&name).await?;
                if revoked { Ok(Done::one("revoked")) } else { Err(no_token(&name)) }
            }
        }
    }
}

/// A placeholder in the parameters that are at this pointer of the body.
pub(crate) fn stray_placeholder(parameters: &str, stray: &UnexpectedPlaceholder) -> Problem {
    Problem::field(format!("{parameters}{}", stray.pointer), format!("{stray}."))
}

pub(crate) fn no_task(id: TaskId) -> Problem {
    Problem::not_found(format!(
        "There is no task {id}. It may have been removed, as successful tasks are after a time."
    ))
}

fn no_token(name: &str) -> Problem {
    Problem::not_found(format!("There is no token named {name}."))
}

fn edited(id: TaskId, report: EditReport) -> Result<Done, Problem> {
    match report {
        EditReport::Changed => Ok(Done::one("changed")),
        EditReport::NotWaiting(status) => Err(Problem::conflict(format!(
            "Task {id} is {status}; only a task that waits can be changed."
        ))),
        EditReport::NotFound => Err(no_task(id)),
    }
}

async fn add_token(store: &dyn Store, token: &NewToken) -> Result<Done, Problem> {
    match store.add_token(token).await {
        Ok(_) => Ok(Done::one("created")),
        // A store refuses for other reasons, too, in words that are not for all.
        Err(StoreError::Refused(why)) if why == token.name_taken().to_string() => {
            Err(Problem::conflict(why))
        }
        Err(error) => Err(error.into()),
    }
}

async fn create(app: &App, tasks: &[NewTask]) -> Result<Done, Problem> {
    use task_engine::client::CreateError;
    let client = Client::new(app.store.clone());
    let tasks = app.with_secrets_named(tasks).await?;
    let creations = client.create_each(&tasks).await.map_err(|error| match error {
        CreateError::Store(error) => Problem::from(error),
        error => Problem::bad(error.to_string()),
    })?;
    let mut done = Done::default();
    for creation in &creations {
        done.add(match creation {
            Creation::Created(_) => "created",
            Creation::Kept(_) => "existed already",
            Creation::Replaced(_) => "existed already, and was changed",
        });
    }
    done.task_ids = creations.iter().map(|creation| creation.id()).collect();
    done.creations = creations;
    Ok(done)
}

async fn set(
    schedules: &Schedules<'_>,
    schedule: &Schedule,
    secrets: &Secrets,
) -> Result<Done, Problem> {
    let name = schedule.name();
    let definition = schedule.definition().map_err(|bad| Problem::bad(bad.to_string()))?;
    let change = |stored: &ScheduleDefinition| {
        let mut new = definition.clone();
        let bad = |stray: UnexpectedPlaceholder| InvalidSchedule {
            name: name.to_owned(),
            why: stray.into(),
        };
        secrets.restore(&mut new, stored).map_err(bad)?;
        Ok(new)
    };
    told(schedules.change(name, change).await)
}

fn told(done: Result<ScheduleDone, ScheduleError>) -> Result<Done, Problem> {
    let done = done.map_err(schedule_problem)?;
    Ok(Done::one(match done {
        ScheduleDone::Changed => "written",
        ScheduleDone::Unchanged => "was so already",
    }))
}

pub(crate) fn schedule_problem(error: ScheduleError) -> Problem {
    match error {
        ScheduleError::Store(error) => error.into(),
        ScheduleError::Bad(InvalidSchedule {
            why: InvalidDefinition::Placeholder(stray), ..
        }) => stray_placeholder("/parameters", &stray),
        ScheduleError::NotFound(_) => Problem::not_found(error.to_string()),
        ScheduleError::Exists(_) => Problem::conflict(error.to_string()),
        _ => Problem::bad(error.to_string()),
    }
}
