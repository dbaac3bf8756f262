//! Executables at the limits: no attempt overlaps another, and no task is charged
//! for what its engine lacks.

use std::fs;

use task_engine_conformance::TestServer;

use super::executables::{class, create, ended, file, stop};
use super::support::{Place, eventually};

/// Writes when it begins and while it runs, and does not obey SIGTERM.
const OVERLAPS: &str = r#"
trap "" TERM
n=$TASK_ENGINE_ATTEMPT
[ $n -ge 3 ] && exit 0
echo "$n begins" >> witness
while :; do echo "$n runs" >> witness; sleep 0.02; done
"#;

/// The numbers of the attempts that wrote, in the order in which they did.
fn writers(place: &Place) -> Vec<String> {
    let text = fs::read_to_string(place.path("witness")).unwrap_or_default();
    let mut all: Vec<String> =
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    all.dedup();
    all
}

/// An engine is killed and started again at once, under the name it had or under
/// another one.
fn attempts_do_not_overlap(place: &Place, names: [&str; 3]) {
    file(place, &class("stubborn", "retry = { first_delay = \"1ms\" }", OVERLAPS));
    let id = create(place, "stubborn", "{}");
    let start = |name: &str| {
        let settings = ["--recovery", "auto", "--heartbeat", "200ms", "--dead-after", "20s"];
        place.start(&[&["start", "--instance", name], &settings[..]].concat())
    };
    for (attempt, name) in names[..2].iter().enumerate() {
        let engine = start(name);
        let attempt = (attempt + 1).to_string();
        eventually("it runs", || writers(place).contains(&attempt));
        engine.signal("KILL");
        engine.end();
    }
    let engine = start(names[2]);
    assert_eq!(ended(place, &id)["status"], "stopped");
    assert_eq!(writers(place), ["1", "2"], "each attempt ends before the next begins");
    stop(engine);
}

#[test]
fn restarted_engine_waits_for_programs_on_sqlite() {
    attempts_do_not_overlap(&Place::new(), ["a", "a", "a"]);
    attempts_do_not_overlap(&Place::new(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_engine_waits_for_programs_on_postgresql() {
    for names in [["a", "a", "a"], ["a", "b", "c"]] {
        let url = TestServer::shared().create_database().await;
        attempts_do_not_overlap(&Place::with_database(&url), names);
    }
}

/// Runs tasks under a limit of open files.
fn under_limit(ulimit: &str, workers: &str, tasks: usize) -> (Place, String) {
    let place = Place::new();
    let script = "ulimit -Sn >&2; sleep 0.2; echo 1";
    file(&place, &class("short", "retry = { maximum = 0 }", script));
    place.ok(&["create", "short", "{}", "--count", &tasks.to_string()]);
    let around = ["sh", "-c", &format!("ulimit {ulimit}; exec \"$@\""), "sh"];
    let engine = place.start_under(&around, &["start", "--workers", workers]);
    eventually("all end", || {
        let tasks = place.tasks();
        tasks.iter().all(|task| task["status"] != "waiting" && task["status"] != "running")
    });
    assert!(place.tasks().iter().all(|task| task["status"] == "stopped"), "none is charged");
    let log = engine.err();
    stop(engine);
    (place, log)
}

#[test]
fn soft_limit_of_files_is_raised() {
    let (place, log) = under_limit("-Sn 64", "40", 80);
    assert!(!log.contains("instead of"), "{log}");
    assert!(place.ok(&["logs", "1"]).contains("  64\n"), "programs have the limit they had");
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
    let place = Place::new();
    let script = "echo begun >> begun; while [ ! -e go ]; do sleep 0.05; done; echo 1";
    file(&place, &class("waits", "retry = { maximum = 0 }", script));
    place.ok(&["create", "waits", "{}", "--count", "30"]);
    let engine = place.start(&["start", "--workers", "30"]);
    engine.says("started with");
    eventually("one runs", || place.path("begun").exists());
    let pid = engine.id().to_string();
    place.shell(&format!("prlimit --pid {pid} --nofile=40:40"));
    place.ok(&["create", "waits", "{}", "--count", "10"]);
    fs::write(place.path("go"), "").unwrap();
    eventually("it runs again", || {
        place.shell(&format!("prlimit --pid {pid} --nofile=4096:4096"));
        let tasks = place.tasks();
        tasks.iter().all(|task| task["status"] != "waiting" && task["status"] != "running")
    });
    assert!(place.tasks().iter().all(|task| task["status"] == "stopped"), "none is charged");
    stop(engine);
}
