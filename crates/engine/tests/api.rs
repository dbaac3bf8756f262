//! What applications expect of types without looking: that they can be shared by
//! threads, kept, sent, and returned as errors.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use task_engine::hooks::Extensions;
use task_engine::{
    AddMembersError, Batch, Context, CreateError, DependencyError, EndedDependency, Engine,
    EngineError, Failure, Flow, FlowTasks, InvalidFlow, InvalidJson, InvalidTask, Json, NewTask,
    Schedule, StopHandle, Stopped, Store, StoreError, Task, TaskEngine, TaskError, TaskId,
};

fn shared<T: Send + Sync + 'static>() {}

fn error<T: Error + Send + Sync + 'static>() {}

fn sent<T: Send>(_: T) {}

#[test]
fn types_can_be_shared() {
    shared::<Engine<()>>();
    shared::<TaskEngine>();
    shared::<Context<()>>();
    shared::<Failure>();
    shared::<NewTask>();
    shared::<Json>();
    shared::<Schedule>();
    shared::<Flow>();
    shared::<Batch>();
    shared::<FlowTasks>();
    shared::<EndedDependency>();
    shared::<StopHandle>();
    shared::<Stopped>();
    shared::<Extensions>();
    shared::<Arc<dyn Store>>();
    #[cfg(feature = "sqlite")]
    shared::<task_engine::sqlite::SqliteStore>();
    #[cfg(feature = "postgres")]
    shared::<task_engine::postgres::PgStore>();
}

#[test]
fn error_types_implement_error() {
    error::<EngineError>();
    error::<StoreError>();
    error::<CreateError>();
    error::<InvalidFlow>();
    error::<DependencyError>();
    error::<AddMembersError>();
    error::<TaskError>();
    error::<InvalidTask>();
    error::<InvalidJson>();
    error::<task_engine::core::ParseError>();
    error::<task_engine::store::schedules::ScheduleError>();
    error::<task_engine_operations::OperationError>();
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Tidy;

impl Task for Tidy {
    const CLASS: &'static str = "tidy";
}

/// Compiled, never called: no future here keeps anything that cannot be sent.
#[allow(dead_code)]
fn futures_can_be_spawned(client: &TaskEngine, engine: Engine<()>, cx: &Context<()>) {
    sent(client.create(Tidy).after(Duration::from_secs(1)).into_future());
    sent(client.create(Tidy).unique("tidy").into_future());
    sent(client.create(Tidy).after_task([TaskId(1)]).into_future());
    sent(client.create_many(&[]));
    sent(client.create_flow(Flow::new()));
    sent(client.flow_status("nightly"));
    sent(cx.result_of::<String>("extract"));
    sent(cx.dependencies());
    sent(cx.add_members([Tidy]));
    sent(cx.cancelled());
    sent(engine.run());
}
