use super::*;

fn read(text: &str) -> Result<Filter, InvalidFilter> {
    Filter::parse(text, &TimeZone::UTC)
}

#[test]
fn printed_filters_are_short() {
    for text in [
        "",
        "status=failed,cancelled class=send_mail error~429 created>now-2h priority>=5",
        "params.user.id=42 queue!=mail id>=100 instance=web-1 correlation!~order-17",
        r#"error="two words",one params."a.b".c<7 class="" class="=x" error!~"say \"a\"\\""#,
        "created<2026-12-24T00:00:00Z updated>=now-1h30m due<=now+1s started<now",
    ] {
        assert_eq!(read(text).unwrap().to_string(), text);
    }
    for (text, same) in [
        ("  status=failed\n class=a ", "status=failed class=a"),
        ("status=succeeded status!=succeeded,failed", "status=stopped status!=stopped,failed"),
        (r"error~a\ b\,c\u{1b}", r#"error~"a b,c\u{1b}""#),
        ("created>now-7d", "created>now-168h"),
        ("created>2026-12-24", "created>2026-12-24T00:00:00Z"),
        ("created>2026-12-24T18:00", "created>2026-12-24T18:00:00Z"),
    ] {
        assert_eq!(read(text).unwrap().to_string(), same);
    }
}

#[test]
fn errors_name_their_position() {
    for (text, at, why) in [
        ("statsu=failed", 1, "did you mean status?"),
        ("status=failed clas=a", 15, "did you mean class?"),
        ("status=faild", 8, "did you mean failed?"),
        ("status=succeded", 8, "did you mean succeeded?"),
        ("status=bogus", 8, "waiting, running, stopped (or succeeded), failed or cancelled"),
        ("status=failed,waitin", 15, "did you mean waiting?"),
        ("nonsense=1", 1, "there are status, class"),
        ("status", 7, "an operator is missing"),
        ("=failed", 1, "begins with a field"),
        ("status=", 8, "a value is missing"),
        ("status=failed,", 15, "a value is missing"),
        ("status==failed", 7, "there are = !="),
        ("status~fail", 7, "does not take ~; use one of != ="),
        ("created=now-2h", 8, "does not take ="),
        ("created>soon", 9, "not a time; write now-2h"),
        ("created>2h", 9, "write >now-2h for the last 2h, or <now-2h for longer ago"),
        ("created>5", 9, "not a time"),
        ("created>-5s", 9, "not a time"),
        ("created>now-", 9, "write now, now-2h"),
        ("created>now--5s", 9, "write now, now-2h"),
        ("created>now2h", 9, "write now, now-2h"),
        ("created>now-2h,now-3h", 15, "takes one value"),
        ("created>now-1000000d", 9, "more than 100 years"),
        ("priority>high", 10, "a whole number, not \"high\""),
        ("id=99999999999999999999", 4, "a whole number"),
        ("error~\"open", 7, "not closed"),
        ("error~\"a\"b", 10, "a space is missing"),
        ("error~a\"b", 8, "a quote inside"),
        ("error~\\q", 7, "\\q is not known"),
        ("error~\\u{d800}", 7, "by its number"),
        ("error~\\", 7, "missing after"),
        ("params=1", 7, "name a field, like params.user.id=42"),
        ("params.=1", 8, "the name of a field is missing"),
    ] {
        let bad = read(text).unwrap_err();
        assert_eq!(bad.at, at, "{text}: {bad}");
        assert!(bad.why.contains(why), "{text}: {bad}");
    }
    assert!(read(&"a".repeat(BYTES_MAX + 1)).is_err());
}

#[test]
fn shell_words_without_quotes_are_read() {
    let words = |words: &[&str]| Filter::parse_words(words, &TimeZone::UTC).map(|f| f.to_string());
    assert_eq!(words(&["status=failed class=a", "id>3"]).unwrap(), "status=failed class=a id>3");
    assert_eq!(words(&["error~too many, please"]).unwrap(), r#"error~"too many, please""#);
    assert_eq!(words(&["created>2026-12-24 18:00"]).unwrap(), "created>2026-12-24T18:00:00Z");
    let (word, bad) = words(&["id>3", "status=failed clas"]).unwrap_err();
    assert_eq!((word.as_str(), bad.at), ("status=failed clas", 15));
    assert!(words(&["error~one two status=failed"]).is_err(), "no guess");
}

/// Random filters: what is printed means the same.
#[test]
fn printing_and_reading_give_the_same() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let terms = (0..random.usize(0..4)).map(|_| any_term(&mut random)).collect();
        let filter = Filter { terms };
        let printed = filter.to_string();
        assert_eq!(read(&printed).as_ref(), Ok(&filter), "{printed}");
    }
}

