//! What executables leave behind: results, errors under their own names, and
//! logs that keep their form.

use serde_json::json;

use super::executables::{class, create, ended, error, execution, file, is_here, stop};
use super::support::{Place, eventually};

/// A class whose code is a script in a language.
fn script(place: &Place, name: &str, program: &str, text: &str) -> String {
    std::fs::write(place.path(name), text).unwrap();
    let class = name.replace('.', "_");
    format!("[class.{class}]\ncommand = [\"{program}\", \"{name}\"]\nretry = {{ maximum = 0 }}\n")
}

#[test]
fn printed_text_is_result() {
    let place = Place::new();
    let classes = [
        class("backup", "", "echo copied 3 files; echo done"),
        class("number", "", "echo 42"),
        class("bytes", "", "printf '\\377ok\\n'"),
    ];
    file(&place, &classes.concat());
    let engine = place.start(&["start"]);
    for (class, result) in [
        ("backup", json!("copied 3 files\ndone")),
        ("number", json!(42)),
        ("bytes", json!("\u{fffd}ok")),
    ] {
        let task = ended(&place, &create(&place, class, "{}"));
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
    let place = Place::new();
    let cases: Vec<_> = [
        ("fails.py", "python3", PYTHON, "ValueError"),
        ("fails.js", "node", NODE, "TypeError"),
        ("fails.rb", "ruby", RUBY, "ArgumentError"),
    ]
    .into_iter()
    .filter(|case| is_here(case.1))
    .collect();
    let classes: Vec<String> =
        cases.iter().map(|(name, program, text, _)| script(&place, name, program, text)).collect();
    file(&place, &classes.concat());
    let engine = place.start(&["start"]);
    for (name, _, _, exception) in cases {
        let task = ended(&place, &create(&place, &name.replace('.', "_"), "{}"));
        assert_eq!(error(&task), format!("{exception}: no such account"), "{task}");
        let trace = execution(&task, 0)["error"]["backtrace"].as_array().unwrap();
        assert!(trace.len() > 1, "{task}");
        if name == "fails.py" {
            assert_eq!(trace[0], "Traceback (most recent call last):");
            assert!(trace[1].as_str().unwrap().starts_with("  File \""), "{task}");
            // Its form is kept, in the error and in the log.
            let shown = place.ok(&["show", task["id"].to_string().as_str()]);
            assert!(shown.contains("    Traceback (most recent"), "{shown}");
            assert!(shown.contains("      File \""), "{shown}");
            let logs = place.ok(&["logs", task["id"].to_string().as_str()]);
            assert!(logs.contains("info     File \""), "{logs}");
        }
    }
    stop(engine);
}

#[test]
fn log_keeps_first_and_last_lines() {
    let place = Place::new();
    file(&place, &class("chatty", "", "seq 200000 >&2; echo 'out of disk' >&2; exit 3"));
    let engine = place.start(&["start"]);
    let id = create(&place, "chatty", "{}");
    eventually("it fails", || {
        place.task(&id)["executions"].as_array().is_some_and(|all| !all.is_empty())
            && place.status(&id) == "waiting"
    });
    let logs = place.ok(&["logs", &id]);
    assert!(logs.contains("  1\n") && logs.contains("  500\n"), "the first lines");
    assert!(logs.contains("… 199001 lines not kept (501 to 199501)"), "{}", &logs[..2000]);
    assert!(logs.trim_end().ends_with("out of disk"), "the last line");
    let shown = place.ok(&["show", &id]);
    assert!(shown.contains("200001 lines, 20 of them here"), "{shown}");
    assert!(shown.contains("out of disk") && shown.contains("  199983\n"), "{shown}");
    stop(engine);
}

#[test]
fn exit_75_postpones_without_retry() {
    let place = Place::new();
    let rule = "retry = { maximum = 1, first_delay = \"10ms\" }";
    let busy = "echo $TASK_ENGINE_ATTEMPT >> tries; [ $(wc -l < tries) -ge 5 ] && exit 0; echo '{\"snooze\": \"20ms\"}'; exit 75";
    file(
        &place,
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
    let engine = place.start(&["start"]);
    let task = ended(&place, &create(&place, "busy", "{}"));
    assert_eq!((&task["status"], &task["attempts"]), (&json!("stopped"), &json!(5)), "{task}");
    assert_eq!(task["retry_number"], 0, "{task}");

    let id = create(&place, "nonsense", "{}");
    eventually("it is postponed", || {
        place.task(&id)["executions"].as_array().is_some_and(|all| !all.is_empty())
            && place.status(&id) == "waiting"
    });
    let task = place.task(&id);
    let said = task["log"].to_string();
    assert!(said.contains("\\\"soon\\\" is not a time") && said.contains("warn"), "{said}");
    assert_eq!(execution(&task, 0)["status"], "snoozed", "{task}");
    stop(engine);
}
