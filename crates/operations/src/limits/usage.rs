//! The use of limits: which attempts hold their keys, and which tasks wait for them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::display::{StepEntry, StepState};
use task_engine_core::instance::InstanceRow;
use task_engine_core::limit::{Holder, LaneUsage, LimitKey, LimitKeyUsage, LimitRow, LimitUsage};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;
use task_engine_store::activity::{Activity, ActivityQuery};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use super::{find, redact_key};
use crate::operator::OperationError;
use crate::why::WaitingHolder;

/// The most keys and lanes that are read.
pub const KEYS_READ_MAX: u32 = 500;
/// At most so many holders of a key are shown.
const HOLDERS_SHOWN_MAX: usize = 20;

/// All limits with their use.
#[derive(Debug, Clone, Serialize)]
pub struct LimitList {
    /// The limits, by name.
    pub limits: Vec<LimitSummary>,
    /// Whether there are more keys in use than were counted.
    pub and_more: bool,
    /// When this was read, by the database's clock.
    pub at: Timestamp,
}

/// A limit with its use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitSummary {
    /// The limit.
    #[serde(flatten)]
    pub row: LimitRow,
    /// How many running attempts count.
    pub running: usize,
    /// How many due tasks wait in lanes with this limit, blocked or not.
    pub waiting: BoundedCount,
    /// How many of them this limit keeps from starting now.
    pub blocked: BoundedCount,
    /// Since when the first of those has been due.
    pub blocked_since: Option<Timestamp>,
    /// How many keys are in use: they have a holder, a waiting task, or are closed.
    pub keys_in_use: usize,
    /// How many keys are closed.
    pub closed_keys: usize,
}

/// One limit with its keys.
#[derive(Debug, Clone, Serialize)]
pub struct LimitDetails {
    /// The limit.
    #[serde(flatten)]
    pub summary: LimitSummary,
    /// Its keys that are in use: those with the most blocked tasks first.
    pub keys: Vec<KeySummary>,
    /// Whether there are more keys in use than these.
    pub and_more: bool,
    /// When this was read, by the database's clock.
    pub at: Timestamp,
}

/// One key of a limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeySummary {
    /// The key; empty if the limit has none, or its tasks have no value for it.
    pub key: String,
    /// How many running attempts count.
    pub running: usize,
    /// The attempts that hold the key, or some if there are many.
    pub holders: Vec<LimitHolder>,
    /// How many due tasks wait for this key, blocked or not.
    pub waiting: BoundedCount,
    /// How many of them the key keeps from starting now.
    pub blocked: BoundedCount,
    /// Since when the first of those has been due.
    pub blocked_since: Option<Timestamp>,
    /// What the next start waits for; `None` if it may be now.
    pub waits_for: Option<KeyWait>,
    /// The earliest time of the next start by the rate and by closing, if it is not now.
    pub next_start_at: Option<Timestamp>,
    /// When the last attempt of the key started.
    pub last_start_at: Option<Timestamp>,
    /// Set while the key is closed.
    pub closed: Option<KeyClosing>,
    /// Its share compared with other keys.
    pub weight: u32,
}

/// The reason why the next start of a key waits, of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyWait {
    /// The key is closed.
    Closed,
    /// The most attempts that may run are running.
    Running,
    /// A task that runs in order comes first.
    Order,
    /// There were as many starts as may be.
    Rate,
}

impl KeyWait {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Closed, Self::Running, Self::Order, Self::Rate];

    /// Returns the text for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Closed => "until it opens",
            Self::Running => "until an attempt ends",
            Self::Order => "until the first task ends",
            Self::Rate => "by the rate",
        }
    }
}

/// The reason why a key starts no attempts for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyClosing {
    /// Until when.
    pub until: Timestamp,
    /// The message of the failure that closed it.
    pub because: String,
}

/// An attempt that holds a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitHolder {
    /// The task.
    pub task_id: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Whether it runs.
    ///
    /// If not, its task holds a key in order and waits.
    pub is_running: bool,
    /// Since when it runs.
    pub since: Option<Timestamp>,
    /// The engine that runs it.
    pub instance: Option<String>,
    /// Whether that engine counts as alive.
    pub engine_is_alive: bool,
    /// When its task is due again, if it waits and that is known.
    pub due_at: Option<Timestamp>,
    /// The number of the retry that its task waits for; 0 if that is none, or not known.
    pub retry: i32,
    /// What its task is suspended for, if it is and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_for: Option<SuspendedFor>,
}

