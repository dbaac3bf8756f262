//! The `task-engine` program in its own folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{CommandOutput, RunningProgram, command, run_to_end};
use crate::wait::wait_until;

/// Options of an engine that runs `WitnessTask`; see [`Sandbox::witness`].
pub const WITNESS_OPTIONS: [&str; 2] = ["--config", "witness.toml"];

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

/// Variables that would change the behaviour of the program.
const CLEARED: [&str; 6] = [
    "TASK_ENGINE_DATABASE_URL",
    "TASK_ENGINE_WEB_PASSWORD",
    "TASK_ENGINE_INSTANCE",
    "TASK_ENGINE_LOG",
    "CARGO_MANIFEST_DIR",
    "RUST_BACKTRACE",
];

/// A temporary folder with the default database, or another database.
#[derive(Debug)]
pub struct Sandbox {
    program: PathBuf,
    _folder: TempDir,
    /// Where commands run: this folder, or one inside of it.
    current: PathBuf,
    database: Option<String>,
    started: AtomicU32,
}

impl Sandbox {
    /// A new folder for this `task-engine` program.
    ///
    /// # Panics
    /// If there is no temporary folder.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self {
            program: program.into(),
            current: folder.path().to_owned(),
            _folder: folder,
            database: None,
            started: AtomicU32::new(0),
        }
    }

    /// Uses another database from now on.
    pub fn use_database(&mut self, url: &str) {
        self.database = Some(url.to_owned());
    }

    /// Like `cd`: commands run in this folder from now on.
    pub fn enter(&mut self, folder: &str) {
        self.current = self.path(folder);
    }

    /// A file in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.current.join(name)
    }

    /// A `task-engine` command. Engines know the sample classes.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_of(&self.program);
        command.args(args);
        if args.first() == Some(&"start") && !args.contains(&"--samples") {
            command.arg("--samples");
        }
        command
    }

    /// Another program, with this folder and database.
    #[must_use]
    pub fn command_of(&self, program: &Path) -> Command {
        let mut command = command(program);
        command.current_dir(&self.current).env("TZ", "UTC");
        for variable in CLEARED {
            command.env_remove(variable);
        }
        if let Some(url) = &self.database {
            command.env("TASK_ENGINE_DATABASE_URL", url);
        }
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_input(args, b"")
    }

    /// Runs a command with this standard input to its end.
    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> CommandOutput {
        run_to_end(self.command(args), input)
    }

    /// Runs a shell script with the program in `PATH`.
    ///
    /// # Panics
    /// If the program is in no folder.
    pub fn shell(&self, script: &str) -> CommandOutput {
        let folder = self.program.parent().expect("a folder");
        let others = std::env::var("PATH").unwrap_or_default();
        let mut command = self.command_of(Path::new("sh"));
        command.arg("-c").arg(script).env("PATH", format!("{}:{others}", folder.display()));
        run_to_end(command, b"")
    }

    /// Runs a command that must succeed; returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output.out
    }

    /// A task as `show --json` prints it.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn task(&self, id: &str) -> Value {
        serde_json::from_str(&self.ok(&["show", id, "--json"])).expect("JSON")
    }

    /// The status of a task.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn status(&self, id: &str) -> String {
        self.task(id)["status"].as_str().expect("a status").to_owned()
    }

    /// All tasks.
    ///
    /// # Panics
    /// If they cannot be listed.
    #[must_use]
    pub fn tasks(&self) -> Vec<Value> {
        let lines = self.ok(&["tasks", "--json", "--limit", "10000"]);
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Starts a command that runs until it is stopped.
    #[must_use]
    pub fn start(&self, args: &[&str]) -> RunningProgram {
        self.spawn(self.command(args))
    }

    /// Starts a command that runs until it is stopped, with more variables.
    #[must_use]
    pub fn start_with(&self, args: &[&str], variables: &[(&str, &str)]) -> RunningProgram {
        let mut command = self.command(args);
        command.envs(variables.iter().copied());
        self.spawn(command)
    }

    /// Starts another program in this folder.
    #[must_use]
    pub fn start_program(
        &self,
        program: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> RunningProgram {
        let mut command = self.command_of(program);
        command.args(args).envs(variables.iter().copied());
        self.spawn(command)
    }

    /// Starts a command with exactly these arguments.
    #[must_use]
    pub fn start_exact(&self, args: &[&str]) -> RunningProgram {
        let mut command = self.command_of(&self.program);
        command.args(args);
        self.spawn(command)
    }

    /// Starts a command inside another program, such as `nohup`.
    #[must_use]
    pub fn start_under(&self, wrapper: &[&str], args: &[&str]) -> RunningProgram {
        let mut command = self.command_of(Path::new(wrapper[0]));
        command.args(&wrapper[1..]).arg(&self.program).args(args);
        if args.first() == Some(&"start") {
            command.arg("--samples");
        }
        self.spawn(command)
    }

    fn spawn(&self, command: Command) -> RunningProgram {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("{number}.out")), self.path(&format!("{number}.err")));
        RunningProgram::start(command, out, err)
    }

    /// Writes the configuration of `WitnessTask`.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn witness(&self) -> WitnessFile {
        fs::write(self.path("witness.toml"), WITNESS).expect("a file");
        WitnessFile { path: self.path("witness") }
    }

    /// Creates a `WitnessTask` that takes this long, and starts an engine that
    /// runs it.
    ///
    /// # Panics
    /// If there is a task already.
    #[must_use]
    pub fn start_on_witness(&self, ms: u64, args: &[&str]) -> (RunningProgram, WitnessFile) {
        let witness = self.witness();
        let parameters = serde_json::json!({ "ms": ms }).to_string();
        assert_eq!(self.ok(&["create", "WitnessTask", &parameters]), "1\n");
        let engine = self.start(&[args, &WITNESS_OPTIONS].concat());
        wait_until("the task begins", || witness.events().contains(&"begin".to_owned()));
        (engine, witness)
    }
}

/// The lines of a `WitnessTask`.
#[derive(Debug)]
pub struct WitnessFile {
    path: PathBuf,
}

impl WitnessFile {
    /// `begin` and `end`, in the order they were written.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let lines = self.lines();
        lines.iter().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    }

    /// All lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
