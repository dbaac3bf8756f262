//! Results of executables: values, errors under their own names, and
//! logs that keep their form.

use serde_json::json;

use super::executables::{class, create, ended, error, execution, file, is_here, stop};
use super::support::sandbox;
use task_engine_test_harness::{Sandbox, wait_until};

/// A class whose code is a script in a language.
fn script(sandbox: &Sandbox, name: &str, program: &str, text: &str) -> String {
    std::fs::write(sandbox.path(name), text).unwrap();
    let class = name.replace('.', "_");
    format!("[class.{class}]\ncommand = [\"{program}\", \"{name}\"]\nretry = {{ maximum = 0 }}\n")
}

#[test]
fn printed_text_is_result() {
    let sandbox = sandbox();
    let classes = [
        class("backup", "", "echo copied 3 files; echo done"),
        class("number", "", "echo 42"),
        class("bytes", "", "printf '\\377ok\\n'"),
    ];
    file(&sandbox, &classes.concat());
    let engine = sandbox.start(&["start"]);
    for (class, result) in [
        ("backup", json!("copied 3 files\ndone")),
        ("number", json!(42)),
        ("bytes", json!("\u{fffd}ok")),
    ] {
        let task = ended(&sandbox, &create(&sandbox, class, "{}"));
        assert_eq!((&task["status"], &execution(&task, 0)["result"]), (&json!("stopped"), &result));
        assert_eq!(task["executions"].as_array().unwrap().len(), 1, "{task}");
    }
    stop(engine);
}

const PYTHON: &str = "import sys\ndef fail():\n    raise ValueError('no such account')\nprint('working', file=sys.stderr)\nfail()\n";
const NODE: &str = "function fail() {\n  throw new TypeError('no such account');\n}\nfail();\n";
const RUBY: &str = "def fail_now\n  raise ArgumentError, 'no such account'\nend\nfail_now\n";

#[test]
fn uncaught_exception_has_its_name() {
    let sandbox = sandbox();
    let cases: Vec<_> = [
        ("fails.py", "python3", PYTHON, "ValueError"),
        ("fails.js", "node", NODE, "TypeError"),
        ("fails.rb", "ruby", RUBY, "ArgumentError"),
    ]
    .into_iter()
    .filter(|case| is_here(case.1))
    .collect();
    let classes: Vec<String> = cases
        .iter()
        .map(|(name, program, text, _)| script(&sandbox, name, program, text))
        .collect();
    file(&sandbox, &classes.concat());
    let engine = sandbox.start(&["start"]);
    for (name, _, _, exception) in cases {
        let task = ended(&sandbox, &create(&sandbox, &name.replace('.', "_"), "{}"));
        assert_eq!(error(&task), format!("{exception}: no such account"), "{task}");
        let trace = execution(&task, 0)["error"]["backtrace"].as_array().unwrap();
        assert!(trace.len() > 1, "{task}");
        if name == "fails.py" {
            assert_eq!(trace[0], "Traceback (most recent call last):");
            assert!(trace[1].as_str().unwrap().starts_with("  File \""), "{task}");
            // Its form is kept, in the error and in the log.
            let shown = sandbox.ok(&["show", task["id"].to_string().as_str()]);
            assert!(shown.contains("    Traceback (most recent"), "{shown}");
            assert!(shown.contains("      File \""), "{shown}");
            let logs = sandbox.ok(&["logs", task["id"].to_string().as_str()]);
            assert!(logs.contains("info     File \""), "{logs}");
        }
    }
    stop(engine);
}

#[test]
fn log_keeps_first_and_last_lines() {
    let sandbox = sandbox();
    file(&sandbox, &class("chatty", "", "seq 200000 >&2; echo 'out of disk' >&2; exit 3"));
    let engine = sandbox.start(&["start"]);
    let id = create(&sandbox, "chatty", "{}");
    wait_until("it fails", || {
        sandbox.task(&id)["executions"].as_array().is_some_and(|all| !all.is_empty())
            && sandbox.status(&id) == "waiting"
    });
    let logs = sandbox.ok(&["logs", &id]);
    assert!(logs.contains("  1\n") && logs.contains("  500\n"), "the first lines");
    assert!(logs.contains("… 199001 lines not kept (501 to 199501)"), "{}", &logs[..2000]);
    assert!(logs.trim_end().ends_with("out of disk"), "the last line");
    let shown = sandbox.ok(&["show", &id]);
    assert!(shown.contains("200001 lines, 20 of them here"), "{shown}");
    assert!(shown.contains("out of disk") && shown.contains("  199983\n"), "{shown}");
    stop(engine);
}

#[test]
fn exit_75_postpones_without_retry() {
    let sandbox = sandbox();
    let rule = "retry = { maximum = 1, first_delay = \"10ms\" }";
    let busy = "echo $TASK_ENGINE_ATTEMPT >> tries; [ $(wc -l < tries) -ge 5 ] && exit 0; echo '{\"snooze\": \"20ms\"}'; exit 75";
    file(
        &sandbox,
        &[
            class("busy", rule, busy).replace("''''", "'''"),
            class(
                "nonsense",
                "retry = { first_delay = \"1h\" }",
                "echo '{\"retry_after\": \"soon\"}'; exit 75",
            ),
        ]
        .concat(),
    );
    let engine = sandbox.start(&["start"]);
    let task = ended(&sandbox, &create(&sandbox, "busy", "{}"));
    assert_eq!((&task["status"], &task["attempts"]), (&json!("stopped"), &json!(5)), "{task}");
    assert_eq!(task["retry_number"], 0, "{task}");

    let id = create(&sandbox, "nonsense", "{}");
    wait_until("it is postponed", || {
        sandbox.task(&id)["executions"].as_array().is_some_and(|all| !all.is_empty())
            && sandbox.status(&id) == "waiting"
    });
    let task = sandbox.task(&id);
    let said = task["log"].to_string();
    assert!(said.contains("\\\"soon\\\" is not a time") && said.contains("warn"), "{said}");
    assert_eq!(execution(&task, 0)["status"], "snoozed", "{task}");
    stop(engine);
}
