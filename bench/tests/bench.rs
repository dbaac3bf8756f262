//! Runs the benchmark with small numbers on both databases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use task_engine::postgres::tokio_postgres;
use task_engine_test_harness::TestServer;
use tempfile::TempDir;

/// A folder with the default database, or another database.
struct Sandbox {
    folder: TempDir,
    database: Option<String>,
}

impl Sandbox {
    fn new(database: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, database: database.map(str::to_owned) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_task-engine-bench"));
        command.args(args).current_dir(self.folder.path()).env_remove("TASK_ENGINE_DATABASE_URL");
        if let Some(url) = &self.database {
            command.env("TASK_ENGINE_DATABASE_URL", url);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stderr(Stdio::piped()).spawn().expect("the program runs")
    }
}

fn interrupt(bench: Child, signal: &str) -> Output {
    let sent = Command::new("kill").args([signal, &bench.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    bench.wait_with_output().expect("an exit status")
}

/// All scenarios, as short as possible.
const SHORT: [&str; 20] = [
    "--repeats",
    "1",
    "--tasks",
    "200",
    "--producers",
    "4",
    "--batch",
    "20",
    "--samples",
    "5",
    "--time",
    "300ms",
    "--idle-time",
    "100ms",
    "--keys",
    "20",
    "--max",
    "2",
    "--backlog",
    "100",
];

/// Tasks that are there before.
const INSERTED: [&str; 8] =
    ["--history", "300", "--future", "200", "--unserved", "100", "--sleepers", "100"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn median(report: &Value, scenario: &str, metric: &str) -> Option<f64> {
    let scenarios = report["scenarios"].as_array().expect("scenarios");
    let found = scenarios.iter().find(|one| one["name"] == scenario);
    let found = found.unwrap_or_else(|| panic!("no {scenario}: {report}"));
    let value = found["metrics"].get(metric);
    value.unwrap_or_else(|| panic!("{scenario} has no {metric:?}: {found}"))["median"].as_f64()
}

/// What can be measured on every store.
fn check_common(report: &Value) {
    for (scenario, metric) in [
        ("create-single", "tasks_per_sec"),
        ("create-batch", "tasks_per_sec"),
        ("create-many", "tasks_per_sec"),
        ("create-many-idle", "tasks_per_sec"),
        ("create-many-busy", "tasks_per_sec"),
        ("drain", "tasks_per_sec"),
        ("drain-1ms", "tasks_per_sec"),
        ("steady", "tasks_per_sec"),
        ("pickup", "call_latency_ms_p50"),
        ("start-up", "latency_ms_p50"),
        ("steps", "tasks_per_sec"),
        ("steps", "steps_per_sec"),
        ("signal", "call_latency_ms_p50"),
        ("replay", "latency_ms_p50"),
        ("children", "tasks_per_sec"),
        ("children", "with_creation_per_sec"),
        ("flow-fan-out", "tasks_per_sec"),
        ("flow-fan-in", "tasks_per_sec"),
        ("flow-layers", "tasks_per_sec"),
        ("flow-chain", "tasks_per_sec"),
    ] {
        let value = median(report, scenario, metric);
        assert!(value.is_some_and(|value| value > 0.0), "{scenario} {metric}: {value:?}");
    }
    for (scenario, metric) in [
        ("pickup", "latency_ms_p50"),
        ("pickup", "latency_ms_p95"),
        ("pickup", "latency_ms_p99"),
        ("schedule", "latency_ms_p99"),
        ("claim", "latency_ms_p99"),
    ] {
        assert!(median(report, scenario, metric).is_some(), "{scenario} {metric}");
    }
    check_limits(report);
    if cfg!(target_os = "linux") {
        assert!(median(report, "drain", "engine_memory_mb").is_some_and(|mb| mb > 1.0));
        assert!(median(report, "drain", "engine_cpu_us_per_task").is_some());
        assert!(median(report, "idle", "idle_cpu_percent").is_some());
    }
}

fn check_limits(report: &Value) {
    for (scenario, metric) in [
        ("limited-drain", "tasks_per_sec"),
        ("blocked", "tasks_per_sec"),
        ("blocked", "call_latency_ms_p50"),
        ("rate", "starts_used_percent"),
        ("fair", "call_latency_ms_p50"),
    ] {
        let value = median(report, scenario, metric);
        assert!(value.is_some_and(|value| value > 0.0), "{scenario} {metric}: {value:?}");
    }
    let most = median(report, "rate", "starts_in_window_max");
    assert!(most.is_some_and(|most| most <= 100.0), "{most:?}");
}

#[test]
fn measures_sqlite() {
    let sandbox = Sandbox::new(None);
    let more = [&["--json"], &INSERTED[..]].concat();
    let report = json(&sandbox.run(&with(&more)));
    check_common(&report);
    assert!(report["database"].as_str().is_some_and(|name| name.starts_with("SQLite 3.")));
    for (scenario, metric) in [
        ("drain", "database_cpu_us_per_task"),
        ("drain", "wal_bytes_per_task"),
        ("create-many-busy-silent", "tasks_per_sec"),
        ("idle", "idle_commits_per_sec"),
    ] {
        assert_eq!(median(&report, scenario, metric), None, "{scenario} {metric} is n/a");
    }
    let left: Vec<_> = fs::read_dir(sandbox.path("")).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn measures_postgres() {
    let url = TestServer::shared().create_database().await;
    let sandbox = Sandbox::new(Some(&url));
    let more = [&["--json", "--hold-snapshot"], &INSERTED[..]].concat();
    let report = json(&sandbox.run(&with(&more)));
    check_common(&report);
    for (scenario, metric) in [
        ("create-single", "wal_bytes_per_task"),
        ("create-single", "commits_per_task"),
        ("create-many-idle-silent", "tasks_per_sec"),
        ("create-many-busy-silent", "tasks_per_sec"),
        ("drain", "wal_bytes_per_task"),
        ("drain", "commits_per_task"),
        ("drain", "dead_rows_per_task"),
        ("steady", "dead_rows_per_task"),
    ] {
        let value = median(&report, scenario, metric);
        assert!(value.is_some_and(|value| value > 0.0), "{scenario} {metric}: {value:?}");
    }
    assert!(median(&report, "idle", "idle_commits_per_sec").is_some());
    if cfg!(target_os = "linux") {
        assert!(median(&report, "drain", "database_cpu_us_per_task").is_some());
    }
    assert_eq!(schemas(&url).await, [""; 0], "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_run_leaves_nothing() {
    let idle = ["--scenario", "idle", "--idle-time", "1h"];
    let url = TestServer::shared().create_database().await;
    let sandbox = Sandbox::new(Some(&url));
    let bench = sandbox.start(&idle);
    while schemas(&url).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = interrupt(bench, "-INT");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(schemas(&url).await, [""; 0], "nothing is left");

    let sandbox = Sandbox::new(None);
    let bench = sandbox.start(&idle);
    let file = sandbox.path(&format!("task-engine-bench-{}.db", bench.id()));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "no file");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(interrupt(bench, "-TERM").status.code(), Some(1));
    assert!(!file.exists());
}

async fn schemas(url: &str) -> Vec<String> {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    let ask = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'task\\_engine%'";
    let rows = client.query(ask, &[]).await.expect("schemas");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Prints a table without `--json`.
#[test]
fn prints_table() {
    let output = Sandbox::new(None).run(&with(&["--scenario", "drain", "--scenario", "pickup"]));
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    for text in ["SCENARIO", "drain", "pickup", "ENGINE CPU µs", "MIN–MAX"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(!table.contains("steady"), "only the named scenarios: {table}");
}

#[test]
fn invalid_options_are_rejected() {
    let sandbox = Sandbox::new(None);
    for (args, text) in [
        (&["--scenario", "drian"][..], "'drain'"),
        (&["--tasks", "0"], "0 is not in 1..=100000000"),
        (&["--engines", "-1"], "-1 is not in 1..=64"),
        (&["--time", "0s"], "--time must be between"),
        (&["--time", "soon"], "a duration looks like"),
        (&["--database", "sqlite::memory:"], "cannot be shared"),
        (&["--database", "mysql://h/d"], "must be postgres://"),
        (&["--database", "postgres://h/d?sslmode=verify-full"], "cannot use TLS"),
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(text), "{args:?}: {error}");
    }
}

/// Every benchmark command in the documents has valid options.
#[test]
fn documented_commands_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    for document in ["README.md", "docs/performance.md", "docs/tuning.md"] {
        let text = fs::read_to_string(root.join(document)).expect(document);
        for rest in text.split("-p task-engine-bench -- ").skip(1) {
            let command = rest.split(['`', '\n', '>']).next().unwrap_or_default();
            let args: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
            let output = Sandbox::new(None).run(&args);
            assert!(output.status.success(), "{document}: {command}: {output:?}");
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked}");
}
