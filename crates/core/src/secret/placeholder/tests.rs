use super::super::Redactor;
use super::*;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

const STORED: &str = r#"{"password":"hunter22","url":"https://ann:hunter22@host","card":{"number":4111,"name":"Ann"},"keys":[{"id":1,"key":"aaaa1"},{"id":2,"key":"bbbb2"}],"n":1.50}"#;
const PATHS: [&str; 3] = ["password", "card.number", "keys.key"];

fn sent_back(new: &str) -> Result<String, String> {
    let stored = json(STORED);
    let redactor = Redactor::of(&stored, &Json::empty_object(), &PATHS);
    let merged = restore(&json(new), &stored, redactor.parameters());
    merged.map(|it| it.as_str().to_owned()).map_err(|error| error.pointer)
}

fn redacted() -> String {
    let redactor = Redactor::of(&json(STORED), &Json::empty_object(), &PATHS);
    redactor.parameters().unwrap().as_str().to_owned()
}

#[test]
fn unchanged_placeholders_are_restored() {
    assert_eq!(sent_back(&redacted()).unwrap(), STORED);
    let changed = redacted().replace("1.50", "2");
    assert_eq!(sent_back(&changed).unwrap(), STORED.replace("1.50", "2"));
    // Another encoder: other order, other escapes.
    let other = r#"{"n":1,"url":"https:\/\/ann:[secret]@host","password":"\u005bsecret]"}"#;
    let merged = r#"{"n":1,"url":"https://ann:hunter22@host","password":"hunter22"}"#;
    assert_eq!(sent_back(other).unwrap(), merged);
}

#[test]
fn new_values_replace_secrets() {
    let anew = r#"{"password":"other","card":{"number":4242,"name":"Bob"}}"#;
    assert_eq!(sent_back(anew).unwrap(), anew);
    let half = r#"{"password":"other","card":{"number":"[secret]","name":"Bob"}}"#;
    let merged = r#"{"password":"other","card":{"number":4111,"name":"Bob"}}"#;
    assert_eq!(sent_back(half).unwrap(), merged);
}

#[test]
fn list_items_keep_their_secrets() {
    let keys = |items: &str| sent_back(&format!(r#"{{"keys":[{items}]}}"#));
    let (one, two) = (r#"{"id":1,"key":"[secret]"}"#, r#"{"id":2,"key":"[secret]"}"#);
    let moved = r#"{"keys":[{"id":2,"key":"bbbb2"},{"id":1,"key":"aaaa1"}]}"#;
    assert_eq!(keys(&format!("{two},{one}")).unwrap(), moved);
    assert_eq!(keys(two).unwrap(), r#"{"keys":[{"id":2,"key":"bbbb2"}]}"#);
    let third = r#"{"id":3,"key":"[secret]"}"#;
    let edited = r#"{"keys":[{"id":3,"key":"aaaa1"},{"id":2,"key":"bbbb2"}]}"#;
    assert_eq!(keys(&format!("{third},{two}")).unwrap(), edited);
    // Ambiguous.
    assert_eq!(keys(&format!("{two},{third}")).unwrap_err(), "/keys/1/key");
    assert_eq!(keys(&format!("{one},{two},{third}")).unwrap_err(), "/keys/2/key");
}

#[test]
fn unexpected_placeholders_are_refused() {
    for (new, pointer) in [
        (r#"{"passwd":"[secret]"}"#, "/passwd"),
        (r#"{"card":{"name":"[secret]"}}"#, "/card/name"),
        (r#"{"card":"[secret]"}"#, "/card"),
        (r#"{"url":"https://bob:[secret]@host"}"#, "/url"),
        (r#"{"a/b~":[{"[secret]":1}]}"#, "/a~1b~0/0/[secret]"),
    ] {
        assert_eq!(sent_back(new).unwrap_err(), pointer, "{new}");
    }
}

#[test]
fn new_parameters_have_no_placeholder() {
    for (new, inside, fits) in [
        (r#"{"a":"[secret]"}"#, false, false),
        (r#"{"a":["\u005bsecret]"]}"#, false, false),
        (r#"{"[secret]":1}"#, false, false),
        (r#"{"subject":"[secret] Santa"}"#, false, true),
        (r#"{"subject":"[secret] Santa"}"#, true, false),
        (r#"{"a":"secret"}"#, true, true),
    ] {
        assert_eq!(refuse_placeholders(&json(new), inside).is_ok(), fits, "{new}");
    }
    // A stored value that contains the placeholder text is kept.
    let stored = json(r#"{"note":"[secret] Santa","p":"hunter22"}"#);
    let redactor = Redactor::of(&stored, &Json::empty_object(), &["p"]);
    let redacted = redactor.parameters().unwrap();
    assert_eq!(restore(redacted, &stored, Some(redacted)).unwrap(), stored);
}
