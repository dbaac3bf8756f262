use super::*;
use crate::task::NewTask;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn redactor(parameters: &str, paths: &[&str]) -> Redactor {
    Redactor::of(&json(parameters), &Json::empty_object(), paths)
}

fn redacted(parameters: &str, paths: &[&str]) -> String {
    let redactor = redactor(parameters, paths);
    redactor.parameters().map_or(parameters, Json::as_str).to_owned()
}

#[test]
fn paths_are_checked() {
    for good in ["password", "card.number", "cards.0.number", "Grüße.x-y z"] {
        assert_eq!(check(&[good]), Ok(()), "{good}");
    }
    let long = "x".repeat(PATH_BYTES_MAX + 1);
    for bad in ["", ".", "a.", ".a", "a..b", " ", "a\n", &long] {
        let error = check(&["good", bad]).unwrap_err().to_string();
        assert!(error.contains("not the path of a secret parameter"), "{bad:?}: {error}");
    }
    let error = check(&vec!["a"; PATHS_MAX + 1]).unwrap_err().to_string();
    assert!(error.contains("101 secret parameters are too many"), "{error}");
}

#[test]
fn parameters_are_redacted_by_path() {
    let card = r#"{"to": "ann", "card":{"number":"4111 1111","cvc":123,"ok":true},"n":1970670598291982290123456789}"#;
    for (parameters, paths, expected) in [
        (card, &["nothing"][..], card.replace(": \"ann\", ", ":\"ann\",").as_str()),
        (
            card,
            &["card.number", "card.cvc"],
            r#"{"to":"ann","card":{"number":"[secret]","cvc":"[secret]","ok":true},"n":1970670598291982290123456789}"#,
        ),
        (card, &["card"], r#"{"to":"ann","card":"[secret]","n":1970670598291982290123456789}"#),
        (
            r#"{"cards":[{"n":"12345"},{"n":7}]}"#,
            &["cards.n"],
            r#"{"cards":[{"n":"[secret]"},{"n":"[secret]"}]}"#,
        ),
        (
            r#"{"cards":[{"n":1},{"n":7}]}"#,
            &["cards.1.n"],
            r#"{"cards":[{"n":1},{"n":"[secret]"}]}"#,
        ),
        (r#"{"keys":["aaaa","bbbb"]}"#, &["keys.0"], r#"{"keys":["[secret]","bbbb"]}"#),
        (
            r#"{"a.b":1,"a":{"b":2,"c":1.50}}"#,
            &["a.b"],
            r#"{"a.b":"[secret]","a":{"b":"[secret]","c":1.50}}"#,
        ),
        // The same name twice, and the same value elsewhere.
        (
            r#"{"p":"hunter22","p":"other123","url":"u:hunter22@h"}"#,
            &["p"],
            r#"{"p":"[secret]","p":"[secret]","url":"u:[secret]@h"}"#,
        ),
        (r#"{"p":"A"}"#, &["p"], r#"{"p":"[secret]"}"#),
        ("{}", &["p"], "{}"),
    ] {
        assert_eq!(redacted(parameters, paths), expected, "{paths:?}");
    }
    assert!(redactor(card, &[]).is_empty() && redactor(card, &[]).parameters().is_none());
}

#[test]
fn texts_are_redacted() {
    let parameters =
        r#"{"p":"pass\"word\n2nd line","pin":1234,"short":"abc","over":["abcd","cdef"]}"#;
    let redactor = redactor(parameters, &["p", "pin", "short", "over"]);
    for (text, expected) in [
        ("nothing here, not even abc", "nothing here, not even abc"),
        ("is pass\"word\n2nd line.", "is [secret]."),
        (r#"{"p":"pass\"word\n2nd line"}"#, r#"{"p":"[secret]"}"#),
        ("log: pass\"word, then 2nd line", "log: [secret], then [secret]"),
        ("pin=1234, id=912345", "pin=[secret], id=9[secret]5"),
        ("abcdef abcdabcd", "[secret] [secret][secret]"),
        ("cut in the middle of pass\"wo", "cut in the middle of [secret]"),
        ("cut too early: pas", "cut too early: pas"),
        ("", ""),
    ] {
        assert_eq!(redactor.text(text), expected);
    }
    let result = json(r#"{"pass\"word":[1234,12345,"\u0061bcd",1.10],"x":null}"#);
    assert_eq!(
        redactor.json(&result).as_str(),
        r#"{"[secret]":["[secret]",12345,"[secret]",1.10],"x":null}"#
    );
    assert!(!format!("{redactor:?}").contains("abcd"));
}

#[test]
fn escaped_secrets_are_hidden() {
    let parameters = r#"{"p":"pa\"ss/wö\\rd\n😀 x","q":"hunter22"}"#;
    let redactor = redactor(parameters, &["p", "q"]);
    for text in [
        r#"{"p":"pa\"ss/wö\\rd\n😀 x"}"#,
        r#"{"p":"pa\"ss\/w\u00f6\\rd\n\ud83d\ude00 x"}"#,
        r#"{"p":"pa\u0022ss/w\u00F6\u005crd\u000a\uD83D\uDE00\u0020x"}"#,
        r#"{\"p\":\"pa\\\"ss/wö\\\\rd\\n😀 x\"}"#,
        r#"p=pa%22ss%2Fw%C3%B6%5crd%0a%f0%9F%98%80+x"#,
        r#"p=pa%22ss/w%C3%B6%5Crd%0A%F0%9F%98%80%20x"#,
        r#"'pa"ss/w\xf6\\rd\n\u{1f600} x'"#,
        r#"{"q":"\u0068unter22"}"#,
        r#"cut: pa\"ss\/w\u00f6\"#,
        r#"cut: pa\"ss\/w\u00"#,
    ] {
        let redacted = redactor.text(text);
        assert!(redacted.contains("[secret]"), "{text}: {redacted}");
        for part in ["ss", "rd", "unter"] {
            assert!(!redacted.contains(part), "{text}: {redacted}");
        }
    }
    let around = r#"C:\new\table is not \"hunter2\" 100%"#;
    assert_eq!(redactor.text(around), around);
}

#[test]
fn context_adds_secret_paths() {
    let parameters = json(r#"{"p":"hunter22","q":"open"}"#);
    let redacted = |context: &str| {
        let redactor = Redactor::of(&parameters, &json(context), &[] as &[&str]);
        redactor.parameters().unwrap_or(&parameters).as_str().to_owned()
    };
    assert_eq!(redacted(r#"{"a":1}"#), parameters.as_str());
    assert_eq!(redacted(r#"{"secret_parameters":["p"]}"#), r#"{"p":"[secret]","q":"open"}"#);
    // Unreadable paths: everything is secret.
    for odd in [r#"{"secret_parameters":"p"}"#, r#"{"secret_parameters":[1]}"#] {
        assert_eq!(redacted(odd), r#"{"p":"[secret]","q":"[secret]"}"#);
    }
}

#[test]
fn debug_output_hides_secrets() {
    let task = NewTask::new("login", json(r#"{"p":"hunter22","q":"open"}"#)).unwrap();
    assert!(format!("{task:?}").contains("hunter22"));
    let logged = format!("{:?}", task.secret(&["p"]).unwrap());
    assert!(logged.contains(r#"{"p":"[secret]","q":"open"}"#), "{logged}");
}

#[test]
fn deep_json_hides_secrets() {
    let deep = format!("{}\"hunter22\"{}", "[".repeat(60), "]".repeat(60));
    let parameters = format!(r#"{{"p":{deep},"q":{deep}}}"#);
    assert!(!redacted(&parameters, &["p"]).contains("hunter22"));
    // A database may contain JSON that Task Engine would refuse.
    let deep = format!("{}\"hunter22\"{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep = Json::from_store(format!(r#"{{"p":{deep},"l":[{deep}],"r":1}}"#));
    let hides = Redactor::of(&deep, &Json::empty_object(), &["p", "l.x"]);
    let json = hides.parameters().unwrap().as_str();
    assert!(json.contains(r#""r":1"#) && !json.contains("hunter22"), "{}", json.len());
    let hides = redactor(r#"{"p":"hunter22"}"#, &["p"]);
    assert!(!hides.json(&deep).as_str().contains("hunter22"));
    let redactor = redactor(r#"{"p":"ééééé","q":"\\u00e9"}"#, &["p", "q"]);
    for text in ["ééééé", "éééééé", "é", "éééé", "\\u00e9\\u00e9"] {
        let once = redactor.text(text).into_owned();
        assert!(!once.contains("éééé"), "{text}: {once}");
    }
}

#[test]
fn steps_are_redacted_except_children() {
    use crate::step::{SignalRow, StepRow};
    let now = jiff::Timestamp::UNIX_EPOCH;
    let step = |kind, name: &str, result| StepRow {
        name: name.to_owned(),
        number: 1,
        kind,
        attempt: 1,
        result: Some(json(result)),
        until: None,
        started_at: now,
        recorded_at: now,
    };
    let (name, payload) = ("from 4711".to_owned(), json(r#"{"of":"4711"}"#));
    let mut steps = TaskSteps {
        now,
        steps: vec![
            step(StepKind::Step, "for 4711", "[4711]"),
            step(StepKind::Call, "c", "[4711]"),
        ],
        signals: vec![SignalRow { name, payload, sent_at: now, timed_out: false }],
    };
    redactor(r#"{"card":4711}"#, &["card"]).steps(&mut steps);
    assert_eq!(steps.steps[0].name, "for [secret]");
    assert_eq!(steps.steps[0].result, Some(json(r#"["[secret]"]"#)));
    assert_eq!(steps.steps[1].result, Some(json("[4711]")));
    assert_eq!(steps.signals[0].name, "from [secret]");
    assert_eq!(steps.signals[0].payload, json(r#"{"of":"[secret]"}"#));
}
