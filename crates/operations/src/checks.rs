//! The checks of `doctor`: those of the store, of limits, of flows and of schedules.

mod flows;
mod schedules;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use task_engine_core::display::{
    brief, count_text, limit_key_text, limit_options_text, shell_quoted, span,
};
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::limit::{CONTEXT_NAME, LimitRow};
use task_engine_core::task::TaskId;
use task_engine_store::check::{Check, CheckDepth, Verdict};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::limits::{KeySummary, KeyWait, LimitHolder, UsageFacts};
use crate::search::{self, Search};

/// The name of the check.
const NAME: &str = "limits";
/// A key whose first task has been blocked for longer than this may be stuck, if its holder
/// has held it for as long.
const BLOCKED_WARNING: Duration = Duration::from_secs(15 * 60);
/// At most so many tasks that name limits are read.
const TASKS_READ_MAX: u32 = 200;
/// At most so many keys or limits are named.
const NAMED_MAX: usize = 5;

/// Checks the database, engines, tasks and limits.
pub async fn checks(store: &dyn Store, depth: CheckDepth) -> Result<Vec<Check>, StoreError> {
    let mut checks = store.checks(depth).await?;
    match LimitFacts::read(store, depth).await {
        Ok(facts) => checks.push(facts.evaluate()),
        // Tables that are not there have a finding already.
        Err(_) if checks.iter().any(|check| check.verdict == Verdict::Wrong) => {}
        Err(error) => checks.push(Check::unknown(NAME, error.to_string())),
    }
    if depth != CheckDepth::Quick {
        for (name, found) in [
            (flows::NAME, flows::check(store).await.map(Some)),
            (schedules::NAME, schedules::check(store).await),
        ] {
            match found {
                Ok(check) => checks.extend(check),
                Err(_) if checks.iter().any(|check| check.verdict == Verdict::Wrong) => {}
                Err(error) => checks.push(Check::unknown(name, error.to_string())),
            }
        }
    }
    Ok(checks)
}

/// The facts about limits.
struct LimitFacts {
    limits: Vec<LimitRow>,
    usage: Option<UsageFacts>,
    /// Names of limits that waiting tasks have, each with one of those tasks.
    named: BTreeMap<String, TaskId>,
}

impl LimitFacts {
    async fn read(store: &dyn Store, depth: CheckDepth) -> Result<Self, StoreError> {
        let limits = store.limits().await?;
        let usage = match limits.is_empty() {
            true => None,
            false => Some(UsageFacts::read(store, None).await?),
        };
        let named = match depth {
            CheckDepth::Quick => BTreeMap::new(),
            _ => named_limits(store).await?,
        };
        Ok(Self { limits, usage, named })
    }

    fn evaluate(&self) -> Check {
        let mut findings: Vec<(String, String)> = Vec::new();
        findings.extend(self.stuck_keys());
        findings.extend(self.missing_limits());
        let note = self.changed_limits();
        if findings.is_empty() {
            let number = match self.limits.len() {
                0 => "there is no limit".to_owned(),
                1 => "1 limit, and no key is blocked for long".to_owned(),
                number => format!("{number} limits, and no key is blocked for long"),
            };
            return Check::ok(
                NAME,
                [Some(number), note].into_iter().flatten().collect::<Vec<_>>().join("; "),
            );
        }
        let (words, remedies): (Vec<_>, Vec<_>) = findings.into_iter().unzip();
        let words: Vec<_> = words.into_iter().chain(note).collect();
        Check::bad(NAME, Verdict::Warning, words.join("; "), remedies.join("; "))
    }

