//! Wake-ups: from the writer of this process directly, and from other processes by
//! polling a counter of SQLite.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use tokio::sync::{oneshot, watch};

use crate::connection;
use crate::error::explain;

/// How often commits of other processes are polled. A poll costs a few microseconds and
/// no disk access.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Counts the wake-ups. Counters and not messages: one wake-up covers all that were sent
/// in the meantime.
#[derive(Debug, Clone)]
pub(crate) struct WakeUpSender(watch::Sender<WakeUpCounts>);

#[derive(Debug, Clone, Copy, Default)]
struct WakeUpCounts {
    work: u64,
    cancel: u64,
    schedules: u64,
}

impl WakeUpSender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(WakeUpCounts::default()))
    }

    pub(crate) fn send(&self, work: bool, cancel: bool) {
        if work || cancel {
            self.0.send_modify(|count| {
                count.work += u64::from(work);
                count.cancel += u64::from(cancel);
            });
        }
    }
}

impl WakeUpSender {
    pub(crate) fn schedules_changed(&self) {
        self.0.send_modify(|count| count.schedules += 1);
    }
}

/// Calls `hear` for each wake-up, until the file cannot be watched any more.
pub(crate) async fn listen(
    wake_ups: &WakeUpSender,
    path: Option<&Path>,
    place: &Arc<str>,
    hear: &(dyn Fn(WakeUp) + Send + Sync),
) -> Result<(), StoreError> {
    let mut count = wake_ups.0.subscribe();
    let mut heard = *count.borrow_and_update();
    // A private database has no other process.
    let watcher = match path {
        Some(path) => Some(Watcher::start(path, place, wake_ups).await?),
        None => None,
    };
    let (_stop, mut broken) = match watcher {
        Some(watcher) => (Some(watcher.stop), Some(watcher.broken)),
        None => (None, None),
    };
    hear(WakeUp::Work);
    hear(WakeUp::Schedule);
    loop {
        tokio::select! {
            changed = count.changed() => if changed.is_err() {
                return Err(StoreError::Unavailable(format!("{place} is closed")));
            },
            error = ended(&mut broken) => return Err(error),
        }
        let now = *count.borrow_and_update();
        if now.work != heard.work {
            hear(WakeUp::Work);
        }
        if now.cancel != heard.cancel {
            hear(WakeUp::Cancel);
        }
        if now.schedules != heard.schedules {
            hear(WakeUp::Schedule);
        }
        heard = now;
    }
}

async fn ended(broken: &mut Option<oneshot::Receiver<StoreError>>) -> StoreError {
    match broken {
        Some(broken) => broken.await.unwrap_or_else(|_| {
            StoreError::Unavailable("the thread that watches the database has ended".to_owned())
        }),
        None => std::future::pending().await,
    }
}

/// A thread that watches the file while there are listeners.
struct Watcher {
    stop: StopOnDrop,
    broken: oneshot::Receiver<StoreError>,
}

/// Ends the thread when there are no listeners any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Watcher {
    /// Returns when every commit from now on will be seen.
    async fn start(
        path: &Path,
        place: &Arc<str>,
        wake_ups: &WakeUpSender,
    ) -> Result<Self, StoreError> {
        let stop = StopOnDrop(Arc::default());
        let (ready, began) = oneshot::channel();
        let (tell, broken) = oneshot::channel();
        let (path, place, wake_ups) = (path.to_owned(), place.clone(), wake_ups.clone());
        let stopped = stop.0.clone();
        let watch = move || {
            let seen = connection::open(&path, &place).and_then(|connection| {
                let seen = FileState::now(&connection).map_err(|error| explain(&error, &place))?;
                Ok((connection, seen))
            });
            match seen {
                Ok((connection, seen)) => {
                    let _ = ready.send(Ok(()));
                    if let Err(error) = watch(&connection, seen, &wake_ups, &stopped) {
                        let _ = tell.send(explain(&error, &place));
                    }
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let lost = |why: String| {
            StoreError::Unavailable(format!("no thread could watch the database: {why}"))
        };
        std::thread::Builder::new()
            .name("task-engine-sqlite-watcher".to_owned())
            .spawn(watch)
            .map_err(|error| lost(error.to_string()))?;
        began.await.map_err(|error| lost(error.to_string()))??;
        Ok(Self { stop, broken })
    }
}

/// The state at the last poll.
#[derive(Clone, Copy)]
struct FileState {
    version: i64,
    anything_waits: bool,
    last_cancel_request: i64,
    schedule_changes: i64,
}

impl FileState {
    /// The counter is read first: a commit between the two reads is seen again, not
    /// missed.
    fn now(connection: &Connection) -> rusqlite::Result<Self> {
        let version = version(connection)?;
        connection.prepare_cached(sql!("engine/listen", "listen_state"))?.query_row([], |row| {
            Ok(Self {
                version,
                anything_waits: row.get(0)?,
                last_cancel_request: row.get(1)?,
                schedule_changes: row.get(2)?,
            })
        })
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(sql!("engine/listen", "listen_version"))?
        .query_row([], |row| row.get(0))
}

/// Heartbeats change the file as well, and an engine answers a cancel request with a
/// heartbeat: if every change sent a wake-up, two engines would wake each other
/// endlessly. So a request is reported once, and work only while tasks wait.
fn watch(
    connection: &Connection,
    mut seen: FileState,
    wake_ups: &WakeUpSender,
    stopped: &AtomicBool,
) -> rusqlite::Result<()> {
    while !stopped.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
        let look = || match version(connection)? {
            version if version == seen.version => Ok(seen),
            _ => FileState::now(connection),
        };
        match look() {
            Ok(now) if now.version != seen.version => {
                wake_ups
                    .send(now.anything_waits, now.last_cancel_request > seen.last_cancel_request);
                if now.schedule_changes != seen.schedule_changes {
                    wake_ups.schedules_changed();
                }
                seen = now;
            }
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
