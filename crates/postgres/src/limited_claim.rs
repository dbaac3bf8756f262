//! A claim from lanes of tasks with limits: reads the state of their keys, decides how many
//! tasks of each lane may start ([`grant`]), and takes them with one statement. The statement
//! replaces the rows of the keys that the decision was made with. If another claim has replaced
//! one of them first, its lanes are left out.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::limit::{
    Grants, KeyState, LaneKey, LaneLimits, LimitKey, LimitOptions, grant,
};
use task_engine_core::task::TaskId;
use task_engine_store::claim::{ClaimedTask, LimitedStart};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::may_be_unreadable_row;
use crate::executor::Executor as _;
use crate::known_lanes::BEGINNING;
use crate::known_limits::KnownLimits;
use crate::limit_keys::{correct_starts, holders, key_rows, key_state};
use crate::limited_lanes::{Group, GroupId, LimitedTake, ReadLane};
use crate::store::{StoreInner, micros};
use crate::take;
use crate::value::{RawTime, read};

const SQL: &str = include_str!("../sql/engine/limits.sql");
const RENEW_LANE: &str = statement(SQL, "renew_lane");
const HOLDER_LANES: &str = statement(SQL, "holder_lanes");
const ADD_LIMIT_KEYS: &str = statement(SQL, "add_limit_keys");
const KEYS_IN_ORDER: &str = statement(SQL, "keys_in_order");
const CLAIM_LIMITED: &str = statement(SQL, "claim_limited");

/// As `claim_limited`, after a claim that failed because of a row: a value that cannot be read
/// is replaced, and another column says why.
static CLAIM_LIMITED_CHECKED: LazyLock<String> = LazyLock::new(|| {
    CLAIM_LIMITED.replace(
        "c.task_parameters, c.context, NULL::text AS unreadable",
        "task_engine.readable(c.task_parameters), task_engine.readable(c.context), coalesce(
           'its parameters cannot be read: ' || task_engine.unreadable(c.task_parameters),
           'its context cannot be read: ' || task_engine.unreadable(c.context)) AS unreadable",
    )
});

/// How many tasks of a lane get new keys at a time after limits have changed.
const RENEW_MAX: i64 = 5_000;

/// A claim from some lanes of a group.
pub(crate) struct LaneClaim<'a> {
    pub(crate) inner: &'a StoreInner,
    pub(crate) known: &'a KnownLimits,
    pub(crate) claim: (ClaimId, InstanceId),
    pub(crate) id: &'a GroupId,
    pub(crate) limit: usize,
}

pub(crate) struct LaneOutcome {
    pub(crate) take: LimitedTake,
    pub(crate) next_in: Option<Duration>,
    /// The last lane that may start tasks, and how many.
    pub(crate) last: (usize, usize),
}

impl LaneOutcome {
    fn of(take: LimitedTake) -> Self {
        Self { take, next_in: None, last: (0, 0) }
    }
}

/// A key, and the row of it that was read.
struct StoredKey {
    key: LimitKey,
    row: Option<(i64, RawTime)>,
    holders: Vec<(i64, i32)>,
}

