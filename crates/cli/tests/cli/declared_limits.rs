//! Limits in task-engine.toml, of executables, and of tasks that a command creates.

use std::fs;

use serde_json::json;
use task_engine_test_harness::{Sandbox, TestServer, wait_until};

use super::executables::{class, create, ended, execution, file, stop};
use super::support::{sandbox, sandbox_on};

/// Appends its parameters to `started`, and runs until the file `go` exists.
const HOLD: &str = "cat >> started; while ! test -e go; do sleep 0.02; done";

fn running(sandbox: &Sandbox) -> usize {
    sandbox.tasks().iter().filter(|task| task["status"] == "running").count()
}

fn started(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("started")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(|line| line.replace(' ', "")).collect();
    lines.sort();
    lines
}

fn file_limits_apply(sandbox: &Sandbox) {
    let limits = "limit = { max = 1, key = \"customer\" }\nrate = { max = 100, per = \"1s\" }";
    let text =
        class("sync", limits, HOLD) + &class("plain", "", "echo 1") + "[limit.api]\nmax = 1\n";
    file(sandbox, &text);
    let checked = sandbox.run(&["check"]);
    assert!(checked.err.contains("2 classes, 3 limits, no errors"), "{checked:?}");
    // Two engines: the limits are of the database.
    let engines =
        ["a", "b"].map(|name| sandbox.start(&["start", "--workers", "4", "--instance", name]));
    for customer in ["acme", "acme", "acme", "globex"] {
        create(sandbox, "sync", &json!({ "customer": customer }).to_string());
    }
    wait_until("one of each runs", || started(sandbox).len() == 2);
    // Tasks without limits are not held up.
    ended(sandbox, &create(sandbox, "plain", "{}"));
    assert_eq!(started(sandbox), [r#"{"customer":"acme"}"#, r#"{"customer":"globex"}"#]);
    assert_eq!(running(sandbox), 2);
    fs::write(sandbox.path("go"), "").unwrap();
    wait_until("all end", || sandbox.tasks().iter().all(|task| task["status"] == "stopped"));
    for engine in engines {
        stop(engine);
    }
}

#[test]
fn file_limits_apply_on_sqlite() {
    file_limits_apply(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn file_limits_apply_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    file_limits_apply(&sandbox_on(&url));
}

#[test]
fn created_task_names_limit() {
    let sandbox = sandbox();
    file(&sandbox, &(class("call", "", HOLD) + "[limit.api]\nmax = 1\n"));
    let refused = sandbox.run(&["create", "call", "{}", "--limit", "api=acme"]);
    assert_ne!(refused.code, Some(0), "no engine has declared the limit yet");
    assert!(refused.err.contains("limit \"api\" does not exist"), "{refused:?}");
    let engine = sandbox.start(&["start", "--instance", "e"]);
    let call = |key: &str| {
        let (parameters, limit) = (json!({ "key": key }).to_string(), format!("api={key}"));
        sandbox.run(&["create", "call", &parameters, "--limit", &limit])
    };
    let mut ids = Vec::new();
    for key in ["acme", "acme", "globex"] {
        wait_until("the limit is declared", || {
            let created = call(key);
            ids.extend((created.code == Some(0)).then(|| created.out.trim().to_owned()));
            created.code == Some(0)
        });
    }
    wait_until("one of each runs", || started(&sandbox).len() == 2);
    let context = &sandbox.task(&ids[0])["context"];
    assert_eq!(context["limits"], json!({"api": "acme"}));
    assert_eq!(sandbox.status(&ids[1]), "waiting");
    fs::write(sandbox.path("go"), "").unwrap();
    for id in &ids {
        assert_eq!(ended(&sandbox, id)["status"], "stopped");
    }
    let many = ["create", "call", "{}", "--limit", "a", "--limit", "b", "--limit", "c"];
    let many = [&many[..], &["--limit", "d"]].concat();
    let refused = sandbox.run(&many);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("at most 3 limits"), "{refused:?}");
    stop(engine);
}

#[test]
fn rate_limited_program_closes_key() {
    let sandbox = sandbox();
    let script = r#"
read -r parameters
echo "$parameters" >> started
case $parameters in *refused*)
  test "$TASK_ENGINE_ATTEMPT" = 1 && echo '{"rate_limited": "2s"}' && exit 75 ;;
esac
exit 0"#;
    file(&sandbox, &class("call", "limit = { max = 5, key = \"customer\" }", script));
    let engine = sandbox.start(&["start", "--instance", "e"]);
    let of = |customer: &str, what: &str| {
        let parameters = json!({ "customer": customer, "what": what });
        create(&sandbox, "call", &parameters.to_string())
    };
    let first = of("acme", "refused");
    wait_until("it was refused", || {
        !sandbox.task(&first)["executions"].as_array().unwrap().is_empty()
    });
    let same = of("acme", "same");
    let other = of("globex", "other");
    ended(&sandbox, &other);
    assert_eq!(sandbox.status(&same), "waiting", "its key is closed");
    ended(&sandbox, &same);
    let first = ended(&sandbox, &first);
    assert_eq!(execution(&first, 0)["status"], "snoozed");
    assert_eq!(execution(&first, 1)["retry_number"], 0);
    stop(engine);
}

#[test]
fn invalid_limit_has_position() {
    let sandbox = sandbox();
    file(&sandbox, "[class.a]\ncommand = [\"sh\"]\nlimit = 0\n");
    for command in [&["check"][..], &["start"]] {
        let refused = sandbox.run(command);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let expected = "task-engine.toml:3:9: write a whole number from 1 to 10000";
        assert!(refused.err.contains(expected), "{refused:?}");
    }
}
