//! Test signals: a test waits for a log event of an engine instead of sleeping. Engines pay
//! nothing for them, because the events are written for operators anyway.

use std::fmt::Debug;
use std::sync::OnceLock;

use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

use crate::store::TIMEOUT;

/// The warnings and errors of all engines of this process, since the first call of
/// [`Signals::listen`].
static EVENTS: OnceLock<watch::Sender<Vec<String>>> = OnceLock::new();

pub(crate) struct Signals(watch::Receiver<Vec<String>>);

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let events = EVENTS.get_or_init(|| {
            let events = watch::Sender::new(Vec::new());
            tracing_subscriber::registry().with(Recorder(events.clone())).init();
            events
        });
        Self(events.subscribe())
    }

    /// Waits for an event that contains all of these texts. Other tests of this process emit
    /// events too, so one of the texts should be unique to the test.
    pub(crate) async fn wait_for(&mut self, texts: &[&str]) {
        let found = self.0.wait_for(|events| {
            events.iter().any(|event| texts.iter().all(|text| event.contains(text)))
        });
        let found = tokio::time::timeout(TIMEOUT, found).await.map(|found| drop(found.unwrap()));
        assert!(found.is_ok(), "no event with {texts:?} in {:#?}", *self.0.borrow());
    }
}

struct Recorder(watch::Sender<Vec<String>>);

impl<S: Subscriber> Layer<S> for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= LevelFilter::WARN && metadata.target().starts_with("task_engine")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.0.send_modify(|events| events.push(message.0));
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
