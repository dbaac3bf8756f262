//! Shows invisible and bidirectional control characters as escapes.
//!
//! Names, errors and logs are user input. U+202E in one of them would reverse the
//! text around it. All pages pass through here. The escapes are those of JSON, so
//! copied JSON keeps its meaning.

use std::borrow::Cow;

/// Escapes the text of a page. Attributes and text areas stay as they are.
pub(crate) fn page(html: &str) -> Cow<'_, str> {
    if !html.contains(is_hidden) {
        return Cow::Borrowed(html);
    }
    let mut out = String::with_capacity(html.len() + 64);
    let mut rest = html;
    while let Some(begin) = rest.find('<') {
        escape(&rest[..begin], &mut out);
        rest = &rest[begin..];
        // Attribute values are escaped, so a tag ends at the first `>`.
        let raw = if rest.starts_with("<textarea") { "</textarea>" } else { ">" };
        let end = rest.find(raw).map_or(rest.len(), |at| at + raw.len());
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    escape(rest, &mut out);
    Cow::Owned(out)
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}

fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\r' | '\t' => false,
        // Bidirectional controls, line separators, byte order mark.
        '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direction_marks_become_escapes() {
        for (html, shown) in [
            ("<p>plain é</p>", "<p>plain é</p>"),
            ("<p>a\u{202e}b</p>", "<p>a\\u202eb</p>"),
            ("a\u{9b}\u{1b}[31m\n\tb", "a\\u009b\\u001b[31m\n\tb"),
            ("<input value=\"\u{202e}\">\u{2066}", "<input value=\"\u{202e}\">\\u2066"),
            ("<textarea>\u{202e}</textarea>\u{202e}", "<textarea>\u{202e}</textarea>\\u202e"),
            ("\u{202e}<p", "\\u202e<p"),
        ] {
            assert_eq!(page(html), shown);
        }
    }
}
