//! A store and its model, taking the same steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{
    AttemptEnd, AttemptId, Ending, NextState, RetryPolicy, TaskError, decide_end,
};
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::recovery::ReclaimedAttempt;
use task_engine_core::retry::{RetryOverride, RetryRule};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::claim::Rest;
use task_engine_store::contract::{CancelReport, RetryReport};

use crate::bench::{Bench, Hold, Player, an_error, knowing, new_instance, new_task};

/// Far enough away that no test sees it come.
const LATER: Duration = Duration::from_secs(3600);
const CLASSES: [&str; 3] = ["at_once", "later", "never"];
const ENGINES: usize = 3;
const DETAILS_PER_LOOK: usize = 10;

/// The rule of each class: retried at once, retried later, never retried.
fn rule_of(class: &str) -> RetryRule {
    match class {
        "at_once" => RetryRule::every(Duration::ZERO, 3),
        "later" => RetryRule::every(LATER, 2),
        _ => RetryRule::never(),
    }
}

/// What the model knows about a task.
#[derive(Debug, Clone)]
struct Known {
    place: Place,
    /// How many attempt numbers are used up, and so how many executions there
    /// are: one a claim, and one for each time it was cancelled as it waited.
    numbers: i32,
    /// How many of them were claimed.
    attempts: i32,
    retry_number: u32,
    rule: RetryRule,
    priority: i32,
    late_results: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waits { due: bool },
    Held { engine: usize, cancel: bool },
    Ended(TaskStatus),
}

/// An engine, and what it has in its hands.
#[derive(Debug)]
struct Engine {
    player: Player,
    holds: Vec<Hold>,
    last_batch: Vec<Ending>,
}

/// A store and its model, taking the same steps.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) bench: Bench,
    chance: fastrand::Rng,
    tasks: BTreeMap<TaskId, Known>,
    engines: Vec<Engine>,
    /// Attempts that were taken back while their engine still worked on them.
    zombies: Vec<Hold>,
    /// Claims that nobody has said to be finished, with their tasks.
    open_claims: BTreeMap<ClaimId, Vec<TaskId>>,
    lives: usize,
}

impl World {
    pub(crate) async fn begin(bench: Bench, seed: u64) -> Self {
        let mut world = Self {
            bench,
            chance: fastrand::Rng::with_seed(seed),
            tasks: BTreeMap::new(),
            engines: Vec::new(),
            zombies: Vec::new(),
            open_claims: BTreeMap::new(),
            lives: 0,
        };
        for _ in 0..ENGINES {
            let engine = world.new_engine(seed).await;
            world.engines.push(engine);
        }
        world
    }

    /// One random step of both.
    pub(crate) async fn step(&mut self) {
        match self.chance.u32(0..100) {
            0..20 => self.create().await,
            20..45 => self.claim().await,
            45..70 => self.record().await,
            70..73 => self.send_again().await,
            73..77 => self.lose_an_answer().await,
            77..81 => self.lose_an_engine().await,
            81..85 => self.zombie_returns().await,
            85..90 => self.cancel().await,
            90..95 => self.retry().await,
            95..97 => self.prune().await,
            _ => self.heartbeat().await,
        }
    }

    /// Compares every task, and some of them with all that is recorded.
    pub(crate) async fn look(&mut self) {
        let rows = self.bench.list(None).await;
        let found: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let known: BTreeSet<_> = self.tasks.keys().copied().collect();
        assert_eq!(found, known, "the tasks that there are");
        assert_eq!(rows.len(), known.len(), "each once");
        for row in &rows {
            let known = &self.tasks[&row.id];
            assert_eq!(row.status, known.status(), "task {}: {known:?}", row.id);
            assert_eq!(row.attempts, known.attempts, "task {}: {known:?}", row.id);
        }
        for row in self.chance.choose_multiple(rows, DETAILS_PER_LOOK) {
            self.look_closely(row.id).await;
        }
        for engine in &self.engines {
            let mut held: Vec<_> = engine.holds.iter().map(Hold::id).collect();
            held.sort();
            assert_eq!(engine.player.held().await, held, "{:?}", engine.player);
        }
        let violations = self.bench.store.verify().await.expect("verify");
        assert_eq!(violations, [""; 0]);
    }

    async fn look_closely(&self, id: TaskId) {
        let known = &self.tasks[&id];
        let details = self.bench.details(id).await;
        let executions = details.executions.len() as i32;
        assert_eq!(executions, known.numbers, "task {id}: {known:?}");
        let asked = matches!(known.place, Place::Held { cancel: true, .. });
        assert_eq!(details.cancel_requested, asked, "task {id}");
        assert_eq!(details.late_results.len(), known.late_results, "task {id}");
    }

