//! The claim: lane by lane, from where the last one ended.

use std::sync::Arc;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::task::TaskId;
use task_engine_store::claim::{Claim, ClaimedTask, Claimer, Rest};
use task_engine_store::contract::StoreFuture;
use task_engine_store::error::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{in_words, may_be_a_bad_row, store_error};
use crate::json::JsonBytes;
use crate::look::{Lane, Outlook};
use crate::schema::Schema;
use crate::session::{Ask as _, Session};
use crate::sleep::Sleep;
use crate::store::{Inner, STATEMENT};
use crate::value::{RawTime, read};

const CLAIM: &str = include_str!("../sql/claim.sql");
const COLUMNS: &str = include_str!("../sql/claim_columns.sql");
const CHECKED_COLUMNS: &str = include_str!("../sql/claim_columns_checked.sql");
const PICK_LANE: &str = include_str!("../sql/pick_lane.sql");
const PICK_LANES: &str = include_str!("../sql/pick_lanes.sql");

/// How far a claim reads past rows that others have locked.
const CANDIDATES_MAX: usize = 10_000;

pub(crate) struct PgClaimer {
    statements: Arc<Statements>,
    inner: Arc<Inner>,
    instance: InstanceId,
    outlook: Outlook,
    sleep: Sleep,
}

impl Claimer for PgClaimer {
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let claim = self.claim_or_look(id, limit);
            inner.answer(STATEMENT, claim).await
        })
    }

    fn wake(&mut self) {
        self.outlook.has_changed();
    }
}

impl PgClaimer {
    pub(crate) fn new(inner: Arc<Inner>, instance: InstanceId, lanes: Lanes) -> Self {
        Self {
            statements: Arc::new(Statements::new(&inner.schema)),
            inner,
            instance,
            sleep: Sleep::new(&lanes),
            outlook: Outlook::new(lanes),
        }
    }

    /// Never says that nothing is due without a look that is its own, and only
    /// when everybody who creates tasks from then on wakes this engine.
    async fn claim_or_look(&mut self, id: ClaimId, limit: usize) -> Result<Claim, StoreError> {
        self.sleep.start_over();
        let mut fresh = false;
        if self.outlook.is_stale() {
            self.outlook.look(&self.inner).await?;
            fresh = true;
        }
        loop {
            let due = self.outlook.due_priorities();
            if due.is_empty() && fresh {
                if self.sleep.is_prepared() && !self.outlook.is_whole() {
                    self.outlook.has_changed();
                    return Ok(Claim { tasks: Vec::new(), rest: Rest::Contended });
                }
                if self.sleep.is_prepared() {
                    let next_in = self.sleep.begin(self.outlook.next_in());
                    // The answer is acted upon now; later, one looks again.
                    self.outlook.has_changed();
                    return Ok(Claim { tasks: Vec::new(), rest: Rest::Nothing { next_in } });
                }
                self.sleep.prepare(&self.inner, self.instance).await?;
            }
            for priority in &due {
                let tasks = self.take_from(id, limit, *priority).await?;
                if !tasks.is_empty() {
                    self.sleep.interrupt(&self.inner, self.instance).await;
                    return Ok(Claim { tasks, rest: Rest::More });
                }
            }
            if fresh && !due.is_empty() {
                return Ok(Claim { tasks: Vec::new(), rest: Rest::Contended });
            }
            self.outlook.look(&self.inner).await?;
            fresh = true;
        }
    }

    /// What somebody has locked at the head of a lane hides nothing behind it.
    async fn take_from(
        &mut self,
        id: ClaimId,
        limit: usize,
        priority: i32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let lanes = self.outlook.due_lanes(priority).len();
        let mut tasks = self.take(id, limit, priority, limit * 2).await?;
        if tasks.is_empty() && lanes > 1 {
            tasks = self.take(id, limit, priority, CANDIDATES_MAX).await?;
        }
        if tasks.len() < limit {
            // These lanes have come to their end, or others are faster.
            self.outlook.has_changed();
        }
        Ok(tasks)
    }

