//! I12: resource usage of engines during a fault, from `/proc` and the server.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::harness::supervisor::EngineSupervisor;
use crate::registry::StoreKind;

/// More than this is a leak.
const RSS_MIB_MAX: u64 = 150;
/// Ten of the pools, one for LISTEN, and one for health checks.
const CONNECTIONS_MAX: usize = 12;
/// Average log lines per second and engine. With the short settings of these tests,
/// heartbeats are repeated five times a second.
const LINES_A_SECOND_MAX: f64 = 30.0;

/// Measures until it is closed.
#[derive(Debug)]
pub struct UsageMonitor {
    engines: EngineSupervisor,
    begun: Instant,
    lines: HashMap<String, usize>,
    over: Arc<AtomicBool>,
    watching: JoinHandle<PeakUsage>,
}

/// The peak values.
#[derive(Debug, Default)]
struct PeakUsage {
    rss_mib: u64,
    connections: usize,
    /// Of one engine, in parts of a core.
    cpu: f64,
}

/// The usage of engines.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Usage {
    pub rss_mib: u64,
    pub connections: usize,
    pub cpu: f64,
    pub lines_a_second: f64,
    pub engines: usize,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_mib, connections, cpu, lines_a_second, .. } = self;
        write!(
            f,
            "at the most {rss_mib} MiB, {connections} connections, {cpu:.2} cores and {lines_a_second:.1} log lines/s an engine"
        )
    }
}

impl UsageMonitor {
    pub(crate) fn open(engines: EngineSupervisor, kind: StoreKind, direct: &str) -> Self {
        let lines = engines.names().into_iter().map(|name| (lines(&engines, &name), name));
        let lines = lines.map(|(count, name)| (name, count)).collect();
        let over = Arc::new(AtomicBool::new(false));
        let (watched, ended) = (engines.clone(), over.clone());
        let url = (kind == StoreKind::Postgres).then(|| direct.to_owned());
        let watching = std::thread::spawn(move || watch(&watched, url.as_deref(), &ended));
        Self { engines, begun: Instant::now(), lines, over, watching }
    }

    /// Ends the measurement; fails if anything was out of bounds.
    #[must_use]
    pub fn close(self) -> Usage {
        self.over.store(true, Ordering::Relaxed);
        let most = self.watching.join().expect("the watcher ends");
        let names = self.engines.names();
        let seconds = self.begun.elapsed().as_secs_f64();
        let said = names.iter().map(|name| {
            lines(&self.engines, name)
                - self.lines.get(name).copied().unwrap_or(0).min(lines(&self.engines, name))
        });
        let lines_a_second = said.max().unwrap_or(0) as f64 / seconds.max(1.0);
        let used = Usage {
            rss_mib: most.rss_mib,
            connections: most.connections.div_ceil(names.len().max(1)),
            cpu: most.cpu,
            lines_a_second,
            engines: names.len(),
        };
        assert!(used.rss_mib <= RSS_MIB_MAX, "I12: memory: {used}");
        assert!(used.connections <= CONNECTIONS_MAX, "I12: connections: {used}");
        assert!(used.lines_a_second <= LINES_A_SECOND_MAX, "I12: log: {used}");
        used
    }
}

fn lines(engines: &EngineSupervisor, name: &str) -> usize {
    engines.logged(name).lines().count()
}

fn watch(engines: &EngineSupervisor, url: Option<&str>, over: &AtomicBool) -> PeakUsage {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut most = PeakUsage::default();
    let mut first: HashMap<u32, (Instant, u64)> = HashMap::new();
    while !over.load(Ordering::Relaxed) {
        for process in engines.names().iter().filter_map(|name| engines.process(name)) {
            most.rss_mib = most.rss_mib.max(rss_mib(process).unwrap_or(0));
            let Some(ticks) = cpu_ticks(process) else {
                continue;
            };
            let (since, before) = *first.entry(process).or_insert((Instant::now(), ticks));
            let seconds = since.elapsed().as_secs_f64();
            if seconds > 2.0 {
                // A tick is a hundredth of a second, here as everywhere.
                most.cpu = most.cpu.max((ticks - before) as f64 / 100.0 / seconds);
            }
        }
        if let Some(url) = url {
            let asked =
                async { tokio::time::timeout(Duration::from_secs(2), connections(url)).await };
            if let Ok(Ok(count)) = runtime.block_on(asked) {
                most.connections = most.connections.max(count);
            }
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    most
}

async fn connections(url: &str) -> Result<usize, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    let row = client
        .query_one(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'task-engine-fault'",
            &[],
        )
        .await?;
    drop(client);
    let _ = driver.await;
    Ok(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}

fn rss_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn cpu_ticks(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}
