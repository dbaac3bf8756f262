//! Characters that change how the text around them reads are shown as escapes.
//!
//! Names, errors and logs come from whoever creates tasks. U+202E in one of them
//! would turn the words beside it round; a control character is not seen at all.
//! All pages pass through here, so that no page can forget it. Escapes are those
//! of JSON: what is copied from a page means the same.

use std::borrow::Cow;

/// A page with such characters of its text as escapes. What is in tags stays (a
/// value of a field, an address), and so does what is typed into a text area.
pub(crate) fn page(html: &str) -> Cow<'_, str> {
    if !html.contains(is_hidden) {
        return Cow::Borrowed(html);
    }
    let mut out = String::with_capacity(html.len() + 64);
    let mut rest = html;
    while let Some(begin) = rest.find('<') {
        escape(&rest[..begin], &mut out);
        rest = &rest[begin..];
        // Everything in a page is escaped, so a tag ends at the first `>`.
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
        // What turns the direction of reading, what ends a line unseen, and a mark
        // that belongs at the beginning of files.
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
