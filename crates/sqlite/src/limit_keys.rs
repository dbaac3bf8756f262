//! The state of keys: which attempts hold them, and when attempts have started.

use std::collections::HashMap;

use jiff::SignedDuration;
use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::json::Json;
use task_engine_core::limit::{
    KeyState, LaneKey, LimitKey, LimitOptions, Rate, RecentStart, plain_queue,
};
use task_engine_core::task::TaskId;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::Head;
use crate::limits::LimitSet;
use crate::moment::{between, micros};
use crate::value::read;

/// A key with the attempts that hold it.
#[derive(Debug)]
pub(crate) struct LoadedKey {
    pub(crate) key: LimitKey,
    /// Attempts that run, and those whose task holds a key in order and waits.
    pub(crate) holders: Vec<KeyHolder>,
    /// For a limit in order: where the task waits that holds the key.
    pub(crate) waiting_holder: Option<WaitingHolder>,
    /// How many attempts start with this claim.
    started: usize,
}

/// An attempt that holds a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHolder {
    pub(crate) id: AttemptId,
    pub(crate) is_running: bool,
}

/// A waiting task that holds a key in order.
#[derive(Debug, Clone)]
pub(crate) struct WaitingHolder {
    pub(crate) head: Head,
    /// Without the mark of limited lanes.
    pub(crate) queue: String,
    pub(crate) class: String,
    pub(crate) priority: i64,
    /// Its lane; `None` if it was not moved to one yet.
    pub(crate) lane_key: Option<String>,
    pub(crate) parameters: Json,
    pub(crate) context: Json,
}

impl LoadedKey {
    /// Reads the state of a key, for a claim that wants this many starts.
    pub(crate) fn read(
        tx: &JobTransaction<'_>,
        limits: &LimitSet,
        key: &LimitKey,
        wanted: usize,
    ) -> Result<(Self, KeyState), JobError> {
        let mut loaded =
            Self { key: key.clone(), holders: Vec::new(), waiting_holder: None, started: 0 };
        let mut state = KeyState::default();
        let Some(limit) = limits.get(key.0) else {
            return Ok((loaded, state));
        };
        let weights = &limit.options.weights;
        state.closed_for = closed(tx, key)?.map(|(until, _)| between(tx.now(), until));
        state.weight = weights.get(&key.1).map_or(1, |weight| *weight as usize);
        state.options = limits.options_without_weights(key.0);
        if limit.options.has_state() {
            loaded.read_holders(tx, limits, &limit.options, &mut state)?;
            if let Some(rate) = limit.options.rate {
                read_starts(tx, key, rate, wanted, &mut state)?;
            }
        }
        Ok((loaded, state))
    }

    fn read_holders(
        &mut self,
        tx: &JobTransaction<'_>,
        limits: &LimitSet,
        options: &LimitOptions,
        state: &mut KeyState,
    ) -> Result<(), JobError> {
        let LimitKey(limit, key) = &self.key;
        let mut total = tx.db.prepare_cached(sql!("engine/limits", "key_total"))?;
        let total: Option<i64> =
            total.query_row(params![limit.0, key], |row| read(row, 0)).optional()?;
        let Some(total) = total else {
            return Ok(());
        };
        state.total = total;
        let mut statement = tx.db.prepare_cached(sql!("engine/limits", "key_holders"))?;
        let holders = statement.query_map(params![limit.0, key], |row| {
            let id = AttemptId { task_id: TaskId(read(row, 0)?), attempt: read(row, 1)? };
            Ok(KeyHolder { id, is_running: read(row, 2)? })
        })?;
        self.holders = holders.collect::<rusqlite::Result<_>>()?;
        if options.in_order {
            self.find_holder(tx, limits, state)?;
        } else {
            self.holders.retain(|holder| holder.is_running);
        }
        state.running = self.holders.iter().filter(|holder| holder.is_running).count();
        Ok(())
    }