impl LaneClaim<'_> {
    /// Those lanes whose keys are those of the known limits. The others get new keys. `None`
    /// if the limits have changed.
    pub(crate) async fn with_current_keys(
        &self,
        lanes: Vec<ReadLane>,
        group: &mut Group,
    ) -> Result<Option<Vec<ReadLane>>, StoreError> {
        let (queue, class, priority) = self.id;
        let is_current = |lane: &ReadLane| self.known.is_current(&lane.keys, queue, class);
        let (current, outdated): (Vec<_>, Vec<_>) = lanes.into_iter().partition(is_current);
        for lane in &outdated {
            let client = self.inner.connections.work().await?;
            let in_order = lane.keys.0.iter().any(|key| self.known.is_in_order(key));
            let rows = client
                .query_cached(
                    &self.inner.schema.sql(RENEW_LANE),
                    &[
                        queue,
                        class,
                        priority,
                        &lane.text,
                        &RENEW_MAX,
                        &in_order,
                        &self.known.version,
                    ],
                )
                .await?;
            if rows.is_empty() {
                return Ok(None);
            }
            group.fresh.extend(rows.iter().map(|row| read::<String>(row, "lane_key")));
        }
        self.decide_in_order(current, group).await.map(Some)
    }

    /// Of lanes in order, the next task decides: it has keys of other limits, too.
    async fn decide_in_order(
        &self,
        mut lanes: Vec<ReadLane>,
        group: &Group,
    ) -> Result<Vec<ReadLane>, StoreError> {
        let is_in_order =
            |lane: &ReadLane| lane.keys.0.iter().any(|key| self.known.is_in_order(key));
        if !lanes.iter().any(is_in_order) {
            return Ok(lanes);
        }
        if let Some(moved) = group.moved_up_to {
            lanes.retain(|lane| !is_in_order(lane) || (lane.due_at, lane.head.0) <= moved);
        }
        let in_order: Vec<&ReadLane> = lanes.iter().filter(|lane| is_in_order(lane)).collect();
        let texts: Vec<&str> = in_order.iter().map(|lane| lane.text.as_str()).collect();
        let heads: Vec<i64> = in_order.iter().map(|lane| lane.head.0).collect();
        let client = self.inner.connections.work().await?;
        let rows =
            client.query_cached(&self.inner.schema.sql(KEYS_IN_ORDER), &[&texts, &heads]).await?;
        for row in &rows {
            let text: String = read(row, "lane_key");
            let Some(lane) = lanes.iter_mut().find(|lane| lane.text == text) else { continue };
            lane.keys = LaneKey::parse(&read::<String>(row, "keys")).unwrap_or_default();
            lane.head = TaskId(row.get("task_id"));
        }
        Ok(lanes)
    }

    pub(crate) async fn run(&self, lanes: &[ReadLane]) -> Result<LaneOutcome, StoreError> {
        if lanes.is_empty() {
            return Ok(LaneOutcome::of(LimitedTake::Nothing));
        }
        let mut keys: Vec<&LimitKey> = lanes.iter().flat_map(|lane| &lane.keys.0).collect();
        keys.sort();
        keys.dedup();
        let Some((stored, states)) = self.states(&keys).await? else {
            return Ok(LaneOutcome::of(LimitedTake::Outdated));
        };
        let places: HashMap<&LimitKey, usize> =
            stored.iter().enumerate().map(|(place, stored)| (&stored.key, place)).collect();
        let holders = self.holder_lanes(&states).await?;
        let limits: Vec<LaneLimits> = lanes
            .iter()
            .map(|lane| LaneLimits {
                keys: lane.keys.0.iter().filter_map(|key| places.get(key).copied()).collect(),
                holder: holders.get(lane.text.as_str()).copied(),
            })
            .collect();
        let grants = grant(self.limit, &limits, &states);
        if grants.lanes.is_empty() {
            return Ok(LaneOutcome {
                next_in: grants.next_in,
                ..LaneOutcome::of(LimitedTake::Nothing)
            });
        }
        let take = self.take(lanes, &limits, &stored, &grants).await?;
        let last = grants.lanes.last().map_or((0, 0), |grant| (grant.lane, grant.tasks));
        Ok(LaneOutcome { take, next_in: grants.next_in, last })
    }

    /// The stored rows and the states of keys; `None` if the limits have changed.
    async fn states(
        &self,
        keys: &[&LimitKey],
    ) -> Result<Option<(Vec<StoredKey>, Vec<KeyState>)>, StoreError> {
        let mut rows = key_rows(self.inner, self.known, keys, self.limit).await?;
        let has_state =
            |key: &LimitKey| self.known.options(key.0).is_some_and(LimitOptions::has_state);
        let is_missing = |(key, row): (&&LimitKey, &Row)| {
            has_state(key) && row.get::<_, Option<i64>>("total").is_none()
        };
        if keys.iter().zip(&rows).any(is_missing) {
            let counted: Vec<&LimitKey> =
                keys.iter().copied().filter(|key| has_state(key)).collect();
            self.add_keys(&counted).await?;
            rows = key_rows(self.inner, self.known, keys, self.limit).await?;
        }
        if correct_starts(self.inner, keys, &rows).await? {
            rows = key_rows(self.inner, self.known, keys, self.limit).await?;
        }
        if rows.iter().any(|row| row.get::<_, i64>("version") != self.known.version) {
            return Ok(None);
        }
        let read = |(key, row): (&&LimitKey, &Row)| {
            // A key that only shares workers has no state.
            let total = row.get::<_, Option<i64>>("total").filter(|_| has_state(key));
            let stored = StoredKey {
                key: (*key).clone(),
                row: total.map(|total| (total, row.get("written_at"))),
                holders: holders(row),
            };
            (stored, key_state(self.known, key, row))
        };
        Ok(Some(keys.iter().zip(&rows).map(read).unzip()))
    }

    async fn add_keys(&self, keys: &[&LimitKey]) -> Result<(), StoreError> {
        let ids: Vec<i32> = keys.iter().map(|LimitKey(id, _)| id.0).collect();
        let names: Vec<&str> = keys.iter().map(|LimitKey(_, key)| key.as_str()).collect();
        let client = self.inner.connections.work().await?;
        client.query_cached(&self.inner.schema.sql(ADD_LIMIT_KEYS), &[&ids, &names]).await?;
        Ok(())
    }

    /// The tasks that have a key in order, by the lanes in which they wait.
    async fn holder_lanes(
        &self,
        states: &[KeyState],
    ) -> Result<HashMap<String, TaskId>, StoreError> {
        let held: Vec<i64> = states.iter().filter_map(|state| Some(state.held_by?.0)).collect();
        if held.is_empty() {
            return Ok(HashMap::new());
        }
        let (queue, class, priority) = self.id;
        let client = self.inner.connections.work().await?;
        let rows = client
            .query_cached(&self.inner.schema.sql(HOLDER_LANES), &[&held, queue, class, priority])
            .await?;
        let lane = |row: &Row| (read(row, "lane_key"), TaskId(row.get("task_id")));
        Ok(rows.iter().map(lane).collect())
    }

    async fn take(
        &self,
        lanes: &[ReadLane],
        limits: &[LaneLimits],
        stored: &[StoredKey],
        grants: &Grants,
    ) -> Result<LimitedTake, StoreError> {
        let (queue, class, priority) = self.id;
        let (ClaimId(claim), InstanceId(instance)) = self.claim;
        let is_in_order = |lane: usize| {
            let in_order =
                |key: &LimitKey| self.known.options(key.0).is_some_and(|options| options.in_order);
            lanes[lane].keys.0.iter().any(in_order)
        };
        let granted = &grants.lanes;
        let count = granted.len();
        let (queues, classes) = (vec![queue.as_str(); count], vec![class.as_str(); count]);
        let priorities = vec![*priority; count];
        let texts: Vec<&str> = granted.iter().map(|g| lanes[g.lane].text.as_str()).collect();
        let tasks: Vec<i64> =
            granted.iter().map(|g| i64::try_from(g.tasks).unwrap_or(i64::MAX)).collect();
        // Not another task, if the first one of a lane in order is locked.
        let first = |lane: usize| is_in_order(lane).then_some(lanes[lane].head);
        let only: Vec<i64> = granted
            .iter()
            .map(|g| g.only.or_else(|| first(g.lane)).map_or(0, |task| task.0))
            .collect();

        // The task that has a key in order may come before the first one that was read.
        let positions: Vec<(RawTime, i64)> = granted
            .iter()
            .zip(&only)
            .map(|(g, only)| match lanes[g.lane].position() {
                position if *only == 0 || *only == position.1 => position,
                _ => BEGINNING,
            })
            .collect();
        let from_times: Vec<RawTime> = positions.iter().map(|position| position.0).collect();
        let from_ids: Vec<i64> = positions.iter().map(|position| position.1).collect();

        let mut keys = KeyColumns::default();
        let mut needs: Vec<String> = Vec::with_capacity(count);
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut start_within: HashMap<&str, Duration> = HashMap::new();
        for (lane, grant) in granted.iter().enumerate() {
            let mut need = Vec::new();
            for place in &limits[grant.lane].keys {
                let Some((total, written_at)) = stored[*place].row else { continue };
                let Some(options) = self.known.options(stored[*place].key.0) else { continue };
                let number = *numbers
                    .entry(*place)
                    .or_insert_with(|| keys.add(&stored[*place], total, written_at, options));
                need.push(number);
                if let Some(rate) = options.rate {
                    let within =
                        start_within.entry(texts[lane]).or_insert_with(|| rate.start_within());
                    *within = rate.start_within().min(*within);
                }
            }
            needs.push(comma_separated(&need));
        }
        let sent = Instant::now();
        let parameters: [&(dyn ToSql + Sync); 21] = [
            &claim,
            &instance,
            &self.known.version,
            &queues,
            &classes,
            &priorities,
            &texts,
            &tasks,
            &only,
            &needs,
            &keys.limits,
            &keys.keys,
            &keys.totals,
            &keys.written,
            &keys.rates,
            &keys.start_within_us,
            &keys.counts,
            &keys.open_tasks,
            &keys.open_attempts,
            &from_times,
            &from_ids,
        ];
        let client = self.inner.connections.work().await?;
        let schema = &self.inner.schema;
        let rows = match client.query_cached(&schema.sql(CLAIM_LIMITED), &parameters).await {
            Err(error) if may_be_unreadable_row(&error) => {
                take::warn_of_unreadable_row(&error);
                client.query_cached(&schema.moved(&CLAIM_LIMITED_CHECKED), &parameters).await
            }
            rows => rows,
        };
        let rows = rows?;
        if !rows[0].get::<_, bool>(take::ALIVE) {
            return Err(StoreError::InstanceOver);
        }
        if !rows[0].get::<_, bool>(take::CURRENT) {
            return Ok(LimitedTake::Outdated);
        }
        let mut claimed = take::limited_tasks(&rows, *priority);
        let keys: HashMap<&str, &LaneKey> =
            lanes.iter().map(|lane| (lane.text.as_str(), &lane.keys)).collect();
        for (task, lane_key) in &mut claimed {
            let keys = keys.get(lane_key.as_str()).filter(|keys| !keys.0.is_empty());
            task.limited = keys.map(|keys| {
                let within = start_within.get(lane_key.as_str());
                Box::new(LimitedStart {
                    lane_key: (*keys).clone(),
                    start_before: within.map(|within| sent + *within),
                })
            });
        }
        let tasks: Vec<ClaimedTask> = claimed.into_iter().map(|(task, _)| task).collect();
        Ok(if tasks.is_empty() { LimitedTake::Contended } else { LimitedTake::Tasks(tasks) })
    }
}

