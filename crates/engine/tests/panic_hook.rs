//! A reporter of panics that the application installed sees the panics of tasks. The
//! hook is one for the whole process, so this test has its own.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, StopHandle, Task, TaskEngine};

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 0)]
struct Panics;

async fn panics(_: Panics, cx: Context<StopHandle>) -> Result<(), Failure> {
    cx.state().stop();
    panic!("seen by both")
}

#[tokio::test]
async fn previous_panic_hook_is_called() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reporter = seen.clone();
    std::panic::set_hook(Box::new(move |info| {
        reporter.lock().unwrap().push(info.payload_as_str().unwrap_or_default().to_owned());
    }));
    let tasks = TaskEngine::connect("sqlite::memory:").await.unwrap();
    tasks.migrate().await.unwrap();
    let id = tasks.create(Panics).await.unwrap();
    let stop = StopHandle::new();
    let engine = tasks.engine(stop.clone()).stopped_by(stop).handle(panics);
    engine.run_until(std::future::pending()).await.unwrap();
    let error = tasks.get(id).await.unwrap().unwrap().row.error.unwrap();
    assert_eq!((error.exception.as_str(), error.message.as_str()), ("Panic", "seen by both"));
    assert!(error.backtrace[0].contains("panic_hook.rs:"), "{error:?}");
    assert_eq!(*seen.lock().unwrap(), ["seen by both"]);
}
