//! Runs every fault, one after the other: see `task_engine_faults::run`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    task_engine_faults::run::main(Path::new(env!("CARGO_BIN_EXE_fault-engine")))
}
