//! Groups failures by error.
//!
//! Two errors are the same if their task class, kind and message are the same, apart from
//! variable parts: numbers, ids and quoted text.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::fingerprint::{MARKS, fingerprint};
use crate::search::{Search, SearchPage};
use task_engine_core::attempt::TaskError;
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// The hours of a group's trend.
pub const HOURS: usize = 12;

/// The number of failures that are read by default.
pub const LIMIT: u32 = 5_000;
/// The time limit of the search: longer than usual, for more exact counts.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Tasks with an error.
#[derive(Debug, Clone)]
pub struct Failures {
    /// The tasks, newest first.
    pub found: SearchPage,
    /// The number of all failed tasks; only if the filter selects all failed tasks and
    /// not all of them were read.
    pub total: Option<BoundedCount>,
}

impl Failures {
    /// Finds tasks with an error that match a filter.
    ///
    /// A filter without a status selects failed tasks.
    pub async fn find(
        store: &dyn Store,
        filter: Filter,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let failed = Filter::default().and_status(&[TaskStatus::Failed]);
        let filter = if filter.has_status() { filter } else { filter.and(failed.clone()) };
        let is_all_failed = filter == failed && before.is_none();
        // Most waiting tasks have never failed.
        let filter = filter.and_error_with("");
        let found = Search { filter, before, limit, timeout: SEARCH_TIMEOUT }.run(store).await?;
        let total = match found.next {
            Some(_) if is_all_failed => Some(store.failure_counts().await?.failed),
            _ => None,
        };
        Ok(Self { found, total })
    }

    /// Returns whether there may be more tasks: then all counts are of the newest ones, a sample.
    #[must_use]
    pub fn is_sample(&self) -> bool {
        self.found.next.is_some()
    }

    /// Returns the groups of these tasks.
    #[must_use]
    pub fn groups(&self) -> Vec<ErrorGroup> {
        groups(&self.found)
    }
}

/// Tasks with the same error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorGroup {
    key: String,
    /// The class of the tasks.
    pub class: String,
    /// The kind of error.
    pub exception: String,
    /// The message without its variable parts.
    pub message: String,
    /// How many tasks were found.
    pub count: usize,
    /// When the first of them last changed.
    pub first_seen: Timestamp,
    /// When the last of them last changed.
    pub last_seen: Timestamp,
    /// Failures in each of the last hours, the oldest first.
    pub per_hour: [usize; HOURS],
    /// The newest task.
    pub newest_task: TaskId,
    /// The full message of the newest task.
    pub example: String,
    /// The statuses of the tasks.
    #[serde(skip)]
    statuses: Vec<TaskStatus>,
}

/// Returns the groups of the found tasks, the largest first; of equal ones, the newest first.
#[must_use]
pub fn groups(found: &SearchPage) -> Vec<ErrorGroup> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<ErrorGroup> = Vec::new();
    for task in &found.tasks {
        let Some(error) = &task.row.error else { continue };
        let key = key_of(&task.row.class, error);
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(ErrorGroup::new(key, task, error));
        }
        groups[place].add(task, found.now);
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.newest_task)));
    groups
}

impl ErrorGroup {
    fn new(key: String, task: &FoundTask, error: &TaskError) -> Self {
        let row = &task.row;
        Self {
            key,
            class: row.class.clone(),
            exception: error.exception.clone(),
            message: fingerprint(&error.message),
            count: 0,
            first_seen: row.updated_at,
            last_seen: row.updated_at,
            per_hour: [0; HOURS],
            newest_task: row.id,
            example: error.message.clone(),
            statuses: Vec::new(),
        }
    }

    fn add(&mut self, task: &FoundTask, now: Timestamp) {
        let at = task.row.updated_at;
        self.count += 1;
        self.first_seen = self.first_seen.min(at);
        self.last_seen = self.last_seen.max(at);
        if !self.statuses.contains(&task.row.status) {
            self.statuses.push(task.row.status);
        }
        let hours_ago = usize::try_from(now.duration_since(at).as_secs().max(0) / 3600);
        if let Some(hour) = hours_ago.ok().filter(|hour| *hour < HOURS) {
            self.per_hour[HOURS - 1 - hour] += 1;
        }
    }

    /// Returns a stable name of the error: sixteen hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether a task belongs to this group.
    #[must_use]
    pub fn contains(&self, task: &FoundTask) -> bool {
        task.row.error.as_ref().is_some_and(|error| {
            task.row.class == self.class
                && error.exception == self.exception
                && fingerprint(&error.message) == self.message
        })
    }

    /// Returns the narrowest filter that matches all tasks of this group.
    ///
    /// It may match others; [`Self::contains`] excludes them.
    #[must_use]
    pub fn filter(&self) -> Filter {
        let filter = Filter::default()
            .and_status(&self.statuses)
            .and_class(&self.class)
            .and_error(&self.exception);
        match longest_constant_part(&self.message) {
            Some(piece) => filter.and_error_with(piece),
            None => filter,
        }
    }
}

/// The longest constant part of a line of a fingerprint.
fn longest_constant_part(fingerprint: &str) -> Option<&str> {
    let mut pieces: Vec<&str> = fingerprint.lines().collect();
    for mark in MARKS {
        pieces = pieces.iter().flat_map(|piece| piece.split(mark)).collect();
    }
    let pieces = pieces.into_iter().map(|piece| cut(piece).trim());
    pieces.filter(|piece| !piece.is_empty()).max_by_key(|piece| piece.chars().count())
}

/// Filters are shown, typed and sent in URLs.
const PIECE_BYTES_MAX: usize = 200;

/// Cuts at the end of a word: the lower case of half a word may differ.
fn cut(piece: &str) -> &str {
    let mut end = PIECE_BYTES_MAX.min(piece.len());
    while !piece.is_char_boundary(end) {
        end -= 1;
    }
    let head = &piece[..end];
    if end == piece.len() { head } else { head.rfind(' ').map_or(head, |space| &head[..space]) }
}

/// FNV-1a: the same on every machine and in every version. Links contain it.
fn key_of(class: &str, error: &TaskError) -> String {
    // No text contains this byte, so different triples differ.
    const END: u8 = 0xff;
    let message = fingerprint(&error.message);
    let parts = [class, error.exception.as_str(), message.as_str()];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([END]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests;
