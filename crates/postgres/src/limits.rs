//! Limits: declarations, changes by operators, and what is read about them.

use task_engine_core::attempt::AttemptId;
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Holder, LaneKey, LaneUsage, LaneWait, Limit, LimitChange,
    LimitCleared, LimitId, LimitKey, LimitKeyUsage, LimitRow, LimitTarget, LimitUsage, TaskLimit,
    plain_queue,
};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::json::JsonIn;
use crate::known_limits::{KnownLimits, limit, limit_options};
use crate::limit_keys::{holders, key_rows, key_state};
use crate::store::{StoreInner, micros};
use crate::value::read;

const ENGINE: &str = include_str!("../sql/engine/limits.sql");
const CLOSE_LIMIT_KEYS: &str = statement(ENGINE, "close_limit_keys");
const WAKE_LIMITED: &str = statement(ENGINE, "wake_limited");
const DECLARE_LIMITS: &str = statement(ENGINE, "declare_limits");
const PRUNE_LIMIT_KEYS: &str = statement(ENGINE, "prune_limit_keys");

const OPERATORS: &str = include_str!("../sql/operators/limits.sql");
const SET_LIMIT: &str = statement(OPERATORS, "set_limit");
const CLEAR_LIMIT: &str = statement(OPERATORS, "clear_limit");
const OPEN_LIMIT_KEY: &str = statement(OPERATORS, "open_limit_key");

const READERS: &str = include_str!("../sql/readers/limits.sql");
const LIMITS: &str = statement(READERS, "limits");
const LIMITED_LANES_IN_USE: &str = statement(READERS, "limited_lanes_in_use");
const LIMIT_KEYS_IN_USE: &str = statement(READERS, "limit_keys_in_use");
const TASK_LANE_KEY: &str = statement(READERS, "task_lane_key");

/// Lanes of all limits are read to find those of one, at most this many times as many.
const LANES_PER_LIMIT: u32 = 10;

impl StoreInner {
    pub(crate) async fn declare_limits(
        &self,
        declared: &DeclaredLimits,
    ) -> Result<Vec<(String, LimitChange)>, StoreError> {
        let names: Vec<&str> = declared.limits.iter().map(|limit| limit.name.as_str()).collect();
        let (classes, queues): (Vec<_>, Vec<_>) =
            declared.limits.iter().map(|limit| target_columns(&limit.target)).unzip();
        let options: Vec<String> = declared.limits.iter().map(options_text).collect();
        let options: Vec<JsonIn<'_>> = options.iter().map(|text| JsonIn(text)).collect();
        let client = self.connections.work().await?;
        let rows = client
            .query(
                &self.schema.sql(DECLARE_LIMITS),
                &[&names, &classes, &queues, &options, &declared.classes],
            )
            .await?;
        Ok(rows.iter().map(|row| (read(row, "name"), limit_change(row))).collect())
    }

    pub(crate) async fn set_limit(&self, limit: &Limit) -> Result<LimitChange, StoreError> {
        let (class, queue) = target_columns(&limit.target);
        let client = self.connections.work().await?;
        let row = client
            .query_one(
                &self.schema.sql(SET_LIMIT),
                &[&limit.name, &class, &queue, &JsonIn(&options_text(limit))],
            )
            .await?;
        Ok(limit_change(&row))
    }

