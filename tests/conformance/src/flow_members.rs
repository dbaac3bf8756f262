//! Batches: tasks that join a running one, and tasks that run after all of them.

use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::dependency::{AddMembersOutcome, DependencyCondition, Flow, NewMembers};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::{Scope, Unique};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, new_instance};
use crate::flow_fixture::TestEnd::{Fails, Succeeds};
use crate::flow_fixture::{TestFlows, brief, flow_context, flow_of, work};
use crate::waiting::{race, run_concurrently};

use DependencyCondition::{End, Failure, Success};

/// A task, and a callback for each condition.
fn batch() -> Flow {
    Flow::new()
        .add("seed", work())
        .add("on success", work())
        .after("seed")
        .add("on end", work())
        .after_end("seed")
        .add("on failure", work())
        .after_failure("seed")
}

/// Members that join the task of this attempt.
fn members(hold: &TestAttempt, tasks: Vec<NewTask>) -> NewMembers {
    NewMembers::new(hold.id(), hold.claim_id, tasks).expect("members")
}

async fn add(flows: &mut TestFlows, to: &str, names: &[&str]) -> Vec<TaskId> {
    let new = members(flows.hold(to), vec![work(); names.len()]);
    let added = flows.fixture.store.add_members(&new).await.expect("add_members");
    let AddMembersOutcome::Added(ids) = added else { panic!("{added:?}") };
    assert_eq!(ids.len(), names.len(), "one id a member");
    for (name, id) in names.iter().zip(&ids) {
        flows.name(name, *id);
    }
    ids
}

/// Members join a running task: its dependents wait for them, too, under the same conditions.
pub async fn members_join_running_task(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch()).await;
    flows.starts(&["seed"]).await;
    let ids = add(&mut flows, "seed", &["m1", "m2"]).await;
    assert!(ids.is_sorted() && ids[0] > flows.id("on failure"), "{ids:?}");
    let seed = flows.id("seed");
    for (callback, condition) in [("on success", Success), ("on end", End), ("on failure", Failure)]
    {
        let rows = flows.dependencies(callback).await;
        let waiting = Some(TaskStatus::Waiting);
        assert_eq!(
            rows.iter().map(brief).collect::<Vec<_>>(),
            [
                (seed, condition, Some("seed"), Some(TaskStatus::Running)),
                (ids[0], condition, None, waiting),
                (ids[1], condition, None, waiting),
            ]
        );
    }
    flows.is_consistent().await;
    assert_eq!(flows.end("seed", Succeeds).await, 0);
    flows.starts(&["m1", "m2"]).await;
    assert!(flow_context(&flows.hold("m1").task.context).1);
    flows.end("m2", Succeeds).await;
    flows
        .states(&[("on success", "blocked"), ("on end", "blocked"), ("on failure", "blocked")])
        .await;
    assert_eq!(flows.end("m1", Succeeds).await, 2);
    flows.states(&[("on failure", "cancelled")]).await;
    flows.starts(&["on end", "on success"]).await;
}

/// A member that fails decides for all callbacks.
pub async fn failed_member_decides_callbacks(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch()).await;
    flows.starts(&["seed"]).await;
    add(&mut flows, "seed", &["m1", "m2", "m3"]).await;
    flows.starts(&["m1", "m2", "m3"]).await;
    flows.end("m2", Fails).await;
    flows
        .states(&[("on success", "cancelled"), ("on end", "blocked"), ("on failure", "blocked")])
        .await;
    // The batch still grows: the callbacks that can run wait for all.
    add(&mut flows, "seed", &["m4"]).await;
    for name in ["m1", "m3", "seed"] {
        assert_eq!(flows.end(name, Succeeds).await, 0);
    }
    flows.starts(&["m4"]).await;
    assert_eq!(flows.end("m4", Fails).await, 2);
    flows.starts(&["on end", "on failure"]).await;
    // The retry of the members restores the callback, which waits for all of them.
    flows.retry(&["m2"]).await;
    flows.states(&[("on success", "cancelled")]).await;
    flows.retry(&["m4"]).await;
    flows.states(&[("on success", "blocked")]).await;
    flows.starts(&["m2", "m4"]).await;
    flows.end("m2", Succeeds).await;
    flows.states(&[("on success", "blocked")]).await;
    flows.end("m4", Succeeds).await;
    flows.runs("on success", Succeeds).await;
}

/// A callback that was cancelled and is restored waits for the members that joined meanwhile.
pub async fn restored_callback_waits_for_new_members(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch()).await;
    flows.starts(&["seed"]).await;
    add(&mut flows, "seed", &["m1"]).await;
    flows.runs("m1", Fails).await;
    flows.states(&[("on success", "cancelled")]).await;
    add(&mut flows, "seed", &["m2"]).await;
    flows.end("seed", Succeeds).await;
    flows.retry(&["m1"]).await;
    flows.states(&[("on success", "blocked")]).await;
    flows.starts(&["m1", "m2"]).await;
    flows.end("m1", Succeeds).await;
    flows.states(&[("on success", "blocked"), ("on end", "blocked")]).await;
    flows.end("m2", Succeeds).await;
    flows.starts(&["on end", "on success"]).await;
}

