//! Conditions of dependencies: whether a task starts or is cancelled after the ends of those
//! that it depends on.

use std::collections::BTreeSet;

use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{
    Dependency, DependencyCondition, DependencyState, DependentNext, Flow, decide_dependent,
};
use task_engine_core::step::SuspendOutcome;
use task_engine_core::task::{TaskId, TaskStatus};

use crate::TestDatabase;
use crate::durable::HOUR;
use crate::flow_fixture::TestEnd::{Fails, IsCancelled, Succeeds};
use crate::flow_fixture::{TestEnd, TestFlows, chain, flow_of, work};

use DependencyCondition::{End, Failure, Success};

/// Each condition after each end, also after the cancellation of a task that waits.
pub async fn each_condition_follows_each_end(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for (end, success, after_end, failure) in [
        (Some(Succeeds), "waiting", "waiting", "cancelled"),
        (Some(Fails), "cancelled", "waiting", "waiting"),
        (Some(IsCancelled), "cancelled", "waiting", "waiting"),
        (None, "cancelled", "waiting", "waiting"),
    ] {
        let name = |what: &str| format!("{what} {end:?}");
        let mut flow = Flow::new().add(name("a"), work());
        for condition in DependencyCondition::ALL {
            let task = flow.add(name(condition.as_str()), work());
            flow = task.depend(name("a"), condition);
        }
        flows.create(flow).await;
        let due = match end {
            Some(end) => flows.runs(&name("a"), end).await,
            None => {
                flows.cancel(&name("a")).await;
                2
            }
        };
        assert_eq!(due, 2, "{end:?}");
        flows
            .states(&[
                (&name("success"), success),
                (&name("end"), after_end),
                (&name("failure"), failure),
            ])
            .await;
        let (id, known) = (flows.id(&name("a")), name("a"));
        if success == "cancelled" {
            let error = flows.error(&name("success")).await;
            let how = if end == Some(Fails) { "failed" } else { "was cancelled" };
            assert_eq!(error.exception, TaskError::DEPENDENCY_FAILED);
            assert_eq!(error.message, format!("task {id} ({known}) {how}"));
        } else {
            let error = flows.error(&name("failure")).await;
            assert_eq!(error.exception, TaskError::NOT_NEEDED);
            assert_eq!(error.message, "all tasks that it depends on succeeded");
        }
        assert_eq!(flows.claims().await.len(), 2);
        for name in [name("success"), name("end"), name("failure")] {
            if flows.row(&name).await.status == TaskStatus::Running {
                flows.end(&name, Succeeds).await;
            }
        }
    }
    let mut cancelled = flows.fixture.list(Some(TaskStatus::Cancelled)).await;
    cancelled.retain(|row| row.error.as_ref().is_some_and(|e| e.exception != TaskError::CANCELLED));
    assert_eq!(cancelled.len(), 4);
    for row in cancelled {
        let details = flows.fixture.details(row.id).await;
        let [only] = &details.executions[..] else { panic!("{details:?}") };
        assert_eq!((only.attempt, only.started_at, &only.instance), (1, None, &None));
        assert_eq!(only.ends_task, Some(TaskStatus::Cancelled));
        assert_eq!(row.attempts, 0, "no attempt has begun");
        assert!(only.stopped_at.is_some());
    }
}

