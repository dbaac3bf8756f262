use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

fn printed(value: &(impl Serialize + ?Sized)) -> String {
    let mut out = Vec::new();
    write_json_line(&mut out, value).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn terminal_characters_are_escaped() {
    for (text, shown) in [
        ("Grüße, 日本 👍", r#""Grüße, 日本 👍""#),
        ("\u{9b}2J", r#""\u009b2J""#),
        ("\u{1b}[2J\u{7f}", r#""\u001b[2J\u007f""#),
        ("exe.\u{202e}gpj", r#""exe.\u202egpj""#),
        ("\u{2066}\u{200f}\u{2028}\u{feff}", r#""\u2066\u200f\u2028\ufeff""#),
        ("\u{e0041}", r#""\udb40\udc41""#),
        ("line\nend\t\\u", r#""line\nend\t\\u""#),
    ] {
        assert_eq!(printed(text), format!("{shown}\n"));
    }
}

#[test]
fn stored_json_stays_on_one_line() {
    let raw = "{\n\t\"a\u{9b}\": [1e400, \"\u{202e}\"]\r\n}";
    let raw = RawValue::from_string(raw.to_owned()).unwrap();
    assert_eq!(printed(&raw), "{  \"a\\u009b\": [1e400, \"\\u202e\"]  }\n");
}

#[test]
fn printed_json_equals_its_value() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2000 {
        let value = random_value(&mut random, 3);
        let line = printed(&value);
        let text = line.strip_suffix('\n').unwrap();
        assert!(!text.contains(is_dangerous), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value);
    }
}

fn random_value(random: &mut fastrand::Rng, depth: u32) -> Value {
    match random.u32(0..if depth == 0 { 3 } else { 5 }) {
        0 => Value::Null,
        1 => random.i64(..).into(),
        2 => random_text(random).into(),
        3 => (0..random.usize(0..4)).map(|_| random_value(random, depth - 1)).collect(),
        _ => (0..random.usize(0..4))
            .map(|_| (random_text(random), random_value(random, depth - 1)))
            .collect(),
    }
}

/// Half of the characters need an escape.
fn random_text(random: &mut fastrand::Rng) -> String {
    let ranges =
        [0..=0x1f, 0x7f..=0x9f, 0x200b..=0x206f, 0xfeff..=0xfeff, 0xe0000..=0xe007f, 0x20..=0x7e];
    let mut text = String::new();
    for _ in 0..random.usize(0..12) {
        let range = ranges[random.usize(0..ranges.len())].clone();
        let some = if random.bool() { char::from_u32(random.u32(range)) } else { None };
        text.push(some.unwrap_or_else(|| random.char(..)));
    }
    text
}
