//! Shared by the cases: a store, engines that are driven step by step, and their
//! attempts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::attempt::{
    AttemptEnd, AttemptId, AttemptRecord, NextState, RetryPolicy, TaskError, decide_end,
};
use task_engine_core::attempt::{RetryAdvice, RunSpan};
use task_engine_core::claim::ClaimId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt};
use task_engine_core::retry::RetryRule;
use task_engine_core::task::DEFAULT_QUEUE;
use task_engine_core::task::{
    NewTask, TaskDetails, TaskId, TaskListQuery, TaskOptions, TaskRow, TaskStatus,
};
use task_engine_store::claim::{ClaimRest, ClaimedTask, Claimer};
use task_engine_store::contract::HeartbeatReply;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::waiting::TIMEOUT;

/// The class of tasks that need no other.
pub const WORK: &str = "work";

/// A lease that does not run out during a test.
pub const LONG_LEASE: Duration = Duration::from_secs(300);

/// More than any case lists.
const ALL_ROWS: u32 = 1_000_000;

/// One handle on a store, with helpers.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
}

impl Fixture {
    /// A new handle, as another process would have.
    pub async fn open(db: &dyn TestDatabase) -> Self {
        Self { store: db.open().await }
    }

    /// Creates one task.
    pub async fn create(&self, task: NewTask) -> TaskId {
        self.create_all(&[task]).await[0]
    }

    /// Creates these tasks in one call.
    pub async fn create_all(&self, tasks: &[NewTask]) -> Vec<TaskId> {
        let ids = self.store.create(tasks).await.expect("create");
        assert_eq!(ids.len(), tasks.len(), "one id a task");
        ids
    }

    /// Creates tasks of the class [`WORK`], due at once.
    pub async fn create_work(&self, count: usize) -> Vec<TaskId> {
        self.create_all(&vec![new_task(WORK); count]).await
    }

    /// Registers an engine that serves [`WORK`] with the default rule.
    pub async fn engine(&self, name: &str) -> TestEngine {
        self.register(new_instance(name)).await
    }

    /// Registers an engine that claims its own queues and classes.
    pub async fn register(&self, new: NewInstance) -> TestEngine {
        let id = self.store.register(&new).await.expect("register");
        let classes = new.classes.keys().cloned().collect();
        TestEngine {
            name: new.name,
            id,
            claimer: Mutex::new(self.store.claimer(id, Lanes::new(new.queues, classes))),
            store: self.store.clone(),
            ids: Arc::new(ClaimIds::new(id)),
        }
    }

    /// Everything about a task that must be there.
    pub async fn details(&self, id: TaskId) -> TaskDetails {
        let found = self.store.task(id).await.expect("task");
        found.unwrap_or_else(|| panic!("task {id} is lost"))
    }

    /// The status of a task that must be there.
    pub async fn status(&self, id: TaskId) -> TaskStatus {
        self.details(id).await.row.status
    }

    /// The tasks in this status, or all, newest first.
    pub async fn list(&self, status: Option<TaskStatus>) -> Vec<TaskRow> {
        self.page(&TaskListQuery { status, limit: ALL_ROWS, ..TaskListQuery::default() }).await
    }

    /// How many tasks of a class there are.
    pub async fn count_of(&self, class: &str) -> usize {
        let filter = TaskListQuery {
            class: Some(class.to_owned()),
            limit: ALL_ROWS,
            ..TaskListQuery::default()
        };
        self.page(&filter).await.len()
    }

    /// A page of tasks.
    pub async fn page(&self, filter: &TaskListQuery) -> Vec<TaskRow> {
        self.store.tasks(filter).await.expect("tasks")
    }

    /// Declares an engine lost because its process is gone.
    pub async fn declare_lost(&self, instance: InstanceId) -> bool {
        let lost = self.store.declare_lost(instance, true).await;
        lost.expect("declare_lost")
    }

    /// Reclaims the attempts of a lost instance.
    pub async fn recover(&self, instance: InstanceId) -> Vec<ReclaimedAttempt> {
        let taken = self.store.reclaim(Reclaim::Lost(instance)).await;
        taken.expect("reclaim")
    }

    /// The instances of one name, or all.
    pub async fn instances(&self, name: Option<&str>) -> Vec<InstanceRow> {
        self.store.instances(name).await.expect("instances")
    }

    /// The time of the database. It is read from a new task, which stays in a queue
    /// that no engine serves.
    pub async fn now(&self) -> Timestamp {
        let clock = new_task("clock").queue("clock").expect("a queue");
        let id = self.create(clock).await;
        self.details(id).await.row.created_at
    }
}

