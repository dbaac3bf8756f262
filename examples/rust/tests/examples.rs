//! Every example runs to its end and prints what is expected.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use task_engine::sqlite::SqliteStore;
use task_engine::{Json, NewTask, TaskEngine, TaskId, TaskStatus};
use task_engine_test_harness::TestServer;

/// Longer than any of them takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running example, which ends with the test.
struct Example {
    process: Child,
}

impl Example {
    fn start(program: &str, environment: &[(&str, &str)]) -> Self {
        let process = Command::new(program)
            .env_remove("DATABASE_URL")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { process }
    }

    /// Waits for a successful exit, and returns the output.
    fn end(mut self) -> String {
        let begun = Instant::now();
        let mut output = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {output}");
        assert!(begun.elapsed() < TIMEOUT, "{output}");
        output
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

macro_rules! run {
    ($name:literal $(, $key:literal => $value:expr)*) => {
        Example::start(env!(concat!("CARGO_BIN_EXE_", $name)), &[$(($key, $value)),*])
    };
}

#[test]
fn first_task() {
    assert_eq!(run!("first_task").end(), "Hello World!\n");
}

/// The program of `docs/start.md`, until SIGTERM.
#[tokio::test]
async fn start() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_start"));
    let mut process = program.current_dir(folder.path()).spawn().unwrap();
    let file = folder.path().join("task-engine.db");
    let done = async |id| {
        loop {
            // The program creates its file and its tables first.
            if let Ok(store) = SqliteStore::open(&file)
                && let Ok(Some(task)) = store.task(TaskId(id)).await
                && task.row.status == TaskStatus::Stopped
            {
                return task.executions[0].result.as_ref().unwrap().to_string();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(tokio::time::timeout(TIMEOUT, done(1)).await.unwrap(), "\"Hello Ada!\"");
    let tasks = TaskEngine::new(SqliteStore::open(&file).unwrap());
    let grace = NewTask::new("greet", Json::parse(r#"{"name": "Grace"}"#).unwrap()).unwrap();
    tasks.create_many(&[grace]).await.unwrap();
    assert_eq!(tokio::time::timeout(TIMEOUT, done(2)).await.unwrap(), "\"Hello Grace!\"");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
}

/// The first program is short, and the same in both documents and in the crate docs.
#[test]
fn first_task_is_short() {
    let program = include_str!(concat!(env!("OUT_DIR"), "/start.rs"));
    assert!(program.lines().filter(|line| !line.is_empty()).count() <= 15);
    let in_crate_docs: String =
        program.lines().map(|line| format!("//! {line}").trim_end().to_owned() + "\n").collect();
    assert!(include_str!("../../../crates/engine/src/lib.rs").contains(&in_crate_docs));
    let documents = [include_str!("../../../README.md"), include_str!("../../../docs/start.md")];
    for document in documents {
        assert!(document.contains(program));
        let (_, file) = document.split_once("```toml\n# task-engine.toml\n").unwrap();
        let file = file.split("```").next().unwrap();
        let lines = file.lines().filter(|line| !line.is_empty()).count();
        let tables = file.lines().filter(|line| line.starts_with('[')).count();
        assert_eq!(lines, 2 * tables, "a name and a command");
    }
}

/// The table lists all examples.
#[test]
fn every_example_is_listed() {
    let listed = include_str!("../../README.md");
    let programs = include_str!("../Cargo.toml").split("path = \"").skip(1);
    for file in programs.filter_map(|rest| rest.split('"').next()) {
        let name = file.strip_suffix(".rs").unwrap();
        assert!(name == "start" || listed.contains(&format!("[{name}](rust/{file})")), "{name}");
    }
}

#[test]
fn retries() {
    let output = run!("retries").end();
    let expected = [
        "/fine: stopped after 1 attempts",
        "/gone: failed after 1 attempts",
        "  Failure: 410 Gone",
        "/busy: stopped after 2 attempts",
        "  Failure: 503 Service Unavailable",
        "/broken: failed after 4 attempts",
        "  core::num::error::ParseIntError: invalid digit found in string",
        "  core::num::error::ParseIntError: invalid digit found in string",
        "  core::num::error::ParseIntError: invalid digit found in string",
        "  core::num::error::ParseIntError: invalid digit found in string",
        "/flaky: stopped after 3 attempts",
        "  Panic: not now",
        "  Panic: not now",
    ];
    assert_eq!(output.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn schedules() {
    let output = run!("schedules").end();
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..3], [1, 2, 3].map(|n| format!("measurement {n} of outside")));
    // Three in the morning in Paris.
    let night = lines[3].strip_prefix("inside: next at ").unwrap();
    assert!(night.contains("T01:00:00") || night.contains("T02:00:00"), "{night}");
    assert!(lines[4].starts_with("outside: next at "), "{output}");
}

#[test]
fn hooks() {
    let output = run!("hooks").end();
    let has = |words: &[&str]| {
        let line = output.lines().find(|line| words.iter().all(|word| line.contains(word)));
        assert!(line.is_some(), "no line with {words:?} in\n{output}");
    };
    has(&["writing invoice 7", "tenant=\"acme\"", "task"]);
    has(&["finished task 1 in ", "task.class=invoice", "outcome=\"success\""]);
}

#[test]
fn cancel() {
    let output = run!("cancel").end();
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("progress: file "), "{output}");
    assert_eq!(lines[1], "cancel: Requested");
    assert!(lines[2].starts_with("cancelled: ") && lines[2].contains("asked to end"), "{output}");
    assert!(lines[3].starts_with("last log line: file "), "{output}");
    assert!(lines[3].ends_with(" is skipped"), "{output}");
}

#[test]
fn flow() {
    let output = run!("flow").end();
    let expected = [
        "alert: stock did not succeed: the warehouse is closed",
        "first: failed",
        "to ada: 60 orders, 50 items",
        "then: succeeded",
    ];
    assert_eq!(output.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn tested() {
    assert_eq!(run!("tested").end(), "a letter to bob\n");
}

#[tokio::test]
async fn fleet() {
    let url = TestServer::shared().create_database().await;
    let output = run!("fleet", "DATABASE_URL" => &url).end();
    assert!(output.starts_with("300 tasks: {"), "{output}");
    for engine in ["north", "south", "west"] {
        assert!(output.contains(engine), "{output}");
    }
}

#[tokio::test]
async fn once() {
    let url = TestServer::shared().create_database().await;
    let output = run!("once", "DATABASE_URL" => &url).end();
    assert_eq!(output, "20 payments of 1 each: the balance is 20, after 30 attempts\n");
}
