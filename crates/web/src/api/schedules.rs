//! Schedules.

use std::time::Duration;

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use task_engine_core::json::Json;
use task_engine_core::schedule::SlotPreview;
use task_engine_core::schedule::history::{ScheduleDetails, ScheduleEvent};
use task_engine_core::schedule::row::{FIRED_SLOTS_KEPT, FiredSlot, SchedulePause, ScheduleRow};
use task_engine_core::schedule::{Missed, Overlap, Schedule};
use task_engine_core::schedule::{ScheduleRule, Timetable};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_operations::definition::task;
use task_engine_operations::{Actor, OperationReport};
use task_engine_store::schedules::ScheduleError;

use super::body::{Body, Object};
use super::query::{PathName, Query};
use super::times::duration;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::perform;

/// The fields of a request, besides the name.
const FIELDS: [&str; 13] = [
    "rule",
    "time_zone",
    "class",
    "parameters",
    "queue",
    "priority",
    "correlation_id",
    "retry",
    "limits",
    "missed",
    "overlap",
    "jitter",
    "reason",
];

/// A schedule, without the parameters of its tasks.
#[derive(Serialize)]
pub(super) struct ScheduleView {
    name: String,
    version: i64,
    rule: Option<String>,
    time_zone: Option<String>,
    class: Option<String>,
    queue: Option<String>,
    priority: Option<i32>,
    missed: Option<Missed>,
    overlap: Option<Overlap>,
    jitter_ms: Option<u64>,
    next_at: Option<Timestamp>,
    paused: Option<SchedulePause>,
    error: Option<String>,
    last_slot: Option<Timestamp>,
    last_task: Option<TaskId>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<&ScheduleRow> for ScheduleView {
    fn from(row: &ScheduleRow) -> Self {
        let definition = row.definition();
        let unknown = definition.as_ref().err().map(ToString::to_string);
        let definition = definition.ok();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: row.name.clone(),
            version: row.version.version,
            rule: definition.as_ref().map(|it| it.rule.clone()),
            time_zone: definition.as_ref().map(|it| it.time_zone.clone()),
            class: definition.as_ref().map(|it| it.class.clone()),
            queue: definition.as_ref().map(|it| it.queue.clone()),
            priority: definition.as_ref().map(|it| it.priority),
            missed: definition.as_ref().map(|it| it.missed),
            overlap: definition.as_ref().map(|it| it.overlap),
            jitter_ms: definition.as_ref().map(|it| millis(it.jitter)),
            next_at: row.state.next_at,
            paused: row.state.paused.clone(),
            error: row.state.error.clone().or(unknown),
            last_slot: row.last_slot,
            last_task: row.last_task,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

#[derive(Serialize)]
pub(super) struct SchedulePage {
    schedules: Vec<ScheduleView>,
    /// `after` of the next page.
    next: Option<String>,
}

pub(super) async fn list(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<SchedulePage>, ApiError> {
    let query = query.with(&["after", "limit"])?;
    let limit = query.limit(100, 500)?;
    let after = query.text("after");
    if after.is_some_and(|name| name.contains('\0')) {
        return Err(ApiError::parameter("after", "after is the name of a schedule."));
    }
    let rows = app.schedules(after, limit).await?;
    let last = rows.last().filter(|_| rows.len() >= limit as usize);
    let next = last.map(|last| last.name.clone());
    Ok(JsonResponse(SchedulePage {
        schedules: rows.iter().map(ScheduleView::from).collect(),
        next,
    }))
}

#[derive(Serialize)]
pub(super) struct ScheduleDetailsView {
    #[serde(flatten)]
    shown: ScheduleView,
    parameters: Option<Json>,
    context: Option<Json>,
    /// The newest slots that have fired, newest first.
    fired: Vec<FiredSlot>,
    /// The newest skipped slots and manual runs, newest first.
    events: Vec<ScheduleEvent>,
    at: Timestamp,
}

pub(super) async fn show(
    State(app): State<App>,
    PathName(name): PathName,
    query: Query,
) -> Result<JsonResponse<ScheduleDetailsView>, ApiError> {
    query.with(&[])?;
    let ScheduleDetails { row, fired, events, now } = app.schedule(&name, FIRED_SLOTS_KEPT).await?;
    let definition = row.definition().ok();
    Ok(JsonResponse(ScheduleDetailsView {
        shown: ScheduleView::from(&row),
        parameters: definition.as_ref().map(|it| it.parameters.clone()),
        context: definition.map(|it| it.context),
        fired,
        events,
        at: now,
    }))
}

/// Reads a schedule and its task from a request.
async fn read(
    app: &App,
    object: &Object<'_>,
    name: String,
) -> Result<(Schedule, NewTask), ApiError> {
    let rule = object.required_text("rule")?;
    rule.parse::<ScheduleRule>().map_err(|bad| object.invalid("rule", bad))?;
    let task = app.with_secrets_named(&[task(object)?]).await?.remove(0);
    let mut schedule = Schedule::new(name, rule).new_task(task.clone());
    if let Some(zone) = object.text("time_zone")? {
        TimeZone::get(&zone).map_err(|_| {
            object.invalid("time_zone", format!("{zone:?} is not known; write Europe/Paris or UTC"))
        })?;
        schedule = schedule.time_zone(zone);
    }
    if let Some(missed) = object.parsed("missed", str::parse::<Missed>)? {
        schedule = schedule.missed(missed);
    }
    if let Some(overlap) = object.parsed("overlap", str::parse::<Overlap>)? {
        schedule = schedule.overlap(overlap);
    }
    if let Some(jitter) = object.parsed("jitter", duration)? {
        schedule = schedule.jitter(jitter);
    }
    // Fields may be valid only by themselves: a day that never comes.
    schedule.definition().map_err(|bad| ApiError::field("", format!("{bad}.")))?;
    Ok((schedule, task))
}

pub(super) async fn create(
    State(app): State<App>,
    actor: Actor,
    query: Query,
    body: Body,
) -> Result<(StatusCode, JsonResponse<OperationReport>), ApiError> {
    let check = query.checks_parameters()?;
    let fields: Vec<&str> = FIELDS.into_iter().chain(["name"]).collect();
    let object = body.object(&fields)?;
    let (schedule, task) = read(&app, &object, object.required_text("name")?).await?;
    app.check_placeholders([(&task, "/parameters".to_owned())]).await?;
    let reason = object.reason()?;
    let report = perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.checking_parameters(check).add_schedule(&schedule).await
    })
    .await?;
    Ok((StatusCode::CREATED, JsonResponse(report)))
}

/// Replaces a schedule, or adds it.
pub(super) async fn write(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    query: Query,
    body: Body,
) -> Result<(StatusCode, JsonResponse<OperationReport>), ApiError> {
    let check = query.checks_parameters()?;
    let object = body.object(&FIELDS)?;
    let (schedule, task) = read(&app, &object, name.clone()).await?;
    let reason = object.reason()?;
    let is_new = app.store.schedule(&name).await?.0.is_none();
    if is_new {
        app.check_placeholders([(&task, "/parameters".to_owned())]).await?;
    }
    let definition = schedule.definition().map_err(ScheduleError::from)?;
    let report = perform(&app, &actor, reason.as_deref(), |operator| async move {
        let operator = operator.checking_parameters(check);
        if is_new {
            operator.add_schedule(&schedule).await
        } else {
            operator.set_schedule(&name, |_| definition.clone()).await
        }
    })
    .await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, JsonResponse(report)))
}

#[derive(Serialize)]
pub(super) struct Times {
    times: Vec<SlotPreview>,
}

/// The next slots of a rule.
pub(super) async fn preview(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<Times>, ApiError> {
    let query = query.with(&["rule", "time_zone", "count"])?;
    let rule: ScheduleRule = query
        .need("rule")?
        .parse()
        .map_err(|bad| ApiError::parameter("rule", format!("{bad}.")))?;
    let zone = query.text("time_zone").unwrap_or("UTC");
    let zone = TimeZone::get(zone).map_err(|_| {
        let why = format!("The time zone {zone:?} is not known; write Europe/Paris or UTC.");
        ApiError::parameter("time_zone", why)
    })?;
    let count = query.number("count", 5, 100)?;
    // Slots are by the database's clock, and so is this.
    let now = app.cache.now().await?.activity.now;
    let times = Timetable { rule, zone, anchor: now }.preview(now, count as usize);
    Ok(JsonResponse(Times { times }))
}
