//! Recovery: reclaims tasks from engines that no longer work on them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptEnd, RunSpan};
use task_engine_core::attempt::{AttemptId, AttemptRecord, NextState};
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::recovery::{HoldingEngine, OpenAttempt};
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt};
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::error::{SqlError, must_repeat};
use crate::executor::{Executor as _, PgTransaction};
use crate::store::{StoreInner, from_micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/recover.sql");
const CLAIMS: &str = statement(SQL, "reclaim_claims");
const CLOSED: &str = statement(SQL, "reclaim_closed");
const ATTEMPTS: &str = statement(SQL, "reclaim_attempts");

impl StoreInner {
    pub(crate) async fn reclaim(&self, what: Reclaim) -> Result<Vec<ReclaimedAttempt>, StoreError> {
        let taken = self.reclaim_claims(&what).await?;
        let ended = taken.iter().filter(|one| matches!(one.next, NextState::End(_)));
        self.resume_parents_of(ended.map(|one| one.id.task_id).collect()).await;
        Ok(taken)
    }

    async fn reclaim_claims(&self, what: &Reclaim) -> Result<Vec<ReclaimedAttempt>, StoreError> {
        let mut client = self.connections.lifeline().await?;
        loop {
            let mut transaction = client.transaction().await?;
            let taken = match self.reclaim_in(&mut transaction, what).await {
                Ok(taken) => transaction.commit().await.map(|()| taken),
                Err(e) => Err(e),
            };
            match taken {
                Err(e) if must_repeat(&e) => {}
                answer => return Ok(answer?),
            }
        }
    }

    async fn reclaim_in(
        &self,
        transaction: &mut PgTransaction<'_>,
        what: &Reclaim,
    ) -> Result<Vec<ReclaimedAttempt>, SqlError> {
        let (instance, ids) = match what {
            Reclaim::Unknown(instance, claims) => {
                (*instance, Some(claims.iter().map(|claim| claim.0).collect::<Vec<_>>()))
            }
            Reclaim::Lost(instance) => (*instance, None),
        };
        let claims = transaction.query(&self.schema.sql(CLAIMS), &[&instance.0, &ids]).await?;
        let Some(first) = claims.first() else {
            return Ok(Vec::new());
        };
        let holding_engine = holding_engine(first);
        let held: HashMap<AttemptId, ClaimedAttempt> = claims.iter().flat_map(held_in).collect();
        let task_ids: Vec<i64> = held.keys().map(|id| id.task_id.0).collect();
        let attempts: Vec<i32> = held.keys().map(|id| id.attempt).collect();
        let open = transaction.query(&self.schema.sql(ATTEMPTS), &[&task_ids, &attempts]).await?;
        let mut endings = Vec::with_capacity(open.len());
        let mut taken = Vec::with_capacity(open.len());
        for row in &open {
            let id =
                AttemptId { task_id: TaskId(read(row, "task_id")), attempt: read(row, "attempt") };
            let class: String = read(row, "task_class");
            let held = &held[&id];
            let attempt = OpenAttempt {
                attempt: id.attempt,
                class: &class,
                context: &read::<Json>(row, "context"),
                retry_number: held.retry_number,
                cancel_requested: read(row, "cancel_requested"),
                recorded_steps: read(row, "recorded_steps"),
            };
            let (end, next) = holding_engine.decide(what, attempt, fastrand::f64());
            endings.push(held.ending(id, instance, end, next));
            taken.push(ReclaimedAttempt { id, class, next });
        }
        let outcome = self.end_without_waiting(transaction, &endings).await?;
        // An attempt that an open transaction is about to complete stays in its claim. A
        // later call decides.
        let left: HashSet<ClaimId> = outcome.open.iter().map(|id| held[id].claim).collect();
        let ids = claims.iter().map(|claim| claim.get::<_, i64>("id"));
        let closed: Vec<i64> = ids.filter(|id| !left.contains(&ClaimId(*id))).collect();
        transaction.execute(&self.schema.sql(CLOSED), &[&closed]).await?;
        // The engine itself may have been faster with some of them.
        taken.retain(|one: &ReclaimedAttempt| outcome.ended.contains(&one.id));
        Ok(taken)
    }
}

fn holding_engine(row: &Row) -> HoldingEngine {
    HoldingEngine {
        name: read(row, "name"),
        host: read(row, "host"),
        pid: read(row, "pid"),
        silent: from_micros(read(row, "silent_us")),
        classes: read::<Json>(row, "classes").decode().unwrap_or_default(),
    }
}

/// An attempt in a claim.
struct ClaimedAttempt {
    claim: ClaimId,
    retry_number: u32,
    since: Duration,
}

fn held_in(claim: &Row) -> Vec<(AttemptId, ClaimedAttempt)> {
    let (task_ids, attempts): (Vec<i64>, Vec<i32>) = (claim.get("task_ids"), claim.get("attempts"));
    let retry_numbers: Vec<i32> = claim.get("retry_numbers");
    let since = from_micros(claim.get("held_us"));
    let held = task_ids.into_iter().zip(attempts).zip(retry_numbers);
    held.map(|((task_id, attempt), retry_number)| {
        let retry_number = u32::try_from(retry_number).unwrap_or(0);
        let id = AttemptId { task_id: TaskId(task_id), attempt };
        (id, ClaimedAttempt { claim: ClaimId(claim.get("id")), retry_number, since })
    })
    .collect()
}

impl ClaimedAttempt {
    fn ending(
        &self,
        id: AttemptId,
        instance_id: InstanceId,
        end: AttemptEnd,
        next: NextState,
    ) -> AttemptRecord {
        // When the attempt began inside its engine is not known: the claim is
        // the last that is.
        let began = end.has_started();
        let ran =
            began.then(|| RunSpan { worker: None, lasted: self.since, ended: Instant::now() });
        let (result, error) = end.into_parts();
        AttemptRecord {
            id,
            retry_number: self.retry_number,
            claim_id: self.claim,
            instance_id,
            ran,
            result,
            error,
            next,
            cancel_response: None,
        }
    }
}
