//! Flows from outside: run, listed, explained and repaired.

use serde_json::{Value, json};
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

fn json_of(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    serde_json::from_str(&sandbox.ok(arguments)).expect("JSON")
}

fn write(sandbox: &Sandbox, name: &str, text: &str) {
    std::fs::write(sandbox.path(name), text).unwrap();
}

const NIGHTLY: &str = r#"
name = "nightly"
correlation_id = "night-1"

[task.extract]
class = "WaitingTask"
parameters = { waiting_time = 600 }

[task.load]
class = "FailingNotRetryTask"
after = "extract"
priority = 5

[task.report]
class = "WaitingTask"
parameters = { waiting_time = 0.01 }
after = ["load"]

[task.clean]
class = "WaitingTask"
parameters = { waiting_time = 0.01 }
after_end = ["load", "extract"]

[task.alert]
class = "WaitingTask"
parameters = { waiting_time = 0.01 }
after_failure = "load"
"#;

fn runs_explains_and_repairs(sandbox: &Sandbox) {
    write(sandbox, "flow.toml", NIGHTLY);
    let created = json_of(sandbox, &["flow", "run", "flow.toml", "--json"]);
    assert_eq!(created["correlation_id"], "night-1");
    let id = |name: &str| created["tasks"][name].to_string();
    let (extract, load, report) = (id("extract"), id("load"), id("report"));

    let listed = json_of(sandbox, &["flow", "list", "--json"]);
    assert_eq!((&listed["name"], &listed["state"]), (&json!("nightly"), &json!("open")));
    assert_eq!(
        (&listed["counts"]["blocked"], &listed["counts"]["waiting"]),
        (&json!(4), &json!(1))
    );
    let text = sandbox.ok(&["flows"]);
    assert!(text.contains("night-1  nightly  open") && text.contains("0 of 5 ended"), "{text}");

    let shown = sandbox.ok(&["flow", "show", "night-1"]);
    assert!(shown.starts_with("Flow night-1: 5 tasks (4 blocked, 1 waiting)"), "{shown}");
    for words in [
        "load (FailingNotRetryTask) blocked, after extract\n",
        "report (WaitingTask) blocked, after load\n",
        "blocked, after the end of extract, load\n",
        "blocked, after a failure of load\n",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let trace = json_of(sandbox, &["trace", &load, "--json"]);
    let tasks = trace["tasks"].as_array().unwrap();
    let of_load = tasks.iter().find(|task| task["name"] == "load").unwrap();
    assert_eq!(of_load["dependencies"][0]["condition"], "success");

    let why = sandbox.ok(&["why", &load]);
    let first = format!(
        "1. it waits for the task that it depends on: task {extract} (extract) waits (`task-engine why {extract}` says why)"
    );
    assert!(why.contains(&first), "{why}");
    let why = json_of(sandbox, &["why", &id("clean"), "--json"]);
    assert_eq!(why["reasons"][0]["reason"], "blocked");
    assert_eq!(why["reasons"][0]["open"]["counted"], 2);
    let list = sandbox.ok(&["tasks", &format!("id={load}")]);
    assert!(list.contains("blocked") && list.contains("after other tasks"), "{list}");
    let show = sandbox.ok(&["show", &load]);
    assert!(show.contains("after       extract (task "), "{show}");
    let one = json_of(sandbox, &["show", &load, "--json"]);
    assert_eq!(one["dependencies"][0]["name"], "extract");
    assert_eq!(one["is_blocked"], true);
    let retried = sandbox.run(&["retry", &load, "--yes"]);
    assert!(retried.out.contains("waits for tasks that it depends on"), "{retried:?}");

    // It fails: what needs its success is cancelled, the rest runs.
    let edited = r#"{"waiting_time": 0.01}"#;
    sandbox.ok(&["edit", &extract, "--parameters", edited]);
    let engine = sandbox.start(&["start", "--samples"]);
    wait_until("all have ended", || {
        json_of(sandbox, &["flow", "list", "--json"])["state"] != "open"
    });
    for (name, status) in [
        ("extract", "stopped"),
        ("load", "failed"),
        ("report", "cancelled"),
        ("clean", "stopped"),
        ("alert", "stopped"),
    ] {
        assert_eq!(sandbox.status(&id(name)), status, "{name}");
    }
    let why = sandbox.ok(&["why", &report]);
    assert!(why.contains("with DependencyFailed: task"), "{why}");
    let second = format!(
        "2. it depends on task {load} (load), which failed; `task-engine retry {load}` restores"
    );
    assert!(why.contains(&second), "{why}");
    let refused = sandbox.run(&["delete", &load, "--yes"]);
    assert!(refused.out.contains("depends on it"), "{refused:?}");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));

    let retried = sandbox.run(&["retry", "correlation=night-1", "--yes"]);
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert_eq!(sandbox.task(&report)["is_blocked"], true, "it was restored");
    let cancelled = sandbox.run(&["cancel", "correlation=night-1", "--yes"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    wait_until("nothing is open", || {
        json_of(sandbox, &["flow", "list", "--json"])["counts"]["blocked"] == 0
    });
    assert_eq!(json_of(sandbox, &["flow", "list", "--json"])["state"], "cancelled");
}

#[test]
fn flow_is_run_explained_and_repaired_on_sqlite() {
    runs_explains_and_repairs(&sandbox());
}

#[test]
fn flow_is_run_explained_and_repaired_on_postgresql() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    runs_explains_and_repairs(&sandbox_on(&url));
}

