use super::*;

fn update(line: &str) -> TaskUpdate {
    match parse(line.as_bytes()) {
        Ok(WorkerLine::Task(update)) => *update,
        other => panic!("{line}: {other:?}"),
    }
}

fn failed(line: &str) -> Failure {
    match update(line).answer {
        Some(TaskAnswer::Failed(failure)) => failure,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn all_answers_are_parsed() {
    let result = |line: &str| match update(line).answer {
        Some(TaskAnswer::Result(result)) => result.get().to_owned(),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(result(r#"{"id": "1.1", "result": 12345678901234567890}"#), "12345678901234567890");
    assert_eq!(result(r#"{"id": "1.1", "result": null, "error": null}"#), "null");
    assert_eq!(failed(r#"{"id": "1.1", "error": "no"}"#).to_string(), "Failure: no");
    assert_eq!(failed(r#"{"id": "1.1", "error": {"exception": "E"}}"#).to_string(), "E: ");
    let limited = r#"{"id": "1.1", "rate_limited": 30, "message": "429"}"#;
    let answer = update(limited).answer;
    let Some(TaskAnswer::RateLimited(time, reason)) = answer else { panic!("{limited}") };
    assert_eq!((time, reason.as_str()), (Duration::from_secs(30), "429"));
    let snooze = r#"{"id": "1.1", "snooze": "30s", "message": "busy"}"#;
    let Some(TaskAnswer::Snooze(time, reason)) = update(snooze).answer else { panic!("{snooze}") };
    assert_eq!((time, reason.as_str()), (Duration::from_secs(30), "busy"));
    let parsed = update(r#"{"id": "1.1", "log": "a\n  b", "progress": 40, "message": "half"}"#);
    assert_eq!(parsed.log, ["a", "  b"]);
    assert_eq!(parsed.progress, Some((40.0, "half".to_owned())));
    assert!(parsed.answer.is_none());
    assert!(matches!(parse(br#"{"concurrency": 8}"#), Ok(WorkerLine::Concurrency(8))));
}

#[test]
fn backtrace_is_text_or_list() {
    let trace = |backtrace: &str| {
        let line =
            format!(r#"{{"id": "1.1", "error": {{"message": "m", "backtrace": {backtrace}}}}}"#);
        format!("{:?}", failed(&line))
    };
    let lines = r#"["Traceback:", "  File \"a.py\", line 1", "ValueError: x"]"#;
    for backtrace in [
        r#""Traceback:\n  File \"a.py\", line 1\nValueError: x\n""#,
        r#"["Traceback:\n", "  File \"a.py\", line 1\n", "ValueError: x\n"]"#,
    ] {
        assert!(trace(backtrace).contains(lines), "{}", trace(backtrace));
    }
    for odd in ["null", "7", "[1, null]", "{}"] {
        trace(odd);
    }
}

#[test]
fn malformed_answer_names_its_task() {
    let wrong = |line: &str| parse(line.as_bytes()).unwrap_err();
    for (line, why) in [
        (r#"{"id": "1.1"}"#, "neither a result nor an error"),
        (r#"{"id": "1.1", "resutl": 3}"#, "did you mean result?"),
        (r#"{"id": "1.1", "result": 3, "error": "no"}"#, "more than one of"),
        (r#"{"id": "1.1", "snooze": "soon"}"#, "is not a time"),
        (r#"{"id": "1.1", "rate_limited": "soon"}"#, "its rate_limited \"soon\" is not a time"),
        (r#"{"id": "1.1", "rate_limited": 1, "snooze": 1}"#, "more than one of"),
        (r#"{"id": "1.1", "stpe": "charge"}"#, "did you mean step?"),
    ] {
        let wrong = wrong(line);
        assert_eq!(wrong.id.as_deref(), Some("1.1"), "{line}");
        assert!(wrong.why.contains(why), "{line}: {}", wrong.why);
    }
    for (line, why) in [
        ("hello", "not a JSON object: \"hello\"; print other text"),
        ("[1]", "not a JSON object"),
        ("{}", "without an id"),
        (r#"{"id": 1.1, "result": 3}"#, "an id is the text"),
        (r#"{"concurrency": 0}"#, "from 1 to 10000"),
    ] {
        let wrong = wrong(line);
        assert_eq!(wrong.id, None, "{line}");
        assert!(wrong.why.contains(why), "{line}: {}", wrong.why);
    }
}

/// Lines that are cut, changed and joined at random never panic, and messages do
/// not name the parser.
#[test]
fn mutated_lines_never_panic() {
    let good = [
        r#"{"id": "1.1", "result": {"a": [1, 2.5e3, "ü", null]}}"#,
        r#"{"id": "7.2", "error": {"message": "m", "exception": "E", "backtrace": ["a", "b"]}, "retry": "30s"}"#,
        r#"{"id": "1.1", "log": "a\nb", "progress": 12.5, "message": "m"}"#,
        r#"{"id": "1.1", "snooze": 3}"#,
        r#"{"concurrency": 3}"#,
        r#"{"id": "1.1", "step": "a", "result": [1]}"#,
        r#"{"id": "1.1", "sleep": "a", "until": "2027-01-31T08:00:00Z"}"#,
        r#"{"id": "1.1", "wait": "a", "timeout": "7d"}"#,
        r#"{"id": "1.1", "call": "a", "tasks": [{"class": "b", "parameters": {"c": 1}}]}"#,
    ];
    crate::fuzz::mutated(&good, |line| {
        if let Err(MalformedLine { why, .. }) | Ok(WorkerLine::Request(_, Err(why))) = parse(line) {
            assert!(!why.contains("untagged") && !why.contains("expected"), "{why}");
            assert!(why.len() < 1000, "{why}");
        }
    });
}
