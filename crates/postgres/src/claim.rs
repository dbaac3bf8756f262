//! The claim, as a state machine.
//!
//! A claimer keeps two things between calls: the cached heads of its lanes
//! ([`QueueHeads`]), and whether it is registered as idle ([`Registration`]). While no
//! claimer is registered as idle, creators of tasks send no notification: see
//! `task_engine.wake` in the migrations for the reason and for the other half of this
//! protocol.
//!
//! States of one call ([`ClaimerState`]), and their transitions:
//!
//! A call begins in `Cached` if its heads are still valid; otherwise it scans first, and begins
//! in `Scanned` or `Confirmed`.
//!
//! | state | some lane is due | no lane is due |
//! |---|---|---|
//! | `Cached` | take; nothing taken → scan → `Scanned` or `Confirmed` | scan → the same |
//! | `Scanned` | take; nothing taken → return `Contended` | register as idle, scan → `Confirmed` |
//! | `Confirmed` | take; nothing taken → return `Contended` | return `Nothing`, or `Contended` after a partial scan |
//!
//! Every state returns `More` as soon as it has taken tasks. A scan leads to `Confirmed`
//! instead of `Scanned` if the claimer was registered before it, and no older transaction is
//! open.
//!
//! So a claimer reports `Nothing` only after a scan of its own that began when every later
//! creator notifies it. Transactions that wrote to the queue before the registration may not
//! have seen it; while one of them is open, the claimer scans again soon.
//!
//! States of the registration, which last longer than a call:
//!
//! | state | next |
//! |---|---|
//! | `Absent` | `register` → `Present` with the open transactions of that moment |
//! | `Present`, older transactions open | `register` → the same, without those that have ended |
//! | `Present`, none open | stays, also through short pauses of work |
//! | `Present`, busy for longer than [`BUSY_AFTER`] | `remove_if_busy` → `Absent` |
//!
//! An engine with several worker pools has a claimer for each, with a registration of its own. It
//! names queues and classes, so that a pool for rare tasks does not make all other creators notify.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{limited_queue, plain_queue};
use task_engine_core::queue::Lanes;
use task_engine_store::claim::{Claim, ClaimRest, ClaimedTask, Claimer};
use task_engine_store::contract::StoreFuture;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;

use crate::executor::Executor as _;
use crate::known_limits::{KnownLimits, LaneKind};
use crate::limited_lanes::{GroupId, LimitedLanes, LimitedTake};
use crate::queue_heads::{Lane, QueueHeads};
use crate::store::{STATEMENT, StoreInner};
use crate::take::TakeTasks;

const SQL: &str = include_str!("../sql/engine/claim.sql");
const REGISTER: &str = statement(SQL, "register_idle");
const UNREGISTER: &str = statement(SQL, "unregister_idle");
const OPEN_WRITERS: &str = statement(SQL, "open_queue_writers");

/// How far a claim reads past rows that others have locked.
const CANDIDATES_MAX: usize = 10_000;
/// A lane from which fewer tasks were moved has no more.
const MOVED_ALL: i64 = 100;
/// A registration stays through short pauses, so that a trickle of tasks costs no writes; a
/// claimer that has not been idle for this long removes it.
const BUSY_AFTER: Duration = Duration::from_millis(200);
/// How often to check whether an older transaction has ended.
const RECHECK_MIN: Duration = Duration::from_millis(2);
const RECHECK_MAX: Duration = Duration::from_secs(1);

/// The state of one call of `claim`; see the table above.
enum ClaimerState {
    /// The heads are from an earlier call.
    Cached,
    /// The heads are from a scan of this call. Creators may not notify this claimer yet.
    Scanned,
    /// The heads are from a scan of this call, made while registered as idle.
    Confirmed,
}

pub(crate) struct PgClaimer {
    inner: Arc<StoreInner>,
    instance: InstanceId,
    heads: QueueHeads,
    idle: IdleRegistration,
    limited: LimitedLanes,
    /// Whether the limits were read, and have not changed as far as is known.
    limits_are_known: bool,
    /// Whether tasks with limits are taken first, of those with the same priority.
    limited_first: bool,
}

impl Claimer for PgClaimer {
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.with_time_limit(STATEMENT, self.claim_tasks(id, limit)).await })
    }

    fn invalidate(&mut self) {
        self.heads.invalidate();
        self.limited.unblock();
    }

    fn keys_freed(&mut self) {
        self.limited.unblock();
    }
}

impl PgClaimer {
    pub(crate) fn new(inner: Arc<StoreInner>, instance: InstanceId, lanes: Lanes) -> Self {
        let idle = IdleRegistration::new(instance, &lanes);
        Self {
            inner,
            instance,
            idle,
            heads: QueueHeads::new(lanes),
            limited: LimitedLanes::default(),
            limits_are_known: false,
            limited_first: false,
        }
    }

