use super::*;

fn request(line: &str) -> Result<DurableRequest, String> {
    parse(&serde_json::from_str(line).unwrap())
}

#[test]
fn all_requests_are_parsed() {
    let read = |line: &str| format!("{:?}", request(line).unwrap());
    assert_eq!(read(r#"{"id": "7.1", "step": "charge"}"#), r#"BeginStep("charge")"#);
    let result = read(r#"{"id": "7.1", "step": "charge", "result": null}"#);
    assert!(result.starts_with(r#"EndStep("charge", RawValue(null"#), "{result}");
    let sleep = r#"{"id": "7.1", "sleep": "cooldown", "for": "3d"}"#;
    assert_eq!(read(sleep), r#"Sleep("cooldown", SleepFor(259200s))"#);
    let until = r#"{"id": "7.1", "sleep": "s", "until": "2027-01-31T08:00:00Z"}"#;
    assert_eq!(read(until), r#"Sleep("s", SleepUntil(2027-01-31T08:00:00Z))"#);
    let wait = r#"{"id": "7.1", "wait": "approved", "timeout": 90}"#;
    assert_eq!(read(wait), r#"Wait("approved", 90s)"#);
    let call = r#"{"id": "7.1", "call": "resize", "tasks": [{"class": "a"}, {"class": "b", "parameters": {}, "queue": "q", "priority": -1}]}"#;
    let DurableRequest::Call(name, tasks) = request(call).unwrap() else { panic!("{call}") };
    assert_eq!((name.as_str(), tasks.len()), ("resize", 2));
    assert_eq!((tasks[1].queue.as_deref(), tasks[1].priority), (Some("q"), Some(-1)));
}

#[test]
fn malformed_requests_say_what_to_do() {
    for (line, why) in [
        (r#"{"step": "a", "resutl": 1}"#, "unknown field \"resutl\"; did you mean result?"),
        (r#"{"step": "a", "error": "no"}"#, "without `step` to fail the task"),
        (r#"{"step": "a", "sleep": "b", "for": 1}"#, "step and sleep; send one request a line"),
        (r#"{"step": 7}"#, "the step 7; the name of a step is a text"),
        (r#"{"sleep": "a"}"#, "without a time; add `for`"),
        (r#"{"sleep": "a", "for": 1, "until": "2027-01-31T08:00:00Z"}"#, "both `for` and `until`"),
        (r#"{"sleep": "a", "for": "soon"}"#, "\"soon\", which is not a time like"),
        (r#"{"sleep": "a", "until": "tomorrow"}"#, "\"tomorrow\", which is not a time like"),
        (r#"{"wait": "a"}"#, "without a timeout; add `timeout`"),
        (r#"{"wait": "a", "timeout": null}"#, "null, which is not a time like"),
        (r#"{"call": "a"}"#, "without tasks"),
        (r#"{"call": "a", "tasks": {}}"#, "whose tasks are not a list"),
        (r#"{"call": "a", "tasks": [7]}"#, "whose task 1 is not a JSON object"),
        (r#"{"call": "a", "tasks": [{"class": "b"}, {}]}"#, "whose task 2 has no class"),
        (
            r#"{"call": "a", "tasks": [{"clas": "b"}]}"#,
            "unknown field \"clas\"; did you mean class?",
        ),
        (r#"{"call": "a", "tasks": [{"class": "b", "priority": 0.5}]}"#, "the priority 0.5"),
        (r#"{"call": "a", "tasks": [{"class": "b", "queue": 1}]}"#, "the queue 1"),
    ] {
        let said = request(line).unwrap_err();
        assert!(said.contains(why), "{line}: {said}");
    }
}
