//! The standard error of an executable: the log of its attempt, line by line.

use std::collections::VecDeque;

use task_engine::Failure;
use task_engine_core::progress::LINE_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::exception::{names_error, uncaught};

/// Enough for a traceback.
const TAIL_LINES: usize = 100;
/// Without one, the last lines are enough.
const LINES_SHOWN: usize = 20;
const TAIL_LINE_CHARS: usize = 500;

/// The last lines, for the error of an attempt that fails.
#[derive(Debug, Default)]
pub(super) struct LogTail(VecDeque<String>);

impl LogTail {
    pub(super) fn add(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        // Indentation is kept.
        self.0.push_back(line.trim_end().chars().take(TAIL_LINE_CHARS).collect());
    }

    /// The last line.
    pub(super) fn last(&self) -> Option<&str> {
        self.0.back().map(|line| line.trim())
    }

    /// The line that most likely says why the process ended, for the end of a message. Node
    /// prints its version last.
    pub(super) fn last_words(&self) -> String {
        let Some(last) = self.last() else {
            return String::new();
        };
        let mut lines = self.0.iter().rev().map(|line| line.trim());
        match lines.find(|line| names_error(line)) {
            Some(line) if line != last => format!("; in its log: {line}"),
            _ => format!("; its last log line: {last}"),
        }
    }

    /// The failure with these lines as its backtrace. A single line that its message
    /// contains is not repeated.
    pub(super) fn of(&self, failure: Failure) -> Failure {
        let known = self.0.len() == 1 && failure.message().contains(self.0[0].trim());
        let shown = self.0.iter().skip(self.0.len().saturating_sub(LINES_SHOWN));
        let lines = if known { Vec::new() } else { shown.cloned().collect() };
        failure.with_trace(lines)
    }

    /// The exception that these lines report, with its traceback, if they do.
    pub(super) fn uncaught(&self) -> Option<Failure> {
        let lines: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let found = uncaught(&lines)?;
        let trace = lines[found.begins..].iter().map(|line| (*line).to_owned()).collect();
        Some(Failure::named(found.exception, found.message).with_trace(trace))
    }
}

/// Splits bytes into lines. Of a very long line, only the first bytes are kept.
#[derive(Debug, Default)]
pub(super) struct LineSplitter(Vec<u8>);

impl LineSplitter {
    pub(super) fn add(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        if let Some(rest) = parts.next() {
            self.keep(rest);
        }
        for begun in parts {
            each(text(&self.0).as_ref());
            self.0.clear();
            self.keep(begun);
        }
    }

    /// The rest without a line break.
    pub(super) fn end(&mut self, mut each: impl FnMut(&str)) {
        if !self.0.is_empty() {
            each(text(&self.0).as_ref());
            self.0.clear();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        // One more than is kept, to show that the line was cut.
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Reads to the end, so that the writer never waits for a full pipe.
pub(super) async fn for_each_line(mut from: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
    let mut buffer = vec![0; 16 * 1024];
    let mut lines = LineSplitter::default();
    // An error is an end.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        lines.add(&buffer[..read], &mut each);
    }
    lines.end(each);
}

fn text(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for_each_line(bytes, |line| lines.push(line.to_owned())).await;
        lines
    }

    #[tokio::test]
    async fn lines_are_split_and_cut() {
        assert_eq!(lines(b"").await, [""; 0]);
        assert_eq!(lines(b"a\r\n\nb").await, ["a", "", "b"]);
        assert_eq!(lines(b"\xff\n").await, ["\u{fffd}"]);
        let endless = lines(&vec![b'x'; 1_000_000]).await;
        assert_eq!((endless.len(), endless[0].len()), (1, LINE_BYTES_MAX + 1));
    }

    #[test]
    fn tail_keeps_last_lines() {
        let mut tail = LogTail::default();
        (0..200).for_each(|n| tail.add(&format!("line {n}")));
        tail.add("  ");
        let last = "; its last log line: line 199";
        assert_eq!((tail.last_words().as_str(), tail.0.len()), (last, TAIL_LINES));
    }

    #[test]
    fn last_words_name_the_error() {
        let words = |log: &str| {
            let mut tail = LogTail::default();
            log.lines().for_each(|line| tail.add(line));
            tail.last_words()
        };
        assert_eq!(words(""), "");
        assert_eq!(words("error: busy\n  ValueError: no\n"), "; its last log line: ValueError: no");
        let node = "node:internal/run_main:123\n    triggerUncaughtException(\n\n\
            Error: Transform failed with 1 error:\n\
            /srv/worker.ts:8:0: ERROR: Top-level await is not supported\n    \
            at failureErrorWithLog (/srv/main.js:1467:15) {\n  errors: [Getter/Setter]\n}\n\n\
            Node.js v22.0.0\n";
        let error = "; in its log: /srv/worker.ts:8:0: ERROR: Top-level await is not supported";
        assert_eq!(words(node), error);
        let node = "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x'\n    at f (a.js:1:2) {\n\
            code: 'ERR_MODULE_NOT_FOUND'\n}\nNode.js v20.0.0";
        let error = "; in its log: Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x'";
        assert_eq!(words(node), error);
        let ruby =
            "a.rb:1:in `require': cannot load such file (LoadError)\n\tfrom a.rb:1:in `<main>'";
        let error = "; in its log: a.rb:1:in `require': cannot load such file (LoadError)";
        assert_eq!(words(ruby), error);
    }
}