    async fn create(&mut self) {
        let mut tasks = Vec::new();
        for _ in 0..self.chance.usize(1..6) {
            tasks.push(self.new_task());
        }
        let new: Vec<_> = tasks.iter().map(|(task, _)| task.clone()).collect();
        let ids = self.bench.create_all(&new).await;
        for (id, (_, known)) in ids.into_iter().zip(tasks) {
            assert!(self.tasks.insert(id, known).is_none(), "task {id} is new");
        }
    }

    fn new_task(&mut self) -> (NewTask, Known) {
        let class = CLASSES[self.chance.usize(0..CLASSES.len())];
        let priority = self.chance.i32(-1..2);
        let mut task = new_task(class).priority(priority);
        let due = self.chance.u8(0..4) > 0;
        if !due {
            task = task.after(LATER);
        }
        let mut rule = rule_of(class);
        if self.chance.u8(0..5) == 0 {
            let own = RetryOverride::default().maximum(1).first_delay(Duration::ZERO);
            task = task.retry(own);
            rule = rule.with(&own);
        }
        let known = Known {
            place: Place::Waits { due },
            numbers: 0,
            attempts: 0,
            retry_number: 0,
            rule,
            priority,
            late_results: 0,
        };
        (task, known)
    }

    async fn claim(&mut self) {
        let engine = self.any_engine();
        let limit = self.chance.usize(1..8);
        if self.chance.bool() {
            self.engines[engine].player.wake();
        }
        let (holds, rest) = self.engines[engine].player.look(limit).await;
        for pair in holds.windows(2) {
            assert!(pair[0].task.priority >= pair[1].task.priority, "in order");
        }
        for hold in &holds {
            self.moves_to(hold, engine);
        }
        let due = self.tasks.values().filter(|known| known.is_due()).count();
        match rest {
            Rest::Nothing { .. } => assert_eq!(due, 0, "nothing is due"),
            Rest::More => {}
            Rest::Contended => panic!("there is nobody else"),
        }
        assert!(!holds.is_empty() || due == 0, "{due} are due");
        self.engines[engine].holds.extend(holds);
    }

    /// The claim of a task that must be due, as the model has it.
    fn moves_to(&mut self, hold: &Hold, engine: usize) {
        let known = self.tasks.get_mut(&hold.task_id()).expect("a known task");
        assert!(known.is_due(), "{} was claimed: {known:?}", hold.id());
        assert_eq!(hold.id().attempt, known.numbers + 1, "{known:?}");
        assert_eq!(hold.task.retry_number, known.retry_number, "{known:?}");
        assert_eq!(hold.task.priority, known.priority);
        self.open_claims.entry(hold.claim_id).or_default().push(hold.task_id());
        known.numbers += 1;
        known.attempts += 1;
        known.place = Place::Held { engine, cancel: false };
    }

    async fn record(&mut self) {
        let engine = self.any_engine();
        let mut batch = Vec::new();
        let mut open = Vec::new();
        for hold in std::mem::take(&mut self.engines[engine].holds) {
            if self.chance.bool() {
                open.push(hold);
                continue;
            }
            let outcome = match self.tasks[&hold.task_id()].place {
                // What becomes of a wish that meets a retry has a case of its own.
                Place::Held { cancel: true, .. } => {
                    AttemptEnd::Cancelled(TaskError::new(TaskError::CANCELLED, ""))
                }
                _ => self.any_outcome(),
            };
            let ending = hold.ends(outcome, &self.tasks[&hold.task_id()].rule);
            self.goes_on(hold.id(), ending.next);
            batch.push(ending);
        }
        self.chance.shuffle(&mut batch);
        let mut finished: BTreeSet<ClaimId> = batch.iter().map(|ending| ending.claim_id).collect();
        finished.retain(|claim| open.iter().all(|hold| hold.claim_id != *claim));
        self.engines[engine].holds = open;

        let player = &self.engines[engine].player;
        assert_eq!(player.record(&batch).await, [], "nobody else ended them");
        // An engine that is in a hurry says so later, or never.
        if self.chance.u8(0..4) > 0 {
            for claim in finished {
                player.finish(claim).await;
                self.open_claims.remove(&claim);
            }
        }
        self.engines[engine].last_batch = batch;
    }

