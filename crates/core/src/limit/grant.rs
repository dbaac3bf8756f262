//! The decision of a claim: how many tasks of each lane may start now.

use std::time::Duration;

use jiff::SignedDuration;

use super::LimitOptions;
use crate::task::TaskId;

/// The state of one key of a limit, as a claim sees it.
#[derive(Debug, Clone, Default)]
pub struct KeyState {
    /// The options of the limit.
    ///
    /// `None` if the limit was removed: it no longer counts.
    pub options: Option<LimitOptions>,
    /// How many attempts of the key run, by the records of the store.
    pub running: usize,
    /// For a limit in order: the task that holds the key and has not ended.
    pub held_by: Option<TaskId>,
    /// How many attempts of the key have started.
    pub total: i64,
    /// How long ago the last attempt of the key was claimed.
    pub last_claim: Option<SignedDuration>,
    /// Recent starts, oldest first, from number `total + 1 - rate.max` on: as many as a claim
    /// may want.
    pub starts: Vec<RecentStart>,
    /// How long the key stays closed.
    pub closed_for: Option<Duration>,
    /// Its weight; 0 means 1.
    pub weight: usize,
}

/// Attempts that started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentStart {
    /// The number of the last one.
    pub total: i64,
    /// How long ago they started at the latest.
    ///
    /// Negative while they may still start.
    pub ago: SignedDuration,
}

/// A lane that has tasks, and the keys that its tasks need.
#[derive(Debug, Clone, Default)]
pub struct LaneLimits {
    /// The places of its keys in the list of key states.
    pub keys: Vec<usize>,
    /// The task that holds a key in order and waits in this lane.
    pub holder: Option<TaskId>,
}

/// The number of tasks of a lane that may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The place of the lane.
    pub lane: usize,
    /// How many.
    pub tasks: usize,
    /// Only this task may start.
    pub only: Option<TaskId>,
}

/// The reason why a lane may not start a task, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneWait {
    /// Until this time has passed.
    For(Duration),
    /// Until an attempt of one of its keys has ended.
    UntilEnd,
}

/// The decision about all lanes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Lanes that may start tasks.
    pub lanes: Vec<Grant>,
    /// When the first of the other lanes may start a task, if that is known.
    pub next_in: Option<Duration>,
}

/// Shares `wanted` starts among lanes, in their order: every lane that may start a task gets one
/// before any gets a second, in proportion to weights.
///
/// No key gets more starts than its limit allows.
#[must_use]
pub fn grant(wanted: usize, lanes: &[LaneLimits], keys: &[KeyState]) -> Grants {
    let mut free: Vec<usize> = keys.iter().map(|key| key.allowed(wanted)).collect();
    let weights: Vec<usize> = lanes.iter().map(|lane| lane.weight(keys)).collect();
    let mut tasks = vec![0; lanes.len()];
    let mut left = wanted;
    loop {
        let before = left;
        for (place, lane) in lanes.iter().enumerate() {
            let most = if lane.is_held(keys) { 1 - tasks[place].min(1) } else { left };
            let possible = lane.keys.iter().map(|key| free[*key]).min().unwrap_or(left);
            let share = weights[place].min(most).min(possible).min(left);
            if share == 0 || !lane.may_start(keys) {
                continue;
            }
            tasks[place] += share;
            left -= share;
            for key in &lane.keys {
                free[*key] -= share;
            }
        }
        if left == 0 || left == before {
            break;
        }
    }
    let granted = |(place, tasks): (usize, &usize)| Grant {
        lane: place,
        tasks: *tasks,
        only: lanes[place].holder.filter(|_| lanes[place].is_held(keys)),
    };
    let waits = lanes.iter().zip(&tasks).filter(|(_, tasks)| **tasks == 0);
    Grants {
        lanes: tasks.iter().enumerate().filter(|(_, tasks)| **tasks > 0).map(granted).collect(),
        next_in: waits.filter_map(|(lane, _)| lane.next_in(keys)).min(),
    }
}