/// Members may add members of their own.
pub async fn members_add_members(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, flow_of(&[("seed", &[]), ("done", &["seed"])])).await;
    let mut parent = "seed".to_owned();
    for level in 0..5 {
        flows.starts(&[&parent]).await;
        let child = format!("m{level}");
        add(&mut flows, &parent, &[&child]).await;
        assert_eq!(flows.end(&parent, Succeeds).await, 0);
        flows.states(&[("done", "blocked")]).await;
        parent = child;
    }
    assert_eq!(flows.runs(&parent, Succeeds).await, 1);
    flows.runs("done", Succeeds).await;
}

/// Without a dependent that can still wait, nothing is created.
pub async fn members_need_dependents(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    flows.create_plain("alone", work()).await;
    flows.create(flow_of(&[("a", &[]), ("b", &["a"])])).await;
    flows.starts(&["a", "alone"]).await;
    let before = flows.fixture.list(None).await.len();
    let no_dependents = async |flows: &TestFlows, name: &str| {
        let new = members(flows.hold(name), vec![work(); 2]);
        let outcome = flows.fixture.store.add_members(&new).await.expect("add_members");
        assert_eq!(outcome, AddMembersOutcome::NoDependents, "{name}");
    };
    no_dependents(&flows, "alone").await;
    // A durable parent is no dependent.
    let call = flows.hold("alone").call("work", 1, vec![crate::durable::child()]);
    let children = flows.fixture.call(&call).await;
    flows.name("child", children[0]);
    flows.starts(&["child"]).await;
    no_dependents(&flows, "child").await;
    flows.cancel("b").await;
    no_dependents(&flows, "a").await;
    assert_eq!(flows.fixture.list(None).await.len(), before + 1, "the child");
}

/// An attempt that is over adds nothing: it has ended, or its claim was reclaimed.
pub async fn ended_attempt_adds_no_members(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch()).await;
    let mut lost = flows.fixture.register(new_instance("lost")).await;
    let stale = lost.claim_one().await;
    assert!(flows.fixture.declare_lost(lost.id).await);
    flows.fixture.recover(lost.id).await;
    let refused = async |flows: &TestFlows, hold: &TestAttempt| {
        let new = members(hold, vec![work()]);
        let outcome = flows.fixture.store.add_members(&new).await.expect("add_members");
        assert_eq!(outcome, AddMembersOutcome::AttemptOver);
    };
    refused(&flows, &stale).await;
    flows.retry(&["seed"]).await;
    flows.starts(&["seed"]).await;
    refused(&flows, &stale).await;
    let hold = flows.take("seed");
    flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    refused(&flows, &hold).await;
    assert_eq!(flows.fixture.list(None).await.len(), 4);
    flows.starts(&["seed"]).await;
    add(&mut flows, "seed", &["m1"]).await;
    flows.end("seed", Succeeds).await;
    flows.states(&[("on end", "blocked")]).await;
}

/// Members are created all or none.
pub async fn invalid_members_are_refused(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch()).await;
    flows.starts(&["seed"]).await;
    let new = members(flows.hold("seed"), vec![work(), work().at(Timestamp::MAX)]);
    let refused = flows.fixture.store.add_members(&new).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(flows.fixture.list(None).await.len(), 4);
    assert_eq!(flows.dependencies("on success").await.len(), 1);
    let none = members(flows.hold("seed"), Vec::new());
    let added = flows.fixture.store.add_members(&none).await.expect("add_members");
    assert_eq!(added, AddMembersOutcome::Added(Vec::new()));
    flows.end("seed", Succeeds).await;
    flows.starts(&["on end", "on success"]).await;
}

/// A unique member that exists already is refused, or the callbacks wait for it, wherever it
/// is.
pub async fn unique_member_is_awaited(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let scope = Scope::Within(Duration::from_secs(3600));
    let unique = |key: &str| work().unique(Unique::by(key).scope(scope)).expect("a key");
    for name in ["running", "waiting", "stopped"] {
        flows.create_plain(name, unique(name)).await;
    }
    flows.create(batch()).await;
    assert_eq!(flows.claims().await.len(), 4);
    let hold = flows.take("waiting");
    flows.engine.record(&[hold.fails_and_retries(Duration::ZERO)]).await;
    flows.end("stopped", Succeeds).await;
    let all = ["running", "waiting", "stopped", "new"].map(unique);
    let added = flows.fixture.store.add_members(&members(flows.hold("seed"), all.to_vec())).await;
    let ids = match added {
        Err(StoreError::Refused(_)) => return,
        Ok(AddMembersOutcome::Added(ids)) => ids,
        other => panic!("{other:?}"),
    };
    assert_eq!(ids[..3], [flows.id("running"), flows.id("waiting"), flows.id("stopped")]);
    flows.name("new", ids[3]);
    flows.end("seed", Succeeds).await;
    flows.starts(&["new", "waiting"]).await;
    flows.end("new", Succeeds).await;
    flows.end("waiting", Succeeds).await;
    flows.fixture.resume_missed().await;
    flows.states(&[("on success", "blocked"), ("on end", "blocked")]).await;
    // Its engine does not know that others wait for it.
    flows.record("running", Succeeds).await;
    flows.fixture.resume_missed().await;
    flows.starts(&["on end", "on success"]).await;
}

