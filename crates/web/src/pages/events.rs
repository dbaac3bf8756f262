//! That something has changed, told to open pages and to programs.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::stream::{self, Stream};

use crate::app::App;
use crate::glance::Now;

/// What is told is read once for all who listen (see `glance`).
const EVERY: Duration = Duration::from_secs(1);

/// For pages, which look for themselves: only that it has.
pub(crate) async fn changes(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    told(app, |_| "{}".to_owned())
}

/// For programs: with the figures, which are long where there are many queues.
pub(crate) async fn events(
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    told(app, |now| serde_json::to_string(&now.figures).unwrap_or_default())
}

fn told(app: App, words: fn(&Now) -> String) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = stream::unfold((app, String::new(), true), move |(app, seen, first)| async move {
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
            let Ok(now) = app.glance.now().await else { continue };
            let version = now.version();
            if version != seen {
                let event = Event::default().event("figures").id(&version).data(words(&now));
                return Some((Ok(event), (app, version, false)));
            }
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}
