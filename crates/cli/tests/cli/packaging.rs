//! The files of `packaging/` fit the program: their command lines are run.

mod crates;
mod debian;
mod systemd;

use std::fs;
use std::path::Path;
use std::process::Command;

use super::support::sandbox;
use task_engine_test_harness::wait_until;

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packaged(name: &str) -> String {
    let path = root().join("packaging").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The text after `key`, up to the end of a list.
fn lists(text: &str, key: &str) -> Vec<Vec<String>> {
    let parts = text.split(key).skip(1);
    let lists = parts.map(|part| {
        let end = part.find(']').expect("the end of the list");
        serde_json::from_str(&part[..=end]).unwrap_or_else(|e| panic!("{key} {part}: {e}"))
    });
    lists.collect()
}

fn of_unit() -> Vec<String> {
    let unit = packaged("task-engine.service").replace("\\\n", " ");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    let mut words = line.split_whitespace().map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("/usr/local/bin/task-engine"));
    words.collect()
}

fn of_image() -> Vec<String> {
    let file = packaged("Containerfile");
    assert_eq!(lists(&file, "\nENTRYPOINT "), [["task-engine"]]);
    lists(&file, "\nCMD ").remove(0)
}

fn of_cluster() -> Vec<Vec<String>> {
    lists(&packaged("kubernetes.yaml"), " args: ")
}

fn all() -> Vec<Vec<String>> {
    let mut all = of_cluster();
    assert_eq!(all.len(), 3, "a migration, engines and a dashboard");
    all.extend([of_unit(), of_image()]);
    all
}

/// The value of an option, in seconds.
fn seconds(words: &[String], option: &str) -> u64 {
    let at = words.iter().position(|word| word == option).expect(option);
    words[at + 1].strip_suffix('s').expect("seconds").parse().expect("a number")
}

/// The number behind a setting in a file.
fn setting(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)).expect(name);
    line.trim().trim_end_matches('s').parse().expect("a number")
}

#[test]
fn packaged_command_lines_run() {
    for words in all() {
        let sandbox = sandbox();
        if words[0] != "migrate" {
            sandbox.ok(&["migrate"]);
            // A public address needs a token.
            sandbox.ok(&["tokens", "create", "reader", "--role", "viewer"]);
        }
        // The port may be in use.
        let words: Vec<String> = words.iter().map(|word| word.replace(":8642", ":0")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // An unknown argument is an error even with --help.
        sandbox.ok(&[&words[..], &["--help"]].concat());
        match words[0] {
            "migrate" => drop(sandbox.ok(&words)),
            kind => {
                let running = sandbox.start(&words);
                running.wait_for_log(if kind == "start" { "started with" } else { "Dashboard: " });
                running.signal("TERM");
                let ended = running.end();
                assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.err);
            }
        }
    }
}

/// After the deadline of an engine it has 12 s to record what it cut short;
/// the supervisor must wait for that before it kills the engine.
#[test]
fn kill_timeouts_exceed_stop_timeout() {
    let unit = setting(&packaged("task-engine.service"), "TimeoutStopSec=");
    assert!(unit >= seconds(&of_unit(), "--stop-timeout") + 12, "{unit}");
    let pod = setting(&packaged("kubernetes.yaml"), "terminationGracePeriodSeconds:");
    let engine = of_cluster().into_iter().find(|words| words[0] == "start").unwrap();
    assert!(pod >= seconds(&engine, "--stop-timeout") + 12, "{pod}");
    // The default of container runtimes is 10 s.
    assert!(seconds(&of_image(), "--stop-timeout") < 10);
}

#[test]
fn packaged_variables_are_known() {
    let help = sandbox().ok(&["--help"]);
    for name in ["task-engine.service", "environment", "kubernetes.yaml"] {
        for part in packaged(name).split("TASK_ENGINE_").skip(1) {
            let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            let variable = format!("TASK_ENGINE_{}", &part[..end.unwrap_or(part.len())]);
            assert!(help.contains(&variable), "{name}: {variable}");
        }
    }
}

#[test]
fn image_has_health_check() {
    let check = lists(&packaged("Containerfile"), "  CMD ");
    let sandbox = sandbox();
    sandbox.ok(&["migrate"]);
    let words: Vec<String> = of_image().iter().map(|word| word.replace(":8642", ":0")).collect();
    let engine = sandbox.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    engine.wait_for_log("Dashboard: http://127.0.0.1:");
    let said = engine.err();
    let port = said.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let healthy = || {
        let words: Vec<String> = check[0].iter().map(|word| word.replace("8642", &port)).collect();
        Command::new(&words[0]).args(&words[1..]).output().expect("bash").status.success()
    };
    wait_until("it is healthy", healthy);
    engine.wait_for_log("started with");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    assert!(!healthy(), "the server has ended");
}

#[test]
fn version_names_commit() {
    let sandbox = sandbox();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(sandbox.ok(&["-V"]), format!("task-engine {version}\n"));
    let long = sandbox.ok(&["--version"]);
    let rest = long.strip_prefix(&format!("task-engine {version}")).expect("the version");
    let Some(commit) = rest.trim().strip_prefix('(').and_then(|it| it.strip_suffix(')')) else {
        assert_eq!(rest, "\n");
        assert!(!git_knows("HEAD"), "there is a repository: {long}");
        return;
    };
    assert_eq!(commit.len(), 12, "{long}");
    // It may not be the newest: a commit may happen while this runs.
    if git_knows("HEAD") && option_env!("TASK_ENGINE_COMMIT").is_none() {
        assert!(git_knows(commit), "{long}");
    }
}

/// A package has no repository, and git does not open everybody's.
fn git_knows(commit: &str) -> bool {
    let object = format!("{commit}^{{commit}}");
    let mut git = Command::new("git");
    git.args(["cat-file", "-e", &object]).current_dir(root());
    root().join(".git").exists() && git.output().is_ok_and(|done| done.status.success())
}
