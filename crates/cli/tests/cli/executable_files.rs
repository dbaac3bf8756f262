//! The file of executables: schedules, the database, and which classes an engine
//! knows.

use super::executables::{class, create, ended, file, stop};
use super::support::sandbox;
use task_engine_test_harness::wait_until;

#[test]
fn file_schedules_run() {
    let sandbox = sandbox();
    let tidy = class("tidy", "queue = \"slow\"", "cat");
    let schedule =
        "[schedule.often]\nclass = \"tidy\"\nevery = \"1s\"\nparameters = { deep = true }\n";
    file(&sandbox, &format!("{tidy}{schedule}"));
    let checked = sandbox.run(&["check"]);
    assert!(checked.err.contains("1 class, 1 schedule, no errors"), "{}", checked.err);
    sandbox.ok(&["migrate"]);
    for command in ["show", "next", "pause"] {
        let early = sandbox.run(&["schedules", command, "often"]);
        assert_eq!(early.code, Some(3), "{early:?}");
        for words in ["there is no schedule \"often\"", "It is stored when an engine starts"] {
            assert!(early.err.contains(words), "{}", early.err);
        }
    }
    let other = sandbox.run(&["schedules", "show", "other"]);
    assert!(!other.err.contains("engine starts"), "{}", other.err);
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    wait_until("it fires", || !sandbox.tasks().is_empty());
    let id = sandbox.tasks()[0]["id"].to_string();
    let task = ended(&sandbox, &id);
    assert_eq!(task["executions"][0]["result"], serde_json::json!({"deep": true}), "{task}");
    assert_eq!(task["queue"], "slow");
    stop(engine);
    // An operator's change stays until the file changes.
    sandbox.ok(&["schedules", "set", "often", "--every", "2h"]);
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    assert!(sandbox.ok(&["schedules", "show", "often"]).contains("every 2h"));
    stop(engine);
    file(&sandbox, &format!("{tidy}{}", schedule.replace("1s", "3h")));
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    assert!(sandbox.ok(&["schedules", "show", "often"]).contains("every 3h"));
    stop(engine);
}

#[test]
fn file_names_the_database() {
    let sandbox = sandbox();
    file(&sandbox, &format!("database = \"sqlite:mine.db\"\n{}", class("hello", "", "echo 1")));
    let id = create(&sandbox, "hello", "{}");
    let engine = sandbox.start(&["start"]);
    assert_eq!(ended(&sandbox, &id)["status"], "stopped");
    stop(engine);
    assert!(sandbox.path("mine.db").exists() && !sandbox.path("task-engine.db").exists());
    // A command line decides before a file does.
    sandbox.ok(&["create", "hello", "--database", "sqlite:other.db"]);
    assert!(sandbox.path("other.db").exists());
    file(&sandbox, "database = \"sqlite:mine.db\"\n[class");
    let broken = sandbox.run(&["tasks"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.contains("task-engine.toml:2:"), "{}", broken.err);
}

#[test]
fn mistyped_class_is_noticed() {
    let sandbox = sandbox();
    file(&sandbox, &class("greet", "", "echo 1"));
    let created = sandbox.run(&["create", "gret"]);
    assert_eq!((created.code, created.out.as_str()), (Some(0), "1\n"));
    assert!(created.err.contains("Did you mean greet?"), "{}", created.err);
    assert!(!sandbox.run(&["create", "greet"]).err.contains("Did you mean"));
    // Also where only an engine knows it.
    let engine = sandbox.start(&["start"]);
    engine.wait_for_log("started with");
    std::fs::remove_file(sandbox.path("task-engine.toml")).unwrap();
    assert!(sandbox.run(&["create", "Greet"]).err.contains("Did you mean greet?"));
    assert!(!sandbox.run(&["create", "something_else"]).err.contains("Did you mean"));
    stop(engine);
}

#[test]
fn samples_are_known_on_request() {
    let sandbox = sandbox();
    let waiting = create(&sandbox, "WaitingTask", r#"{"waiting_time": 0}"#);
    let engine = sandbox.start_exact(&["start"]);
    engine.wait_for_log("has no class");
    let instances = sandbox.ok(&["why", &waiting]);
    assert!(instances.contains("WaitingTask"), "{instances}");
    stop(engine);
    assert_eq!(sandbox.status(&waiting), "waiting");
    let engine = sandbox.start_exact(&["start", "--samples"]);
    assert_eq!(ended(&sandbox, &waiting)["status"], "stopped");
    stop(engine);
    let help = sandbox.ok(&["start", "--help"]);
    assert!(!help.contains("witness") && help.contains("--samples"), "{help}");
}

#[test]
fn help_shows_valid_file() {
    let sandbox = sandbox();
    let help = sandbox.ok(&["start", "--help"]);
    let (_, example) = help.split_once("Example of task-engine.toml:\n").expect("an example");
    let (example, _) = example.split_once("`task-engine check`").expect("its end");
    for program in ["hello.py", "worker.py"] {
        std::fs::write(sandbox.path(program), "#!/bin/sh\n").unwrap();
        sandbox.shell(&format!("chmod +x {program}"));
    }
    // Python need not be here.
    file(&sandbox, &example.replace("\"python3\", \"-u\", \"worker.py\"", "\"./worker.py\""));
    let checked = sandbox.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{example}\n{checked:?}");
    assert!(checked.err.contains("3 classes, 1 schedule"), "{}", checked.err);
}
