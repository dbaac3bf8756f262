//! Costs of an idle engine.
//!
//! Commits are the difference of a short and a long run: it excludes the commits
//! of start and stop, and counts that a connection publishes only when it closes.
//! They are those of the whole database, so there is no value if another program
//! used it.

use std::time::{Duration, Instant};

use super::pickup::WORKERS;
use crate::database::BenchDatabase;
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;

/// How long a new engine takes to become idle.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let short = run_idle(database, Duration::ZERO).await?;
    let long = run_idle(database, settings.idle_time).await?;
    let secs = settings.idle_time.as_secs_f64();
    let commits = short.commits.zip(long.commits);
    let commits = commits.map(|(short, long)| (long - short).max(0) as f64 / secs);
    Ok(Measurement::default()
        .with(Metric::IdleCommitsPerSec, commits)
        .with(Metric::IdleCpuPercent, long.cpu_percent)
        .with(Metric::EngineMemoryMb, long.memory_mb))
}

struct IdleRun {
    commits: Option<i64>,
    cpu_percent: Option<f64>,
    memory_mb: Option<f64>,
}

async fn run_idle(database: &BenchDatabase, idle: Duration) -> Result<IdleRun, BenchError> {
    let started = Instant::now();
    let commits_before = database.commits().await?;
    let engines = Engines::start_claiming(database, EngineOptions::new(1, WORKERS)).await?;
    tokio::time::sleep(SETTLE).await;
    let (began, cpu_before) = (Instant::now(), engines.cpu());
    tokio::time::sleep(idle).await;
    let used = cpu_before.zip(engines.cpu());
    let used = used.map(|(before, after)| after.saturating_sub(before).as_secs_f64());
    let cpu_percent = used.map(|used| used * 100.0 / began.elapsed().as_secs_f64());
    let memory_mb = engines.memory_mb();
    engines.stop().await?;
    let commits = commits_before.zip(database.commits().await?);
    let alone = database.other_connections(started.elapsed()).await?.in_database == 0;
    let commits = commits.filter(|_| alone).map(|(before, after)| after - before);
    Ok(IdleRun { commits, cpu_percent, memory_mb })
}