    pub(crate) async fn clear_limit(&self, name: &str) -> Result<LimitCleared, StoreError> {
        let client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(CLEAR_LIMIT), &[&name]).await?;
        Ok(match read::<String>(&row, "outcome").as_str() {
            "removed" => LimitCleared::Removed,
            "declared" => LimitCleared::Declared,
            "only_declared" => LimitCleared::OnlyDeclared,
            _ => LimitCleared::NotFound,
        })
    }

    pub(crate) async fn close_limit_keys(&self, keys: &[ClosedKey]) -> Result<(), StoreError> {
        let limits: Vec<i32> = keys.iter().map(|closed| closed.limit.0).collect();
        let names: Vec<&str> = keys.iter().map(|closed| closed.key.as_str()).collect();
        let times: Vec<i64> = keys.iter().map(|closed| micros(closed.closed_for)).collect();
        let reasons: Vec<&str> = keys.iter().map(|closed| shortened(&closed.reason)).collect();
        let client = self.connections.work().await?;
        client
            .execute(&self.schema.sql(CLOSE_LIMIT_KEYS), &[&limits, &names, &times, &reasons])
            .await?;
        Ok(())
    }

    pub(crate) async fn open_limit_key(&self, name: &str, key: &str) -> Result<bool, StoreError> {
        let client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(OPEN_LIMIT_KEY), &[&name, &key]).await?;
        Ok(row.get("opened"))
    }

    pub(crate) async fn wake_limited(&self) -> Result<(), StoreError> {
        let client = self.connections.work().await?;
        client.query_cached(&self.schema.sql(WAKE_LIMITED), &[]).await?;
        Ok(())
    }

    pub(crate) async fn prune_limit_keys(&self, limit: u32) -> Result<u64, StoreError> {
        let client = self.connections.work().await?;
        let row =
            client.query_one(&self.schema.sql(PRUNE_LIMIT_KEYS), &[&i64::from(limit)]).await?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    pub(crate) async fn limits(&self) -> Result<Vec<LimitRow>, StoreError> {
        let client = self.connections.work().await?;
        let rows = client.query(&self.schema.sql(LIMITS), &[]).await?;
        Ok(rows.iter().filter_map(limit_row).collect())
    }

    pub(crate) async fn limit_usage(
        &self,
        limit: Option<LimitId>,
        at_most: u32,
    ) -> Result<LimitUsage, StoreError> {
        let most = usize::try_from(at_most).unwrap_or(usize::MAX);
        let known = KnownLimits::read(self).await?;
        let client = self.connections.work().await?;
        let read_lanes = if limit.is_some() { at_most * LANES_PER_LIMIT } else { at_most };
        let rows = client
            .query(
                &self.schema.sql(LIMITED_LANES_IN_USE),
                &[&to_i32(read_lanes), &(BoundedCount::PER_LANE_MAX + 1)],
            )
            .await?;
        let is_wanted = |lane: &LaneUsage| {
            limit.is_none_or(|id| lane.lane_key.0.iter().any(|LimitKey(of, _)| *of == id))
        };
        let mut lanes: Vec<LaneUsage> = rows.iter().map(lane_usage).filter(is_wanted).collect();
        let mut and_more = rows.len() >= read_lanes as usize || lanes.len() > most;
        lanes.truncate(most);
        let rows = client
            .query(&self.schema.sql(LIMIT_KEYS_IN_USE), &[&limit.map(|id| id.0), &to_i32(at_most)])
            .await?;
        and_more |= rows.len() >= most;
        let mut keys: Vec<LimitKey> = rows
            .iter()
            .map(|row| LimitKey(LimitId(row.get("limit_id")), read(row, "key")))
            .chain(lanes.iter().flat_map(|lane| lane.lane_key.0.iter().cloned()))
            .filter(|LimitKey(id, _)| limit.is_none_or(|wanted| *id == wanted))
            .filter(|LimitKey(id, _)| known.options(*id).is_some())
            .collect();
        keys.sort();
        keys.dedup();
        drop(client);
        let keys = self.key_usage(&known, &keys).await?;
        Ok(LimitUsage { lanes, keys, and_more })
    }

    pub(crate) async fn task_limits(&self, id: TaskId) -> Result<Vec<TaskLimit>, StoreError> {
        let known = KnownLimits::read(self).await?;
        if known.limits.is_empty() {
            return Ok(Vec::new());
        }
        let client = self.connections.work().await?;
        let row = client.query_opt(&self.schema.sql(TASK_LANE_KEY), &[&id.0]).await?;
        drop(client);
        let lane_key = row.and_then(|row| LaneKey::parse(&read::<String>(&row, "lane_key")));
        let mut keys = lane_key.unwrap_or_default().0;
        keys.retain(|LimitKey(id, _)| known.options(*id).is_some());
        let limits = self.limits().await?;
        let usage = self.key_usage(&known, &keys).await?;
        let with_row = |usage: LimitKeyUsage| {
            let limit = limits.iter().find(|row| row.id == usage.limit)?.clone();
            Some(TaskLimit { limit, usage })
        };
        Ok(usage.into_iter().filter_map(with_row).collect())
    }

    async fn key_usage(
        &self,
        known: &KnownLimits,
        keys: &[LimitKey],
    ) -> Result<Vec<LimitKeyUsage>, StoreError> {
        let keys: Vec<&LimitKey> = keys.iter().collect();
        let rows = key_rows(self, known, &keys, 1).await?;
        Ok(keys.iter().zip(&rows).map(|(key, row)| key_usage(known, key, row)).collect())
    }
}

