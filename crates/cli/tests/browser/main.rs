//! The dashboard as people use it: in a real browser, on the real program.

mod chromium;
mod does;
mod hostile;
mod looks;
#[path = "../cli/support.rs"]
#[allow(dead_code)] // Shared with the tests of the command line.
mod support;
mod watches;

use chromium::Browser;
use support::sandbox;
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

/// A dashboard, served by a command that goes on.
struct Served {
    url: String,
    running: RunningProgram,
}

impl Served {
    /// Starts a command that serves one, and waits until it says where.
    fn by(sandbox: &Sandbox, args: &[&str]) -> Self {
        let running = sandbox.start(args);
        let address = || {
            let words = running.err();
            let line = words.lines().find_map(|line| line.strip_prefix("Dashboard: "))?;
            Some(line.trim_end_matches('/').to_owned())
        };
        wait_until("the dashboard says where it is", || address().is_some());
        Self { url: address().unwrap_or_default(), running }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// Nothing was refused, nothing failed, nothing popped up.
fn nothing_to_complain(browser: &mut Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
