//! Spans of OpenTelemetry for executions, under the span in which their task was created.
//!
//! An application that has a layer of `tracing-opentelemetry` needs nothing more than this feature,
//! because an engine finds the layer by itself. A program that only creates tasks calls
//! [`propagate`] once. Programs without such a layer use [`export`].
//!
//! The first attempt at a task is a child of the creator's span. A retry may
//! come hours later, so it begins a trace of its own, with a link to the
//! creator's span.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use task_engine_core::traceparent::Traceparent;
use task_engine_core::traceparent::set_current_span;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Makes every [`TaskEngine`](crate::TaskEngine) of this process store the OpenTelemetry span of
/// its caller with the tasks that it creates.
///
/// Engines call this by themselves.
pub fn propagate() {
    set_current_span(|| {
        traceparent(&Span::current()).or_else(|| name(Context::current().span().span_context()))
    });
}

/// The W3C name of a span, if OpenTelemetry knows it.
pub(crate) fn traceparent(span: &Span) -> Option<Traceparent> {
    if span.is_disabled() {
        return None;
    }
    name(span.context().span().span_context())
}

fn name(span: &SpanContext) -> Option<Traceparent> {
    let trace_id = u128::from_be_bytes(span.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(span.span_id().to_bytes());
    Traceparent::new(trace_id, span_id, span.trace_flags().to_u8())
}

/// Puts a span under the creator's, or links it to that if it is a retry.
pub(crate) fn under(span: &Span, creator: Traceparent, is_retry: bool) {
    let creator = SpanContext::new(
        TraceId::from_bytes(creator.trace_id().to_be_bytes()),
        SpanId::from_bytes(creator.span_id().to_be_bytes()),
        TraceFlags::new(creator.flags()),
        true,
        TraceState::default(),
    );
    if is_retry {
        span.add_link(creator);
    } else {
        // Without a layer there is nothing to put it under.
        let _ = span.set_parent(Context::new().with_remote_span_context(creator));
    }
}

/// The error of [`export`]: its exporter cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be exported: {0}")]
pub struct ExportError(String);

/// Sends spans to a collector, as OTLP over HTTP with protobuf, in batches.
#[must_use = "the last spans of a program are sent by `finish`"]
pub struct Export {
    provider: SdkTracerProvider,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").finish_non_exhaustive()
    }
}

/// Where collectors listen.
const ENDPOINT: &str = "http://localhost:4318";
/// How long a collector may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of a program waits for its last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a layer for the application's subscriber that exports its spans to a collector.
///
/// Without an address, the collector is at `http://localhost:4318`.
///
/// ```no_run
/// use tracing_subscriber::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (layer, export) = task_engine::otlp::export(None, "shop")?;
/// tracing_subscriber::registry().with(layer).init();
/// // … the engine …
/// export.finish();
/// # Ok(()) }
/// ```
///
/// # Errors
/// Fails if the address is not an HTTP or HTTPS URL.
pub fn export<S>(
    endpoint: Option<&str>,
    service: &str,
) -> Result<(impl Layer<S> + Send + Sync + use<S>, Export), ExportError>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let endpoint = endpoint.unwrap_or(ENDPOINT).trim_end_matches('/');
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(ExportError(format!(
            "the address of the collector looks like {ENDPOINT}, not like {endpoint:?}"
        )));
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Http::new())
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .build()
        .map_err(|error| ExportError(error.to_string()))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service.to_owned()).build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("task-engine"));
    propagate();
    Ok((layer, Export { provider }))
}

impl Export {
    /// Sends the last spans, and waits up to five seconds for it.
    pub fn finish(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
            tracing::warn!("the last spans could not be exported: {error}");
        }
    }
}

/// Called on the exporter's own thread, so it may block.
#[derive(Debug)]
struct Http(ureq::Agent);

impl Http {
    fn new() -> Self {
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build();
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .http_status_as_error(false)
            .tls_config(tls)
            .build();
        Self(config.into())
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.0.run(request.map(|body| body.to_vec()))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }
}

impl HttpClient for Http {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.send(request) })
    }
}
