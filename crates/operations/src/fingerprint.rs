//! The fingerprint of an error message: the same error has other numbers, ids and names
//! each time.

/// A message without its variable parts: numbers become `<n>`, hexadecimal ones `<hex>`,
/// UUIDs `<uuid>`, and quoted text `<…>`.
pub(crate) fn fingerprint(message: &str) -> String {
    let chars: Vec<char> = message.chars().collect();
    let mut result = String::with_capacity(message.len());
    let mut at = 0;
    while at < chars.len() {
        let inside_word = at > 0 && chars[at - 1].is_alphanumeric();
        let (length, mark) = if inside_word && !chars[at].is_ascii_digit() {
            (0, "")
        } else {
            quoted(&chars[at..])
                .or_else(|| if inside_word { None } else { uuid(&chars[at..]) })
                .or_else(|| if inside_word { None } else { hex(&chars[at..]) })
                .or_else(|| number(&chars[at..]))
                .unwrap_or((0, ""))
        };
        if length == 0 {
            result.push(chars[at]);
            at += 1;
        } else {
            result.push_str(mark);
            at += length;
        }
    }
    result
}

/// All replacements of variable parts.
pub(crate) const MARKS: [&str; 4] = ["<n>", "<hex>", "<uuid>", "<…>"];

type Replacement = Option<(usize, &'static str)>;

/// Text up to the same quote on the same line.
fn quoted(chars: &[char]) -> Replacement {
    let quote = *chars.first().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let inside = chars[1..].iter().take_while(|c| **c != '\n').position(|c| *c == quote)?;
    let after = chars.get(inside + 2);
    // An apostrophe within a word is no quote.
    if quote == '\'' && after.is_some_and(|c| c.is_alphanumeric()) {
        return None;
    }
    Some((inside + 2, "<…>"))
}

fn uuid(chars: &[char]) -> Replacement {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    const LENGTH: usize = 36;
    let fits = chars.len() >= LENGTH
        && chars[..LENGTH]
            .iter()
            .enumerate()
            .all(|(n, c)| if DASHES.contains(&n) { *c == '-' } else { c.is_ascii_hexdigit() });
    (fits && ends_word(chars, LENGTH)).then_some((LENGTH, "<uuid>"))
}

/// `0x…`, or at least eight hexadecimal digits with a number and a letter.
fn hex(chars: &[char]) -> Replacement {
    let prefixed = chars.len() > 2 && chars[0] == '0' && matches!(chars[1], 'x' | 'X');
    let begin = if prefixed { 2 } else { 0 };
    let digits = chars[begin..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
    let word = &chars[begin..begin + digits];
    let mixed = word.iter().any(char::is_ascii_digit) && word.iter().any(char::is_ascii_alphabetic);
    let fits = (prefixed && digits > 0) || (digits >= 8 && mixed);
    (fits && ends_word(chars, begin + digits)).then_some((begin + digits, "<hex>"))
}

/// Digits, with dots, commas and colons between them: versions, addresses, times.
fn number(chars: &[char]) -> Replacement {
    let mut length = chars.iter().take_while(|c| c.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    while chars.get(length).is_some_and(|c| ".,:".contains(*c)) {
        let more = chars[length + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
        if more == 0 {
            break;
        }
        length += 1 + more;
    }
    Some((length, "<n>"))
}

fn ends_word(chars: &[char], length: usize) -> bool {
    !chars.get(length).is_some_and(|c| c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_parts_are_replaced() {
        for (message, expected) in [
            ("", ""),
            ("no such host", "no such host"),
            ("429 Too Many Requests", "<n> Too Many Requests"),
            ("after 1.5 s at 10.0.0.1:5432", "after <n> s at <n>"),
            ("user 3fa85f64-5717-4562-b3fc-2c963f66afa6 is gone", "user <uuid> is gone"),
            ("at 0x7ffe01, commit deadbeef42", "at <hex>, commit <hex>"),
            ("a decade of defaced facades", "a decade of defaced facades"),
            ("no file \"a b.txt\" or 'c'", "no file <…> or <…>"),
            ("can't open, don't ask", "can't open, don't ask"),
            ("an open \"quote", "an open \"quote"),
            ("worker7 failed", "worker<n> failed"),
            ("Zürich 8001", "Zürich <n>"),
        ] {
            assert_eq!(fingerprint(message), expected);
        }
    }

    #[test]
    fn random_messages_have_no_digits() {
        let mut random = fastrand::Rng::with_seed(9);
        let letters: Vec<char> = "a0f-x'\"`. :é\n\u{1b}<>9".chars().collect();
        for _ in 0..5_000 {
            let text: String =
                (0..random.usize(0..50)).map(|_| letters[random.usize(0..letters.len())]).collect();
            let once = fingerprint(&text);
            assert!(!once.contains(|c: char| c.is_ascii_digit()), "{text:?}: {once:?}");
        }
    }
}
