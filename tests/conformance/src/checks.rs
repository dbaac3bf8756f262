//! Faults are found by the checks, each by its own, and where there is none,
//! none is found.

use std::time::Duration;

use task_engine_core::queue::QueuePause;
use task_engine_core::retry::RetryRule;
use task_engine_operations::checks::checks;
use task_engine_store::check::{Check, CheckDepth, Verdict};
use task_engine_store::schedules::Schedules;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_instance, new_task, with_classes, with_expired_lease};
use crate::schedules::hourly;

/// A healthy store has no finding, at any depth.
pub async fn healthy_store_has_no_findings(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    fixture.create_work(2).await;
    let holds = engine.claim(2).await;
    engine.record(&[holds[0].succeeds()]).await;
    fixture.create(new_task("later").after(Duration::from_secs(3600))).await;
    for depth in [CheckDepth::Quick, CheckDepth::Standard, CheckDepth::Deep] {
        for check in fixture.store.checks(depth).await.expect("checks") {
            let expected = match check.name {
                "wake_ups" if !db.receives_wake_ups() => Verdict::Warning,
                _ => Verdict::Ok,
            };
            assert_eq!(check.verdict, expected, "{depth:?}: {check:?}");
        }
    }
}

/// Tasks that a dead engine holds are found, with the command that helps, and
/// are no longer when they have been recovered.
pub async fn orphans_are_found(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.engine("alive").await;
    let mut engine = fixture.register(with_expired_lease(new_instance("gone"))).await;
    fixture.create_work(3).await;
    engine.claim(3).await;
    assert!(fixture.declare_lost(engine.id).await);
    let orphans = check(&fixture, "orphaned_tasks").await;
    assert_eq!(orphans.verdict, Verdict::Wrong, "{orphans:?}");
    assert!(orphans.message.contains("3 tasks"), "{orphans:?}");
    assert_eq!(orphans.remedy.as_deref(), Some("task-engine recover gone"));
    fixture.recover(engine.id).await;
    assert_eq!(check(&fixture, "orphaned_tasks").await.verdict, Verdict::Ok);
}

/// If no engine is alive, there is one finding that names the consequences.
pub async fn no_live_engine_is_one_finding(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.register(with_expired_lease(new_instance("gone"))).await;
    fixture.create_work(2).await;
    fixture.create(new_task("stranger").queue("far away").expect("a queue")).await;
    engine.claim(1).await;
    let checks = fixture.store.checks(CheckDepth::Quick).await.expect("checks");
    let about_work = ["engines", "orphaned_tasks", "unknown_classes", "unserved_queues"];
    let found: Vec<_> = checks.iter().filter(|check| about_work.contains(&check.name)).collect();
    let [found] = found[..] else { panic!("one finding, not {found:?}") };
    assert_eq!((found.name, found.verdict), ("engines", Verdict::Wrong), "{found:?}");
    for words in ["no engine is alive", "stranger", "dead engines hold 1 task: gone"] {
        assert!(found.message.contains(words), "{words}: {found:?}");
    }
}

/// Tasks that wait for a missing engine, for an unserved queue, or in a paused queue.
pub async fn unserved_tasks_are_found(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let new = with_classes(new_instance("a"), &[(WORK, RetryRule::default())]);
    fixture.register(new).await;
    fixture.create(new_task("stranger")).await;
    fixture.create(new_task(WORK).queue("far away").expect("a queue")).await;
    fixture.create(new_task(WORK).queue("closed").expect("a queue")).await;
    let pause = QueuePause::new("closed", Some("audit".to_owned())).expect("a pause");
    fixture.store.pause_queue(&pause).await.expect("pause");
    for (name, words, remedy) in [
        ("unknown_classes", "stranger", "task-engine cancel"),
        ("unserved_queues", "far away", "task-engine start --queue 'far away'"),
        ("paused_queues", "closed has been paused for", "task-engine queues resume closed"),
    ] {
        let found = check(&fixture, name).await;
        assert_eq!(found.verdict, Verdict::Warning, "{found:?}");
        assert!(found.message.contains(words), "{found:?}");
        assert!(found.remedy.as_deref().is_some_and(|r| r.contains(remedy)), "{found:?}");
    }
}

/// A schedule of a class that no live engine knows is found before its slot.
pub async fn unserved_schedule_is_found(db: &dyn TestDatabase) {
    const NAME: &str = "unserved_schedules";
    let fixture = Fixture::open(db).await;
    let schedule = hourly("nightly").new_task(new_task("stranger"));
    let added = Schedules::of(&*fixture.store).add(&schedule).await;
    added.expect("add");
    let found = async |depth| {
        let checks = checks(&*fixture.store, depth).await.expect("checks");
        checks.into_iter().find(|check| check.name == NAME)
    };
    assert_eq!(found(CheckDepth::Standard).await, None, "no engine is alive");
    let new = with_classes(new_instance("a"), &[(WORK, RetryRule::default())]);
    fixture.register(new).await;
    assert_eq!(found(CheckDepth::Quick).await, None);
    let warning = found(CheckDepth::Standard).await.expect("a check");
    assert_eq!(warning.verdict, Verdict::Warning, "{warning:?}");
    assert!(warning.message.ends_with("no live engine knows stranger"), "{warning:?}");
    let new = with_classes(new_instance("b"), &[("stranger", RetryRule::default())]);
    fixture.register(new).await;
    let fine = found(CheckDepth::Standard).await.expect("a check");
    assert_eq!(fine.verdict, Verdict::Ok, "{fine:?}");
}

/// Failures of the last hour are counted.
pub async fn failures_are_counted(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    fixture.create_work(3).await;
    let holds = engine.claim(3).await;
    engine.record(&[holds[0].fails(), holds[1].fails(), holds[2].succeeds()]).await;
    let failures = check(&fixture, "failures").await;
    assert_eq!(failures.verdict, Verdict::Warning, "{failures:?}");
    assert!(failures.message.starts_with("2 tasks failed"), "{failures:?}");
    let retry = format!("task-engine retry 'status=failed class={WORK} updated>now-1h'");
    assert!(failures.remedy.as_deref().is_some_and(|r| r.ends_with(&retry)), "{failures:?}");
}

async fn check(fixture: &Fixture, name: &str) -> Check {
    let checks = fixture.store.checks(CheckDepth::Quick).await.expect("checks");
    checks.into_iter().find(|check| check.name == name).expect("a check of this name")
}