/// The event for which a durable task that holds a key in order waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SuspendedFor {
    /// The end of a sleep.
    Sleep,
    /// A signal.
    Signal {
        /// Its name.
        signal: String,
    },
    /// Child tasks.
    Children {
        /// All children of the call, also those that have ended.
        children: Vec<TaskId>,
    },
}

impl SuspendedFor {
    fn of(steps: &[StepEntry]) -> Option<Self> {
        let calls = steps.iter().filter(|step| step.state == StepState::Running);
        let children: Vec<_> = calls.flat_map(|step| step.children.iter().copied()).collect();
        if !children.is_empty() {
            return Some(Self::Children { children });
        }
        steps.iter().find_map(|step| match step.state {
            StepState::Waiting => Some(Self::Signal { signal: step.name.clone() }),
            StepState::Sleeping => Some(Self::Sleep),
            _ => None,
        })
    }
}

impl LimitHolder {
    /// Creates a holder, with what is known about its attempt.
    #[must_use]
    pub fn of(holder: &Holder, activity: &Activity, engines: &[InstanceRow]) -> Self {
        let id = holder.attempt;
        let held = activity.held.iter().find(|held| held.task_id == id.task_id);
        let engine = held.and_then(|held| engines.iter().find(|it| it.id == held.instance_id));
        Self {
            task_id: id.task_id,
            attempt: id.attempt,
            is_running: holder.is_running,
            since: held.map(|held| held.claimed_at),
            instance: engine.map(|engine| engine.name.clone()),
            engine_is_alive: engine.is_none_or(InstanceRow::is_alive),
            due_at: None,
            retry: 0,
            suspended_for: None,
        }
    }

    /// Adds what is known about its task, if the task waits.
    #[must_use]
    pub fn waiting_as(self, task: Option<&WaitingHolder>) -> Self {
        match task.filter(|_| !self.is_running) {
            None => self,
            Some(WaitingHolder { row, open_steps }) => Self {
                due_at: Some(row.scheduled_at),
                retry: row.retry_number,
                suspended_for: SuspendedFor::of(open_steps),
                ..self
            },
        }
    }
}

/// Returns all limits with their use, in a few bounded reads.
pub async fn list(store: &dyn Store) -> Result<LimitList, StoreError> {
    let rows = store.limits().await?;
    let facts = UsageFacts::read(store, None).await?;
    let limits = rows.into_iter().map(|row| facts.summary(row)).collect();
    Ok(LimitList { limits, and_more: facts.usage.and_more, at: facts.activity.now })
}

/// Returns one limit with its keys, in a few bounded reads.
pub async fn show(store: &dyn Store, name: &str) -> Result<LimitDetails, OperationError> {
    let row = find(store, name).await?;
    let facts = UsageFacts::read(store, Some(&row)).await?;
    Ok(facts.details(row))
}

/// What is read about the use of limits.
pub(crate) struct UsageFacts {
    pub(crate) usage: LimitUsage,
    pub(crate) activity: Activity,
    pub(crate) engines: Vec<InstanceRow>,
}

impl UsageFacts {
    pub(crate) async fn read(
        store: &dyn Store,
        limit: Option<&LimitRow>,
    ) -> Result<Self, StoreError> {
        let usage = store.limit_usage(limit.map(|row| row.id), KEYS_READ_MAX).await?;
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let engines = store.instances(None).await?;
        Ok(Self { usage, activity, engines })
    }

    pub(crate) fn summary(&self, row: LimitRow) -> LimitSummary {
        self.details(row).summary
    }

    pub(crate) fn details(&self, row: LimitRow) -> LimitDetails {
        let mut keys = self.keys(&row);
        let mut sum = LimitSummary {
            running: keys.iter().map(|key| key.running).sum(),
            waiting: BoundedCount::default(),
            blocked: BoundedCount::default(),
            blocked_since: keys.iter().filter_map(|key| key.blocked_since).min(),
            keys_in_use: keys.len(),
            closed_keys: keys.iter().filter(|key| key.closed.is_some()).count(),
            row,
        };
        for key in &keys {
            add(&mut sum.waiting, key.waiting);
            add(&mut sum.blocked, key.blocked);
        }
        keys.sort_by(|one, other| {
            let rank = |key: &KeySummary| (key.blocked.counted, key.running, key.waiting.counted);
            rank(other).cmp(&rank(one)).then_with(|| one.key.cmp(&other.key))
        });
        keys.iter_mut().for_each(|key| redact_key(&sum.row, &mut key.key, &self.engines));
        let and_more = self.usage.and_more;
        LimitDetails { summary: sum, keys, and_more, at: self.activity.now }
    }

