//! Lines that durable tasks, and senders of signals, leave outside the database, as JSON.
//!
//! An attempt of a durable task also writes the lines of [`witness`](crate::witness).

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::witness::append_line;

/// One observation of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StepLine {
    pub task: i64,
    pub attempt: i32,
    /// Microseconds since the boot of the machine.
    pub time_us: i64,
    /// The wall clock of the machine, which is the clock of the database.
    pub clock: Timestamp,
    #[serde(flatten)]
    pub event: StepEvent,
}

/// What an attempt observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum StepEvent {
    /// The code of a step starts.
    CodeStarted { step: String },
    /// The code of a step returns this value. It is not recorded yet.
    CodeEnded { step: String, value: String },
    /// The step returned this value: recorded now or earlier.
    Received { step: String, value: String },
    /// The sleep returned.
    Slept,
    /// The wait returned the payload of the signal; `None` if it timed out.
    Signal { payload: Option<String> },
    /// The call returned the results of the children.
    Children { results: Vec<u64> },
    /// The task is about to return this result.
    Result { sum: u64 },
}

/// One observation of a sender of signals. Each payload is sent once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SignalLine {
    pub task: i64,
    pub payload: String,
    pub state: SignalState,
}

/// What the sender knows about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalState {
    /// It is about to be sent. The last line of a sender that was killed.
    Sending,
    /// Stored, and committed.
    Accepted,
    /// Not stored: a duplicate, or too late.
    Refused,
    /// Its transaction was rolled back.
    RolledBack,
    /// The call returned an error.
    Unknown,
}

/// The file for the lines of durable tasks, beside the file of the witness.
#[must_use]
pub fn steps_file(witness: &Path) -> PathBuf {
    witness.with_extension("steps")
}

/// The file that exists as soon as a task was stopped at a point of its code.
#[must_use]
pub fn stop_file(witness: &Path, task: i64, point: &str) -> PathBuf {
    witness.with_extension(format!("stopped-{task}-{point}"))
}

/// Appends a line.
pub fn append(file: &Path, line: &impl Serialize) -> io::Result<()> {
    append_line(file, &format!("{}\n", serde_json::to_string(line)?))
}

/// Reads all lines, except a last one that was being written.
#[must_use]
pub fn read_lines<T: DeserializeOwned>(file: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("a line of this program")).collect()
}
