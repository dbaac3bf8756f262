use super::*;

#[test]
fn invalid_times_are_refused() {
    assert!(time("2026-12-24T18:00:00+01:00").is_ok());
    for text in ["", "18:00", "2026-12-24", "-009999-01-02T00:00:00Z"] {
        assert!(time(text).is_err(), "{text}");
    }
}

fn resolve(text: &str) -> Result<task_engine_core::dependency::NewFlow, InvalidField> {
    FlowDefinition::read(crate::fields::parse(text)?)?.resolve()
}

#[test]
fn flow_is_read() {
    let flow = resolve(
        r#"{"name": "nightly", "correlation_id": "night-1", "tasks": {
            "report": {"class": "report", "after_end": ["extract", "load"], "queue": "slow", "priority": 5},
            "load": {"class": "load", "after": "extract", "delay": "10m", "parameters": {"n": 1.50}},
            "extract": {"class": "extract", "after": [17, 18], "retry": {"maximum": 1}},
            "alert": {"class": "alert", "after_failure": ["load"]}}}"#,
    )
    .unwrap();
    assert_eq!(flow.name.as_deref(), Some("nightly"));
    assert_eq!(flow.correlation_id.as_deref(), Some("night-1"));
    let names: Vec<_> = flow.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["extract", "load", "report", "alert"]);
    assert_eq!(flow.tasks[0].dependencies.len(), 2);
    assert_eq!(flow.tasks[1].task.parameters.as_str(), r#"{"n": 1.50}"#);
    let ten_minutes = Duration::from_secs(600);
    assert_eq!(flow.tasks[1].task.due, task_engine_core::task::Due::After(ten_minutes));
    assert_eq!((flow.tasks[2].task.queue.as_str(), flow.tasks[2].task.priority), ("slow", 5));
}

#[test]
fn errors_of_flow_name_their_place() {
    let deep = format!(r#"{{"tasks": {{"a": {{"class": "a", "after": [{}]}}}}}}"#, "[".repeat(60));
    for (text, pointer, words) in [
        ("", "", "not JSON"),
        (deep.as_str(), "", "not JSON"),
        ("[]", "", "Expected an object, found a list"),
        ("{}", "/tasks", "a flow needs a task"),
        (r#"{"tasks": {}}"#, "/tasks", "a flow needs a task"),
        (r#"{"tasks": [{"class": "a"}]}"#, "/tasks", "expected an object of tasks by name"),
        (r#"{"task": {}}"#, "/task", "did you mean tasks?"),
        (r#"{"name": 5, "tasks": {"a": {"class": "a"}}}"#, "/name", "expected a string"),
        (r#"{"tasks": {"a": 5}}"#, "/tasks/a", "Expected an object, found a number"),
        (r#"{"tasks": {"a": {}}}"#, "/tasks/a/class", "the field is missing"),
        (r#"{"tasks": {"a": {"class": "a"}, "a": {"class": "b"}}}"#, "/tasks/a", "given twice"),
        (r#"{"tasks": {"a": {"class": "a", "class": "b"}}}"#, "/tasks/a/class", "given twice"),
        (
            r#"{"tasks": {"a": {"class": "a", "aftre": "b"}}}"#,
            "/tasks/a/aftre",
            "did you mean after?",
        ),
        (r#"{"tasks": {"a": {"class": "a", "key": "k"}}}"#, "/tasks/a/key", "Unknown field"),
        (
            r#"{"tasks": {"extract": {"class": "a"}, "b/c": {"class": "a", "after": ["extrat"]}}}"#,
            "/tasks/b~1c/after/0",
            r#"task "b/c" depends on "extrat", which is no task of the flow; did you mean "extract"?"#,
        ),
        (
            r#"{"tasks": {"a": {"class": "a", "after": "17"}}}"#,
            "/tasks/a/after",
            "without quotes: 17",
        ),
        (r#"{"tasks": {"a": {"class": "a", "after": 0}}}"#, "/tasks/a/after", "0 is not the id"),
        (
            r#"{"tasks": {"a": {"class": "a", "after": [1.5]}}}"#,
            "/tasks/a/after/0",
            "1.5 is not the id",
        ),
        (
            r#"{"tasks": {"a": {"class": "a", "after_end": {}}}}"#,
            "/tasks/a/after_end",
            "expected the name",
        ),
        (r#"{"tasks": {"a": {"class": "a", "delay": 5}}}"#, "/tasks/a/delay", "expected a string"),
        (
            r#"{"tasks": {"a": {"class": "a", "delay": "5m", "scheduled_at": "2026-12-24T18:00:00Z"}}}"#,
            "/tasks/a/delay",
            "`scheduled_at` or `delay`",
        ),
        (
            r#"{"tasks": {"a": {"class": "a", "after": "b"}, "b": {"class": "a", "after": "a"}}}"#,
            "/tasks/a",
            "wait for each other: a → b → a; remove one",
        ),
        (
            r#"{"tasks": {"a": {"class": "a"}, "b": {"class": "a", "after": "a", "after_end": "a"}}}"#,
            "/tasks/b",
            "under two conditions",
        ),
        (r#"{"tasks": {"": {"class": "a"}}}"#, "/tasks/", "1 to 200 bytes"),
        (
            r#"{"correlation_id": "", "tasks": {"a": {"class": "a"}}}"#,
            "/correlation_id",
            "correlation",
        ),
    ] {
        let error = resolve(text).unwrap_err();
        assert_eq!(error.pointer, pointer, "{text}: {}", error.message);
        assert!(error.message.contains(words), "{text}: {}", error.message);
    }
}

#[test]
fn size_of_flow_is_limited() {
    let tasks = |number: usize| {
        let tasks: Vec<_> = (0..number).map(|n| format!(r#""t{n}": {{"class": "a"}}"#)).collect();
        format!(r#"{{"tasks": {{{}}}}}"#, tasks.join(","))
    };
    assert_eq!(resolve(&tasks(10_000)).unwrap().tasks.len(), 10_000);
    let error = resolve(&tasks(10_001)).unwrap_err();
    assert_eq!(error.pointer, "/tasks");
    assert!(error.message.contains("at most 10000 tasks, this one has 10001"), "{error}");
}