    /// The key belongs to the first task that has not ended. A waiting task whose key was
    /// edited has left it.
    fn find_holder(
        &mut self,
        tx: &JobTransaction<'_>,
        limits: &LimitSet,
        state: &mut KeyState,
    ) -> Result<(), JobError> {
        for holder in std::mem::take(&mut self.holders) {
            let task = holder.id.task_id;
            if !holder.is_running {
                let Some(waiting) = waiting_holder(tx, task)? else { continue };
                if !waiting.lane_key(limits).0.contains(&self.key) {
                    continue;
                }
                if state.held_by.is_none() {
                    self.waiting_holder = Some(waiting);
                }
            }
            state.held_by.get_or_insert(task);
            self.holders.push(holder);
        }
        Ok(())
    }

    /// An attempt starts.
    fn start(&mut self, state: &mut KeyState, id: AttemptId) {
        let Some(options) = &state.options else { return };
        if !options.has_state() {
            return;
        }
        self.started += 1;
        state.total += 1;
        state.running += 1;
        state.last_claim = Some(SignedDuration::ZERO);
        state.starts.push(RecentStart { total: state.total, ago: SignedDuration::ZERO });
        if options.in_order {
            state.held_by = Some(id.task_id);
            self.waiting_holder = None;
            self.holders.retain(|holder| holder.id.task_id != id.task_id);
        }
        self.holders.push(KeyHolder { id, is_running: true });
    }

    /// Stores the state, if attempts have started.
    fn write(&self, tx: &JobTransaction<'_>, state: &KeyState) -> Result<(), JobError> {
        if self.started == 0 {
            return Ok(());
        }
        let holders: Vec<AttemptId> = self.holders.iter().map(|holder| holder.id).collect();
        write_key(tx, &self.key, state.total, &holders)?;
        let Some(rate) = state.options.as_ref().and_then(|options| options.rate) else {
            return Ok(());
        };
        let LimitKey(limit, key) = &self.key;
        // Times only grow.
        let until = tx.moment.after(rate.start_within());
        let until = last_start(tx, &self.key)?.map_or(until, |last| until.max(last));
        tx.db.prepare_cached(sql!("engine/limits", "start_insert"))?.execute(params![
            limit.0,
            key,
            state.total,
            until
        ])?;
        let first = state.total + 1 - i64::from(rate.max);
        tx.db
            .prepare_cached(sql!("engine/limits", "starts_delete"))?
            .execute(params![limit.0, key, first])?;
        Ok(())
    }
}

impl WaitingHolder {
    /// The limits of the task with their keys.
    pub(crate) fn lane_key(&self, limits: &LimitSet) -> LaneKey {
        limits.lane_key(&self.class, &self.queue, &self.parameters, &self.context)
    }
}

/// Stores which attempts hold a key, and how many have started.
pub(crate) fn write_key(
    tx: &JobTransaction<'_>,
    LimitKey(limit, key): &LimitKey,
    total: i64,
    holders: &[AttemptId],
) -> Result<(), JobError> {
    let holders: Vec<_> = holders.iter().map(|id| (id.task_id.0, id.attempt)).collect();
    let holders = serde_json::to_string(&holders)?;
    tx.db.prepare_cached(sql!("engine/limits", "key_write"))?.execute(params![
        limit.0,
        key,
        total,
        tx.now(),
        holders
    ])?;
    Ok(())
}

fn read_starts(
    tx: &JobTransaction<'_>,
    of: &LimitKey,
    rate: Rate,
    wanted: usize,
    state: &mut KeyState,
) -> Result<(), JobError> {
    let LimitKey(limit, key) = of;
    let ago = |until: i64| SignedDuration::from_micros(tx.now().saturating_sub(until));
    let first = state.total + 1 - i64::from(rate.max);
    let wanted = wanted.clamp(1, rate.max as usize) as i64;
    let mut starts = tx.db.prepare_cached(sql!("engine/limits", "starts"))?;
    let starts = starts.query_map(params![limit.0, key, first, wanted], |row| {
        Ok(RecentStart { total: read(row, 0)?, ago: ago(read(row, 1)?) })
    })?;
    state.starts = starts.collect::<rusqlite::Result<_>>()?;
    // Even spacing is between claims.
    let within = micros(rate.start_within());
    state.last_claim = last_start(tx, of)?.map(|until| ago(until - within));
    Ok(())
}

