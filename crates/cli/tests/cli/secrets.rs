//! Parameters that a class declares secret are in no output and no log, though its code gets
//! them: with real processes, on both kinds of databases.

use std::fs;

use task_engine_test_harness::TestServer;

use super::executables::{class, ended, file, stop};
use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::Sandbox;

const CANARY: &str = "canary-7f3a9c";

/// Prints the secret in every output, then fails.
const FAILS: &str = r#"
input=$(cat)
echo "$input" >> seen
echo "log: $input" >&2
echo "last words: $input" >&2
exit 100"#;
/// Gives it back as a result.
const SUCCEEDS: &str = r#"cat | tee -a seen"#;
/// Prints the secret in unexpected outputs.
const PRINTS: &str = r#"echo "no JSON: $(cat)""#;

fn parameters() -> String {
    format!(
        r#"{{"login":{{"user":"ann","password":"{CANARY}"}},"url":"https://ann:{CANARY}@host","big":12345678901234567890123}}"#
    )
}

fn secrets_stay_secret(sandbox: &Sandbox) {
    let settings = "secret = [\"login.password\"]\nretry = { maximum = 0 }";
    let classes = [("fails", FAILS), ("succeeds", SUCCEEDS), ("prints", PRINTS)]
        .map(|(name, script)| class(name, settings, script));
    file(sandbox, &classes.concat());
    let mut said = Vec::new();
    let mut run = |args: &[&str]| {
        let finished = sandbox.run(args);
        assert_eq!(finished.code, Some(0), "{args:?}: {finished:?}");
        said.push((args.join(" "), format!("{}{}", finished.out, finished.err)));
        finished.out
    };
    for name in ["fails", "succeeds", "prints"] {
        run(&["create", name, &parameters()]);
    }
    run(&["create", "fails", &parameters(), "--after", "1h"]);
    run(&["schedules", "add", "daily", "fails", &parameters(), "--cron", "0 0 1 1 *"]);
    // Without the file and without an engine, the tasks themselves know.
    fs::rename(sandbox.path("task-engine.toml"), sandbox.path("away")).unwrap();
    assert!(run(&["show", "1"]).contains("[secret]"));
    fs::rename(sandbox.path("away"), sandbox.path("task-engine.toml")).unwrap();

    let engine = sandbox.start_under(&["env", "TASK_ENGINE_LOG=trace"], &["start"]);
    for id in ["1", "2", "3"] {
        ended(sandbox, id);
    }
    for args in [
        &["show", "1"][..],
        &["show", "1", "--json"],
        &["show", "2"],
        &["show", "2", "--json"],
        &["show", "3", "--json"],
        &["show", "3", "--follow"],
        &["show", "4"],
        &["logs", "1"],
        &["logs", "1", "--json"],
        &["logs", "2"],
        &["tasks"],
        &["tasks", "--json"],
        &["tasks", "class=fails", "--json"],
        &["trace", "1"],
        &["trace", "1", "--json"],
        &["why", "1"],
        &["why", "1", "--json"],
        &["why", "4", "--json"],
        &["errors"],
        &["errors", "--json"],
        &["stats", "--json"],
        &["top"],
        &["instances"],
        &["schedules", "list", "--json"],
        &["schedules", "show", "daily"],
        &["schedules", "show", "daily", "--json"],
        &["edit", "4", "--priority", "3"],
        &["edit", "4", "--parameters", r#"{"login":{"password":"another-secret"}}"#],
        &["rerun", "1", "--yes"],
    ] {
        run(args);
    }
    assert!(!run(&["show", "5"]).contains("another-secret"), "a task that was created again");
    ended(sandbox, "5");
    stop(engine_log(engine, &mut said));

    for (what, text) in &said {
        assert!(!text.contains(CANARY) && !text.contains("another-secret"), "{what}:\n{text}");
    }
    let of = |what: &str| &said.iter().rfind(|(args, _)| args == what).unwrap().1;
    for (what, words) in [
        ("show 1", "last words: {"),
        ("show 2 --json", "https://ann:[secret]@host"),
        ("show 2 --json", "12345678901234567890123"),
        ("show 3 --json", r#"no JSON: {\""#),
        ("logs 1", "log: {"),
        ("errors", "ExitCode100"),
        (
            "edit 4 --parameters {\"login\":{\"password\":\"another-secret\"}}",
            "no command to undo it",
        ),
        ("schedules show daily", "[secret]"),
        ("the log of the engine", "error is ExitCode100"),
    ] {
        assert!(of(what).contains(words), "{what}: {words} in\n{}", of(what));
    }
    // The code gets it, users with the right see it, and export contains it.
    assert_eq!(fs::read_to_string(sandbox.path("seen")).unwrap().matches(CANARY).count(), 6);
    assert!(sandbox.ok(&["show", "1", "--reveal"]).contains(CANARY));
    assert!(sandbox.ok(&["export"]).contains(CANARY));
}

/// Keeps the log of an engine.
fn engine_log(
    engine: task_engine_test_harness::RunningProgram,
    said: &mut Vec<(String, String)>,
) -> task_engine_test_harness::RunningProgram {
    engine.wait_for_log("error is ExitCode100");
    said.push(("the log of the engine".to_owned(), engine.err() + &engine.out()));
    engine
}

#[test]
fn secrets_stay_secret_on_sqlite() {
    secrets_stay_secret(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_secret_on_postgresql() {
    let url = TestServer::shared().create_database().await;
    tokio::task::spawn_blocking(move || secrets_stay_secret(&sandbox_on(&url)))
        .await
        .expect("the test");
}

/// A process that stays talks about several tasks at once.
#[test]
fn persistent_process_keeps_secrets() {
    let sandbox = sandbox();
    let script = r#"
while read -r line; do
  echo "standard error: $line" >&2
  echo "nonsense: $line"
done"#;
    let settings = "mode = \"lines\"\nsecret = [\"password\"]\nretry = { maximum = 0 }";
    file(&sandbox, &class("stays", settings, script));
    sandbox.ok(&["create", "stays", &format!(r#"{{"password":"{CANARY}"}}"#)]);
    let engine = sandbox.start_under(&["env", "TASK_ENGINE_LOG=trace"], &["start"]);
    ended(&sandbox, "1");
    let shown = sandbox.ok(&["show", "1"]);
    assert!(shown.contains("nonsense") && shown.contains("standard error"), "{shown}");
    engine.wait_for_log("Worker process stays ended");
    assert!(!shown.contains(CANARY) && !engine.err().contains(CANARY), "{shown}{}", engine.err());
    stop(engine);
}

#[test]
fn invalid_secret_path_has_position() {
    let sandbox = sandbox();
    for (secret, words) in [
        ("[\"a..b\"]", "2:10: \"a..b\" is not the path of a secret parameter"),
        ("[\"\"]", "\"\" is not the path"),
        ("\"password\"", "expected a sequence"),
    ] {
        file(&sandbox, &class("a", &format!("secret = {secret}"), "true"));
        let created = sandbox.run(&["create", "a"]);
        assert_eq!(created.code, Some(2));
        assert!(created.err.contains(words), "{words}: {}", created.err);
    }
}

#[test]
fn placeholders_keep_stored_secrets() {
    let sandbox = sandbox();
    file(&sandbox, &class("log_in", "secret = [\"password\"]", "true"));
    let parameters = format!(r#"{{"user":"ann","password":"{CANARY}"}}"#);
    sandbox.ok(&["create", "log_in", &parameters, "--after", "1h"]);
    sandbox.ok(&["schedules", "add", "nightly", "log_in", &parameters, "--cron", "0 3 * * *"]);
    let changed = r#"{"user":"bob","password":"[secret]"}"#;
    sandbox.ok(&["edit", "1", "--parameters", changed]);
    let shown = sandbox.ok(&["show", "1", "--reveal"]);
    assert!(shown.contains(CANARY) && shown.contains("bob"), "{shown}");
    sandbox.ok(&["schedules", "set", "nightly", "--parameters", changed]);
    assert!(sandbox.ok(&["schedules", "run", "nightly"]).contains('2'));
    let shown = sandbox.ok(&["show", "2", "--reveal"]);
    assert!(shown.contains(CANARY) && shown.contains("bob"), "{shown}");
    let stray = r#"{"user":"[secret]"}"#;
    for args in [
        &["create", "log_in", changed][..],
        &["create", "other", stray],
        &["edit", "1", "--parameters", stray],
        &["schedules", "add", "other", "log_in", changed, "--cron", "0 3 * * *"],
        &["schedules", "set", "nightly", "--parameters", stray],
        &["schedules", "set", "nightly", "--class", "other", "--parameters", changed],
    ] {
        let refused = sandbox.run(args);
        assert_ne!(refused.code, Some(0), "{args:?}: {refused:?}");
        assert!(refused.err.contains("cannot be stored"), "{args:?}: {}", refused.err);
    }
}
