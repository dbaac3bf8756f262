use super::*;
use task_engine::LogLevel;

fn execution(attempt: i32, status: ExecutionStatus, log_lines: i32) -> ExecutionRow {
    ExecutionRow {
        attempt,
        retry_number: 0,
        status,
        instance: None,
        worker: None,
        started_at: None,
        stopped_at: None,
        result: None,
        error: None,
        ends_task: None,
        retry_at: None,
        progress: None,
        log_lines,
        cancel: None,
    }
}

fn rows(lines: &[(i32, i32)]) -> BTreeMap<i32, Vec<LogRow>> {
    let mut rows: BTreeMap<i32, Vec<LogRow>> = BTreeMap::new();
    for (attempt, line) in lines {
        rows.entry(*attempt).or_default().push(LogRow {
            attempt: *attempt,
            line: *line,
            logged_at: Timestamp::UNIX_EPOCH,
            level: LogLevel::Info,
            message: "a\u{1b}[2Jb".to_owned(),
        });
    }
    rows
}

fn read_all(
    reader: &mut LogReader,
    executions: &[ExecutionRow],
    lines: &[(i32, i32)],
) -> Vec<String> {
    let events = reader.in_order(executions, rows(lines));
    let word = |event: &LogEvent| match event {
        LogEvent::Line(row) => format!("{}.{}", row.attempt, row.line),
        LogEvent::Dropped { attempt, dropped, .. } => format!("{attempt}: {dropped} dropped"),
        LogEvent::Progress { progress, .. } => progress_text(progress),
    };
    events.iter().map(word).collect()
}

#[test]
fn dropped_lines_are_counted_in_place() {
    use ExecutionStatus::{Failure, Running};
    let mut reader = LogReader::new(TaskId(1), None);
    let first = [execution(1, Running, 9)];
    let first_events = read_all(&mut reader, &first, &[(1, 1), (1, 2), (1, 5), (1, 6)]);
    assert_eq!(first_events, ["1.1", "1.2", "1: 2 dropped", "1.5", "1.6"]);
    assert!(read_all(&mut reader, &first, &[]).is_empty(), "it may still log more");
    let both = [execution(1, Failure, 9), execution(2, Running, 3)];
    let later_events = read_all(&mut reader, &both, &[(2, 3)]);
    assert_eq!(later_events, ["1: 3 dropped", "2: 2 dropped", "2.3"]);
    assert!(read_all(&mut reader, &both, &[]).is_empty(), "each event once");
}

#[test]
fn reads_one_attempt_only() {
    use ExecutionStatus::Failure;
    let mut reader = LogReader::new(TaskId(1), Some(2));
    let all = [execution(1, Failure, 9), execution(2, Failure, 1), execution(3, Failure, 4)];
    assert_eq!(read_all(&mut reader, &all, &[(2, 1)]), ["2.1"]);
}

#[test]
fn lines_are_escaped_for_terminal() {
    let row = rows(&[(1, 1)]).remove(&1).unwrap().remove(0);
    let line = event_text(&LogEvent::Line(row), &TimeZone::UTC);
    assert_eq!(line, r"00:00:00.000  info   a\u{1b}[2Jb");
    let progress = |percent, message: &str| {
        let at = Timestamp::UNIX_EPOCH;
        progress_text(&ProgressRow { percent, message: message.to_owned(), reported_at: at })
    };
    assert_eq!(progress(100.0 / 3.0, "a\nb"), r"33.3 %, a\nb");
    assert_eq!(progress(50.0, ""), "50 %");
}