    async fn claim_tasks(&mut self, id: ClaimId, limit: usize) -> Result<Claim, StoreError> {
        let mut state =
            if self.heads.are_stale() { self.scan().await? } else { ClaimerState::Cached };
        loop {
            for priority in self.heads.due_priorities(&self.limited) {
                let tasks = self.take(id, limit, priority).await?;
                if !tasks.is_empty() {
                    self.idle.remove_if_busy(&self.inner).await;
                    return Ok(Claim { tasks, rest: ClaimRest::More });
                }
            }
            // Lanes whose limits are reached are not due any more.
            let nothing_is_due = self.heads.due_priorities(&self.limited).is_empty();
            state = match (state, nothing_is_due) {
                (ClaimerState::Cached, _) => self.scan().await?,
                (ClaimerState::Scanned | ClaimerState::Confirmed, false) => {
                    return Ok(without_tasks(ClaimRest::Contended));
                }
                (ClaimerState::Scanned, true) => {
                    self.idle.register(&self.inner).await?;
                    self.heads.scan(&self.inner, &self.limited.known).await?;
                    // An attempt may have ended before the registration.
                    self.limited.unblock();
                    ClaimerState::Confirmed
                }
                (ClaimerState::Confirmed, true) => return Ok(without_tasks(self.nothing_due())),
            };
        }
    }

    async fn scan(&mut self) -> Result<ClaimerState, StoreError> {
        if !self.limits_are_known {
            self.limited.known = Arc::new(KnownLimits::read(&self.inner).await?);
            self.limits_are_known = true;
            self.limited.unblock();
        }
        self.heads.scan(&self.inner, &self.limited.known).await?;
        if self.limited.known.is_empty() && !self.heads.groups().is_empty() {
            // The first limit was set.
            self.limited.known = Arc::new(KnownLimits::read(&self.inner).await?);
            self.heads.scan(&self.inner, &self.limited.known).await?;
        }
        Ok(if self.idle.is_seen_by_all() { ClaimerState::Confirmed } else { ClaimerState::Scanned })
    }

    fn nothing_due(&mut self) -> ClaimRest {
        let rest = if self.heads.are_complete() {
            let limited = self.limited.next_in(self.heads.groups().iter());
            let next_in = [self.heads.next_in(), limited].into_iter().flatten().min();
            ClaimRest::Nothing { next_in: self.idle.begin(next_in) }
        } else {
            ClaimRest::Contended
        };
        // The caller acts on this answer now; the next call scans again.
        self.heads.invalidate();
        self.limited.unblock();
        rest
    }

    /// Takes from the due lanes of a priority. Tasks with and without limits take turns.
    async fn take(
        &mut self,
        id: ClaimId,
        limit: usize,
        priority: i32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        if self.limited.known.is_empty() {
            return self.take_plain(id, limit, priority).await;
        }
        for limited in [self.limited_first, !self.limited_first] {
            let tasks = if limited {
                // Blocked keys do not delay the tasks of the next wake-up.
                self.limited_first = false;
                self.take_limited(id, limit, priority).await?
            } else {
                self.take_plain(id, limit, priority).await?
            };
            if !tasks.is_empty() {
                self.limited_first = !limited;
                return Ok(tasks);
            }
        }
        Ok(Vec::new())
    }

    /// Moves due tasks to the lanes of their keys, and takes tasks from lanes whose limits
    /// allow it.
    async fn take_limited(
        &mut self,
        id: ClaimId,
        limit: usize,
        priority: i32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let mut rescan = false;
        let mut groups = self.heads.groups();
        groups.retain(|group| group.2 == priority);
        let known = self.limited.known.clone();
        let in_order =
            |(queue, class, _): &GroupId| known.may_be_in_order(plain_queue(queue), class);
        // Tasks of a limit in order must be in their lanes before one of them starts.
        let mut unseen: Vec<Lane> =
            groups.iter().filter(|g| in_order(g)).map(Lane::intake).collect();
        let due = self.heads.due_lanes(LaneKind::Intake, priority);
        unseen.retain(|lane| !due.iter().any(|d| d.queue == lane.queue && d.class == lane.class));
        for lane in &mut unseen {
            self.limited.move_due(&self.inner, lane, limit).await?;
        }
        for lane in due {
            let moved = self.limited.move_due(&self.inner, lane, limit).await?;
            let group = (limited_queue(&lane.queue), lane.class.clone(), priority);
            if !groups.contains(&group) {
                groups.push(group);
            }
            rescan |= moved < MOVED_ALL;
            // The class may have no limits any more.
            self.limits_are_known &= moved > 0;
        }
        groups.retain(|group| self.limited.is_due(group));
        if rescan {
            self.heads.invalidate();
        }
        let claim = (id, self.instance);
        for group in &groups {
            match self.limited.take(&self.inner, claim, limit, group).await? {
                LimitedTake::Tasks(tasks) => return Ok(tasks),
                LimitedTake::Nothing | LimitedTake::Contended => {}
                LimitedTake::Outdated => {
                    self.limits_are_known = false;
                    self.heads.invalidate();
                    return Ok(Vec::new());
                }
            }
        }
        Ok(Vec::new())
    }

