use super::*;

#[test]
fn accepts_storable_json() {
    for text in [
        "{}",
        r#"{"a":[1,2,{"b":null}]}"#,
        r#"{"big":1970670598291982290123456789}"#,
        r#"{"quote":"\"\\"}"#,
        r#"{"emoji":"\ud83d\ude00"}"#,
    ] {
        assert_eq!(Json::parse_object(text).map(|j| j.to_string()), Ok(text.into()));
    }
}

#[test]
fn error_has_the_position() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(Json::parse(deep), Err(InvalidJson::TooDeep { at: DEPTH_MAX }));
    let nul = InvalidJson::Unstorable { escape: "\\u0000".into(), at: 6 };
    assert_eq!(Json::parse(r#"{"a":"\u0000"}"#), Err(nul));
    assert!(matches!(Json::parse(r#"["\ud800"]"#), Err(InvalidJson::Unstorable { .. })));
    assert!(matches!(Json::parse(r#"["\udc00"]"#), Err(InvalidJson::Unstorable { .. })));
    assert!(matches!(Json::parse("{"), Err(InvalidJson::Syntax(_))));
    assert!(matches!(Json::parse("{} {}"), Err(InvalidJson::Syntax(_))));
    assert_eq!(Json::parse_object("[1]"), Err(InvalidJson::NotAnObject("an array")));
    assert_eq!(Json::parse_object(" 1"), Err(InvalidJson::NotAnObject("a number")));
    let long = format!("\"{}\"", "x".repeat(BYTES_MAX));
    assert!(matches!(Json::parse(long), Err(InvalidJson::TooLong { .. })));
}

#[test]
fn limits_count_printed_digits() {
    for text in ["1e999", "-1E+999", "1e-16383", "0.5e-999", "1.7976931348623157e308", "5e-324"] {
        assert!(Json::parse(text).is_ok(), "{text}");
    }
    for text in ["1e1000", "1e131071", "1e-16384", "0e99999999999999999999999", "[0.1e-16383]"] {
        assert!(matches!(Json::parse(text), Err(InvalidJson::NumberTooLong { .. })), "{text}");
    }
    assert_eq!(
        Json::parse(format!("{{\"a\": {}}}", "7".repeat(INTEGER_DIGITS_MAX + 1))),
        Err(InvalidJson::NumberTooLong { at: 6 })
    );
    let strings = r#"["1e131071",{"1e131071":"9e9999"}]"#;
    assert!(Json::parse(strings).is_ok(), "digits in a string are text");
    let many = format!("[{}1]", "1e999,".repeat(2000));
    assert!(matches!(Json::parse(many), Err(InvalidJson::TooLong { bytes }) if bytes > 2_000_000));
    let wide = format!("[{}1]", "1,".repeat(BYTES_MAX / 2 - 2));
    assert!(matches!(Json::parse(wide), Err(InvalidJson::TooLong { .. })), "spaces count");
    for text in ["-", "1e", "1.", "--1", "1e+", "+1", "01", "-a"] {
        assert!(matches!(Json::parse(text), Err(InvalidJson::Syntax(_))), "{text}");
    }
}

/// For a second, or for `FUZZ_SECONDS`: no text makes the check panic, and accepted
/// text is JSON within the limits.
#[test]
fn accepts_only_json_within_limits() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let begun = std::time::Instant::now();
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\\",
        "\\u0000",
        "\\ud800",
        "\\udc00",
        "\\u00e9",
        "1",
        "-",
        "0",
        "e",
        "E",
        "+",
        ".",
        "1e999",
        "1e-99",
        "9e9999",
        "true",
        "null",
        " ",
        "é",
        "\0",
        "{\"a\":[1.5e3]}",
        "[[[[[[[[[[[[[[[[",
        "]]]]]]]]]]]]]]]]",
    ];
    while begun.elapsed().as_secs_f64() < seconds.unwrap_or(1.0) {
        let count = fastrand::usize(..24);
        let text: String = (0..count).map(|_| pieces[fastrand::usize(..pieces.len())]).collect();
        if let Ok(json) = Json::parse(text.as_str()) {
            assert!(serde_json::from_str::<&RawValue>(json.as_str()).is_ok(), "{text}");
            assert!(Json::parse(json.to_string()).is_ok(), "{text}");
        }
    }
}

#[test]
fn escaped_backslash_is_no_escape() {
    assert!(Json::parse(r#"["\\u0000"]"#).is_ok());
}
