//! `task-engine demo`.

use super::support::{Finished, Place};

/// Both numbers are those of tasks that the demo has just created.
fn check(demo: &Finished, first: u32) {
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
    ];
    for words in expected {
        assert!(demo.out.contains(&words), "{words}: {}", demo.out);
    }
    assert!(demo.err.contains("106 of 106 tasks done"), "{}", demo.err);
}

#[test]
fn demo_ends_and_can_be_repeated() {
    let place = Place::new();
    check(&place.run(&["demo"]), 1);
    check(&place.run(&["demo"]), 107);
    assert!(place.path("task-engine-demo.db").exists());
    assert!(!place.path("task-engine.db").exists());
    let listed = place.ok(&["tasks", "--database", "sqlite:task-engine-demo.db", "--limit", "300"]);
    assert_eq!(listed.lines().count(), 213);

    check(&place.run(&["demo", "--fresh"]), 1);
    let refused = place.run(&["demo", "--fresh", "--database", "sqlite:other.db"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn demo_ignores_database_variable() {
    let place = Place::with_database("sqlite:production.db");
    let demo = place.start(&["demo"]);
    demo.says("tasks done");
    demo.signal("INT");
    let ended = demo.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("have not been executed"), "{}", ended.out);
    assert!(!ended.out.contains("not in a minute"), "nothing has failed: {}", ended.out);
    assert!(!place.path("production.db").exists());

    let next = place.run(&["demo"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert!(next.err.contains("of earlier demos are still due and run first"), "{}", next.err);
}

#[test]
fn demo_runs_in_memory() {
    let place = Place::new();
    let demo = place.run(&["-q", "demo", "--database", "sqlite::memory:"]);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    assert!(demo.out.contains("  101 succeeded (stopped)"), "{}", demo.out);
    assert!(!demo.out.contains("Try next"), "{}", demo.out);
}
