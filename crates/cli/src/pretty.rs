//! JSON for reading.
//!
//! Works on the text, not on values: numbers keep every digit, and fields their
//! order, as they are in the database.

use crate::escape::escape;

/// Longer JSON is indented.
const LINE_CHARS_MAX: usize = 100;

/// Valid JSON on one line if it is short, indented by two otherwise. Safe for a
/// terminal.
pub(crate) fn pretty(json: &str) -> String {
    let compact = layout(json, false);
    let text = if compact.chars().count() <= LINE_CHARS_MAX { compact } else { layout(json, true) };
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

fn layout(json: &str, lines: bool) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut characters = json.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' => {
                out.push(c);
                copy_string(&mut characters, &mut out);
            }
            '{' | '[' => {
                out.push(c);
                while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = characters.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    break_line(&mut out, depth, lines, "");
                }
            }
            '}' | ']' => {
                depth -= 1;
                break_line(&mut out, depth, lines, "");
                out.push(c);
            }
            ',' => {
                out.push(c);
                break_line(&mut out, depth, lines, " ");
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

fn copy_string(characters: &mut impl Iterator<Item = char>, out: &mut String) {
    while let Some(c) = characters.next() {
        out.push(c);
        match c {
            '"' => return,
            '\\' => out.extend(characters.next()),
            _ => {}
        }
    }
}

fn break_line(out: &mut String, depth: usize, lines: bool, instead: &str) {
    if lines {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    } else {
        out.push_str(instead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_json_stays_on_one_line() {
        for (json, shown) in [
            ("{}", "{}"),
            ("{ \n }", "{}"),
            (r#"{"a":1,"b":[true,null]}"#, r#"{"a": 1, "b": [true, null]}"#),
            (r#"{"a":"x, {y: \"z\"}"}"#, r#"{"a": "x, {y: \"z\"}"}"#),
            (r#"{"n":1970670598291982290123456789}"#, r#"{"n": 1970670598291982290123456789}"#),
            ("\"\u{202e}\"", r#""\u{202e}""#),
        ] {
            assert_eq!(pretty(json), shown);
        }
    }

    #[test]
    fn long_json_is_indented() {
        let long = "x".repeat(100);
        let json = format!(r#"{{"a":{{"b":["{long}",2]}},"c":[]}}"#);
        let shown = format!(
            "{{\n  \"a\": {{\n    \"b\": [\n      \"{long}\",\n      2\n    ]\n  }},\n  \"c\": []\n}}"
        );
        assert_eq!(pretty(&json), shown);
    }
}
