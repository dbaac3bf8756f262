use jiff::tz::TimeZone;

use super::*;

fn known() -> KnownNames {
    KnownNames {
        classes: vec!["send_mail".into(), "send \"it\"".into(), "tidy".into()],
        queues: vec!["default".into(), "mail".into()],
        instances: vec!["web-1".into()],
    }
}

fn suggestions(text: &str) -> Vec<String> {
    let all = suggest(text, units_of(text), &known()).suggestions;
    all.into_iter().map(|offer| offer.text).collect()
}

#[test]
fn suggestions_match_typed_text() {
    assert_eq!(suggestions("").len(), FIELDS.len());
    assert_eq!(suggestions("st"), ["status", "started"]);
    assert_eq!(suggestions("status"), ["status=", "status!="]);
    assert_eq!(suggestions("status="), ["waiting", "running", "stopped", "failed", "cancelled"]);
    assert_eq!(suggestions("status=failed,c"), ["cancelled"]);
    assert_eq!(suggestions("status=failed"), Vec::<String>::new());
    assert_eq!(suggestions("status=failed class=SEND"), ["send_mail", r#""send \"it\"""#]);
    assert_eq!(suggestions("queue!=ma"), ["mail"]);
    assert_eq!(suggestions("instance=w"), ["web-1"]);
    assert_eq!(suggestions("created<now-1"), ["now-10m", "now-1h", "now-1d"]);
    assert_eq!(suggestions("par"), ["parent", "params."]);
    assert_eq!(suggestions("params.user.id="), Vec::<String>::new());
    assert_eq!(suggestions("nothing"), Vec::<String>::new());
    assert_eq!(suggestions(r#"error~"a st"#), Vec::<String>::new(), "inside of quotes");
    assert_eq!(suggestions(r#"error~"a b" sta"#), ["status", "started"]);
}

#[test]
fn position_is_in_utf16_units() {
    // Two units, one character.
    let text = "error~😀 st more";
    let found = suggest(text, 11, &known());
    assert_eq!((found.from, found.to), (9, 11));
    assert_eq!(found.suggestions.len(), 2);
    assert_eq!(suggest("st", 99, &known()).to, 2);
    assert_eq!(suggest("status=f", 0, &known()).to, 0);
}

#[test]
fn all_fields_can_be_parsed() {
    for (name, operators, _) in FIELDS {
        for operator in operators {
            let value = match name {
                "status" => "failed",
                _ => "1",
            };
            let value = if operators == TIME { "now-1h" } else { value };
            let text = format!("{name}{operator}{value}");
            assert!(Filter::parse(&text, &TimeZone::UTC).is_ok(), "{text}");
        }
    }
    for class in known().classes {
        let text = format!("class={}", quoted(&class));
        assert_eq!(
            Filter::parse(&text, &TimeZone::UTC).unwrap(),
            Filter::default().and_class(class)
        );
    }
}
