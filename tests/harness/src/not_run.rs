//! Tests that this machine cannot run.

use std::fs::OpenOptions;
use std::io::Write;

/// Set by `./test`, which prints the file at its end.
const VARIABLE: &str = "TASK_ENGINE_TEST_NOT_RUN";

/// Reports that a test, or a part of it, was not run: on the standard error, and in
/// a file that `./test` prints.
pub fn not_run(test: &str, reason: &str) {
    let line = format!("{test}: {reason}\n");
    // `eprint!` is captured in a test that passes.
    let _ = std::io::stderr().write_all(format!("NOT RUN: {line}").as_bytes());
    if let Some(path) = std::env::var_os(VARIABLE)
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}
