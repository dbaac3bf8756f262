//! Finding the tasks that a filter means, newest first, in bounded steps.
//!
//! There is no index for most questions, and there shall be none: history must
//! cost nothing. So a search walks down the ids. A store reads one step at a time
//! ([`Store::scan`]): from the table where such tasks are, no more than so many
//! rows, narrowed by what its columns can tell. What a filter means is decided
//! here alone ([`Filter::matches`]), so that it means the same on every store; a
//! store that leaves something out when it narrows makes a search slower, never
//! wrong.
//!
//! Ids follow time, so a filter that names times is looked for between the ids of
//! those times (`search/seek.rs`), not from the newest task on.

mod seek;

use std::time::{Duration, Instant};

use jiff::Timestamp;

use task_engine_core::filter::{Field, Filter, FoundTask, Operator, Term, Value};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::scan::{Scan, ScanSource, TimeBound};

/// So many rows are read in a step by their columns alone, which is cheap;
const ROWS_OF_A_STEP: u32 = 10_000;
/// and up to so many, doubled from step to step, while a step is quick.
const ROWS_OF_A_STEP_MAX: u32 = 160_000;
/// A step that took longer is not made larger.
const QUICK: Duration = Duration::from_millis(50);
/// The same where a row must be looked up elsewhere, too.
const ROWS_OF_A_STEP_IN_PLACES: u32 = 1_000;
/// So many tasks are looked at whole in a step.
const TASKS_OF_A_STEP: u32 = 500;
/// The same if their JSON is needed, which may be large.
const TASKS_WITH_JSON_OF_A_STEP: u32 = 100;
/// How long one page is looked for: an answer within the blink of an eye, and
/// whoever wants more goes on from where it ended.
pub const TIMEOUT: Duration = Duration::from_millis(150);
/// So many times as long, as long as nothing was found: an empty page helps nobody.
const TIMEOUT_IF_EMPTY: u32 = 6;

/// What is looked for.
#[derive(Debug, Clone)]
pub struct Search {
    /// The tasks that are meant.
    pub filter: Filter,
    /// Only those older than this one: where the page before ended.
    pub before: Option<TaskId>,
    /// How many at the most.
    pub limit: u32,
    /// No new step begins after this time; six times this, as long as nothing was
    /// found. At least one is made.
    pub timeout: Duration,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct SearchPage {
    /// The tasks, newest first.
    pub tasks: Vec<FoundTask>,
    /// Where to go on, if there may be more: below this task.
    pub next: Option<TaskId>,
    /// The time by the database's clock.
    pub now: Timestamp,
}

impl Search {
    /// Looks for tasks until a page is full, everything was looked at, or
    /// timeout ends.
    pub async fn run(&self, store: &dyn Store) -> Result<SearchPage, StoreError> {
        let begun = Instant::now();
        let mut scan = self.first_scan();
        seek::narrow(store, &self.filter, &mut scan).await?;
        let mut tasks = Vec::new();
        let limit = self.limit as usize;
        loop {
            let step_begun = Instant::now();
            let step = store.scan(&scan).await?;
            let meant = step.tasks.into_iter().filter(|task| self.filter.matches(task, step.now));
            tasks.extend(meant);
            let full = tasks.len() >= limit;
            let cut = tasks.len() > limit;
            tasks.truncate(limit);
            let next = if cut { tasks.last().map(|task| task.row.id) } else { step.down_to };
            let next = next.filter(|id| *id > scan.from);
            let timeout =
                if tasks.is_empty() { self.timeout * TIMEOUT_IF_EMPTY } else { self.timeout };
            match next {
                Some(id) if !full && begun.elapsed() < timeout => scan.before = id,
                next => return Ok(SearchPage { tasks, next, now: step.now }),
            }
            if scan.rows >= ROWS_OF_A_STEP && step_begun.elapsed() < QUICK {
                scan.rows = (scan.rows * 2).min(ROWS_OF_A_STEP_MAX);
            }
        }
    }