fn key_usage(known: &KnownLimits, key: &LimitKey, row: &Row) -> LimitKeyUsage {
    let holder = |task: i64, attempt: i32, is_running| Holder {
        attempt: AttemptId { task_id: TaskId(task), attempt },
        is_running,
    };
    let mut all: Vec<Holder> =
        holders(row).into_iter().map(|(task, attempt)| holder(task, attempt, true)).collect();
    if let (Some(task), Some(attempt), true) =
        (row.get("held_by"), row.get("held_attempt"), all.is_empty())
    {
        all.push(holder(task, attempt, false));
    }
    let next_start_in = match key_state(known, key, row).wait() {
        Some(LaneWait::For(time)) => Some(time),
        Some(LaneWait::UntilEnd) | None => None,
    };
    let closed = row.get::<_, Option<i64>>("closed_us").is_some();
    LimitKeyUsage {
        limit: key.0,
        key: key.1.clone(),
        holders: all,
        last_start_at: read(row, "started_until"),
        next_start_in,
        closed: closed.then(|| (read(row, "closed_until"), read(row, "reason"))),
    }
}

fn lane_usage(row: &Row) -> LaneUsage {
    let mut waiting = BoundedCount::default();
    waiting.add(row.get("tasks"));
    LaneUsage {
        queue: plain_queue(&read::<String>(row, "queue")).to_owned(),
        class: read(row, "task_class"),
        priority: row.get("priority"),
        lane_key: LaneKey::parse(&read::<String>(row, "lane_key")).unwrap_or_default(),
        waiting,
        due_since: read(row, "due_at"),
    }
}

fn limit_row(row: &Row) -> Option<LimitRow> {
    let (id, limit) = limit(row)?;
    Some(LimitRow {
        id,
        declared: limit_options(row, "declared", &limit.name),
        limit,
        set_by_operator: row.get("set_by_operator"),
        changed_at: read(row, "changed_at"),
    })
}

pub(crate) fn target_columns(target: &LimitTarget) -> (Option<&str>, Option<&str>) {
    match target {
        LimitTarget::Class(class) => (Some(class), None),
        LimitTarget::Queue(queue) => (None, Some(queue)),
        LimitTarget::Named => (None, None),
    }
}

fn options_text(limit: &Limit) -> String {
    serde_json::to_string(&limit.options).unwrap_or_default()
}

fn limit_change(row: &Row) -> LimitChange {
    match read::<String>(row, "outcome").as_str() {
        "added" => LimitChange::Added,
        "changed" => LimitChange::Changed,
        "removed" => LimitChange::Removed,
        "overridden" => LimitChange::Overridden,
        _ => LimitChange::Unchanged,
    }
}

/// The first 1000 bytes at most.
fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(1000)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn to_i32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
