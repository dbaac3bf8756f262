use std::collections::BTreeMap;

use super::*;
use task_engine_core::instance::InstanceId;
use task_engine_core::progress::ProgressRow;
use task_engine_core::queue::Pool;
use task_engine_core::task::TaskOptions;

fn engine(age_secs: u64, held: i64) -> InstanceRow {
    InstanceRow {
        id: InstanceId(1),
        name: "it's me".into(),
        host: "h".into(),
        pid: 7,
        process: None,
        version: String::new(),
        workers: 1,
        queues: vec!["default".into()],
        pools: vec![Pool::new(vec!["default".into()], 1)],
        classes: BTreeMap::from([("known".to_owned(), TaskOptions::default())]),
        started_at: Timestamp::UNIX_EPOCH,
        heartbeat_at: Timestamp::UNIX_EPOCH,
        heartbeat_age: Duration::from_secs(age_secs),
        lease: Duration::from_secs(30),
        stopped_at: None,
        lost_at: None,
        held,
        process_gone: false,
    }
}

fn lane(queue: &str, class: &str, due_secs: Option<u64>) -> WaitingLane {
    let due_for = due_secs.map(Duration::from_secs);
    WaitingLane { queue: queue.into(), class: class.into(), due_for }
}

fn of<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).expect("a check of this name")
}

#[test]
fn healthy_store_has_no_findings() {
    let lanes = vec![lane("default", "known", Some(1)), lane("q", "strange", None)];
    let facts = CheckFacts { instances: vec![engine(1, 3)], lanes, ..CheckFacts::default() };
    for check in facts.evaluate() {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
    }
}

#[test]
fn each_fault_has_its_verdict() {
    use Verdict::{Ok, Warning, Wrong};
    let well = |instances, lanes| CheckFacts { instances, lanes, ..CheckFacts::default() };
    let alive = || InstanceRow { id: InstanceId(2), name: "alive".into(), ..engine(1, 0) };
    for (facts, name, verdict) in [
        (well(vec![alive(), engine(31, 2)], vec![]), "orphaned_tasks", Wrong),
        (well(vec![alive(), engine(31, 2)], vec![]), "engines", Ok),
        (well(vec![alive(), engine(31, 0)], vec![]), "orphaned_tasks", Ok),
        (well(vec![alive(), engine(31, 0)], vec![]), "engines", Warning),
        (well(vec![engine(20, 0)], vec![]), "engines", Wrong),
        (well(vec![engine(1, 0)], vec![lane("default", "x", Some(5))]), "unknown_classes", Warning),
        (well(vec![engine(1, 0)], vec![lane("default", "x", Some(61))]), "unknown_classes", Wrong),
        (well(vec![engine(1, 0)], vec![lane("q", "known", Some(61))]), "unserved_queues", Wrong),
        (well(vec![engine(1, 0)], vec![lane("q", "known", Some(301))]), "oldest_due_task", Warning),
    ] {
        let checks = facts.evaluate();
        assert_eq!(of(&checks, name).verdict, verdict, "{:?}", of(&checks, name));
    }
    let checks = well(vec![alive(), engine(31, 2)], vec![]).evaluate();
    assert_eq!(
        of(&checks, "orphaned_tasks").remedy.as_deref(),
        Some(r"task-engine recover 'it'\''s me'")
    );
}