/// Two dependencies: all conditions and ends, in both orders. A task starts as soon as it
/// may, and is cancelled as soon as it cannot.
pub async fn two_dependencies_follow_both_ends(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let mut cases = Vec::new();
    for first in DependencyCondition::ALL {
        for second in DependencyCondition::ALL {
            for ends in TestEnd::ALL.into_iter().flat_map(|a| TestEnd::ALL.map(|b| [a, b])) {
                for order in [[0, 1], [1, 0]] {
                    cases.push(([first, second], ends, order));
                }
            }
        }
    }
    let name = |case: usize, what: usize| format!("{case}.{what}");
    let mut flow = Flow::new();
    for (n, (conditions, _, _)) in cases.iter().enumerate() {
        flow = flow.add(name(n, 0), work()).add(name(n, 1), work()).add(name(n, 2), work());
        flow = flow.depend(name(n, 0), conditions[0]).depend(name(n, 1), conditions[1]);
    }
    flows.create(flow).await;
    assert_eq!(flows.claims().await.len(), cases.len() * 2);
    let mut cancelled = BTreeSet::new();
    for step in 0..2 {
        // All first ends in one batch, then all second ones.
        let mut ended = Vec::new();
        let mut records = Vec::new();
        for (n, (_, ends, order)) in cases.iter().enumerate() {
            let which = order[step];
            let hold = flows.take(&name(n, which));
            records.push(ends[which].of(&hold));
            ended.push(hold.task_id());
        }
        assert_eq!(flows.engine.record(&records).await, []);
        flows.fixture.resume_parents(&ended).await;
        let mut wrong = Vec::new();
        for (n, (conditions, ends, order)) in cases.iter().enumerate() {
            let state = |which: usize| match step == 1 || order[0] == which {
                true => DependencyState::Ended(ends[which].status()),
                false => DependencyState::Open,
            };
            let dependencies = [0, 1].map(|which| Dependency {
                id: flows.id(&name(n, which)),
                name: Some(name(n, which)),
                condition: conditions[which],
                state: state(which),
            });
            let found = flows.state(&name(n, 2)).await;
            match decide_dependent(&dependencies) {
                DependentNext::Wait(_) if found == "blocked" => {}
                DependentNext::Start if found == "waiting" => {}
                DependentNext::Cancel(error) if found == "cancelled" => {
                    // The error names what had ended then.
                    if cancelled.insert(n) {
                        assert_eq!(flows.error(&name(n, 2)).await, error);
                    }
                }
                expected => wrong.push((n, conditions, ends, order, step, expected, found)),
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// A task that needs a success is cancelled at once, although others are open, whichever one
/// it watches. The end of the others changes nothing.
pub async fn task_is_cancelled_early(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for failing in ["a", "b", "c"] {
        let name = |what: &str| format!("{what}, {failing} fails");
        let open = flow_of(&[(&name("a"), &[]), (&name("b"), &[]), (&name("c"), &[])]);
        let all = [name("a"), name("b"), name("c")];
        let flow = open
            .add(name("d"), work())
            .after(all.clone())
            .add(name("e"), work())
            .after_end(name("d"))
            .add(name("f"), work())
            .after(name("d"))
            .add(name("g"), work())
            .after_failure(all.clone());
        flows.create(flow).await;
        flows.starts(&[&all[0], &all[1], &all[2]]).await;
        assert_eq!(flows.end(&name(failing), Fails).await, 1, "the end of d starts e");
        flows
            .states(&[
                (&name("d"), "cancelled"),
                (&name("e"), "waiting"),
                (&name("f"), "cancelled"),
                (&name("g"), "blocked"),
            ])
            .await;
        let error = flows.error(&name("f")).await;
        let (id, known) = (flows.id(&name("d")), name("d"));
        assert_eq!(error.message, format!("task {id} ({known}) was cancelled"));
        flows.runs(&name("e"), Succeeds).await;
        let others = all.iter().filter(|other| **other != name(failing));
        for (n, other) in others.enumerate() {
            assert_eq!(flows.end(other, Succeeds).await, n as u64, "g is due after the last");
        }
        flows.runs(&name("g"), Succeeds).await;
        let executions = flows.fixture.details(flows.id(&name("d"))).await.executions;
        assert_eq!(executions.len(), 1, "cancelled once");
    }
}

/// The failure of the first task of a chain cancels all others, and a task after the end of
/// the last one starts.
pub async fn cancellation_reaches_end_of_chain(db: &dyn TestDatabase) {
    const LENGTH: usize = 300;
    let last = format!("t{}", LENGTH - 1);
    let flow = chain(LENGTH).add("finally", work()).after_end(&*last);
    let flow =
        flow.add("cleanup", work()).after_failure("t7").add("never", work()).after("cleanup");
    let mut flows = TestFlows::with(db, flow).await;
    assert_eq!(flows.runs("t0", Fails).await, 2);
    for n in 1..LENGTH {
        let name = format!("t{n}");
        let error = flows.error(&name).await;
        let before = format!("t{}", n - 1);
        let how = if n == 1 { "failed" } else { "was cancelled" };
        assert_eq!(error.message, format!("task {} ({before}) {how}", flows.id(&before)));
    }
    flows.starts(&["cleanup", "finally"]).await;
    flows.end("cleanup", IsCancelled).await;
    flows.states(&[("never", "cancelled")]).await;
    flows.end("finally", Succeeds).await;
    flows.starts(&[]).await;
    assert!(!flows.engine.sees_suspended_tasks().await);
}

/// A diamond: one failure cancels what needs it, and the rest runs.
pub async fn other_branches_run(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("left", &["a"]), ("right", &["a"]), ("left 2", &["left"])])
        .add("join", work())
        .after(["left 2", "right"])
        .add("summary", work())
        .after_end(["left 2", "right", "join"])
        .add("alert", work())
        .after_failure(["left 2", "right"]);
    let mut flows = TestFlows::with(db, flow).await;
    flows.runs("a", Succeeds).await;
    flows.starts(&["left", "right"]).await;
    flows.end("left", Fails).await;
    flows.states(&[("left 2", "cancelled"), ("join", "cancelled"), ("summary", "blocked")]).await;
    assert_eq!(flows.end("right", Succeeds).await, 2);
    flows.starts(&["alert", "summary"]).await;
}

/// The cancellation of a blocked task is the end that those that depend on it wait for.
pub async fn cancelled_blocked_task_cancels_dependents(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["c"])])
        .add("x", work())
        .after_end("b")
        .add("y", work())
        .after_failure("b");
    let mut flows = TestFlows::with(db, flow).await;
    flows.cancel("b").await;
    assert_eq!(flows.error("b").await.exception, TaskError::CANCELLED);
    flows.states(&[("a", "waiting"), ("c", "cancelled"), ("d", "cancelled")]).await;
    flows.starts(&["a", "x", "y"]).await;
    assert_eq!(flows.end("a", Succeeds).await, 0, "nothing depends on it any more");
    flows.starts(&[]).await;
    flows.fixture.resume_missed().await;
    assert!(!flows.engine.sees_suspended_tasks().await);
}

