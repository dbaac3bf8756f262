//! Access to the dashboard, and hostile text in the log of an engine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::{Place, eventually};

#[test]
fn public_address_needs_protection() {
    let place = Place::new();
    place.ok(&["migrate"]);
    for command in [&["web", "0.0.0.0:0"][..], &["start", "--web", "0.0.0.0:0"]] {
        let refused = place.run(command);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for word in ["0.0.0.0:0", "TASK_ENGINE_WEB_PASSWORD", "tokens create"] {
            assert!(refused.err.contains(word), "{word}: {refused:?}");
        }
    }
    let open = place.run(&["web", "0.0.0.0:0", "--web-role", "viewer"]);
    assert_eq!(open.code, Some(2), "a role for everybody protects nothing: {open:?}");

    place.ok(&["tokens", "create", "ann", "--role", "viewer"]);
    let served = place.start(&["web", "0.0.0.0:0"]);
    served.says("Dashboard: ");
    served.signal("TERM");
    assert_eq!(served.end().code, Some(0));
    place.ok(&["tokens", "revoke", "ann"]);
    assert_eq!(place.run(&["web", "0.0.0.0:0"]).code, Some(2), "it was the only one");
}

#[test]
fn log_line_stays_one_line() {
    let place = Place::new();
    let script =
        "#!/bin/sh\nprintf 'boom \\033]0;title\\007 \\r2026-01-01 INFO  all is well' >&2\nexit 3\n";
    fs::write(place.path("fail.sh"), script).unwrap();
    fs::set_permissions(place.path("fail.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let config = "[class.fail]\ncommand = [\"./fail.sh\"]\nretry = { maximum = 0 }\n";
    fs::write(place.path("task-engine.toml"), config).unwrap();
    place.ok(&["create", "fail"]);
    let engine = place.start(&["start", "--verbose"]);
    eventually("the task fails", || place.status("1") == "failed");
    engine.says("boom");
    engine.signal("TERM");
    let log = engine.end().err;
    let control = log.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{log}");
    assert!(log.lines().all(|line| !line.starts_with("2026-01-01")), "{log}");
}
