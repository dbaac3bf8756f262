//! Every execution is a span of `tracing`, also that of a blocking task.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine::sqlite::SqliteStore;
use task_engine::{Context, Failure, Task, TaskEngine, TaskOptions, TaskStatus};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{self, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

#[derive(Debug, Clone, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        self.0.insert(field.name().to_owned(), value.trim_matches('"').to_owned());
    }
}

/// Events of handlers, with the fields of their execution's span.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<(String, Fields)>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorded {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: layer::Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(span) = context.event_span(event).filter(|_| fields.0["message"] == "here") else {
            return;
        };
        let fields = span.extensions().get::<Fields>().cloned().unwrap_or_default();
        self.0.lock().unwrap().push((span.name().to_owned(), fields));
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Async;

impl Task for Async {
    const CLASS: &'static str = "async";
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl Task for Blocks {
    const CLASS: &'static str = "blocks";

    fn options() -> TaskOptions {
        TaskOptions::default().queue("slow")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_events_are_inside_span() {
    let recorded = Recorded::default();
    tracing_subscriber::registry().with(recorded.clone()).init();
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let engine = TaskEngine::new(store.clone())
        .engine(())
        .instance("test")
        .queues(["default", "slow"])
        .handle(|_: Async, _: Context<()>| async {
            tokio::task::yield_now().await;
            tracing::info!("here");
            Ok::<_, Failure>(())
        })
        .handle_blocking(|_: Blocks, _: Context<()>| {
            tracing::info!("here");
            Ok::<_, Failure>(())
        });
    let client = TaskEngine::new(store.clone());
    let one = client.create(Async).correlation("order-17").await.unwrap();
    let two = client.create(Blocks).await.unwrap();
    let stop = engine.stop_handle();
    let engine = tokio::spawn(engine.run_until(std::future::pending()));
    let begun = Instant::now();
    for id in [one, two] {
        while store.task(id).await.unwrap().unwrap().row.status != TaskStatus::Stopped {
            assert!(begun.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop.stop();
    engine.await.unwrap().unwrap();

    let mut recorded = recorded.0.lock().unwrap().clone();
    recorded.sort_by_key(|(_, fields)| fields.0["task.id"].clone());
    let expected = [(one, "async", "default", "order-17"), (two, "blocks", "slow", "2")];
    assert_eq!(recorded.len(), expected.len());
    for ((name, fields), (id, class, queue, correlation_id)) in recorded.iter().zip(expected) {
        assert_eq!(name, "execution");
        for (field, value) in [
            ("task.id", id.to_string().as_str()),
            ("task.class", class),
            ("task.queue", queue),
            ("task.attempt", "1"),
            ("correlation_id", correlation_id),
        ] {
            assert_eq!(fields.0[field], value, "{field}");
        }
        // Fields that only OpenTelemetry reads would fill other logs.
        let otel = fields.0.keys().any(|field| field.starts_with("otel."));
        assert_eq!(otel, cfg!(feature = "otlp"), "{fields:?}");
    }
}
