//! What fails: failures in groups of the same error.
//!
//! Errors are the same if the classes of their tasks, their kinds and their
//! messages are, apart from what differs from case to case: numbers, ids, what is
//! in quotes.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::fingerprint::{MARKS, fold};
use crate::search::{Search, SearchPage};
use task_engine_core::attempt::TaskError;
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::queue::Count;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// The trend of a group has one number for each of so many hours.
pub const HOURS: usize = 12;

/// So many failures are looked at, if nothing else is said.
pub const LIMIT: u32 = 5_000;
/// How long they are looked for. Counts that are right are worth a second.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Failures, and whether they are all there are.
#[derive(Debug, Clone)]
pub struct Failures {
    /// Tasks with an error, newest first.
    pub found: SearchPage,
    /// How many tasks have failed in all; known if that was the question, and not
    /// all of them were looked at.
    pub total: Option<Count>,
}

impl Failures {
    /// Looks for tasks with an error that a filter means; if it says nothing about
    /// the status, for those that were given up.
    pub async fn look(
        store: &dyn Store,
        filter: Filter,
        before: Option<TaskId>,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let failed = Filter::default().and_status(&[TaskStatus::Failed]);
        let filter = if filter.has_status() { filter } else { filter.and(failed.clone()) };
        let is_about_all = filter == failed && before.is_none();
        // Of those that wait, most may never have failed.
        let filter = filter.and_error_with("");
        let found = Search { filter, before, limit, timeout: LOOK_TIMEOUT }.run(store).await?;
        let total = match found.next {
            Some(_) if is_about_all => Some(store.failure_counts().await?.failed),
            _ => None,
        };
        Ok(Self { found, total })
    }

    /// Whether there may be more than were looked at: then all counts are of a
    /// sample, the newest.
    #[must_use]
    pub fn is_sample(&self) -> bool {
        self.found.next.is_some()
    }

    /// The groups of what was found.
    #[must_use]
    pub fn groups(&self) -> Vec<ErrorGroup> {
        groups(&self.found)
    }
}

/// Tasks that have failed alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorGroup {
    key: String,
    /// The class of the tasks.
    pub class: String,
    /// The kind of error.
    pub exception: String,
    /// The message without what differs.
    pub message: String,
    /// How many tasks were found.
    pub count: usize,
    /// When the first of them last changed,
    pub first_seen: Timestamp,
    /// and the last.
    pub last_seen: Timestamp,
    /// Failures in each of the last hours, the oldest first.
    pub per_hour: [usize; HOURS],
    /// The newest task.
    pub newest_task: TaskId,
    /// The message of the newest, as it is.
    pub example: String,
    /// The statuses that the tasks are in.
    #[serde(skip)]
    statuses: Vec<TaskStatus>,
}

/// The groups of what was found, the largest first; of equal ones, the newest.
#[must_use]
pub fn groups(found: &SearchPage) -> Vec<ErrorGroup> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<ErrorGroup> = Vec::new();
    for task in &found.tasks {
        let Some(error) = &task.row.error else { continue };
        let key = key_of(&task.row.class, error);
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(ErrorGroup::begin(key, task, error));
        }
        groups[place].add(task, found.now);
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.newest_task)));
    groups
}

