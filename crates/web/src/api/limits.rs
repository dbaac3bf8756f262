//! Limits.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::StatusCode;
use task_engine_core::limit::{LimitOptions, LimitTarget, Rate};
use task_engine_operations::limits::{self, LimitDetails, LimitEdit, LimitList};
use task_engine_operations::{Actor, OperationOutcome, OperationReport};

use super::body::{Body, Object};
use super::query::{PathName, Query};
use super::times::duration;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::perform;

pub(super) async fn list(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<LimitList>, ApiError> {
    query.with(&[])?;
    Ok(JsonResponse(app.cache.limits().await?.as_ref().clone()))
}

pub(super) async fn show(
    State(app): State<App>,
    PathName(name): PathName,
    query: Query,
) -> Result<JsonResponse<LimitDetails>, ApiError> {
    query.with(&[])?;
    Ok(JsonResponse(limits::show(&*app.store, &name).await?))
}

/// Replaces the options of a limit, or adds it.
pub(super) async fn write(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    body: Body,
) -> Result<(StatusCode, JsonResponse<OperationReport>), ApiError> {
    let object =
        body.object(&["class", "queue", "key", "max", "rate", "in_order", "weights", "reason"])?;
    let target = match (object.text("class")?, object.text("queue")?) {
        (Some(_), Some(_)) => {
            return Err(object.invalid("queue", "there is a `class` as well; give one").into());
        }
        (class, queue) => class.map(LimitTarget::Class).or(queue.map(LimitTarget::Queue)),
    };
    let mut options = LimitOptions::default();
    options.key = object.text("key")?;
    options.max = object.whole("max", "a whole number from 1 to 10000")?;
    options.rate = rate(&object)?;
    options.in_order = object.boolean("in_order")?;
    options.weights = weights(&object)?;
    let reason = object.reason()?;
    let edit = LimitEdit::replace(target, options);
    let report = perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.set_limit(&name, &edit).await
    })
    .await?;
    let is_new = report.has(OperationOutcome::Added);
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, JsonResponse(report)))
}

fn rate(object: &Object<'_>) -> Result<Option<Rate>, ApiError> {
    let Some(rate) = object.object("rate", &["max", "per", "per_ms", "even"])? else {
        return Ok(None);
    };
    let max = rate.whole("max", "a whole number from 1 to 1000000")?;
    let max = max.ok_or_else(|| rate.invalid("max", "the field is missing"))?;
    // As it is written, or as it is read.
    let per = match rate.parsed("per", duration)? {
        Some(per) => Some(per),
        None => rate.whole("per_ms", "a whole number of milliseconds")?.map(Duration::from_millis),
    };
    let per = per.ok_or_else(|| rate.invalid("per", "the field is missing"))?;
    let spread = Rate::new(max, per);
    Ok(Some(if rate.boolean("even")? { spread.even() } else { spread }))
}

fn weights(object: &Object<'_>) -> Result<BTreeMap<String, u32>, ApiError> {
    let Some(value) = object.raw("weights") else { return Ok(BTreeMap::new()) };
    serde_json::from_str(value.get()).map_err(|_| {
        object.invalid("weights", "expected an object of whole numbers, like {\"acme\": 3}").into()
    })
}

/// Opens a closed key.
pub(super) async fn open(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    body: Body,
) -> Result<JsonResponse<OperationReport>, ApiError> {
    let object = body.object(&["key", "reason"])?;
    let key = object.text("key")?.unwrap_or_default();
    let reason = object.reason()?;
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.open_limit_key(&name, &key).await
    })
    .await
    .map(JsonResponse)
}
