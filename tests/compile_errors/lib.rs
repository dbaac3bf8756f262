//! The messages of the compiler for usual mistakes: each points at the code of the
//! application and says what to write.
//!
//! After an intended change of a message, write the new ones and read them:
//! `TRYBUILD=overwrite cargo test -p task-engine-compile-errors`.

#![cfg(test)]

use std::process::Command;

/// The compiler that wrote the messages: each version words them differently.
const WRITTEN_BY: &str = "rustc 1.95.";

#[test]
fn mistakes_have_helpful_messages() {
    let compiler = Command::new("rustc").arg("--version").output().expect("rustc");
    let compiler = String::from_utf8_lossy(&compiler.stdout);
    if !compiler.starts_with(WRITTEN_BY) {
        eprintln!("NOT RUN: the messages are of {WRITTEN_BY}x, this is {compiler}");
        return;
    }
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}
