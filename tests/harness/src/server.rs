//! A real PostgreSQL server for tests, with production durability, on its own port.
//!
//! A small shell script, the supervisor, starts the server. Its standard input is a
//! pipe of the test process. The kernel closes the pipe even when the process is
//! killed with -9; the supervisor then stops the server and removes its files.

mod install;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio_postgres::NoTls;

use crate::wait::{TIMEOUT, wait_until, wait_within};
use install::{User, command_as, programs, server_user};

/// A PostgreSQL server that stops when this is dropped or the process ends.
#[derive(Debug)]
pub struct TestServer {
    port: u16,
    directory: PathBuf,
    /// One command at a time.
    supervisor: Mutex<Supervisor>,
}

#[derive(Debug)]
struct Supervisor {
    process: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

/// Differences from the default server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Settings as `name=value`.
    pub settings: Vec<String>,
    /// Environment variables as `NAME=value`, without spaces.
    pub environment: Vec<String>,
    /// The parent of its directory; by default the system's temporary folder.
    pub home: Option<PathBuf>,
    /// Starts as a standby of the server at this port.
    pub standby_of: Option<u16>,
}

/// `$1` the directory, `$2` the program, `$3` the port, the rest its arguments.
/// The end of the commands ends the server, without a checkpoint.
const SUPERVISOR: &str = r#"
directory=$1 program=$2 port=$3
shift 3
start_server() {
    env $SERVER_ENVIRONMENT "$program" -D "$directory/data" -p "$port" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$directory" \
        -c shared_buffers=128MB -c max_connections=200 "$@" \
        >>"$directory/log" 2>&1 </dev/null &
    server=$!
}
stop_server() {
    kill -QUIT "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
kill_server() {
    kill -KILL "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
while read -r command; do
    "$command" "$@"
    echo "done"
done
stop_server
rm -rf "$directory"
"#;

impl TestServer {
    /// The server of this test process, started by the first call.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A new server, for tests that stop it.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// A new server with options.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    #[must_use]
    pub fn start_with(options: ServerOptions) -> Self {
        // On a thread, because callers are inside of a runtime, where blocking is
        // not allowed.
        let starting = std::thread::spawn(move || Self::start_blocking(&options));
        match starting.join() {
            Ok(server) => server,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn start_blocking(options: &ServerOptions) -> Self {
        let programs = programs();
        let user = server_user();
        let directory = new_directory(options.home.as_deref(), user.as_ref());
        // From here on the supervisor removes the directory.
        let port = free_port();
        let supervisor = Supervisor::start(&directory, &programs, port, options, user.as_ref());
        let server = Self { port, directory, supervisor: Mutex::new(supervisor) };
        match options.standby_of {
            Some(primary) => copy_database(&server.directory, &programs, primary, user.as_ref()),
            None => init_database(&server.directory, &programs, user.as_ref()),
        }
        server.start_again();
        server
    }

    /// The URL of a database on this server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database with a unique name; returns its URL.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn create_database(&self) -> String {
        self.create_copy("template1").await
    }

    /// Creates a copy of a database, which has no connections; returns its URL.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn create_copy(&self, database: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let connected = tokio_postgres::connect(&self.url("postgres"), NoTls).await;
        let (client, connection) = connected.expect("the server takes connections");
        let connection = tokio::spawn(connection);
        let created = format!("CREATE DATABASE {name} TEMPLATE {database}");
        client.batch_execute(&created).await.expect("the server creates a database");
        drop(client);
        // Waits until the connection is closed.
        let _ = connection.await;
        self.url(&name)
    }

    /// Stops the server like a crash: connections break, and uncommitted data is
    /// lost. The files stay for [`Self::start_again`].
    pub fn stop_immediate(&self) {
        self.command("stop_server");
    }

    /// Starts the server again, on the same port with the same files.
    ///
    /// # Panics
    /// If it does not start; the message has the server's log.
    pub fn start_again(&self) {
        self.command("start_server");
        wait_within(TIMEOUT, "PostgreSQL starts", || self.is_ready(), || self.log());
    }

    /// Kills the postmaster with -9, and waits until its children have exited. The files stay for [`Self::start_again`].
    pub fn kill(&self) {
        let first = self.process();
        let children = children_of(first);
        self.command("kill_server");
        // A stopped process does not exit by itself.
        for pid in children.iter().filter(|pid| is_stopped(**pid)) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        wait_until("processes of a killed server exit", || {
            !children.iter().any(|pid| is_running(*pid))
        });
    }

    /// Whether the postmaster runs, possibly suspended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid"));
        let number = file.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
        number.is_some_and(is_running)
    }

    /// Suspends all processes of the server: the system accepts connections, but
    /// the server does not reply.
    pub fn freeze(&self) {
        self.signal_all("-STOP");
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, signal: &str) {
        let first = self.process();
        // The postmaster first, because it would start the others again.
        for pid in std::iter::once(first).chain(children_of(first)) {
            let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
        }
    }

    /// Waits until the server has stopped by itself.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_stopped(&self) {
        wait_until("the server stops", || !accepts_connections(self.port));
        // Its last processes, too.
        self.command("stop_server");
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its files: `data` and `log`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The process id of the postmaster.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn process(&self) -> u32 {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid"));
        let number = file.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
        number.expect("the server runs")
    }

    /// A program of PostgreSQL, as the server's user in its directory.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        let programs = programs();
        let mut command = command_as(server_user().as_ref(), programs.join(name));
        command.current_dir(&self.directory);
        command
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Reads the lock file, as `pg_ctl --wait` does. A file that was left by a crash may
    /// also contain "ready", so the port must accept connections as well.
    fn is_ready(&self) -> bool {
        let file = self.directory.join("data/postmaster.pid");
        let status = std::fs::read_to_string(file).unwrap_or_default();
        let ready = status.lines().nth(7).map(str::trim) == Some("ready");
        ready && accepts_connections(self.port)
    }

    fn command(&self, name: &str) {
        // The protocol is intact after a panic of another test.
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        let done = supervisor.command(name);
        assert!(done, "the supervisor of the server is gone:\n{}", self.log());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let supervisor = self.supervisor.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(supervisor.commands.take());
        let _ = supervisor.process.wait();
    }
}

impl Supervisor {
    fn start(
        directory: &Path,
        programs: &Path,
        port: u16,
        options: &ServerOptions,
        user: Option<&User>,
    ) -> Self {
        let mut command = command_as(user, "sh");
        let mut process = command
            .args(["-c", SUPERVISOR, "supervisor"])
            .args([directory, &programs.join("postgres")])
            .arg(port.to_string())
            .args(options.settings.iter().flat_map(|setting| ["-c", setting]))
            .env("SERVER_ENVIRONMENT", options.environment.join(" "))
            .current_dir(directory)
            // Ctrl-C is for the tests. The supervisor stops when its pipe is closed.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            commands: process.stdin.take(),
            replies: BufReader::new(process.stdout.take().expect("a piped stdout")),
            process,
        }
    }

    /// Executes a function of the script; false if the supervisor has ended.
    fn command(&mut self, name: &str) -> bool {
        let Some(commands) = &mut self.commands else {
            return false;
        };
        let mut reply = String::new();
        writeln!(commands, "{name}").is_ok()
            && self.replies.read_line(&mut reply).is_ok()
            && reply == "done\n"
    }
}

