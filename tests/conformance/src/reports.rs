//! Reports of running attempts: progress and logs.

use std::time::{Duration, Instant};

use task_engine_core::attempt::AttemptId;
use task_engine_core::progress::{LogFilter, LogLevel, LogLine, LogRow, ProgressReport, Report};
use task_engine_core::task::{TaskId, TaskStatus};

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt};
use crate::waiting::race;

const ALL: LogFilter =
    LogFilter { attempt: None, after: None, before: None, newest: false, limit: 10_000 };

/// Reported progress and log lines can be read while the attempt runs and after its end, with
/// times of the database's clock.
pub async fn reports_are_recorded(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let silent = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(2).await;
    let hold = holds.iter().find(|hold| hold.task_id() == id).expect("claimed");
    assert_eq!(fixture.details(id).await.executions[0].progress, None);

    let two_seconds = Duration::from_secs(2);
    let mut report = report_with(hold.id(), 1, &["begun", "goes on"]);
    report.progress = Some(ProgressReport::new(12.5, "first half"));
    report.lines[1].level = LogLevel::Warn;
    report.lines[0].at -= two_seconds;
    send_reports(&fixture, &[report]).await;

    for ended in [false, true] {
        let execution = fixture.details(id).await.executions.remove(0);
        let progress = execution.progress.expect("progress");
        assert_eq!((progress.percent, progress.message.as_str()), (12.5, "first half"));
        assert_eq!(execution.log_lines, 2);
        let log = logs(&fixture, id, ALL).await;
        let texts: Vec<_> = log.iter().map(|row| (row.line, row.message.as_str())).collect();
        assert_eq!(texts, [(1, "begun"), (2, "goes on")]);
        assert_eq!((log[0].level, log[1].level), (LogLevel::Info, LogLevel::Warn));
        let apart = log[1].logged_at.duration_since(log[0].logged_at).unsigned_abs();
        assert!(apart.abs_diff(two_seconds) < Duration::from_millis(500), "{apart:?}");
        let now = fixture.now().await;
        let age = now.duration_since(progress.reported_at);
        assert!(age.as_secs_f64().abs() < 20.0, "by the database's clock: {age:?}");
        if !ended {
            assert_eq!(engine.record(&[hold.succeeds()]).await, []);
        }
    }
    let silent = fixture.details(silent).await.executions.remove(0);
    assert_eq!((silent.progress, silent.log_lines), (None, 0));
}

/// A report is sent again because its reply was lost, with more lines or without. An
/// older report changes nothing.
pub async fn repeated_report_changes_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    let mut first = report_with(hold.id(), 1, &["one"]);
    first.progress = Some(ProgressReport::new(10.0, "one"));
    let mut second = report_with(hold.id(), 2, &["one, otherwise", "two"]);
    second.progress = Some(ProgressReport::new(20.0, "two"));
    for report in [&first, &first, &second, &second, &first] {
        send_reports(&fixture, std::slice::from_ref(report)).await;
        let lines = i32::try_from(logs(&fixture, id, ALL).await.len()).expect("few");
        assert_eq!(lines, fixture.details(id).await.executions[0].log_lines);
    }
    let log = logs(&fixture, id, ALL).await;
    let texts: Vec<_> = log.iter().map(|row| row.message.as_str()).collect();
    assert_eq!(texts, ["one", "two"], "the first word counts");
    let progress = fixture.details(id).await.executions.remove(0).progress.expect("progress");
    assert_eq!((progress.percent, progress.message.as_str()), (20.0, "two"), "the newest counts");
    send_reports(&fixture, &[]).await;
}

/// Lines are found by attempt, from a position on, and from the end.
pub async fn logs_are_read_in_pages(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let mut expected = Vec::new();
    for attempt in 1..=3 {
        let hold = engine.claim_one().await;
        assert_eq!(hold.id().attempt, attempt);
        let mut report = report_with(hold.id(), 1, &["a", "b", "c", "d"]);
        // One was dropped, and one more at the end.
        report.lines.remove(1);
        report.lines_total = 5;
        send_reports(&fixture, &[report]).await;
        assert_eq!(engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await, []);
        expected.extend([1, 3, 4].map(|line| (attempt, line)));
    }
    let places = async |filter| -> Vec<(i32, i32)> {
        let rows = logs(&fixture, id, filter).await;
        rows.iter().map(|row| (row.attempt, row.line)).collect()
    };
    assert_eq!(places(ALL).await, expected);
    let some = LogFilter { limit: 4, ..ALL };
    assert_eq!(places(some).await, expected[..4]);
    assert_eq!(places(LogFilter { newest: true, ..some }).await, expected[5..]);
    assert_eq!(places(LogFilter { after: Some((1, 4)), ..some }).await, expected[3..7]);
    assert_eq!(places(LogFilter { attempt: Some(2), ..ALL }).await, expected[3..6]);
    let last_of_one = LogFilter { attempt: Some(2), newest: true, limit: 1, ..ALL };
    assert_eq!(places(last_of_one).await, [(2, 4)]);
    assert_eq!(places(LogFilter { after: Some((3, 4)), ..ALL }).await, []);
    let (attempt, line) = expected[5];
    let before = LogFilter { before: Some((attempt, line)), ..ALL };
    assert_eq!(places(before).await, expected[..5]);
    let page = LogFilter { newest: true, limit: 2, ..before };
    assert_eq!(places(page).await, expected[3..5]);
    assert_eq!(logs(&fixture, TaskId(987_654_321), ALL).await, []);
    let executions = fixture.details(id).await.executions;
    assert!(executions.iter().all(|execution| execution.log_lines == 5));
}

