use super::*;

#[test]
fn expressions_have_canonical_form() {
    for (expression, canonical) in [
        ("* * * * *", "0 * * * * *"),
        ("*/15 0-3 1,15 JAN-mar mon", "0 0,15,30,45 0,1,2,3 1,15 1,2,3 1"),
        ("30 5/1 * * * *", ""),
        ("10-30/10 * * * *", "0 10,20,30 * * * *"),
        ("0 0 L * *", "0 0 0 L * *"),
        ("0 0 LW,15w * ?", "0 0 0 15W,LW * *"),
        ("0 0 * * FRI#2,5l", "0 0 0 * * 5#2,5L"),
        ("0 0 * * 7", "0 0 0 * * 0"),
        ("0 0 * * 7L", "0 0 0 * * 0L"),
        ("0 0 * * FRI-SUN", "0 0 0 * * 0,5,6"),
        ("0 0 * * 5-7", "0 0 0 * * 0,5,6"),
        ("0 0 * * */7", "0 0 0 * * 0"),
        ("5 4 3 2 1 0", "5 4 3 2 1 0"),
        ("@daily", "0 0 0 * * *"),
        (" @Weekly ", "0 0 0 * * 0"),
    ] {
        match parse(expression) {
            Ok(fields) => assert_eq!(fields.canonical, canonical, "{expression}"),
            Err(error) => assert_eq!("", canonical, "{error}"),
        }
    }
}

#[test]
fn leading_star_changes_meaning() {
    let flags = |expression| {
        let fields = parse(expression).unwrap();
        (fields.any_minute_or_hour, fields.both_days)
    };
    assert_eq!(flags("0 3 1 * MON"), (false, false));
    assert_eq!(flags("0 3 1 * *"), (false, true));
    assert_eq!(flags("0 3 */2 * MON"), (false, true));
    assert_eq!(flags("0 * 1 * MON"), (true, false));
    assert_eq!(flags("*/5 3 1 * MON"), (true, false));
    assert_eq!(flags("0-59 3 1 * MON"), (false, false));
    assert_eq!(flags("* 0 3 1 * MON"), (false, false));
}

#[test]
fn errors_have_position_and_reason() {
    for (expression, at, why) in [
        ("", 1, "it needs 5 fields"),
        ("0 3 * *", 1, "but has 4"),
        ("0 0 3 * * * 2027", 1, "but has 7"),
        ("61 3 * * *", 1, "minute: 61 is not between 0 and 59"),
        ("0  24 * * *", 4, "hour: 24 is not between 0 and 23"),
        ("0 3 0 * *", 5, "day of month: 0 is not between 1 and 31"),
        ("0 3 * 13 *", 7, "month: 13"),
        ("0 3 * FOO *", 7, "month: invalid value \"FOO\""),
        ("0 3 * * MON,,TUE", 13, "missing next to a comma"),
        ("0 3 * * 8", 9, "day of week: 8"),
        ("0 3 * * FRI#6", 13, "# takes a number from 1 to 5"),
        ("0 3 * * L", 9, "like FRIL"),
        ("*/0 * * * *", 3, "a step is a number from 1"),
        ("*/x * * * *", 3, "a step is a number from 1"),
        ("5/10 * * * *", 1, "like 5-59/10"),
        ("30-10 * * * *", 1, "goes backwards"),
        ("0 3 * * FRI-MON", 9, "goes backwards"),
        ("0 3 1-32 * *", 7, "32 is not between 1 and 31"),
        ("L 3 * * *", 1, "minute: invalid value \"L\""),
        ("? 3 * * *", 1, "minute: invalid value \"?\""),
        ("é 3 * * *", 1, "minute: invalid value \"é\""),
        ("0 é * * *", 3, "hour: invalid value \"é\""),
        ("-1 3 * * *", 1, "invalid value"),
        ("999999999999 3 * * *", 1, "is not between"),
        ("@reboot", 1, "use @yearly"),
        ("0 3 L,LW * *", 5, "exclude each other"),
    ] {
        let error = parse(expression).unwrap_err();
        assert_eq!(error.at, at, "{error}");
        assert!(error.why.contains(why), "{error}");
    }
}

#[test]
fn impossible_dates_are_detected() {
    for (expression, never) in [
        ("0 0 30 2 *", true),
        ("0 0 31 4,6 *", true),
        ("0 0 31W 2 *", true),
        ("0 0 30,31 FEB *", true),
        ("0 0 29 2 *", false),
        ("0 0 31 2,3 *", false),
        ("0 0 31 * *", false),
        ("0 0 L 2 *", false),
        ("0 0 30 2 MON", false),
        ("@daily", false),
    ] {
        assert_eq!(parse(expression).unwrap().is_impossible, never, "{expression}");
    }
}
