//! Empty stores, engines on them, and helpers that wait.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::task::TaskDetails;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{
    Engine, EngineError, Json, NewTask, StopHandle, Stopped, Store, TaskEngine, TaskId, TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};

/// Makes two tests of each function: one on PostgreSQL, one on SQLite.
macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name($crate::store::postgres().await).await;
                }
            )*
        }
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name($crate::store::sqlite().await).await;
                }
            )*
        }
    };
}
pub(crate) use on_every_store;

/// A store with its tables, for one test.
pub(crate) struct Fresh {
    pub(crate) store: Arc<dyn Store>,
    folder: Option<tempfile::TempDir>,
    url: String,
}

pub(crate) async fn postgres() -> Fresh {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Fresh { store: Arc::new(store), folder: None, url }
}

pub(crate) async fn sqlite() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("tasks.db")).unwrap();
    store.migrate().await.unwrap();
    Fresh { store: Arc::new(store), folder: Some(folder), url: String::new() }
}

impl Fresh {
    pub(crate) fn on(store: impl Into<Arc<dyn Store>>) -> Self {
        Self { store: store.into(), folder: None, url: String::new() }
    }

    /// The file of the store, if it is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.path().join("tasks.db"))
    }

    /// A connection to the store's server.
    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        connect(&self.url).await
    }

    pub(crate) fn engine(&self) -> Engine<()> {
        TaskEngine::new(self.store.clone()).engine(()).instance("test")
    }

    pub(crate) async fn create(&self, class: &str, parameters: serde_json::Value) -> TaskId {
        self.create_task(task(class, parameters)).await
    }

    pub(crate) async fn create_task(&self, task: NewTask) -> TaskId {
        self.store.create(&[task]).await.unwrap()[0]
    }

    pub(crate) async fn details(&self, id: TaskId) -> TaskDetails {
        self.store.task(id).await.unwrap().expect("the task is there")
    }

    /// Waits until the task is as wanted.
    pub(crate) async fn until(
        &self,
        id: TaskId,
        wanted: impl Fn(&TaskDetails) -> bool,
    ) -> TaskDetails {
        let begun = Instant::now();
        loop {
            let details = self.details(id).await;
            if wanted(&details) {
                return details;
            }
            assert!(begun.elapsed() < TIMEOUT, "task {id} is still {details:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_status(&self, id: TaskId, status: TaskStatus) -> TaskDetails {
        self.until(id, |details| details.row.status == status).await
    }

    /// Waits until the task has ended, in whatever status.
    pub(crate) async fn until_ended(&self, id: TaskId) -> TaskDetails {
        let ended = [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];
        self.until(id, |details| ended.contains(&details.row.status)).await
    }

    /// Waits until the task waits for its next attempt.
    pub(crate) async fn until_requeued(&self, id: TaskId) -> TaskDetails {
        let waits = |details: &TaskDetails| details.row.status == TaskStatus::Waiting;
        self.until(id, |details| waits(details) && !details.executions.is_empty()).await
    }

    pub(crate) async fn until_all_engines_ended(&self) {
        let begun = Instant::now();
        while self.store.instances(None).await.unwrap().iter().any(|engine| engine.is_alive()) {
            assert!(begun.elapsed() < TIMEOUT, "an engine still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn assert_sound(&self) {
        assert_eq!(self.store.verify().await.unwrap(), []);
    }
}

/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

#[allow(clippy::needless_pass_by_value)] // So that callers can write `json!` in place.
pub(crate) fn task(class: &str, parameters: serde_json::Value) -> NewTask {
    NewTask::new(class, Json::encode(&parameters).unwrap()).unwrap()
}

pub(crate) fn nothing() -> serde_json::Value {
    json!({})
}

/// An engine that runs in the background.
pub(crate) struct RunningEngine {
    pub(crate) stop: StopHandle,
    end: tokio::task::JoinHandle<Result<Stopped, EngineError>>,
}

pub(crate) fn start<S: Send + Sync + 'static>(engine: Engine<S>) -> RunningEngine {
    let stop = engine.stop_handle();
    RunningEngine { stop, end: tokio::spawn(engine.run_until(std::future::pending())) }
}

impl RunningEngine {
    pub(crate) async fn stop(self) -> Stopped {
        self.stop.stop();
        self.ended().await.unwrap()
    }

    pub(crate) async fn ended(self) -> Result<Stopped, EngineError> {
        tokio::time::timeout(TIMEOUT, self.end).await.expect("the engine ends").unwrap()
    }
}
