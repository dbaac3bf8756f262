//! Decodes escapes, so that a secret is found in every notation: `\"`, `\/` and `\u00e9` of
//! JSON, `\u{e9}` of Rust, `\xe9` of Python, `%C3%A9` and `+` of URLs. Searching decoded text
//! is simpler than searching for every encoded form, because encoders differ in what they
//! escape.

/// A decoded text, and the source position of each of its bytes.
pub(super) struct Decoded {
    pub(super) text: String,
    /// The position of each byte in the source text, then the end.
    from: Vec<usize>,
}

/// How often JSON in JSON in a log line is decoded.
const ROUNDS_MAX: usize = 4;

/// Every decoding of a text; none if it has no escapes.
pub(super) fn readings(text: &str) -> Vec<Decoded> {
    let mut readings = Vec::new();
    for decode in [backslashes, percents] as [fn(&Decoded) -> Option<Decoded>; 2] {
        let mut next =
            if text.contains(['\\', '%', '+']) { decode(&Decoded::of(text)) } else { None };
        while let Some(decoded) = next {
            let again = readings.len() < ROUNDS_MAX;
            next = if again { decode(&decoded) } else { None };
            readings.push(decoded);
        }
    }
    readings
}

impl Decoded {
    fn of(text: &str) -> Self {
        Self { text: text.to_owned(), from: (0..=text.len()).collect() }
    }

    /// The range in the source text.
    pub(super) fn place(&self, begin: usize, end: usize) -> (usize, usize) {
        (self.from[begin], self.from[end])
    }

    fn empty() -> Self {
        Self { text: String::new(), from: Vec::new() }
    }

    /// Copies `of.text[begin..end]`.
    fn copy(&mut self, of: &Self, begin: usize, end: usize) {
        self.text.push_str(&of.text[begin..end]);
        self.from.extend_from_slice(&of.from[begin..end]);
    }

    fn push(&mut self, c: char, from: usize) {
        self.text.push(c);
        self.from.resize(self.text.len(), from);
    }

    fn ended(mut self, of: &Self) -> Self {
        self.from.extend(of.from.last());
        self
    }
}

/// A decoded escape, and its length.
enum Escape {
    Char(char, usize),
    /// The text was cut in the middle of the escape.
    Cut,
    None,
}

fn backslashes(of: &Decoded) -> Option<Decoded> {
    let text = of.text.as_str();
    let (mut out, mut at) = (Decoded::empty(), 0);
    let mut any = false;
    while let Some(found) = text[at..].find('\\') {
        let begin = at + found;
        out.copy(of, at, begin);
        at = match escape(&text[begin..]) {
            Escape::Char(c, length) => {
                out.push(c, of.from[begin]);
                any = true;
                begin + length
            }
            Escape::Cut => {
                any = true;
                text.len()
            }
            Escape::None => {
                out.copy(of, begin, begin + 1);
                begin + 1
            }
        };
    }
    out.copy(of, at, text.len());
    any.then(|| out.ended(of))
}

/// The escape at the beginning of a text.
fn escape(text: &str) -> Escape {
    let Some(kind) = text[1..].chars().next() else { return Escape::Cut };
    let plain = |c| Escape::Char(c, 2);
    match kind {
        '"' | '\\' | '/' | '\'' => plain(kind),
        'n' => plain('\n'),
        'r' => plain('\r'),
        't' => plain('\t'),
        'b' => plain('\u{8}'),
        'f' => plain('\u{c}'),
        '0' => plain('\0'),
        'x' => digits(text, 2, 2).map_or_else(|none| none, |(code, end)| char_of(code, end)),
        'u' if text[2..].starts_with('{') => match text.find('}') {
            Some(end) if end <= 9 => match u32::from_str_radix(&text[3..end], 16) {
                Ok(code) => char_of(code, end + 1),
                Err(_) => Escape::None,
            },
            None if text.len() <= 9 => Escape::Cut,
            _ => Escape::None,
        },
        'u' => digits(text, 2, 4).map_or_else(|none| none, |(code, end)| utf16(text, code, end)),
        _ => Escape::None,
    }
}

/// Reads `number` hexadecimal digits; returns their value and their end.
fn digits(text: &str, at: usize, number: usize) -> Result<(u32, usize), Escape> {
    let rest = &text.as_bytes()[at..];
    let hex = rest.iter().take(number).take_while(|byte| byte.is_ascii_hexdigit()).count();
    if hex == number {
        let code = u32::from_str_radix(&text[at..at + number], 16);
        return code.map(|code| (code, at + number)).map_err(|_| Escape::None);
    }
    Err(if hex == rest.len() { Escape::Cut } else { Escape::None })
}

