//! The clock is the database's, and moves for all who use it.

use std::time::Duration;

use task_engine::sqlite::{create_in, rusqlite};
use task_engine::testing::Harness;
use task_engine::{Missed, NewTask, Schedule, TaskStatus};

use crate::tasks::{SendMail, engine, harness, mail};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn advance_makes_tasks_due() {
    let harness = harness().await;
    harness.tasks().create(mail("later")).after(HOUR).await.unwrap();
    assert!(harness.drain().await.is_empty());
    harness.advance(HOUR - Duration::from_secs(60)).await;
    assert!(harness.drain().await.is_empty(), "a minute is missing");
    harness.advance(Duration::from_secs(60)).await;
    assert_eq!(harness.drain().await.len(), 1);
}

#[tokio::test]
async fn snoozed_task_runs_when_advanced() {
    let harness = harness().await;
    harness.tasks().create(mail("limited")).await.unwrap();
    let drained = harness.drain().await;
    let snoozed = &drained[0];
    assert!(snoozed.is_snoozed() && !snoozed.will_be_retried(), "{drained}");
    assert_eq!(snoozed.retry_in.map(|wait| wait.as_secs()), Some(HOUR.as_secs()));
    assert!(snoozed.to_string().contains("snoozed for 3600s"), "{snoozed}");
    harness.advance(HOUR).await;
    harness.drain().await.assert_all_done();
}

#[tokio::test]
async fn schedules_fire() {
    let schedule = || {
        let every_hour = Schedule::cron("mails", "0 * * * *").task(&mail("ada"));
        every_hour.missed(Missed::All(10))
    };
    let harness = Harness::new(|tasks| engine(tasks).schedule(schedule())).await;
    assert!(harness.drain().await.is_empty());
    harness.advance(HOUR).await;
    assert_eq!(harness.drain().await.of::<SendMail>().len(), 1);
    harness.advance(HOUR * 3).await;
    let drained = harness.drain_until_quiet().await;
    assert_eq!(drained.of::<SendMail>().len(), 3, "{drained}");
    harness.assert_created(&mail("ada")).await;
}

#[tokio::test]
async fn application_shares_moved_clock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let harness = Harness::open(&file, engine).await;
    harness.advance(HOUR * 24).await;
    let connection = rusqlite::Connection::open(&file).unwrap();
    let task = NewTask::of(&mail("ada")).unwrap().after(HOUR);
    create_in(&connection, &[task]).unwrap();
    assert!(harness.drain().await.is_empty(), "an hour from a day on");
    harness.advance(HOUR).await;
    assert_eq!(harness.drain().await.len(), 1);
    // Its clock stays when it is opened again, and does not trouble its checks.
    let before = harness.now().await;
    drop(harness);
    let again = Harness::open(&file, engine).await;
    assert!(again.now().await >= before);
    assert_eq!(again.store().verify().await.unwrap(), []);
    use task_engine::store::check::{Check, CheckDepth, Verdict};
    let checks = again.store().checks(CheckDepth::Deep).await.unwrap();
    // A harness has an engine only while it drains.
    let wrong = |check: &&Check| check.name != "engines" && check.verdict > Verdict::Unknown;
    let wrong: Vec<_> = checks.iter().filter(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn clock_move_wakes_real_engine() {
    let harness = harness().await;
    let id = harness.tasks().create(mail("later")).after(HOUR).await.unwrap();
    let engine = engine(&harness.tasks());
    let stop = engine.stop_handle();
    let running = tokio::spawn(engine.run_until(std::future::pending()));
    harness.advance(HOUR).await;
    let ended = async {
        while harness.store().task(id).await.unwrap().unwrap().row.status != TaskStatus::Stopped {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Well before its poll, which is every ten seconds.
    tokio::time::timeout(Duration::from_secs(8), ended).await.unwrap();
    stop.stop();
    running.await.unwrap().unwrap();
}

/// Only tests have a clock that can be moved.
#[test]
fn production_builds_cannot_move_clock() {
    let features = |edges: &str| {
        let tree = std::process::Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["tree", "--offline", "--workspace", "--invert", "task-engine-sqlite"])
            .args(["--edges", edges])
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        String::from_utf8(tree.stdout).unwrap()
    };
    let in_programs = features("features,no-dev");
    assert!(in_programs.contains(r#"task-engine-cli"#), "{in_programs}");
    assert!(!in_programs.contains(r#"feature "testing""#), "{in_programs}");
    assert!(features("features").contains(r#"feature "testing""#), "that is how it would be seen");
}

#[tokio::test]
async fn clock_stops_at_maximum() {
    let harness = harness().await;
    harness.advance(Duration::MAX).await;
    harness.advance(Duration::MAX).await;
    harness.tasks().create(mail("ada")).await.unwrap();
    harness.drain().await.assert_all_done();
    assert!(harness.now().await.to_string().starts_with("9000-"));
}
