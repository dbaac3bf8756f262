//! Lanes of tasks with limits, as a claimer goes round them.
//!
//! Due tasks are moved from the lane of their class to the lanes of their keys
//! ([`LimitedLanes::move_due`]). Each claim continues after the last lane that has started its
//! share ([`LimitedLanes::take`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{LaneKey, limited_queue, plain_queue};
use task_engine_core::task::TaskId;
use task_engine_store::claim::ClaimedTask;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::{Executor as _, PooledConnection};
use crate::known_lanes::{BEGINNING, KnownLanes, LaneReader, is_slow};
use crate::known_limits::KnownLimits;
use crate::limited_claim::LaneClaim;
use crate::queue_heads::Lane;
use crate::store::StoreInner;
use crate::value::{RawTime, read};

const SQL: &str = include_str!("../sql/engine/limits.sql");
const MOVE_TO_LANES: &str = statement(SQL, "move_to_lanes");
const MOVE_IN_ORDER: &str = statement(SQL, "move_in_order");
pub(crate) const LIMITED_LANES: &str = statement(SQL, "limited_lanes");
pub(crate) const NAMED_LANES: &str = statement(SQL, "named_lanes");

/// How many due tasks one claim moves to lanes: at least, and at most.
const MOVE_MIN: usize = 500;
const MOVE_MAX: usize = 5_000;
/// How many lanes a claim reads at a time: as many as give this many tasks each, if that
/// was enough the last time.
const TASKS_PER_LANE: usize = 12;
const LANES_MIN: usize = 8;
const LANES_MAX: usize = 512;
/// How many lanes that tasks were moved to are read first.
const FRESH_MAX: usize = 64;
/// So many slow reads in a row are no coincidence: positions are kept.
const SLOW_READS: u32 = 3;
/// How long no positions are kept after a scan that was fast, or found too many lanes.
const NO_POSITIONS_FOR: Duration = Duration::from_secs(5);
/// How often a claim reads more lanes if it may start nothing in the first ones.
const ROUNDS: usize = 4;

/// The lanes of all keys of a queue (with its prefix), class and priority.
pub(crate) type GroupId = (String, String, i32);

/// What a claimer remembers about limits between claims.
#[derive(Default)]
pub(crate) struct LimitedLanes {
    pub(crate) known: Arc<KnownLimits>,
    groups: HashMap<GroupId, Group>,
}

#[derive(Default)]
pub(crate) struct Group {
    /// The last lane that was read; the next claim continues after it.
    position: String,
    /// Lanes that tasks were just moved to: they are read first.
    pub(crate) fresh: Vec<String>,
    /// When the first lane may start a task, of those that wait for a time.
    next_at: Option<Instant>,
    /// Set if no lane can start a task.
    blocked: Option<Blocked>,
    /// The lane where the current round began.
    round: Option<String>,
    /// A lane that has started fewer tasks than its weight allows, and how many.
    unfinished: Option<(String, usize)>,
    /// Of a limit in order: due tasks after this position may not be in their lanes yet.
    pub(crate) moved_up_to: Option<(RawTime, i64)>,
    /// More lanes are read if the last ones gave too few tasks: this many times as many.
    widened: usize,
    /// The lanes with their positions, while there are many dead rows.
    known_lanes: Option<KnownLanes>,
    /// Positions are not kept before this time: they were not needed.
    no_positions_until: Option<Instant>,
    /// How many reads in a row were slow.
    slow_reads: u32,
}

struct Blocked {
    /// Until then, if a lane waits for a time. Otherwise until an attempt ends.
    until: Option<Instant>,
}

/// A lane with tasks, and the first of them.
pub(crate) struct ReadLane {
    pub(crate) text: String,
    /// Of a lane in order, the keys of the task that may start next.
    pub(crate) keys: LaneKey,
    pub(crate) head: TaskId,
    pub(crate) due_at: RawTime,
    /// The first task of the lane that was read, which is not always the one that may start.
    first: TaskId,
}

impl ReadLane {
    /// Where the lane begins, as far as it was read.
    pub(crate) fn position(&self) -> (RawTime, i64) {
        (self.due_at, self.first.0)
    }
}

/// The reply to an attempt to take tasks.
pub(crate) enum LimitedTake {
    Tasks(Vec<ClaimedTask>),
    /// Nothing may start now, or nothing waits.
    Nothing,
    /// Another claim was faster, or there are more lanes to read.
    Contended,
    /// The limits have changed.
    Outdated,
}

impl LimitedLanes {
    /// Lanes may be free again: an attempt has ended, or tasks were created.
    pub(crate) fn unblock(&mut self) {
        for group in self.groups.values_mut() {
            group.blocked = None;
        }
    }

    /// Whether tasks of this group may be able to start.
    pub(crate) fn is_due(&self, id: &GroupId) -> bool {
        self.groups.get(id).is_none_or(|group| match &group.blocked {
            None => true,
            Some(Blocked { until }) => until.is_some_and(|at| at <= Instant::now()),
        })
    }

