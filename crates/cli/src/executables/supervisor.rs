//! The process between an engine and an executable: it starts the executable in its
//! own process group, and ends all that the executable started.
//!
//! It is this program again, started with [`SUPERVISOR_ARGUMENT`] as its first
//! argument, then the mark of its engine's process, then the limit of open files
//! that the executable gets. Its
//! standard input is a socket to the engine. It reads frames: the input of the
//! executable, and commands. It writes lines: that the executable has started, and
//! how it ended. Standard output and error belong to the executable.
//!
//! What can fail, and what holds then:
//! - *The engine is killed.* Its end of the socket closes. The group gets SIGTERM, and
//!   SIGKILL a second later.
//! - *The executable starts others.* They are in its group, and killed with it.
//!   Those that left the group (daemons) become children of this process when
//!   their parents die (Linux), and are found and killed there.
//! - *This process is killed.* The socket closes without a line about the end, and the
//!   engine kills the group. Only if both are killed at the same moment does the
//!   executable continue.
//! - *A signal for the engine's group*, like Ctrl-C: this process and the executable
//!   have their own groups.

use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, getrlimit, setrlimit,
};
use task_engine_core::process;
use task_engine_core::process::SUPERVISOR_ARGUMENT;

/// Frames: a kind, the length of the data (4 bytes, big-endian), the data.
pub(super) const INPUT: u8 = b'I';
/// The executable has all of its input.
pub(super) const INPUT_ENDS: u8 = b'E';
/// SIGTERM to the group.
pub(super) const TERMINATE: u8 = b'T';
/// SIGKILL to the group.
pub(super) const KILL: u8 = b'K';

/// How many bytes are written together.
const WRITE_BYTES: usize = 64 * 1024;
/// Between SIGTERM and SIGKILL when the engine has gone.
const GRACE_WITHOUT_ENGINE: Duration = Duration::from_secs(1);
/// How often orphans that have ended are cleared away.
const CLEAR_EVERY: Duration = Duration::from_secs(5);

/// Supervises, if this process was started for that.
pub(crate) fn run_if_requested() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != SUPERVISOR_ARGUMENT {
        return None;
    }
    let engine = args.next().unwrap_or_default();
    let descriptors = args.next().unwrap_or_default();
    if let Some(soft) = descriptors.to_str().and_then(|number| number.parse().ok()) {
        let limit = Rlimit { current: Some(soft), ..getrlimit(Resource::Nofile) };
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let done = supervise(&args.collect::<Vec<_>>(), engine.to_str().unwrap_or_default());
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Events while the executable runs.
enum SupervisorEvent {
    Exited,
    Command(u8),
    EngineGone,
}

fn supervise(argv: &[OsString], engine: &str) -> std::io::Result<()> {
    let control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut answers = control.try_clone()?;
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let Some((program, args)) = argv.split_first() else {
        return writeln!(answers, "failed - nothing to start");
    };
    // An engine that was killed while it started this may have a successor, which
    // looks for supervisors that it must wait for, and saw none.
    if process::has_ended(engine) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let number = error.raw_os_error().map_or_else(|| "-".to_owned(), |n| n.to_string());
            return writeln!(answers, "failed {number} {error}");
        }
    };
    let group = Pid::from_child(&child);
    // An engine that has ended by now is noticed below.
    let _ = writeln!(answers, "started {}", group.as_raw_nonzero());

    let (events, received) = mpsc::channel();
    let (input, to_write) = mpsc::channel();
    if let Some(stdin) = child.stdin.take() {
        std::thread::spawn(move || write_input(stdin, &to_write));
    }
    let exited = events.clone();
    std::thread::spawn(move || {
        // Not reaped, so that its number stays reserved until the group is dead.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitid(WaitId::Pid(group), options)
        {}
        let _ = exited.send(SupervisorEvent::Exited);
    });
    std::thread::spawn(move || read_control(control, input, &events));

    watch(group, &received);
    signal(group, Signal::KILL);
    let status = child.wait()?;
    kill_orphans(&child);
    answers.write_all(ending(status).as_bytes())
}

/// Handles events until the executable has ended.
fn watch(group: Pid, events: &Receiver<SupervisorEvent>) {
    let mut terminated = false;
    let mut deadline: Option<Instant> = None;
    loop {
        let wait = deadline.map_or(CLEAR_EVERY, |at| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(wait.min(CLEAR_EVERY)) {
            Ok(SupervisorEvent::Exited) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(SupervisorEvent::Command(TERMINATE)) => {
                terminated = true;
                signal(group, Signal::TERM);
            }
            Ok(SupervisorEvent::Command(_)) => signal(group, Signal::KILL),
            // It had its time to end.
            Ok(SupervisorEvent::EngineGone) if terminated => signal(group, Signal::KILL),
            Ok(SupervisorEvent::EngineGone) => {
                signal(group, Signal::TERM);
                deadline = Some(Instant::now() + GRACE_WITHOUT_ENGINE);
            }
            Err(RecvTimeoutError::Timeout) => {
                if deadline.is_some_and(|at| at <= Instant::now()) {
                    signal(group, Signal::KILL);
                    deadline = None;
                }
                for orphan in children().into_iter().filter(|pid| *pid != group) {
                    let _ = rustix::process::waitpid(Some(orphan), WaitOptions::NOHANG);
                }
            }
        }
    }
}

fn read_control(control: UnixStream, input: Sender<Vec<u8>>, events: &Sender<SupervisorEvent>) {
    let (mut control, mut input) = (BufReader::new(control), Some(input));
    while let Some((kind, data)) = read_frame(&mut control) {
        match kind {
            INPUT => {
                if let Some(input) = &input {
                    let _ = input.send(data);
                }
            }
            INPUT_ENDS => input = None,
            kind => {
                let _ = events.send(SupervisorEvent::Command(kind));
            }
        }
    }
    let _ = events.send(SupervisorEvent::EngineGone);
}

fn read_frame(control: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    control.read_exact(&mut head).ok()?;
    let [kind, length @ ..] = head;
    let mut data = vec![0; usize::try_from(u32::from_be_bytes(length)).ok()?];
    control.read_exact(&mut data).ok()?;
    Some((kind, data))
}

/// An executable that does not read its input blocks only this thread.
fn write_input(mut stdin: ChildStdin, to_write: &Receiver<Vec<u8>>) {
    while let Ok(mut data) = to_write.recv() {
        // What waits already is written together.
        while data.len() < WRITE_BYTES {
            let Ok(more) = to_write.try_recv() else { break };
            data.extend(more);
        }
        if stdin.write_all(&data).is_err() {
            return;
        }
    }
}

fn signal(group: Pid, signal: Signal) {
    // Fails if the group is empty.
    let _ = rustix::process::kill_process_group(group, signal);
}

/// Kills the processes that left the group, until none is left: the children of each
/// become children of this process.
fn kill_orphans(ended: &Child) {
    let ended = Pid::from_child(ended);
    loop {
        let orphans: Vec<Pid> = children().into_iter().filter(|pid| *pid != ended).collect();
        if orphans.is_empty() {
            return;
        }
        for orphan in &orphans {
            let _ = rustix::process::kill_process(*orphan, Signal::KILL);
        }
        for orphan in orphans {
            let _ = rustix::process::waitpid(Some(orphan), WaitOptions::empty());
        }
    }
}

/// The children of this process, its threads' included.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .flatten()
        .collect();
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited {code}\n"),
        (None, Some(signal)) => format!("signalled {signal}\n"),
        (None, None) => format!("failed - {status}\n"),
    }
}