/// A task of this class, due at once, without parameters.
#[must_use]
pub fn new_task(class: &str) -> NewTask {
    NewTask::new(class, Json::empty_object()).expect("a class")
}

/// An engine that serves [`WORK`] with the default rule and has a long lease.
#[must_use]
pub fn new_instance(name: &str) -> NewInstance {
    NewInstance {
        name: name.to_owned(),
        host: "test-host".to_owned(),
        pid: 4711,
        process: None,
        version: "1.2.3".to_owned(),
        workers: 5,
        lease: LONG_LEASE,
        queues: vec![DEFAULT_QUEUE.to_owned()],
        pools: Vec::new(),
        classes: BTreeMap::from([(WORK.to_owned(), TaskOptions::default())]),
    }
}

/// The same engine with these classes and retry rules instead.
#[must_use]
pub fn with_classes(mut new: NewInstance, classes: &[(&str, RetryRule)]) -> NewInstance {
    new.classes = classes
        .iter()
        .map(|(class, rule)| ((*class).to_owned(), TaskOptions::default().retry(*rule)))
        .collect();
    new
}

/// The same engine with a lease that expires at once.
#[must_use]
pub fn with_expired_lease(mut new: NewInstance) -> NewInstance {
    new.lease = Duration::ZERO;
    new
}

/// A registered engine that is driven step by step.
pub struct TestEngine {
    /// The name.
    pub name: String,
    /// The instance.
    pub id: InstanceId,
    /// Never locked. It makes engines `Sync`, because claimers are not.
    claimer: Mutex<Box<dyn Claimer>>,
    store: Arc<dyn Store>,
    ids: Arc<ClaimIds>,
}

impl TestEngine {
    /// Claims once.
    pub async fn try_claim(
        &mut self,
        limit: usize,
    ) -> Result<(Vec<TestAttempt>, ClaimRest), StoreError> {
        let claim_id = self.next_claim_id();
        let claim = self.claimer().claim(claim_id, limit).await?;
        assert!(claim.tasks.len() <= limit, "{} for {limit}", claim.tasks.len());
        let hold = |task| TestAttempt { task, claim_id, instance_id: self.id };
        Ok((claim.tasks.into_iter().map(hold).collect(), claim.rest))
    }

    /// Claims once; also returns what is left.
    pub async fn claim_up_to(&mut self, limit: usize) -> (Vec<TestAttempt>, ClaimRest) {
        self.try_claim(limit).await.expect("claim")
    }

    /// Claims exactly this many tasks in one claim.
    pub async fn claim(&mut self, count: usize) -> Vec<TestAttempt> {
        let (mut holds, mut rest) = self.claim_up_to(count).await;
        // A row was replaced at this moment: asked again, as an engine does.
        while holds.is_empty() && count > 0 && rest == ClaimRest::Contended {
            tokio::task::yield_now().await;
            (holds, rest) = self.claim_up_to(count).await;
        }
        assert_eq!(holds.len(), count, "claimed; the rest: {rest:?}");
        holds
    }

    /// Claims exactly one task.
    pub async fn claim_one(&mut self) -> TestAttempt {
        self.claim(1).await.remove(0)
    }

    /// Claims in batches until nothing is due.
    pub async fn claim_all(&mut self, batch: usize) -> Vec<TestAttempt> {
        let mut all = Vec::new();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (holds, rest) = self.claim_up_to(batch).await;
            all.extend(holds);
            match rest {
                ClaimRest::Nothing { .. } => return all,
                ClaimRest::More => {}
                ClaimRest::Contended => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            assert!(Instant::now() < deadline, "claims never come to an end");
        }
    }

    /// Another worker pool of the same engine, with its own claimer.
    #[must_use]
    pub fn with_lanes(&self, lanes: Lanes) -> Self {
        Self {
            name: self.name.clone(),
            id: self.id,
            claimer: Mutex::new(self.store.claimer(self.id, lanes)),
            store: self.store.clone(),
            ids: self.ids.clone(),
        }
    }