impl ErrorGroup {
    fn begin(key: String, task: &FoundTask, error: &TaskError) -> Self {
        let row = &task.row;
        Self {
            key,
            class: row.class.clone(),
            exception: error.exception.clone(),
            message: fold(&error.message),
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

    /// A short name that the same error has each time, whoever looks: sixteen
    /// hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether a task is one of this group.
    #[must_use]
    pub fn is_of(&self, task: &FoundTask) -> bool {
        task.row.error.as_ref().is_some_and(|error| {
            task.row.class == self.class
                && error.exception == self.exception
                && fold(&error.message) == self.message
        })
    }

    /// Finds the tasks of this group, as narrowly as a filter can; there may be
    /// others among them, which [`Self::is_of`] tells apart.
    #[must_use]
    pub fn filter(&self) -> Filter {
        let filter = Filter::default()
            .and_status(&self.statuses)
            .and_class(&self.class)
            .and_error(&self.exception);
        match piece(&self.message) {
            Some(piece) => filter.and_error_with(piece),
            None => filter,
        }
    }
}

/// The longest part of a line of a folded message that is the same in each of
/// its messages.
fn piece(folded: &str) -> Option<&str> {
    let mut pieces: Vec<&str> = folded.lines().collect();
    for mark in MARKS {
        pieces = pieces.iter().flat_map(|piece| piece.split(mark)).collect();
    }
    let pieces = pieces.into_iter().map(|piece| cut(piece).trim());
    pieces.filter(|piece| !piece.is_empty()).max_by_key(|piece| piece.chars().count())
}

/// A filter has to be typed, shown and sent.
const PIECE_BYTES_MAX: usize = 200;

/// Where a word ends, because half a word may have other small letters.
fn cut(piece: &str) -> &str {
    let mut end = PIECE_BYTES_MAX.min(piece.len());
    while !piece.is_char_boundary(end) {
        end -= 1;
    }
    let head = &piece[..end];
    if end == piece.len() { head } else { head.rfind(' ').map_or(head, |space| &head[..space]) }
}

/// FNV-1a: the same on every machine and in every version.
fn key_of(class: &str, error: &TaskError) -> String {
    // No text has this byte, so that no two triples are one.
    const END: u8 = 0xff;
    let message = fold(&error.message);
    let parts = [class, error.exception.as_str(), message.as_str()];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([END]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use task_engine_core::json::Json;
    use task_engine_core::task::TaskRow;

    fn now() -> Timestamp {
        "2026-12-24T12:00:00Z".parse().unwrap()
    }

    fn failed(id: i64, class: &str, message: &str, hours_ago: i64) -> FoundTask {
        let at = now() - jiff::SignedDuration::from_hours(hours_ago);
        let row = TaskRow {
            id: TaskId(id),
            status: TaskStatus::Failed,
            class: class.into(),
            queue: "default".into(),
            priority: 0,
            created_at: at,
            scheduled_at: at,
            updated_at: at,
            attempts: 1,
            retry_number: 0,
            instance: None,
            error: Some(TaskError::new("Http", message)),
        };
        let empty = Json::parse("{}").unwrap();
        FoundTask {
            row,
            correlation_id: String::new(),
            parameters: empty.clone(),
            context: empty,
            started_at: None,
            ended_at: None,
        }
    }

    fn found(tasks: Vec<FoundTask>) -> SearchPage {
        SearchPage { tasks, next: None, now: now() }
    }

    #[test]
    fn the_same_error_is_one_group() {
        let found = found(vec![
            failed(9, "mail", "user 7: 429 Too Many", 0),
            failed(8, "sms", "user 7: 429 Too Many", 0),
            failed(7, "mail", "user 12: 503 Too Many", 3),
            failed(6, "mail", "user 12: 503 Too Many", 12),
        ]);
        let groups = groups(&found);
        let [mail, sms] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((mail.count, mail.newest_task, sms.count), (3, TaskId(9), 1));
        assert_eq!(mail.message, "user <n>: <n> Too Many");
        assert_eq!(mail.per_hour, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!((mail.first_seen, mail.last_seen), (found.tasks[3].row.updated_at, now()));
        let are: Vec<_> = found.tasks.iter().map(|task| mail.is_of(task)).collect();
        assert_eq!(are, [true, false, true, true]);
        assert_eq!(
            mail.filter().to_string(),
            r#"status=failed class=mail error=Http error~"Too Many""#
        );
        assert!(mail.is_of(&found.tasks[2]));
    }

    #[test]
    fn keys_stay_what_they_are() {
        // Links and notes have them.
        let error = failed(1, "mail", "a 1", 0).row.error.unwrap();
        assert_eq!(key_of("mail", &error), "de5c558f79fae05c");
        let split = key_of("ab", &TaskError::new("c", ""));
        assert_ne!(split, key_of("a", &TaskError::new("bc", "")));
    }

    #[test]
    fn a_filter_finds_every_task_of_its_group() {
        let long = "word ".repeat(100);
        let unbroken = "é".repeat(300);
        for message in [
            "",
            "7",
            "plain",
            "with \"quotes, and\" more, \\ and = ~ signs",
            "two\nlines of 12",
            "a literal <n> and <hex> 0xff",
            " spaces around 5 ",
            "ΟΔΟΣ 12 Ärger",
            "tab\tand \u{1b}[0m escape 7",
            &long,
            &unbroken,
        ] {
            let task = failed(1, "a b", message, 0);
            let group = &groups(&found(vec![task.clone()]))[0];
            let filter = group.filter();
            assert!(filter.matches(&task, now()) && group.is_of(&task), "{message:?}: {filter}");
            // It survives being typed.
            let typed = Filter::parse(&filter.to_string(), &TimeZone::UTC).unwrap();
            assert_eq!(typed, filter, "{message:?}");
        }
    }
}
