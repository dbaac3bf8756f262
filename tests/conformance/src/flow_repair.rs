//! Repair of flows: a retry of what has failed restores what was cancelled because of it; and
//! what an operator does to a blocked task.

use std::time::Duration;

use task_engine_core::attempt::TaskError;
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::dependency::Flow;
use task_engine_core::step::{SuspendOutcome, Suspension, is_dependent};
use task_engine_core::task::{Due, NewTask, TaskId, TaskStatus};
use task_engine_store::contract::RetryReport;

use crate::TestDatabase;
use crate::durable::{HOUR, child, json};
use crate::fixture::WORK;
use crate::flow_fixture::TestEnd::{Fails, IsCancelled, Succeeds};
use crate::flow_fixture::{TestFlows, brief, chain, flow_of, work};

/// The retry of a failed task restores all that was cancelled because of it, and the flow
/// runs to its end.
pub async fn retry_restores_cancelled_tasks(db: &dyn TestDatabase) {
    let at = db_time(db, 7200).await;
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["c", "a"])])
        .add("later", work().at(at).priority(4))
        .after("c")
        .add("finally", work())
        .after_end("d")
        .add("cleanup", work())
        .after_failure("a");
    let mut flows = TestFlows::with(db, flow).await;
    flows.runs("a", Fails).await;
    flows.starts(&["cleanup", "finally"]).await;
    flows.end("cleanup", Succeeds).await;
    flows.end("finally", Succeeds).await;
    assert_eq!(flows.retry(&["a"]).await, [RetryReport::Waiting]);
    flows
        .states(&[
            ("a", "waiting"),
            ("b", "blocked"),
            ("c", "blocked"),
            ("d", "blocked"),
            ("later", "blocked"),
            ("cleanup", "stopped"),
            ("finally", "stopped"),
        ])
        .await;
    flows.is_consistent().await;
    let row = flows.row("later").await;
    assert_eq!((row.scheduled_at, row.priority, row.retry_number), (at, 4, 0));
    flows.fixture.resume_missed().await;
    flows.starts(&["a"]).await;
    flows.fixture.resume_parents(&[flows.id("a"), flows.id("b"), flows.id("c")]).await;
    flows.states(&[("b", "blocked"), ("c", "blocked")]).await;
    assert_eq!(flows.end("a", Succeeds).await, 1);
    flows.starts(&["b"]).await;
    assert_eq!(flows.hold("b").id().attempt, 2, "the cancellation was the first");
    flows.end("b", Succeeds).await;
    flows.runs("c", Succeeds).await;
    flows.runs("d", Succeeds).await;
    flows.states(&[("later", "waiting"), ("finally", "stopped")]).await;
    flows.starts(&[]).await;
}

/// A restored task is cancelled again if what it depends on fails again; and restored again.
pub async fn restored_task_is_cancelled_again(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, chain(4)).await;
    for round in 1..4 {
        flows.runs("t0", Fails).await;
        for name in ["t1", "t2", "t3"] {
            let executions = flows.fixture.details(flows.id(name)).await.executions;
            assert_eq!(executions.len(), round, "{name}");
            assert_eq!(flows.row(name).await.status, TaskStatus::Cancelled);
        }
        assert_eq!(flows.retry(&["t0"]).await, [RetryReport::Waiting]);
        flows.states(&[("t1", "blocked"), ("t2", "blocked"), ("t3", "blocked")]).await;
    }
    // The retried one is cancelled while it waits.
    flows.cancel("t0").await;
    flows.states(&[("t0", "cancelled"), ("t1", "cancelled"), ("t3", "cancelled")]).await;
    flows.retry(&["t0"]).await;
    for n in 0..4 {
        flows.runs(&format!("t{n}"), Succeeds).await;
    }
}

