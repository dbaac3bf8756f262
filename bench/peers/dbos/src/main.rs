//! DBOS Transact for Rust: `steps COUNT AT_ONCE CONNECTIONS` or `signal COUNT CONNECTIONS`.
//! Prints one line of JSON.

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dbos::{Config, DBOS, StartOptions};
use futures_util::{StreamExt, stream};
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

fn instance(connections: usize) -> Result<DBOS, Box<dyn Error>> {
    Ok(DBOS::new(Config {
        app_version: Some("1".to_owned()),
        max_connections: connections.try_into()?,
        ..Config::new("bench", std::env::var("DATABASE_URL")?)
    }))
}

async fn ten_steps(_: u64) -> dbos::Result<String> {
    for _ in 0..STEPS {
        dbos::step("charge", || async { dbos::Result::Ok("receipt-1815".to_owned()) }).await?;
    }
    Ok("done".to_owned())
}

async fn approval(_: u64) -> dbos::Result<String> {
    let message: Option<String> = dbos::recv(None, WAIT).await?;
    if let Some(received) = RECEIVED.get() {
        let _ = received.send(Instant::now());
    }
    Ok(message.unwrap_or_default())
}

/// Starts workflows in this process, so many at once, and waits for their ends.
async fn steps(count: usize, at_once: usize, connections: usize) -> Result<(), Box<dyn Error>> {
    let dbos = instance(connections)?;
    let workflow = dbos.register_workflow("ten_steps", ten_steps)?;
    dbos.launch().await?;
    workflow.run(0).await?;
    let began = Instant::now();
    let mut runs = stream::iter(0..count as u64)
        .map(|n| {
            let workflow = &workflow;
            async move { workflow.run(n).await }
        })
        .buffer_unordered(at_once);
    while let Some(run) = runs.next().await {
        run?;
    }
    let secs = began.elapsed().as_secs_f64();
    drop(runs);
    println!("{}", serde_json::json!({ "tasks_per_s": count as f64 / secs }));
    dbos.shutdown().await;
    Ok(())
}

/// From the return of the call that sends to the code behind the receive.
async fn signal(count: usize, connections: usize) -> Result<(), Box<dyn Error>> {
    let dbos = instance(connections)?;
    let (sender, mut received) = mpsc::unbounded_channel();
    RECEIVED.get_or_init(|| sender);
    let workflow = dbos.register_workflow("approval", approval)?;
    dbos.launch().await?;
    let mut samples_ms = Vec::new();
    for n in 0..count {
        let id = format!("approval-{n}");
        let options = StartOptions { workflow_id: Some(&id), ..StartOptions::default() };
        let handle = workflow.start_with(n as u64, options).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        dbos.send(&id, &"ada").await?;
        let sent = Instant::now();
        let at = received.recv().await.ok_or("no workflow received")?;
        samples_ms.push(at.saturating_duration_since(sent).as_secs_f64() * 1000.0);
        handle.result().await?;
    }
    println!("{}", serde_json::json!({ "latencies_ms": samples_ms }));
    dbos.shutdown().await;
    Ok(())
}