/// A cancel request ends a running task, and its dependents follow.
pub async fn cancel_request_resolves_dependents(db: &dyn TestDatabase) {
    let mut flows =
        TestFlows::with(db, flow_of(&[("a", &[]), ("b", &["a"])]).add("c", work()).after_end("a"))
            .await;
    flows.starts(&["a"]).await;
    let id = flows.id("a");
    flows.fixture.store.cancel(&[id]).await.expect("cancel");
    flows.states(&[("a", "running"), ("b", "blocked"), ("c", "blocked")]).await;
    // The attempt fails with a retry; the request ends the task instead.
    let hold = flows.take("a");
    flows.engine.record(&[hold.fails_and_retries(HOUR)]).await;
    assert_eq!(flows.fixture.resume_parents(&[id]).await, 1);
    flows.states(&[("a", "cancelled"), ("b", "cancelled"), ("c", "waiting")]).await;
    // A suspended one, too.
    flows.create(flow_of(&[("d", &[]), ("e", &["d"])])).await;
    flows.starts(&["c", "d"]).await;
    let hold = flows.take("d");
    assert_eq!(
        flows.fixture.suspend(hold.waits_for(&["never"])).await,
        SuspendOutcome::Suspended(None)
    );
    flows.cancel("d").await;
    flows.states(&[("e", "cancelled")]).await;
}

