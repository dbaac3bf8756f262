//! Describes how two JSON values differ, for the message of a failed test.

use serde_json::Value;

/// Longer values are cut.
const SHOWN_CHARS_MAX: usize = 200;

/// The paths at which they differ; none if they are the same. `.` is the whole.
pub(super) fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    compare("", wanted, found, &mut paths);
    paths
}

fn compare(path: &str, wanted: &Value, found: &Value, paths: &mut Vec<String>) {
    let below = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (name, value) in wanted {
                match found.get(name) {
                    Some(other) => compare(&below(name), value, other, paths),
                    None => paths.push(below(name)),
                }
            }
            paths.extend(found.keys().filter(|name| !wanted.contains_key(*name)).map(|n| below(n)));
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (n, (value, other)) in wanted.iter().zip(found).enumerate() {
                compare(&below(&n.to_string()), value, other, paths);
            }
        }
        // 100 and 1e2 are one number, and a store may write it either way.
        (Value::Number(wanted), Value::Number(found))
            if (wanted.is_f64() || found.is_f64()) && wanted.as_f64() == found.as_f64() => {}
        (wanted, found) if wanted == found => {}
        _ => paths.push(if path.is_empty() { ".".to_owned() } else { path.to_owned() }),
    }
}

/// What a value has at a path.
pub(super) fn shown(value: &Value, path: &str) -> String {
    let mut at = Some(value);
    if path != "." {
        for step in path.split('.') {
            at = match at {
                Some(Value::Array(items)) => step.parse::<usize>().ok().and_then(|n| items.get(n)),
                Some(Value::Object(fields)) => fields.get(step),
                // What is inside of a secret is a secret.
                other => other,
            };
        }
    }
    let Some(value) = at else {
        return "missing".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_have_no_differences() {
        let value = json!({"a": [1, {"b": null}], "c": "x"});
        assert_eq!(differences(&value, &value), Vec::<String>::new());
        assert_eq!(differences(&json!(1e2), &json!(100)), Vec::<String>::new());
        let (one, other) = (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64));
        assert_eq!(differences(&one, &other), ["."]);
    }

    #[test]
    fn each_difference_has_a_path() {
        let wanted = json!({"to": "ada", "parts": [1, {"n": 2}], "only": 1, "list": [1]});
        let found = json!({"to": "bob", "parts": [1, {"n": 3}], "more": 1, "list": [1, 2]});
        let paths = differences(&wanted, &found);
        assert_eq!(paths, ["list", "only", "parts.1.n", "to", "more"]);
        assert_eq!(shown(&wanted, "parts.1.n"), "2");
        assert_eq!(shown(&found, "only"), "missing");
        assert_eq!(shown(&found, "list"), "[1,2]");
        assert_eq!(differences(&json!(1), &json!(2)), ["."]);
        assert_eq!(shown(&json!(2), "."), "2");
    }

    #[test]
    fn long_values_are_cut() {
        let long = json!("é".repeat(1000));
        let text = shown(&long, ".");
        assert!(text.ends_with("… (2002 bytes)"), "{text}");
        assert!(text.chars().count() < 250);
    }
}
