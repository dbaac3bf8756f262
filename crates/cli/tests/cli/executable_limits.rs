//! Executables at the limits: no attempt overlaps another, and no task is charged
//! for what its engine lacks.

use std::fs;

use task_engine_test_harness::TestServer;

use super::executables::{class, create, ended, file, stop};
use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

/// Writes when it begins and while it runs, and does not obey SIGTERM.
const OVERLAPS: &str = r#"
trap "" TERM
n=$TASK_ENGINE_ATTEMPT
[ $n -ge 3 ] && exit 0
echo "$n begins" >> witness
while :; do echo "$n runs" >> witness; sleep 0.02; done
"#;

/// The numbers of the attempts that wrote, in the order in which they did.
fn writers(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("witness")).unwrap_or_default();
    let mut all: Vec<String> =
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    all.dedup();
    all
}

/// An engine is killed and started again at once, under the name it had or under
/// another one.
fn attempts_do_not_overlap(sandbox: &Sandbox, names: [&str; 3]) {
    file(sandbox, &class("stubborn", "retry = { first_delay = \"1ms\" }", OVERLAPS));
    let id = create(sandbox, "stubborn", "{}");
    let start = |name: &str| {
        let settings = ["--recovery", "auto", "--heartbeat", "200ms", "--dead-after", "20s"];
        sandbox.start(&[&["start", "--instance", name], &settings[..]].concat())
    };
    for (attempt, name) in names[..2].iter().enumerate() {
        let engine = start(name);
        let attempt = (attempt + 1).to_string();
        wait_until("it runs", || writers(sandbox).contains(&attempt));
        engine.signal("KILL");
        engine.end();
    }
    let engine = start(names[2]);
    assert_eq!(ended(sandbox, &id)["status"], "stopped");
    assert_eq!(writers(sandbox), ["1", "2"], "each attempt ends before the next begins");
    stop(engine);
}

#[test]
fn restarted_engine_waits_for_programs_on_sqlite() {
    attempts_do_not_overlap(&sandbox(), ["a", "a", "a"]);
    attempts_do_not_overlap(&sandbox(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_engine_waits_for_programs_on_postgresql() {
    for names in [["a", "a", "a"], ["a", "b", "c"]] {
        let url = TestServer::shared().create_database().await;
        attempts_do_not_overlap(&sandbox_on(&url), names);
    }
}

/// Runs tasks under a limit of open files.
fn under_limit(ulimit: &str, workers: &str, tasks: usize) -> (Sandbox, String) {
    let sandbox = sandbox();
    let script = "ulimit -Sn >&2; sleep 0.2; echo 1";
    file(&sandbox, &class("short", "retry = { maximum = 0 }", script));
    sandbox.ok(&["create", "short", "{}", "--count", &tasks.to_string()]);
    let around = ["sh", "-c", &format!("ulimit {ulimit}; exec \"$@\""), "sh"];
    let engine = sandbox.start_under(&around, &["start", "--workers", workers]);
    wait_until("all end", || {
        let tasks = sandbox.tasks();
        tasks.iter().all(|task| task["status"] != "waiting" && task["status"] != "running")
    });
    assert!(sandbox.tasks().iter().all(|task| task["status"] == "stopped"), "none is charged");
    let log = engine.err();
    stop(engine);
    (sandbox, log)
}

#[test]
fn soft_limit_of_files_is_raised() {
    let (sandbox, log) = under_limit("-Sn 64", "40", 80);
    assert!(!log.contains("instead of"), "{log}");
    assert!(sandbox.ok(&["logs", "1"]).contains("  64\n"), "programs have the limit they had");
}

#[test]
fn hard_limit_of_files_means_fewer_workers() {
    let (_, log) = under_limit("-n 64", "40", 30);
    assert!(log.contains("4 workers instead of 40: the limits allow 4 programs"), "{log}");
    assert!(log.contains("may open 64 files; raise that with `ulimit -n`"), "{log}");
}

/// A limit that shrinks while the engine runs: programs cannot be started, and
/// their tasks wait without being charged.
#[test]
fn missing_files_charge_no_retry() {
    let sandbox = sandbox();
    let script = "echo begun >> begun; while [ ! -e go ]; do sleep 0.05; done; echo 1";
    file(&sandbox, &class("waits", "retry = { maximum = 0 }", script));
    sandbox.ok(&["create", "waits", "{}", "--count", "30"]);
    let engine = sandbox.start(&["start", "--workers", "30"]);
    engine.wait_for_log("started with");
    wait_until("one runs", || sandbox.path("begun").exists());
    let pid = engine.id().to_string();
    sandbox.shell(&format!("prlimit --pid {pid} --nofile=40:40"));
    sandbox.ok(&["create", "waits", "{}", "--count", "10"]);
    fs::write(sandbox.path("go"), "").unwrap();
    wait_until("it runs again", || {
        sandbox.shell(&format!("prlimit --pid {pid} --nofile=4096:4096"));
        let tasks = sandbox.tasks();
        tasks.iter().all(|task| task["status"] != "waiting" && task["status"] != "running")
    });
    assert!(sandbox.tasks().iter().all(|task| task["status"] == "stopped"), "none is charged");
    stop(engine);
}
