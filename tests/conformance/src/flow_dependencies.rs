//! Tasks that depend on others: they are created all or none, no claim sees them before their
//! dependencies have ended, and then they start once.

use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::dependency::{DependencyCondition, Flow, NewFlow};
use task_engine_core::queue::Lanes;
use task_engine_core::task::{TaskId, TaskListQuery, TaskStatus};
use task_engine_core::unique::{OnConflict, Scope, Unique};
use task_engine_store::contract::WakeUp;

use crate::TestDatabase;
use crate::durable::{HOUR, json};
use crate::fixture::{Fixture, TestAttempt, WORK};
use crate::flow_fixture::TestEnd::{Fails, Succeeds};
use crate::flow_fixture::{TestFlows, brief, chain, flow_context, flow_of, resolved, work};
use crate::wake_ups::Listener;

use DependencyCondition::{End, Failure, Success};

/// Tasks are created in the order of the flow, with their names, and engines know which ones
/// others wait for.
pub async fn flow_creates_its_tasks(db: &dyn TestDatabase) {
    let flow = Flow::new()
        .name("nightly")
        .correlation("run-17")
        .add("report", work())
        .after(["load", "extract"])
        .after_end("check")
        .add("load", work())
        .after("extract")
        .add("check", work())
        .add("extract", work().priority(3))
        .add("alert", work())
        .after_failure(["report"]);
    let mut flows = TestFlows::open(db).await;
    let created = flows.create(flow).await;
    assert_eq!(created.correlation_id, "run-17");
    assert!(created.ids.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", created.ids);
    for (name, awaited) in
        [("check", true), ("extract", true), ("load", true), ("report", true), ("alert", false)]
    {
        let details = flows.fixture.details(flows.id(name)).await;
        assert_eq!(flow_context(&details.context), (Some(name.to_owned()), awaited));
        assert_eq!(details.correlation_id, "run-17");
        let is_blocked = !["check", "extract"].contains(&name);
        assert_eq!((details.row.status, details.row.is_blocked), (TaskStatus::Waiting, is_blocked));
        assert_eq!((details.row.attempts, details.row.queue.as_str()), (0, "default"), "{name}");
        assert_eq!(details.executions, [], "{name}");
    }
    let waiting = Some(TaskStatus::Waiting);
    let mut expected = vec![
        (flows.id("extract"), Success, Some("extract"), waiting),
        (flows.id("load"), Success, Some("load"), waiting),
        (flows.id("check"), End, Some("check"), waiting),
    ];
    expected.sort_by_key(|row| row.0);
    let rows = flows.dependencies("report").await;
    assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), expected);
    assert!(rows.iter().all(|row| row.task_id == flows.id("report")));
    let rows = flows.dependencies("alert").await;
    let expected = [(flows.id("report"), Failure, Some("report"), waiting)];
    assert_eq!(rows.iter().map(brief).collect::<Vec<_>>(), expected);
    assert_eq!(flows.dependencies("check").await, []);
    let all = flows.fixture.store.dependencies(&created.ids, 100).await.expect("dependencies");
    let pairs: Vec<_> = all.iter().map(|row| (row.task_id, row.depends_on)).collect();
    assert!(pairs.is_sorted(), "{pairs:?}");
    assert_eq!(pairs.len(), 5);
    let some = flows.fixture.store.dependencies(&created.ids, 2).await.expect("dependencies");
    assert_eq!(some, all[..2]);
    let dependents = flows.fixture.store.dependents(flows.id("extract"), 100).await;
    let mut expected = vec![flows.id("load"), flows.id("report")];
    expected.sort();
    let found: Vec<_> = dependents.expect("dependents").iter().map(|row| row.task_id).collect();
    assert_eq!(found, expected);
    flows.starts(&["check", "extract"]).await;
}

