//! The file of executables: schedules, the database, and which classes an engine
//! knows.

use super::executables::{class, create, ended, file, stop};
use super::support::{Place, eventually};

#[test]
fn file_schedules_run() {
    let place = Place::new();
    let tidy = class("tidy", "queue = \"slow\"", "cat");
    let schedule =
        "[schedule.often]\nclass = \"tidy\"\nevery = \"1s\"\nparameters = { deep = true }\n";
    file(&place, &format!("{tidy}{schedule}"));
    let checked = place.run(&["check"]);
    assert!(checked.err.contains("1 class, 1 schedule, no errors"), "{}", checked.err);
    let engine = place.start(&["start"]);
    engine.says("started with");
    eventually("it fires", || !place.tasks().is_empty());
    let id = place.tasks()[0]["id"].to_string();
    let task = ended(&place, &id);
    assert_eq!(task["executions"][0]["result"], serde_json::json!({"deep": true}), "{task}");
    assert_eq!(task["queue"], "slow");
    stop(engine);
    // What an operator changes stays until the file changes.
    place.ok(&["schedules", "set", "often", "--every", "2h"]);
    let engine = place.start(&["start"]);
    engine.says("started with");
    assert!(place.ok(&["schedules", "show", "often"]).contains("every 2h"));
    stop(engine);
    file(&place, &format!("{tidy}{}", schedule.replace("1s", "3h")));
    let engine = place.start(&["start"]);
    engine.says("started with");
    assert!(place.ok(&["schedules", "show", "often"]).contains("every 3h"));
    stop(engine);
}

#[test]
fn file_names_the_database() {
    let place = Place::new();
    file(&place, &format!("database = \"sqlite:mine.db\"\n{}", class("hello", "", "echo 1")));
    let id = create(&place, "hello", "{}");
    let engine = place.start(&["start"]);
    assert_eq!(ended(&place, &id)["status"], "stopped");
    stop(engine);
    assert!(place.path("mine.db").exists() && !place.path("task-engine.db").exists());
    // A command line decides before a file does.
    place.ok(&["create", "hello", "--database", "sqlite:other.db"]);
    assert!(place.path("other.db").exists());
    file(&place, "database = \"sqlite:mine.db\"\n[class");
    let broken = place.run(&["tasks"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.contains("task-engine.toml:2:"), "{}", broken.err);
}

#[test]
fn mistyped_class_is_noticed() {
    let place = Place::new();
    file(&place, &class("greet", "", "echo 1"));
    let created = place.run(&["create", "gret"]);
    assert_eq!((created.code, created.out.as_str()), (Some(0), "1\n"));
    assert!(created.err.contains("Did you mean greet?"), "{}", created.err);
    assert!(!place.run(&["create", "greet"]).err.contains("Did you mean"));
    // Also where only an engine knows it.
    let engine = place.start(&["start"]);
    engine.says("started with");
    std::fs::remove_file(place.path("task-engine.toml")).unwrap();
    assert!(place.run(&["create", "Greet"]).err.contains("Did you mean greet?"));
    assert!(!place.run(&["create", "something_else"]).err.contains("Did you mean"));
    stop(engine);
}

#[test]
fn samples_are_known_on_request() {
    let place = Place::new();
    let waiting = create(&place, "WaitingTask", r#"{"waiting_time": 0}"#);
    let engine = place.start_as_typed(&["start"]);
    engine.says("knows no class");
    let instances = place.ok(&["why", &waiting]);
    assert!(instances.contains("WaitingTask"), "{instances}");
    stop(engine);
    assert_eq!(place.status(&waiting), "waiting");
    let engine = place.start_as_typed(&["start", "--samples"]);
    assert_eq!(ended(&place, &waiting)["status"], "stopped");
    stop(engine);
    let help = place.ok(&["start", "--help"]);
    assert!(!help.contains("witness") && help.contains("--samples"), "{help}");
}

#[test]
fn help_shows_valid_file() {
    let place = Place::new();
    let help = place.ok(&["start", "--help"]);
    let (_, example) = help.split_once("Example of task-engine.toml:\n").expect("an example");
    let (example, _) = example.split_once("`task-engine check`").expect("its end");
    for program in ["hello.py", "worker.py"] {
        std::fs::write(place.path(program), "#!/bin/sh\n").unwrap();
        place.shell(&format!("chmod +x {program}"));
    }
    // Python need not be here.
    file(&place, &example.replace("\"python3\", \"-u\", \"worker.py\"", "\"./worker.py\""));
    let checked = place.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{example}\n{checked:?}");
    assert!(checked.err.contains("3 classes, 1 schedule"), "{}", checked.err);
}
