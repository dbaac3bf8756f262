use task_engine_core::progress::{LINE_BYTES_MAX, LogFilter};
use task_engine_core::task::TaskId;
use task_engine_sqlite::SqliteStore;

use super::*;

fn id(task_id: i64) -> AttemptId {
    AttemptId { task_id: TaskId(task_id), attempt: 1 }
}

/// A store without tables: every write fails.
fn without_tables() -> Arc<ReportWriter> {
    ReportWriter::new(Arc::new(SqliteStore::open_in_memory().unwrap()))
}

#[tokio::test]
async fn unwritten_reports_are_bounded_and_counted() {
    let reports = without_tables();
    let text = "x".repeat(LINE_BYTES_MAX);
    let reporters: Vec<_> =
        (1..=300).map(|task| reports.reporter(id(task), Redactor::default())).collect();
    for reporter in &reporters {
        for _ in 0..50 {
            reporter.log(LogLevel::Info, &text);
        }
        reporter.progress(50.0, "half");
    }
    assert!(reports.write(|_| true).await.is_err());
    let lines = |buffer: &ReportBuffer| buffer.lines.len() + buffer.tail.len();
    let kept: usize = reporters.iter().map(|reporter| lines(&lock(&reporter.buffer))).sum();
    assert!(kept * LINE_BYTES_MAX <= UNWRITTEN_BYTES_MAX, "{kept} lines");
    assert!(kept * LINE_BYTES_MAX > UNWRITTEN_BYTES_MAX / 2, "{kept} lines");
    assert!(reports.bytes.load(Ordering::Relaxed) <= UNWRITTEN_BYTES_MAX);
    for reporter in &reporters {
        let report = reporter.report().unwrap();
        assert_eq!(report.lines_total, 50, "all are counted");
        assert!(report.progress.is_some(), "the last progress is always kept");
    }
    let half = LOG_BYTES_MAX / LINE_BYTES_MAX / 2;
    assert_eq!(reporters[0].report().unwrap().lines.len(), half);
    reporters[0].close();
    assert_eq!(reporters[0].report().unwrap().lines.len(), half * 2, "the last ones, too");
}

#[tokio::test]
async fn log_keeps_first_and_last_lines() {
    let numbers = |reporter: &AttemptReporter| -> Vec<i32> {
        reporter.report().unwrap().lines.iter().map(|line| line.line).collect()
    };
    let log = |reporter: &Arc<AttemptReporter>, lines: i32| {
        for line in 1..=lines {
            reporter.log(LogLevel::Info, &format!("line {line}"));
        }
    };
    let reports = without_tables();
    let long = reports.reporter(id(1), Redactor::default());
    log(&long, 200_000);
    assert_eq!(numbers(&long), (1..=500).collect::<Vec<_>>(), "while it runs");
    long.close();
    let kept: Vec<i32> = (1..=500).chain(199_501..=200_000).collect();
    assert_eq!(numbers(&long), kept);
    assert_eq!(long.report().unwrap().lines_total, 200_000);
    for (wanted, logged, kept) in [
        (1000, 999, (1..=999).collect()),
        (3, 10, vec![1, 2, 10]),
        (1, 10, vec![1]),
        (0, 10, vec![]),
    ] {
        let reporter = reports.reporter(id(2), Redactor::default());
        reporter.keep_lines(wanted);
        log(&reporter, logged);
        reporter.close();
        assert_eq!(numbers(&reporter), kept, "{wanted} of {logged}");
        reporter.written(&reporter.report().unwrap());
    }
    long.written(&long.report().unwrap());
    assert_eq!(reports.bytes.load(Ordering::Relaxed), 0, "all room is free again");
}

#[test]
fn unwritten_attempts_are_bounded() {
    let reports = without_tables();
    for task in 1..=20_100 {
        let reporter = reports.reporter(id(task), Redactor::default());
        reporter.log(LogLevel::Info, "x");
        reporter.progress(1.0, "x");
        reporter.close();
    }
    assert_eq!(lock(&reports.unwritten).len(), UNWRITTEN_ATTEMPTS_MAX);
    assert_eq!(reports.dropped.load(Ordering::Relaxed), 200);
    let kept = UNWRITTEN_ATTEMPTS_MAX * (LINE_OVERHEAD_BYTES + 1);
    assert_eq!(reports.bytes.load(Ordering::Relaxed), kept);
}

#[tokio::test]
async fn written_reports_are_removed() {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    store.migrate().await.unwrap();
    let reports = ReportWriter::new(store.clone());
    let (one, other) = (
        reports.reporter(id(1), Redactor::default()),
        reports.reporter(id(2), Redactor::default()),
    );
    for reporter in [&one, &other] {
        reporter.log(LogLevel::Info, "a");
        reporter.log(LogLevel::Info, "b");
    }
    // Logged while the first two were being written.
    let on_its_way = one.report().unwrap();
    one.log(LogLevel::Info, "c");
    one.written(&on_its_way);
    assert_eq!(one.report().unwrap().lines.len(), 1);
    assert_eq!(lock(&reports.unwritten).len(), 2, "one has more to write");
    // Nothing is written about tasks that are not there, and nothing kept.
    reports.write(|id| id.task_id == TaskId(1)).await.unwrap();
    assert_eq!(lock(&reports.unwritten).len(), 1);
    reports.write(|_| true).await.unwrap();
    assert_eq!(lock(&reports.unwritten).len(), 0);
    assert!(one.report().is_none());
    assert_eq!(reports.bytes.load(Ordering::Relaxed), 0);
    let filter = LogFilter { limit: 10, ..LogFilter::default() };
    assert_eq!(store.logs(TaskId(1), &filter).await.unwrap(), []);
    // It is listed again.
    one.progress(100.0, "");
    assert_eq!(lock(&reports.unwritten).len(), 1);
}

#[tokio::test]
async fn reports_after_end_are_ignored() {
    let reports = without_tables();
    let reporter = reports.reporter(id(1), Redactor::default());
    reporter.close();
    reporter.log(LogLevel::Error, "too late");
    reporter.progress(1.0, "too late");
    assert!(lock(&reports.unwritten).is_empty());
}