/// A task with several failed dependencies is restored when the last of them is retried; one
/// that needs a task that stays failed stays cancelled.
pub async fn retry_restores_if_all_may_succeed(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &[]), ("c", &[]), ("ab", &["a", "b"]), ("x", &["ab"])])
        .add("ac", work())
        .after(["a", "c"]);
    let mut flows = TestFlows::with(db, flow).await;
    flows.starts(&["a", "b", "c"]).await;
    flows.end("a", Fails).await;
    flows.end("b", Fails).await;
    flows.end("c", Succeeds).await;
    flows.retry(&["a"]).await;
    flows.states(&[("ab", "cancelled"), ("x", "cancelled"), ("ac", "blocked")]).await;
    flows.retry(&["b"]).await;
    flows.states(&[("ab", "blocked"), ("x", "blocked")]).await;
    flows.is_consistent().await;
    flows.starts(&["a", "b"]).await;
    assert_eq!(flows.end("a", Succeeds).await, 1);
    flows.starts(&["ac"]).await;
    assert_eq!(flows.end("b", Succeeds).await, 1);
    flows.runs("ab", Succeeds).await;
    flows.runs("x", Succeeds).await;

    // Both in one call.
    flows.create(flow_of(&[("d", &[]), ("e", &[]), ("de", &["d", "e"]), ("y", &["de"])])).await;
    flows.starts(&["d", "e"]).await;
    flows.end("e", IsCancelled).await;
    flows.end("d", Fails).await;
    assert_eq!(flows.retry(&["e", "d"]).await, [RetryReport::Waiting; 2]);
    flows.states(&[("de", "blocked"), ("y", "blocked")]).await;
    flows.starts(&["d", "e"]).await;
    flows.end("e", Succeeds).await;
    flows.states(&[("de", "blocked")]).await;
    flows.end("d", Succeeds).await;
    flows.runs("de", Succeeds).await;
    flows.runs("y", Succeeds).await;
}

/// What an operator has cancelled, and what depends only on that, stays cancelled.
pub async fn retry_keeps_cancelled_by_operator(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["a"])]);
    let mut flows = TestFlows::with(db, flow).await;
    flows.cancel("b").await;
    flows.states(&[("c", "cancelled"), ("d", "blocked")]).await;
    flows.runs("a", Fails).await;
    flows.states(&[("d", "cancelled")]).await;
    flows.retry(&["a"]).await;
    flows.states(&[("b", "cancelled"), ("c", "cancelled"), ("d", "blocked")]).await;
    assert_eq!(flows.error("b").await.exception, TaskError::CANCELLED);
    flows.runs("a", Succeeds).await;
    flows.starts(&["d"]).await;
    // The retry of what was cancelled restores what needed it.
    flows.retry(&["b"]).await;
    flows.states(&[("c", "blocked")]).await;
    flows.runs("b", Succeeds).await;
    flows.runs("c", Succeeds).await;
}

/// Whatever waits for other tasks, too, waits for the retried one again.
pub async fn blocked_task_waits_for_retried_one(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &[]), ("c", &[])])
        .add("end", work())
        .after_end(["a", "b", "c"])
        .add("failure", work())
        .after_failure(["a", "b", "c"]);
    let mut flows = TestFlows::with(db, flow).await;
    flows.starts(&["a", "b", "c"]).await;
    flows.end("a", Fails).await;
    flows.end("b", Succeeds).await;
    // Both watch c now.
    flows.retry(&["a"]).await;
    flows.starts(&["a"]).await;
    assert_eq!(flows.end("c", Succeeds).await, 0);
    flows.fixture.resume_missed().await;
    flows.states(&[("end", "blocked"), ("failure", "blocked")]).await;
    assert_eq!(flows.end("a", Succeeds).await, 1);
    flows.states(&[("failure", "cancelled")]).await;
    flows.starts(&["end"]).await;
}

