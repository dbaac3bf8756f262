//! `task-engine demo`.

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{CommandOutput, wait_until};

/// Both numbers are those of tasks that the demo has just created.
fn check(demo: &CommandOutput, first: u32) {
    assert_eq!(demo.code, Some(0), "{demo:?}");
    let expected = [
        "106 tasks in ".to_owned(),
        "  101 succeeded (stopped)".to_owned(),
        "    3 failed and wait for a retry".to_owned(),
        "    2 failed for good".to_owned(),
        format!("task {} FailingTask: ZeroDivisionError: divided by 0", first + 100),
        "retry 1 of 10 in ".to_owned(),
        format!("task {} FailingNotRetryExceptionTask: ", first + 104),
        "Oh no".to_owned(),
        format!("Task {} was scheduled 5 s ahead, and started ", first + 105),
        format!("show {} --database sqlite:task-engine-demo.db", first + 100),
        "start --samples --database sqlite:task-engine-demo.db".to_owned(),
        format!("retry {} --database sqlite:task-engine-demo.db", first + 100),
    ];
    for words in expected {
        assert!(demo.out.contains(&words), "{words}: {}", demo.out);
    }
    assert!(demo.err.contains("106 of 106 tasks done"), "{}", demo.err);
}

#[test]
fn demo_ends_and_can_be_repeated() {
    let sandbox = sandbox();
    check(&sandbox.run(&["demo"]), 1);
    check(&sandbox.run(&["demo"]), 107);
    assert!(sandbox.path("task-engine-demo.db").exists());
    assert!(!sandbox.path("task-engine.db").exists());
    let listed =
        sandbox.ok(&["tasks", "--database", "sqlite:task-engine-demo.db", "--limit", "300"]);
    assert_eq!(listed.lines().count(), 213);

    check(&sandbox.run(&["demo", "--fresh"]), 1);
    // As its last lines suggest.
    let database = ["--database", "sqlite:task-engine-demo.db"];
    let engine = sandbox.start(&[&["start", "--samples"], &database[..]].concat());
    engine.wait_for_log("started with");
    sandbox.ok(&[&["retry", "101"], &database[..]].concat());
    let show = [&["show", "101", "--json"], &database[..]].concat();
    wait_until("it runs again", || sandbox.ok(&show).contains("\"retry_number\":2"));
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    let refused = sandbox.run(&["demo", "--fresh", "--database", "sqlite:other.db"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn demo_ignores_database_variable() {
    let sandbox = sandbox_on("sqlite:production.db");
    let demo = sandbox.start(&["demo"]);
    demo.wait_for_log("tasks done");
    demo.signal("INT");
    let ended = demo.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("have not been executed"), "{}", ended.out);
    assert!(!ended.out.contains("not in a minute"), "nothing has failed: {}", ended.out);
    assert!(!sandbox.path("production.db").exists());

    let next = sandbox.run(&["demo"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(next.err.contains("of earlier demos are still due and run first"), "{}", next.err);
}

#[test]
fn demo_runs_in_memory() {
    let sandbox = sandbox();
    let demo = sandbox.run(&["-q", "demo", "--database", "sqlite::memory:"]);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.out.contains("  101 succeeded (stopped)"), "{}", demo.out);
    assert!(!demo.out.contains("Try next"), "{}", demo.out);
}