    /// When the first blocked lane of these groups may start a task, if that is known.
    pub(crate) fn next_in<'a>(&self, ids: impl Iterator<Item = &'a GroupId>) -> Option<Duration> {
        let until = |id| self.groups.get(id)?.blocked.as_ref()?.until;
        ids.filter_map(until).min().map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Moves due tasks of a lane to the lanes of their keys. Returns how many.
    pub(crate) async fn move_due(
        &mut self,
        inner: &StoreInner,
        lane: &mut Lane,
        limit: usize,
    ) -> Result<i64, StoreError> {
        let in_order = self.known.may_be_in_order(&lane.queue, &lane.class);
        let first = i64::try_from((limit * 2).clamp(MOVE_MIN, MOVE_MAX)).unwrap_or(i64::MAX);
        let (from, from_id) = lane.from;
        let client = inner.connections.work().await?;
        let sql = if in_order { MOVE_IN_ORDER } else { MOVE_TO_LANES };
        let rows = client
            .query_cached(
                &inner.schema.sql(sql),
                &[&lane.queue, &lane.class, &lane.priority, &from, &from_id, &first, &(first / 4)],
            )
            .await?;
        let id = (limited_queue(&lane.queue), lane.class.clone(), lane.priority);
        let group = self.groups.entry(id).or_default();
        group.moved_up_to = None;
        let mut moved = 0;
        for row in &rows {
            moved += row.get::<_, i64>("tasks");
            let lane_key: String = read(row, "lane_key");
            if let Some(lanes) = &mut group.known_lanes {
                lanes.forget(&lane_key);
            }
            if group.fresh.len() < FRESH_MAX {
                group.fresh.push(lane_key);
            }
            if let (Some(due_at), Some(task)) = (row.get("due_at"), row.get("task_id")) {
                lane.from = (due_at, task);
            }
        }
        if moved > 0 {
            group.blocked = None;
        }
        if in_order && moved >= first {
            group.moved_up_to = Some(lane.from);
        }
        Ok(moved)
    }

    /// Takes up to `limit` tasks from the lanes of a group.
    pub(crate) async fn take(
        &mut self,
        inner: &StoreInner,
        claim: (ClaimId, InstanceId),
        limit: usize,
        id: &GroupId,
    ) -> Result<LimitedTake, StoreError> {
        let known = self.known.clone();
        let group = self.groups.entry(id.clone()).or_default();
        (group.blocked, group.round, group.next_at) = (None, None, None);
        let began = Instant::now();
        let mut contended = false;
        for _ in 0..ROUNDS {
            let keep_positions = !known.may_be_in_order(plain_queue(&id.0), &id.1);
            group.refresh_positions(inner, id, keep_positions).await?;
            let (lanes, is_last) = group.read_lanes(inner, id, limit).await?;
            let claim = LaneClaim { inner, known: &known, claim, id, limit };
            let count = lanes.len();
            let Some(mut lanes) = claim.with_current_keys(lanes, group).await? else {
                return Ok(LimitedTake::Outdated);
            };
            contended |= lanes.len() < count;
            if let Some((lane, started)) = &group.unfinished
                && let Some(first) = lanes.first()
                && first.text == *lane
                && known.lane_weight(&first.keys) >= started + limit
            {
                // The rest of its share.
                lanes.truncate(1);
            }
            let outcome = claim.run(&lanes).await?;
            if let Some(next_in) = outcome.next_in {
                let at = Instant::now() + next_in;
                group.next_at = Some(group.next_at.map_or(at, |next| next.min(at)));
            }
            match outcome.take {
                LimitedTake::Tasks(tasks) => {
                    group.continue_after(&known, &lanes, outcome.last);
                    if tasks.len() >= limit {
                        group.widened /= 2;
                    } else if tasks.len() < limit / 2 {
                        group.widened *= 2;
                    }
                    return Ok(LimitedTake::Tasks(tasks));
                }
                LimitedTake::Outdated => return Ok(LimitedTake::Outdated),
                LimitedTake::Contended => contended = true,
                LimitedTake::Nothing => {}
            }
            group.widened *= 2;
            if is_last {
                if contended {
                    return Ok(LimitedTake::Contended);
                }
                let mut until = group.next_at.take();
                if let Some(lanes) = &mut group.known_lanes {
                    if !lanes.has_looked_since(began) {
                        lanes
                            .look_for_new(&reader(&inner.connections.work().await?, inner, id))
                            .await?;
                        group.round = None;
                        continue;
                    }
                    // Until then, a task before the position of its lane is not seen.
                    let scan_at = lanes.next_scan_at();
                    until = Some(until.map_or(scan_at, |until| until.min(scan_at)));
                }
                group.blocked = Some(Blocked { until });
                return Ok(LimitedTake::Nothing);
            }
        }
        Ok(LimitedTake::Contended)
    }
}

