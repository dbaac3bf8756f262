//! A store and its model, which execute the same random steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{
    AttemptEnd, AttemptId, AttemptRecord, NextState, RetryPolicy, TaskError, decide_end,
};
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::recovery::ReclaimedAttempt;
use task_engine_core::retry::{RetryOverride, RetryRule};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::{CancelReport, RetryReport};

use crate::fixture::{
    Fixture, TestAttempt, TestEngine, new_instance, new_task, sample_error, with_classes,
};
use crate::waiting::TIMEOUT;

/// Longer than any test.
const LATER: Duration = Duration::from_secs(3600);
const CLASSES: [&str; 3] = ["at_once", "later", "never"];
const ENGINES: usize = 3;
const DETAILS_PER_COMPARISON: usize = 10;

/// The rule of each class: retried at once, retried later, never retried.
fn rule_of(class: &str) -> RetryRule {
    match class {
        "at_once" => RetryRule::every(Duration::ZERO, 3),
        "later" => RetryRule::every(LATER, 2),
        _ => RetryRule::never(),
    }
}

/// A task in the model.
#[derive(Debug, Clone)]
struct ModelTask {
    state: ModelState,
    /// Used attempt numbers, and so executions: one per claim, and one per cancel
    /// while it waited.
    numbers: i32,
    /// How many of them were claims.
    attempts: i32,
    retry_number: u32,
    rule: RetryRule,
    priority: i32,
    /// Created for a later time.
    is_later: bool,
    late_results: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelState {
    Waiting { due: bool },
    Held { engine: usize, cancel: bool },
    Ended(TaskStatus),
}

/// An engine and its attempts.
#[derive(Debug)]
struct EngineModel {
    handle: TestEngine,
    holds: Vec<TestAttempt>,
    last_batch: Vec<AttemptRecord>,
}

/// A store and its model.
#[derive(Debug)]
pub(crate) struct ModelCheck {
    pub(crate) fixture: Fixture,
    rng: fastrand::Rng,
    tasks: BTreeMap<TaskId, ModelTask>,
    engines: Vec<EngineModel>,
    /// Attempts that were reclaimed while their engine still executed them.
    zombies: Vec<TestAttempt>,
    /// Claims that are not marked as finished, with their tasks.
    open_claims: BTreeMap<ClaimId, Vec<TaskId>>,
    sessions: usize,
}

impl ModelCheck {
    pub(crate) async fn begin(fixture: Fixture, seed: u64) -> Self {
        let mut model = Self {
            fixture,
            rng: fastrand::Rng::with_seed(seed),
            tasks: BTreeMap::new(),
            engines: Vec::new(),
            zombies: Vec::new(),
            open_claims: BTreeMap::new(),
            sessions: 0,
        };
        for _ in 0..ENGINES {
            let engine = model.new_engine(seed).await;
            model.engines.push(engine);
        }
        model
    }