    /// Keys whose first task has waited for long, and whose holder has not changed for long.
    fn stuck_keys(&self) -> Option<(String, String)> {
        let usage = self.usage.as_ref()?;
        let now = usage.activity.now;
        let mut stuck = Vec::new();
        for row in &self.limits {
            let found = usage.details(row.clone());
            let keys = found.keys.into_iter().filter(|key| is_stuck(key, now));
            stuck.extend(keys.map(|key| (row, key)));
        }
        let (first, key) = stuck.first()?;
        let shown: Vec<_> =
            stuck.iter().take(NAMED_MAX).map(|(row, key)| stuck_text(row, key, now)).collect();
        let more = stuck.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!("; and {more} more keys") } else { String::new() };
        let look =
            key.holders.first().map(|holder| format!("; then: task-engine why {}", holder.task_id));
        Some((
            format!("{}{more}", shown.join("; ")),
            format!(
                "task-engine limits show {}{}",
                shell_quoted(&first.limit.name),
                look.unwrap_or_default()
            ),
        ))
    }

    /// Limits that tasks name, and that do not exist.
    fn missing_limits(&self) -> Option<(String, String)> {
        let exists = |name: &str| self.limits.iter().any(|row| row.limit.name == name);
        let missing: Vec<_> = self.named.iter().filter(|(name, _)| !exists(name)).collect();
        let (first, _) = missing.first()?;
        let shown: Vec<_> = missing
            .iter()
            .take(NAMED_MAX)
            .map(|(name, id)| format!("{} (task {id})", brief(name, 50)))
            .collect();
        Some((
            format!(
                "waiting tasks name limits that do not exist, and run without them: {}",
                shown.join(", ")
            ),
            format!("to limit them again: task-engine limits set {} --max N", shell_quoted(first)),
        ))
    }

    /// Limits that an operator has set, and engines declare otherwise. This may be intended.
    fn changed_limits(&self) -> Option<String> {
        let differs = |row: &&LimitRow| {
            row.set_by_operator
                && row.declared.as_ref().is_some_and(|declared| *declared != row.limit.options)
        };
        let text = |row: &LimitRow| {
            let declared = row.declared.as_ref().map(limit_options_text).unwrap_or_default();
            let set = limit_options_text(&row.limit.options);
            format!("{} has {set}, and engines declare {declared}", row.limit.name)
        };
        let all: Vec<_> = self.limits.iter().filter(differs).map(text).collect();
        let shown = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
        (!all.is_empty()).then(|| format!("set by an operator: {shown}"))
    }
}

fn is_stuck(key: &KeySummary, now: Timestamp) -> bool {
    let long = |since: Timestamp| now.duration_since(since).unsigned_abs() > BLOCKED_WARNING;
    // A key that a rate or a closing blocks opens by itself.
    let by_holders = matches!(key.waits_for, Some(KeyWait::Running | KeyWait::Order));
    let held_long = |holder: &LimitHolder| !holder.is_running || holder.since.is_none_or(long);
    by_holders && key.blocked_since.is_some_and(long) && key.holders.iter().all(held_long)
}

fn stuck_text(row: &LimitRow, key: &KeySummary, now: Timestamp) -> String {
    let age = |since: Timestamp| span(now.duration_since(since).unsigned_abs());
    let holder = key.holders.first().map(|holder| match holder.since {
        Some(since) if holder.is_running => {
            format!("task {} runs for {}", holder.task_id, age(since))
        }
        _ => format!("task {} comes first and waits", holder.task_id),
    });
    format!(
        "limit {}, {}: {} blocked, the first for {}; {}",
        row.limit.name,
        brief(&limit_key_text(row.limit.options.key.as_deref(), &key.key), 80),
        count_text(key.blocked),
        key.blocked_since.map(age).unwrap_or_default(),
        holder.unwrap_or_else(|| "no attempt holds it".to_owned())
    )
}

/// The limits that waiting tasks name: of the newest such tasks.
async fn named_limits(store: &dyn Store) -> Result<BTreeMap<String, TaskId>, StoreError> {
    let text = format!("status=waiting context.{CONTEXT_NAME}~\":\"");
    let Ok(filter) = Filter::parse(&text, &jiff::tz::TimeZone::UTC) else {
        return Ok(BTreeMap::new());
    };
    let timeout = search::TIMEOUT;
    let search = Search { filter, before: None, limit: TASKS_READ_MAX, timeout };
    let page = search.run(store).await?;
    Ok(names(&page.tasks))
}

fn names(tasks: &[FoundTask]) -> BTreeMap<String, TaskId> {
    let mut names = BTreeMap::new();
    for task in tasks {
        let context: Map<String, Value> = task.context.decode().unwrap_or_default();
        if let Some(Value::Object(limits)) = context.get(CONTEXT_NAME) {
            names.extend(limits.keys().map(|name| (name.clone(), task.row.id)));
        }
    }
    names
}

#[cfg(test)]
mod tests;
