//! Each command, when all is well.

use std::fs;
use std::process::Stdio;

use super::support::sandbox;
use task_engine_test_harness::wait_until;

/// The reasons that the book's engine tells apart.
#[test]
fn log_explains_missing_retry() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "FailingNotRetryExceptionTask"]);
    let engine = sandbox.start(&["start"]);
    let says = |id: &str, why: &str| {
        engine.wait_for_log(&format!("task {id} has failed and will not be retried: {why}"));
    };
    says("1", "class FailingNotRetryTask is not retried");
    says("2", "error ");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn create_prints_ids_and_candidates() {
    let sandbox = sandbox();
    let created = sandbox.run(&["create", "WaitingTask", r#"{"waiting_time": 0.1}"#]);
    assert_eq!((created.code, created.out.as_str()), (Some(0), "1\n"));
    for words in
        ["Database: sqlite:task-engine.db", "0001_tasks", "it will wait until that changes"]
    {
        assert!(created.err.contains(words), "{words}: {}", created.err);
    }
    assert_eq!(sandbox.ok(&["create", "a", "--count", "2"]), "2\n3\n");
    assert_eq!(sandbox.ok(&["create", "a", "--count", "100"]), "4..103 (100 tasks)\n");
    fs::write(sandbox.path("parameters.json"), "{\"from\": \"a file\"}\n").unwrap();
    sandbox.ok(&["create", "a", "@parameters.json"]);
    assert_eq!(sandbox.task("104")["parameters"]["from"], "a file");
    let piped = sandbox.run_with_input(&["create", "a", "-"], b" {\"from\": \"a pipe\"} ");
    assert_eq!(piped.out, "105\n");
    assert_eq!(sandbox.task("105")["parameters"]["from"], "a pipe");
    let quiet = sandbox.run(&["-q", "create", "a"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("106\n", ""));
}

#[test]
fn create_prints_due_time() {
    let sandbox = sandbox();
    let later =
        sandbox.run(&["create", "a", "--after", "1h30m", "--priority", "-5", "--queue", "q"]);
    assert!(later.err.contains("due in 1 h 30 min"), "{}", later.err);
    let task = sandbox.task("1");
    assert_eq!((&task["priority"], &task["queue"]), (&(-5).into(), &"q".into()));
    let at = sandbox.run(&["create", "a", "--at", "2099-12-24 18:00"]);
    assert!(at.err.contains("2099-12-24 18:00:00.000 +00:00"), "{}", at.err);
    assert_eq!(sandbox.task("2")["scheduled_at"], "2099-12-24T18:00:00Z");
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("because it is not due: "), "{shown}");
}

#[test]
fn undo_of_retry_spares_advanced_tasks() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--after", "1h"]);
    sandbox.ok(&["create", "a"]);
    sandbox.ok(&["cancel", "2"]);
    let retried = sandbox.run(&["retry", "1", "2"]);
    assert!(retried.out.contains("task 1 was scheduled for later and is due now"), "{retried:?}");
    assert!(retried.err.contains(" cancel 2"), "{}", retried.err);
    let advanced = sandbox.run(&["edit", "1", "--at", "2099-12-24 18:00"]);
    assert_eq!(advanced.code, Some(0), "{advanced:?}");
    let retried = sandbox.run(&["retry", "1"]);
    assert!(!retried.err.contains("To stop what"), "{}", retried.err);
}

#[test]
fn create_reports_unique_conflict() {
    let sandbox = sandbox();
    let unique = |more: &[&'static str]| {
        let args = ["create", "a", r#"{"n": 1}"#, "--after", "1h", "--unique", "my key"];
        sandbox.run(&[&args, more].concat())
    };
    let created = unique(&[]);
    assert_eq!((created.code, created.out.as_str()), (Some(0), "1\n"));
    assert!(created.err.contains("Created 1 task, due in 1 h"), "{}", created.err);
    for more in [&[][..], &["--unique-scope", "waiting"], &["--unique-scope", "10m"]] {
        let kept = unique(more);
        assert_eq!((kept.code, kept.out.as_str()), (Some(0), "1\n"), "{more:?}");
        assert!(kept.err.contains("has the key my key and is kept"), "{}", kept.err);
    }
    let replaced = sandbox.run(&[
        "create",
        "a",
        r#"{"n": 2}"#,
        "--unique",
        "my key",
        "--on-conflict",
        "replace-parameters",
    ]);
    assert_eq!((replaced.code, replaced.out.as_str()), (Some(0), "1\n"));
    assert!(replaced.err.contains("has the key my key and was changed"), "{}", replaced.err);
    let task = sandbox.task("1");
    assert_eq!(task["parameters"]["n"], 2);
    assert_eq!(task["context"]["unique_key"], "my key");
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("by the key my key"), "{shown}");
    assert!(shown.contains("because it is not due: "), "its time stays: {shown}");
    assert_eq!(sandbox.ok(&["create", "b", "--unique", "my key"]), "2\n", "of another class");
}

#[test]
fn tasks_lists_pages() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let empty = sandbox.run(&["tasks"]);
    assert_eq!((empty.code, empty.out.as_str()), (Some(0), ""));
    assert!(empty.err.contains("Create one:") && empty.err.contains("start"), "{}", empty.err);

    sandbox.ok(&["create", "a", "--count", "3"]);
    sandbox.ok(&["create", "b"]);
    let all = sandbox.run(&["tasks"]);
    let ids: Vec<_> = all.out.lines().skip(1).map(|line| line[..2].trim()).collect();
    assert_eq!(ids, ["4", "3", "2", "1"]);
    let page = sandbox.run(&["tasks", "--class", "a", "--limit", "2"]);
    assert_eq!(page.out.lines().count(), 3);
    assert!(page.err.contains("--before 2"), "{}", page.err);
    let rest = sandbox.ok(&["tasks", "--class", "a", "--before", "2", "--json"]);
    assert_eq!(rest.lines().count(), 1);
    assert!(rest.contains(r#""id":1,"status":"waiting","class":"a""#), "{rest}");
    assert_eq!(sandbox.ok(&["tasks", "--status", "failed"]), "");
}

#[test]
fn show_prints_all_attempts() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "FailingNotRetryTask"]);
    sandbox.ok(&["create", "FailingTask"]);
    let _engine = sandbox.start(&["start", "--instance", "web-1"]);
    wait_until("it fails", || sandbox.status("1") == "failed");
    wait_until("it waits for a retry", || sandbox.task("2")["retry_number"] == 1);
    let failed = sandbox.run(&["show", "1"]);
    for words in [
        "Task 1: FailingNotRetryTask, failed",
        "Attempt 1: failure; the task failed",
        "web-1, worker",
        "ZeroDivisionError: divided by 0",
        "at crates/engine/src/samples.rs",
        "took ",
    ] {
        assert!(failed.out.contains(words), "{words}: {}", failed.out);
    }
    assert!(failed.err.contains("retry 1"), "{}", failed.err);
    let waiting = sandbox.ok(&["show", "2"]);
    assert!(waiting.contains("because it waits for retry 1"), "{waiting}");
    assert!(waiting.contains("next        attempt at"), "{waiting}");
}

