//! Tasks by filter: listed, retried, cancelled, done again, edited, deleted, and
//! their errors in groups. The same on both stores.

use serde_json::Value;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{CommandOutput, Sandbox, wait_until};

const QUICK: &str = r#"{"waiting_time": 0}"#;

fn ids(sandbox: &Sandbox, words: &[&str]) -> Vec<i64> {
    let listed = sandbox.ok(&[&["tasks", "--jsonl"], words].concat());
    let id = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["id"].as_i64();
    listed.lines().map(|line| id(line).expect("an id")).collect()
}

/// Runs an engine until these tasks have ended.
fn work(sandbox: &Sandbox, last: &[&str]) {
    let engine = sandbox.start(&["start", "--instance", "web-1"]);
    for id in last {
        wait_until("it ends", || !["waiting", "running"].contains(&sandbox.status(id).as_str()));
    }
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

fn code_and_words(finished: &CommandOutput, code: i32, words: &[&str]) {
    assert_eq!(finished.code, Some(code), "{finished:?}");
    for word in words {
        assert!(finished.err.contains(word), "{word}: {finished:?}");
    }
}

fn tasks_by_filter(sandbox: &Sandbox) {
    // 1 and 2 do their work, 3 to 5 fail at once, 6 to 8 wait.
    sandbox.ok(&["create", "WaitingTask", QUICK, "--priority", "5"]);
    sandbox.ok(&[
        "create",
        "WaitingTask",
        QUICK,
        "--queue",
        "default",
        "--correlation",
        "order-17",
    ]);
    sandbox.ok(&["create", "FailingNotRetryTask", "--count", "3"]);
    sandbox.ok(&["create", "a", r#"{"user": {"id": 42}}"#, "--after", "1h"]);
    sandbox.ok(&["create", "a", r#"{"user": {"id": 7}}"#, "--after", "1h", "--queue", "mail"]);
    sandbox.ok(&["create", "b", "--after", "1h"]);
    work(sandbox, &["1", "2", "3", "4", "5"]);

    for (words, expected) in [
        (&[][..], vec![8, 7, 6, 5, 4, 3, 2, 1]),
        (&["status=failed"], vec![5, 4, 3]),
        (
            &["status=failed,stopped", "id>2"],
            vec![5, 4, 3, 2].into_iter().filter(|n| *n > 2).collect(),
        ),
        (&["status!=failed", "class!=a,b"], vec![2, 1]),
        (&["params.user.id=42"], vec![6]),
        (&["queue=mail"], vec![7]),
        (&["priority>=5"], vec![1]),
        (&["correlation=order-17"], vec![2]),
        (&["instance=web-1 status=stopped"], vec![2, 1]),
        (&["created>now-1h", "class~WAIT"], vec![2, 1]),
        (&["created<now-1h"], vec![]),
        (&["status=waiting", "--class", "a", "--limit", "1"], vec![7]),
        (&["status=waiting", "--before", "7"], vec![6]),
    ] {
        assert_eq!(ids(sandbox, words), expected, "{words:?}");
    }
    let page = sandbox.run(&["tasks", "status=failed", "--limit", "2"]);
    assert!(page.err.contains("tasks status=failed --before 4"), "{page:?}");
    let none = sandbox.run(&["tasks", "class=missing"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    assert!(none.err.contains("No tasks match"), "{none:?}");

    retries_and_cancels(sandbox);
    edits(sandbox);
    reruns_and_errors(sandbox);
    deletes_and_prunes(sandbox);
}

fn retries_and_cancels(sandbox: &Sandbox) {
    let unasked = sandbox.run(&["retry", "status=failed"]);
    code_and_words(
        &unasked,
        2,
        &["Retry 3 tasks?", "--yes", "FailingNotRetryTask", "Nothing was changed"],
    );
    let dry = sandbox.run(&["retry", "class~Failing", "--dry-run"]);
    code_and_words(&dry, 0, &["Would retry 3 tasks; nothing was done"]);
    assert_eq!(dry.out.lines().count(), 4, "{dry:?}");
    assert_eq!(ids(sandbox, &["status=failed"]), [5, 4, 3]);

    let retried = sandbox.run(&["retry", "status=failed", "id>3", "--yes"]);
    code_and_words(&retried, 0, &["To stop what was retried:", "cancel 4 5"]);
    assert_eq!(retried.out, "task 4 was retried\ntask 5 was retried\n");
    let cancel = ["cancel", "class~Failing", "--yes", "--json", "--reason", "a wrong filter"];
    let cancelled = sandbox.run(&cancel);
    code_and_words(&cancelled, 0, &["retry 5 4"]);
    // The audit has the reason, and leads from a task to the operation by a filter.
    assert!(sandbox.ok(&["audit", "--action", "tasks.cancel"]).contains("a wrong filter"));
    let by_task = sandbox.run(&["audit", "--task", "4"]);
    code_and_words(&by_task, 0, &["Operations by a filter name no tasks", "audit --action tasks"]);
    let first: Value = serde_json::from_str(cancelled.out.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        serde_json::json!({"id": 5, "outcome": "cancelled", "message": "task 5 was cancelled"})
    );
    let nothing = sandbox.run(&["cancel", "class~Failing", "--yes"]);
    code_and_words(&nothing, 0, &["No tasks match class~Failing status=waiting,running"]);
    // Those that are named, and whose time is over.
    let partly = sandbox.run(&["retry", "status=cancelled,stopped", "--yes"]);
    code_and_words(&partly, 5, &["skipped 2 of 4 tasks"]);
    let none = sandbox.run(&["retry", "status=stopped", "--yes"]);
    code_and_words(&none, 4, &["skipped 2 of 2 tasks"]);
    assert!(none.out.contains("`rerun` creates it again"), "{none:?}");
}

fn edits(sandbox: &Sandbox) {
    let edited = sandbox.run(&[
        "edit",
        "6",
        "--parameters",
        r#"{"n": 1}"#,
        "--priority",
        "-3",
        "--after",
        "2h",
    ]);
    code_and_words(
        &edited,
        0,
        &["To undo it:", r#"--parameters '{"user""#, "--at ", "--priority 0"],
    );
    assert_eq!(edited.out, "task 6 was changed\n");
    let task = sandbox.task("6");
    assert_eq!((&task["parameters"]["n"], &task["priority"]), (&1.into(), &(-3).into()));
    assert_eq!(task["queue"], "default", "what is not named stays");
    sandbox.ok(&["edit", "6", "--queue", "mail"]);
    assert_eq!(ids(sandbox, &["queue=mail"]), [7, 6]);
    code_and_words(&sandbox.run(&["edit", "1", "--priority", "1"]), 4, &["is stopped", "rerun"]);
    code_and_words(&sandbox.run(&["edit", "999", "--priority", "1"]), 3, &["there is no task 999"]);
    code_and_words(&sandbox.run(&["edit", "6"]), 2, &["nothing is to be changed"]);
    code_and_words(
        &sandbox.run(&["edit", "6", "--parameters", "[1]"]),
        2,
        &["a JSON object is needed"],
    );
    code_and_words(&sandbox.run(&["edit", "6", "--queue", ""]), 2, &["a queue needs a name"]);
}

fn reruns_and_errors(sandbox: &Sandbox) {
    let again = sandbox.run(&["rerun", "2"]);
    code_and_words(&again, 0, &["cancel 9"]);
    assert_eq!(again.out, "task 2 was created again as task 9\n");
    let task = sandbox.task("9");
    assert_eq!(
        (&task["context"]["rerun_of"], &task["correlation_id"]),
        (&2.into(), &"order-17".into())
    );
    sandbox.ok(&["rerun", "status=failed", "--yes"]);
    assert_eq!(ids(sandbox, &["context.rerun_of=3"]), [10]);
    code_and_words(&sandbox.run(&["rerun", "999"]), 3, &["there is no task 999"]);
    work(sandbox, &["4", "5", "9", "10"]);

    let errors = sandbox.run(&["errors"]);
    code_and_words(&errors, 0, &["4 tasks with an error: all there are"]);
    assert_eq!(errors.out.lines().count(), 3, "one group and its example: {errors:?}");
    let group = errors.out.lines().nth(1).unwrap();
    assert!(group.trim_start().starts_with("4  FailingNotRetryTask"), "{group}");
    let some = sandbox.run(&["errors", "--limit", "3", "--json"]);
    code_and_words(&some, 0, &["searched down to task", "--before"]);
    let group: Value = serde_json::from_str(some.out.trim()).expect("one group");
    assert_eq!((&group["count"], &group["per_hour"][11]), (&3.into(), &3.into()));
    assert_eq!(sandbox.ok(&["errors", "class=a"]), "");
}

fn deletes_and_prunes(sandbox: &Sandbox) {
    code_and_words(&sandbox.run(&["delete", "1"]), 2, &["Delete 1 task?", "--yes"]);
    let mixed = sandbox.run(&["delete", "1", "6", "999", "--yes"]);
    code_and_words(&mixed, 3, &["not found: 1 of 3 tasks"]);
    assert_eq!(
        mixed.out,
        "task 1 was deleted\ntask 6 was skipped: waiting (cancel it first)\ntask 999 does not exist\n"
    );
    assert_eq!(sandbox.run(&["show", "1"]).code, Some(3));
    sandbox.ok(&["delete", "class~Failing", "id<=4", "--yes"]);
    assert_eq!(ids(sandbox, &["class~Failing"]), [10, 5]);

    let prune = ["prune", "--status", "stopped", "--older-than"];
    let young = sandbox.run(&[&prune[..], &["1h"]].concat());
    code_and_words(&young, 0, &["There are no stopped tasks that ended at least 1 h ago"]);
    let dry = sandbox.run(&[&prune[..], &["0s", "--dry-run"]].concat());
    code_and_words(&dry, 0, &["Found 2 stopped tasks", "Nothing was done"]);
    code_and_words(&sandbox.run(&[&prune[..], &["0s"]].concat()), 2, &["--yes"]);
    assert_eq!(sandbox.ok(&[&prune[..], &["0s", "--yes"]].concat()), "2 tasks deleted\n");
    assert_eq!(ids(sandbox, &[]), [10, 8, 7, 6, 5]);
}

#[test]
fn tasks_by_filter_on_sqlite() {
    tasks_by_filter(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_by_filter_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    tokio::task::spawn_blocking(move || tasks_by_filter(&sandbox_on(&url)))
        .await
        .expect("the test");
}

/// The outcomes of many tasks are summed up.
#[test]
fn large_selections_are_summed_up() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--count", "450", "--after", "1h"]);
    let cancelled = sandbox.run(&["cancel", "class=a", "--yes"]);
    assert_eq!((cancelled.code, cancelled.out.as_str()), (Some(0), "450 tasks were cancelled\n"));
    let some = sandbox.run(&["retry", "class=a", "status=cancelled", "--limit", "60", "--yes"]);
    assert_eq!(some.out, "60 tasks were retried\n");
    assert_eq!(ids(&sandbox, &["status=waiting", "--limit", "100"]).len(), 60);
}

#[test]
fn filter_errors_name_their_position() {
    let sandbox = sandbox();
    sandbox.ok(&["create", "a", "--after", "1h"]);
    for (args, words) in [
        (
            &["tasks", "statsu=failed"][..],
            "at character 1: there is no field \"statsu\"; did you mean status?",
        ),
        (&["tasks", "status=failed clas=a"], "\n  status=failed clas=a\n                ^"),
        (&["tasks", "status=faild"], "did you mean failed?"),
        (&["retry", "created=now-2h", "--yes"], "does not take ="),
        (&["cancel", "error~\"open", "--yes"], "not closed"),
        (&["delete", "nonsense", "--yes"], "there is no field \"nonsense\""),
        (&["rerun", "1", "status=failed", "--yes"], "is not an id"),
        (&["cancel", "1x"], "use a whole number from 1"),
        (&["errors", "priority>high"], "priority is a whole number"),
        (
            &["prune", "--status", "waiting", "--older-than", "1d"],
            "[possible values: stopped, failed, cancelled]",
        ),
        (&["prune", "--status", "failed"], "--older-than"),
        (&["prune", "--status", "failed", "--older-than", "-1d"], "cannot be negative"),
        (&["tasks", "--watch"], "Not a terminal: leave out --watch"),
        (&["tasks", "--watch", "--json"], "cannot be used with"),
    ] {
        let finished = sandbox.run(args);
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{args:?}: {finished:?}");
        assert!(finished.err.contains(words), "{args:?}: {finished:?}");
    }
    assert_eq!(sandbox.status("1"), "waiting");
}

/// Text of tasks cannot control the terminal of the user who lists them.
#[test]
fn hostile_text_is_escaped() {
    let sandbox = sandbox();
    let class = "evil\u{202e}\u{2066}";
    sandbox.ok(&["create", class, r#"{"a": "\u001b]0;evil\u0007"}"#, "--after", "1h"]);
    for args in [
        &["tasks"][..],
        &["tasks", "params.a~evil"],
        &["cancel", "class~evil", "--dry-run"],
        &["cancel", "class~evil"],
        &["edit", "1", "--parameters", r#"{"b": 1}"#],
        &["errors", "status=waiting"],
        &["tasks", "class=\u{1b}[31m"],
        &["tasks", "\u{1b}[31m=1"],
    ] {
        let finished = sandbox.run(args);
        for text in [&finished.out, &finished.err] {
            let raw = text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}']);
            assert!(!raw, "{args:?}: {finished:?}");
        }
    }
}
