//! Blocked tasks whose decision is overdue.
//!
//! Engines decide about a task within seconds after the end of what it waits for, so one that is
//! still blocked after a minute waits for nothing.

use task_engine_core::dependency::BlockedTasks;
use task_engine_store::check::{Check, Verdict};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::flows::BLOCKED_COUNTED_MAX;

pub(super) const NAME: &str = "flows";
const NAMED_MAX: usize = 5;

pub(super) async fn check(store: &dyn Store) -> Result<Check, StoreError> {
    Ok(evaluate(&store.blocked_tasks(BLOCKED_COUNTED_MAX).await?))
}

fn evaluate(blocked: &BlockedTasks) -> Check {
    let Some(first) = blocked.overdue.first() else {
        let more = if blocked.tasks.and_more { " or more" } else { "" };
        let text = match blocked.tasks.counted {
            0 => "no task waits for others".to_owned(),
            1 => "1 task waits for others, which have not ended".to_owned(),
            number => format!("{number}{more} tasks wait for others, which have not ended"),
        };
        return Check::ok(NAME, text);
    };
    let shown: Vec<_> = blocked.overdue.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if blocked.overdue.len() > NAMED_MAX { ", …" } else { "" };
    Check::bad(
        NAME,
        Verdict::Wrong,
        format!(
            "tasks that wait for others, although these ended more than a minute ago: {}{more}",
            shown.join(", ")
        ),
        format!(
            "start an engine if none is alive: its heartbeats decide about them; then: task-engine why {first}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_core::task::TaskId;

    #[test]
    fn overdue_tasks_are_named() {
        let blocked = |overdue: &[i64]| {
            let overdue = overdue.iter().map(|id| (TaskId(*id), true));
            BlockedTasks::of(6, [(TaskId(1), false)].into_iter().chain(overdue))
        };
        let wrong = evaluate(&blocked(&[9, 10]));
        assert_eq!(wrong.verdict, Verdict::Wrong);
        assert!(wrong.message.ends_with("a minute ago: 9, 10"), "{}", wrong.message);
        assert!(wrong.remedy.unwrap().ends_with("task-engine why 9"));
        let many = evaluate(&blocked(&[2, 3, 4, 5, 6, 7, 8]));
        assert!(many.message.ends_with(": 2, 3, 4, 5, 6"), "{}", many.message);
        let message = |tasks: i64| {
            evaluate(&BlockedTasks::of(6, (0..tasks).map(|id| (TaskId(id), false)))).message
        };
        assert_eq!(message(0), "no task waits for others");
        assert_eq!(message(6), "6 tasks wait for others, which have not ended");
        assert_eq!(message(7), "6 or more tasks wait for others, which have not ended");
    }
}
