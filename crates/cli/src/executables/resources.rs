//! The limits of this process: open files and processes. An engine starts with no
//! more workers than they allow. A task whose program cannot be started because of
//! them is postponed, not failed.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use task_engine::{Context, Failure};
use task_engine_core::display::count;
use tokio::sync::Notify;

/// A program costs its engine a socket, two pipes, a process handle, and one pipe
/// more if it stays.
const DESCRIPTORS_A_PROGRAM: u64 = 5;
/// For the database, the log, the dashboard, and programs that are about to start.
const DESCRIPTORS_RESERVED: u64 = 40;
/// Its supervisor with three threads, and the program itself.
const PROCESSES_A_PROGRAM: u64 = 5;
const PROCESSES_RESERVED: u64 = 20;

/// How long a task waits here for free files or processes, and then postponed.
const WAIT_HERE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const SNOOZE: Duration = Duration::from_secs(10);
/// The same warning is logged no more often.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The limit of open files that programs get: what this process had before it
/// raised its own. Programs that use `select`, or close every possible file when
/// they start, suffer from a high one.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

pub(super) fn inherited_descriptors() -> Option<u64> {
    INHERITED.get().copied().flatten()
}

/// Raises the soft limit of open files to the hard one.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
    {
        let _ = INHERITED.set(current);
    }
}

/// How many programs can run, and the reason for the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramLimit {
    pub(crate) programs: u64,
    pub(crate) because: String,
}

/// How many programs this process can run at a time; `None` if nothing limits it.
pub(crate) fn program_limit() -> Option<ProgramLimit> {
    let descriptors = getrlimit(Resource::Nofile).current.map(|limit| ProgramLimit {
        programs: fitting(limit, DESCRIPTORS_RESERVED, DESCRIPTORS_A_PROGRAM),
        because: format!(
            "this process may open {limit} files; raise that with `ulimit -n` or LimitNOFILE= of systemd"
        ),
    });
    // It does not apply to the superuser.
    let processes =
        getrlimit(Resource::Nproc).current.filter(|_| !rustix::process::getuid().is_root());
    let processes = processes.map(|limit| ProgramLimit {
        programs: fitting(limit.saturating_sub(threads_of_user()), PROCESSES_RESERVED, PROCESSES_A_PROGRAM),
        because: format!(
            "this user may have {limit} processes and threads; raise that with `ulimit -u` or LimitNPROC= of systemd"
        ),
    });
    descriptors.into_iter().chain(processes).min_by_key(|limit| limit.programs)
}

fn fitting(limit: u64, reserved: u64, each: u64) -> u64 {
    (limit.saturating_sub(reserved) / each).max(1)
}

/// The threads of all processes of this user.
fn threads_of_user() -> u64 {
    let user = rustix::process::getuid().as_raw().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let threads = processes.flatten().filter_map(|process| {
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        (field("Uid:")? == user).then(|| field("Threads:")?.parse::<u64>().ok())?
    });
    threads.sum()
}

/// The share of these workers in the programs that can run.
pub(crate) fn scaled(workers: u16, wanted: u64, limit: u64) -> u16 {
    if wanted <= limit {
        return workers;
    }
    u16::try_from(u64::from(workers) * limit / wanted.max(1)).unwrap_or(workers).max(1)
}

/// Whether a program could not be started because of a limit of the system or this
/// process, and not because of the program.
pub(super) fn is_shortage(error: Option<i32>) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    error.is_some_and(|error| shortages.iter().any(|one| one.raw_os_error() == error))
}

/// Notified when a program has ended, so that another may start.
static ENDED: Notify = Notify::const_new();

pub(super) fn program_ended() {
    ENDED.notify_waiters();
}

/// The wait of a task whose program cannot be started. It keeps its worker, so
/// the engine claims less meanwhile.
pub(super) struct ShortageWait {
    since: Option<Instant>,
}

impl ShortageWait {
    pub(super) fn new() -> Self {
        Self { since: None }
    }

    /// Waits before the next try. An error ends the attempt without using a retry:
    /// another engine may be able to start the program.
    pub(super) async fn wait(&mut self, why: &str, cx: &Context<()>) -> Result<(), Failure> {
        warn(why);
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= WAIT_HERE {
            return Err(give_up(why));
        }
        tokio::select! {
            () = ENDED.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = cx.cancelled() => return Err(Failure::named("NotBegun", "its program had not started")),
        }
        Ok(())
    }
}

/// Postpones a task whose program this engine cannot start.
pub(super) fn give_up(why: &str) -> Failure {
    Failure::snooze_because(SNOOZE, format!("its engine could not start the program: {why}"))
}

fn warn(why: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < WARN_EVERY) {
        return;
    }
    *last = Some(Instant::now());
    drop(last);
    let limit = program_limit().map_or_else(String::new, |limit| {
        format!(
            " The limits allow {}, because {}",
            count(usize::try_from(limit.programs).unwrap_or(0), "program"),
            limit.because
        )
    });
    tracing::warn!(
        "cannot start programs now: {why}. Tasks wait for others to end and use no retry; use fewer --workers or raise the limits.{limit}"
    );
}

/// The message of the error, if it is a shortage.
pub(super) fn shortage_of(error: &io::Error) -> Option<String> {
    is_shortage(error.raw_os_error()).then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_shrink_to_the_limit() {
        assert_eq!(fitting(1024, DESCRIPTORS_RESERVED, DESCRIPTORS_A_PROGRAM), 196);
        assert_eq!(fitting(64, DESCRIPTORS_RESERVED, DESCRIPTORS_A_PROGRAM), 4);
        assert_eq!(fitting(10, DESCRIPTORS_RESERVED, DESCRIPTORS_A_PROGRAM), 1, "at least one");
        assert_eq!(scaled(40, 40, 4), 4);
        assert_eq!(scaled(30, 40, 4), 3);
        assert_eq!(scaled(1, 40, 4), 1);
        assert_eq!(scaled(40, 40, 40), 40);
    }

    #[test]
    fn shortage_differs_from_missing_program() {
        assert!(is_shortage(Some(Errno::MFILE.raw_os_error())));
        assert!(is_shortage(Some(Errno::AGAIN.raw_os_error())));
        assert!(!is_shortage(Some(Errno::NOENT.raw_os_error())));
        assert!(!is_shortage(None));
    }
}
