//! Idleness: what an engine costs that has nothing to do.
//!
//! Commits are counted over two lives of an engine, a short one and a long one:
//! the difference is free of what beginning and ending cost, and of counts that
//! a connection publishes only when it ends. They are those of the whole
//! database, so if anybody else was at work in it, nothing can be said.

use std::time::{Duration, Instant};

use super::super::arena::Arena;
use super::super::fleet::{Crew, Fleet};
use super::super::measure::{Measure, Take};
use super::super::options::Settings;
use super::pickup::WORKERS;
use crate::error::CliError;

/// Until an engine that has started has come to rest.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) async fn take(arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
    let short = live(arena, Duration::ZERO).await?;
    let long = live(arena, settings.idle_time).await?;
    let secs = settings.idle_time.as_secs_f64();
    let commits = short.commits.zip(long.commits);
    let commits = commits.map(|(short, long)| (long - short).max(0) as f64 / secs);
    Ok(Take::default()
        .with(Measure::IdleCommitsPerSec, commits)
        .with(Measure::IdleCpuPercent, long.cpu_percent)
        .with(Measure::EngineMemoryMb, long.memory_mb))
}

struct Life {
    commits: Option<i64>,
    cpu_percent: Option<f64>,
    memory_mb: Option<f64>,
}

async fn live(arena: &Arena, idle: Duration) -> Result<Life, CliError> {
    let lived = Instant::now();
    let commits_before = arena.commits().await?;
    let fleet = Fleet::at_work(arena, Crew::new(1, WORKERS)).await?;
    tokio::time::sleep(SETTLE).await;
    let (began, cpu_before) = (Instant::now(), fleet.cpu());
    tokio::time::sleep(idle).await;
    let used = cpu_before.zip(fleet.cpu());
    let used = used.map(|(before, after)| after.saturating_sub(before).as_secs_f64());
    let cpu_percent = used.map(|used| used * 100.0 / began.elapsed().as_secs_f64());
    let memory_mb = fleet.memory_mb();
    fleet.stop().await?;
    let commits = commits_before.zip(arena.commits().await?);
    let alone = arena.strangers(lived.elapsed()).await?.in_database == 0;
    let commits = commits.filter(|_| alone).map(|(before, after)| after - before);
    Ok(Life { commits, cpu_percent, memory_mb })
}