/// Text of every kind is read back unchanged.
pub async fn hostile_log_text_is_kept(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    let texts =
        ["", "'; DROP TABLE x; --", "\u{1b}[2J\r\n\t", "日本 \u{202e} 👩‍👩‍👧", "%s {} \\ \" NULL"];
    let mut report = report_with(hold.id(), 1, &texts);
    report.progress = Some(ProgressReport::new(0.0, texts[2]));
    let long = "x".repeat(100_000);
    report.lines.push(LogLine::new(6, LogLevel::Error, &long));
    report.lines_total = 6;
    send_reports(&fixture, &[report]).await;
    let log = logs(&fixture, id, ALL).await;
    for (row, text) in log.iter().zip(texts) {
        assert_eq!(row.message, text);
    }
    assert!(log[5].message.ends_with("(100000 bytes in all)"), "it was cut");
    let progress = fixture.details(id).await.executions.remove(0).progress.expect("progress");
    assert_eq!(progress.message, texts[2]);
}

/// A report of a lost attempt is stored. It changes neither its task nor the next
/// attempt.
pub async fn lost_instance_may_report(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let zombie = engine.claim_one().await;
    assert!(fixture.declare_lost(engine.id).await);
    assert_eq!(fixture.recover(engine.id).await.len(), 1);
    let waiting = fixture.details(id).await;
    send_reports(&fixture, &[report_with(zombie.id(), 1, &["still here"])]).await;
    let after = fixture.details(id).await;
    assert_eq!(after.row, waiting.row);
    assert_eq!(after.executions.len(), 1);
    assert_eq!(after.executions[0].log_lines, 1);
}

/// Retention removes reports with their task, and no report is written about a removed
/// task.
pub async fn retention_removes_reports(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    let mut report = report_with(hold.id(), 1, &["one", "two"]);
    report.progress = Some(ProgressReport::new(50.0, ""));
    send_reports(&fixture, &[report.clone()]).await;
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    engine.finish(hold.claim_id).await;
    let pruned = fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await;
    assert_eq!(pruned.expect("prune"), 1);
    assert_eq!(logs(&fixture, id, ALL).await, []);
    report.version = 2;
    send_reports(&fixture, &[report]).await;
    assert_eq!(logs(&fixture, id, ALL).await, [], "nothing is left behind");
}

/// A report is written while its task is removed: either both remain or neither.
/// (`verify` finds leftovers.)
pub async fn report_and_retention_leave_whole_tasks(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let other = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for round in 0..40 {
        let ids = fixture.create_work(5).await;
        let holds = engine.claim(5).await;
        let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
        assert_eq!(engine.record(&endings).await, []);
        engine.finish(holds[0].claim_id).await;
        let reports: Vec<_> =
            holds.iter().map(|hold| report_with(hold.id(), 1, &["last"])).collect();
        let (speaker, keeper) = (fixture.clone(), other.clone());
        let ((), removed) = race(
            async move {
                // Reports about tasks that retention had locked are sent again, until
                // they are written or the task is removed.
                let mut left = reports;
                while !left.is_empty() {
                    let passed_over = speaker.store.report(&left).await.expect("progress");
                    left.retain(|report| passed_over.contains(&report.id));
                }
            },
            async move {
                let pruned = keeper.store.prune(TaskStatus::Stopped, Duration::ZERO, 1000);
                pruned.await.expect("prune")
            },
        )
        .await;
        // Tasks that a report had locked are left for the next time.
        let rest = other.store.prune(TaskStatus::Stopped, Duration::ZERO, 1000).await;
        assert_eq!(removed + rest.expect("prune"), 5, "round {round}");
        for id in ids {
            assert_eq!(logs(&fixture, id, ALL).await, [], "round {round}");
        }
        assert_eq!(fixture.store.verify().await.expect("verify"), []);
    }
}

/// Lines numbered from 1, logged now.
fn report_with(id: AttemptId, version: i64, texts: &[&str]) -> Report {
    let lines = (1..).zip(texts).map(|(line, text)| LogLine {
        line,
        level: LogLevel::Info,
        message: (*text).to_owned(),
        at: Instant::now(),
    });
    let lines: Vec<_> = lines.collect();
    let lines_total = i32::try_from(lines.len()).expect("few");
    Report { id, version, lines_total, progress: None, lines }
}

async fn send_reports(fixture: &Fixture, reports: &[Report]) {
    let passed_over = fixture.store.report(reports).await.expect("progress");
    assert_eq!(passed_over, [], "no other session has locked them");
}

async fn logs(fixture: &Fixture, id: TaskId, filter: LogFilter) -> Vec<LogRow> {
    fixture.store.logs(id, &filter).await.expect("logs")
}
