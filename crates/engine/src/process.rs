//! This process, as others on the same machine can recognise it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use task_engine_model::instance::InstanceRow;

/// The name of an engine that is not given one: the machine's.
#[doc(hidden)]
#[must_use]
pub fn default_instance() -> String {
    host()
}

pub(crate) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

pub(crate) fn pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Boot, pid namespace, user, pid and start time: no two processes share them
/// all. Host names repeat (containers), and so do process numbers; the user is
/// there because the processes of another one may be hidden.
pub(crate) fn mark() -> Option<String> {
    let pid = pid();
    Some(format!("{}/{pid}/{}", machine()?, start_time(pid)?))
}

/// Whether the process of an engine is known to be gone from this machine, so
/// that its lease need not run out first.
#[doc(hidden)]
#[must_use]
pub fn process_is_gone(engine: &InstanceRow) -> bool {
    engine.process.as_deref().is_some_and(task_engine_model::process::is_gone)
}

fn machine() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let user = fs::metadata("/proc/self").ok()?.uid();
    Some(format!("{}/{}/{user}", boot.trim(), namespace.display()))
}

/// When a process began, if it is there and not a corpse.
fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything; the rest is after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, started) = (fields.first()?, fields.get(19)?);
    (!matches!(*state, "Z" | "X")).then(|| (*started).to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let mark = mark().unwrap();
        let row = |process: &str| -> InstanceRow {
            InstanceRow {
                id: task_engine_model::InstanceId(1),
                name: String::new(),
                host: String::new(),
                pid: 0,
                process: Some(process.to_owned()),
                version: String::new(),
                workers: 0,
                queues: vec![],
                pools: vec![],
                classes: Default::default(),
                started_at: jiff::Timestamp::UNIX_EPOCH,
                heartbeat_at: jiff::Timestamp::UNIX_EPOCH,
                heartbeat_age: Default::default(),
                lease: Default::default(),
                stopped_at: None,
                lost_at: None,
                held: 0,
            }
        };
        assert!(!process_is_gone(&row(&mark)), "this process is here");
        let (same, started) = mark.rsplit_once('/').unwrap();
        assert!(
            process_is_gone(&row(&format!("{same}/1{started}"))),
            "another one has its number now"
        );
        assert!(
            !process_is_gone(&row(&format!("elsewhere/{mark}"))),
            "another machine: nobody knows"
        );
    }
}
