//! Races of flows: whatever happens at the same time, every task starts or is cancelled once,
//! by the final ends of those that it depends on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{
    Dependency, DependencyCondition, DependencyState, DependentNext, Flow, decide_dependent,
};
use task_engine_core::step::is_awaited;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::RetryReport;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt};
use crate::flow_fixture::TestEnd::{Fails, Succeeds};
use crate::flow_fixture::{TestEnd, TestFlows, flow_of, resolved, work};
use crate::waiting::{TIMEOUT, race, run_concurrently};

const ROUNDS: usize = 20;

/// Several ends at the same time, told about by several engines: the task is decided about
/// once, without a heartbeat.
pub async fn concurrent_ends_are_resolved(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what} {round}");
        let all = ["a", "b", "c", "d"].map(name);
        let mut flow = all.iter().fold(Flow::new(), |flow, name| flow.add(name, work()));
        flow = flow.add(name("success"), work()).after(all.clone());
        flow = flow.add(name("end"), work()).after_end(all.clone());
        flow = flow.add(name("failure"), work()).after_failure(all.clone());
        flow = flow.add(name("last"), work()).after(name("end")).after_end(name("success"));
        flows.create(flow).await;
        assert_eq!(flows.claims().await.len(), 4);
        let fails = round % 2 == 1;
        let mut sides = Vec::new();
        for (n, name) in all.iter().enumerate() {
            let end = if fails && n == round % 4 { Fails } else { Succeeds };
            sides.push((Fixture::open(db).await, end, flows.take(name)));
        }
        let looks = sides.into_iter().map(|(handle, end, hold)| async move {
            let record = end.of(&hold);
            handle.store.record(&[record], &[]).await.expect("record");
            handle.resume_parents(&[hold.task_id()]).await
        });
        let due: u64 = run_concurrently(looks).await.into_iter().sum();
        assert_eq!(due, 2, "{round}");
        let (success, failure) =
            if fails { ("cancelled", "waiting") } else { ("waiting", "cancelled") };
        flows
            .states(&[
                (&name("success"), success),
                (&name("end"), "waiting"),
                (&name("failure"), failure),
                (&name("last"), "blocked"),
            ])
            .await;
        for name in flows.claims().await {
            flows.end(&name, Succeeds).await;
        }
        flows.runs(&name("last"), Succeeds).await;
    }
}

/// A failure at the moment when the watch moves to another task, which stays open: the
/// dependent task is cancelled without a heartbeat.
pub async fn early_cancellation_is_not_missed(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what} {round}");
        let flow = flow_of(&[(&name("a"), &[]), (&name("b"), &[]), (&name("c"), &[])])
            .add(name("d"), work())
            .after([name("a"), name("b"), name("c")])
            .add(name("e"), work())
            .after_failure(name("d"));
        flows.create(flow).await;
        assert_eq!(flows.claims().await.len(), 3);
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let (a, c) = (flows.take(&name("a")), flows.take(&name("c")));
        race(end_and_tell(one, a, Succeeds), end_and_tell(two, c, Fails)).await;
        flows.states(&[(&name("d"), "cancelled"), (&name("e"), "waiting")]).await;
        flows.runs(&name("e"), Succeeds).await;
        flows.end(&name("b"), Succeeds).await;
    }
}

async fn end_and_tell(handle: Fixture, hold: TestAttempt, end: TestEnd) -> u64 {
    handle.store.record(&[end.of(&hold)], &[]).await.expect("record");
    handle.resume_parents(&[hold.task_id()]).await
}

/// A flow that depends on a task is created while that task is claimed and ends: it never
/// starts before that end, and always after it.
pub async fn creation_and_end_agree(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..ROUNDS {
        let parent = flows.create_plain(&format!("a {round}"), work()).await;
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let name = format!("b {round}");
        let flow = resolved(Flow::new().add(name.clone(), work()).after(parent));
        let mut other = two.engine(&format!("e {round}")).await;
        let (created, ended) = race(
            async move { one.store.create_flow(&flow).await.expect("create_flow") },
            async move {
                let Some(hold) = other.claim_all(1).await.pop() else { return false };
                two.store.record(&[Succeeds.of(&hold)], &[]).await.expect("record");
                // As an engine: only the context says that others wait.
                if is_awaited(&hold.task.context) {
                    two.resume_parents(&[hold.task_id()]).await;
                }
                true
            },
        )
        .await;
        flows.name(&name, created.ids[0]);
        if !ended {
            flows.states(&[(&name, "blocked")]).await;
            flows.runs(&format!("a {round}"), Succeeds).await;
        }
        flows.fixture.resume_missed().await;
        flows.runs(&name, Succeeds).await;
    }
}

