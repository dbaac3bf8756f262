use task_engine_core::json::Json;
use task_engine_core::task::LateResult;
use task_engine_core::task::{ExecutionRow, TaskId, TaskRow};

use super::*;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + secs).unwrap()
}

fn execution(
    attempt: i32,
    began: Option<i64>,
    ended: Option<i64>,
    retry: Option<i64>,
) -> ExecutionRow {
    ExecutionRow {
        attempt,
        retry_number: attempt - 1,
        status: if ended.is_some() { ExecutionStatus::Failure } else { ExecutionStatus::Running },
        instance: None,
        worker: None,
        started_at: began.map(at),
        stopped_at: ended.map(at),
        result: None,
        error: None,
        ends_task: None,
        retry_at: retry.map(at),
        progress: None,
        log_lines: 0,
        cancel: None,
    }
}

fn task(executions: Vec<ExecutionRow>) -> TaskDetails {
    TaskDetails {
        row: TaskRow {
            id: TaskId(1),
            status: TaskStatus::Running,
            class: "a".into(),
            queue: "default".into(),
            priority: 0,
            created_at: at(0),
            scheduled_at: at(0),
            updated_at: at(0),
            attempts: 1,
            retry_number: 0,
            instance: None,
            error: None,
            is_blocked: false,
        },
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        executions,
        cancel_requested: false,
        late_results: vec![LateResult {
            attempt: 1,
            arrived_at: at(40),
            ended_at: at(5),
            result: None,
            error: None,
        }],
        correlation_id: "1".into(),
        parent_id: None,
    }
}

#[test]
fn every_phase_has_a_bar() {
    let task = task(vec![
        execution(1, Some(2), Some(5), Some(15)),
        execution(2, None, Some(16), None),
        execution(3, Some(20), None, None),
    ]);
    let (bars, skipped) = bars(&task, at(1), at(30), Timestamp::MAX);
    let drawn: Vec<_> = bars
        .iter()
        .map(|bar| {
            let secs = |time: Timestamp| time.duration_since(at(0)).as_secs();
            (bar.row, bar.class, secs(bar.from), secs(bar.until))
        })
        .collect();
    assert_eq!(
        drawn,
        [
            (0, "wait", 1, 2),
            (0, "run failed", 2, 5),
            (0, "off", 5, 15),
            (0, "late", 40, 40),
            (1, "wait", 15, 16),
            (2, "run", 20, 30),
        ]
    );
    assert_eq!(skipped, 0);
}

#[test]
fn only_the_last_attempts_are_drawn() {
    let all = (1..=50).map(|n| execution(n, Some(n.into()), Some(n.into()), None)).collect();
    let (bars, skipped) = bars(&task(all), at(0), at(60), Timestamp::MAX);
    assert_eq!(skipped, 30);
    assert_eq!(bars.iter().map(|bar| bar.row).max(), Some(19));
}

#[test]
fn suspension_ends_with_next_attempt() {
    let task = task(vec![
        execution(1, Some(2), Some(5), Some(1000)),
        execution(2, Some(20), Some(25), Some(2000)),
    ]);
    let (bars, _) = bars(&task, at(1), at(30), at(30));
    let off: Vec<_> = bars.iter().filter(|bar| bar.class == "off").collect();
    assert_eq!([off[0].until, off[1].until], [at(20), at(30)]);
}
