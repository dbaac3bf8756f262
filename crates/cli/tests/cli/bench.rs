//! The bench measures, compares, and leaves nothing behind.

use std::fs;

use serde_json::Value;
use task_engine::postgres::tokio_postgres;
use task_engine_conformance::postgres_server::TestServer;

use super::support::{Finished, Place, eventually};

/// Everything, as short as it can be.
const SHORT: [&str; 15] = [
    "bench",
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
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

fn json(finished: &Finished) -> Value {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    serde_json::from_str(&finished.out).expect("JSON")
}

fn median(outcome: &Value, scenario: &str, measure: &str) -> Option<f64> {
    let scenarios = outcome["scenarios"].as_array().expect("scenarios");
    let found = scenarios.iter().find(|one| one["name"] == scenario);
    let found = found.unwrap_or_else(|| panic!("no {scenario}: {outcome}"));
    let measure = found["measures"].get(measure);
    measure.unwrap_or_else(|| panic!("{scenario} has no {measure:?}: {found}"))["median"].as_f64()
}

/// What can be measured on every store.
fn check_common(outcome: &Value) {
    for (scenario, measure) in [
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
    ] {
        let value = median(outcome, scenario, measure);
        assert!(value.is_some_and(|value| value > 0.0), "{scenario} {measure}: {value:?}");
    }
    for (scenario, measure) in [
        ("pickup", "latency_ms_p50"),
        ("pickup", "latency_ms_p95"),
        ("pickup", "latency_ms_p99"),
        ("schedule", "latency_ms_p99"),
        ("claim", "latency_ms_p99"),
    ] {
        assert!(median(outcome, scenario, measure).is_some(), "{scenario} {measure}");
    }
    if cfg!(target_os = "linux") {
        assert!(median(outcome, "drain", "engine_memory_mb").is_some_and(|mb| mb > 1.0));
        assert!(median(outcome, "drain", "engine_cpu_us_per_task").is_some());
        assert!(median(outcome, "idle", "idle_cpu_percent").is_some());
    }
}

#[test]
fn a_bench_on_an_embedded_database() {
    let place = Place::new();
    let more = ["--json", "--history", "300", "--future", "200", "--crowd", "100"];
    let outcome = json(&place.run(&with(&more)));
    check_common(&outcome);
    assert!(outcome["database"].as_str().is_some_and(|name| name.starts_with("SQLite 3.")));
    for (scenario, measure) in [
        ("drain", "database_cpu_us_per_task"),
        ("drain", "wal_bytes_per_task"),
        ("create-many-busy-silent", "tasks_per_sec"),
        ("idle", "idle_commits_per_sec"),
    ] {
        assert_eq!(median(&outcome, scenario, measure), None, "{scenario} {measure} is n/a");
    }
    let left: Vec<_> = fs::read_dir(place.path("")).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    let place = Place::with_database(&url);
    let rows = ["--history", "300", "--future", "200", "--crowd", "100"];
    let more = [&["--json", "--hold-snapshot"], &rows[..]].concat();
    let outcome = json(&place.run(&with(&more)));
    check_common(&outcome);
    for (scenario, measure) in [
        ("create-single", "wal_bytes_per_task"),
        ("create-single", "commits_per_task"),
        ("create-many-idle-silent", "tasks_per_sec"),
        ("create-many-busy-silent", "tasks_per_sec"),
        ("drain", "wal_bytes_per_task"),
        ("drain", "commits_per_task"),
        ("drain", "dead_rows_per_task"),
        ("steady", "dead_rows_per_task"),
    ] {
        let value = median(&outcome, scenario, measure);
        assert!(value.is_some_and(|value| value > 0.0), "{scenario} {measure}: {value:?}");
    }
    assert!(median(&outcome, "idle", "idle_commits_per_sec").is_some());
    if cfg!(target_os = "linux") {
        assert!(median(&outcome, "drain", "database_cpu_us_per_task").is_some());
    }
    assert_eq!(schemas(&url).await, [""; 0], "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_bench_leaves_nothing() {
    let url = TestServer::shared().create_database().await;
    let place = Place::with_database(&url);
    let bench = place.start(&["bench", "--scenario", "idle", "--idle-time", "1h"]);
    let mut there = false;
    while !there {
        there = !schemas(&url).await.is_empty();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    bench.signal("INT");
    let ended = bench.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("interrupted"), "{}", ended.err);
    assert_eq!(schemas(&url).await, [""; 0], "nothing is left");

    let place = Place::new();
    let bench = place.start(&["bench", "--scenario", "idle", "--idle-time", "1h"]);
    let file = place.path(&format!("task-engine-bench-{}.db", bench.id()));
    eventually("the file is there", || file.exists());
    bench.signal("TERM");
    assert_eq!(bench.end().code, Some(1));
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

/// The table, the page, and the comparison with a baseline: itself, which is
/// no worse, and one that is too good to be reached.
#[test]
fn a_bench_is_compared_with_a_baseline() {
    let place = Place::new();
    let drain = with(&["--scenario", "drain", "--scenario", "pickup"]);
    let saved = place.run(&[&drain[..], &["--json"]].concat());
    let mut outcome = json(&saved);
    let save = |name: &str, outcome: &Value| {
        fs::write(place.path(name), outcome.to_string()).expect("a file");
    };
    let names: Vec<_> = outcome["scenarios"].as_array().expect("scenarios").iter().collect();
    assert_eq!(names.len(), 2, "only what was asked for");

    let set = |outcome: &mut Value, rate: f64| {
        for scenario in outcome["scenarios"].as_array_mut().expect("scenarios") {
            for (name, measure) in scenario["measures"].as_object_mut().expect("measures") {
                if let Some(median) = measure.get_mut("median") {
                    *median = if name == "tasks_per_sec" { rate } else { 1.0 / rate }.into();
                }
            }
        }
    };
    set(&mut outcome, 1e-6);
    save("easy.json", &outcome);
    let report = ["--baseline", "easy.json", "--report", "report.html"];
    let easy = place.run(&[&drain[..], &report].concat());
    assert_eq!(easy.code, Some(0), "{easy:?}");
    for words in ["SCENARIO", "drain", "pickup", "RATIO", "engine CPU µs/task"] {
        assert!(easy.out.contains(words), "{words}: {}", easy.out);
    }
    let page = fs::read_to_string(place.path("report.html")).expect("a page");
    for words in
        ["<svg", "throughput over time", "class=\"bar\"", "prefers-color-scheme: dark", "tasks/s"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("http"), "it needs nothing else");

    set(&mut outcome, 1e12);
    save("hard.json", &outcome);
    let hard = place.run(&[&drain[..], &["--baseline", "hard.json", "--json"]].concat());
    assert_eq!(hard.code, Some(1), "{hard:?}");
    assert!(hard.err.contains("below 0.8 × the baseline"), "{}", hard.err);
    assert!(hard.err.contains("drain tasks/s"), "{}", hard.err);
    let compared: Value = serde_json::from_str(&hard.out).expect("JSON");
    assert!(compared["comparison"]["ratios"].as_array().is_some_and(|all| all.len() > 2));
}

#[test]
fn mistakes_are_found_before_anything_is_measured() {
    let place = Place::new();
    fs::write(place.path("other.json"), "{}").expect("a file");
    for (args, words) in [
        (&["--scenario", "drian"][..], "'drain'"),
        (&["--tasks", "0"], "0 is not in 1..=100000000"),
        (&["--engines", "-1"], "-1 is not in 1..=64"),
        (&["--time", "0s"], "--time must be between"),
        (&["--tolerance", "0.5"], "--baseline"),
        (&["--baseline", "other.json", "--tolerance", "1.5"], "a share is a number"),
        (&["--baseline", "missing.json"], "cannot be read"),
        (&["--baseline", "other.json"], "is not a baseline"),
        (&["--report", "no/such/folder.html"], "in a folder that is there"),
        (&["--database", "sqlite::memory:"], "cannot be shared"),
        (&["--database", "postgres://h/d?sslmode=verify-full"], "cannot use TLS"),
    ] {
        let refused = place.run(&[&["bench"], args].concat());
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
    }
    let help = place.ok(&["--help"]);
    assert!(help.contains("bench ") && !help.contains("bench-engine"), "{help}");
}
