//! Tasks as they are.

use axum::Json as Answer;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::filter::FoundTask;
use task_engine_core::report::{LogFilter, LogRow};
use task_engine_core::task::{TaskDetails, TaskId, TaskRow, TaskStatus};
use task_engine_operations::search::{Search, TIMEOUT};
use task_engine_operations::why::Reason;

use super::query::{OfTask, Query};
use crate::access::Actor;
use crate::app::App;
use crate::problem::Problem;

/// A task in a list: without its parameters, which may be large, or secret.
#[derive(Serialize)]
pub(super) struct Listed {
    #[serde(flatten)]
    row: TaskRow,
    correlation_id: String,
}

impl From<FoundTask> for Listed {
    fn from(found: FoundTask) -> Self {
        Self { row: found.row, correlation_id: found.correlation_id }
    }
}

#[derive(Serialize)]
pub(super) struct Page {
    tasks: Vec<Listed>,
    /// Where to go on: `before` of the next page.
    next: Option<TaskId>,
    at: Timestamp,
}

pub(super) async fn list(
    State(app): State<App>,
    actor: Actor,
    query: Query,
) -> Result<Answer<Page>, Problem> {
    let query = query.with(&["filter", "before", "limit"])?;
    let search = Search {
        filter: query.filter(&app, &actor).await?,
        before: query.parse("before")?,
        limit: query.limit(50, 500)?,
        timeout: TIMEOUT,
    };
    let found = search.run(&*app.store).await?;
    let tasks = found.tasks.into_iter().map(Listed::from).collect();
    Ok(Answer(Page { tasks, next: found.next, at: found.now }))
}

pub(super) async fn show(
    State(app): State<App>,
    OfTask(id): OfTask,
    query: Query,
) -> Result<Answer<TaskDetails>, Problem> {
    query.with(&[])?;
    Ok(Answer(app.task(id).await?.task))
}

#[derive(Serialize)]
pub(super) struct Log {
    lines: Vec<LogRow>,
    /// Where to go on: `after` of the next page.
    next: Option<String>,
}

pub(super) async fn logs(
    State(app): State<App>,
    OfTask(id): OfTask,
    query: Query,
) -> Result<Answer<Log>, Problem> {
    let query = query.with(&["attempt", "after", "limit"])?;
    let after = query.text("after").map(place).transpose()?;
    let limit = query.limit(200, 500)?;
    let filter =
        LogFilter { attempt: query.parse("attempt")?, after, before: None, newest: false, limit };
    let lines = app.logs(&app.task(id).await?, &filter).await?;
    let last = lines.last().filter(|_| lines.len() >= limit as usize);
    let next = last.map(|last| format!("{}.{}", last.attempt, last.line));
    Ok(Answer(Log { lines, next }))
}

/// An attempt and a line of it: `2.17`.
fn place(text: &str) -> Result<(i32, i32), Problem> {
    let pair = text.split_once('.');
    let read = pair.and_then(|(attempt, line)| Some((attempt.parse().ok()?, line.parse().ok()?)));
    read.ok_or_else(|| {
        Problem::parameter(
            "after",
            "after is an attempt and a line, like 2.17: what `next` said last.",
        )
    })
}

#[derive(Serialize)]
pub(super) struct Why {
    task_id: TaskId,
    status: TaskStatus,
    at: Timestamp,
    reasons: Vec<Told>,
}

#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    reason: Reason,
    words: String,
}

pub(super) async fn why(
    State(app): State<App>,
    OfTask(id): OfTask,
    query: Query,
) -> Result<Answer<Why>, Problem> {
    query.with(&[])?;
    let (why, _) = app.why(id).await?;
    let told = |reason: Reason| Told {
        words: task_engine_operations::why::sentences::reason(&reason, why.at, &app.zone),
        reason,
    };
    Ok(Answer(Why {
        task_id: id,
        status: why.task.row.status,
        at: why.at,
        reasons: why.reasons.into_iter().map(told).collect(),
    }))
}
