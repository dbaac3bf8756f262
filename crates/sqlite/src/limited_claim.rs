//! Claims of tasks with limits: which lanes may start tasks, and how many.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::params;
use task_engine_core::limit::{
    Grant, KeyState, LaneKey, LaneLimits, LaneWait, LimitKey, grant, limited_queue,
};
use task_engine_core::task::TaskId;
use task_engine_store::claim::LimitedStart;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::{Head, Waiting, claimed_task};
use crate::limit_keys::LoadedKeys;
use crate::limited_lanes::{
    LaneCursor, LanePlace, Pair, Turns, first_of, move_due, move_one, move_outdated,
};
use crate::limits::LimitSet;
use crate::moment::between;
use crate::value::read;

/// A claim reads at most so many lanes of a priority. If all of them are blocked and there
/// are more, the next claim continues soon.
const LANES_MAX: usize = 1000;
const CONTINUE_AFTER: Duration = Duration::from_millis(100);
/// The same for lanes of which the first task of all must be found: in order by one key,
/// while other limits have other keys.
const LANES_IN_ORDER_MAX: usize = 10_000;

/// A claim of tasks with limits.
pub(crate) struct LimitedClaim<'t> {
    tx: &'t JobTransaction<'t>,
    pub(crate) limits: Arc<LimitSet>,
    keys: LoadedKeys,
    /// The size of the claim.
    size: usize,
    /// When the engine asked for it.
    called: Instant,
    /// When a blocked lane may start a task, if only the time is missing.
    pub(crate) next_in: Option<Duration>,
    /// Whether due tasks were not looked at.
    pub(crate) has_more: bool,
}

/// A lane that has tasks.
struct Lane {
    place: LanePlace,
    key: LaneKey,
    /// The places of its keys in the list of the claim.
    keys: Vec<usize>,
    /// Its first task.
    first: Head,
    is_empty: bool,
}

/// The lanes of one priority.
struct Level<'p> {
    priority: i64,
    pairs: &'p [Pair],
    /// The first due task of each that was not moved to its lane.
    not_moved: BTreeMap<Pair, Head>,
    lanes: Vec<Lane>,
    seen: HashSet<LanePlace>,
    /// Whether tasks have moved to lanes that the round may have passed.
    has_moved: bool,
}

impl<'t> LimitedClaim<'t> {
    pub(crate) fn new(
        tx: &'t JobTransaction<'t>,
        limits: Arc<LimitSet>,
        size: usize,
        called: Instant,
    ) -> Self {
        let keys = LoadedKeys::default();
        Self { tx, limits, keys, size, called, next_in: None, has_more: false }
    }

    /// Takes up to `wanted` tasks of one priority. Some pairs have tasks that were not moved to
    /// lanes of their keys, and may not be due: they are moved first.
    pub(crate) fn take(
        &mut self,
        turns: &mut Turns,
        priority: i64,
        pairs: &[Pair],
        with_tasks_to_move: &[Pair],
        wanted: usize,
        next_due: &mut Option<i64>,
    ) -> Result<Vec<Waiting>, JobError> {
        let most = self.moves_max();
        let mut free = Vec::new();
        let mut not_moved = BTreeMap::new();
        for pair in pairs {
            let is_blocked = self.is_blocked(pair)?;
            if with_tasks_to_move.contains(pair) {
                let moved = move_due(self.tx, &self.limits, pair, priority, most)?;
                *next_due = moved.next_due.into_iter().chain(*next_due).min();
                if let Some(first) = moved.first_left {
                    not_moved.insert(pair.clone(), first);
                    self.has_more |= !is_blocked;
                }
            }
            if !is_blocked {
                free.push(pair.clone());
            }
        }
        let (lanes, seen) = (Vec::new(), HashSet::new());
        let mut level = Level { priority, pairs: &free, not_moved, lanes, seen, has_moved: false };
        let mut taken = self.finish_turn(turns, &level, wanted)?;
        self.go_round(turns, &mut level, wanted, &mut taken)?;
        Ok(taken)
    }

    /// How many tasks of a lane a claim moves to lanes of their keys.
    fn moves_max(&self) -> usize {
        (self.size * 4).clamp(100, 1000)
    }

    /// Stores the states of keys.
    pub(crate) fn write(&self) -> Result<(), JobError> {
        self.keys.write(self.tx)
    }

