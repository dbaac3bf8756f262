//! durare: `steps COUNT AT_ONCE CONNECTIONS` or `signal COUNT CONNECTIONS`. Prints one line
//! of JSON.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use durare::{DurableContext, DurableEngine, PostgresProvider, WorkflowOptions};
use futures_util::{StreamExt, stream};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::mpsc;

const STEPS: u32 = 10;
const WAIT: Duration = Duration::from_secs(3600);

static RECEIVED: OnceLock<mpsc::UnboundedSender<Instant>> = OnceLock::new();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> Result<usize, Box<dyn Error>> {
        Ok(arguments.get(at).ok_or("a number is missing")?.parse()?)
    };
    match arguments.first().map(String::as_str) {
        Some("steps") => steps(number(1)?, number(2)?, number(3)?).await,
        Some("signal") => signal(number(1)?, number(2)?).await,
        _ => Err("steps or signal?".into()),
    }
}

async fn engine(connections: usize) -> Result<DurableEngine, Box<dyn Error>> {
    let pool = PgPoolOptions::new()
        .max_connections(connections.try_into()?)
        .acquire_timeout(WAIT)
        .connect(&std::env::var("DATABASE_URL")?)
        .await?;
    let provider = PostgresProvider::from_pool_with_schema(pool, "dbos")?;
    Ok(DurableEngine::builder(Arc::new(provider)).build().await?)
}

#[durare::workflow]
async fn ten_steps(ctx: DurableContext, _n: u64) -> durare::Result<String> {
    for _ in 0..STEPS {
        ctx.step("charge", || async { Ok("receipt-1815".to_owned()) }).await?;
    }
    Ok("done".to_owned())
}

#[durare::workflow]
async fn approval(ctx: DurableContext, _n: u64) -> durare::Result<String> {
    let message: Option<String> = ctx.recv("approved", WAIT).await?;
    if let Some(received) = RECEIVED.get() {
        let _ = received.send(Instant::now());
    }
    Ok(message.unwrap_or_default())
}

/// Starts workflows in this process, so many at once, and waits for their ends.
async fn steps(count: usize, at_once: usize, connections: usize) -> Result<(), Box<dyn Error>> {
    let engine = engine(connections).await?;
    let run = |n: u64| {
        let engine = &engine;
        async move {
            let options = WorkflowOptions::with_id(format!("steps-{n}"));
            engine.start_with(TenSteps, n, options).await?.result().await
        }
    };
    run(count as u64).await?;
    let began = Instant::now();
    let mut runs = stream::iter(0..count as u64).map(run).buffer_unordered(at_once);
    while let Some(run) = runs.next().await {
        run?;
    }
    let secs = began.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "tasks_per_s": count as f64 / secs }));
    Ok(())
}

/// From the return of the call that sends to the code behind the receive.
async fn signal(count: usize, connections: usize) -> Result<(), Box<dyn Error>> {
    let engine = engine(connections).await?;
    let (sender, mut received) = mpsc::unbounded_channel();
    RECEIVED.get_or_init(|| sender);
    let mut samples_ms = Vec::new();
    for n in 0..count {
        let id = format!("approval-{n}");
        let handle =
            engine.start_with(Approval, n as u64, WorkflowOptions::with_id(id.as_str())).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        engine.send(&id, "ada", "approved").await?;
        let sent = Instant::now();
        let at = received.recv().await.ok_or("no workflow received")?;
        samples_ms.push(at.saturating_duration_since(sent).as_secs_f64() * 1000.0);
        handle.result().await?;
    }
    println!("{}", serde_json::json!({ "latencies_ms": samples_ms }));
    Ok(())
}