    fn any_outcome(&mut self) -> AttemptEnd {
        let error = an_error();
        match self.chance.u32(0..11) {
            0..4 => AttemptEnd::Success(Json::null()),
            4..6 => AttemptEnd::Failure(error, RetryAdvice::ByRule),
            6 => AttemptEnd::Failure(error, RetryAdvice::NoRetry),
            7 => AttemptEnd::Failure(error, RetryAdvice::RetryAfter(Duration::ZERO)),
            8 => AttemptEnd::Cancelled(TaskError::new(TaskError::CANCELLED, "")),
            9 => AttemptEnd::Snoozed(TaskError::new(TaskError::SNOOZED, ""), Duration::ZERO),
            _ => AttemptEnd::released(),
        }
    }

    /// The end of an attempt, as the model has it.
    fn goes_on(&mut self, id: AttemptId, next: NextState) {
        let known = self.tasks.get_mut(&id.task_id).expect("a known task");
        known.place = match next {
            NextState::End(status) => Place::Ended(status),
            NextState::Wait { after, retry_number } => {
                known.retry_number = retry_number;
                Place::Waits { due: after.is_zero() }
            }
        };
    }

    async fn send_again(&mut self) {
        let engine = &self.engines[self.chance.usize(0..ENGINES)];
        let mut batch = engine.last_batch.clone();
        // An answer is lost for moments, retention comes after days.
        batch.retain(|ending| self.tasks.contains_key(&ending.id.task_id));
        let late = engine.player.record(&batch).await;
        assert_eq!(late, [], "they were its own");
    }

    async fn lose_an_answer(&mut self) {
        let engine = self.any_engine();
        let limit = self.chance.usize(1..5);
        let (holds, _) = self.engines[engine].player.look(limit).await;
        let Some(claim_id) = holds.first().map(|hold| hold.claim_id) else {
            return;
        };
        for hold in &holds {
            self.moves_to(hold, engine);
        }
        if self.chance.bool() {
            self.cancel_these(&[holds[0].task_id()]).await;
        }
        let released = AttemptEnd::never_started("");
        let player = &self.engines[engine].player;
        let taken = player.reclaim_unknown(vec![claim_id]).await;
        self.open_claims.remove(&claim_id);
        self.were_taken(&holds, &taken, &released);
    }

    async fn lose_an_engine(&mut self) {
        let seed = self.chance.u64(..);
        let engine = self.any_engine();
        let heir = self.new_engine(seed).await;
        let dead = std::mem::replace(&mut self.engines[engine], heir);
        assert!(self.bench.lose(dead.player.id).await);
        let taken = self.bench.recover(dead.player.id).await;
        self.forget_claims_of(dead.player.id);
        let lost = AttemptEnd::Lost(TaskError::new(TaskError::INSTANCE_LOST, ""));
        self.were_taken(&dead.holds, &taken, &lost);
        self.zombies.extend(dead.holds);
    }

    fn forget_claims_of(&mut self, id: InstanceId) {
        // A claim's id begins with that of its engine: see `ClaimIds`.
        self.open_claims.retain(|claim, _| claim.0 >> 40 != id.0);
    }

    /// Exactly these were taken back, and each went on as the rule says.
    fn were_taken(&mut self, holds: &[Hold], taken: &[ReclaimedAttempt], outcome: &AttemptEnd) {
        let mut taken: BTreeMap<_, _> = taken.iter().map(|one| (one.id, one.next)).collect();
        for hold in holds {
            let known = &self.tasks[&hold.task_id()];
            let expected = match known.place {
                Place::Held { cancel: true, .. } => NextState::End(TaskStatus::Cancelled),
                _ => {
                    let policy = RetryPolicy::of(known.rule);
                    decide_end(outcome, hold.id().attempt, known.retry_number, &policy)
                }
            };
            let next = taken.remove(&hold.id()).expect("it was taken back");
            assert_eq!(next, expected, "{}: {known:?}", hold.id());
            self.goes_on(hold.id(), next);
        }
        assert_eq!(taken, BTreeMap::new(), "nothing else was");
    }

    /// What a lost engine says in the end changes nothing.
    async fn zombie_returns(&mut self) {
        let Some(hold) = self.zombies.pop() else {
            return;
        };
        let Some(known) = self.tasks.get_mut(&hold.task_id()) else {
            return;
        };
        known.late_results += 1;
        let late = self.bench.store.record(&[hold.succeeds()], &[]).await;
        assert_eq!(late.expect("record"), [hold.id()]);
    }

    async fn cancel(&mut self) {
        let ids = self.some_tasks();
        self.cancel_these(&ids).await;
    }

