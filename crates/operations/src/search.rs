//! Finds the tasks that match a filter, newest first, in bounded steps.
//!
//! Most filters have no index, because indexes would make every task more expensive. So a
//! search walks down the ids. A store reads one step at a time (`scan`): a limited number
//! of rows of the smallest table that has all matches, narrowed by its columns. Only
//! [`Filter::matches`] decides, so that a filter means the same on every store; a store
//! that narrows less makes a search slower, not wrong.
//!
//! Ids grow with time, so a filter with times is searched only between the ids of those
//! times (`search/seek.rs`).

mod seek;

use std::time::{Duration, Instant};

use jiff::Timestamp;

use task_engine_core::filter::{Filter, FilterField, FilterOperator, FoundTask, Term, Value};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::scan::{Scan, ScanSource, TimeBound};

/// Rows read in a step if their columns suffice, which is cheap.
const STEP_ROWS: u32 = 10_000;
/// The most rows in a step. The number doubles while steps are quick.
const STEP_ROWS_MAX: u32 = 160_000;
/// A step that takes longer is not enlarged.
const QUICK: Duration = Duration::from_millis(50);
/// Rows read in a step if each needs a lookup in another table.
const STEP_ROWS_WITH_LOOKUP: u32 = 1_000;
/// Whole tasks read in a step.
const STEP_TASKS: u32 = 500;
/// Whole tasks read in a step if their JSON is needed, which may be large.
const STEP_TASKS_WITH_JSON: u32 = 100;
/// The time limit of one page.
///
/// The caller continues where the page ended.
pub const TIMEOUT: Duration = Duration::from_millis(150);
/// The factor of the time limit while no task was found.
const TIMEOUT_FACTOR_IF_EMPTY: u32 = 6;

/// A search for tasks.
#[derive(Debug, Clone)]
pub struct Search {
    /// Which tasks.
    pub filter: Filter,
    /// Only tasks older than this one: the end of the previous page.
    pub before: Option<TaskId>,
    /// The most to return.
    pub limit: u32,
    /// No step starts after this time, or six times this while no task was found.
    ///
    /// There is at least one step.
    pub timeout: Duration,
}

/// A page of found tasks.
#[derive(Debug, Clone)]
pub struct SearchPage {
    /// The tasks, newest first.
    pub tasks: Vec<FoundTask>,
    /// Where to continue if there may be more: below this task.
    pub next: Option<TaskId>,
    /// The time by the database's clock.
    pub now: Timestamp,
}

impl Search {
    /// Searches until the page is full, all tasks were read, or the time limit is
    /// reached.
    pub async fn run(&self, store: &dyn Store) -> Result<SearchPage, StoreError> {
        let begun = Instant::now();
        let mut scan = self.first_scan();
        seek::narrow(store, &self.filter, &mut scan).await?;
        let mut tasks = Vec::new();
        let limit = self.limit as usize;
        loop {
            let step_begun = Instant::now();
            let step = store.scan(&scan).await?;
            let matching =
                step.tasks.into_iter().filter(|task| self.filter.matches(task, step.now));
            tasks.extend(matching);
            let full = tasks.len() >= limit;
            let cut = tasks.len() > limit;
            tasks.truncate(limit);
            let next = if cut { tasks.last().map(|task| task.row.id) } else { step.down_to };
            let next = next.filter(|id| *id > scan.from);
            let timeout = if tasks.is_empty() {
                self.timeout * TIMEOUT_FACTOR_IF_EMPTY
            } else {
                self.timeout
            };
            match next {
                Some(id) if !full && begun.elapsed() < timeout => scan.before = id,
                next => return Ok(SearchPage { tasks, next, now: step.now }),
            }
            if scan.rows >= STEP_ROWS && step_begun.elapsed() < QUICK {
                scan.rows = (scan.rows * 2).min(STEP_ROWS_MAX);
            }
        }
    }

