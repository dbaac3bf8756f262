//! JSON that is printed, safe for a terminal.
//!
//! JSON strings may contain characters that a terminal interprets. Here they are
//! written as `\uXXXX`, which is the same JSON. Every command prints its JSON
//! through this file (clippy.toml forbids the other way).

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use crate::escape::is_dangerous;

/// Writes a value and the end of its line.
pub(crate) fn write_json_line(
    out: &mut (impl Write + ?Sized),
    value: &(impl Serialize + ?Sized),
) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    out.write_all(escape_json(&text).as_bytes())?;
    out.write_all(b"\n")
}

/// The same JSON on one line, without characters that a terminal interprets.
///
/// Valid JSON has such characters only inside of strings, where an escape means the
/// same. Line ends and tabs between values become spaces.
fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_dangerous) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.push(' '),
            c if is_dangerous(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    safe.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests;