    /// Its claimer.
    pub fn claimer(&mut self) -> &mut dyn Claimer {
        &mut **self.claimer.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a wake-up on.
    pub fn wake(&mut self) {
        self.claimer().invalidate();
    }

    /// The id for a claim made with the claimer.
    pub fn next_claim_id(&mut self) -> ClaimId {
        self.ids.take()
    }

    /// Records ends. Returns the attempts that had ended before.
    pub async fn record(&self, endings: &[AttemptRecord]) -> Vec<AttemptId> {
        self.store.record(endings, &[]).await.expect("record")
    }

    /// Marks a claim as finished.
    pub async fn finish(&self, claim_id: ClaimId) {
        let late = self.store.record(&[], &[claim_id]).await.expect("record");
        assert_eq!(late, [], "nothing was recorded");
    }

    /// Releases claims whose reply was lost.
    pub async fn reclaim_unknown(&self, claims: Vec<ClaimId>) -> Vec<ReclaimedAttempt> {
        let what = Reclaim::Unknown(self.id, claims);
        self.store.reclaim(what).await.expect("reclaim")
    }

    /// Renews the lease.
    pub async fn heartbeat(&self) -> HeartbeatReply {
        self.store.heartbeat(self.id).await.expect("heartbeat")
    }

    /// Unregisters.
    pub async fn unregister(&self) {
        self.store.unregister(self.id).await.expect("unregister");
    }

    /// The attempts that it holds according to the store, in order.
    pub async fn held(&self) -> Vec<AttemptId> {
        let held = self.store.held_attempts(self.id).await.expect("held");
        let mut ids: Vec<_> = held.into_iter().map(|held| held.id).collect();
        ids.sort();
        ids
    }
}

impl fmt::Debug for TestEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {} ({})", self.name, self.id)
    }
}

/// A claimed attempt.
#[derive(Debug, Clone)]
pub struct TestAttempt {
    /// The task.
    pub task: ClaimedTask,
    /// Its claim.
    pub claim_id: ClaimId,
    /// The engine.
    pub instance_id: InstanceId,
}

impl TestAttempt {
    /// The attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.task.id
    }

    /// The task.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.task.id.task_id
    }

    /// The end of the attempt by this end under this rule.
    #[must_use]
    pub fn ends(&self, end: AttemptEnd, rule: &RetryRule) -> AttemptRecord {
        let policy = RetryPolicy::of(*rule);
        let next = decide_end(&end, self.id().attempt, self.task.retry_number, &policy);
        let has_started = end.has_started();
        let (result, error) = end.into_parts();
        let ran = RunSpan { worker: Some(3), lasted: Duration::ZERO, ended: Instant::now() };
        AttemptRecord {
            id: self.id(),
            retry_number: self.task.retry_number,
            claim_id: self.claim_id,
            instance_id: self.instance_id,
            ran: has_started.then_some(ran),
            result,
            error,
            next,
            cancel_response: None,
        }
    }

    /// It succeeds.
    #[must_use]
    pub fn succeeds(&self) -> AttemptRecord {
        self.ends(AttemptEnd::Success(Json::null()), &RetryRule::default())
    }

    /// It fails, without a retry.
    #[must_use]
    pub fn fails(&self) -> AttemptRecord {
        let end = AttemptEnd::Failure(sample_error(), RetryAdvice::NoRetry);
        self.ends(end, &RetryRule::default())
    }

    /// It fails, and is retried after this delay.
    #[must_use]
    pub fn fails_and_retries(&self, after: Duration) -> AttemptRecord {
        let end = AttemptEnd::Failure(sample_error(), RetryAdvice::RetryAfter(after));
        self.ends(end, &RetryRule::times(u32::MAX))
    }

    /// It is cancelled while it runs.
    #[must_use]
    pub fn is_cancelled(&self) -> AttemptRecord {
        let error = TaskError::new(TaskError::CANCELLED, "by request");
        self.ends(AttemptEnd::Cancelled(error), &RetryRule::default())
    }

    /// It never starts, and is released.
    #[must_use]
    pub fn is_released(&self) -> AttemptRecord {
        self.ends(AttemptEnd::never_started("the engine stops"), &RetryRule::default())
    }
}

/// The tasks of these, in the same order.
#[must_use]
pub fn task_ids(holds: &[TestAttempt]) -> Vec<TaskId> {
    holds.iter().map(TestAttempt::task_id).collect()
}

/// An error of a task.
#[must_use]
pub fn sample_error() -> TaskError {
    TaskError::new("OutOfPaper", "the printer is empty")
}

/// The delay of the next state.
#[must_use]
pub fn expect_wait(next: NextState) -> (Duration, u32) {
    match next {
        NextState::Wait { after, retry_number } => (after, retry_number),
        NextState::End(status) => panic!("ended {status} instead of waiting"),
    }
}