/// Corrects starts of a key that are in the future: the clock was set back. They count as if
/// they came now, so that the rate holds, and the key does not wait for the time of the old
/// clock. Whether there were any.
fn correct_starts(
    tx: &JobTransaction<'_>,
    LimitKey(limit, key): &LimitKey,
    state: &KeyState,
) -> Result<bool, JobError> {
    let latest = SignedDuration::try_from(Rate::START_WITHIN_MAX).unwrap_or_default();
    let is_ahead = |ago: SignedDuration| ago < -latest;
    if !state.last_claim.is_some_and(is_ahead) && !state.starts.iter().any(|one| is_ahead(one.ago))
    {
        return Ok(false);
    }
    let latest = tx.moment.after(Rate::START_WITHIN_MAX);
    let mut correct = tx.db.prepare_cached(sql!("engine/limits", "correct_starts"))?;
    let corrected = correct.execute(params![limit.0, key, latest])?;
    if corrected > 0 {
        tracing::warn!(
            starts = corrected,
            "the clock was set back: recent starts of tasks with a rate count as if they came now"
        );
    }
    Ok(corrected > 0)
}

/// Until when a key is closed, and why.
pub(crate) fn closed(
    tx: &JobTransaction<'_>,
    LimitKey(limit, key): &LimitKey,
) -> Result<Option<(i64, String)>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/limits", "closed_key"))?;
    let closed = statement
        .query_row(params![limit.0, key], |row| Ok((read::<i64>(row, 0)?, read(row, 1)?)))
        .optional()?;
    Ok(closed.filter(|(until, _)| *until > tx.now()))
}

/// By when the last attempt of a key has started.
pub(crate) fn last_start(
    tx: &JobTransaction<'_>,
    LimitKey(limit, key): &LimitKey,
) -> Result<Option<i64>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/limits", "last_start"))?;
    Ok(statement.query_row(params![limit.0, key], |row| read(row, 0)).optional()?)
}

fn waiting_holder(
    tx: &JobTransaction<'_>,
    task: TaskId,
) -> Result<Option<WaitingHolder>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/limits", "waiting_holder"))?;
    let found = statement.query_row([task.0], |row| {
        Ok(WaitingHolder {
            head: Head { due_at: read(row, 4)?, task_id: task.0 },
            queue: plain_queue(&read::<String>(row, 0)?).to_owned(),
            class: read(row, 1)?,
            priority: read(row, 2)?,
            lane_key: read(row, 3)?,
            parameters: read(row, 5)?,
            context: read(row, 6)?,
        })
    });
    Ok(found.optional()?)
}

/// The keys that a claim has read.
#[derive(Debug, Default)]
pub(crate) struct LoadedKeys {
    places: HashMap<LimitKey, usize>,
    pub(crate) keys: Vec<LoadedKey>,
    /// In the same order.
    pub(crate) states: Vec<KeyState>,
}

impl LoadedKeys {
    /// The place of a key in the lists.
    pub(crate) fn place(
        &mut self,
        tx: &JobTransaction<'_>,
        limits: &LimitSet,
        key: &LimitKey,
        wanted: usize,
    ) -> Result<usize, JobError> {
        if let Some(place) = self.places.get(key) {
            return Ok(*place);
        }
        let place = self.keys.len();
        let (mut loaded, mut state) = LoadedKey::read(tx, limits, key, wanted)?;
        if correct_starts(tx, key, &state)? {
            (loaded, state) = LoadedKey::read(tx, limits, key, wanted)?;
        }
        self.keys.push(loaded);
        self.states.push(state);
        self.places.insert(key.clone(), place);
        Ok(place)
    }

    /// An attempt with these keys starts.
    pub(crate) fn start(&mut self, places: &[usize], id: AttemptId) {
        for place in places {
            self.keys[*place].start(&mut self.states[*place], id);
        }
    }

    /// Stores the states of keys that have started attempts.
    pub(crate) fn write(&self, tx: &JobTransaction<'_>) -> Result<(), JobError> {
        self.keys.iter().zip(&self.states).try_for_each(|(key, state)| key.write(tx, state))
    }
}