/// A task that has started, or that an operator runs before what it depends on, is no longer
/// decided about.
pub async fn started_task_is_left_alone(db: &dyn TestDatabase) {
    let mut flows =
        TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])]).add("c", work()).after_end("a"))
            .await;
    flows.runs("a", Fails).await;
    // The operator decides to run it although a has failed.
    assert_eq!(flows.retry(&["b"]).await, [RetryReport::Waiting]);
    flows.states(&[("b", "waiting"), ("c", "waiting")]).await;
    flows.fixture.resume_missed().await;
    flows.fixture.resume_parents(&[flows.id("a")]).await;
    flows.starts(&["b", "c"]).await;
    let hold = flows.take("b");
    let children = flows.fixture.call(&hold.call(WORK, 1, vec![child()])).await;
    let suspension = Suspension { children_from: Some(children[0]), ..hold.waits_for(&[]) };
    let outcome = flows.fixture.suspend(suspension).await;
    assert_eq!(outcome, SuspendOutcome::Suspended(Some(children[0])));
    flows.name("child", children[0]);
    // Now a runs and fails again, while b is suspended and c runs.
    flows.retry(&["a"]).await;
    flows.states(&[("a", "waiting"), ("b", "waiting"), ("c", "running")]).await;
    flows.starts(&["a", "child"]).await;
    flows.end("a", Fails).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("b", "waiting")]).await;
    assert_eq!(flows.end("child", Succeeds).await, 1, "b waits for its child only");
    flows.runs("b", Succeeds).await;
    flows.end("c", Succeeds).await;
    flows.starts(&[]).await;
}

/// The row of a blocked task that an operator has cancelled does not matter to its later
/// attempts, which wait for their children only.
pub async fn cancelled_blocked_task_runs_again(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("x", &[]), ("b", &["a"])])).await;
    flows.starts(&["a", "x"]).await;
    flows.cancel("b").await;
    flows.end("a", Fails).await;
    flows.retry(&["b"]).await;
    flows.starts(&["b"]).await;
    let hold = flows.take("b");
    let children = flows.fixture.call(&hold.call(WORK, 1, vec![child(), child()])).await;
    let suspension = Suspension { children_from: Some(children[0]), ..hold.waits_for(&[]) };
    let outcome = flows.fixture.suspend(suspension).await;
    assert_eq!(outcome, SuspendOutcome::Suspended(Some(children[0])));
    flows.name("one", children[0]);
    flows.name("two", children[1]);
    flows.retry(&["a"]).await;
    flows.starts(&["a", "one", "two"]).await;
    flows.end("a", Fails).await;
    flows.fixture.resume_parents(&[flows.id("a")]).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("b", "waiting")]).await;
    assert_eq!(flows.end("one", Succeeds).await, 0);
    assert_eq!(flows.end("two", Succeeds).await, 1);
    flows.runs("b", Succeeds).await;
    flows.end("x", Succeeds).await;
}

/// A blocked task cannot be brought forward, and a started one can.
pub async fn blocked_task_is_not_retried(db: &dyn TestDatabase) {
    let flow = Flow::new().add("a", work()).add("b", work().after(HOUR)).after("a");
    let mut flows = TestFlows::with(db, flow).await;
    assert_eq!(flows.retry(&["b", "a"]).await, [RetryReport::Blocked, RetryReport::AlreadyDue]);
    flows.states(&[("b", "blocked")]).await;
    flows.runs("a", Succeeds).await;
    flows.starts(&[]).await;
    assert_eq!(flows.retry(&["b"]).await, [RetryReport::Advanced]);
    flows.runs("b", Succeeds).await;
}

/// A cancelled flow that is retried as a whole runs in its order, also if an operator
/// cancelled every task of it.
pub async fn whole_flow_is_retried(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"]), ("d", &["c"])]);
    let mut flows = TestFlows::with(db, flow).await;
    let all = ["a", "b", "c", "d"];
    flows.runs("a", Fails).await;
    assert_eq!(flows.retry(&all).await, [RetryReport::Waiting; 4]);
    flows.states(&[("b", "blocked"), ("c", "blocked"), ("d", "blocked")]).await;
    flows.is_consistent().await;
    // The newest first, as operators cancel.
    for name in all.iter().rev() {
        flows.cancel(name).await;
    }
    // In any order.
    let mut order = all;
    fastrand::shuffle(&mut order);
    assert_eq!(flows.retry(&order).await, [RetryReport::Waiting; 4], "{order:?}");
    flows.states(&[("b", "blocked"), ("c", "blocked"), ("d", "blocked")]).await;
    flows.is_consistent().await;
    for name in all {
        flows.runs(name, Succeeds).await;
    }
    // A cancellation by mistake is undone one by one.
    flows.create(flow_of(&[("e", &[]), ("f", &["e"]), ("g", &["f"])])).await;
    flows.cancel("f").await;
    flows.states(&[("g", "cancelled")]).await;
    flows.starts(&["e"]).await;
    flows.retry(&["f"]).await;
    flows.states(&[("f", "blocked"), ("g", "blocked")]).await;
    for name in ["e", "f", "g"] {
        if name != "e" {
            flows.starts(&[name]).await;
        }
        flows.end(name, Succeeds).await;
    }
}

