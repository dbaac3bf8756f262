//! Identifies this process to other processes on the same machine.
//!
//! Reads `/proc`. On systems without it a process has no mark, and other engines rely on
//! the lease of an instance alone.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// Returns the name of this machine.
#[must_use]
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the id of this process.
#[must_use]
pub fn pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Returns the identity of this process, which no other process shares.
///
/// It consists of boot, pid namespace, time namespace, user, pid and start time.
///
/// Host names and pids repeat in containers, a start time reads differently in another time
/// namespace, and the processes of another user may be hidden.
#[must_use]
pub fn mark() -> Option<String> {
    let pid = pid();
    Some(format!("{}/{pid}/{}", machine()?, start_time(pid)?))
}

/// The first argument of a process that supervises an executable of an engine; the
/// second is the mark of that engine.
pub const SUPERVISOR_ARGUMENT: &str = "supervise-executable";

/// Returns whether the process with this [`mark`] and all executables that it ran have ended on
/// this machine.
///
/// False for processes of other machines: they rely on the lease.
#[must_use]
pub fn is_gone(mark: &str) -> bool {
    has_ended(mark) && !has_supervisor(mark)
}

/// Returns whether the process has ended while executables that it ran have not: they get a second
/// after its death.
///
/// Until then its tasks must not start again.
#[must_use]
pub fn is_ending(mark: &str) -> bool {
    has_ended(mark) && has_supervisor(mark)
}

/// Whether a process supervises an executable of this engine.
fn has_supervisor(mark: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    let wanted = [SUPERVISOR_ARGUMENT.as_bytes(), mark.as_bytes()];
    processes.flatten().any(|process| {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).skip(1).take(2).eq(wanted)
    })
}

/// Returns whether the process itself has ended.
#[must_use]
pub fn has_ended(mark: &str) -> bool {
    let Some(rest) = machine().and_then(|here| mark.strip_prefix(here)) else {
        return false;
    };
    let mut parts = rest.trim_start_matches('/').split('/');
    let (Some(pid), Some(started)) = (parts.next(), parts.next()) else {
        return false;
    };
    pid.parse().is_ok_and(|pid: i32| start_time(pid).as_deref() != Some(started))
}

/// Read once, because lists of engines compare it for each row.
fn machine() -> Option<&'static str> {
    static MACHINE: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let pids = fs::read_link("/proc/self/ns/pid").ok()?;
        // Kernels before 5.6 have no time namespaces.
        let time = fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let user = fs::metadata("/proc/self").ok()?.uid();
        Some(format!("{}/{}/{}/{user}", boot.trim(), pids.display(), time.display()))
    };
    MACHINE.get_or_init(read).as_deref()
}

/// When a process started, if it exists and is not a zombie.
fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the other fields follow it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, started) = (fields.first()?, fields.get(19)?);
    (!matches!(*state, "Z" | "X")).then(|| (*started).to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_differs_from_later_one() {
        let mark = mark().unwrap();
        assert!(!is_gone(&mark), "this process is here");
        let (same, started) = mark.rsplit_once('/').unwrap();
        assert!(is_gone(&format!("{same}/1{started}")), "another process has its pid now");
        assert!(!is_gone(&format!("elsewhere/{mark}")), "another machine: rely on its lease");
    }
}