/// A task is retried while its failure is being resolved: what depends on it is restored, or
/// was never cancelled.
pub async fn retry_during_cancellation_restores(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..ROUNDS {
        let name = |n: usize| format!("{n} {round}");
        let mut flow = Flow::new().add(name(0), work());
        for n in 1..5 {
            flow = flow.add(name(n), work()).after(name(n - 1));
        }
        flows.create(flow).await;
        flows.starts(&[&name(0)]).await;
        let hold = flows.record(&name(0), Fails).await;
        let id = hold.task_id();
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let (_, reports) = race(async move { one.resume_parents(&[id]).await }, async move {
            two.store.retry(&[id]).await.expect("retry")
        })
        .await;
        assert_eq!(reports, [RetryReport::Waiting], "{round}");
        flows.fixture.resume_missed().await;
        for n in 1..5 {
            assert_eq!(flows.state(&name(n)).await, "blocked", "{round}: {n}");
        }
        for n in 0..5 {
            flows.runs(&name(n), Succeeds).await;
        }
    }
}

/// A task is retried while the last other one ends: the dependent task starts before or after
/// the retry has ended, once.
pub async fn retry_and_end_agree(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what} {round}");
        let flow = flow_of(&[(&name("a"), &[]), (&name("b"), &[])])
            .add(name("end"), work())
            .after_end([name("a"), name("b")])
            .add(name("success"), work())
            .after([name("a"), name("b")]);
        flows.create(flow).await;
        flows.starts(&[&name("a"), &name("b")]).await;
        flows.end(&name("a"), Fails).await;
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let (b, id) = (flows.take(&name("b")), flows.id(&name("a")));
        let (due, _) = race(end_and_tell(one, b, Succeeds), async move {
            two.store.retry(&[id]).await.expect("retry")
        })
        .await;
        flows.states(&[(&name("success"), "blocked")]).await;
        let expected = if due == 1 { "waiting" } else { "blocked" };
        assert_eq!(flows.state(&name("end")).await, expected, "{round}");
        let mut started = flows.claims().await;
        assert!(started.contains(&name("a")), "{round}: {started:?}");
        flows.end(&name("a"), Succeeds).await;
        started.extend(flows.claims().await);
        started.sort();
        assert_eq!(started, [name("a"), name("end"), name("success")], "{round}");
        flows.end(&name("end"), Succeeds).await;
        flows.end(&name("success"), Succeeds).await;
    }
}

/// Retention and deletes do not remove what a new task depends on: it is refused, or it runs.
pub async fn removal_and_creation_agree(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let mut created_ones = 0;
    for round in 0..ROUNDS * 2 {
        let parent = flows.create_plain(&format!("a {round}"), work()).await;
        flows.runs(&format!("a {round}"), Succeeds).await;
        let (one, two) = (Fixture::open(db).await, Fixture::open(db).await);
        let name = format!("b {round}");
        let flow = resolved(Flow::new().add(name.clone(), work()).after(parent));
        let (created, ()) = race(async move { one.store.create_flow(&flow).await }, async move {
            if round % 2 == 0 {
                let status = TaskStatus::Stopped;
                two.store.prune(status, Duration::ZERO, 100).await.expect("prune");
            } else {
                two.store.delete(&[parent]).await.expect("delete");
            }
        })
        .await;
        match created {
            Err(StoreError::Refused(_)) => continue,
            created => flows.name(&name, created.expect("create_flow").ids[0]),
        }
        created_ones += 1;
        flows.fixture.resume_missed().await;
        flows.runs(&name, Succeeds).await;
        flows.fixture.store.delete(&[flows.id(&name)]).await.expect("delete");
    }
    assert!(created_ones <= ROUNDS * 2);
}

