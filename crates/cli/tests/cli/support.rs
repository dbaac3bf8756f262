//! Runs the program in its own folder, and waits for events.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes this long, unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_task-engine");

/// A folder, and a database: the default one in it, or another.
pub(crate) struct Place {
    folder: TempDir,
    database: Option<String>,
    started: AtomicU32,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            database: None,
            started: AtomicU32::new(0),
        }
    }

    pub(crate) fn with_database(url: &str) -> Self {
        Self { database: Some(url.to_owned()), ..Self::new() }
    }

    /// Works on another database from now on.
    pub(crate) fn move_to(&mut self, url: &str) {
        self.database = Some(url.to_owned());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An engine here knows the sample classes, which most tests use.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_of(PROGRAM);
        command.args(args);
        if args.first() == Some(&"start") && !args.contains(&"--samples") {
            command.arg("--samples");
        }
        command
    }

    /// Starts a command exactly as it is typed.
    pub(crate) fn start_as_typed(&self, args: &[&str]) -> Running {
        let mut command = self.command_of(PROGRAM);
        command.args(args);
        self.spawn(command)
    }

    fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("TZ", "UTC");
        for variable in [
            "TASK_ENGINE_DATABASE_URL",
            "TASK_ENGINE_WEB_PASSWORD",
            "TASK_ENGINE_INSTANCE",
            "TASK_ENGINE_LOG",
            "CARGO_MANIFEST_DIR",
            "RUST_BACKTRACE",
        ] {
            command.env_remove(variable);
        }
        if let Some(url) = &self.database {
            command.env("TASK_ENGINE_DATABASE_URL", url);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.run_with_input(args, b"")
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Finished {
        finish(self.command(args), input)
    }

    /// Runs a script with the program in PATH.
    pub(crate) fn shell(&self, script: &str) -> Finished {
        let folder = Path::new(PROGRAM).parent().expect("a folder");
        let others = std::env::var("PATH").unwrap_or_default();
        let mut command = self.command_of("sh");
        command.arg("-c").arg(script).env("PATH", format!("{}:{others}", folder.display()));
        finish(command, b"")
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let finished = self.run(args);
        assert_eq!(finished.code, Some(0), "{args:?}: {finished:?}");
        finished.out
    }

    /// A task, with all that is recorded about it.
    pub(crate) fn task(&self, id: &str) -> Value {
        serde_json::from_str(&self.ok(&["show", id, "--json"])).expect("JSON")
    }

    pub(crate) fn status(&self, id: &str) -> String {
        self.task(id)["status"].as_str().expect("a status").to_owned()
    }

    pub(crate) fn tasks(&self) -> Vec<Value> {
        let lines = self.ok(&["tasks", "--json", "--limit", "10000"]);
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Starts a command that goes on until it is stopped.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.spawn(self.command(args))
    }

    /// The same, with another program around it.
    pub(crate) fn start_under(&self, around: &[&str], args: &[&str]) -> Running {
        let inner = self.command(args);
        let mut command = Command::new(around[0]);
        command.args(&around[1..]).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(self.folder.path());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("{number}.out")), self.path(&format!("{number}.err")));
        let file = |path: &Path| File::create(path).expect("a file");
        let child = command.stdout(file(&out)).stderr(file(&err)).spawn();
        Running { child: child.expect("the program runs"), out, err }
    }

    /// Writes the configuration of `WitnessTask`.
    pub(crate) fn witness(&self) -> Witness {
        fs::write(self.path("witness.toml"), WITNESS).expect("a file");
        Witness { file: self.path("witness") }
    }

    /// Creates a task that waits, and starts an engine on it.
    pub(crate) fn start_on_witness(&self, ms: u64, args: &[&str]) -> (Running, Witness) {
        let witness = self.witness();
        let parameters = serde_json::json!({ "ms": ms }).to_string();
        assert_eq!(self.ok(&["create", "WitnessTask", &parameters]), "1\n");
        let engine = self.start(&[args, &WITNESS_OPTIONS].concat());
        eventually("the task begins", || witness.words().contains(&"begin".to_owned()));
        (engine, witness)
    }
}

/// Options of an engine that runs `WitnessTask`; see [`Place::witness`].
pub(crate) const WITNESS_OPTIONS: [&str; 2] = ["--config", "witness.toml"];

/// `WitnessTask {"ms": NUMBER}` is an executable that appends `begin TASK ATTEMPT`
/// and `end TASK ATTEMPT` to a file. `{"ms": 1, "fail": true}` fails.
const WITNESS: &str = r#"
[class.WitnessTask]
retry = { maximum = 100, first_delay = "100ms", factor = 1, jitter = 0 }
command = ["sh", "-c", '''
line="$TASK_ENGINE_TASK_ID $TASK_ENGINE_ATTEMPT"
echo "begin $line" >> witness
read -r parameters || true
sleep "$(echo "$parameters" | tr -dc 0-9)e-3"
echo "end $line" >> witness
case $parameters in *true*) echo "failed as asked" >&2; exit 3 ;; esac
''']
"#;

/// Waits for the end of a command, which gets this to read.
fn finish(mut command: Command, input: &[u8]) -> Finished {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut stdin = child.stdin.take().expect("a piped stdin");
    let (input, (send, receive)) = (input.to_vec(), mpsc::channel());
    // The program may stop reading early, as it should with too much.
    std::thread::spawn(move || stdin.write_all(&input));
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output = receive.recv_timeout(TIMEOUT);
    let output = output.unwrap_or_else(|_| panic!("{command:?} hangs")).expect("an end");
    Finished {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A line of a `WitnessTask`.
pub(crate) struct Witness {
    file: PathBuf,
}

impl Witness {
    /// `begin` and `end`, in the order they were written.
    pub(crate) fn words(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A command that goes on; killed when a test forgets it.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(sent.expect("kill runs").success(), "no process to send SIG{name} to");
    }

    pub(crate) fn says(&self, words: &str) {
        eventually(words, || self.err().contains(words));
    }

    pub(crate) fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Finished {
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        Finished {
            code: status.and_then(|status| status.code()),
            out: fs::read_to_string(&self.out).expect("text"),
            err: self.err(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