/// The correlation id is the given one, that of the first existing task that the flow depends
/// on, or a new one.
pub async fn flow_inherits_correlation_id(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let first = flows.create(flow_of(&[("a", &[]), ("b", &["a"])])).await.correlation_id;
    let second = flows.create(flow_of(&[("c", &[]), ("d", &["c"])])).await.correlation_id;
    assert!(!first.is_empty() && first != second, "{first:?}, {second:?}");
    for (name, id) in [("a", &first), ("b", &first), ("c", &second), ("d", &second)] {
        assert_eq!(flows.fixture.details(flows.id(name)).await.correlation_id, *id);
    }
    let named = work().correlation("order-9").expect("an id");
    let order = flows.create_plain("order", named).await;
    let own = flows.create_plain("own", work()).await;
    let after = |name: &str, id: TaskId| Flow::new().add(name, work()).after(id);
    assert_eq!(flows.create(after("e", order)).await.correlation_id, "order-9");
    assert_eq!(flows.create(after("f", own)).await.correlation_id, own.to_string());
    let given = after("g", order).correlation("mine");
    assert_eq!(flows.create(given).await.correlation_id, "mine");
    assert_eq!(flows.create(after("h", flows.id("d"))).await.correlation_id, second);
    for (name, id) in [("e", "order-9"), ("f", &own.to_string()), ("g", "mine"), ("h", &second)] {
        assert_eq!(flows.fixture.details(flows.id(name)).await.correlation_id, id, "{name}");
    }
    assert_eq!(flows.fixture.details(order).await.correlation_id, "order-9", "it stays");
}

/// One task that depends on existing ones has no name in a flow.
pub async fn single_task_depends_on_others(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let (a, b) = (flows.create_plain("a", work()).await, flows.create_plain("b", work()).await);
    let new = NewFlow::of_task(work(), &[(a, Success), (b, End)]).expect("a flow");
    let created = flows.fixture.store.create_flow(&new).await.expect("create_flow");
    flows.name("c", created.ids[0]);
    let details = flows.fixture.details(flows.id("c")).await;
    assert_eq!(flow_context(&details.context), (None, false));
    let rows = flows.dependencies("c").await;
    let waiting = Some(TaskStatus::Waiting);
    assert_eq!(
        rows.iter().map(brief).collect::<Vec<_>>(),
        [(a, Success, None, waiting), (b, End, None, waiting)]
    );
    flows.starts(&["a", "b"]).await;
    flows.end("a", Succeeds).await;
    flows.end("b", Fails).await;
    flows.runs("c", Succeeds).await;
}

/// A flow with a missing task or an invalid one creates nothing, and changes nothing.
pub async fn invalid_flow_creates_nothing(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let known = flows.create_plain("known", work()).await;
    let missing = TaskId(9_000_000);
    let flow = Flow::new().name("x").add("a", work()).after([known, missing]).add("b", work());
    let message = flows.refused(flow).await;
    assert_eq!(message, format!("task {missing} does not exist, or was removed"));
    let far =
        Flow::new().add("a", work()).after(known).add("b", work().at(Timestamp::MAX)).after("a");
    let refused = flows.fixture.store.create_flow(&resolved(far)).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(flows.fixture.list(None).await.len(), 1);
    let dependents = flows.fixture.store.dependents(known, 10).await.expect("dependents");
    assert_eq!(dependents, []);
    assert!(!flows.engine.sees_suspended_tasks().await);
    flows.starts(&["known"]).await;
    flows.end("known", Succeeds).await;
    flows.fixture.store.delete(&[known]).await.expect("delete");
    let message = flows.refused(Flow::new().add("a", work()).after_end(known)).await;
    assert_eq!(message, format!("task {known} does not exist, or was removed"));
}

/// A blocked task waits, and no claim sees it. The end of what it depends on wakes engines.
pub async fn blocked_task_is_not_claimed(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])])).await;
    assert!(flows.engine.sees_suspended_tasks().await);
    let waiting =
        TaskListQuery { status: Some(TaskStatus::Waiting), limit: 10, ..TaskListQuery::default() };
    let listed: Vec<_> =
        flows.fixture.page(&waiting).await.iter().map(|row| (row.id, row.is_blocked)).collect();
    assert_eq!(listed, [(flows.id("b"), true), (flows.id("a"), false)]);
    flows.starts(&["a"]).await;
    flows.fixture.resume_missed().await;
    assert_eq!(flows.fixture.resume_parents(&[flows.id("a"), flows.id("b")]).await, 0);
    flows.starts(&[]).await;
    let listener = Listener::begin(db.open().await).await;
    flows.record("a", Succeeds).await;
    flows.starts(&[]).await;
    listener.forget();
    assert_eq!(flows.fixture.resume_parents(&[flows.id("a")]).await, 1);
    listener.hears(WakeUp::Work).await;
    let row = flows.row("b").await;
    assert_eq!((row.status, row.is_blocked, row.attempts), (TaskStatus::Waiting, false, 0));
    assert_eq!(flows.fixture.resume_parents(&[flows.id("a")]).await, 0, "once");
    flows.runs("b", Succeeds).await;
    assert!(!flows.engine.sees_suspended_tasks().await);
    let executions = flows.fixture.details(flows.id("b")).await.executions;
    assert_eq!(executions.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1]);
}