    async fn cancel_these(&mut self, ids: &[TaskId]) {
        let reports = self.bench.store.cancel(ids).await.expect("cancel");
        assert_eq!(reports.len(), ids.len());
        for (id, report) in ids.iter().zip(reports) {
            let Some(known) = self.tasks.get_mut(id) else {
                assert_eq!(report, CancelReport::NotFound);
                continue;
            };
            let expected = match &mut known.place {
                Place::Waits { .. } => {
                    known.place = Place::Ended(TaskStatus::Cancelled);
                    known.numbers += 1;
                    CancelReport::Cancelled
                }
                Place::Held { cancel, .. } => {
                    *cancel = true;
                    CancelReport::Requested
                }
                Place::Ended(status) => CancelReport::Ended(*status),
            };
            assert_eq!(report, expected, "task {id}");
        }
    }

    async fn retry(&mut self) {
        let ids = self.some_tasks();
        let reports = self.bench.store.retry(&ids).await.expect("retry");
        assert_eq!(reports.len(), ids.len());
        for (id, report) in ids.iter().zip(reports) {
            let Some(known) = self.tasks.get_mut(id) else {
                assert_eq!(report, RetryReport::NotFound);
                continue;
            };
            let expected = match &mut known.place {
                Place::Waits { due: true } => RetryReport::AlreadyDue,
                Place::Waits { due } => {
                    *due = true;
                    RetryReport::Advanced
                }
                Place::Held { .. } => RetryReport::Running,
                Place::Ended(TaskStatus::Stopped) => RetryReport::Stopped,
                Place::Ended(_) => {
                    known.place = Place::Waits { due: true };
                    known.retry_number = 0;
                    RetryReport::Waiting
                }
            };
            assert_eq!(report, expected, "task {id}");
        }
    }

    async fn prune(&mut self) {
        let ended = [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];
        let status = ended[self.chance.usize(0..3)];
        let limit = self.chance.u32(1..10);
        let pruned = self.bench.store.prune(status, Duration::ZERO, limit).await;
        let removed = pruned.expect("prune");
        let rows = self.bench.list(Some(status)).await;
        let left: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let before = self.tasks.len();
        let in_status = |known: &Known| known.place == Place::Ended(status);
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
        let pulse = self.engines[engine].player.heartbeat().await;
        assert!(pulse.alive);
        let holds = &self.engines[engine].holds;
        for hold in holds {
            assert!(pulse.claims.contains(&hold.claim_id), "{}", hold.id());
        }
        let asked: BTreeSet<_> = pulse.cancel.into_iter().collect();
        let expected: BTreeSet<_> = holds
            .iter()
            .map(Hold::id)
            .filter(|id| match self.tasks[&id.task_id].place {
                Place::Held { engine: by, cancel } => by == engine && cancel,
                _ => false,
            })
            .collect();
        assert_eq!(asked, expected);
    }

    /// Loses every engine and cancels what waits.
    pub(crate) async fn end_everything(&mut self) {
        for _ in 0..2 {
            let ids: Vec<_> = self.tasks.keys().copied().collect();
            self.cancel_these(&ids).await;
            for engine in std::mem::take(&mut self.engines) {
                assert!(self.bench.lose(engine.player.id).await);
                let taken = self.bench.recover(engine.player.id).await;
                self.forget_claims_of(engine.player.id);
                let lost = AttemptEnd::Lost(TaskError::new(TaskError::INSTANCE_LOST, ""));
                self.were_taken(&engine.holds, &taken, &lost);
            }
        }
    }

    async fn new_engine(&mut self, seed: u64) -> Engine {
        self.lives += 1;
        let name = format!("engine-{seed}-{}", self.lives);
        Engine {
            player: self.bench.register(colleague(&name)).await,
            holds: Vec::new(),
            last_batch: Vec::new(),
        }
    }

    fn any_engine(&mut self) -> usize {
        self.chance.usize(0..ENGINES)
    }

    /// Some tasks, each once, and now and then one that never was.
    fn some_tasks(&mut self) -> Vec<TaskId> {
        let all: Vec<_> = self.tasks.keys().copied().collect();
        let count = self.chance.usize(1..5);
        let mut some = self.chance.choose_multiple(all, count);
        if self.chance.u8(0..5) == 0 {
            some.push(TaskId(i64::MAX));
        }
        self.chance.shuffle(&mut some);
        some
    }
}

impl Known {
    fn is_due(&self) -> bool {
        self.place == Place::Waits { due: true }
    }

    fn status(&self) -> TaskStatus {
        match self.place {
            Place::Waits { .. } => TaskStatus::Waiting,
            Place::Held { .. } => TaskStatus::Running,
            Place::Ended(status) => status,
        }
    }
}

fn colleague(name: &str) -> NewInstance {
    knowing(new_instance(name), &CLASSES.map(|class| (class, rule_of(class))))
}