    fn first_scan(&self) -> Scan {
        let terms = self.filter.terms();
        let with_json = self.filter.needs_json();
        let (from, before) = ids_between(terms);
        let before = self.before.map_or(before, |id| id.min(before));
        let (classes, queues) = (texts(terms, &Field::Class), texts(terms, &Field::Queue));
        let bounds =
            |field: Field| terms.iter().filter_map(|term| time_bound(term, &field)).collect();
        let created = seek::created_bounds(&self.filter);
        let ended: Vec<_> = bounds(Field::Ended);
        let with_error = terms.iter().any(|term| {
            term.field == Field::Error && matches!(term.operator, Operator::Is | Operator::Has)
        });
        let tasks = if with_json { TASKS_WITH_JSON_OF_A_STEP } else { TASKS_OF_A_STEP };
        let times = !created.is_empty() || !ended.is_empty();
        let narrow = classes.is_some() || queues.is_some() || times || with_error;
        let base = base(&self.filter);
        let is_cheap = match &base {
            ScanSource::All => true,
            ScanSource::WithStatus(statuses) => statuses[..] == [TaskStatus::Waiting],
            ScanSource::Flow(_) | ScanSource::Ids(_) => false,
        };
        let cheap_rows = if is_cheap { ROWS_OF_A_STEP } else { ROWS_OF_A_STEP_IN_PLACES };
        Scan {
            base,
            from,
            before,
            rows: if narrow { cheap_rows } else { tasks },
            // A page that needs nothing else is not read further than its end.
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

/// The smallest place that has all that may be meant.
fn base(filter: &Filter) -> ScanSource {
    let terms = filter.terms();
    if let Some(ids) = is_one_of(terms, &Field::Id) {
        let ids = ids.iter().filter_map(|value| match value {
            Value::Number(id) => Some(TaskId(*id)),
            _ => None,
        });
        return ScanSource::Ids(ids.collect());
    }
    if let Some([Value::Text(name)]) = is_one_of(terms, &Field::Correlation) {
        return ScanSource::Flow(name.clone());
    }
    let statuses = filter.statuses();
    if statuses.contains(&TaskStatus::Stopped) {
        ScanSource::All
    } else {
        ScanSource::WithStatus(statuses)
    }
}

fn is_one_of<'a>(terms: &'a [Term], field: &Field) -> Option<&'a [Value]> {
    let found = terms.iter().find(|it| it.field == *field && it.operator == Operator::Is);
    found.map(|term| term.values.as_slice())
}

fn texts(terms: &[Term], field: &Field) -> Option<Vec<String>> {
    let values = is_one_of(terms, field)?.iter().filter_map(|value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    });
    Some(values.collect())
}

/// The lowest id that may be meant, and the first above all of them.
fn ids_between(terms: &[Term]) -> (TaskId, TaskId) {
    let (mut from, mut before) = (1, i64::MAX);
    for term in terms.iter().filter(|term| term.field == Field::Id) {
        let numbers = || {
            term.values.iter().filter_map(|value| match value {
                Value::Number(id) => Some(*id),
                _ => None,
            })
        };
        let (least, most) = (numbers().min().unwrap_or(1), numbers().max().unwrap_or(i64::MAX));
        match term.operator {
            Operator::Is => {
                from = from.max(least);
                before = before.min(most.saturating_add(1));
            }
            Operator::More => from = from.max(least.saturating_add(1)),
            Operator::Least => from = from.max(least),
            Operator::Less => before = before.min(most),
            Operator::Most => before = before.min(most.saturating_add(1)),
            Operator::IsNot | Operator::Has | Operator::HasNot => {}
        }
    }
    (TaskId(from), TaskId(before))
}

fn time_bound(term: &Term, field: &Field) -> Option<TimeBound> {
    use Operator::{Least, Less, More, Most};
    if term.field != *field {
        return None;
    }
    match (term.operator, term.values.first()?) {
        (More | Least, Value::Time(time)) => Some(TimeBound::From(*time)),
        (Less | Most, Value::Time(time)) => Some(TimeBound::Until(*time)),
        _ => None,
    }
}

/// Everything that a filter means, up to a limit: page by page, so that no
/// statement takes long however long the whole does, and no more is kept than
/// `take` keeps. True if there may be more.
pub async fn find_all(
    store: &dyn Store,
    filter: &Filter,
    limit: u32,
    mut take: impl FnMut(FoundTask),
) -> Result<bool, StoreError> {
    let limit_of_page = limit.min(PAGE);
    let mut search =
        Search { filter: filter.clone(), before: None, limit: limit_of_page, timeout: TIMEOUT };
    let mut left = limit;
    loop {
        let found = search.run(store).await?;
        left -= u32::try_from(found.tasks.len()).unwrap_or(left);
        found.tasks.into_iter().for_each(&mut take);
        if found.next.is_none() || left == 0 {
            return Ok(found.next.is_some());
        }
        search.before = found.next;
        search.limit = left.min(PAGE);
    }
}

const PAGE: u32 = 1000;

#[cfg(test)]
mod tests;