#[test]
fn hostile_data_is_escaped() {
    let sandbox = sandbox();
    let parameters = "{\"a\": \"\u{202e}gpj.exe \u{9b}2J\"}";
    sandbox.ok(&["create", "evil\u{202e}", parameters]);
    for args in [&["tasks"][..], &["show", "1"], &["cancel", "1"], &["show", "1"]] {
        let finished = sandbox.run(args);
        let hostile = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!finished.out.contains(hostile), "{args:?}: {:?}", finished.out);
        assert!(!finished.err.contains(hostile), "{args:?}: {:?}", finished.err);
    }
    for args in [
        &["tasks", "--json"][..],
        &["show", "1", "--json"],
        &["wait", "1"],
        &["why", "1", "--json"],
        &["trace", "1", "--json"],
        &["audit", "--json"],
        &["export"],
    ] {
        let printed = sandbox.run(args).out;
        let hostile = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!printed.is_empty() && !printed.contains(hostile), "{args:?}: {printed:?}");
    }
    assert!(sandbox.ok(&["show", "1"]).contains(r"evil\u{202e}"));
    assert_eq!(sandbox.task("1")["parameters"]["a"], "\u{202e}gpj.exe \u{9b}2J");
}

#[test]
fn cancel_and_retry_report_each_task() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--count", "2"]);
    sandbox.ok(&["create", "a", "--after", "1h"]);
    let cancelled = sandbox.run(&["cancel", "1", "1", "9"]);
    assert_eq!(cancelled.out, "task 1 was cancelled\ntask 9 does not exist\n");
    assert_eq!(cancelled.code, Some(3));
    assert_eq!(sandbox.ok(&["cancel", "1"]), "task 1 was cancelled before\n");
    assert_eq!(
        sandbox.ok(&["retry", "1", "2", "3"]),
        "task 1 was retried\n\
         task 2 was due already (`why` says why it does not run)\n\
         task 3 was scheduled for later and is due now\n"
    );
    assert_eq!(sandbox.run(&["retry", "9"]).code, Some(3));
}