/// A batch may have thousands of members, added in several calls, and its progress is known.
pub async fn large_batch_runs(db: &dyn TestDatabase) {
    let mut flows = TestFlows::with(db, batch().name("import")).await;
    flows.starts(&["seed"]).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let new = members(flows.hold("seed"), vec![work(); 500]);
        let added = flows.fixture.store.add_members(&new).await.expect("add_members");
        let AddMembersOutcome::Added(some) = added else { panic!("{added:?}") };
        ids.extend(some);
    }
    flows.end("seed", Succeeds).await;
    let rows = flows.fixture.store.dependencies(&[flows.id("on end")], 100_000).await;
    assert_eq!(rows.expect("dependencies").len(), 2001);
    let holds = flows.engine.claim_all(700).await;
    assert_eq!(holds.len(), ids.len());
    let mut due = 0;
    for some in holds.chunks(700) {
        let ends: Vec<_> = some.iter().map(|hold| Succeeds.of(hold)).collect();
        flows.engine.record(&ends).await;
        assert_eq!(due, 0);
        due += flows
            .fixture
            .resume_parents(&some.iter().map(TestAttempt::task_id).collect::<Vec<_>>())
            .await;
    }
    assert_eq!(due, 2);
    flows.starts(&["on end", "on success"]).await;
}

/// Members join while other tasks that their callback waits for end: it starts after all.
pub async fn members_join_during_ends(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..15 {
        let name = |what: &str| format!("{what} {round}");
        let flow = flow_of(&[(&name("a"), &[]), (&name("seed"), &[]), (&name("b"), &[])])
            .add(name("done"), work())
            .after_end([name("a"), name("seed"), name("b")]);
        flows.create(flow).await;
        assert_eq!(flows.claims().await.len(), 3);
        let new = members(flows.hold(&name("seed")), vec![work(); 3]);
        let ends = [name("a"), name("b")].map(|name| {
            let hold = flows.take(&name);
            (hold.task_id(), Fails.of(&hold))
        });
        let seed = flows.take(&name("seed"));
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let (added, ()) = race(
            async move { one.store.add_members(&new).await.expect("add_members") },
            async move {
                for (id, end) in ends {
                    two.store.record(&[end], &[]).await.expect("record");
                    two.resume_parents(&[id]).await;
                }
            },
        )
        .await;
        let AddMembersOutcome::Added(ids) = added else { panic!("{round}: {added:?}") };
        flows.engine.record(&[Succeeds.of(&seed)]).await;
        assert_eq!(flows.fixture.resume_parents(&[seed.task_id()]).await, 0, "{round}");
        let holds = flows.engine.claim(3).await;
        let mut looks = Vec::new();
        for hold in holds {
            let handle = Fixture::open(db).await;
            looks.push(async move {
                let id = hold.task_id();
                handle.store.record(&[Succeeds.of(&hold)], &[]).await.expect("record");
                handle.resume_parents(&[id]).await
            });
        }
        let due: u64 = run_concurrently(looks).await.into_iter().sum();
        assert_eq!(due, 1, "{round}: {ids:?}");
        flows.runs(&name("done"), Succeeds).await;
    }
}

/// Members join at the moment when the engine of their attempt is declared lost: either they
/// were added and the callback waits for them, or there is none.
pub async fn members_and_recovery_agree(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..10 {
        let name = |what: &str| format!("{what} {round}");
        flows
            .create(
                flow_of(&[(&name("seed"), &[])]).add(name("done"), work()).after_end(name("seed")),
            )
            .await;
        let rules = [(crate::fixture::WORK, task_engine_core::retry::RetryRule::never())];
        let instance = crate::fixture::with_classes(new_instance(&name("lost")), &rules);
        let mut lost = flows.fixture.register(instance).await;
        let hold = lost.claim_one().await;
        assert!(flows.fixture.declare_lost(lost.id).await);
        let new = members(&hold, vec![work(); 2]);
        let (one, two, lost) = (Fixture::open(db).await, Fixture::open(db).await, lost.id);
        let (added, taken) = race(
            async move { one.store.add_members(&new).await.expect("add_members") },
            async move { two.recover(lost).await },
        )
        .await;
        assert_eq!(taken.len(), 1, "{round}");
        match added {
            AddMembersOutcome::Added(ids) => {
                flows.name(&name("m0"), ids[0]);
                flows.name(&name("m1"), ids[1]);
                flows.fixture.resume_missed().await;
                flows.starts(&[&name("m0"), &name("m1")]).await;
                flows.end(&name("m0"), Succeeds).await;
                flows.end(&name("m1"), Succeeds).await;
            }
            AddMembersOutcome::AttemptOver => {}
            AddMembersOutcome::NoDependents => {
                // The end of the attempt was first, and has started the callback.
            }
        }
        flows.fixture.resume_missed().await;
        flows.runs(&name("done"), Succeeds).await;
    }
}