    /// Whether a limit without a key blocks all tasks of a class and queue.
    fn is_blocked(&mut self, pair: &Pair) -> Result<bool, JobError> {
        let limits = self.limits.clone();
        if limits.names_limits(&pair.class) {
            return Ok(false);
        }
        for (id, limit) in limits.of_all(&pair.class, &pair.queue) {
            if limit.options.key.is_some() {
                continue;
            }
            let place = self.place(&LimitKey(id, String::new()))?;
            if let Some(wait) = self.keys.states[place].wait() {
                if let LaneWait::For(time) = wait {
                    self.wait_at_most(time);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn place(&mut self, key: &LimitKey) -> Result<usize, JobError> {
        self.keys.place(self.tx, &self.limits, key, self.size)
    }

    fn wait_at_most(&mut self, time: Duration) {
        self.next_in = Some(self.next_in.map_or(time, |before| before.min(time)));
    }

    /// The lane that was served last gets the rest of its share, before the round goes on.
    fn finish_turn(
        &mut self,
        turns: &mut Turns,
        level: &Level<'_>,
        wanted: usize,
    ) -> Result<Vec<Waiting>, JobError> {
        let Some(turn) = turns.get(level.priority).filter(|turn| turn.left > 0).cloned() else {
            return Ok(Vec::new());
        };
        let Pair { queue, class } = &turn.lane.pair;
        if !level.pairs.contains(&turn.lane.pair) || self.limits.may_be_in_order(class, queue) {
            return Ok(Vec::new());
        }
        let Some(first) = first_of(self.tx, &turn.lane, level.priority)? else {
            return Ok(Vec::new());
        };
        let Some(lane) = self.lane(turn.lane.clone(), first)? else {
            return Ok(Vec::new());
        };
        let offered = LaneLimits { keys: lane.keys.clone(), holder: None };
        let share = turn.left.min(wanted);
        let grants = grant(share, std::slice::from_ref(&offered), &self.keys.states);
        let Some(granted) = grants.lanes.first() else {
            return Ok(Vec::new());
        };
        let taken = self.take_of(&lane, level.priority, granted)?;
        turns.set(level.priority, turn.lane, turn.left - taken.len().min(turn.left));
        Ok(taken)
    }

    /// Shares the rest among the lanes, from the one after the lane that was served last.
    fn go_round(
        &mut self,
        turns: &mut Turns,
        level: &mut Level<'_>,
        wanted: usize,
        taken: &mut Vec<Waiting>,
    ) -> Result<(), JobError> {
        let after = turns.get(level.priority).map(|turn| turn.lane.clone());
        let mut cursor = LaneCursor::new(self.tx, level.priority, level.pairs, after.as_ref())?;
        while taken.len() < wanted {
            let are_more = self.read_lanes(&mut cursor, level, wanted - taken.len())?;
            let was_emptied = self.share(turns, level, wanted, taken)?;
            if taken.len() < wanted && are_more && level.lanes.len() >= LANES_MAX {
                if let Some(last) = level.lanes.last() {
                    turns.set(level.priority, last.place.clone(), 0);
                }
                self.wait_at_most(CONTINUE_AFTER);
                break;
            }
            if !was_emptied && !are_more {
                break;
            }
        }
        if taken.len() < wanted {
            let lanes: Vec<LaneLimits> =
                self.offered(level).into_iter().map(|(_, one)| one).collect();
            if let Some(time) = grant(0, &lanes, &self.keys.states).next_in {
                self.wait_at_most(time);
            }
        }
        Ok(())
    }

    /// Reads lanes until so many can start a task. False after the last one.
    fn read_lanes(
        &mut self,
        cursor: &mut LaneCursor<'t>,
        level: &mut Level<'_>,
        wanted: usize,
    ) -> Result<bool, JobError> {
        let mut can_start = 0;
        let all = level.pairs.iter().any(|pair| self.has_order_over_lanes(pair));
        let most = if all { LANES_IN_ORDER_MAX } else { LANES_MAX };
        loop {
            if level.lanes.len() >= most || can_start >= wanted && !all {
                return Ok(true);
            }
            let Some((place, first)) = cursor.next()? else {
                if !std::mem::take(&mut level.has_moved) {
                    return Ok(false);
                }
                *cursor = LaneCursor::new(self.tx, level.priority, level.pairs, None)?;
                continue;
            };
            if !level.seen.insert(place.clone()) {
                continue;
            }
            let Some(lane) = self.lane(place.clone(), first)? else {
                let most = self.moves_max();
                let left = move_outdated(self.tx, &self.limits, &place, level.priority, most)?;
                if let Some(left) = left {
                    self.has_more = true;
                    let first = level.not_moved.entry(place.pair).or_insert(left);
                    *first = left.min(*first);
                }
                level.has_moved = true;
                continue;
            };
            self.find_waiting_holders(&lane, level)?;
            let offered = self.limits_of(&lane, level.priority);
            let may_start = !grant(1, &[offered], &self.keys.states).lanes.is_empty();
            can_start += usize::from(may_start);
            level.lanes.push(lane);
        }
    }

    /// Whether tasks of different lanes must start in order: a limit in order that other
    /// limits divide into several lanes.
    fn has_order_over_lanes(&self, pair: &Pair) -> bool {
        let Pair { queue, class } = pair;
        self.limits.may_be_in_order(class, queue)
            && (self.limits.names_limits(class) || self.limits.of_all(class, queue).count() > 1)
    }

    /// `None` if limits were added or removed since its tasks were moved.
    fn lane(&mut self, place: LanePlace, first: Head) -> Result<Option<Lane>, JobError> {
        let key = LaneKey::parse(&place.key)
            .filter(|key| self.limits.is_current(key, &place.pair.class, &place.pair.queue));
        let Some(key) = key else {
            return Ok(None);
        };
        let keys = key.0.iter().map(|one| self.place(one)).collect::<Result<_, _>>()?;
        Ok(Some(Lane { place, key, keys, first, is_empty: false }))
    }

    /// A due task that holds a key of this lane may be behind many others that were not moved
    /// yet. It is moved now.
    fn find_waiting_holders(&mut self, lane: &Lane, level: &Level<'_>) -> Result<(), JobError> {
        for place in &lane.keys {
            let Some(holder) = &mut self.keys.keys[*place].waiting_holder else { continue };
            let key = holder.lane_key(&self.limits);
            if holder.head.due_at > self.tx.now() || holder.lane_key == Some(key.to_text()) {
                continue;
            }
            let pair = Pair { queue: holder.queue.clone(), class: holder.class.clone() };
            let moved = move_one(self.tx, holder.head.task_id, &pair, &key)?;
            holder.lane_key = Some(moved.key.clone());
            // Its own lane may be one that this claim has read or will not read any more.
            self.has_more |= holder.priority != level.priority || moved != lane.place;
        }
        Ok(())
    }

    fn limits_of(&self, lane: &Lane, priority: i64) -> LaneLimits {
        let holder = lane.keys.iter().find_map(|place| {
            let waiting = self.keys.keys[*place].waiting_holder.as_ref()?;
            let is_here = waiting.lane_key.as_ref() == Some(&lane.place.key)
                && waiting.priority == priority
                && waiting.queue == lane.place.pair.queue
                && waiting.class == lane.place.pair.class;
            is_here.then_some(TaskId(waiting.head.task_id))
        });
        LaneLimits { keys: lane.keys.clone(), holder }
    }

    /// The lanes that may start tasks as far as the order is concerned, with their places.
    fn offered(&self, level: &Level<'_>) -> Vec<(usize, LaneLimits)> {
        // The first task of each key in order.
        let mut first: HashMap<(usize, &Pair), Head> = HashMap::new();
        for lane in level.lanes.iter().filter(|lane| !lane.is_empty) {
            for place in lane.keys.iter().filter(|place| self.is_free_in_order(**place)) {
                let head = first.entry((*place, &lane.place.pair)).or_insert(lane.first);
                *head = lane.first.min(*head);
            }
        }
        let is_next = |lane: &Lane| {
            lane.keys.iter().filter(|place| self.is_free_in_order(**place)).all(|place| {
                let pair = &lane.place.pair;
                first.get(&(*place, pair)).is_none_or(|first| lane.first <= *first)
                    && level.not_moved.get(pair).is_none_or(|left| lane.first < *left)
            })
        };
        let lanes = level.lanes.iter().enumerate();
        lanes
            .filter(|(_, lane)| !lane.is_empty && is_next(lane))
            .map(|(place, lane)| (place, self.limits_of(lane, level.priority)))
            .collect()
    }

    fn is_free_in_order(&self, place: usize) -> bool {
        let KeyState { options, held_by, .. } = &self.keys.states[place];
        held_by.is_none() && options.as_ref().is_some_and(|options| options.in_order)
    }

    /// Takes what the lanes may start. Returns whether one of them had fewer tasks, so that
    /// others may get more.
    fn share(
        &mut self,
        turns: &mut Turns,
        level: &mut Level<'_>,
        wanted: usize,
        taken: &mut Vec<Waiting>,
    ) -> Result<bool, JobError> {
        let (places, lanes): (Vec<usize>, Vec<LaneLimits>) =
            self.offered(level).into_iter().unzip();
        let grants = grant(wanted - taken.len(), &lanes, &self.keys.states);
        let mut was_emptied = false;
        let mut last: Option<(usize, usize, usize)> = None;
        for granted in &grants.lanes {
            let place = places[granted.lane];
            let tasks = self.take_of(&level.lanes[place], level.priority, granted)?;
            level.lanes[place].is_empty = tasks.len() < granted.tasks;
            was_emptied |= level.lanes[place].is_empty;
            taken.extend(tasks);
            // The lane that got a share last: of those in the last round, the last one.
            let weight = self.weight(&level.lanes[place]);
            let rounds = granted.tasks.div_ceil(weight);
            if last.is_none_or(|(_, most, _)| rounds >= most) {
                last = Some((place, rounds, rounds * weight - granted.tasks));
            }
        }
        if let Some((place, _, left)) = last {
            let lane = &level.lanes[place];
            let left = if taken.len() == wanted && !lane.is_empty { left } else { 0 };
            turns.set(level.priority, lane.place.clone(), left);
        }
        Ok(was_emptied)
    }

    fn weight(&self, lane: &Lane) -> usize {
        let weights = lane.keys.iter().map(|place| self.keys.states[*place].weight);
        weights.max().unwrap_or(1).max(1)
    }

    fn take_of(
        &mut self,
        lane: &Lane,
        priority: i64,
        granted: &Grant,
    ) -> Result<Vec<Waiting>, JobError> {
        let mut tasks = self.waiting(lane, priority, granted)?;
        let mut delete = self.tx.db.prepare_cached(sql!("engine/limits", "waiting_take"))?;
        let start = (!lane.key.0.is_empty()).then(|| LimitedStart {
            lane_key: lane.key.clone(),
            start_before: self.start_within(lane).map(|within| self.called + within),
        });
        for Waiting { head, task } in &mut tasks {
            delete.execute([head.task_id])?;
            // One that was never created does not start.
            if let Some(task) = task {
                self.keys.start(&lane.keys, task.id);
                task.limited = start.clone().map(Box::new);
            }
        }
        Ok(tasks)
    }

    fn waiting(
        &self,
        lane: &Lane,
        priority: i64,
        granted: &Grant,
    ) -> Result<Vec<Waiting>, JobError> {
        let Pair { queue, class } = &lane.place.pair;
        let (stored, key) = (limited_queue(queue), &lane.place.key);
        let read_task = |row: &rusqlite::Row<'_>| {
            let head = Head { task_id: read(row, 0)?, due_at: read(row, 1)? };
            Ok(Waiting { head, task: claimed_task(row, head, queue, class, priority)? })
        };
        let tasks = match granted.only {
            Some(task) => {
                let mut one = self.tx.db.prepare_cached(sql!("engine/limits", "lane_task"))?;
                let rows = one.query_map(params![task.0, stored, key], read_task)?;
                rows.collect::<rusqlite::Result<_>>()?
            }
            None => {
                let mut heads = self.tx.db.prepare_cached(sql!("engine/limits", "lane_heads"))?;
                let most = granted.tasks as i64;
                let rows =
                    heads.query_map(params![stored, class, priority, key, most], read_task)?;
                rows.collect::<rusqlite::Result<_>>()?
            }
        };
        Ok(tasks)
    }

    /// How long after the call its attempts may start, by the shortest of its rates.
    fn start_within(&self, lane: &Lane) -> Option<Duration> {
        let options = lane.keys.iter().map(|place| self.keys.states[*place].options.as_ref());
        options.filter_map(|options| Some(options?.rate?.start_within())).min()
    }

    /// When the next claim is useful, if this one has taken all that it could.
    pub(crate) fn next_in(&self, next_due: Option<i64>) -> Option<Duration> {
        let due = next_due.map(|due_at| between(self.tx.now(), due_at));
        due.into_iter().chain(self.next_in).min()
    }
}