/// All conditions in one task: it starts after the last end if the success has succeeded and
/// one of the failures has failed.
pub async fn conditions_apply_together(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for (ends, expected) in [
        ([Succeeds, Succeeds, Fails, Succeeds], "waiting"),
        ([Succeeds, Fails, Succeeds, IsCancelled], "waiting"),
        ([Succeeds, Fails, Succeeds, Succeeds], "cancelled"),
        ([Fails, Fails, Fails, Fails], "cancelled"),
    ] {
        let name = |what: &str| format!("{what}{ends:?}");
        let all = ["a", "b", "c", "d"].map(name);
        let mut flow = all.iter().fold(Flow::new(), |flow, name| flow.add(name, work()));
        for (n, condition) in [Success, End, Failure, Failure].into_iter().enumerate() {
            if n == 0 {
                flow = flow.add(name("x"), work());
            }
            flow = flow.depend(&*all[n], condition);
        }
        flows.create(flow).await;
        assert_eq!(flows.claims().await.len(), 4);
        for n in [2, 0, 3, 1] {
            if expected == "waiting" {
                assert_eq!(flows.state(&name("x")).await, "blocked", "{ends:?} before {n}");
            }
            flows.end(&all[n], ends[n]).await;
        }
        assert_eq!(flows.state(&name("x")).await, expected, "{ends:?}");
        let due = flows.claims().await;
        assert_eq!(due.len(), usize::from(expected == "waiting"));
        if expected == "waiting" {
            flows.end(&name("x"), Succeeds).await;
        }
    }
}

/// An engine dies after the record of an end: a heartbeat of another one starts, moves and
/// cancels what was left, also what watches another task.
pub async fn missed_ends_are_found(db: &dyn TestDatabase) {
    let flow = flow_of(&[("a", &[]), ("b", &[]), ("c", &[])])
        .add("after a", work())
        .after("a")
        .add("after all", work())
        .after(["a", "b", "c"])
        .add("finally", work())
        .after_end(["a", "b", "c"])
        .add("next", work())
        .after_end("after all");
    let mut flows = TestFlows::with(db, flow).await;
    flows.starts(&["a", "b", "c"]).await;
    flows.record("a", Succeeds).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("after all", "blocked"), ("finally", "blocked")]).await;
    flows.starts(&["after a"]).await;
    // They watch b now, which stays open.
    flows.record("c", Fails).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("after all", "cancelled"), ("finally", "blocked")]).await;
    flows.fixture.resume_missed().await;
    flows.starts(&["next"]).await;
    flows.record("b", Succeeds).await;
    flows.fixture.resume_missed().await;
    flows.starts(&["finally"]).await;
    assert!(!flows.engine.sees_suspended_tasks().await);
}

/// Heartbeats alone bring every flow to its end, page by page, if no engine ever tells about
/// an end.
pub async fn heartbeats_alone_run_flow(db: &dyn TestDatabase) {
    let flow = chain(8).add("x", work()).after_failure("t3").add("y", work()).after(["x", "t2"]);
    let mut flows = TestFlows::with(db, flow).await;
    let mut started = Vec::new();
    for _ in 0..40 {
        let names = flows.claims().await;
        for name in &names {
            let end = if name == "t3" { Fails } else { Succeeds };
            flows.record(name, end).await;
        }
        started.extend(names);
        let mut after = TaskId(0);
        while let Some(last) =
            flows.fixture.store.resume_missed(after, 3).await.expect("resume_missed")
        {
            after = last;
        }
    }
    assert_eq!(started, ["t0", "t1", "t2", "t3", "x", "y"]);
    flows.states(&[("t4", "cancelled"), ("t7", "cancelled"), ("y", "stopped")]).await;
    assert!(!flows.engine.sees_suspended_tasks().await);
}
