//! Processes under test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};

use crate::wait::{TIMEOUT, wait_until};

/// Resets signals that this process ignores (under `nohup`, or in the background of a
/// script). Children would inherit that and never get SIGHUP or SIGINT.
const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT,TERM";

/// A command whose process has the default signal handlers. It has the process id
/// of its child: `env` replaces itself by the program.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    let supported = *SUPPORTED.get_or_init(|| {
        let tried = Command::new("env").args([DEFAULT_SIGNALS, "true"]).output();
        tried.is_ok_and(|output| output.status.success())
    });
    if !supported {
        // Not GNU coreutils. Tests of signals then fail if signals are ignored here.
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS).arg(program);
    command
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs a command to its end with this standard input.
///
/// # Panics
/// If it does not start, hangs, or prints anything but UTF-8.
#[must_use]
pub fn run_to_end(mut command: Command, input: &[u8]) -> CommandOutput {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a piped stdin");
    let (input, (send, receive)) = (input.to_vec(), mpsc::channel());
    // The program may stop reading early.
    std::thread::spawn(move || stdin.write_all(&input));
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output = receive.recv_timeout(TIMEOUT);
    let output = output.unwrap_or_else(|_| panic!("{command:?} hangs")).expect("an exit status");
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A running program, killed when this is dropped.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl RunningProgram {
    /// Starts a command whose output goes to these files.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(mut command: Command, out: PathBuf, err: PathBuf) -> Self {
        let file = |path: &Path| File::create(path).expect("a file for the output");
        let child = command.stdout(file(&out)).stderr(file(&err)).spawn();
        Self { child: child.expect("the program starts"), out, err }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(sent.expect("kill runs").success(), "no process to send SIG{name} to");
    }

    /// Waits until its standard error contains this text.
    pub fn wait_for_log(&self, text: &str) {
        wait_until(text, || self.err().contains(text));
    }

    /// The standard error so far.
    #[must_use]
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// The standard output so far.
    #[must_use]
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn end(mut self) -> CommandOutput {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        CommandOutput {
            code: status.and_then(|status| status.code()),
            out: self.out(),
            err: self.err(),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_reset() {
        let mut inner = command("sh");
        inner.args(["-c", "kill -HUP $$; echo ignored"]);
        let mut outer = Command::new("sh");
        outer.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        let output = run_to_end(outer, b"");
        assert_eq!((output.code, output.out.as_str()), (None, ""), "{output:?}");
    }
}
