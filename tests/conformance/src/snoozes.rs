//! Snoozes: an attempt postpones its task without using a retry, and counts as
//! neither a success nor a failure.

use std::time::Duration;

use task_engine_core::attempt::{AttemptEnd, AttemptRecord, TaskError};
use task_engine_core::filter::Filter;
use task_engine_core::flow::FlowPage;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::TaskStatus;
use task_engine_operations::errors;
use task_engine_operations::search::Search;
use task_engine_operations::why::{Reason, why};
use task_engine_store::activity::EndingsQuery;
use task_engine_store::contract::CancelReport;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt};

const HOUR: Duration = Duration::from_secs(3600);

/// The attempt postpones its task, whose class must never be retried.
fn snoozes(hold: &TestAttempt, time: Duration) -> AttemptRecord {
    let error = TaskError::new(TaskError::SNOOZED, "rate limit reached");
    hold.ends(AttemptEnd::Snoozed(error, time), &RetryRule::never())
}

/// The task waits for the requested time by the database's clock, keeps its retry number,
/// and has no error. Its attempt has the reason.
pub async fn snooze_keeps_the_retry_number(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await, []);
    let hold = engine.claim_one().await;
    for _ in 0..2 {
        assert_eq!(engine.record(&[snoozes(&hold, HOUR)]).await, [], "sent twice, recorded once");
    }

    let task = fixture.details(id).await;
    assert_eq!((task.row.status, task.row.retry_number), (TaskStatus::Waiting, 1));
    assert_eq!((task.row.attempts, &task.row.error), (2, &None));
    let snoozed = &task.executions[1];
    assert_eq!(snoozed.status, ExecutionStatus::Snoozed);
    assert_eq!((snoozed.ends_task, snoozed.retry_number), (None, 1));
    assert_eq!(snoozed.error.as_ref().expect("a reason").message, "rate limit reached");
    let wait = task.row.scheduled_at.duration_since(snoozed.stopped_at.expect("ended"));
    assert!((wait.as_secs_f64() - 3600.0).abs() < 60.0, "{wait}");
    assert_eq!(engine.claim_all(1).await.len(), 0, "not before its time");
}

/// After its time the task runs again with the same retry number, any number of
/// times.
pub async fn snoozed_task_runs_again(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    for attempt in 1..=4 {
        let hold = engine.claim_one().await;
        assert_eq!((hold.id().attempt, hold.task.retry_number), (attempt, 0));
        assert_eq!(engine.record(&[snoozes(&hold, Duration::ZERO)]).await, []);
    }
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    let task = fixture.details(id).await;
    assert_eq!((task.row.status, task.row.attempts), (TaskStatus::Stopped, 5));
    let statuses: Vec<_> = task.executions.iter().map(|one| one.status).collect();
    assert_eq!(statuses[..4], [ExecutionStatus::Snoozed; 4]);
    assert_eq!(statuses[4], ExecutionStatus::Success);
}

/// A snoozed task can be cancelled while it waits, and a cancel request that was
/// made before wins over the snooze.
pub async fn snoozed_task_can_be_cancelled(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let ids = fixture.create_work(2).await;
    let mut engine = fixture.engine("a").await;
    let holds = engine.claim(2).await;
    let asked = fixture.store.cancel(&ids[1..]).await.expect("cancel");
    assert_eq!(asked, [CancelReport::Requested]);
    let endings = [snoozes(&holds[0], HOUR), snoozes(&holds[1], HOUR)];
    assert_eq!(engine.record(&endings).await, []);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Waiting);
    let task = fixture.details(ids[1]).await;
    assert_eq!(task.row.status, TaskStatus::Cancelled);
    assert_eq!(task.executions[0].status, ExecutionStatus::Failure, "like any cancelled attempt");

    let cancelled = fixture.store.cancel(&ids[..1]).await.expect("cancel");
    assert_eq!(cancelled, [CancelReport::Cancelled]);
    assert_eq!(fixture.status(ids[0]).await, TaskStatus::Cancelled);
}

/// A snoozed attempt is in no list of errors. Lists of attempts show it as snoozed.
pub async fn snooze_is_no_error(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let id = fixture.create_work(1).await[0];
    let mut engine = fixture.engine("a").await;
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[snoozes(&hold, HOUR)]).await, []);

    let timeout = Duration::from_secs(10);
    let search = Search { filter: Filter::default(), before: None, limit: 10, timeout };
    let found = search.run(&*fixture.store).await.expect("search");
    assert_eq!((found.tasks.len(), &found.tasks[0].row.error), (1, &None));
    assert_eq!(errors::groups(&found), []);
    assert_eq!(fixture.list(None).await[0].error, None);

    let mut look = EndingsQuery::new(10, HOUR);
    look.of(id);
    let endings = fixture.store.endings(&look).await.expect("endings");
    assert_eq!((endings.len(), &endings[0].error, endings[0].ends_task), (1, &None, None));
    assert!(endings[0].retry_at.is_some());

    let page = FlowPage { correlation_id: id.to_string(), after: None, limit: 10 };
    let flow = fixture.store.flow(&page).await.expect("flow");
    assert_eq!(flow[0].executions[0].status, ExecutionStatus::Snoozed);

    let why = why(&*fixture.store, id).await.expect("why").expect("a task");
    let Reason::Snoozed { because, .. } = &why.reasons[0] else { panic!("{:?}", why.reasons) };
    assert_eq!(because, "rate limit reached");
}