    /// Executes one random step in both.
    pub(crate) async fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..20 => self.create().await,
            20..45 => self.claim().await,
            45..70 => self.record().await,
            70..73 => self.repeat_record().await,
            73..77 => self.lose_reply().await,
            77..81 => self.lose_engine().await,
            81..85 => self.record_late().await,
            85..90 => self.cancel().await,
            90..95 => self.retry().await,
            95..97 => self.prune().await,
            _ => self.heartbeat().await,
        }
    }

    /// Compares all tasks, and some of them in detail.
    pub(crate) async fn compare(&mut self) {
        let rows = self.fixture.list(None).await;
        let found: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let known: BTreeSet<_> = self.tasks.keys().copied().collect();
        assert_eq!(found, known, "the tasks that there are");
        assert_eq!(rows.len(), known.len(), "each once");
        for row in &rows {
            let known = &self.tasks[&row.id];
            assert_eq!(row.status, known.status(), "task {}: {known:?}", row.id);
            assert_eq!(row.attempts, known.attempts, "task {}: {known:?}", row.id);
        }
        for row in self.rng.choose_multiple(rows, DETAILS_PER_COMPARISON) {
            self.compare_details(row.id).await;
        }
        for engine in &self.engines {
            let mut held: Vec<_> = engine.holds.iter().map(TestAttempt::id).collect();
            held.sort();
            assert_eq!(engine.handle.held().await, held, "{:?}", engine.handle);
        }
        let violations = self.fixture.store.verify().await.expect("verify");
        assert_eq!(violations, []);
    }

    async fn compare_details(&self, id: TaskId) {
        let known = &self.tasks[&id];
        let details = self.fixture.details(id).await;
        let executions = details.executions.len() as i32;
        assert_eq!(executions, known.numbers, "task {id}: {known:?}");
        let asked = matches!(known.state, ModelState::Held { cancel: true, .. });
        assert_eq!(details.cancel_requested, asked, "task {id}");
        assert_eq!(details.late_results.len(), known.late_results, "task {id}");
    }

    async fn create(&mut self) {
        let mut tasks = Vec::new();
        for _ in 0..self.rng.usize(1..6) {
            tasks.push(self.new_task());
        }
        let new: Vec<_> = tasks.iter().map(|(task, _)| task.clone()).collect();
        let ids = self.fixture.create_all(&new).await;
        for (id, (_, known)) in ids.into_iter().zip(tasks) {
            assert!(self.tasks.insert(id, known).is_none(), "task {id} is new");
        }
    }

    fn new_task(&mut self) -> (NewTask, ModelTask) {
        let class = CLASSES[self.rng.usize(0..CLASSES.len())];
        let priority = self.rng.i32(-1..2);
        let mut task = new_task(class).priority(priority);
        let due = self.rng.u8(0..4) > 0;
        if !due {
            task = task.after(LATER);
        }
        let mut rule = rule_of(class);
        if self.rng.u8(0..5) == 0 {
            let own = RetryOverride::default().maximum(1).first_delay(Duration::ZERO);
            task = task.retry(own);
            rule = rule.with(&own);
        }
        let known = ModelTask {
            state: ModelState::Waiting { due },
            numbers: 0,
            attempts: 0,
            retry_number: 0,
            rule,
            priority,
            is_later: !due,
            late_results: 0,
        };
        (task, known)
    }

    async fn claim(&mut self) {
        let engine = self.any_engine();
        let limit = self.rng.usize(1..8);
        if self.rng.bool() {
            self.engines[engine].handle.wake();
        }
        let (mut holds, mut rest) = self.engines[engine].handle.claim_up_to(limit).await;
        // A scan that was slow is partial: asked again, as an engine does.
        let deadline = Instant::now() + TIMEOUT;
        while rest == ClaimRest::Contended {
            assert!(Instant::now() < deadline, "there is no other claimer");
            (holds, rest) = self.engines[engine].handle.claim_up_to(limit).await;
        }
        for pair in holds.windows(2) {
            assert!(pair[0].task.priority >= pair[1].task.priority, "in order");
        }
        for hold in &holds {
            self.apply_claim(hold, engine);
        }
        let due = self.tasks.values().filter(|known| known.is_due()).count();
        match rest {
            ClaimRest::Nothing { .. } => assert_eq!(due, 0, "nothing is due"),
            ClaimRest::More | ClaimRest::Contended => {}
        }
        assert!(!holds.is_empty() || due == 0, "{due} are due");
        self.engines[engine].holds.extend(holds);
    }

    /// Applies the claim of a due task to the model.
    fn apply_claim(&mut self, hold: &TestAttempt, engine: usize) {
        let known = self.tasks.get_mut(&hold.task_id()).expect("a known task");
        assert!(known.is_due(), "{} was claimed: {known:?}", hold.id());
        assert_eq!(hold.id().attempt, known.numbers + 1, "{known:?}");
        assert_eq!(hold.task.retry_number, known.retry_number, "{known:?}");
        assert_eq!(hold.task.priority, known.priority);
        self.open_claims.entry(hold.claim_id).or_default().push(hold.task_id());
        known.numbers += 1;
        known.attempts += 1;
        known.state = ModelState::Held { engine, cancel: false };
    }

    async fn record(&mut self) {
        let engine = self.any_engine();
        let mut batch = Vec::new();
        let mut open = Vec::new();
        for hold in std::mem::take(&mut self.engines[engine].holds) {
            if self.rng.bool() {
                open.push(hold);
                continue;
            }
            let outcome = match self.tasks[&hold.task_id()].state {
                // A cancel request that meets a retry has its own case.
                ModelState::Held { cancel: true, .. } => {
                    AttemptEnd::Cancelled(TaskError::new(TaskError::CANCELLED, ""))
                }
                _ => self.any_outcome(),
            };
            let ending = hold.ends(outcome, &self.tasks[&hold.task_id()].rule);
            self.apply_end(hold.id(), ending.next);
            batch.push(ending);
        }
        self.rng.shuffle(&mut batch);
        let mut finished: BTreeSet<ClaimId> = batch.iter().map(|ending| ending.claim_id).collect();
        finished.retain(|claim| open.iter().all(|hold| hold.claim_id != *claim));
        self.engines[engine].holds = open;

        let handle = &self.engines[engine].handle;
        assert_eq!(handle.record(&batch).await, [], "no other engine ended them");
        // An engine may report this later, or never.
        if self.rng.u8(0..4) > 0 {
            for claim in finished {
                handle.finish(claim).await;
                self.open_claims.remove(&claim);
            }
        }
        self.engines[engine].last_batch = batch;
    }

    fn any_outcome(&mut self) -> AttemptEnd {
        let error = sample_error();
        match self.rng.u32(0..11) {
            0..4 => AttemptEnd::Success(Json::null()),
            4..6 => AttemptEnd::Failure(error, RetryAdvice::ByRule),
            6 => AttemptEnd::Failure(error, RetryAdvice::NoRetry),
            7 => AttemptEnd::Failure(error, RetryAdvice::RetryAfter(Duration::ZERO)),
            8 => AttemptEnd::Cancelled(TaskError::new(TaskError::CANCELLED, "")),
            9 => AttemptEnd::Snoozed(TaskError::new(TaskError::SNOOZED, ""), Duration::ZERO),
            _ => AttemptEnd::released(),
        }
    }

    /// Applies the end of an attempt to the model.
    fn apply_end(&mut self, id: AttemptId, next: NextState) {
        let known = self.tasks.get_mut(&id.task_id).expect("a known task");
        known.state = match next {
            NextState::End(status) => ModelState::Ended(status),
            NextState::Wait { after, retry_number } => {
                known.retry_number = retry_number;
                ModelState::Waiting { due: after.is_zero() }
            }
        };
    }

    async fn repeat_record(&mut self) {
        let engine = &self.engines[self.rng.usize(0..ENGINES)];
        let mut batch = engine.last_batch.clone();
        // A reply is lost for moments; retention runs after days.
        batch.retain(|ending| self.tasks.contains_key(&ending.id.task_id));
        let late = engine.handle.record(&batch).await;
        assert_eq!(late, [], "they were its own");
    }

    async fn lose_reply(&mut self) {
        let engine = self.any_engine();
        let limit = self.rng.usize(1..5);
        let (holds, _) = self.engines[engine].handle.claim_up_to(limit).await;
        let Some(claim_id) = holds.first().map(|hold| hold.claim_id) else {
            return;
        };
        for hold in &holds {
            self.apply_claim(hold, engine);
        }
        if self.rng.bool() {
            self.cancel_these(&[holds[0].task_id()]).await;
        }
        let released = AttemptEnd::never_started("");
        let handle = &self.engines[engine].handle;
        let reclaimed = handle.reclaim_unknown(vec![claim_id]).await;
        self.open_claims.remove(&claim_id);
        self.apply_reclaim(&holds, &reclaimed, &released);
    }

    async fn lose_engine(&mut self) {
        let seed = self.rng.u64(..);
        let engine = self.any_engine();
        let successor = self.new_engine(seed).await;
        let dead = std::mem::replace(&mut self.engines[engine], successor);
        assert!(self.fixture.declare_lost(dead.handle.id).await);
        let reclaimed = self.fixture.recover(dead.handle.id).await;
        self.forget_claims_of(dead.handle.id);
        let lost = AttemptEnd::Lost(TaskError::new(TaskError::INSTANCE_LOST, ""));
        self.apply_reclaim(&dead.holds, &reclaimed, &lost);
        self.zombies.extend(dead.holds);
    }

    fn forget_claims_of(&mut self, id: InstanceId) {
        // The id of a claim begins with that of its engine: see `ClaimIds`.
        self.open_claims.retain(|claim, _| claim.0 >> 40 != id.0);
    }

    /// Exactly these attempts were reclaimed, and each continued by its rule.
    fn apply_reclaim(
        &mut self,
        holds: &[TestAttempt],
        reclaimed: &[ReclaimedAttempt],
        outcome: &AttemptEnd,
    ) {
        let mut reclaimed: BTreeMap<_, _> =
            reclaimed.iter().map(|one| (one.id, one.next)).collect();
        for hold in holds {
            let known = &self.tasks[&hold.task_id()];
            let expected = match known.state {
                ModelState::Held { cancel: true, .. } => NextState::End(TaskStatus::Cancelled),
                _ => {
                    let policy = RetryPolicy::of(known.rule);
                    decide_end(outcome, hold.id().attempt, known.retry_number, &policy)
                }
            };
            let next = reclaimed.remove(&hold.id()).expect("it was reclaimed back");
            assert_eq!(next, expected, "{}: {known:?}", hold.id());
            self.apply_end(hold.id(), next);
        }
        assert_eq!(reclaimed, BTreeMap::new(), "nothing else was");
    }

    /// A late record of a lost engine changes nothing.
    async fn record_late(&mut self) {
        let Some(hold) = self.zombies.pop() else {
            return;
        };
        let Some(known) = self.tasks.get_mut(&hold.task_id()) else {
            return;
        };
        known.late_results += 1;
        let late = self.fixture.store.record(&[hold.succeeds()], &[]).await;
        assert_eq!(late.expect("record"), [hold.id()]);
    }

    async fn cancel(&mut self) {
        let ids = self.some_tasks();
        self.cancel_these(&ids).await;
    }

    async fn cancel_these(&mut self, ids: &[TaskId]) {
        let reports = self.fixture.store.cancel(ids).await.expect("cancel");
        assert_eq!(reports.len(), ids.len());
        for (id, report) in ids.iter().zip(reports) {
            let Some(known) = self.tasks.get_mut(id) else {
                assert_eq!(report, CancelReport::NotFound);
                continue;
            };
            let expected = match &mut known.state {
                ModelState::Waiting { .. } => {
                    known.state = ModelState::Ended(TaskStatus::Cancelled);
                    known.numbers += 1;
                    CancelReport::Cancelled
                }
                ModelState::Held { cancel, .. } => {
                    *cancel = true;
                    CancelReport::Requested
                }
                ModelState::Ended(status) => CancelReport::Ended(*status),
            };
            assert_eq!(report, expected, "task {id}");
        }
    }

    async fn retry(&mut self) {
        let ids = self.some_tasks();
        let reports = self.fixture.store.retry(&ids).await.expect("retry");
        assert_eq!(reports.len(), ids.len());
        for (id, report) in ids.iter().zip(reports) {
            let Some(known) = self.tasks.get_mut(id) else {
                assert_eq!(report, RetryReport::NotFound);
                continue;
            };
            let expected = match &mut known.state {
                ModelState::Waiting { due: true } => RetryReport::AlreadyDue,
                ModelState::Waiting { due } => {
                    *due = true;
                    RetryReport::Advanced
                }
                ModelState::Held { .. } => RetryReport::Running,
                ModelState::Ended(TaskStatus::Stopped) => RetryReport::Stopped,
                ModelState::Ended(_) => {
                    let due = known.attempts > 0 || !known.is_later;
                    known.state = ModelState::Waiting { due };
                    known.retry_number = 0;
                    RetryReport::Waiting
                }
            };
            assert_eq!(report, expected, "task {id}");
        }
    }

    async fn prune(&mut self) {
        let ended = [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];
        let status = ended[self.rng.usize(0..3)];
        let limit = self.rng.u32(1..10);
        let pruned = self.fixture.store.prune(status, Duration::ZERO, limit).await;
        let removed = pruned.expect("prune");
        let rows = self.fixture.list(Some(status)).await;
        let left: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let before = self.tasks.len();
        let in_status = |known: &ModelTask| known.state == ModelState::Ended(status);
        // A store may leave a task for later whose claim is still open.
        let kept: BTreeSet<_> = self.open_claims.values().flatten().copied().collect();
        let candidates = || self.tasks.iter().filter(|(_, known)| in_status(known));
        let most = candidates().count().min(limit as usize);
        let least = candidates().filter(|(id, _)| !kept.contains(*id)).count();
        let least = least.min(limit as usize);
        self.tasks.retain(|id, known| !in_status(known) || left.contains(id));
        let removed = removed as usize;
        assert_eq!(removed, before - self.tasks.len(), "as many as it says");
        assert!((least..=most).contains(&removed), "{removed} of {least} to {most}");
    }

    async fn heartbeat(&mut self) {
        let engine = self.any_engine();
        let pulse = self.engines[engine].handle.heartbeat().await;
        assert!(pulse.alive);
        let holds = &self.engines[engine].holds;
        for hold in holds {
            assert!(pulse.claims.contains(&hold.claim_id), "{}", hold.id());
        }
        let asked: BTreeSet<_> = pulse.cancel.into_iter().collect();
        let expected: BTreeSet<_> = holds
            .iter()
            .map(TestAttempt::id)
            .filter(|id| match self.tasks[&id.task_id].state {
                ModelState::Held { engine: by, cancel } => by == engine && cancel,
                _ => false,
            })
            .collect();
        assert_eq!(asked, expected);
    }

    /// Declares every engine lost and cancels the waiting tasks.
    pub(crate) async fn end_everything(&mut self) {
        for _ in 0..2 {
            let ids: Vec<_> = self.tasks.keys().copied().collect();
            self.cancel_these(&ids).await;
            for engine in std::mem::take(&mut self.engines) {
                assert!(self.fixture.declare_lost(engine.handle.id).await);
                let reclaimed = self.fixture.recover(engine.handle.id).await;
                self.forget_claims_of(engine.handle.id);
                let lost = AttemptEnd::Lost(TaskError::new(TaskError::INSTANCE_LOST, ""));
                self.apply_reclaim(&engine.holds, &reclaimed, &lost);
            }
        }
    }

    async fn new_engine(&mut self, seed: u64) -> EngineModel {
        self.sessions += 1;
        let name = format!("engine-{seed}-{}", self.sessions);
        EngineModel {
            handle: self.fixture.register(colleague(&name)).await,
            holds: Vec::new(),
            last_batch: Vec::new(),
        }
    }

    fn any_engine(&mut self) -> usize {
        self.rng.usize(0..ENGINES)
    }

    /// Some tasks, each once, and sometimes one that does not exist.
    fn some_tasks(&mut self) -> Vec<TaskId> {
        let all: Vec<_> = self.tasks.keys().copied().collect();
        let count = self.rng.usize(1..5);
        let mut some = self.rng.choose_multiple(all, count);
        if self.rng.u8(0..5) == 0 {
            some.push(TaskId(i64::MAX));
        }
        self.rng.shuffle(&mut some);
        some
    }
}

impl ModelTask {
    fn is_due(&self) -> bool {
        self.state == ModelState::Waiting { due: true }
    }

    fn status(&self) -> TaskStatus {
        match self.state {
            ModelState::Waiting { .. } => TaskStatus::Waiting,
            ModelState::Held { .. } => TaskStatus::Running,
            ModelState::Ended(status) => status,
        }
    }
}

fn colleague(name: &str) -> NewInstance {
    with_classes(new_instance(name), &CLASSES.map(|class| (class, rule_of(class))))
}
