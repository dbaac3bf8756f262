//! Sandboxes for the program under test.

use task_engine_test_harness::Sandbox;

/// A folder with the default database.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_task-engine"))
}

/// A folder for another database.
pub(crate) fn sandbox_on(url: &str) -> Sandbox {
    let mut sandbox = sandbox();
    sandbox.use_database(url);
    sandbox
}
