//! Blocked tasks whose dependencies have all ended.
//!
//! Engines decide about such a task within seconds, so one that is still blocked after a minute
//! waits for nothing. Looked at are flows in which nothing waits or runs any more.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::dependency::{DependencyRow, FlowRow};
use task_engine_core::filter::Filter;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::check::{Check, Verdict};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::flows;
use crate::search::{self, Search};

pub(super) const NAME: &str = "flows";
/// The newest flows.
const FLOWS_MAX: u32 = 100;
/// At most so many of them are read.
const READ_MAX: usize = 10;
/// At most so many tasks of each.
const TASKS_MAX: usize = 1_000;
/// Engines decide faster, also after a crash.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const NAMED_MAX: usize = 5;

pub(super) async fn check(store: &dyn Store) -> Result<Check, StoreError> {
    let page = flows::list(store, None, FLOWS_MAX).await?;
    let open = page.flows.iter().filter(|flow| flow.row.counts.open() > 0).count();
    let suspects = page.flows.iter().map(|flow| &flow.row).filter(|row| is_suspect(row));
    let now = store.creation_times(&[]).await?.now;
    let mut stuck = Vec::new();
    for row in suspects.take(READ_MAX) {
        stuck.extend(stuck_tasks(store, row, now).await?);
    }
    Ok(evaluate(page.flows.len(), open, &stuck))
}

/// Nothing of it waits or runs, but something is blocked.
fn is_suspect(row: &FlowRow) -> bool {
    let counts = &row.counts;
    counts.blocked > 0 && counts.waiting == 0 && counts.running == 0 && !counts.and_more
}

async fn stuck_tasks(
    store: &dyn Store,
    row: &FlowRow,
    now: Timestamp,
) -> Result<Vec<TaskId>, StoreError> {
    let Some(flow) = flows::read(store, &row.correlation_id, TASKS_MAX).await? else {
        return Ok(Vec::new());
    };
    let mut ended: HashMap<TaskId, Option<Timestamp>> = flow
        .tasks
        .iter()
        .map(|task| (task.row.id, is_over(task.row.status).then_some(task.row.updated_at)))
        .collect();
    let mut outside: Vec<TaskId> = flow.dependencies.iter().map(|one| one.depends_on).collect();
    outside.retain(|id| !ended.contains_key(id));
    outside.sort_unstable();
    outside.dedup();
    outside.truncate(TASKS_MAX);
    if !outside.is_empty() {
        let limit = u32::try_from(outside.len()).unwrap_or(u32::MAX);
        let filter = Filter::of_ids(&outside);
        let found = Search { filter, before: None, limit, timeout: search::TIMEOUT };
        for task in found.run(store).await?.tasks {
            let row = task.row;
            ended.insert(row.id, is_over(row.status).then_some(row.updated_at));
        }
    }
    let blocked = flow.tasks.iter().filter(|task| task.row.is_blocked).map(|task| task.row.id);
    let is_stuck = |id: &TaskId| {
        let own = flow.dependencies.iter().filter(|row| row.task_id == *id);
        have_ended(own, &ended, now)
    };
    Ok(blocked.filter(is_stuck).collect())
}

fn is_over(status: TaskStatus) -> bool {
    !matches!(status, TaskStatus::Waiting | TaskStatus::Running)
}

/// Whether these tasks have all ended for more than a minute, or were removed.
fn have_ended<'a>(
    dependencies: impl Iterator<Item = &'a DependencyRow>,
    ended: &HashMap<TaskId, Option<Timestamp>>,
    now: Timestamp,
) -> bool {
    let mut dependencies = dependencies.peekable();
    dependencies.peek().is_some()
        && dependencies.all(|row| match (row.status, ended.get(&row.depends_on)) {
            (None, _) => true,
            (Some(_), Some(Some(at))) => now.duration_since(*at).unsigned_abs() > STUCK_AFTER,
            _ => false,
        })
}

fn evaluate(number: usize, open: usize, stuck: &[TaskId]) -> Check {
    if stuck.is_empty() {
        let text = match (number, open) {
            (0, _) => "there is no flow".to_owned(),
            (number, 0) => format!("{number} flows looked at, none is open"),
            (number, open) => {
                format!("{number} flows looked at, {open} open; each waits for an open task")
            }
        };
        return Check::ok(NAME, text);
    }
    let shown: Vec<_> = stuck.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if stuck.len() > NAMED_MAX { ", …" } else { "" };
    Check::bad(
        NAME,
        Verdict::Wrong,
        format!(
            "blocked tasks whose dependencies have all ended for more than a minute: {}{more}",
            shown.join(", ")
        ),
        format!(
            "start an engine if none is alive: its heartbeats decide about them; then: task-engine why {}",
            stuck[0]
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_core::dependency::DependencyCondition;

    #[test]
    fn only_old_ends_count() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap();
        let row = |on, status| {
            DependencyRow::new(TaskId(9), TaskId(on), DependencyCondition::Success, None, status)
        };
        let stopped = Some(TaskStatus::Stopped);
        let rows = [row(1, stopped), row(2, None)];
        let ended = |end: Option<Timestamp>| HashMap::from([(TaskId(1), end)]);
        let check = |ended: &HashMap<_, _>| have_ended(rows.iter(), ended, at(0));
        assert!(check(&ended(Some(at(-61)))));
        assert!(!check(&ended(Some(at(-59)))) && !check(&ended(None)) && !check(&HashMap::new()));
        assert!(!have_ended([].iter(), &ended(None), at(0)), "it has no dependencies");
        let wrong = evaluate(3, 1, &[TaskId(9)]);
        assert_eq!(wrong.verdict, Verdict::Wrong);
        assert!(wrong.remedy.unwrap().ends_with("task-engine why 9"));
        assert_eq!(evaluate(0, 0, &[]).message, "there is no flow");
    }
}