/// Flows that depend on the same tasks are created at the same time, in different orders.
pub async fn concurrent_creators_share_dependencies(db: &dyn TestDatabase) {
    let mut flows = TestFlows::open(db).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(flows.create_plain(&format!("p{n}"), work()).await);
    }
    let mut creators = Vec::new();
    for n in 0..6 {
        let handle = Fixture::open(db).await;
        let mut on = ids.clone();
        on.rotate_left(n * 3);
        if n % 2 == 0 {
            on.reverse();
        }
        creators.push(async move {
            let mut created = Vec::new();
            for m in 0..4 {
                let flow = Flow::new().add(format!("c{n}.{m}"), work()).after_end(on.clone());
                created.push(handle.store.create_flow(&resolved(flow)).await.expect("create_flow"));
            }
            created
        });
    }
    let created = run_concurrently(creators).await;
    assert_eq!(created.iter().flatten().count(), 24);
    let names = flows.claims().await;
    assert_eq!(names.len(), 20);
    for name in names {
        flows.end(&name, Succeeds).await;
    }
    assert_eq!(flows.claims().await.len(), 24);
}

/// A random flow, and how each of its tasks ends if it starts.
struct RandomFlow {
    conditions: Vec<Vec<(usize, DependencyCondition)>>,
    ends: Vec<TestEnd>,
}

impl RandomFlow {
    fn new(rng: &mut fastrand::Rng, tasks: usize) -> Self {
        let conditions = (0..tasks).map(|n| {
            let mut on: Vec<usize> = (n.saturating_sub(12)..n).collect();
            rng.shuffle(&mut on);
            on.truncate(if n < 4 { 0 } else { rng.usize(0..5) });
            let mut condition = || match rng.u8(0..10) {
                0..5 => DependencyCondition::Success,
                5..8 => DependencyCondition::End,
                _ => DependencyCondition::Failure,
            };
            on.into_iter().map(|on| (on, condition())).collect()
        });
        let conditions = conditions.collect();
        let ends = (0..tasks).map(|_| match rng.u8(0..10) {
            0..7 => Succeeds,
            7..9 => Fails,
            _ => TestEnd::IsCancelled,
        });
        Self { conditions, ends: ends.collect() }
    }

    fn flow(&self) -> Flow {
        let mut flow = Flow::new();
        for (n, conditions) in self.conditions.iter().enumerate() {
            flow = flow.add(n.to_string(), work());
            for (on, condition) in conditions {
                flow = flow.depend(on.to_string(), *condition);
            }
        }
        flow
    }

    /// The decision about a task after the ends of all others.
    fn decide(&self, n: usize, status: impl Fn(usize) -> TaskStatus) -> DependentNext {
        let dependency = |(on, condition): &(usize, DependencyCondition)| Dependency {
            id: TaskId(*on as i64),
            name: None,
            condition: *condition,
            state: DependencyState::Ended(status(*on)),
        };
        let dependencies: Vec<_> = self.conditions[n].iter().map(dependency).collect();
        decide_dependent(&dependencies)
    }

    /// The status of each task in the end, computed from those before it.
    fn expected(&self) -> Vec<TaskStatus> {
        let mut statuses: Vec<TaskStatus> = Vec::new();
        for n in 0..self.ends.len() {
            let status = match self.decide(n, |on| statuses[on]) {
                DependentNext::Start => self.ends[n].status(),
                DependentNext::Cancel(_) => TaskStatus::Cancelled,
                DependentNext::Wait(_) => unreachable!("all have ended"),
            };
            statuses.push(status);
        }
        statuses
    }
}