    /// Takes from lanes without limits. Locked rows at the head of a lane hide nothing behind
    /// them.
    async fn take_plain(
        &mut self,
        id: ClaimId,
        limit: usize,
        priority: i32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let mut lanes = self.heads.due_lanes(LaneKind::Plain, priority);
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let take =
            TakeTasks { id, instance: self.instance, limit, priority, candidates: limit * 2 };
        let mut tasks = take.run(&self.inner, &mut lanes).await?;
        if tasks.is_empty() && lanes.len() > 1 {
            let take = TakeTasks { candidates: CANDIDATES_MAX, ..take };
            tasks = take.run(&self.inner, &mut lanes).await?;
        }
        if tasks.len() < limit {
            // These lanes are empty, or other claimers are faster.
            self.heads.invalidate();
        }
        // Or their class has limits now.
        self.limits_are_known &= !tasks.is_empty();
        Ok(tasks)
    }
}

fn without_tasks(rest: ClaimRest) -> Claim {
    Claim { tasks: Vec::new(), rest }
}

/// The row of a claimer in `idle_claimers`.
struct IdleRegistration {
    instance: InstanceId,
    /// Unique in the process, and so among the claimers of an engine.
    claimer: i64,
    queues: Vec<String>,
    lowest_priority: i32,
    /// Only tasks of these classes wake it, if the engine has other claimers for others.
    classes: Option<Vec<String>>,
    registration: Registration,
    /// When this claimer was last idle.
    last_idle: Instant,
}

enum Registration {
    /// Creators do not notify this claimer.
    Absent,
    /// Creators notify this claimer, except those whose transactions are older.
    Present {
        /// Transactions that wrote to the queue before the registration, and are still open.
        older: Vec<String>,
        /// After this time, check them again.
        recheck: Duration,
    },
}

impl IdleRegistration {
    fn new(instance: InstanceId, lanes: &Lanes) -> Self {
        static CLAIMERS: AtomicI64 = AtomicI64::new(0);
        Self {
            instance,
            claimer: CLAIMERS.fetch_add(1, Ordering::Relaxed),
            queues: lanes.queues.clone(),
            lowest_priority: lanes.lowest_priority,
            classes: lanes.divided_by_class.then(|| lanes.classes.clone()),
            registration: Registration::Absent,
            last_idle: Instant::now(),
        }
    }

    /// Whether every creator notifies this claimer.
    fn is_seen_by_all(&self) -> bool {
        matches!(&self.registration, Registration::Present { older, .. } if older.is_empty())
    }

    /// Makes the next scan count. A second call only checks the older transactions again.
    async fn register(&mut self, inner: &StoreInner) -> Result<(), StoreError> {
        let client = inner.connections.work().await?;
        if let Registration::Absent = self.registration {
            let Self { claimer, queues, lowest_priority, classes, .. } = &*self;
            client
                .execute(
                    &inner.schema.sql(REGISTER),
                    &[&self.instance.0, claimer, queues, lowest_priority, classes],
                )
                .await?;
        }
        let rows = client.query(&inner.schema.sql(OPEN_WRITERS), &[]).await?;
        let open: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        match &mut self.registration {
            // Those that began later have seen the row.
            Registration::Present { older, .. } => older.retain(|one| open.contains(one)),
            Registration::Absent => {
                self.registration = Registration::Present { older: open, recheck: RECHECK_MIN };
            }
        }
        Ok(())
    }

    /// The claimer is idle until the next task is due; or for a short time, if an older
    /// transaction is still open.
    fn begin(&mut self, next_in: Option<Duration>) -> Option<Duration> {
        self.last_idle = Instant::now();
        match &mut self.registration {
            Registration::Present { older, recheck } if !older.is_empty() => {
                let soon = *recheck;
                *recheck = (soon * 2).min(RECHECK_MAX);
                Some(next_in.map_or(soon, |next| next.min(soon)))
            }
            _ => next_in,
        }
    }

    /// After tasks were taken. Nothing depends on the removal, so an error only means that a
    /// later call tries again.
    async fn remove_if_busy(&mut self, inner: &StoreInner) {
        if matches!(self.registration, Registration::Absent)
            || self.last_idle.elapsed() < BUSY_AFTER
        {
            return;
        }
        if let Ok(client) = inner.connections.work().await
            && client
                .execute(&inner.schema.sql(UNREGISTER), &[&self.instance.0, &self.claimer])
                .await
                .is_ok()
        {
            self.registration = Registration::Absent;
        }
    }
}