/// Each task of a chain starts after the one before it.
pub async fn chain_runs_in_order(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, chain(12)).await;
    for n in 0..12 {
        let due = flows.runs(&format!("t{n}"), Succeeds).await;
        assert_eq!(due, u64::from(n < 11), "{n}");
    }
    flows.starts(&[]).await;
}

/// A task starts after the last of those that it depends on, whatever the order of their ends.
pub async fn fan_in_starts_after_last(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let name = |n: usize| format!("{order:?}{n}");
        let flow = (0..3).fold(Flow::new(), |flow, n| flow.add(name(n), work()));
        let last = format!("{order:?}");
        flows.create(flow.add(&last, work()).after([name(0), name(1), name(2)])).await;
        flows.starts(&[&name(0), &name(1), &name(2)]).await;
        for (n, ended) in order.into_iter().enumerate() {
            flows.starts(&[]).await;
            assert_eq!(flows.end(&name(ended), Succeeds).await, u64::from(n == 2), "{order:?}");
        }
        flows.runs(&last, Succeeds).await;
    }
    flows.starts(&[]).await;
}

/// Thousands of tasks may depend on one, and one on thousands.
pub async fn wide_flow_runs(db: &dyn TestDatabase) {
    const WIDTH: usize = 1500;
    let mut flow = Flow::new().add("first", work());
    let names: Vec<String> = (0..WIDTH).map(|n| format!("m{n}")).collect();
    for name in &names {
        flow = flow.add(name, work()).after("first");
    }
    let mut flows = TestFlows::with(db, flow.add("last", work()).after(names.clone())).await;
    assert_eq!(flows.runs("first", Succeeds).await, WIDTH as u64);
    assert_eq!(flows.claims().await.len(), WIDTH);
    let mut order = names.clone();
    fastrand::shuffle(&mut order);
    let mut due = 0;
    for some in order.chunks(400) {
        let holds: Vec<TestAttempt> = some.iter().map(|name| flows.take(name)).collect();
        let ends: Vec<_> = holds.iter().map(|hold| Succeeds.of(hold)).collect();
        flows.engine.record(&ends).await;
        let ids: Vec<_> = holds.iter().map(TestAttempt::task_id).collect();
        assert_eq!(due, 0);
        due += flows.fixture.resume_parents(&ids).await;
    }
    assert_eq!(due, 1);
    flows.runs("last", Succeeds).await;
}

/// A task may depend on an existing task in any state, also on a blocked one.
pub async fn existing_tasks_are_depended_on(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("r", &[]), ("blocked", &["r"])])).await;
    for name in ["stopped", "failed", "running"] {
        flows.create_plain(name, work()).await;
    }
    flows.starts(&["failed", "r", "running", "stopped"]).await;
    flows.end("stopped", Succeeds).await;
    flows.end("failed", Fails).await;
    flows.create_plain("waiting", work()).await;
    for on in ["waiting", "running", "stopped", "failed", "blocked"] {
        let id = flows.id(on);
        let flow = Flow::new()
            .add(format!("{on}, success"), work())
            .after(id)
            .add(format!("{on}, end"), work())
            .after_end(id)
            .add(format!("{on}, failure"), work())
            .after_failure(id);
        flows.create(flow).await;
    }
    // The tasks that have ended already: a heartbeat is allowed to be needed.
    flows.fixture.resume_missed().await;
    flows
        .states(&[
            ("stopped, success", "waiting"),
            ("stopped, end", "waiting"),
            ("stopped, failure", "cancelled"),
            ("failed, success", "cancelled"),
            ("failed, end", "waiting"),
            ("failed, failure", "waiting"),
            ("waiting, success", "blocked"),
            ("running, failure", "blocked"),
            ("blocked, end", "blocked"),
        ])
        .await;
    flows
        .starts(&["failed, end", "failed, failure", "stopped, end", "stopped, success", "waiting"])
        .await;
    assert!(flow_context(&flows.hold("waiting").task.context).1, "engines know that it is awaited");
    assert_eq!(flows.end("waiting", Succeeds).await, 2);
    flows.starts(&["waiting, end", "waiting, success"]).await;
    flows.states(&[("waiting, failure", "cancelled")]).await;
    flows.end("r", Succeeds).await;
    flows.starts(&["blocked"]).await;
    assert!(flow_context(&flows.hold("blocked").task.context).1);
    assert_eq!(flows.end("blocked", Fails).await, 2);
    flows.starts(&["blocked, end", "blocked, failure"]).await;
    flows.states(&[("blocked, success", "cancelled"), ("running, end", "blocked")]).await;
}

