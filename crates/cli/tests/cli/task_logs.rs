//! Logs, progress and cancel requests of tasks, by commands.

use serde_json::Value;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// One document a line.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn progress_and_log_are_shown(sandbox: &Sandbox) {
    assert_eq!(sandbox.ok(&["create", "ReportingTask", r#"{"steps": 30}"#]), "1\n");
    let engine = sandbox.start(&["start"]);
    wait_until("it is done", || sandbox.status("1") == "stopped");
    let shown = sandbox.ok(&["show", "1"]);
    for words in
        ["progress    100 %, step 30", "30 lines, 20 of them here", "logs 1", "step 30 of 30"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("step 10 of 30"), "{shown}");
    let task = sandbox.task("1");
    assert_eq!(task["executions"][0]["progress"]["percent"], 100.0);
    assert_eq!(task["executions"][0]["log_lines"], 30);
    assert_eq!(task["log"].as_array().unwrap().len(), 30);

    let log = sandbox.ok(&["logs", "1"]);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!((lines.len(), lines[0]), (31, "Attempt 1:"));
    assert!(lines[1].ends_with("info   step 1 of 30 is done"), "{log}");
    let documents = json_lines(&sandbox.ok(&["logs", "1", "--json"]));
    assert_eq!(documents.len(), 30);
    assert_eq!((&documents[4]["line"], &documents[4]["level"]), (&5.into(), &"info".into()));
    assert_eq!(sandbox.ok(&["logs", "1", "--attempt", "1"]), log);
    // The log of an ended task is complete at once.
    let followed = sandbox.run(&["logs", "1", "--follow"]);
    assert_eq!(followed.code, Some(0));
    assert!(followed.out.contains("at     100 %, step 30"), "{}", followed.out);
    assert!(followed.err.contains("Task 1 is stopped."), "{}", followed.err);

    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    wait_until("it is done", || sandbox.status("2") == "stopped");
    let silent = sandbox.run(&["logs", "2"]);
    assert_eq!((silent.code, silent.out.as_str()), (Some(0), ""));
    assert!(silent.err.contains("Task 2 has logged nothing"), "{}", silent.err);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn progress_and_log_on_sqlite() {
    progress_and_log_are_shown(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_log_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    progress_and_log_are_shown(&sandbox_on(&url));
}

#[test]
fn follow_prints_lines_until_task_ends() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "ReportingTask", r#"{"steps": 1000000, "step_time": 0.05}"#]);
    let follower = sandbox.start(&["logs", "1", "--follow"]);
    let page = sandbox.start(&["show", "1", "--follow"]);
    let engine = sandbox.start(&["start"]);
    for running in [&follower, &page] {
        wait_until("the third line", || running.out().contains("step 3 of 1000000 is done"));
        wait_until("how far it is", || running.out().contains("at     0 %, step"));
    }
    assert_eq!(sandbox.status("1"), "running", "seen while it runs");
    assert!(sandbox.ok(&["show", "1"]).contains("progress    0 %, step"));
    sandbox.ok(&["cancel", "1", "--wait"]);
    for running in [follower, page] {
        let end = running.end();
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(end.out.contains("warn   asked to end before step"), "{}", end.out);
        assert!(end.err.contains("Task 1 is cancelled."), "{}", end.err);
        let lines = end.out.lines().filter(|line| line.contains("is done"));
        let numbers: Vec<&str> = lines.map(|line| line.split_once("step ").unwrap().1).collect();
        let mut once = numbers.clone();
        once.dedup();
        assert_eq!(numbers, once, "each line once");
    }
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn cancel_wait_reports_outcome() {
    let sandbox = sandbox();
    let running = |when: &str| {
        let parameters = format!(r#"{{"steps": 1, "step_time": 60, "when_cancelled": "{when}"}}"#);
        let id = sandbox.ok(&["create", "ReportingTask", &parameters]).trim().to_owned();
        wait_until("it runs", || sandbox.status(&id) == "running");
        id
    };
    let engine = sandbox.start(&["start"]);
    for (when, code, outcome, words) in [
        ("obey", 0, "acknowledged", "was cancelled: its code ended"),
        ("hang", 0, "killed", "was cancelled: its code did not end by itself and was dropped 1 s"),
        ("finish", 4, "ignored", "has succeeded: ignored: its code finished its work"),
    ] {
        let id = running(when);
        let cancelled = sandbox.run(&["cancel", &id, "--wait"]);
        assert_eq!(cancelled.code, Some(code), "{when}: {cancelled:?}");
        assert!(cancelled.out.contains(words), "{when}: {}", cancelled.out);
        let task = sandbox.task(&id);
        let cancel = &task["executions"][0]["cancel"];
        assert_eq!(cancel["outcome"], outcome);
        assert!(
            cancel["requested_at"].is_string() && cancel["delivered_at"].is_string(),
            "{cancel}"
        );
        let shown = sandbox.ok(&["show", &id]);
        assert!(shown.contains("cancel      requested 20"), "{shown}");
    }
    // One that waits is cancelled at once, and one that has ended is a conflict.
    let later = sandbox.ok(&["create", "ReportingTask", r#"{"steps": 1}"#, "--after", "1h"]);
    let both = sandbox.run(&["cancel", later.trim(), "3", "--wait"]);
    assert_eq!(both.code, Some(4), "{both:?}");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn cancel_wait_times_out() {
    let sandbox = sandbox();
    let (engine, _witness) = sandbox.start_on_witness(60_000, &["start"]);
    // It is suspended, and so hears of nothing.
    engine.signal("STOP");
    let cancelled = sandbox.run(&["cancel", "1", "--wait", "--timeout", "300ms"]);
    assert_eq!(cancelled.code, Some(1), "{cancelled:?}");
    assert!(cancelled.err.contains("after the request: 1 of 1 task"), "{}", cancelled.err);
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("no response yet"), "{shown}");
    assert_eq!(sandbox.task("1")["executions"][0]["cancel"]["outcome"], "pending");
    engine.signal("CONT");
    wait_until("it is cancelled", || sandbox.status("1") == "cancelled");
}

/// A crash loses at most the last half second of the log.
#[test]
fn log_survives_killed_engine() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "ReportingTask", r#"{"steps": 1000000, "step_time": 0.02}"#]);
    let engine = sandbox.start(&["start", "--instance", "a"]);
    let lines = || json_lines(&sandbox.ok(&["logs", "1", "--json"]));
    wait_until("some lines", || lines().len() > 50);
    engine.signal("KILL");
    let killed = jiff::Timestamp::now();
    engine.end();
    sandbox.ok(&["recover", "a"]);
    let lines = lines();
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line["line"], n + 1, "none is missing in between");
    }
    let last: jiff::Timestamp =
        lines.last().unwrap()["logged_at"].as_str().unwrap().parse().unwrap();
    // Half a second, and a machine that is busy with other tests.
    let lost = killed.duration_since(last).as_secs_f64();
    assert!(lost < 2.0, "{lost} s");
    let execution = &sandbox.task("1")["executions"][0];
    assert_eq!(execution["error"]["exception"], "InstanceLost");
    assert_eq!(execution["log_lines"], lines.len());
    assert!(execution["progress"]["message"].as_str().unwrap().starts_with("step "));
}
