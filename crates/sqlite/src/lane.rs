//! Lanes: the queue, as a claim reads it.

use std::collections::VecDeque;

use rusqlite::{Row, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::json::Json;
use task_engine_core::task::TaskId;
use task_engine_store::claim::ClaimedTask;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::value::read;

/// Where a jump from lane to lane goes on behind those of blocked tasks, which no claim reads.
/// No name of a queue comes in between.
pub(crate) const AFTER_BLOCKED: &str = "\u{1e}\u{10ffff}";

/// Tasks of one queue, class and priority, in the order of time and id.
pub(crate) struct LaneReader {
    pub(crate) queue: String,
    pub(crate) class: String,
    /// Wider than a valid priority, because the table may contain any number.
    pub(crate) priority: i64,
    /// Due tasks that were read and not taken yet.
    read: VecDeque<Waiting>,
    /// The last one that was read.
    last: Head,
    /// Nothing more is due.
    exhausted: bool,
    /// When the first task that is not due will be.
    pub(crate) next_due: Option<i64>,
    /// Always the first of the lane, without a gap.
    taken: Option<TakenRange>,
}

#[derive(Debug, Clone, Copy)]
struct TakenRange {
    count: usize,
    first: Head,
    last: Head,
}

/// The order of the fields is the order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    pub(crate) due_at: i64,
    pub(crate) task_id: i64,
}

/// A due task with its fields.
pub(crate) struct Waiting {
    pub(crate) head: Head,
    /// None if the task was never created.
    pub(crate) task: Option<ClaimedTask>,
}

impl LaneReader {
    pub(crate) fn new(queue: String, class: String, priority: i64) -> Self {
        Self {
            queue,
            class,
            priority,
            read: VecDeque::new(),
            last: Head { due_at: i64::MIN, task_id: i64::MIN },
            exhausted: false,
            next_due: None,
            taken: None,
        }
    }

    /// The first due task that is not taken. `share` are read at a time.
    pub(crate) fn head(
        &mut self,
        tx: &JobTransaction<'_>,
        share: usize,
    ) -> Result<Option<Head>, JobError> {
        if self.read.is_empty() && !self.exhausted {
            self.read_on(tx, share)?;
        }
        Ok(self.read.front().map(|waiting| waiting.head))
    }

    pub(crate) fn take(&mut self) -> Option<Waiting> {
        let waiting = self.read.pop_front()?;
        let last = waiting.head;
        let (count, first) = self.taken.map_or((0, last), |taken| (taken.count, taken.first));
        self.taken = Some(TakenRange { count: count + 1, first, last });
        Some(waiting)
    }

    /// Deletes the taken tasks from the queue: all of the lane up to the last one.
    pub(crate) fn delete_taken(&self, tx: &JobTransaction<'_>) -> Result<(), JobError> {
        let Some(TakenRange { count, first, last }) = self.taken else {
            return Ok(());
        };
        let (queue, class, priority) = (&self.queue, &self.class, self.priority);
        let mut deleted = tx
            .db
            .prepare_cached(sql!("engine/claim", "waiting_delete_due_at"))?
            .execute(params![queue, class, priority, last.due_at, last.task_id])?;
        if first.due_at < last.due_at {
            deleted += tx
                .db
                .prepare_cached(sql!("engine/claim", "waiting_delete_due_before"))?
                .execute(params![queue, class, priority, last.due_at])?;
        }
        if deleted == count {
            return Ok(());
        }
        Err(JobError::Store(StoreError::Refused(format!(
            "the queue {queue:?} is damaged: {count} tasks of the class {class:?} were read, and {deleted} are to be removed; run `task-engine doctor`"
        ))))
    }

    fn read_on(&mut self, tx: &JobTransaction<'_>, share: usize) -> Result<(), JobError> {
        let mut statement = tx.db.prepare_cached(sql!("engine/claim", "claim_heads"))?;
        let mut rows = statement.query(params![
            self.queue,
            self.class,
            self.priority,
            self.last.due_at,
            self.last.task_id,
            share as i64,
        ])?;
        self.exhausted = true;
        while let Some(row) = rows.next()? {
            let head = Head { task_id: read(row, 0)?, due_at: read(row, 1)? };
            if head.due_at > tx.now() {
                self.next_due = Some(head.due_at);
                self.exhausted = true;
                break;
            }
            self.last = head;
            let task = claimed_task(row, head, &self.queue, &self.class, self.priority)?;
            self.read.push_back(Waiting { head, task });
            self.exhausted = self.read.len() < share;
        }
        Ok(())
    }
}

/// The task of a row that begins with its id and time. `None` if it was never created.
pub(crate) fn claimed_task(
    row: &Row<'_>,
    head: Head,
    queue: &str,
    class: &str,
    priority: i64,
) -> rusqlite::Result<Option<ClaimedTask>> {
    let Some(parameters) = read::<Option<Vec<u8>>>(row, 4)? else {
        return Ok(None);
    };
    let nearest = priority.clamp(i32::MIN.into(), i32::MAX.into());
    let task = ClaimedTask {
        id: AttemptId { task_id: TaskId(head.task_id), attempt: read(row, 2)? },
        retry_number: read(row, 3)?,
        class: class.to_owned(),
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        queue: queue.to_owned(),
        priority: i32::try_from(nearest).unwrap_or(0),
        due_at: timestamp(head.due_at),
        unreadable: None,
        limited: None,
    };
    Ok(Some(task.with_stored_json(parameters, read(row, 5)?)))
}
