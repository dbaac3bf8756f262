//! Attempts of tasks in flows: retries, lost engines, durable tasks, limits and paused queues.

use std::time::Duration;

use task_engine_core::dependency::Flow;
use task_engine_core::limit::{LimitCleared, LimitOptions};
use task_engine_core::queue::QueuePause;
use task_engine_core::retry::RetryRule;
use task_engine_core::step::{SignalStatus, SuspendOutcome, Suspension};
use task_engine_core::task::TaskStatus;

use crate::TestDatabase;
use crate::durable::child;
use crate::fixture::{WORK, new_instance, new_task, with_classes};
use crate::flow_fixture::TestEnd::{Fails, IsCancelled, Succeeds};
use crate::flow_fixture::{TestFlows, flow_of, work};
use crate::limits::limit_work;

/// A dependency that waits again after a failure, a snooze or the loss of its engine has not
/// ended.
pub async fn interrupted_dependency_is_open(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])])).await;
    let rules = [(WORK, RetryRule::every(Duration::ZERO, 1))];
    let mut lost = flows.fixture.register(with_classes(new_instance("lost"), &rules)).await;
    lost.claim_one().await;
    assert!(flows.fixture.declare_lost(lost.id).await);
    assert_eq!(flows.fixture.recover(lost.id).await.len(), 1);
    for attempt in 2..4 {
        flows.starts(&["a"]).await;
        let hold = flows.take("a");
        assert_eq!(hold.id().attempt, attempt);
        flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
        assert_eq!(flows.fixture.resume_parents(&[hold.task_id()]).await, 0);
    }
    flows.starts(&["a"]).await;
    let hold = flows.take("a");
    flows.engine.record(&[hold.is_released()]).await;
    flows.fixture.resume_parents(&[hold.task_id()]).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("a", "waiting"), ("b", "blocked")]).await;
    assert_eq!(flows.runs("a", Succeeds).await, 1);
    flows.runs("b", Succeeds).await;
}

/// Recovery of a lost engine resolves what depends on the task that fails.
pub async fn recovery_resolves_dependents(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]);
    let flow = flow.add("d", work()).after_failure("a").add("e", work()).after_end("c");
    let mut flows = TestFlows::with(db, flow).await;
    let rules = [(WORK, RetryRule::never())];
    let mut lost = flows.fixture.register(with_classes(new_instance("lost"), &rules)).await;
    lost.claim_one().await;
    assert!(flows.fixture.declare_lost(lost.id).await);
    assert_eq!(flows.fixture.recover(lost.id).await.len(), 1);
    flows.states(&[("a", "failed"), ("b", "cancelled"), ("c", "cancelled")]).await;
    flows.starts(&["d", "e"]).await;
}

/// A durable task that depends on others waits for its own children only, and those that
/// depend on it wait until it has ended.
pub async fn durable_task_in_flow_waits_for_children(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]);
    let mut flows = TestFlows::with(db, flow).await;
    flows.runs("a", Succeeds).await;
    flows.starts(&["b"]).await;
    let parent = flows.take("b");
    let children = flows.fixture.call(&parent.call(WORK, 1, vec![child(), child()])).await;
    let suspension = Suspension { children_from: Some(children[0]), ..parent.waits_for(&[]) };
    let outcome = flows.fixture.suspend(suspension).await;
    assert_eq!(outcome, SuspendOutcome::Suspended(Some(children[0])));
    let row = flows.row("b").await;
    assert_eq!((row.status, row.is_blocked), (TaskStatus::Waiting, false));
    let rows = flows.dependencies("b").await;
    assert_eq!(rows.len(), 1, "children of durable calls are not among them");
    let dependents = flows.fixture.store.dependents(children[0], 10).await.expect("dependents");
    assert_eq!(dependents, []);
    flows.name("x", children[0]);
    flows.name("y", children[1]);
    flows.starts(&["x", "y"]).await;
    // A child that fails cancels no one: its parent decides.
    assert_eq!(flows.end("x", Fails).await, 0);
    flows.states(&[("b", "waiting"), ("c", "blocked")]).await;
    assert_eq!(flows.end("y", IsCancelled).await, 1);
    flows.starts(&["b"]).await;
    assert_eq!(flows.hold("b").id().attempt, 2);
    flows.end("b", Succeeds).await;
    flows.runs("c", Succeeds).await;
}