impl Group {
    /// The next lanes, and whether all lanes were read since the round began.
    async fn read_lanes(
        &mut self,
        inner: &StoreInner,
        id: &GroupId,
        limit: usize,
    ) -> Result<(Vec<ReadLane>, bool), StoreError> {
        self.widened = self.widened.clamp(1, LANES_MAX);
        let count = (limit / TASKS_PER_LANE * self.widened).clamp(LANES_MIN, LANES_MAX);
        let client = inner.connections.work().await?;
        let reader = reader(&client, inner, id);
        if !self.fresh.is_empty() {
            let mut named = std::mem::take(&mut self.fresh);
            named.sort_unstable();
            named.dedup();
            let named: Vec<_> = named.into_iter().map(|text| (text, BEGINNING)).collect();
            return Ok((reader.named(&named).await?, false));
        }
        let began = self.round.get_or_insert_with(|| self.position.clone()).clone();
        let has_wrapped = self.position < began;
        let position = self.position.clone();
        let mut lanes = self.lanes_after(&reader, &position, count).await?;
        let mut is_last = lanes.len() < count;
        if is_last && !has_wrapped && !began.is_empty() {
            // From the first lane on, up to the one where the round began.
            let left = count - lanes.len();
            let more = self.lanes_after(&reader, "", left).await?;
            is_last = more.len() < left;
            lanes.extend(more);
        }
        if has_wrapped || lanes.first().is_some_and(|first| first.text <= began) {
            let known = lanes.iter().position(|lane| lane.text > began);
            is_last |= known.is_some();
            lanes.truncate(known.unwrap_or(lanes.len()));
        } else if let Some(wrapped) = lanes.iter().position(|lane| lane.text <= began) {
            let known = lanes[wrapped..].iter().position(|lane| lane.text > began);
            is_last |= known.is_some();
            lanes.truncate(known.map_or(lanes.len(), |known| wrapped + known));
        }
        if let Some(last) = lanes.last() {
            self.position.clone_from(&last.text);
        }
        Ok((lanes, is_last))
    }

    /// The next lanes with tasks after a lane key; fewer than `count` if there are no more.
    async fn lanes_after(
        &mut self,
        reader: &LaneReader<'_>,
        position: &str,
        count: usize,
    ) -> Result<Vec<ReadLane>, StoreError> {
        if let Some(lanes) = &mut self.known_lanes {
            return lanes.after(reader, position, count).await;
        }
        let began = Instant::now();
        let lanes = reader.after(position, count).await?;
        let slow = is_slow(began.elapsed(), lanes.len());
        self.slow_reads = if slow { self.slow_reads + 1 } else { 0 };
        Ok(lanes)
    }

    /// Keeps positions while reads without them are slow, and looks for lanes and tasks that
    /// positions hide.
    async fn refresh_positions(
        &mut self,
        inner: &StoreInner,
        id: &GroupId,
        keep_positions: bool,
    ) -> Result<(), StoreError> {
        let now = Instant::now();
        let scan = match &self.known_lanes {
            Some(lanes) => lanes.next_scan_at() <= now,
            None => {
                self.slow_reads >= SLOW_READS && self.no_positions_until.is_none_or(|at| at <= now)
            }
        };
        if !keep_positions {
            self.known_lanes = None;
        } else if scan {
            let client = inner.connections.work().await?;
            self.slow_reads = 0;
            self.known_lanes = KnownLanes::scan(&reader(&client, inner, id)).await?;
            let unused = self.known_lanes.is_none();
            self.no_positions_until = unused.then(|| now + NO_POSITIONS_FOR);
        } else if let Some(lanes) = self.known_lanes.as_mut().filter(|lanes| lanes.should_look()) {
            let client = inner.connections.work().await?;
            lanes.look_for_new(&reader(&client, inner, id)).await?;
        }
        Ok(())
    }

    /// The next claim continues after the last lane that has started its share.
    fn continue_after(&mut self, known: &KnownLimits, lanes: &[ReadLane], last: (usize, usize)) {
        let (place, tasks) = last;
        let Some(lane) = lanes.get(place) else { return };
        let before = match self.unfinished.take() {
            Some((text, started)) if text == lane.text => started,
            _ => 0,
        };
        if before + tasks < known.lane_weight(&lane.keys) {
            self.unfinished = Some((lane.text.clone(), before + tasks));
            if place > 0 {
                self.position.clone_from(&lanes[place - 1].text);
            } else {
                // The lane before it in the index: the next lane is the same again.
                self.position = self.round.clone().unwrap_or_default();
            }
        } else {
            self.position.clone_from(&lane.text);
        }
    }
}

fn reader<'a>(
    client: &'a PooledConnection,
    inner: &'a StoreInner,
    id: &'a GroupId,
) -> LaneReader<'a> {
    LaneReader { client, schema: &inner.schema, id }
}

pub(crate) fn read_lane(row: &Row) -> ReadLane {
    let text: String = read(row, "lane_key");
    let keys = LaneKey::parse(&text).unwrap_or_else(|| {
        tracing::error!("the lane key {text:?} cannot be read");
        LaneKey::default()
    });
    let first = TaskId(row.get("task_id"));
    ReadLane { keys, text, head: first, due_at: row.get("due_at"), first }
}
