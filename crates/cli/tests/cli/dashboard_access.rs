//! Access to the dashboard, and hostile text in the log of an engine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::sandbox;
use task_engine_test_harness::wait_until;

#[test]
fn public_address_needs_protection() {
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    for command in [&["web", "0.0.0.0:0"][..], &["start", "--web", "0.0.0.0:0"]] {
        let refused = sandbox.run(command);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for word in ["0.0.0.0:0", "TASK_ENGINE_WEB_PASSWORD", "tokens create"] {
            assert!(refused.err.contains(word), "{word}: {refused:?}");
        }
    }
    let open = sandbox.run(&["web", "0.0.0.0:0", "--web-role", "viewer"]);
    assert_eq!(open.code, Some(2), "a role for everybody protects nothing: {open:?}");

    sandbox.ok(&["tokens", "create", "ann", "--role", "viewer"]);
    let served = sandbox.start(&["web", "0.0.0.0:0"]);
    served.wait_for_log("Dashboard: ");
    served.signal("TERM");
    assert_eq!(served.end().code, Some(0));
    sandbox.ok(&["tokens", "revoke", "ann"]);
    assert_eq!(sandbox.run(&["web", "0.0.0.0:0"]).code, Some(2), "it was the only one");
}

#[test]
fn log_line_stays_one_line() {
    let sandbox = sandbox();
    let script =
        "#!/bin/sh\nprintf 'boom \\033]0;title\\007 \\r2026-01-01 INFO  all is well' >&2\nexit 3\n";
    fs::write(sandbox.path("fail.sh"), script).unwrap();
    fs::set_permissions(sandbox.path("fail.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let config = "[class.fail]\ncommand = [\"./fail.sh\"]\nretry = { maximum = 0 }\n";
    fs::write(sandbox.path("task-engine.toml"), config).unwrap();
    sandbox.ok(&["create", "fail"]);
    let engine = sandbox.start(&["start", "--verbose"]);
    wait_until("the task fails", || sandbox.status("1") == "failed");
    engine.wait_for_log("boom");
    engine.signal("TERM");
    let log = engine.end().err;
    let control = log.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{log}");
    assert!(log.lines().all(|line| !line.starts_with("2026-01-01")), "{log}");
}