    /// The keys of a limit that are in use.
    fn keys(&self, row: &LimitRow) -> Vec<KeySummary> {
        let mut keys: BTreeMap<&str, KeySummary> = BTreeMap::new();
        for usage in self.usage.keys.iter().filter(|usage| usage.limit == row.id) {
            let key = self.key(row, usage);
            if !key.holders.is_empty() || key.waits_for.is_some() {
                keys.insert(&usage.key, key);
            }
        }
        for lane in &self.usage.lanes {
            let own = lane.lane_key.0.iter().filter(|LimitKey(limit, _)| *limit == row.id);
            for LimitKey(_, name) in own {
                let key = keys.entry(name).or_insert_with(|| KeySummary::new(row, name));
                key.add_lane(lane);
            }
        }
        keys.into_values().collect()
    }

    fn key(&self, row: &LimitRow, usage: &LimitKeyUsage) -> KeySummary {
        // Stores may count the attempts of a limit without a maximum: they hold nothing.
        let holds = row.limit.options.max_running().is_some();
        let all = usage.holders.iter().filter(|_| holds);
        let holders = all
            .clone()
            .take(HOLDERS_SHOWN_MAX)
            .map(|it| LimitHolder::of(it, &self.activity, &self.engines));
        KeySummary {
            running: all.filter(|holder| holder.is_running).count(),
            holders: holders.collect(),
            waits_for: key_wait(row, usage),
            next_start_at: next_start_at(usage, self.activity.now),
            last_start_at: usage.last_start_at,
            closed: closing(usage),
            ..KeySummary::new(row, &usage.key)
        }
    }
}

impl KeySummary {
    fn new(row: &LimitRow, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            running: 0,
            holders: Vec::new(),
            waiting: BoundedCount::default(),
            blocked: BoundedCount::default(),
            blocked_since: None,
            waits_for: None,
            next_start_at: None,
            last_start_at: None,
            closed: None,
            weight: row.limit.options.weights.get(key).copied().unwrap_or(1),
        }
    }

    fn add_lane(&mut self, lane: &LaneUsage) {
        add(&mut self.waiting, lane.waiting);
        if self.waits_for.is_none() {
            return;
        }
        if lane.waiting.counted > 0 {
            add(&mut self.blocked, lane.waiting);
            let since = self.blocked_since.unwrap_or(lane.due_since);
            self.blocked_since = Some(since.min(lane.due_since));
        }
    }
}

/// What the next start of a key waits for.
pub(crate) fn key_wait(row: &LimitRow, usage: &LimitKeyUsage) -> Option<KeyWait> {
    let options = &row.limit.options;
    let running = usage.holders.iter().filter(|holder| holder.is_running).count();
    if usage.closed.is_some() {
        Some(KeyWait::Closed)
    } else if options.in_order && !usage.holders.is_empty() {
        Some(KeyWait::Order)
    } else if options.max_running().is_some_and(|max| running >= max as usize) {
        Some(KeyWait::Running)
    } else if options.rate.is_some() && usage.next_start_in.is_some() {
        Some(KeyWait::Rate)
    } else {
        None
    }
}

/// The earliest time of the next start, if it is known and not now.
pub(crate) fn next_start_at(usage: &LimitKeyUsage, now: Timestamp) -> Option<Timestamp> {
    let in_time = usage.next_start_in.and_then(|time| now.checked_add(time).ok());
    in_time.max(usage.closed.as_ref().map(|(until, _)| *until))
}

/// Why a key is closed, if it is.
pub(crate) fn closing(usage: &LimitKeyUsage) -> Option<KeyClosing> {
    let (until, because) = usage.closed.clone()?;
    Some(KeyClosing { until, because })
}

fn add(sum: &mut BoundedCount, more: BoundedCount) {
    sum.counted += more.counted;
    sum.and_more |= more.and_more;
}
