//! An executable that runs, as the engine sees it: through its supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use task_engine_core::process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::config::Program;
use super::resources;
use super::supervisor::{INPUT, INPUT_ENDS, KILL, TERMINATE};

/// How many bytes are written together.
const WRITE_BYTES: usize = 64 * 1024;

/// How an executable ended. None of its processes is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    Exited(i32),
    Signalled(i32),
    /// It could not be started: the system's error number, if any, and message.
    NotStarted(Option<i32>, String),
    /// Its supervisor was killed, so it was killed, too.
    Unsupervised,
    /// Its connection was closed.
    Disconnected,
}

/// Controls an executable. Dropping it kills the executable: at once if it was
/// terminated before, else as when the engine dies.
#[derive(Debug, Clone)]
pub(super) struct ProcessControl(UnboundedSender<Frame>);

/// A kind, and its data.
pub(super) type Frame = (u8, Vec<u8>);

impl ProcessControl {
    /// Controls what receives these frames.
    pub(super) fn new() -> (Self, UnboundedReceiver<Frame>) {
        let (send, frames) = mpsc::unbounded_channel();
        (Self(send), frames)
    }

    pub(super) fn input(&self, data: Vec<u8>) {
        self.send(INPUT, data);
    }

    pub(super) fn end_input(&self) {
        self.send(INPUT_ENDS, Vec::new());
    }

    pub(super) fn terminate(&self) {
        self.send(TERMINATE, Vec::new());
    }

    pub(super) fn kill(&self) {
        self.send(KILL, Vec::new());
    }

    fn send(&self, kind: u8, data: Vec<u8>) {
        // Fails if the executable has ended.
        let _ = self.0.send((kind, data));
    }
}

/// Starts an executable with some variables more than its own.
pub(super) fn start(
    program: &Program,
    variables: &[(&'static str, String)],
) -> io::Result<(ProcessControl, ChildStdout, ChildStderr, ExitWaiter)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(this_program()?);
    command
        .arg0("task-engine")
        .arg(process::SUPERVISOR_ARGUMENT)
        // An engine that recovers the tasks of this one waits for its supervisors.
        .arg(process::mark().unwrap_or_default())
        .arg(resources::inherited_descriptors().map_or_else(String::new, |soft| soft.to_string()))
        .arg(&program.path)
        .args(&program.arguments)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(&program.folder)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut supervisor = command.spawn()?;
    // With it goes our copy of the other end: now only the supervisor has it.
    drop(command);
    let (Some(stdout), Some(stderr)) = (supervisor.stdout.take(), supervisor.stderr.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let (answers, to_supervisor) = UnixStream::from_std(ours)?.into_split();
    let (control, frames) = ProcessControl::new();
    tokio::spawn(write_frames(to_supervisor, frames));
    Ok((control, stdout, stderr, ExitWaiter { answers, supervisor }))
}

/// The same file as this process, even if another version has been put in its
/// place meanwhile.
fn this_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Ends when the last [`ProcessControl`] is gone, which closes the socket. Frames that
/// wait already are written together.
async fn write_frames(mut socket: OwnedWriteHalf, mut frames: UnboundedReceiver<Frame>) {
    let mut buffer = Vec::new();
    while let Some(mut frame) = frames.recv().await {
        buffer.clear();
        loop {
            let (kind, data) = frame;
            buffer.push(kind);
            buffer.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
            buffer.extend(data);
            match frames.try_recv() {
                Ok(next) if buffer.len() < WRITE_BYTES => frame = next,
                Ok(next) => {
                    if socket.write_all(&buffer).await.is_err() {
                        return;
                    }
                    buffer.clear();
                    frame = next;
                }
                Err(_) => break,
            }
        }
        if socket.write_all(&buffer).await.is_err() {
            return;
        }
    }
}

/// Waits for the end of an executable.
pub(super) struct ExitWaiter {
    answers: OwnedReadHalf,
    supervisor: tokio::process::Child,
}

impl ExitWaiter {
    /// How it ended. Returns when none of its processes is left.
    pub(super) async fn ending(mut self) -> ProcessEnd {
        let mut output = Vec::new();
        // An error is an end, too: a supervisor that has gone without having read
        // all of its frames resets the socket. Its output comes before that.
        while let Ok(1..) = self.answers.read_buf(&mut output).await {}
        let output = String::from_utf8_lossy(&output);
        let _ = self.supervisor.wait().await;
        let ending = parse(&output);
        if ending == ProcessEnd::Unsupervised {
            let started = output.lines().find_map(|line| line.strip_prefix("started "));
            let group = started.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
        resources::program_ended();
        ending
    }
}

fn parse(output: &str) -> ProcessEnd {
    let last = output.lines().last().unwrap_or_default();
    let (word, rest) = last.split_once(' ').unwrap_or((last, ""));
    match (word, rest.parse()) {
        ("exited", Ok(code)) => ProcessEnd::Exited(code),
        ("signalled", Ok(signal)) => ProcessEnd::Signalled(signal),
        ("failed", _) => {
            let (number, why) = rest.split_once(' ').unwrap_or(("", rest));
            ProcessEnd::NotStarted(number.parse().ok(), why.to_owned())
        }
        _ => ProcessEnd::Unsupervised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_of_supervisor_counts() {
        assert_eq!(parse("started 7\nexited 3\n"), ProcessEnd::Exited(3));
        assert_eq!(parse("started 7\nsignalled 9\n"), ProcessEnd::Signalled(9));
        let failed = ProcessEnd::NotStarted(Some(2), "No such file".to_owned());
        assert_eq!(parse("failed 2 No such file\n"), failed);
        let failed = ProcessEnd::NotStarted(None, "nothing to start".to_owned());
        assert_eq!(parse("failed - nothing to start\n"), failed);
        for silent in ["", "started 7\n", "exited\n"] {
            assert_eq!(parse(silent), ProcessEnd::Unsupervised);
        }
    }
}
