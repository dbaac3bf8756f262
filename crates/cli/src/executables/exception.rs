//! Uncaught exceptions, as interpreters print them before they exit with code 1. The
//! attempt is recorded with the name of the exception.

/// An uncaught exception.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UncaughtException {
    pub(super) exception: String,
    pub(super) message: String,
    /// Where the report begins among the lines.
    pub(super) begins: usize,
}

/// How many lines a message may have before the calls follow (Node).
const MESSAGE_LINES_MAX: usize = 20;

/// The last exception that these lines of a standard error report.
pub(super) fn uncaught(lines: &[&str]) -> Option<UncaughtException> {
    let found = [python(lines), node(lines), ruby(lines)];
    found.into_iter().flatten().max_by_key(|found| found.begins)
}

/// ```text
/// Traceback (most recent call last):
///   File "job.py", line 3, in <module>
/// ValueError: no such account
/// ```
fn python(lines: &[&str]) -> Option<UncaughtException> {
    let is_place = |line: &&str| line.starts_with("  File \"");
    let begins = lines
        .iter()
        .rposition(|line| line.starts_with("Traceback (most recent call last)"))
        // A file that is not Python has no calls to report.
        .or_else(|| lines.iter().rposition(&is_place))?;
    let rest = &lines[begins + 1..];
    if !lines[begins..].iter().any(is_place) {
        return None;
    }
    let last = rest.iter().find(|line| !line.starts_with(char::is_whitespace))?;
    let (exception, message) = name_and_message(last)?;
    Some(UncaughtException { exception, message, begins })
}

/// ```text
/// TypeError: x is not a function
///     at work (/srv/job.js:3:7)
/// ```
fn node(lines: &[&str]) -> Option<UncaughtException> {
    let is_call = |line: &str| line.starts_with("    at ");
    let call = (1..lines.len()).rev().find(|at| is_call(lines[*at]) && !is_call(lines[at - 1]))?;
    let first = call.saturating_sub(MESSAGE_LINES_MAX);
    (first..call).rev().find_map(|begins| {
        let (exception, message) = name_and_message(lines[begins])?;
        // `Error [ERR_X]: …`
        let exception = exception.split(" [").next().unwrap_or_default().to_owned();
        Some(UncaughtException { exception, message, begins })
    })
}

/// ```text
/// job.rb:2:in `work': no such account (ArgumentError)
///         from job.rb:5:in `<main>'
/// ```
fn ruby(lines: &[&str]) -> Option<UncaughtException> {
    lines.iter().enumerate().rev().find_map(|(begins, line)| {
        let (head, exception) = line.strip_suffix(')')?.rsplit_once(" (")?;
        if !is_name(exception) || !exception.starts_with(|c: char| c.is_ascii_uppercase()) {
            return None;
        }
        // The file, the line, and where in it.
        let (file, rest) = head.split_once(".rb:")?;
        let (number, rest) = rest.split_once(':')?;
        let is_place = !file.starts_with(char::is_whitespace)
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit());
        let message = match rest.strip_prefix("in ") {
            Some(rest) => rest.split_once("': ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        let (exception, message) = (exception.to_owned(), message.to_owned());
        is_place.then_some(UncaughtException { exception, message, begins })
    })
}

/// Whether a line reports an error: `ERROR: …`, `Error [ERR_X]: …`, `… (LoadError)`.
pub(super) fn names_error(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    let ends = ["error", "exception"].iter().any(|word| line.ends_with(&format!("{word})")));
    let with_code = line.starts_with("error [") || line.contains("error [err_");
    ends || with_code || line.contains("error: ") || line.contains("exception: ")
}

/// `ValueError: no such account`, or a name alone.
fn name_and_message(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("UncaughtException ").unwrap_or(line).trim_end();
    let (name, message) = match line.split_once(':') {
        Some((name, message)) => (name, message.trim_start()),
        None => (line, ""),
    };
    let plain = match name.split_once(" [") {
        Some((plain, code)) if code.ends_with(']') => plain,
        Some(_) => return None,
        None => name,
    };
    is_name(plain).then(|| (name.to_owned(), message.to_owned()))
}

/// `KeyError`, `requests.exceptions.ConnectionError`, `ActiveRecord::NotFound`.
fn is_name(text: &str) -> bool {
    let last = text.rsplit(['.', ':']).next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_uppercase())
        && text.len() <= 200
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.:$".contains(c))
}

#[cfg(test)]
mod tests;
