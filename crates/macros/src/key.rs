//! The key of a unique task: a format string over the fields of its type.

/// The longest key, as in `task_engine_core::unique`.
const BYTES_MAX: usize = 500;

/// A parsed key like `order {order} of {customer.id}`.
#[derive(Debug, PartialEq)]
pub(crate) struct Key {
    /// For `format!`, with positional arguments: `order {} of {}`.
    pub(crate) format: String,
    /// The path of each argument: a field, and fields of that field.
    pub(crate) fields: Vec<Vec<String>>,
}

impl Key {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the key is empty; write a key like \"order {order}\"".to_owned());
        }
        if text.contains('\0') {
            return Err("a key cannot contain the character \\0; remove it".to_owned());
        }
        let mut key = Self { format: String::new(), fields: Vec::new() };
        let mut fixed_bytes = 0;
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from_brace) = rest.split_at(at);
            key.format.push_str(before);
            fixed_bytes += before.len();
            let brace = &from_brace[..1];
            if from_brace[1..].starts_with(brace) {
                key.format.push_str(&from_brace[..2]);
                fixed_bytes += 1;
                rest = &from_brace[2..];
                continue;
            }
            let end = from_brace.find('}').filter(|_| brace == "{").ok_or_else(|| {
                format!("the brace `{brace}` has no counterpart; write `{brace}{brace}` for the character itself")
            })?;
            let inner = &from_brace[1..end];
            rest = &from_brace[end + 1..];
            let (path, style) = match inner.split_once(':') {
                Some((path, style)) => (path, format!(":{style}")),
                None => (inner, String::new()),
            };
            if style.contains(['$', '*', '{']) {
                return Err(format!(
                    "the format `{style}` takes a value from elsewhere; write the number itself"
                ));
            }
            let steps: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
            if steps.iter().any(|step| !is_name(step)) {
                return Err(format!(
                    "`{{{inner}}}` does not name a field; write the name of a field between the braces, like `{{order}}`"
                ));
            }
            key.format.push_str(&format!("{{{style}}}"));
            key.fields.push(steps);
        }
        key.format.push_str(rest);
        if fixed_bytes + rest.len() > BYTES_MAX {
            return Err(format!("a key has at most {BYTES_MAX} bytes; write a shorter one"));
        }
        Ok(key)
    }
}

fn is_name(text: &str) -> bool {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    is_number || (starts && text != "_" && chars.all(|c| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_fields_in_order() {
        let key = Key::parse("{{a}} {order:>5} of {customer.id} {0}").unwrap();
        assert_eq!(key.format, "{{a}} {:>5} of {} {}");
        assert_eq!(key.fields, [vec!["order"], vec!["customer", "id"], vec!["0"]]);
        assert_eq!(Key::parse("backup").unwrap().fields, Vec::<Vec<String>>::new());
    }

    #[test]
    fn invalid_key_names_the_reason() {
        let long = "x".repeat(501);
        for (text, why) in [
            ("", "empty"),
            ("a\0", "\\0"),
            ("order {order", "write `{{`"),
            ("order }", "write `}}`"),
            ("order {}", "name of a field"),
            ("order {a-b}", "name of a field"),
            ("order {a.}", "name of a field"),
            ("{a:width$}", "from elsewhere"),
            (&long, "at most 500"),
        ] {
            let error = Key::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
