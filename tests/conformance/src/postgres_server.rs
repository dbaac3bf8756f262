//! A real PostgreSQL for tests: durable like in production, on a port of its
//! own, and gone with its files when the test process ends, however it ends.
//!
//! The server belongs to a *keeper*, a small shell script whose standard input
//! is a pipe that the test process holds. The kernel closes that pipe even
//! when the process is killed with -9; then the keeper stops the server and
//! removes the directory. A destructor or an exit hook would miss just that.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

/// A PostgreSQL server that lives as long as this value, or at the longest as
/// long as this process.
#[derive(Debug)]
pub struct TestServer {
    port: u16,
    directory: PathBuf,
    /// Orders and answers are one conversation: one at a time.
    keeper: Mutex<Keeper>,
}

/// The far end of the pipe that keeps the server alive.
#[derive(Debug)]
struct Keeper {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// How a server differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Settings as `name=value`; they replace the usual ones.
    pub settings: Vec<String>,
    /// The server's environment, as `NAME=value` without blanks.
    pub environment: Vec<String>,
    /// Where its directory is made; the system's temporary folder if nothing is said.
    pub home: Option<PathBuf>,
    /// Begins as a standby of the server at this port.
    pub standby_of: Option<u16>,
}

/// `$1` the directory, `$2` the program, `$3` the port, the rest its arguments.
/// The end of the orders is the end of everything; nobody needs a checkpoint then.
const KEEPER: &str = r#"
directory=$1 program=$2 port=$3
shift 3
begin() {
    env $SERVER_ENVIRONMENT "$program" -D "$directory/data" -p "$port" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories="$directory" \
        -c shared_buffers=128MB -c max_connections=200 "$@" \
        >>"$directory/log" 2>&1 </dev/null &
    server=$!
}
end() {
    kill -QUIT "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
kill_it() {
    kill -KILL "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
while read -r order; do
    "$order" "$@"
    echo "done"
done
end
rm -rf "$directory"
"#;

const MISSING: &str = "these tests need PostgreSQL, and no initdb was found in PATH or in \
     /usr/lib/postgresql/*/bin. Install the server (it need not run): \
     on Debian or Ubuntu `apt-get install postgresql`, on Fedora `dnf install \
     postgresql-server`, on macOS `brew install postgresql`";

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

impl TestServer {
    /// The server of this test process, started by whoever asks first.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server of one's own, for tests that stop it.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(Plan::default())
    }

    /// A server of one's own that differs from the usual one.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine, or it does not start.
    #[must_use]
    pub fn start_as(plan: Plan) -> Self {
        // A thread of its own, because callers are inside of a runtime, where
        // nothing may wait for processes and files.
        let starting = std::thread::spawn(move || Self::start_here(&plan));
        match starting.join() {
            Ok(server) => server,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn start_here(plan: &Plan) -> Self {
        let programs = programs().unwrap_or_else(|| panic!("{MISSING}"));
        let user = server_user();
        let directory = new_directory(plan.home.as_deref(), user.as_ref());
        // From here on the keeper removes the directory, whatever happens.
        let port = free_port();
        let keeper = Keeper::employ(&directory, &programs, port, plan, user.as_ref());
        let server = Self { port, directory, keeper: Mutex::new(keeper) };
        match plan.standby_of {
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

    /// Creates an empty database with a name of its own; returns its URL.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn create_database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let connected = tokio_postgres::connect(&self.url("postgres"), NoTls).await;
        let (client, connection) = connected.expect("the server takes connections");
        let connection = tokio::spawn(connection);
        let created = client.batch_execute(&format!("CREATE DATABASE {name}")).await;
        created.expect("the server creates a database");
        drop(client);
        // Waits for the goodbye, so that no connection is left behind.
        let _ = connection.await;
        self.url(&name)
    }

    /// Stops the server as a crash would: connections break, and what was not
    /// committed is lost. The files stay for [`Self::start_again`].
    pub fn stop_immediate(&self) {
        self.order("end");
    }

    /// Starts the server again, on the same port with the same files.
    ///
    /// # Panics
    /// If it does not start; the message has the server's log.
    pub fn start_again(&self) {
        self.order("begin");
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_ready() {
            assert!(
                Instant::now() < deadline,
                "PostgreSQL has not started within {START_LIMIT:?}; its log:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the first process of the server with -9, and waits until those that
    /// it leaves have noticed. The files stay for [`Self::start_again`].
    pub fn kill(&self) {
        let first = self.process();
        let left = children_of(first);
        self.order("kill_it");
        // One that is stopped notices nothing.
        for pid in left.iter().filter(|pid| is_stopped(**pid)) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        let deadline = Instant::now() + START_LIMIT;
        while left.iter().any(|pid| is_there(*pid)) {
            assert!(Instant::now() < deadline, "processes of a killed server stay");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether its first process is there, if only suspended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid"));
        let number = file.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
        number.is_some_and(is_there)
    }

    /// Suspends all processes of the server: connections are taken by the system,
    /// and nothing is answered.
    pub fn freeze(&self) {
        self.signal_all("-STOP");
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all("-CONT");
    }

    fn signal_all(&self, signal: &str) {
        let first = self.process();
        // The first process goes first: it would start others.
        for pid in std::iter::once(first).chain(children_of(first)) {
            let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
        }
    }

    /// Waits until the server has gone down by itself.
    ///
    /// # Panics
    /// If it does not.
    pub fn has_gone(&self) {
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            assert!(Instant::now() < deadline, "the server goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Its last processes, too; nothing is left to be told to end.
        self.order("end");
    }

    /// Where it is reached.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its files: `data` and `log`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The number of its first process.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn process(&self) -> u32 {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid"));
        let number = file.ok().and_then(|text| text.lines().next()?.trim().parse().ok());
        number.expect("the server runs")
    }

    /// A program of PostgreSQL, to be run as the server's user in its directory.
    ///
    /// # Panics
    /// If there is no PostgreSQL on this machine.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        let programs = programs().unwrap_or_else(|| panic!("{MISSING}"));
        let mut command = command_as(server_user().as_ref(), programs.join(name));
        command.current_dir(&self.directory);
        command
    }

    /// What the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The server says so in its lock file, as `pg_ctl --wait` reads it. A file
    /// that is left from a crash says so, too, until the new server writes its
    /// own, so the new one has to be reached as well.
    fn is_ready(&self) -> bool {
        let file = self.directory.join("data/postmaster.pid");
        let status = std::fs::read_to_string(file).unwrap_or_default();
        let says_so = status.lines().nth(7).map(str::trim) == Some("ready");
        says_so && std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    fn order(&self, word: &str) {
        // A test that panicked meanwhile has not hurt the conversation.
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let done = keeper.order(word);
        assert!(done, "the keeper of the server is gone:\n{}", self.log());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.orders.take());
        let _ = keeper.process.wait();
    }
}

impl Keeper {
    fn employ(
        directory: &Path,
        programs: &Path,
        port: u16,
        plan: &Plan,
        user: Option<&User>,
    ) -> Self {
        let mut command = command_as(user, "sh");
        let mut process = command
            .args(["-c", KEEPER, "keeper"])
            .args([directory, &programs.join("postgres")])
            .arg(port.to_string())
            .args(plan.settings.iter().flat_map(|setting| ["-c", setting]))
            .env("SERVER_ENVIRONMENT", plan.environment.join(" "))
            .current_dir(directory)
            // Ctrl-C is for the tests; the keeper learns of it by the pipe.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            orders: process.stdin.take(),
            answers: BufReader::new(process.stdout.take().expect("a piped stdout")),
            process,
        }
    }

    /// Gives an order and waits until it is done.
    fn order(&mut self, word: &str) -> bool {
        let Some(orders) = &mut self.orders else {
            return false;
        };
        let mut answer = String::new();
        writeln!(orders, "{word}").is_ok()
            && self.answers.read_line(&mut answer).is_ok()
            && answer == "done\n"
    }
}

/// Somebody who is not root, as PostgreSQL wants.
#[derive(Debug)]
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

/// Whom to run the server as; `None` for whoever runs the tests.
fn server_user() -> Option<User> {
    if id_of(&["-u"]) != Some(0) {
        return None;
    }
    let user = ["postgres", "nobody"].into_iter().find_map(|name| {
        Some(User { name, uid: id_of(&["-u", name])?, gid: id_of(&["-g", name])? })
    });
    let advice = "PostgreSQL does not run as root, and there is neither a user `postgres` nor \
                  `nobody`: run the tests as another user";
    Some(user.expect(advice))
}

fn id_of(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// `setpriv` becomes the program; `runuser`, where there is no `setpriv`,
/// stays as its parent and passes the pipes on.
fn command_as(user: Option<&User>, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let Some(User { name, uid, gid }) = user else {
        return Command::new(program);
    };
    let mut command = if find_in_path("setpriv").is_some() {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={uid}"), format!("--regid={gid}")])
            .args(["--clear-groups", "--"]);
        command
    } else {
        let mut command = Command::new("runuser");
        command.args(["-u", name, "--"]);
        command
    };
    command.arg(program);
    command
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
        // The files of a server that has not begun need not survive a crash.
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

/// Makes a standby of a server that runs.
fn copy_database(directory: &Path, programs: &Path, primary: u16, user: Option<&User>) {
    let output = command_as(user, programs.join("pg_basebackup"))
        .args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "-D"])
        .arg(directory.join("data"))
        .args(["-p", &primary.to_string(), "--no-sync"])
        .current_dir(directory)
        .output()
        .expect("pg_basebackup can be run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "pg_basebackup failed: {told}");
}

fn children_of(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Not if it only waits for somebody to hear of its end: in a container nobody may.
fn is_there(process: u32) -> bool {
    state_of(process).is_some_and(|state| state != 'Z')
}

fn is_stopped(process: u32) -> bool {
    state_of(process) == Some('T')
}

fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// A port that nobody listens on, below those that the system gives to
/// outgoing connections: a client that tries to reach a stopped server again
/// and again would otherwise now and then be given the server's own port, and
/// connect to itself.
pub(crate) fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| fastrand::u16(15_000..32_000))
        .take(1000)
        .find(free)
        .expect("a free port")
}

/// Names the folder of `initdb` and `postgres`, to test another version.
const PROGRAMS_VARIABLE: &str = "TASK_ENGINE_TEST_POSTGRES";

/// Where `initdb` and `postgres` are: where the variable says, in PATH, or where
/// Debian hides them.
fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PROGRAMS_VARIABLE) {
        let named = PathBuf::from(named);
        assert!(has_server(&named), "{PROGRAMS_VARIABLE}: no initdb and postgres in {named:?}");
        return Some(named);
    }
    let in_path = find_in_path("initdb")
        .and_then(|initdb| initdb.canonicalize().ok())
        .and_then(|initdb| initdb.parent().map(Path::to_owned));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter();
    let mut installed: Vec<_> =
        versions.flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    installed.sort_by_key(|path| version_of(path));
    let all = in_path.into_iter().chain(installed.into_iter().rev());
    all.into_iter().find(|path| has_server(path))
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}

/// The number in `/usr/lib/postgresql/NUMBER/bin`.
fn version_of(path: &Path) -> u32 {
    let version = path.parent().and_then(Path::file_name);
    let version = version.and_then(|version| version.to_str()?.parse().ok());
    version.unwrap_or(0)
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the process that holds a server until it is killed.
    const HOLDER: &str = "TASK_ENGINE_TEST_HOLDS_A_SERVER";

    async fn client(url: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
        tokio::spawn(connection);
        client
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn databases_are_empty_and_apart() {
        let server = TestServer::shared();
        let (one, other) = (server.create_database().await, server.create_database().await);
        assert_ne!(one, other);
        client(&one).await.batch_execute("CREATE TABLE t ()").await.expect("created");
        client(&other).await.batch_execute("CREATE TABLE t ()").await.expect("empty");
        let row = client(&one).await.query_one("SHOW fsync", &[]).await.expect("a setting");
        assert_eq!(row.get::<_, &str>(0), "on", "durable like in production");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_committed_outlives_a_crash() {
        let server = TestServer::start();
        let url = server.create_database().await;
        let before = client(&url).await;
        before.batch_execute("CREATE TABLE t ()").await.expect("created");
        for _ in 0..2 {
            server.stop_immediate();
            assert!(tokio_postgres::connect(&url, NoTls).await.is_err(), "it is down");
            server.start_again();
            client(&url).await.batch_execute("SELECT FROM t").await.expect("still there");
        }
        assert!(before.batch_execute("SELECT").await.is_err(), "connections broke");
        let directory = server.directory.clone();
        assert!(directory.exists());
        drop(server);
        assert!(!directory.exists(), "nothing is left");
    }

    /// Runs itself in another process, and kills that one.
    #[test]
    fn a_server_is_gone_when_its_process_is_killed() {
        if std::env::var_os(HOLDER).is_some() {
            let server = TestServer::start();
            println!("\nholds {} {}", server.port, server.directory.display());
            // Until it is killed, or the test that started it is gone.
            let _ = std::io::stdin().read_line(&mut String::new());
            return;
        }
        let name = "postgres_server::tests::a_server_is_gone_when_its_process_is_killed";
        let mut holder = Command::new(std::env::current_exe().expect("this program"))
            .args([name, "--exact", "--nocapture"])
            .env(HOLDER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let output = BufReader::new(holder.stdout.take().expect("a piped stdout"));
        let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("holds "));
        let line = line.expect("the other process holds a server");
        let mut words = line.splitn(3, ' ').skip(1);
        let port: u16 = words.next().and_then(|port| port.parse().ok()).expect("a port");
        let directory = PathBuf::from(words.next().expect("a directory"));
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(answers() && directory.exists());

        holder.kill().expect("it can be killed");
        holder.wait().expect("it is dead");
        let deadline = Instant::now() + Duration::from_secs(20);
        while answers() || directory.exists() {
            assert!(Instant::now() < deadline, "port {port}, {directory:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