fn char_of(code: u32, end: usize) -> Escape {
    char::from_u32(code).map_or(Escape::None, |c| Escape::Char(c, end))
}

/// Joins the two halves of a surrogate pair.
fn utf16(text: &str, code: u32, end: usize) -> Escape {
    if !(0xd800..0xdc00).contains(&code) {
        return char_of(code, end);
    }
    match text[end..].strip_prefix("\\u") {
        Some(_) => match digits(text, end + 2, 4) {
            Ok((low, end)) if (0xdc00..0xe000).contains(&low) => {
                char_of(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), end)
            }
            Ok(_) => Escape::None,
            Err(none) => none,
        },
        None if "\\u".starts_with(&text[end..]) => Escape::Cut,
        None => Escape::None,
    }
}

fn percents(of: &Decoded) -> Option<Decoded> {
    let text = of.text.as_str();
    let (mut out, mut at) = (Decoded::empty(), 0);
    let mut any = false;
    while let Some(found) = text[at..].find(['%', '+']) {
        let begin = at + found;
        out.copy(of, at, begin);
        if text[begin..].starts_with('+') {
            out.push(' ', of.from[begin]);
            (any, at) = (true, begin + 1);
            continue;
        }
        let bytes = percent_bytes(&text[begin..]);
        let valid = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(bad) => bad.valid_up_to(),
        };
        let decoded = String::from_utf8_lossy(&bytes[..valid]);
        for (n, c) in decoded.char_indices() {
            out.push(c, of.from[begin + 3 * n]);
        }
        at = begin + 3 * valid;
        any |= valid > 0;
        if valid < bytes.len() || bytes.is_empty() {
            // Not UTF-8, or no escape: copy it.
            out.copy(of, at, at + 1);
            at += 1;
        }
    }
    out.copy(of, at, text.len());
    any.then(|| out.ended(of))
}

/// The bytes of `%XX%XX…` at the beginning of a text.
fn percent_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for triple in text.as_bytes().chunks(3) {
        let &[b'%', high, low] = triple else { break };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let (Some(high), Some(low)) = (digit(high), digit(low)) else { break };
        bytes.push(high * 16 + low);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        readings(text).into_iter().map(|reading| reading.text).collect()
    }

    #[test]
    fn escapes_are_decoded() {
        for (text, read) in [
            ("plain", &[][..]),
            (r#"a\"b\\c\/d\ne"#, &["a\"b\\c/d\ne", "a\"b"]),
            (r"\u00e9\u00E9\xe9\u{e9}", &["éééé"]),
            (r"\ud83d\ude00!", &["😀!"]),
            (r"\ud83d \q \u{zz} \x", &[r"\ud83d \q \u{zz} "]),
            (r"end\u00", &["end"]),
            (r"end\", &["end"]),
            (r"end\ud83d\ud", &["end"]),
            ("a%20b+c%C3%a9", &["a b cé"]),
            ("%ff%41 100% %zz", &["%ffA 100% %zz"]),
            ("é%", &[]),
        ] {
            assert_eq!(all(text).first().map(String::as_str), read.first().copied(), "{text}");
        }
        assert_eq!(all(r#"{\\\"a\\\"}"#), [r#"{\"a\"}"#, r#"{"a"}"#]);
        assert!(all(&"\\".repeat(100_000)).len() <= ROUNDS_MAX + 1);
    }

    #[test]
    fn places_refer_to_source() {
        let text = r#"x é \u00e9\"q%C3%A9"#;
        for reading in readings(text) {
            for (at, c) in reading.text.char_indices() {
                let (begin, end) = reading.place(at, at + c.len_utf8());
                assert!(text.is_char_boundary(begin) && text.is_char_boundary(end), "{at}");
                assert!(begin < end, "{at} of {:?}", reading.text);
            }
        }
    }

    #[test]
    fn random_texts_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        let pieces = ["\\", "u", "{", "}", "00e9", "d83d", "%", "C3", "+", "é", "x", "\"", "0"];
        for _ in 0..20_000 {
            let text: String =
                (0..random.usize(..12)).map(|_| pieces[random.usize(..pieces.len())]).collect();
            for reading in readings(&text) {
                for (at, _) in reading.text.char_indices() {
                    let (begin, end) = reading.place(at, reading.text.len());
                    let _ = &text[begin..end];
                }
            }
        }
    }
}
