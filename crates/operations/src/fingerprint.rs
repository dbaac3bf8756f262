//! What is the same in two messages: the same error happens with other numbers,
//! ids and names each time.

/// A message without what differs from case to case: numbers become `<n>`,
/// hexadecimal ones `<hex>`, UUIDs `<uuid>`, and what stands in quotes `<…>`.
pub(crate) fn fold(message: &str) -> String {
    let chars: Vec<char> = message.chars().collect();
    let mut folded = String::with_capacity(message.len());
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
            folded.push(chars[at]);
            at += 1;
        } else {
            folded.push_str(mark);
            at += length;
        }
    }
    folded
}

/// All that may stand for what differs.
pub(crate) const MARKS: [&str; 4] = ["<n>", "<hex>", "<uuid>", "<…>"];

type Fold = Option<(usize, &'static str)>;

/// Up to the same quote in the same line.
fn quoted(chars: &[char]) -> Fold {
    let quote = *chars.first().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let inside = chars[1..].iter().take_while(|c| **c != '\n').position(|c| *c == quote)?;
    let after = chars.get(inside + 2);
    // An apostrophe within a word closes nothing.
    if quote == '\'' && after.is_some_and(|c| c.is_alphanumeric()) {
        return None;
    }
    Some((inside + 2, "<…>"))
}

fn uuid(chars: &[char]) -> Fold {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    const LENGTH: usize = 36;
    let fits = chars.len() >= LENGTH
        && chars[..LENGTH]
            .iter()
            .enumerate()
            .all(|(n, c)| if DASHES.contains(&n) { *c == '-' } else { c.is_ascii_hexdigit() });
    (fits && ends_word(chars, LENGTH)).then_some((LENGTH, "<uuid>"))
}

/// `0x…`, or at least eight digits of which one is a number and one a letter.
fn hex(chars: &[char]) -> Fold {
    let prefixed = chars.len() > 2 && chars[0] == '0' && matches!(chars[1], 'x' | 'X');
    let begin = if prefixed { 2 } else { 0 };
    let digits = chars[begin..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
    let word = &chars[begin..begin + digits];
    let mixed = word.iter().any(char::is_ascii_digit) && word.iter().any(char::is_ascii_alphabetic);
    let fits = (prefixed && digits > 0) || (digits >= 8 && mixed);
    (fits && ends_word(chars, begin + digits)).then_some((begin + digits, "<hex>"))
}

/// Digits, with dots, commas and colons between: versions, addresses, times.
fn number(chars: &[char]) -> Fold {
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
    fn what_differs_is_folded() {
        for (message, folded) in [
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
            assert_eq!(fold(message), folded);
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        let mut random = fastrand::Rng::with_seed(9);
        let letters: Vec<char> = "a0f-x'\"`. :é\n\u{1b}<>9".chars().collect();
        for _ in 0..5_000 {
            let text: String =
                (0..random.usize(0..50)).map(|_| letters[random.usize(0..letters.len())]).collect();
            let once = fold(&text);
            assert!(!once.contains(|c: char| c.is_ascii_digit()), "{text:?}: {once:?}");
        }
    }
}