fn new_directory(home: Option<&Path>, user: Option<&User>) -> PathBuf {
    let home = home.map_or_else(std::env::temp_dir, Path::to_owned);
    let directory = tempfile::Builder::new()
        .prefix("task-engine-postgres-")
        .tempdir_in(home)
        .expect("a temporary directory")
        .keep();
    if let Some(user) = user {
        std::os::unix::fs::chown(&directory, Some(user.uid), Some(user.gid))
            .expect("root may give a directory away");
    }
    directory
}

fn init_database(directory: &Path, programs: &Path, user: Option<&User>) {
    let output: Output = command_as(user, programs.join("initdb"))
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"])
        // The files of a new server need not survive a crash.
        .arg("--no-sync")
        .current_dir(directory)
        .output()
        .expect("initdb can be run");
    assert!(
        output.status.success(),
        "initdb failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies a running server for a standby.
fn copy_database(directory: &Path, programs: &Path, primary: u16, user: Option<&User>) {
    let output = command_as(user, programs.join("pg_basebackup"))
        .args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "-D"])
        .arg(directory.join("data"))
        .args(["-p", &primary.to_string(), "--no-sync"])
        .current_dir(directory)
        .output()
        .expect("pg_basebackup can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "pg_basebackup failed: {error}");
}

fn children_of(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub(crate) fn accepts_connections(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A zombie does not count: in a container it may stay.
fn is_running(process: u32) -> bool {
    state_of(process).is_some_and(|state| state != 'Z')
}

fn is_stopped(process: u32) -> bool {
    state_of(process) == Some('T')
}

fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// A free port below the ephemeral ones: a client that retries a stopped server
/// could otherwise get that port itself, and connect to itself.
pub(crate) fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| fastrand::u16(15_000..32_000))
        .take(1000)
        .find(free)
        .expect("a free port")
}

#[cfg(test)]
mod tests;