#[test]
fn running_or_ended_task_is_conflict() {
    let sandbox = sandbox();
    let (engine, witness) = sandbox.start_on_witness(60_000, &["start"]);
    let retried = sandbox.run(&["retry", "1"]);
    assert_eq!((retried.code, retried.out.as_str()), (Some(4), "task 1 was skipped: running\n"));
    assert!(sandbox.ok(&["tasks", "--status", "running"]).contains("WitnessTask"));
    let cancelled = sandbox.ok(&["cancel", "1"]);
    assert_eq!(cancelled, "task 1 is running; its engine was asked to cancel it\n");
    wait_until("it is cancelled", || sandbox.status("1") == "cancelled");
    assert_eq!(witness.events(), ["begin"]);

    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    wait_until("it is done", || sandbox.status("2") == "stopped");
    let done = sandbox.run(&["cancel", "2"]);
    assert_eq!(done.code, Some(4));
    assert!(done.out.contains("task 2 was skipped: succeeded"), "{}", done.out);
    assert_eq!(sandbox.run(&["retry", "2"]).code, Some(4));
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn instances_lists_engines() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    assert!(sandbox.run(&["instances"]).err.contains("No engine has run recently"));
    let engine = sandbox.start(&["start", "--instance", "web-1", "--workers", "3"]);
    engine.wait_for_log("Engine web-1 started with 3 workers");
    let alive = sandbox.ok(&["instances"]);
    let id = engine.id().to_string();
    for word in ["web-1", "alive", id.as_str(), " 3 "] {
        assert!(alive.contains(word), "{word}: {alive}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&sandbox.ok(&["instances", "--json"])).expect("one line of JSON");
    assert_eq!((&json["name"], &json["state"]), (&"web-1".into(), &"alive".into()));
    assert_eq!((&json["pid"], &json["workers"]), (&engine.id().into(), &3.into()));
    let second = sandbox.run(&["start", "--instance", "web-1"]);
    assert_eq!(second.code, Some(4));
    assert!(second.err.contains("is alive: process"), "{}", second.err);
    engine.signal("INT");
    assert_eq!(engine.end().code, Some(0));
    assert!(sandbox.ok(&["instances"]).contains("stopped"));
}

#[test]
fn succeeded_means_stopped() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "WaitingTask", r#"{"waiting_time": 0}"#]);
    let _engine = sandbox.start(&["start"]);
    wait_until("it is done", || sandbox.status("1") == "stopped");
    for args in [&["tasks", "status=succeeded"][..], &["task", "--status", "succeeded"]] {
        assert!(sandbox.ok(args).contains("stopped"), "{args:?}");
    }
    assert_eq!(sandbox.ok(&["tasks", "status!=succeeded"]), "");
    assert!(sandbox.ok(&["show", "1"]).contains("Task 1: WaitingTask, stopped (succeeded)"));
    let pruned = ["prune", "--status", "succeeded", "--older-than", "0s", "--yes"];
    sandbox.ok(&pruned);
    assert_eq!(sandbox.run(&["show", "1"]).code, Some(3));
}

#[test]
fn migrate_lists_applied_migrations() {
    let sandbox = sandbox();
    let first = sandbox.run(&["migrate"]);
    assert_eq!(first.code, Some(0));
    assert!(first.out.starts_with("applied 0001_tasks\n"), "{}", first.out);
    assert!(first.out.lines().all(|line| line.starts_with("applied 00")), "{}", first.out);
    let second = sandbox.run(&["migrate"]);
    assert_eq!((second.code, second.out.as_str()), (Some(0), ""));
    assert!(second.err.contains("is up to date"), "{}", second.err);
}

#[test]
fn closed_pipe_exits_successfully() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--count", "10000"]);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_task-engine"))
        .args(["tasks", "--limit", "10000"])
        .current_dir(sandbox.path("."))
        .env_remove("TASK_ENGINE_DATABASE_URL")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