/// A task that is created again depends on the new one of a selected task, and on the same
/// tasks otherwise.
fn rerun_keeps_dependencies(sandbox: &Sandbox) {
    write(
        sandbox,
        "task-engine.toml",
        r#"
[class.three]
command = ["sh", "-c", "echo 3"]
[class.fails]
command = ["sh", "-c", "exit 100"]
[class.print]
command = ["sh", "-c", "printf %s \"$TASK_ENGINE_DEPENDENCIES\""]
"#,
    );
    let flow = json!({"correlation_id": "night", "tasks": {
        "extract": {"class": "three"},
        "load": {"class": "print", "after": "extract"},
        "bad": {"class": "fails"},
        "report": {"class": "print", "after": "bad"},
        "later": {"class": "print", "after_end": "report"},
    }});
    write(sandbox, "flow.json", &flow.to_string());
    let engine = sandbox.start(&["start"]);
    let wait = sandbox.run(&["flow", "run", "flow.json", "--wait", "--json"]);
    assert_eq!(wait.code, Some(10), "{wait:?}");
    let created: Value = serde_json::from_str(wait.out.lines().next().unwrap()).unwrap();
    let id = |name: &str| created["tasks"][name].to_string();
    let result = |id: &str| {
        wait_until("it has ended", || sandbox.status(id) == "stopped");
        let task = sandbox.task(id);
        task["executions"].as_array().unwrap().last().unwrap()["result"].clone()
    };
    let extract = |id: &str| json!({"extract": {"id": id.parse::<i64>().unwrap(), "status": "stopped", "result": 3}});
    let (first, load, bad, report) = (id("extract"), id("load"), id("bad"), id("report"));
    assert_eq!(result(&load), extract(&first));

    // Alone, it reads what the old one read.
    let again = json_of(sandbox, &["rerun", &load, "--json"]);
    let again = again["created_id"].to_string();
    assert_eq!(result(&again), extract(&first));
    let task = sandbox.task(&again);
    assert_eq!(
        (&task["context"]["rerun_of"].to_string(), &task["correlation_id"]),
        (&load, &json!("night"))
    );
    // So does the copy of the copy.
    let third = json_of(sandbox, &["rerun", &again, "--json"])["created_id"].to_string();
    assert_eq!(result(&third), extract(&first));
    // Together, it reads what the new one returns.
    let both = sandbox.ok(&["rerun", &first, &load, "--json", "--yes"]);
    let new: Vec<Value> = both.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (new_first, new_load) =
        (new[0]["created_id"].to_string(), new[1]["created_id"].to_string());
    assert_eq!((new[0]["id"].to_string(), new[1]["id"].to_string()), (first.clone(), load.clone()));
    assert_eq!(result(&new_load), extract(&new_first));

    // It would be cancelled at once: nothing is created, neither what needs it.
    let before = sandbox.tasks().len();
    let skipped = sandbox.run(&["rerun", &report, "--yes"]);
    assert!(
        skipped.out.contains("a task that it depends on has not ended as it needs"),
        "{skipped:?}"
    );
    let skipped = sandbox.run(&["rerun", &report, "--json"]);
    assert_eq!(skipped.code, Some(4), "{skipped:?}");
    assert!(skipped.out.contains(r#""outcome":"skipped_dependency""#), "{skipped:?}");
    assert_eq!(sandbox.tasks().len(), before);
    // A condition on its end holds.
    let later = json_of(sandbox, &["rerun", &id("later"), "--json"])["created_id"].to_string();
    assert_eq!(result(&later)["report"]["status"], "cancelled");
    // With what has failed, it waits for that.
    let both = sandbox.ok(&["rerun", &bad, &report, "--json", "--yes"]);
    assert_eq!(both.matches(r#""outcome":"rerun""#).count(), 2, "{both}");

    // What was removed is left out.
    wait_until("all have ended", || {
        json_of(sandbox, &["flow", "list", "--json"])["state"] != "open"
    });
    let old = sandbox.ok(&["create", "three"]).trim().to_owned();
    let dependent = sandbox.ok(&["create", "print", "--after", &old]).trim().to_owned();
    let alone =
        json!({&old: {"id": old.parse::<i64>().unwrap(), "status": "stopped", "result": 3}});
    assert_eq!(result(&dependent), alone);
    wait_until("it is deleted", || {
        sandbox.run(&["delete", &old, "--yes"]).out.contains("was deleted")
    });
    let again = json_of(sandbox, &["rerun", &dependent, "--json"])["created_id"].to_string();
    assert_eq!(result(&again), Value::Null);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn rerun_keeps_dependencies_on_sqlite() {
    rerun_keeps_dependencies(&sandbox());
}

#[test]
fn rerun_keeps_dependencies_on_postgresql() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    rerun_keeps_dependencies(&sandbox_on(&url));
}

#[test]
fn wait_says_what_failed() {
    let sandbox = sandbox();
    let flow = |class: &str| {
        json!({"tasks": {
            "first": {"class": class, "parameters": {"waiting_time": 0.01}},
            "second": {"class": "WaitingTask", "parameters": {"waiting_time": 0.01}, "after": "first"},
            "alert": {"class": "WaitingTask", "parameters": {"waiting_time": 0.01}, "after_failure": "first"},
        }})
        .to_string()
    };
    write(&sandbox, "good.json", &flow("WaitingTask"));
    write(&sandbox, "bad.json", &flow("FailingNotRetryTask"));
    let late = sandbox.run(&["flow", "run", "good.json", "--wait", "--timeout", "50ms"]);
    assert_eq!(late.code, Some(8), "{late:?}");
    assert!(
        late.err.contains("has not ended after") && late.err.contains("0 of 3 ended"),
        "{late:?}"
    );
    let engine = sandbox.start(&["start", "--samples"]);
    let good = sandbox.run(&["flow", "run", "good.json", "--wait"]);
    // The alert was not needed, which is no failure.
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.out.contains("  first\n") && good.err.contains("2 tasks succeeded"), "{good:?}");
    let bad = sandbox.run(&["flow", "run", "bad.json", "--wait", "--json"]);
    assert_eq!(bad.code, Some(10), "{bad:?}");
    let ended: Value = serde_json::from_str(bad.out.lines().nth(1).unwrap()).unwrap();
    assert_eq!(ended["failed"][0]["name"], "first", "{ended}");
    assert_eq!((&ended["counts"]["failed"], &ended["counts"]["cancelled"]), (&json!(1), &json!(1)));
    assert!(
        bad.err.contains("1 task of flow")
            && bad.err.contains("and 1 was cancelled because of that"),
        "{bad:?}"
    );
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}

#[test]
fn task_is_created_after_others() {
    let sandbox = sandbox();
    for _ in 0..3 {
        sandbox.ok(&["create", "a", "--after", "1h"]);
    }
    let created = sandbox.run(&[
        "create",
        "b",
        "--after",
        "1,2",
        "--after",
        "10m",
        "--after-failure",
        "3",
        "--priority",
        "5",
    ]);
    assert_eq!((created.code, created.out.as_str()), (Some(0), "4\n"), "{created:?}");
    assert!(
        created.err.contains("Created 1 task, which starts after 3 tasks, due in 10 min"),
        "{created:?}"
    );
    let task = sandbox.task("4");
    assert_eq!((&task["is_blocked"], &task["priority"]), (&json!(true), &json!(5)));
    let of_4: Vec<_> = task["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["id"].clone(), it["condition"].clone()))
        .collect();
    assert_eq!(
        of_4,
        [(json!(1), json!("success")), (json!(2), json!("success")), (json!(3), json!("failure"))]
    );
    sandbox.ok(&["cancel", "1", "--yes"]);
    wait_until("it was cancelled, too", || sandbox.status("4") == "cancelled");
    for (arguments, code, words) in [
        (vec!["create", "b", "--after", "99"], 4, "task 99 does not exist"),
        (vec!["create", "b", "--after", "0"], 2, "0"),
        (vec!["create", "b", "--after", "soon"], 2, "or write ids of tasks, like 17"),
        (vec!["create", "b", "--after", "1h", "--after", "2h"], 2, "several durations"),
        (vec!["create", "b", "--at", "18:00", "--after", "5s"], 2, "cannot be used with"),
        (vec!["create", "b", "--after", "2", "--count", "2"], 2, "write them as a flow"),
        (vec!["create", "b", "--after", "2", "--unique", "k"], 2, "unique key"),
        (vec!["create", "b", "--after", "2", "--after-end", "2"], 2, "under two conditions"),
    ] {
        let refused = sandbox.run(&arguments);
        assert_eq!(refused.code, Some(code), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(words), "{arguments:?}: {refused:?}");
    }
    assert_eq!(sandbox.ok(&["tasks", "--json"]).lines().count(), 4, "nothing else was created");
}

#[test]
fn wrong_flows_create_nothing() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let task = "class = 'a'\n";
    for (text, code, words) in [
        (
            format!("[task.a]\n{task}after = 'b'\n[task.b]\n{task}after = 'a'\n"),
            2,
            "wait for each other: a → b → a",
        ),
        (
            format!("[task.load]\n{task}[task.b]\n{task}after = ['laod']\n"),
            2,
            "flow.toml:5:10: after/0: task \"b\" depends on \"laod\", which is no task of the flow; did you mean \"load\"?",
        ),
        (format!("[task.a]\n{task}[task.a]\n{task}"), 2, "flow.toml:3:"),
        (format!("[task.a]\n{task}after = 99\n"), 4, "task 99 does not exist"),
        (
            "[task.a]\nclass = 5\n".to_owned(),
            2,
            "flow.toml:2:1: class: expected a string, found a number",
        ),
        ("[task.a]\nclass = 'a'\nparameters = 'x'\n".to_owned(), 2, "flow.toml:3:1: parameters:"),
        ("[job.a]\nclass = 'a'\n".to_owned(), 2, "flow.toml:1:2: Unknown field \"job\""),
        (String::new(), 2, "a flow needs a task"),
        (
            format!(
                "{{\"tasks\": {{{}}}}}",
                (0..10_001)
                    .map(|n| format!("\"t{n}\": {{\"class\": \"a\"}}"))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            2,
            "at most 10000 tasks",
        ),
    ] {
        let name = if text.starts_with('{') { "flow.json" } else { "flow.toml" };
        write(&sandbox, name, &text);
        let refused = sandbox.run(&["flow", "run", name]);
        let short: String = text.chars().take(200).collect();
        assert_eq!(refused.code, Some(code), "{short}: {refused:?}");
        assert!(refused.err.contains(words), "{short}: {}", refused.err);
    }
    for (name, code, words) in
        [("none.toml", 3, "there is no file none.toml"), (".", 2, "cannot read .")]
    {
        let refused = sandbox.run(&["flow", "run", name]);
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    assert_eq!(sandbox.ok(&["tasks", "--json"]), "");
    assert_eq!(sandbox.ok(&["flow", "list", "--json"]), "");
    let none = sandbox.run(&["flow", "list"]);
    assert!(none.err.contains("There are no flows"), "{none:?}");
}

#[test]
fn classes_of_file_give_queue_priority_and_secrets() {
    let sandbox = sandbox();
    write(&sandbox, "load.sh", "#!/bin/sh\nexit 0\n");
    write(
        &sandbox,
        "task-engine.toml",
        "[class.load]\ncommand = ['sh', 'load.sh']\nqueue = 'slow'\npriority = 7\nsecret = ['token']\n",
    );
    let flow = "[task.a]\nclass = 'load'\nparameters = { token = 'hunter2' }\n[task.b]\nclass = 'load'\nqueue = 'fast'\npriority = 0\nafter = 'a'\n";
    let ran = sandbox.run_with_input(&["flow", "run", "-"], flow.as_bytes());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (a, b) = (sandbox.task("1"), sandbox.task("2"));
    assert_eq!((&a["queue"], &a["priority"]), (&json!("slow"), &json!(7)));
    assert_eq!((&b["queue"], &b["priority"]), (&json!("fast"), &json!(0)));
    assert_eq!(a["parameters"], json!({"token": "[secret]"}));
}

/// One process a task gets the results in a variable, a long-running one with its task.
#[test]
fn executables_get_results_of_dependencies() {
    let sandbox = sandbox();
    write(
        &sandbox,
        "task-engine.toml",
        r#"
[class.three]
command = ["sh", "-c", "echo 3"]
[class.fails]
command = ["sh", "-c", "echo closed >&2; exit 100"]
[class.large]
command = ["sh", "-c", "printf '\"'; head -c 120000 /dev/zero | tr '\\0' x; printf '\"'"]
[class.print]
command = ["sh", "-c", "printf %s \"$TASK_ENGINE_DEPENDENCIES\""]
[worker.python]
command = ["python3", "worker.py"]
classes = ["answer"]
"#,
    );
    write(
        &sandbox,
        "worker.py",
        r#"
import json, sys
for line in sys.stdin:
    task = json.loads(line)
    print(json.dumps({"id": task["id"], "result": task.get("dependencies")}), flush=True)
"#,
    );
    let tasks = json!({
        "three": {"class": "three"}, "fails": {"class": "fails"}, "large": {"class": "large"},
        "print": {"class": "print", "after": "three", "after_end": "fails"},
        "omit": {"class": "print", "after": ["three", "large"]},
        "answer": {"class": "answer", "after": ["three", "large"]},
        "alone": {"class": "answer"},
    });
    write(&sandbox, "flow.json", &json!({"tasks": tasks}).to_string());
    let engine = sandbox.start(&["start"]);
    let created = sandbox.run(&["flow", "run", "flow.json", "--wait", "--json"]);
    // One task failed, as it should.
    assert_eq!(created.code, Some(10), "{created:?}");
    let ids: Value = serde_json::from_str(created.out.lines().next().unwrap()).unwrap();
    let result = |name: &str| {
        let task = json_of(&sandbox, &["show", &ids["tasks"][name].to_string(), "--json"]);
        task["executions"][0]["result"].clone()
    };
    let print = result("print");
    assert_eq!(
        print["three"],
        json!({"id": ids["tasks"]["three"], "status": "stopped", "result": 3})
    );
    assert_eq!(print["fails"]["status"], "failed");
    assert_eq!(print["fails"]["error"]["message"], "exit code 100: closed");
    let omitted = result("omit");
    assert_eq!(
        omitted["three"],
        json!({"id": ids["tasks"]["three"], "status": "stopped", "result_omitted": true})
    );
    let answer = result("answer");
    assert_eq!(answer["three"]["result"], 3);
    assert_eq!(answer["large"]["result"].as_str().unwrap().len(), 120_000);
    assert_eq!(result("alone"), Value::Null);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
}
