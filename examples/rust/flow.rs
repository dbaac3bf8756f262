//! A flow: tasks that start after others, and read their results. One of them fails, is
//! retried by hand, and what was cancelled because of it runs, too.
//!
//! ```text
//! orders ──┐
//!          ├──▶ report ──▶ mail
//! stock ───┘
//!    └───────▶ alert, if it fails
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, Flow, FlowState, FlowTasks, StoreError, Task, TaskEngine};

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 0)]
struct Count {
    what: String,
}

#[derive(Serialize, Deserialize, Task)]
struct Report;

#[derive(Serialize, Deserialize, Task)]
struct Mail {
    to: String,
}

#[derive(Serialize, Deserialize, Task)]
struct Alert;

#[derive(Default)]
struct Warehouse {
    is_open: AtomicBool,
}

async fn count(task: Count, cx: Context<Arc<Warehouse>>) -> Result<u64, Failure> {
    if task.what == "stock" && !cx.state().is_open.load(Ordering::Relaxed) {
        return Err("the warehouse is closed".into());
    }
    Ok(task.what.len() as u64 * 10)
}

async fn report(_: Report, cx: Context<Arc<Warehouse>>) -> Result<String, Failure> {
    let orders: u64 = cx.result_of("orders").await?;
    let stock: u64 = cx.result_of("stock").await?;
    Ok(format!("{orders} orders, {stock} items"))
}

async fn mail(task: Mail, cx: Context<Arc<Warehouse>>) -> Result<(), Failure> {
    println!("to {}: {}", task.to, cx.result_of::<String>("report").await?);
    Ok(())
}

async fn alert(_: Alert, cx: Context<Arc<Warehouse>>) -> Result<(), Failure> {
    for dependency in cx.dependencies().await? {
        let name = dependency.name.unwrap_or_default();
        println!("alert: {name} did not succeed: {}", dependency.error.ok_or("it did")?.message);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let flow = Flow::new()
        .name("nightly")
        .task("orders", Count { what: "orders".into() })
        .task("stock", Count { what: "stock".into() })
        .task("report", Report)
        .after(["orders", "stock"])
        .task("mail", Mail { to: "ada".into() })
        .after("report")
        .task("alert", Alert)
        .after_failure("stock");
    let flow = tasks.create_flow(flow).await?;

    let warehouse = Arc::new(Warehouse::default());
    let engine = tasks.engine(warehouse.clone());
    let engine = engine.handle(count).handle(report).handle(mail).handle(alert).start().await?;
    println!("first: {}", ended(&tasks, &flow).await?.as_str());

    warehouse.is_open.store(true, Ordering::Relaxed);
    tasks.store().retry(&[flow["stock"]]).await?;
    println!("then: {}", ended(&tasks, &flow).await?.as_str());
    engine.stop();
    engine.join().await?;
    Ok(())
}

async fn ended(tasks: &TaskEngine, flow: &FlowTasks) -> Result<FlowState, StoreError> {
    loop {
        if let Some(status) = tasks.flow_status(&flow.correlation_id).await?
            && status.counts.state() != FlowState::Open
        {
            return Ok(status.counts.state());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