/// The engine of a task that was claimed before others depended on it does not know that: a
/// heartbeat finds them, wherever it has arrived in its pages.
pub async fn claimed_dependency_is_noticed(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let id = flows.create_plain("a", work()).await;
    flows.starts(&["a"]).await;
    assert!(!flow_context(&flows.hold("a").task.context).1);
    let flow = Flow::new().add("b", work()).after(id).add("c", work()).after_failure(id);
    flows.create(flow).await;
    // Many others that wait.
    flows.create(Flow::new().add("x", work().after(HOUR)).add("y", work()).after("x")).await;
    flows.record("a", Succeeds).await;
    let beyond = flows.id("y");
    let next = flows.fixture.store.resume_missed(beyond, 5).await.expect("resume_missed");
    assert_eq!(next, None);
    flows.starts(&["b"]).await;
    flows.states(&[("c", "cancelled"), ("y", "blocked")]).await;
}

/// Later attempts of a task that was claimed before others depended on it know of them.
pub async fn later_attempts_know_dependents(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let (a, z) = (flows.create_plain("a", work()).await, flows.create_plain("z", work()).await);
    flows.starts(&["a", "z"]).await;
    flows.end("z", Fails).await;
    flows.create(Flow::new().add("b", work()).after(a).add("c", work()).after_end(z)).await;
    let hold = flows.take("a");
    flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    flows.retry(&["z"]).await;
    flows.fixture.resume_missed().await;
    flows.starts(&["a", "c", "z"]).await;
    for name in ["a", "z"] {
        assert!(flow_context(&flows.hold(name).task.context).1, "{name}");
    }
    flows.states(&[("b", "blocked")]).await;
    assert_eq!(flows.end("a", Succeeds).await, 1);
}

/// A task that failed and was retried before others depended on it has not ended.
pub async fn retried_task_is_open_for_new_dependents(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let (a, b) = (flows.create_plain("a", work()).await, flows.create_plain("b", work()).await);
    flows.starts(&["a", "b"]).await;
    flows.end("a", Fails).await;
    flows.end("b", Fails).await;
    flows.retry(&["a", "b"]).await;
    let hold = {
        flows.starts(&["a", "b"]).await;
        flows.take("a")
    };
    flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    // One waits again, the other one runs.
    let flow = Flow::new().add("c", work()).after([a, b]).add("d", work()).after_failure([a]);
    flows.create(flow.add("e", work()).after(b)).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("c", "blocked"), ("d", "blocked"), ("e", "blocked")]).await;
    flows.runs("a", Succeeds).await;
    flows.states(&[("c", "blocked"), ("d", "cancelled")]).await;
    flows.record("b", Succeeds).await;
    flows.fixture.resume_parents(&[b]).await;
    flows.starts(&["c", "e"]).await;
}

/// A unique task is depended on, and its replacement does not change that.
pub async fn replaced_unique_task_is_depended_on(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let unique =
        |action| work().unique(Unique::by("k").on_conflict(action)).expect("a key").after(HOUR);
    let id = flows.create_plain("a", unique(OnConflict::Keep)).await;
    let flow = Flow::new().add("b", work()).after(id);
    flows.create(flow).await;
    for action in [OnConflict::Replace, OnConflict::ReplaceParameters, OnConflict::ReplaceTime] {
        let again = unique(action).at(Timestamp::UNIX_EPOCH);
        assert_eq!(flows.fixture.create(again).await, id);
        let context = flows.fixture.details(id).await.context;
        assert!(flow_context(&context).1, "{action:?}: {context:?}");
    }
    assert_eq!(flows.runs("a", Succeeds).await, 1);
    flows.runs("b", Succeeds).await;
}

