//! Lines that tasks leave outside the database.
//!
//! ```text
//! begin TASK ATTEMPT PROCESS MICROSECONDS
//! end TASK ATTEMPT PROCESS MICROSECONDS
//! ```
//!
//! The time is that since the boot of the machine: the same for all processes,
//! also with a wrong clock.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the boot of the machine.
#[must_use]
pub fn now_us() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// Appends a line, and waits until it is on the disk.
pub fn append_line(file: &Path, line: &str) -> io::Result<()> {
    let mut opened = OpenOptions::new().create(true).append(true).open(file)?;
    // One call, so that lines of many processes never mix.
    if opened.write(line.as_bytes())? != line.len() {
        return Err(io::Error::other("the line was written in part"));
    }
    opened.sync_data()
}

/// One attempt as its task wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ObservedAttempt {
    pub process: u32,
    pub began: i64,
    pub ended: Option<i64>,
}

/// All lines, by task and attempt.
#[derive(Debug, Default)]
pub struct Witness {
    /// By task and attempt.
    pub attempts: BTreeMap<(i64, i32), ObservedAttempt>,
    /// Attempts that began twice, or ended without a beginning.
    pub contradictions: Vec<String>,
}

impl Witness {
    /// Parses the lines. A last line without its end was being written when its
    /// process was killed.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut witness = Self::default();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            witness.take(line.trim_end());
        }
        witness
    }

    pub(crate) fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok());
        let (Some(task), Some(attempt), Some(process), Some(time)) =
            (number(1), number(2), number(3), number(4))
        else {
            self.contradictions.push(format!("invalid line: {line:?}"));
            return;
        };
        let key = (task, i32::try_from(attempt).unwrap_or(0));
        let process = u32::try_from(process).unwrap_or(0);
        match (words[0], self.attempts.get_mut(&key)) {
            ("begin", None) => {
                self.attempts.insert(key, ObservedAttempt { process, began: time, ended: None });
            }
            ("end", Some(seen)) if seen.ended.is_none() && seen.process == process => {
                seen.ended = Some(time);
            }
            _ => self.contradictions.push(format!("twice, or by another process: {line:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_last_line_is_ignored() {
        let witness = Witness::read("begin 1 1 7 100\nend 1 1 7 200\nbegin 2 1 7 300\nend 2 1 7 4");
        assert_eq!(
            witness.attempts[&(1, 1)],
            ObservedAttempt { process: 7, began: 100, ended: Some(200) }
        );
        assert_eq!(witness.attempts[&(2, 1)].ended, None);
        assert!(witness.contradictions.is_empty());
    }

    #[test]
    fn second_begin_is_a_contradiction() {
        let witness = Witness::read("begin 1 1 7 100\nbegin 1 1 8 200\nend 3 1 7 1\n");
        assert_eq!(witness.contradictions.len(), 2);
    }
}
