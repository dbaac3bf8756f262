//! Claims: due tasks move from the queue into an engine's hands.

use std::collections::VecDeque;

use rusqlite::{Row, params};
use task_engine_model::{
    AttemptId, Claim, ClaimId, ClaimedTask, InstanceId, Json, Rest, StoreError, TaskId,
};

use crate::desk::Turn;
use crate::fault::Fault;
use crate::moment::{between, timestamp};

/// Who claims, and what it can run.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) instance: InstanceId,
    /// JSON arrays without repetitions, as the statement takes them.
    pub(crate) queues: String,
    pub(crate) classes: String,
}

impl Wanted {
    pub(crate) fn new(instance: InstanceId, queues: Vec<String>, classes: Vec<String>) -> Self {
        let distinct = |mut names: Vec<String>| {
            names.sort();
            names.dedup();
            serde_json::json!(names).to_string()
        };
        Self { instance, queues: distinct(queues), classes: distinct(classes) }
    }
}

/// Takes up to `limit` due tasks in the order of priority, time and id.
///
/// The writer's transaction keeps everybody else out, so nothing is ever locked
/// by somebody: there is more, or there is nothing.
pub(crate) fn claim(
    turn: &Turn<'_>,
    wanted: &Wanted,
    id: ClaimId,
    limit: usize,
) -> Result<Claim, Fault> {
    let alive: bool = turn
        .db
        .prepare_cached(sql!("instance_alive"))?
        .query_row([wanted.instance.0], |row| row.get(0))?;
    if !alive {
        return Err(Fault::Store(StoreError::InstanceOver));
    }
    let (picked, rest) = pick(turn, wanted, limit)?;
    let tasks = take(turn, picked)?;
    if !tasks.is_empty() {
        let attempts: Vec<_> = tasks
            .iter()
            .map(|task| (task.id.task_id, task.id.attempt, task.retry_number))
            .collect();
        turn.db.prepare_cached(sql!("claim_insert"))?.execute(params![
            id.0,
            wanted.instance.0,
            turn.now(),
            serde_json::to_string(&attempts)?,
        ])?;
    }
    Ok(Claim { tasks, rest })
}

/// The next tasks, in order. Goes from one priority to the next lower
/// one, and among the lanes of one priority takes what is due first.
fn pick(turn: &Turn<'_>, wanted: &Wanted, limit: usize) -> Result<(Vec<Waiting>, Rest), Fault> {
    let mut picked = Vec::with_capacity(limit);
    let mut next_due = None;
    let mut statement = turn.db.prepare_cached(sql!("claim_lanes"))?;
    let mut lanes = statement
        .query_map([&wanted.queues, &wanted.classes], |row| {
            Ok(Lane::new(row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .peekable();
    while picked.len() < limit {
        let Some(first) = lanes.next().transpose()? else {
            let next_in = next_due.map(|due_at| between(turn.now(), due_at));
            return Ok((picked, Rest::Nothing { next_in }));
        };
        let priority = first.priority;
        let mut level = vec![first];
        while let Some(lane) =
            lanes.next_if(|lane| !matches!(lane, Ok(lane) if lane.priority != priority))
        {
            level.push(lane?);
        }
        merge(turn, &mut level, limit, &mut picked)?;
        next_due = level.iter().filter_map(|lane| lane.next_due).chain(next_due).min();
    }
    Ok((picked, Rest::More))
}

/// Takes due tasks of lanes of one priority until there are `limit` in all.
fn merge(
    turn: &Turn<'_>,
    level: &mut [Lane],
    limit: usize,
    picked: &mut Vec<Waiting>,
) -> Result<(), Fault> {
    // Enough for an even share; a lane that gives more is asked again.
    let share = ((limit - picked.len()) / level.len()).max(8);
    while picked.len() < limit {
        let mut first: Option<(Head, usize)> = None;
        for (place, lane) in level.iter_mut().enumerate() {
            if let Some(head) = lane.head(turn, share)? {
                first = Some(first.map_or((head, place), |first| first.min((head, place))));
            }
        }
        let Some((_, place)) = first else {
            return Ok(());
        };
        picked.extend(level[place].read.pop_front());
    }
    Ok(())
}

/// Tasks of one queue, class and priority, in the order of time and id.
struct Lane {
    queue: String,
    class: String,
    priority: i32,
    /// Due tasks that were read and not taken yet.
    read: VecDeque<Waiting>,
    /// The last one that was read.
    last: Head,
    /// Nothing more is due.
    dry: bool,
    /// When the first task that is not due will be.
    next_due: Option<i64>,
}

/// The order of the fields is the order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    due_at: i64,
    task_id: i64,
}

/// A due task, with all that its attempt needs.
struct Waiting {
    head: Head,
    task: Option<ClaimedTask>,
}

impl Lane {
    fn new(queue: String, class: String, priority: i32) -> Self {
        Self {
            queue,
            class,
            priority,
            read: VecDeque::new(),
            last: Head { due_at: i64::MIN, task_id: i64::MIN },
            dry: false,
            next_due: None,
        }
    }

    fn head(&mut self, turn: &Turn<'_>, share: usize) -> Result<Option<Head>, Fault> {
        if self.read.is_empty() && !self.dry {
            self.read_on(turn, share)?;
        }
        Ok(self.read.front().map(|waiting| waiting.head))
    }

    fn read_on(&mut self, turn: &Turn<'_>, share: usize) -> Result<(), Fault> {
        let mut statement = turn.db.prepare_cached(sql!("claim_heads"))?;
        let mut rows = statement.query(params![
            self.queue,
            self.class,
            self.priority,
            self.last.due_at,
            self.last.task_id,
            share as i64,
        ])?;
        self.dry = true;
        while let Some(row) = rows.next()? {
            let head = Head { task_id: row.get(0)?, due_at: row.get(1)? };
            if head.due_at > turn.now() {
                self.next_due = Some(head.due_at);
                self.dry = true;
                break;
            }
            self.last = head;
            self.read.push_back(Waiting { head, task: self.task(head, row)? });
            self.dry = self.read.len() < share;
        }
        Ok(())
    }

    /// None if the task was never created.
    fn task(&self, head: Head, row: &Row<'_>) -> rusqlite::Result<Option<ClaimedTask>> {
        let Some(parameters) = row.get(4)? else {
            return Ok(None);
        };
        Ok(Some(ClaimedTask {
            id: AttemptId { task_id: TaskId(head.task_id), attempt: row.get(2)? },
            retry_number: row.get(3)?,
            class: self.class.clone(),
            parameters: Json::from_store(parameters),
            context: Json::from_store(row.get(5)?),
            queue: self.queue.clone(),
            priority: self.priority,
            due_at: timestamp(head.due_at),
        }))
    }
}

/// Takes tasks out of the queue.
fn take(turn: &Turn<'_>, picked: Vec<Waiting>) -> Result<Vec<ClaimedTask>, Fault> {
    let mut delete = turn.db.prepare_cached(sql!("waiting_delete"))?;
    let mut tasks = Vec::with_capacity(picked.len());
    for Waiting { head, task } in picked {
        delete.execute([head.task_id])?;
        if task.is_none() {
            // It would be the first of every claim, for ever.
            tracing::error!(
                task_id = head.task_id,
                "a task waits that was never created; it is removed from the queue"
            );
        }
        tasks.extend(task);
    }
    Ok(tasks)
}