/// A unique task of a flow that exists already is an existing task, whatever its state.
pub async fn kept_unique_task_is_depended_on(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let scope = Scope::Within(HOUR);
    let unique = |key: &str| work().unique(Unique::by(key).scope(scope)).expect("a key");
    for name in ["waiting", "running", "stopped"] {
        flows.create_plain(name, unique(name)).await;
        if name != "waiting" {
            flows.create_plain(&format!("{name} holder"), work()).await;
        }
    }
    let names = flows.claims().await;
    assert_eq!(names.len(), 5);
    flows.end("stopped", Succeeds).await;
    // The waiting one is due again later.
    let hold = flows.take("waiting");
    flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    let mut flow = Flow::new();
    for name in ["waiting", "running", "stopped"] {
        let own = format!("{name}, again");
        flow = flow.add(&own, unique(name)).add(format!("after {name}"), work()).after(own);
    }
    let created = flows.create(flow).await;
    assert_eq!(created.ids.len(), 6);
    for name in ["waiting", "running", "stopped"] {
        assert_eq!(flows.id(&format!("{name}, again")), flows.id(name), "it is kept");
    }
    flows.fixture.resume_missed().await;
    flows.states(&[("after running", "blocked"), ("after waiting", "blocked")]).await;
    assert_eq!(flows.claims().await.len(), 2, "waiting, and after stopped");
    assert!(flow_context(&flows.hold("waiting").task.context).1);
    assert_eq!(flows.end("waiting", Succeeds).await, 1);
    flows.record("running", Succeeds).await;
    flows.fixture.resume_missed().await;
    flows.starts(&["after running", "after waiting"]).await;
}

/// A blocked task keeps its time, priority and queue.
pub async fn blocked_task_keeps_its_options(db: &dyn TestDatabase) {
    let now = Fixture::open(db).await.now().await;
    let later = now.saturating_add(Duration::from_secs(7200)).expect("a time");
    let flow = Flow::new()
        .add("a", work())
        .add("later", work().at(later))
        .after("a")
        .add("low", work().priority(9))
        .after("a")
        .add("high", work().priority(-9))
        .after("a")
        .add("mail", work().queue("mail").expect("a queue"))
        .after("a");
    let mut flows = TestFlows::with(db, flow).await;
    assert_eq!(flows.row("mail").await.queue, "mail");
    assert_eq!(flows.row("later").await.scheduled_at, later);
    flows.runs("a", Succeeds).await;
    let row = flows.row("later").await;
    assert_eq!((row.scheduled_at, row.is_blocked), (later, false));
    let holds = flows.engine.claim_all(10).await;
    let mut priorities: Vec<_> =
        holds.iter().map(|hold| (hold.task_id(), hold.task.priority)).collect();
    priorities.sort();
    assert_eq!(priorities, [(flows.id("low"), 9), (flows.id("high"), -9)]);
    let lanes = Lanes::new(vec!["mail".to_owned()], vec![WORK.to_owned()]);
    let mut mail = flows.engine.with_lanes(lanes);
    assert_eq!(mail.claim_one().await.task_id(), flows.id("mail"));
}

/// A task reads the results of those that it depends on, by their names.
pub async fn results_of_dependencies_are_read(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &[])]).add("c", work()).after("a").after_end("b");
    let mut flows = TestFlows::with(db, flow).await;
    flows.starts(&["a", "b"]).await;
    flows.end("a", Succeeds).await;
    flows.end("b", Fails).await;
    flows.starts(&["c"]).await;
    let rows = flows.dependencies("c").await;
    let names: Vec<_> = rows.iter().map(|row| (row.name.as_deref(), row.status)).collect();
    assert_eq!(
        names,
        [(Some("a"), Some(TaskStatus::Stopped)), (Some("b"), Some(TaskStatus::Failed))]
    );
    let asked: Vec<_> = rows.iter().map(|row| (row.depends_on, None)).collect();
    let outcomes = flows.fixture.store.child_outcomes(&asked).await.expect("child_outcomes");
    let outcome = |n: usize| outcomes[n].clone().expect("it has ended");
    assert_eq!(outcome(0).result, Some(json(&flows.id("a").to_string())));
    assert_eq!(outcome(1).error, Some(crate::fixture::sample_error()));
}
