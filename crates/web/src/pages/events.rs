//! Server-sent events: something has changed.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::stream::{self, Stream};

use crate::app::App;
use crate::cache::LiveState;

/// All streams share one read (see `cache`).
const EVERY: Duration = Duration::from_secs(1);

/// For pages, which reload themselves: without data.
pub(crate) async fn changes(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    stream_of(app, |_| "{}".to_owned())
}

/// For programs: with the statistics.
pub(crate) async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    stream_of(app, |now| serde_json::to_string(&now.stats).unwrap_or_default())
}

fn stream_of(
    app: App,
    data: fn(&LiveState) -> String,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = stream::unfold((app, String::new(), true), move |(app, last, first)| async move {
        let (mut wait, stop) = (!first, app.stop.clone());
        loop {
            if wait {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = stop.cancelled() => return None,
                }
            }
            wait = true;
            if stop.is_cancelled() {
                return None;
            }
            let Ok(now) = app.cache.now().await else { continue };
            let version = now.version();
            if version != last {
                let event = Event::default().event("stats").id(&version).data(data(&now));
                return Some((Ok(event), (app, version, false)));
            }
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}
