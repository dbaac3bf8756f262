//! Files of SQL with several statements, as the stores have them.

/// Returns a statement of a file: the text between the line `-- name: NAME` and the next such line,
/// without its semicolon.
///
/// In a constant, a name that is missing fails the build.
#[must_use]
pub const fn statement<'a>(file: &'a str, name: &str) -> &'a str {
    let text = file.as_bytes();
    let mut at = 0;
    while at < text.len() {
        if is_header(text, at, name.as_bytes()) {
            let start = next_line(text, at);
            let mut end = start;
            while end < text.len() && !starts_with(text, end, HEADER) {
                end = next_line(text, end);
            }
            while end > start && matches!(text[end - 1], b'\n' | b' ' | b';') {
                end -= 1;
            }
            return file.split_at(end).0.split_at(start).1;
        }
        at = next_line(text, at);
    }
    panic!("the file has no statement of this name")
}

const HEADER: &[u8] = b"-- name: ";

const fn is_header(text: &[u8], at: usize, name: &[u8]) -> bool {
    let end = at + HEADER.len() + name.len();
    starts_with(text, at, HEADER)
        && starts_with(text, at + HEADER.len(), name)
        && end < text.len()
        && text[end] == b'\n'
}

const fn starts_with(text: &[u8], at: usize, with: &[u8]) -> bool {
    if at + with.len() > text.len() {
        return false;
    }
    let mut n = 0;
    while n < with.len() {
        if text[at + n] != with[n] {
            return false;
        }
        n += 1;
    }
    true
}

const fn next_line(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] != b'\n' {
        at += 1;
    }
    if at < text.len() { at + 1 } else { at }
}

#[cfg(test)]
mod tests {
    use super::statement;

    const FILE: &str = "-- name: one\nSELECT 1;\n\n-- name: one_more\n-- Why.\nSELECT 2\n;\n";

    #[test]
    fn statement_ends_before_next_name() {
        assert_eq!(statement(FILE, "one"), "SELECT 1");
        assert_eq!(statement(FILE, "one_more"), "-- Why.\nSELECT 2");
    }

    #[test]
    #[should_panic(expected = "no statement")]
    fn missing_name_panics() {
        let _ = statement(FILE, "on");
    }
}