/// A signal to a blocked task is kept, and does not start it.
pub async fn signal_does_not_start_blocked_task(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])])).await;
    let id = flows.id("b");
    assert_eq!(flows.fixture.signal(id, "go", "1").await, SignalStatus::Kept);
    flows.fixture.resume_missed().await;
    flows.states(&[("b", "blocked")]).await;
    flows.runs("a", Succeeds).await;
    flows.starts(&["b"]).await;
    let hold = flows.take("b");
    assert_eq!(
        flows.fixture.suspend(hold.waits_for(&["go"])).await,
        SuspendOutcome::Suspended(None)
    );
    flows.runs("b", Succeeds).await;
}

/// Classes and queues that no engine serves do not matter to what is blocked.
pub async fn blocked_tasks_of_many_classes_start(db: &dyn TestDatabase) {
    let rules = [("one", RetryRule::never()), ("two", RetryRule::never())];
    let mut flows = TestFlows::open(db).await;
    let instance = with_classes(new_instance("b"), &rules);
    flows.engine = flows.fixture.register(instance).await;
    let flow = Flow::new()
        .add("a", new_task("one"))
        .add("b", new_task("two"))
        .after("a")
        .add("c", new_task("nobody"))
        .after("b");
    flows.create(flow).await;
    flows.runs("a", Succeeds).await;
    flows.runs("b", Succeeds).await;
    flows.states(&[("c", "waiting")]).await;
    flows.starts(&[]).await;
}

/// A limit applies to a task that was blocked as to any other.
pub async fn limits_apply_after_dependencies(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    limit_work(&flows.fixture, LimitOptions::max(2)).await;
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["a"]), ("e", &["d"])]);
    flows.create(flow).await;
    flows.states(&[("b", "blocked"), ("d", "blocked")]).await;
    flows.starts(&["a"]).await;
    limit_work(&flows.fixture, LimitOptions::max(1)).await;
    limit_work(&flows.fixture, LimitOptions::max(2)).await;
    flows.states(&[("b", "blocked"), ("d", "blocked")]).await;
    assert_eq!(flows.end("a", Succeeds).await, 3);
    flows.starts(&["b", "c"]).await;
    flows.states(&[("d", "waiting"), ("e", "blocked")]).await;
    flows.end("b", Succeeds).await;
    flows.starts(&["d"]).await;
    let cleared = flows.fixture.store.clear_limit(WORK).await.expect("clear_limit");
    assert_eq!(cleared, LimitCleared::Removed);
    flows.states(&[("e", "blocked")]).await;
    flows.end("d", Fails).await;
    flows.states(&[("e", "cancelled")]).await;
}

/// Tasks that were in the lane of a limit may be depended on.
pub async fn limited_task_is_depended_on(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    limit_work(&flows.fixture, LimitOptions::max(1)).await;
    let (a, b) = (flows.create_plain("a", work()).await, flows.create_plain("b", work()).await);
    flows.starts(&["a"]).await;
    // `b` is in the lane of its key now.
    flows.starts(&[]).await;
    flows.create(Flow::new().add("c", work()).after([a, b])).await;
    flows.end("a", Succeeds).await;
    flows.starts(&["b"]).await;
    assert!(crate::flow_fixture::flow_context(&flows.hold("b").task.context).1);
    assert_eq!(flows.end("b", Succeeds).await, 1);
    flows.fixture.resume_missed().await;
    flows.starts(&["c"]).await;
}

/// A task of a paused queue starts after its dependencies and the pause.
pub async fn paused_queue_holds_dependents(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])])).await;
    flows.starts(&["a"]).await;
    let pause = QueuePause::new("default", None).expect("a pause");
    assert!(flows.fixture.store.pause_queue(&pause).await.expect("pause_queue"));
    assert_eq!(flows.end("a", Succeeds).await, 1);
    flows.starts(&[]).await;
    flows.states(&[("b", "waiting")]).await;
    assert!(flows.fixture.store.resume_queue("default").await.expect("resume_queue"));
    flows.starts(&["b"]).await;
}
