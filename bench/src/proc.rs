//! CPU time and memory of local processes, from Linux' `/proc`. Not available on
//! other systems.

use std::fs;
use std::time::Duration;

/// The unit of times in `/proc/PID/stat`: 100 a second on every Linux that Rust
/// runs on.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process with all of its threads.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    Some(read_stat(pid)?.own)
}

/// Peak memory of a process in bytes.
pub(crate) fn memory_peak(pid: u32) -> Option<u64> {
    parse_memory_peak(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// All processes of a PostgreSQL server on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    postmaster: u32,
}

impl Server {
    /// The server of this backend, if it is visible.
    pub(crate) fn of_backend(pid: u32) -> Option<Self> {
        let is_postgres =
            |stat: &Stat| stat.name.starts_with("postgres") || stat.name == "postmaster";
        let backend = read_stat(pid).filter(is_postgres)?;
        // In a container the server may be process 1, but then its parent is 0.
        read_stat(backend.parent).filter(is_postgres)?;
        Some(Self { postmaster: backend.parent })
    }

    /// CPU time of all of its processes; that of exited ones is in the parent's
    /// counters.
    pub(crate) fn cpu(self) -> Option<Duration> {
        let postmaster = read_stat(self.postmaster)?;
        let mut total = precise_cpu(self.postmaster, &postmaster) + postmaster.ended_children;
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            // A process may end while the list is read.
            let Some((pid, stat)) = pid.and_then(|pid| Some((pid, read_stat(pid)?))) else {
                continue;
            };
            if stat.parent == self.postmaster {
                total += precise_cpu(pid, &stat);
            }
        }
        Some(total)
    }
}

/// In nanoseconds where the kernel has them: with ticks, two dozen processes
/// would lose a quarter of a second to rounding. One thread a process, as
/// PostgreSQL has it.
fn precise_cpu(pid: u32, stat: &Stat) -> Duration {
    let read = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let ns = read.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.map_or(stat.own, Duration::from_nanos)
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

fn read_stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name is in brackets, and may hold brackets and blanks itself.
    let (name, rest) = text.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(Stat {
        name: name.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        own: TICK * (ticks(11)? + ticks(12)?),
        ended_children: TICK * (ticks(13)? + ticks(14)?),
    })
}

fn parse_memory_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        let text =
            "42 (post) (gres) S 7 42 42 0 -1 4194560 3 0 0 0 10 20 30 40 20 0 1 0 5 1 1 18 0\n";
        let stat = Stat {
            name: "post) (gres".to_owned(),
            parent: 7,
            own: Duration::from_millis(300),
            ended_children: Duration::from_millis(700),
        };
        assert_eq!(parse_stat(text), Some(stat));
        assert_eq!(parse_stat("nonsense"), None);
        assert_eq!(parse_memory_peak("VmPeak:\t 9 kB\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn own_process_is_readable() {
        let pid = std::process::id();
        assert!(cpu(pid).is_some() && memory_peak(pid).is_some());
        assert!(Server::of_backend(pid).is_none(), "not a server");
    }
}
