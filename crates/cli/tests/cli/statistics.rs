//! Commands, API and metrics show the same numbers, and they are right.

use std::time::Instant;

use serde_json::Value;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

/// How attempts ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ended {
    succeeded: u64,
    failed: u64,
    other: u64,
}

impl Ended {
    fn total(self) -> u64 {
        self.succeeded + self.failed + self.other
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// An engine works on successes, failures, retries and cancellations, and stops.
fn run_load(sandbox: &Sandbox) {
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["create", "WaitingTask", "--after", "1h", "--count", "30"]);
    sandbox.ok(&["cancel", "status=waiting", "--yes"]);
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#, "--count", "3000"]);
    sandbox.ok(&["create", "FailingNotRetryTask", "--count", "200"]);
    sandbox.ok(&["create", "FailingTask", "--count", "50"]);
    let engine = sandbox.start(&["start", "--instance", "e", "--workers", "20"]);
    let long = r#"{"steps": 1000, "step_time": 1}"#;
    let long = sandbox.ok(&["create", "ReportingTask", long]).trim().to_owned();
    wait_until("all but one have ended", || {
        let stats = json(&sandbox.ok(&["stats", "--json"]));
        stats["due"]["counted"] == 0 && stats["running"] == 1
    });
    sandbox.ok(&["cancel", &long, "--wait"]);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

/// Page by page, because no page takes long.
fn all_tasks(sandbox: &Sandbox) -> Vec<Value> {
    let mut tasks: Vec<Value> = Vec::new();
    loop {
        let before = tasks.last().map_or(i64::MAX.to_string(), |task| task["id"].to_string());
        let page = sandbox.ok(&["tasks", "--json", "--limit", "1000", "--before", &before]);
        if page.is_empty() {
            return tasks;
        }
        tasks.extend(page.lines().map(json));
    }
}

/// The numbers by the tasks themselves.
fn on_record(sandbox: &Sandbox) -> Ended {
    let mut ended = Ended::default();
    for task in all_tasks(sandbox) {
        let attempts = task["attempts"].as_u64().unwrap();
        match task["status"].as_str().unwrap() {
            "stopped" => {
                ended.succeeded += 1;
                ended.failed += attempts - 1;
            }
            "cancelled" => ended.other += attempts,
            _ => ended.failed += attempts,
        }
    }
    ended
}

fn of_stats(stats: &Value) -> Ended {
    let hour = &stats["last_hour"];
    let number = |name: &str| hour[name].as_u64().unwrap_or_else(|| panic!("{name}: {hour}"));
    let ended =
        Ended { succeeded: number("succeeded"), failed: number("failed"), other: number("other") };
    assert_eq!(number("ended"), ended.total());
    let classes = hour["classes"].as_array().unwrap();
    let sum = |name: &str| classes.iter().map(|class| class[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("ended"), sum("failed")), (ended.total(), ended.failed), "{hour}");
    ended
}

fn of_metrics(metrics: &str) -> Ended {
    let sum = |outcome: &str| {
        let of = format!("outcome=\"{outcome}\"}} ");
        metrics
            .lines()
            .filter(|line| line.starts_with("task_engine_attempts_ended_last_hour{"))
            .filter_map(|line| line.split_once(&of)?.1.parse::<u64>().ok())
            .sum()
    };
    Ended { succeeded: sum("success"), failed: sum("failure"), other: sum("other") }
}

struct Web {
    address: String,
    server: RunningProgram,
}

impl Web {
    fn start(sandbox: &Sandbox) -> Self {
        let server = sandbox.start(&["web", "127.0.0.1:0"]);
        server.wait_for_log("Dashboard: http://127.0.0.1:");
        let said = server.err();
        let address = said.split("Dashboard: ").nth(1).unwrap().lines().next().unwrap();
        Self { address: address.trim_end_matches('/').to_owned(), server }
    }

    fn get(&self, sandbox: &Sandbox, path: &str) -> String {
        let got = sandbox.shell(&format!("curl -sS --fail-with-body '{}{path}'", self.address));
        assert_eq!(got.code, Some(0), "{path}: {got:?}");
        got.out
    }
}

fn groups_of(text: &str) -> Vec<(String, u64, bool)> {
    let group = |line: &str| {
        let group = json(line);
        let class = group["class"].as_str().unwrap().to_owned();
        (class, group["count"].as_u64().unwrap(), group["is_sample"].as_bool().unwrap())
    };
    text.lines().map(group).collect()
}

fn numbers_agree(sandbox: &Sandbox) {
    let begun = Instant::now();
    run_load(sandbox);
    let truth = on_record(sandbox);
    assert!(truth.succeeded == 3000 && truth.failed >= 250 && truth.other == 1, "{truth:?}");

    let stats = json(&sandbox.ok(&["stats", "--json"]));
    assert_eq!(of_stats(&stats), truth, "stats");
    assert_eq!(
        (&stats["failed"]["counted"], &stats["cancelled"]["counted"]),
        (&200.into(), &31.into())
    );
    let rate = stats["last_hour"]["per_sec"].as_f64().unwrap();
    let slowest = 3_200.0 / (begun.elapsed().as_secs_f64() + 61.0);
    assert!(rate >= slowest, "{rate} a second, at least {slowest}");
    let ended = format!("{} attempts ended", truth.total());
    for command in ["stats", "top"] {
        let shown = sandbox.ok(&[command]);
        assert!(shown.contains(&ended), "{command}: {ended}: {shown}");
        assert!(shown.contains("LAST ERROR (SAMPLE)"), "{command}: {shown}");
    }

    let web = Web::start(sandbox);
    assert_eq!(of_stats(&json(&web.get(sandbox, "/api/v1/stats"))), truth, "GET /stats");
    assert_eq!(of_metrics(&web.get(sandbox, "/metrics")), truth, "/metrics");
    let page = web.get(sandbox, "/");
    let chart = format!("Attempts that ended in the last hour: {} in all", truth.total());
    assert!(page.contains(&chart), "{chart}");

    let failed = [("FailingNotRetryTask".to_owned(), 200, false)];
    assert_eq!(groups_of(&sandbox.ok(&["errors", "--json"])), failed);
    let retried = [("FailingTask".to_owned(), 50, false)];
    assert_eq!(groups_of(&sandbox.ok(&["errors", "status=waiting", "--json"])), retried);
    let errors = json(&web.get(sandbox, "/api/v1/errors"));
    assert_eq!((&errors["groups"][0]["count"], &errors["is_sample"]), (&200.into(), &false.into()));
    let page = web.get(sandbox, "/errors");
    assert!(page.contains("200 tasks with an error: all there are."), "{page}");

    // A sample says so, above its numbers, and how many there are.
    let sample = sandbox.run(&["errors", "--limit", "120"]);
    let head = sample.out.lines().next().unwrap();
    assert!(head.starts_with("Sample: the newest 120 of 200 failed tasks"), "{sample:?}");
    let sample = sandbox.ok(&["errors", "--limit", "120", "--json"]);
    assert_eq!(groups_of(&sample), [("FailingNotRetryTask".to_owned(), 120, true)]);
    web.server.signal("TERM");
    assert_eq!(web.server.end().code, Some(0));
}

#[test]
fn numbers_agree_on_sqlite() {
    numbers_agree(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_agree_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    numbers_agree(&sandbox_on(&url));
}

#[test]
fn retried_errors_show_in_backlog() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["create", "FailingTask", r#"{"divisor": 0}"#]);
    let engine = sandbox.start(&["start", "--instance", "e"]);
    wait_until("it has failed", || sandbox.task("1")["attempts"] == 1);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    sandbox.ok(&["create", "WaitingTask", "--count", "10000"]);
    let shown = sandbox.ok(&["errors", "status=waiting"]);
    assert!(shown.contains("ZeroDivisionError: divided by <n>"), "{shown}");
    assert!(shown.contains("e.g. divided by 0"), "an example: {shown}");
    assert!(!shown.contains('…'), "whole in a pipe: {shown}");
}

#[test]
fn cancelled_waiting_task_has_no_attempt() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    sandbox.ok(&["create", "WaitingTask"]);
    sandbox.ok(&["cancel", "1"]);
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("Not begun: cancelled while waiting"), "{shown}");
    assert!(!shown.contains("Attempt 1") && !shown.contains("failure"), "{shown}");
    assert_eq!(sandbox.task("1")["attempts"], 0);
    assert_eq!(sandbox.task("1")["executions"][0]["status"], "cancelled");
}
