//! The dashboard in a real browser, served by the real program.

mod chromium;
mod durable;
mod flows;
mod hostile;
mod layout;
mod limits;
mod live_updates;
mod operations;
#[path = "../cli/support.rs"]
#[allow(dead_code)] // Shared with the tests of the command line.
mod support;

use chromium::Browser;
use support::sandbox;
use task_engine_test_harness::{RunningProgram, Sandbox, wait_until};

/// A dashboard of a running command.
struct Served {
    url: String,
    running: RunningProgram,
}

impl Served {
    /// Starts a command with a dashboard and waits for its address.
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

/// No errors, policy violations or dialogs.
fn no_page_errors(browser: &mut Browser) {
    let errors = browser.errors();
    assert!(errors.is_empty(), "{errors:#?}");
}
