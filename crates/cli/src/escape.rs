//! Text from tasks, made safe for a terminal.
//!
//! Any user who may create tasks chooses classes, parameters and errors. Printed
//! raw, they could move the cursor, fake a line, fill the clipboard, or reverse the
//! direction of text; here such characters are escaped.

use std::borrow::Cow;

/// For one line: line ends are escaped, too.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, |_| false)
}

/// For several lines.
pub(crate) fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_but(text, |c| c == '\n')
}

/// The first line, escaped, cut to so many characters.
pub(crate) fn summary(text: &str, chars_max: usize) -> String {
    let mut lines = text.trim_start().lines();
    let first = escape(lines.next().unwrap_or_default()).into_owned();
    let more = lines.next().is_some();
    if first.chars().count() <= chars_max && !more {
        return first;
    }
    let mut cut: String = first.chars().take(chars_max.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

fn escape_but(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let dangerous = |c: char| is_dangerous(c) && !keep(c);
    if !text.contains(dangerous) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !dangerous(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c => safe.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(safe)
}

/// Whether a terminal may interpret or hide a character instead of showing it.
pub(crate) fn is_dangerous(c: char) -> bool {
    // C0, DEL and C1, with ESC and CSI among them.
    c.is_control()
        // Changes of the direction of text.
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        // Line ends to some terminals.
        || matches!(c, '\u{2028}' | '\u{2029}')
        // Invisible: deprecated format characters, the byte order mark,
        // annotations, and tags, which can carry a hidden text.
        || matches!(c, '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain, Grüße, 日本", "plain, Grüße, 日本"),
            ("\u{1b}[31mred", r"\u{1b}[31mred"),
            ("\u{1b}]52;c;ZXZpbA==\u{7}", r"\u{1b}]52;c;ZXZpbA==\u{7}"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("a\nb\r\tc\0", r"a\nb\r\tc\u{0}"),
            ("exe.\u{202e}gpj", r"exe.\u{202e}gpj"),
            ("\u{2066}x\u{2069}", r"\u{2066}x\u{2069}"),
            ("\u{feff}\u{e0041}", r"\u{feff}\u{e0041}"),
        ] {
            assert_eq!(escape(text), shown);
        }
        assert_eq!(escape_lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }

    #[test]
    fn summary_is_one_short_line() {
        assert_eq!(summary("short", 10), "short");
        assert_eq!(summary("first\nsecond", 10), "first…");
        assert_eq!(summary("\n first", 10), "first");
        assert_eq!(summary("a long message", 7), "a long…");
        assert_eq!(summary("é".repeat(20).as_str(), 5), "éééé…");
    }
}
