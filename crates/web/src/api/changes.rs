//! What programs do to tasks, queues and engines. All of it is audited.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::queue::{QueuePause, check_queue_name};
use task_engine_core::task::Due;
use task_engine_core::task::TaskId;

use super::body::{Body, Object};
use super::query::{Named, OfTask, Query};
use super::tasks::Listed;
use super::times::{duration, time};
use crate::access::Actor;
use crate::action::{Action, Choice, Done, Verb, meant, perform};
use crate::app::App;
use crate::problem::Problem;

async fn done(
    app: &App,
    actor: &Actor,
    action: Action,
    reason: Option<&str>,
) -> Result<Answer<Done>, Problem> {
    perform(app, actor, action, reason).await.map(Answer)
}

/// The reason, from a body that says nothing else.
pub(super) fn reason_of(body: &Body) -> Result<Option<String>, Problem> {
    body.object(&["reason"])?.reason()
}

async fn on_one(
    app: &App,
    actor: &Actor,
    id: TaskId,
    body: &Body,
    verb: Verb,
) -> Result<Answer<Done>, Problem> {
    let reason = reason_of(body)?;
    done(app, actor, Action::Tasks(verb, Choice::Ids(vec![id])), reason.as_deref()).await
}

pub(super) async fn retry(
    State(app): State<App>,
    actor: Actor,
    OfTask(id): OfTask,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    on_one(&app, &actor, id, &body, Verb::Retry).await
}

pub(super) async fn cancel(
    State(app): State<App>,
    actor: Actor,
    OfTask(id): OfTask,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    on_one(&app, &actor, id, &body, Verb::Cancel).await
}

pub(super) async fn rerun(
    State(app): State<App>,
    actor: Actor,
    OfTask(id): OfTask,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    on_one(&app, &actor, id, &body, Verb::Rerun).await
}

pub(super) async fn delete(
    State(app): State<App>,
    actor: Actor,
    OfTask(id): OfTask,
    query: Query,
) -> Result<Answer<Done>, Problem> {
    let query = query.with(&["reason"])?;
    let action = Action::Tasks(Verb::Delete, Choice::Ids(vec![id]));
    done(&app, &actor, action, query.text("reason")).await
}

pub(super) async fn edit(
    State(app): State<App>,
    actor: Actor,
    OfTask(id): OfTask,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    let known = ["parameters", "queue", "priority", "at", "after", "reason"];
    let object = body.object(&known)?;
    let queue = object.text("queue")?;
    if let Some(queue) = &queue {
        check_queue_name(queue).map_err(|bad| object.wrong("queue", bad))?;
    }
    let due = match (object.parsed("at", time)?, object.parsed("after", duration)?) {
        (Some(_), Some(_)) => {
            return Err(object.wrong("after", "there is `at` as well; a task has one time"));
        }
        (at, after) => at.map(Due::At).or(after.map(Due::After)),
    };
    let edit = Edit {
        parameters: object.json_object("parameters")?,
        due,
        priority: object.whole("priority", "a whole number of 32 bits")?,
        queue,
    };
    if edit.is_empty() {
        return Err(Problem::field(
            "",
            "Nothing is to be changed. Give parameters, queue, priority, at or after.",
        ));
    }
    let reason = object.reason()?;
    done(&app, &actor, Action::Edit(id, edit), reason.as_deref()).await
}

/// What a change would be about.
#[derive(Serialize)]
struct Meant {
    dry_run: bool,
    count: usize,
    and_more: bool,
    sample: Vec<Listed>,
}

async fn on_many(app: &App, actor: &Actor, body: &Body, verb: Verb) -> Result<Response, Problem> {
    let object = body.object(&["filter", "ids", "reason", "dry_run"])?;
    let choice = choice(app, &object)?;
    if object.truth("dry_run")? {
        let choice = app.allowed_choice(actor, choice).await?;
        let meant = meant(&*app.store, verb, &choice, None).await?;
        let sample = meant.sample.into_iter().map(Listed::from).collect();
        let (count, and_more) = (meant.ids.len(), meant.and_more);
        return Ok(Answer(Meant { dry_run: true, count, and_more, sample }).into_response());
    }
    let reason = object.reason()?;
    let done = done(app, actor, Action::Tasks(verb, choice), reason.as_deref()).await?;
    Ok(done.into_response())
}

fn choice(app: &App, object: &Object<'_>) -> Result<Choice, Problem> {
    match (object.ids("ids")?, object.text("filter")?) {
        (Some(_), Some(_)) => Err(object.wrong("filter", "there are `ids` as well; give one")),
        (Some(ids), None) if ids.is_empty() => Err(object.wrong("ids", "the list is empty")),
        (Some(ids), None) => Ok(Choice::Ids(ids)),
        (None, Some(text)) => match Filter::parse(&text, &app.zone) {
            Ok(filter) if filter.is_empty() => {
                Err(object.wrong("filter", "an empty filter means every task there is"))
            }
            Ok(filter) => Ok(Choice::Filter(filter)),
            Err(bad) => Err(object.wrong("filter", bad)),
        },
        (None, None) => Err(object.wrong("filter", "it is missing, and so are `ids`")),
    }
}

pub(super) async fn retry_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, Problem> {
    on_many(&app, &actor, &body, Verb::Retry).await
}

pub(super) async fn cancel_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, Problem> {
    on_many(&app, &actor, &body, Verb::Cancel).await
}

pub(super) async fn rerun_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, Problem> {
    on_many(&app, &actor, &body, Verb::Rerun).await
}

pub(super) async fn delete_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, Problem> {
    on_many(&app, &actor, &body, Verb::Delete).await
}

pub(super) async fn pause_queue(
    State(app): State<App>,
    actor: Actor,
    Named(name): Named,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    let reason = reason_of(&body)?;
    let pause = QueuePause::new(name, reason.clone())
        .map_err(|bad| Problem::field("/reason", bad.to_string()))?;
    done(&app, &actor, Action::PauseQueue(pause), reason.as_deref()).await
}

pub(super) async fn resume_queue(
    State(app): State<App>,
    actor: Actor,
    Named(name): Named,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    let reason = reason_of(&body)?;
    done(&app, &actor, Action::ResumeQueue(name), reason.as_deref()).await
}

pub(super) async fn recover(
    State(app): State<App>,
    actor: Actor,
    Named(name): Named,
    body: Body,
) -> Result<Answer<Done>, Problem> {
    let reason = reason_of(&body)?;
    done(&app, &actor, Action::Recover(name), reason.as_deref()).await
}