/// An edit keeps a task blocked; its new time, priority and queue apply when it may start.
pub async fn edited_task_stays_blocked(db: &dyn TestDatabase) {
    let mut flows =
        TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["a"])]))
            .await;
    let at = db_time(db, 7200).await;
    for (name, edit) in [
        ("b", Edit { parameters: Some(json(r#"{"n":1}"#)), ..Edit::default() }),
        ("c", Edit { due: Some(Due::At(at)), priority: Some(-3), ..Edit::default() }),
        ("d", Edit { queue: Some("mail".to_owned()), ..Edit::default() }),
        ("a", Edit { priority: Some(2), ..Edit::default() }),
    ] {
        let edited = flows.fixture.store.edit(flows.id(name), &edit).await.expect("edit");
        assert_eq!(edited, EditReport::Changed, "{name}");
    }
    flows.states(&[("b", "blocked"), ("c", "blocked"), ("d", "blocked")]).await;
    flows.is_consistent().await;
    assert_eq!(flows.row("d").await.queue, "mail");
    flows.runs("a", Succeeds).await;
    flows.states(&[("b", "waiting"), ("c", "waiting"), ("d", "waiting")]).await;
    flows.starts(&["b"]).await;
    let parameters = flows.hold("b").task.parameters.as_str().replace(' ', "");
    assert_eq!(parameters, r#"{"n":1}"#);
    let row = flows.row("c").await;
    assert_eq!((row.scheduled_at, row.priority), (at, -3));
}

/// What a task depends on that has not succeeded cannot be deleted, unless that task is
/// deleted, too.
pub async fn needed_task_is_not_deleted(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
    let delete = async |flows: &TestFlows, names: &[&str]| {
        let ids: Vec<TaskId> = names.iter().map(|name| flows.id(name)).collect();
        flows.fixture.store.delete(&ids).await.expect("delete")
    };
    flows.runs("a", Succeeds).await;
    assert_eq!(delete(&flows, &["a"]).await, [DeleteReport::Needed]);
    flows.starts(&["b"]).await;
    assert_eq!(delete(&flows, &["a"]).await, [DeleteReport::Needed]);
    flows.end("b", Succeeds).await;
    // c is open: b is needed, and a is not.
    let reports = delete(&flows, &["a", "b", "c"]).await;
    let open = DeleteReport::Open(TaskStatus::Waiting);
    assert_eq!(reports, [DeleteReport::Deleted, DeleteReport::Needed, open]);
    flows.runs("c", Fails).await;
    assert_eq!(delete(&flows, &["b"]).await, [DeleteReport::Needed], "c may be retried");
    assert_eq!(delete(&flows, &["b", "c"]).await, [DeleteReport::Deleted; 2]);

    // The one in the middle stays because of the last, and so does the first.
    flows.create(flow_of(&[("d", &[]), ("e", &["d"]), ("f", &["e"]), ("g", &["f"])])).await;
    flows.runs("d", Succeeds).await;
    flows.runs("e", Fails).await;
    flows.retry(&["f"]).await;
    flows.states(&[("e", "failed"), ("f", "waiting"), ("g", "blocked")]).await;
    let reports = delete(&flows, &["d", "e"]).await;
    assert_eq!(reports, [DeleteReport::Needed; 2]);
    flows.runs("f", Succeeds).await;
    flows.runs("g", Succeeds).await;
    let reports = delete(&flows, &["g", "f", "e", "d"]).await;
    assert_eq!(reports, [DeleteReport::Deleted; 4]);
    flows.is_consistent().await;
    assert_eq!(flows.fixture.list(None).await, []);
}

/// Retention keeps what open tasks depend on, and removes everything later.
pub async fn retention_keeps_dependencies(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]).add("d", work()).after_end("b");
    let mut flows = TestFlows::with(db, flow).await;
    let prune = async |flows: &TestFlows| {
        let mut removed = 0;
        for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
            let pruned = flows.fixture.store.prune(status, Duration::ZERO, 100).await;
            removed += pruned.expect("prune");
        }
        removed
    };
    let prune_flows =
        async |flows: &TestFlows| flows.fixture.store.prune_flows(100).await.expect("prune_flows");
    flows.runs("a", Succeeds).await;
    assert_eq!(prune(&flows).await, 0, "b waits");
    flows.runs("b", Fails).await;
    flows.states(&[("c", "cancelled"), ("d", "waiting")]).await;
    let stopped = flows.fixture.store.prune(TaskStatus::Stopped, Duration::ZERO, 100).await;
    assert_eq!(stopped.expect("prune"), 0, "b may be retried");
    let failed = flows.fixture.store.prune(TaskStatus::Failed, Duration::ZERO, 100).await;
    assert_eq!(failed.expect("prune"), 0, "c and d have not succeeded");
    flows.retry(&["b"]).await;
    assert_eq!(prune(&flows).await, 0, "everything is open again");
    flows.starts(&["b", "d"]).await;
    flows.end("b", Succeeds).await;
    flows.end("d", Succeeds).await;
    assert_eq!(prune_flows(&flows).await, 0);
    assert_eq!(prune(&flows).await, 2, "c reads the result of b");
    flows.runs("c", Succeeds).await;
    assert_eq!(prune(&flows).await, 2);
    assert_eq!(prune_flows(&flows).await, 1);
    assert_eq!(prune_flows(&flows).await, 0);
    assert!(!flows.engine.sees_suspended_tasks().await);

    // Cancelled ones go without being restored, and then what they depended on.
    flows.create(flow_of(&[("e", &[]), ("f", &["e"]), ("g", &["f"])])).await;
    flows.runs("e", Fails).await;
    let mut rounds = Vec::new();
    while !flows.fixture.list(None).await.is_empty() {
        rounds.push(prune(&flows).await);
        assert!(rounds.len() < 10, "{rounds:?}");
    }
    assert_eq!(rounds.iter().sum::<u64>(), 3);
    assert_eq!(prune_flows(&flows).await, 1);
}

/// A time of the database so many seconds ahead.
async fn db_time(db: &dyn TestDatabase, seconds: u64) -> jiff::Timestamp {
    let now = crate::fixture::Fixture::open(db).await.now().await;
    now.saturating_add(Duration::from_secs(seconds)).expect("a time")
}

/// A task that keeps steps of another one starts at once, and depends on the same tasks: it
/// may need their results.
pub async fn rerun_from_step_keeps_dependencies(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"])]).add("c", work()).after("a").after_end("b");
    let mut flows = TestFlows::with(db, flow).await;
    flows.runs("a", Succeeds).await;
    flows.runs("b", Fails).await;
    flows.starts(&["c"]).await;
    flows.fixture.must_record(flows.hold("c").result("first", 1)).await;
    flows.end("c", Succeeds).await;
    let old = flows.fixture.details(flows.id("c")).await;
    let new = NewTask::rerun_with_steps_of(&old).expect("a task");
    assert!(is_dependent(&new.context), "{}", new.context.as_str());
    let copy = flows.fixture.store.create_with_steps(&new, flows.id("c"), 2).await;
    flows.name("copy", copy.expect("create_with_steps"));
    let rows =
        |rows: Vec<_>| rows.iter().map(|row| format!("{:?}", brief(row))).collect::<Vec<_>>();
    assert_eq!(rows(flows.dependencies("copy").await), rows(flows.dependencies("c").await));
    flows.is_consistent().await;
    let delete = [flows.id("a")];
    assert_eq!(flows.fixture.store.delete(&delete).await.expect("delete"), [DeleteReport::Needed]);
    flows.runs("copy", Succeeds).await;
    flows.is_consistent().await;
}
