//! Executions as spans of `tracing`, and with the feature `otlp` as spans of
//! OpenTelemetry under the span that their task was created in.
//!
//! A span that no subscriber wants costs one read of a static: its fields are not
//! computed.

use task_engine_core::attempt::AttemptEnd;
use task_engine_core::flow::Origin;
#[cfg(not(feature = "otlp"))]
use task_engine_core::traceparent::Traceparent;
use task_engine_store::claim::ClaimedTask;
use tracing::Span;
use tracing::field::Empty;

/// The span of one execution.
pub(crate) fn execution(task: &ClaimedTask, worker: i32) -> Span {
    let origin = || Origin::of(task.id.task_id, &task.context);
    macro_rules! span {
        ($($otel:tt)*) => {
            tracing::info_span!(
                target: "task_engine::execution",
                // Not a child of the dispatcher's span.
                parent: None,
                "execution",
                $($otel)*
                task.id = task.id.task_id.0,
                task.class = %task.class,
                task.attempt = task.id.attempt,
                task.queue = %task.queue,
                correlation_id = %origin().correlation_id,
                worker,
                outcome = Empty,
            )
        };
    }
    // Only OpenTelemetry understands these fields; other logs leave them out.
    #[cfg(feature = "otlp")]
    let span = span!(
        otel.name = %format_args!("execute {}", task.class),
        otel.kind = "consumer",
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    #[cfg(not(feature = "otlp"))]
    let span = span!();
    if !span.is_disabled()
        && let Some(creator) = origin().traceparent
    {
        under(&span, creator, task.id.attempt > 1);
    }
    span
}

/// The span of one step, under that of its execution.
pub(crate) fn step(name: &str) -> Span {
    macro_rules! span {
        ($($otel:tt)*) => {
            tracing::info_span!(target: "task_engine::step", "step", $($otel)* step.name = name)
        };
    }
    #[cfg(feature = "otlp")]
    return span!(otel.name = %format_args!("step {name}"),);
    #[cfg(not(feature = "otlp"))]
    return span!();
}

/// Records on the span of an execution how it ended.
pub(crate) fn ended(span: &Span, end: &AttemptEnd) {
    if span.is_disabled() {
        return;
    }
    let outcome = match end {
        AttemptEnd::Success(_) => "success",
        AttemptEnd::Snoozed(..) => "snoozed",
        AttemptEnd::Cancelled(_) => "cancelled",
        AttemptEnd::Released(_) | AttemptEnd::NeverStarted(_) => "requeued",
        _ => "failure",
    };
    let error = end.error().filter(|_| outcome != "snoozed");
    span.record("outcome", outcome);
    if !cfg!(feature = "otlp") {
        return;
    }
    if let Some(error) = error {
        span.record("otel.status_code", "ERROR");
        let (exception, message) = (&error.exception, &error.message);
        let text = format!("{exception}: {message:.500}");
        span.record("otel.status_description", tracing::field::display(text));
    } else if outcome == "success" {
        span.record("otel.status_code", "OK");
    }
}

/// The W3C name of a span, if it is one of OpenTelemetry.
#[cfg(feature = "otlp")]
pub(crate) use crate::otlp::{traceparent, under};

#[cfg(not(feature = "otlp"))]
pub(crate) fn traceparent(_: &Span) -> Option<Traceparent> {
    None
}

#[cfg(not(feature = "otlp"))]
fn under(_: &Span, _: Traceparent, _: bool) {}