#[test]
fn no_live_engine_is_one_finding() {
    let bad = |facts: &CheckFacts| -> Vec<Check> {
        facts.evaluate().into_iter().filter(|check| check.verdict != Verdict::Ok).collect()
    };
    let mut facts = CheckFacts {
        instances: vec![InstanceRow { process_gone: true, ..engine(3, 2) }],
        lanes: vec![lane("default", "known", Some(400)), lane("q", "strange", Some(3))],
        due_schedules: vec![("nightly".into(), Duration::from_secs(90), false)],
        ..CheckFacts::default()
    };
    let [found] = &bad(&facts)[..] else { panic!("one finding: {:?}", bad(&facts)) };
    assert_eq!((found.name, found.verdict), ("engines", Verdict::Wrong));
    for words in [
        "no engine is alive",
        "tasks of known, strange are due, the first for 6 min",
        "dead engines hold 2 tasks: it's me",
        "1 schedule is due and not fired",
        "it's me (process 7 on h), was heard of 3 s ago",
    ] {
        assert!(found.message.contains(words), "{words}: {}", found.message);
    }
    assert!(found.remedy.as_deref().unwrap().starts_with("task-engine start"), "{found:?}");
    facts = CheckFacts::default();
    let [found] = &bad(&facts)[..] else { panic!("one finding: {:?}", bad(&facts)) };
    assert_eq!((found.name, found.verdict), ("engines", Verdict::Warning), "nothing is due");
}

#[test]
fn long_running_tasks_are_found() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ago = |secs: i64| Timestamp::from_second(1_000_000 - secs).unwrap();
    let said = |secs| ProgressRow { percent: 1.0, message: String::new(), reported_at: ago(secs) };
    let mut limited = engine(1, 1);
    let options = TaskOptions::default().timeout(Duration::from_secs(5));
    limited.classes = BTreeMap::from([("limited".to_owned(), options)]);
    for (class, began, progress, holder, verdict) in [
        ("known", 3599, None, 1, Verdict::Ok),
        ("known", 3601, None, 1, Verdict::Warning),
        ("known", 9999, Some(said(10)), 1, Verdict::Ok),
        ("known", 9999, Some(said(4000)), 1, Verdict::Warning),
        ("limited", 64, None, 1, Verdict::Ok),
        ("limited", 66, None, 1, Verdict::Wrong),
        ("known", 9999, None, 9, Verdict::Ok),
    ] {
        let held = HeldAttempt {
            task_id: TaskId(5),
            attempt: 1,
            class: class.into(),
            queue: "default".into(),
            priority: 0,
            instance_id: InstanceId(holder),
            claimed_at: ago(began),
            progress,
        };
        let facts = CheckFacts {
            instances: vec![limited.clone()],
            held: vec![held],
            now,
            ..CheckFacts::default()
        };
        let checks = facts.evaluate();
        let found = of(&checks, "long_running_tasks");
        assert_eq!(found.verdict, verdict, "{class} {began}: {found:?}");
        assert!(verdict == Verdict::Ok || found.message.contains("5 ("), "{found:?}");
    }
}

#[test]
fn remedy_for_failures_fits_their_number() {
    let failed = |class: &str, tasks, newest| FailedClass {
        class: class.into(),
        tasks,
        newest: TaskId(newest),
    };
    for (failed, remedy) in [
        (vec![failed("mail", 1, 7)], "task-engine retry 7"),
        (
            vec![failed("mail", 5000, 7)],
            "task-engine retry 'status=failed class=mail updated>now-1h'",
        ),
        (
            vec![failed("a b", 2, 7)],
            "task-engine retry 'status=failed class=\"a b\" updated>now-1h'",
        ),
    ] {
        let checks = CheckFacts { failed, ..CheckFacts::default() }.evaluate();
        let found = of(&checks, "failures");
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(found.remedy.as_deref().unwrap().ends_with(remedy), "{found:?}");
    }
}

#[test]
fn long_pause_with_due_tasks_fails() {
    let facts = |hours: u64, due| CheckFacts {
        paused: vec![PausedQueue {
            queue: "q".into(),
            reason: None,
            paused_at: Timestamp::UNIX_EPOCH,
        }],
        paused_for: vec![Duration::from_secs(hours * 3600)],
        lanes: vec![lane("q", "known", due)],
        ..CheckFacts::default()
    };
    for (hours, due, verdict) in [
        (1, Some(9), Verdict::Warning),
        (25, None, Verdict::Warning),
        (25, Some(9), Verdict::Wrong),
    ] {
        assert_eq!(of(&facts(hours, due).evaluate(), "paused_queues").verdict, verdict);
    }
}