/// Engines run a random flow together. Some of them die before they tell about an end, some
/// ends come with a retry, and operators edit and repeat what changes nothing.
async fn run_random(db: &dyn TestDatabase, flow: &RandomFlow, ids: &[TaskId], seed: u64) {
    let done = Arc::new(AtomicBool::new(false));
    let ends: Arc<BTreeMap<TaskId, TestEnd>> =
        Arc::new(ids.iter().copied().zip(flow.ends.iter().copied()).collect());
    let mut engines = Vec::new();
    for n in 0..3_u64 {
        let fixture = Fixture::open(db).await;
        let mut engine = fixture.engine(&format!("{seed} {n} {}", fastrand::u32(..))).await;
        let (done, ends) = (done.clone(), ends.clone());
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(n));
        engines.push(async move {
            let deadline = Instant::now() + TIMEOUT;
            while !done.load(Ordering::Relaxed) {
                assert!(Instant::now() < deadline, "the flow does not end");
                engine.wake();
                let (holds, _) = engine.claim_up_to(rng.usize(1..6)).await;
                let mut ended = Vec::new();
                let mut records = Vec::new();
                for hold in &holds {
                    let rows = fixture.store.dependencies(&[hold.task_id()], 100).await;
                    for row in rows.expect("dependencies") {
                        let has_ended = row.status.is_none_or(|status| {
                            !matches!(status, TaskStatus::Waiting | TaskStatus::Running)
                        });
                        assert!(has_ended, "{} starts early: {row:?}", hold.id());
                    }
                    let retries = hold.id().attempt < 3 && rng.u8(0..5) == 0;
                    records.push(match retries {
                        true => hold.fails_and_retries(Duration::ZERO),
                        false => ends[&hold.task_id()].of(hold),
                    });
                    if is_awaited(&hold.task.context) && rng.u8(0..6) > 0 {
                        ended.push(hold.task_id());
                    }
                }
                assert_eq!(engine.record(&records).await, []);
                if !ended.is_empty() {
                    fixture.resume_parents(&ended).await;
                }
                if holds.is_empty() || rng.u8(0..10) == 0 {
                    fixture.resume_missed().await;
                    let open = fixture.store.inventory().await.expect("inventory");
                    if open.waiting + open.running == 0 {
                        done.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    run_concurrently(engines).await;
}

/// After the end of a random flow, each task has the status that follows from those that it
/// depends on. After a repair of all that failed, too.
pub async fn random_flows_follow_their_policy(db: &dyn TestDatabase) {
    for round in 0..6 {
        let seed = if round < 4 { round } else { fastrand::u64(..) };
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut random = RandomFlow::new(&mut rng, 30);
        let fixture = Fixture::open(db).await;
        let new = resolved(random.flow());
        let created = fixture.store.create_flow(&new).await.expect("create_flow");
        // By their numbers: the flow puts them in another order.
        let mut ids = vec![TaskId(0); created.ids.len()];
        for (task, id) in new.tasks.iter().zip(&created.ids) {
            ids[task.name.parse::<usize>().expect("a number")] = *id;
        }
        run_random(db, &random, &ids, seed).await;
        let expected = random.expected();
        for (n, id) in ids.iter().enumerate() {
            let details = fixture.details(*id).await;
            assert_eq!(details.row.status, expected[n], "seed {seed}: {n}: {details:#?}");
            let ended = details.executions.iter().filter(|one| one.ends_task.is_some()).count();
            assert_eq!(ended, 1, "seed {seed}: {n}: {details:#?}");
        }
        assert_eq!(fixture.store.verify().await.expect("verify"), [], "seed {seed}");

        // All that failed or was cancelled by itself is retried, and succeeds now.
        let mut failed: Vec<TaskId> = Vec::new();
        for (n, id) in ids.iter().enumerate() {
            let error = fixture.details(*id).await.row.error;
            let by_policy = error.is_some_and(|error| {
                [TaskError::DEPENDENCY_FAILED, TaskError::NOT_NEEDED]
                    .contains(&error.exception.as_str())
            });
            if expected[n] != TaskStatus::Stopped && !by_policy {
                failed.push(*id);
            }
        }
        random.ends = vec![Succeeds; ids.len()];
        // The oldest first: a task that is retried before what it depends on starts before it.
        for some in failed.chunks(3) {
            let reports = fixture.store.retry(some).await.expect("retry");
            assert_eq!(reports, vec![RetryReport::Waiting; some.len()], "seed {seed}");
        }
        assert_eq!(fixture.store.verify().await.expect("verify"), [], "seed {seed}");
        run_random(db, &random, &ids, seed).await;
        let mut statuses = Vec::new();
        for id in &ids {
            statuses.push(fixture.details(*id).await.row.status);
        }
        for (n, id) in ids.iter().enumerate() {
            let details = fixture.details(*id).await;
            let error = details.row.error.as_ref().map(|error| error.exception.as_str());
            // One that started before the repair stays: it may have run after a failure.
            let started = details.executions.iter().any(|one| one.started_at.is_some());
            match random.decide(n, |on| statuses[on]) {
                DependentNext::Start => {
                    assert!(started, "seed {seed}: {n} was never started: {details:#?}");
                    assert_eq!(statuses[n], TaskStatus::Stopped, "seed {seed}: {n}");
                }
                DependentNext::Cancel(_) if started => {}
                DependentNext::Cancel(why) => {
                    assert_eq!(error, Some(why.exception.as_str()), "seed {seed}: {n}");
                }
                DependentNext::Wait(_) => unreachable!("all have ended"),
            }
        }
    }
}