/// Whatever is typed: an answer, whose place is in the text.
#[test]
fn random_filters_do_not_panic() {
    let mut random = fastrand::Rng::with_seed(8);
    let pieces = [
        "status", "=", "failed", ",", "\"", "\\", "u{", "params", ".", "é", "\u{1b}", " ",
        "created", ">", "9", "h", "!", "~", "<", "-", "\0", "𝄞",
    ];
    for _ in 0..10_000 {
        let text: String =
            (0..random.usize(0..12)).map(|_| pieces[random.usize(0..pieces.len())]).collect();
        match read(&text) {
            Ok(filter) => assert_eq!(read(&filter.to_string()), Ok(filter), "{text}"),
            Err(bad) => {
                assert!((1..=text.chars().count() + 1).contains(&bad.at), "{text}: {bad}");
            }
        }
        let _ = Filter::parse_words(&[&text, "id>1"], &TimeZone::UTC);
    }
}

fn any_text(random: &mut fastrand::Rng) -> String {
    let letters: Vec<char> = "ab9.,=~<>! \"\\\n\t\r\u{1b}\u{202e}é𝄞{}u".chars().collect();
    (0..random.usize(0..6)).map(|_| letters[random.usize(0..letters.len())]).collect()
}

fn any_term(random: &mut fastrand::Rng) -> Term {
    let path =
        |random: &mut fastrand::Rng| (0..random.usize(1..4)).map(|_| any_text(random)).collect();
    let field = match random.usize(0..FIELDS.len() + 2) {
        n if n < FIELDS.len() => FIELDS[n].1.clone(),
        n if n == FIELDS.len() => FilterField::Params(path(random)),
        _ => FilterField::Context(path(random)),
    };
    let operators: Vec<_> = OPERATORS.into_iter().filter(|it| field.takes(*it)).collect();
    let operator = operators[random.usize(0..operators.len())];
    let count = if operator.takes_many() { random.usize(1..4) } else { 1 };
    let value = |random: &mut fastrand::Rng| match field {
        FilterField::Status => Value::Status(TaskStatus::ALL[random.usize(0..5)]),
        FilterField::Id
        | FilterField::Parent
        | FilterField::Priority
        | FilterField::Attempts
        | FilterField::Retries => Value::Number(random.i64(..)),
        FilterField::Created
        | FilterField::Updated
        | FilterField::Due
        | FilterField::Started
        | FilterField::Ended
            if random.bool() =>
        {
            let nanos = random.i64(-4_000_000_000_000_000..4_000_000_000_000_000);
            Value::Time(FilterTime::FromNow(SignedDuration::from_nanos(nanos)))
        }
        FilterField::Created
        | FilterField::Updated
        | FilterField::Due
        | FilterField::Started
        | FilterField::Ended => {
            Value::Time(FilterTime::At(Timestamp::from_nanosecond(random.i64(..).into()).unwrap()))
        }
        _ => Value::Text(any_text(random)),
    };
    let values = (0..count).map(|_| value(random)).collect();
    Term { field, operator, values }
}