    /// Takes from all due lanes of a priority, in the order of time and id.
    ///
    /// If the server cannot read one of the rows, or not print it, the whole
    /// statement fails and nothing is claimed. Then the rows are claimed with each
    /// one checked first: those that cannot be read are told from the others.
    async fn take(
        &mut self,
        id: ClaimId,
        limit: usize,
        priority: i32,
        candidates: usize,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let inner = self.inner.clone();
        let client = inner.connections.work().await?;
        let statements = self.statements.clone();
        let want = Want { id, instance: self.instance, limit, priority, candidates };
        let mut due = self.outlook.due_lanes(priority);
        let rows = match want.ask(&client, &statements.usual, &due).await {
            Err(error) if may_be_a_bad_row(&error) => {
                tracing::warn!(
                    "A claim failed: {}. Claiming again, with each task checked.",
                    in_words(&error)
                );
                want.ask(&client, &statements.checked, &due).await
            }
            rows => rows,
        };
        let rows = rows.map_err(|e| store_error(&e))?;
        if !rows[0].get::<_, bool>(ALIVE) {
            return Err(StoreError::InstanceOver);
        }
        let mut tasks = Vec::with_capacity(rows.len());
        for row in rows.iter().filter(|row| row.get::<_, Option<i64>>(TASK_ID).is_some()) {
            let Some(task) = claimed(row, priority) else {
                let id: i64 = row.get(TASK_ID);
                tracing::error!(
                    "task {id} waits, but was never created: somebody has removed its row; it is dropped"
                );
                continue;
            };
            let lane = due.iter_mut().find(|l| l.class == task.class && l.queue == task.queue);
            if let Some(lane) = lane {
                lane.from = (row.get(DUE_AT), task.id.task_id.0);
            }
            tasks.push(task);
        }
        Ok(tasks)
    }
}

/// What a claim asks for.
struct Want {
    id: ClaimId,
    instance: InstanceId,
    limit: usize,
    priority: i32,
    candidates: usize,
}

impl Want {
    async fn ask(
        &self,
        client: &Session,
        statements: &Form,
        due: &[&mut Lane],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Self { id: ClaimId(id), instance: InstanceId(instance), priority, .. } = self;
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let candidates = i64::try_from(self.candidates).unwrap_or(i64::MAX);
        if let [lane] = due {
            let (queue, class, (time, task)) = (&lane.queue, &lane.class, &lane.from);
            let parameters: [&(dyn ToSql + Sync); 8] =
                [id, instance, &limit, queue, class, time, task, priority];
            return client.query_cached(&statements.one_lane, &parameters).await;
        }
        let queues: Vec<&str> = due.iter().map(|lane| lane.queue.as_str()).collect();
        let classes: Vec<&str> = due.iter().map(|lane| lane.class.as_str()).collect();
        let times: Vec<RawTime> = due.iter().map(|lane| lane.from.0).collect();
        let tasks: Vec<i64> = due.iter().map(|lane| lane.from.1).collect();
        let parameters: [&(dyn ToSql + Sync); 9] =
            [id, instance, &limit, &queues, &classes, &times, &tasks, priority, &candidates];
        client.query_cached(&statements.lanes, &parameters).await
    }
}

/// The claim for this store's schema, as it usually is and with checks.
struct Statements {
    usual: Form,
    checked: Form,
}

/// Its two forms, for one due lane and for several.
struct Form {
    one_lane: String,
    lanes: String,
}

impl Statements {
    fn new(schema: &Schema) -> Self {
        let with = |picked, columns| {
            let statement = CLAIM.replace("/* picked */", picked).replace("/* columns */", columns);
            schema.moved(&statement)
        };
        let form =
            |columns| Form { one_lane: with(PICK_LANE, columns), lanes: with(PICK_LANES, columns) };
        Self { usual: form(COLUMNS), checked: form(CHECKED_COLUMNS) }
    }
}

// The columns of claim.sql: by number, because this is read for every task.
const ALIVE: usize = 0;
const TASK_ID: usize = 1;
const ATTEMPT: usize = 2;
const RETRY_NUMBER: usize = 3;
const TASK_CLASS: usize = 4;
const QUEUE: usize = 5;
const DUE_AT: usize = 6;
const TASK_PARAMETERS: usize = 7;
const CONTEXT: usize = 8;

/// Only in the form with checks.
const UNREADABLE: usize = 9;

fn claimed(row: &Row, priority: i32) -> Option<ClaimedTask> {
    let parameters = row.get::<_, Option<JsonBytes<'_>>>(TASK_PARAMETERS)?.0.to_owned();
    let context = row.get::<_, Option<JsonBytes<'_>>>(CONTEXT)?.0.to_owned();
    let task = ClaimedTask {
        id: AttemptId { task_id: TaskId(row.get(TASK_ID)), attempt: row.get(ATTEMPT) },
        retry_number: u32::try_from(row.get::<_, i32>(RETRY_NUMBER)).unwrap_or(0),
        class: read(row, TASK_CLASS),
        parameters: Json::empty_object(),
        context: Json::empty_object(),
        queue: read(row, QUEUE),
        priority,
        due_at: read(row, DUE_AT),
        unreadable: None,
    };
    let mut task = task.with_stored_json(parameters, context);
    if row.len() > UNREADABLE {
        task.unreadable = read::<Option<String>>(row, UNREADABLE).or(task.unreadable);
    }
    Some(task)
}