    fn first_scan(&self) -> Scan {
        let terms = self.filter.terms();
        let with_json = self.filter.needs_json();
        let (from, before) = id_range(terms);
        let before = self.before.map_or(before, |id| id.min(before));
        let (classes, queues) =
            (texts(terms, &FilterField::Class), texts(terms, &FilterField::Queue));
        let bounds =
            |field: FilterField| terms.iter().filter_map(|term| time_bound(term, &field)).collect();
        let created = seek::created_bounds(&self.filter);
        let ended: Vec<_> = bounds(FilterField::Ended);
        let with_error = terms.iter().any(|term| {
            term.field == FilterField::Error
                && matches!(term.operator, FilterOperator::Is | FilterOperator::Has)
        });
        let tasks = if with_json { STEP_TASKS_WITH_JSON } else { STEP_TASKS };
        let times = !created.is_empty() || !ended.is_empty();
        let narrow = classes.is_some() || queues.is_some() || times || with_error;
        let source = source(&self.filter);
        let is_cheap = match &source {
            ScanSource::All => true,
            ScanSource::WithStatus(statuses) => statuses[..] == [TaskStatus::Waiting],
            ScanSource::Flow(_) | ScanSource::Ids(_) => false,
        };
        let cheap_rows = if is_cheap { STEP_ROWS } else { STEP_ROWS_WITH_LOOKUP };
        Scan {
            source,
            from,
            before,
            rows: if narrow { cheap_rows } else { tasks },
            // Without a filter, the end of the page is enough.
            tasks: if terms.is_empty() { tasks.min(self.limit.saturating_add(1)) } else { tasks },
            classes,
            queues,
            created,
            ended,
            with_error,
            with_json,
        }
    }
}

/// The smallest source that has all matching tasks.
fn source(filter: &Filter) -> ScanSource {
    let terms = filter.terms();
    if let Some(ids) = is_one_of(terms, &FilterField::Id) {
        let ids = ids.iter().filter_map(|value| match value {
            Value::Number(id) => Some(TaskId(*id)),
            _ => None,
        });
        return ScanSource::Ids(ids.collect());
    }
    if let Some([Value::Text(name)]) = is_one_of(terms, &FilterField::Correlation) {
        return ScanSource::Flow(name.clone());
    }
    let statuses = filter.statuses();
    if statuses.contains(&TaskStatus::Stopped) {
        ScanSource::All
    } else {
        ScanSource::WithStatus(statuses)
    }
}

fn is_one_of<'a>(terms: &'a [Term], field: &FilterField) -> Option<&'a [Value]> {
    let found = terms.iter().find(|it| it.field == *field && it.operator == FilterOperator::Is);
    found.map(|term| term.values.as_slice())
}

fn texts(terms: &[Term], field: &FilterField) -> Option<Vec<String>> {
    let values = is_one_of(terms, field)?.iter().filter_map(|value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    });
    Some(values.collect())
}

/// The lowest id that may match, and the first id above all matches.
fn id_range(terms: &[Term]) -> (TaskId, TaskId) {
    let (mut from, mut before) = (1, i64::MAX);
    for term in terms {
        let is_parent = term.field == FilterField::Parent;
        if !is_parent && term.field != FilterField::Id {
            continue;
        }
        let numbers = || {
            term.values.iter().filter_map(|value| match value {
                Value::Number(id) => Some(*id),
                _ => None,
            })
        };
        let (least, most) = (numbers().min().unwrap_or(1), numbers().max().unwrap_or(i64::MAX));
        match term.operator {
            // A task is created before its children, so its id is lower than theirs.
            FilterOperator::Is | FilterOperator::More | FilterOperator::Least if is_parent => {
                from = from.max(least.saturating_add(1));
            }
            _ if is_parent => {}
            FilterOperator::Is => {
                from = from.max(least);
                before = before.min(most.saturating_add(1));
            }
            FilterOperator::More => from = from.max(least.saturating_add(1)),
            FilterOperator::Least => from = from.max(least),
            FilterOperator::Less => before = before.min(most),
            FilterOperator::Most => before = before.min(most.saturating_add(1)),
            FilterOperator::IsNot | FilterOperator::Has | FilterOperator::HasNot => {}
        }
    }
    (TaskId(from), TaskId(before))
}

fn time_bound(term: &Term, field: &FilterField) -> Option<TimeBound> {
    use FilterOperator::{Least, Less, More, Most};
    if term.field != *field {
        return None;
    }
    match (term.operator, term.values.first()?) {
        (More | Least, Value::Time(time)) => Some(TimeBound::From(*time)),
        (Less | Most, Value::Time(time)) => Some(TimeBound::Until(*time)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
