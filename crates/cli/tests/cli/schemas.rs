//! Schemas of classes: from the announcement of a worker to refused parameters and to types
//! in other languages.

use std::fs;

use serde_json::{Value, json};
use task_engine_test_harness::{RunningProgram, Sandbox, TestServer, command, run_to_end};

use super::executables::{file, stop};
use super::support::{sandbox, sandbox_on};

const WORKER: &str = r#"
import json, sys

print(open("announcement").read(), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    if "parameters" in task: print(json.dumps({"id": task["id"], "result": 1}), flush=True)
"#;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "The address."},
            "copies": {"type": "integer"},
            "password": {"type": "integer"},
        },
        "required": ["to"],
        "additionalProperties": false,
    })
}

fn announcing(sandbox: &Sandbox, classes: &Value) -> RunningProgram {
    fs::write(sandbox.path("worker.py"), WORKER).unwrap();
    let announcement = json!({"protocol": 1, "classes": classes}).to_string();
    fs::write(sandbox.path("announcement"), announcement).unwrap();
    file(sandbox, "[worker.python]\ncommand = [\"python3\", \"worker.py\"]\n");
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    engine
}

fn refused(sandbox: &Sandbox, args: &[&str], input: &str) -> String {
    let tasks = sandbox.tasks().len();
    let output = sandbox.run_with_input(args, input.as_bytes());
    assert_eq!(output.code, Some(2), "{args:?}: {} {}", output.out, output.err);
    assert_eq!(sandbox.tasks().len(), tasks, "{args:?} creates nothing");
    output.err
}

fn parameters_are_checked(sandbox: &Sandbox) {
    let classes = json!([
        {"class": "send_mail", "schema": schema(), "secret": ["password"], "queue": "later"},
        {"class": "plain"},
        {"class": "broken", "schema": {"$ref": "https://localhost:1/schema.json"}},
    ]);
    let engine = announcing(sandbox, &classes);
    sandbox.ok(&["queues", "pause", "later"]);

    let error = refused(sandbox, &["create", "send_mail"], "");
    assert!(
        error.contains("class send_mail does not accept these parameters: /to: the field is missing\nNothing was changed. Pass --no-check"),
        "{error}"
    );
    let error = refused(sandbox, &["create", "send_mail", r#"{"to": "a", "coppies": 1}"#], "");
    assert!(error.contains("/coppies: unknown field; did you mean copies?"), "{error}");
    let secret = r#"{"to": "a", "password": "s3cr3t-text"}"#;
    let error = refused(sandbox, &["create", "send_mail", secret], "");
    assert!(error.contains("/password") && !error.contains("s3cr3t"), "{error}");
    let schedule = ["schedules", "add", "nightly", "send_mail", "{}", "--every", "1h"];
    refused(sandbox, &schedule, "");
    assert_eq!(sandbox.run(&["schedules", "show", "nightly"]).code, Some(3));
    let flow = r#"{"tasks": {"first": {"class": "plain"}, "second": {"class": "send_mail", "parameters": {"to": 7}}}}"#;
    let error = refused(sandbox, &["flow", "run", "-"], flow);
    assert!(
        error.contains("task second: class send_mail")
            && error.contains("/to: expected a string, found a number"),
        "{error}"
    );

    let id = sandbox.ok(&["create", "send_mail", r#"{"to": "ada"}"#, "--queue", "later"]);
    let id = id.trim();
    let edit = ["edit", id, "--parameters", r#"{"copies": 2}"#];
    let error = refused(sandbox, &edit, "");
    assert!(error.contains("/to: the field is missing"), "{error}");
    assert_eq!(sandbox.task(id)["parameters"], json!({"to": "ada"}));
    sandbox.ok(&[&edit[..], &["--no-check"]].concat());
    assert_eq!(sandbox.task(id)["parameters"], json!({"copies": 2}));
    // Its other fields can be changed.
    sandbox.ok(&["edit", id, "--priority", "3"]);
    sandbox.ok(&["create", "send_mail", "--no-check", "--queue", "later"]);
    sandbox.ok(&[&schedule[..], &["--no-check"]].concat());
    let error =
        refused(sandbox, &["schedules", "set", "nightly", "--parameters", r#"{"to": 1}"#], "");
    assert!(error.contains("/to: expected a string"), "{error}");
    sandbox.ok(&["schedules", "set", "nightly", "--parameters", r#"{"to": "ada"}"#]);
    sandbox.ok(&["schedules", "set", "nightly", "--every", "2h"]);
    sandbox.ok(&["create", "plain", r#"{"any": 1}"#]);
    let output = sandbox.run(&["create", "broken", r#"{"any": 1}"#]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert!(output.err.contains("Warning: The schema of class broken that"), "{}", output.err);

    lists_classes(sandbox);
    prints_types(sandbox);
    stop(engine);
    // Only live engines count.
    sandbox.ok(&["create", "send_mail", "--queue", "later"]);
    assert_eq!(sandbox.ok(&["classes", "--json"]), "", "no engine is alive");
    assert_eq!(sandbox.run(&["classes", "--json-schema", "send_mail"]).code, Some(3));
}

fn lists_classes(sandbox: &Sandbox) {
    let list = sandbox.ok(&["classes"]);
    let line = |class: &str| {
        let found = list.lines().find(|line| line.starts_with(class));
        found.unwrap_or_else(|| panic!("{list}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("send_mail")[2..], ["later", "0", "none", "10", "yes"], "{list}");
    assert_eq!(line("plain").last(), Some(&"no"));
    assert_eq!(line("broken").last(), Some(&"unusable"));
    let lines = sandbox.ok(&["classes", "--json"]);
    let all: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= 3);
    let mail = all.iter().find(|line| line["class"] == "send_mail").unwrap();
    assert_eq!(mail["options"]["schema"], schema());
    assert_eq!(mail["schemas_differ"], false);
    let printed = sandbox.ok(&["classes", "--json-schema", "send_mail"]);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), schema());
    for (class, why) in [("plain", "has no schema"), ("send_mall", "did you mean send_mail?")] {
        let output = sandbox.run(&["classes", "--json-schema", class]);
        assert_eq!(output.code, Some(3));
        assert!(output.err.contains(why), "{}", output.err);
        assert_eq!(sandbox.run(&["types", "python", class]).code, Some(3));
    }
}

fn prints_types(sandbox: &Sandbox) {
    let text = sandbox.ok(&["types", "typescript"]);
    assert!(text.contains("export interface SendMail {\n  copies?: number;\n"), "{text}");
    assert!(!text.contains("broken"), "{text}");
    let text = sandbox.ok(&["types", "python", "send_mail"]);
    let mut python = command("python3");
    python.args(["-c", "import sys; compile(sys.stdin.read(), 'types.py', 'exec')"]);
    let output = run_to_end(python, text.as_bytes());
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert!(text.contains("class SendMail(TypedDict):"), "{text}");
}

#[test]
fn parameters_are_checked_on_sqlite() {
    parameters_are_checked(&sandbox());
}

#[test]
fn parameters_are_checked_on_postgres() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(TestServer::shared().create_database());
    parameters_are_checked(&sandbox_on(&url));
}