/// The parameters of the claiming statement that describe keys.
#[derive(Default)]
struct KeyColumns<'a> {
    limits: Vec<i32>,
    keys: Vec<&'a str>,
    totals: Vec<i64>,
    written: Vec<RawTime>,
    rates: Vec<i64>,
    start_within_us: Vec<Option<i64>>,
    counts: Vec<bool>,
    open_tasks: Vec<String>,
    open_attempts: Vec<String>,
}

impl<'a> KeyColumns<'a> {
    /// Returns the number of the key, from 1 on.
    fn add(
        &mut self,
        stored: &'a StoredKey,
        total: i64,
        written_at: RawTime,
        options: &LimitOptions,
    ) -> usize {
        let LimitKey(id, key) = &stored.key;
        self.limits.push(id.0);
        self.keys.push(key);
        self.totals.push(total);
        self.written.push(written_at);
        self.rates.push(options.rate.map_or(0, |rate| rate.max.into()));
        self.start_within_us.push(options.rate.map(|rate| micros(rate.start_within())));
        self.counts.push(options.max_running().is_some());
        let (tasks, attempts): (Vec<i64>, Vec<i32>) = stored.holders.iter().copied().unzip();
        self.open_tasks.push(comma_separated(&tasks));
        self.open_attempts.push(comma_separated(&attempts));
        self.limits.len()
    }
}

fn comma_separated(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
