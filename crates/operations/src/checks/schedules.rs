//! Schedules whose next task no live engine would take.
//!
//! Such a task would wait from its slot on. This check finds it before, for example after a
//! deployment that has removed a class.

use jiff::Timestamp;
use task_engine_core::display::{brief, shell_quoted};
use task_engine_core::instance::InstanceRow;
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_store::check::{Check, Verdict};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::why::{Reason, Requirements, no_candidate};

pub(super) const NAME: &str = "unserved_schedules";
/// At most so many schedules are read.
const SCHEDULES_READ_MAX: u32 = 1000;
const NAMED_MAX: usize = 5;

/// `None` if no engine is alive: that is a finding of its own.
pub(super) async fn check(store: &dyn Store) -> Result<Option<Check>, StoreError> {
    let engines = store.instances(None).await?;
    let schedules = store.schedules(None, SCHEDULES_READ_MAX).await?;
    Ok(evaluate(&schedules, &engines))
}

fn evaluate(schedules: &[ScheduleRow], engines: &[InstanceRow]) -> Option<Check> {
    if !engines.iter().any(InstanceRow::is_alive) {
        return None;
    }
    let mut found: Vec<_> = schedules.iter().filter_map(|row| unserved(row, engines)).collect();
    found.sort_by_key(|one| one.next_at);
    let Some(first) = found.first() else {
        let message = "every schedule creates tasks that a live engine takes";
        return Some(Check::ok(NAME, message));
    };
    let shown: Vec<_> = found.iter().take(NAMED_MAX).map(|one| one.message.as_str()).collect();
    let more = found.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(Check::bad(
        NAME,
        Verdict::Warning,
        format!("{}{more}", shown.join("; ")),
        format!(
            "{}; or, if it is not needed: task-engine schedules remove {}",
            first.remedy,
            shell_quoted(first.name)
        ),
    ))
}

struct UnservedSchedule<'a> {
    name: &'a str,
    next_at: Timestamp,
    message: String,
    remedy: String,
}

/// A paused or broken schedule has no next slot, and creates no task.
fn unserved<'a>(row: &'a ScheduleRow, engines: &[InstanceRow]) -> Option<UnservedSchedule<'a>> {
    let next_at = row.state.next_at?;
    let definition = row.definition().ok()?;
    let required = Requirements {
        class: &definition.class,
        queue: &definition.queue,
        priority: definition.priority,
    };
    let (problem, remedy) = match no_candidate(required, engines)? {
        Reason::UnknownClass { class, .. } => (
            format!("no live engine knows {}", brief(&class, 50)),
            "start the application that knows the class".to_owned(),
        ),
        Reason::QueueNotServed { queue, .. } => (
            format!("no live engine that knows its class takes from {}", brief(&queue, 50)),
            format!("task-engine start --queue {}", shell_quoted(&queue)),
        ),
        _ => (
            format!("no live engine takes its tasks of priority {}", definition.priority),
            "start workers that take lower priorities".to_owned(),
        ),
    };
    let name = brief(&row.name, 50);
    let message = format!("{name}, next slot {next_at}: {problem}");
    Some(UnservedSchedule { name: &row.name, next_at, message, remedy })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use task_engine_core::instance::InstanceId;
    use task_engine_core::json::Json;
    use task_engine_core::queue::Pool;
    use task_engine_core::schedule::Schedule;
    use task_engine_core::schedule::row::{ScheduleState, ScheduleVersion};
    use task_engine_core::task::{NewTask, TaskOptions};

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + secs).unwrap()
    }

    /// An engine that knows the class `report`, for priorities from 0 on.
    fn engine(is_alive: bool) -> InstanceRow {
        let queues = vec!["default".to_owned()];
        InstanceRow {
            id: InstanceId(1),
            name: "e".into(),
            host: "h".into(),
            pid: 1,
            process: None,
            version: String::new(),
            workers: 1,
            queues: queues.clone(),
            pools: vec![Pool { lowest_priority: Some(0), ..Pool::new(queues, 1) }],
            classes: BTreeMap::from([("report".to_owned(), TaskOptions::default())]),
            started_at: at(0),
            heartbeat_at: at(0),
            heartbeat_age: Duration::ZERO,
            lease: Duration::from_secs(10),
            stopped_at: None,
            lost_at: (!is_alive).then(|| at(0)),
            held: 0,
            process_gone: false,
        }
    }

    fn row(
        name: &str,
        class: &str,
        change: fn(NewTask) -> NewTask,
        next: Option<i64>,
    ) -> ScheduleRow {
        let task = change(NewTask::new(class, Json::empty_object()).unwrap());
        let schedule = Schedule::cron(name, "0 3 * * *").new_task(task);
        let definition = schedule.definition().unwrap();
        ScheduleRow {
            name: name.into(),
            version: ScheduleVersion { id: 1, version: 1 },
            state: ScheduleState {
                definition: definition.to_json().unwrap(),
                declared: None,
                overlap: definition.overlap,
                anchor: at(0),
                paused: None,
                error: None,
                next_at: next.map(at),
            },
            last_slot: None,
            last_task: None,
            created_at: at(0),
            updated_at: at(0),
        }
    }

    fn same(task: NewTask) -> NewTask {
        task
    }

    #[test]
    fn unserved_schedule_is_a_warning() {
        let in_mail = |task: NewTask| task.queue("mail").unwrap();
        for (row, problem, remedy) in [
            (
                row("a b", "gone", same, Some(0)),
                "no live engine knows gone",
                "start the application",
            ),
            (
                row("a b", "report", in_mail, Some(0)),
                "no live engine that knows its class takes from mail",
                "task-engine start --queue mail",
            ),
            (
                row("a b", "report", |task| task.priority(-1), Some(0)),
                "no live engine takes its tasks of priority -1",
                "start workers",
            ),
        ] {
            let found = evaluate(&[row], &[engine(true)]).unwrap();
            assert_eq!(found.verdict, Verdict::Warning);
            let message = format!("a b, next slot 1970-01-12T13:46:40Z: {problem}");
            assert_eq!(found.message, message);
            let remedy_text = found.remedy.unwrap();
            assert!(remedy_text.starts_with(remedy), "{remedy_text}");
            assert!(remedy_text.ends_with("schedules remove 'a b'"), "{remedy_text}");
        }
    }

    #[test]
    fn served_and_paused_schedules_are_fine() {
        let rows = [row("a", "report", same, Some(0)), row("b", "gone", same, None)];
        assert_eq!(evaluate(&rows, &[engine(true)]).unwrap().verdict, Verdict::Ok);
        let gone = [row("a", "gone", same, Some(0))];
        assert_eq!(evaluate(&gone, &[engine(false)]), None, "the check of engines says it");
    }

    #[test]
    fn next_slots_come_first() {
        let rows: Vec<_> = (0..7).map(|n| row(&format!("s{n}"), "gone", same, Some(-n))).collect();
        let found = evaluate(&rows, &[engine(true)]).unwrap();
        assert!(found.message.starts_with("s6, "), "{found:?}");
        assert!(found.message.ends_with("; and 2 more"), "{found:?}");
    }
}
