//! Code around tasks: hooks on executions and on creation, and their output in
//! `tracing`.
//!
//! The engine logs with `tracing`, and the log lines of a task's code are in the span
//! of its execution, like those of the engine. A hook does what every task needs: a
//! creation hook stores the tenant in the context of each task, and an execution hook
//! reads it.

use serde::{Deserialize, Serialize};
use task_engine::{
    Context, CreationHook, Failure, Hook, NewTask, Refusal, StopHandle, Task, TaskEngine,
};

#[derive(Serialize, Deserialize, Task)]
struct Invoice {
    number: u32,
}

/// In the creator: adds the tenant to every task.
struct ForTenant(&'static str);

impl CreationHook for ForTenant {
    fn creating(&self, task: &mut NewTask) -> Result<(), Refusal> {
        task.add_context("tenant", self.0)?;
        Ok(())
    }
}

#[derive(Clone, Deserialize)]
struct Tenant {
    tenant: String,
}

/// In the engine: refuses tasks without a tenant.
struct FindTenant;

impl Hook<StopHandle> for FindTenant {
    async fn before(&self, cx: &Context<StopHandle>) -> Result<(), Failure> {
        let tenant: Tenant = cx.context().decode().map_err(Failure::no_retry)?;
        cx.extensions().insert(tenant);
        Ok(())
    }
}

async fn invoice(task: Invoice, cx: Context<StopHandle>) -> Result<(), Failure> {
    let tenant = cx.extensions().get::<Tenant>().ok_or("no tenant")?;
    tracing::info!(tenant = tenant.tenant, "writing invoice {}", task.number);
    cx.state().stop();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stdout).init();
    let tasks = TaskEngine::connect("sqlite::memory:").await?.creation_hook(ForTenant("acme"));
    tasks.migrate().await?;
    let stop = StopHandle::new();
    let engine = tasks.engine(stop.clone()).stopped_by(stop).hook(FindTenant).handle(invoice);
    tasks.create(Invoice { number: 7 }).await?;
    engine.run().await?;
    Ok(())
}