impl LaneLimits {
    fn weight(&self, keys: &[KeyState]) -> usize {
        let weights = self.keys.iter().map(|key| keys[*key].weight);
        weights.max().unwrap_or(1).max(1)
    }

    /// Whether one of its keys is held in order by a task that has not ended.
    fn is_held(&self, keys: &[KeyState]) -> bool {
        self.keys.iter().any(|key| keys[*key].held_by.is_some())
    }

    /// A held key lets only its holder start.
    fn may_start(&self, keys: &[KeyState]) -> bool {
        self.keys.iter().all(|key| {
            let holder = keys[*key].held_by;
            holder.is_none() || holder == self.holder
        })
    }

    /// When it may start a task, if only the time is missing.
    fn next_in(&self, keys: &[KeyState]) -> Option<Duration> {
        if !self.may_start(keys) {
            return None;
        }
        let mut waits = self.keys.iter().map(|key| keys[*key].wait());
        waits.try_fold(Duration::ZERO, |longest, wait| match wait {
            None => Some(longest),
            Some(LaneWait::For(time)) => Some(longest.max(time)),
            Some(LaneWait::UntilEnd) => None,
        })
    }
}

impl KeyState {
    /// Returns how many attempts of the key may start now, up to `wanted`.
    #[must_use]
    pub fn allowed(&self, wanted: usize) -> usize {
        let Some(options) = &self.options else { return wanted };
        if self.closed_for.is_some() {
            return 0;
        }
        let mut allowed = wanted;
        if options.in_order {
            // The holder itself may start again, unless it runs.
            allowed = allowed.min(1_usize.saturating_sub(self.running));
        } else if let Some(max) = options.max {
            allowed = allowed.min((max as usize).saturating_sub(self.running));
        }
        if let Some(rate) = options.rate {
            // The starts of this claim itself are not among the recent ones.
            allowed = allowed.min(rate.max as usize);
            let may_start = |number: i64| match self.start_before(number - i64::from(rate.max)) {
                Some(ago) => left(rate.per, ago).is_zero(),
                None => true,
            };
            let allowed_by_rate = (1..=allowed)
                .take_while(|n| i64::try_from(*n).is_ok_and(|n| may_start(self.total + n)));
            allowed = allowed_by_rate.count();
            if let Some(spacing) = rate.spacing() {
                let is_spaced = self.last_claim.is_none_or(|ago| left(spacing, ago).is_zero());
                allowed = allowed.min(usize::from(is_spaced));
            }
        }
        allowed
    }

    /// Returns what the key waits for before its next start; `None` if it may start now.
    #[must_use]
    pub fn wait(&self) -> Option<LaneWait> {
        if self.allowed(1) > 0 {
            return None;
        }
        let options = self.options.as_ref()?;
        if options.max_running().is_some_and(|max| self.running >= max as usize) {
            return Some(LaneWait::UntilEnd);
        }
        let mut time = self.closed_for.unwrap_or_default();
        if let Some(rate) = options.rate {
            if let Some(ago) = self.start_before(self.total + 1 - i64::from(rate.max)) {
                time = time.max(left(rate.per, ago));
            }
            if let (Some(spacing), Some(ago)) = (rate.spacing(), self.last_claim) {
                time = time.max(left(spacing, ago));
            }
        }
        Some(LaneWait::For(time))
    }

    /// How long ago the start of this number was, at the latest; `None` if it is not recent.
    fn start_before(&self, number: i64) -> Option<SignedDuration> {
        if number < 1 {
            return None;
        }
        self.starts.iter().find(|start| start.total >= number).map(|start| start.ago)
    }
}

/// What is left of a time that began so long ago.
fn left(time: Duration, ago: SignedDuration) -> Duration {
    if ago.is_negative() {
        time.saturating_add(ago.unsigned_abs())
    } else {
        time.saturating_sub(ago.unsigned_abs())
    }
}
