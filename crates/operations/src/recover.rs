//! Recovery of dead engines by an operator.

use std::time::{Duration, Instant};

use task_engine_core::attempt::NextState;
use task_engine_core::display::{count, span};
use task_engine_core::instance::{Admission, InstanceRow, Recovery, decide_admission};
use task_engine_core::process;
use task_engine_core::recovery::{Reclaim, UnendedAttempt};
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::lock::why_not_reclaimed;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::report::{OperationOutcome, OperationReport};

/// The programs of an engine that died on this machine have this long to end. Until then its
/// tasks must not begin again.
const PROGRAMS_END_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Operator {
    /// Declares all dead instances of a name lost, and reclaims their tasks.
    ///
    /// A live instance is left alone.
    pub async fn recover(&self, name: &str) -> Result<OperationReport, OperationError> {
        let instances = wait_for_programs(&*self.store, name).await?;
        if instances.is_empty() {
            let known = known_names(&*self.store).await?;
            return Err(OperationError::NotFound(format!("there is no engine {name}; {known}")));
        }
        let is_dead =
            |it: &&InstanceRow| decide_admission(it, Recovery::Auto) == Admission::Recover;
        if !instances.iter().any(|it| is_dead(&it))
            && let Some(live) = instances.iter().find(|it| is_live(it))
        {
            return Err(still_alive(live));
        }
        let work = reclaim(&*self.store, name);
        self.audited(AuditedOperation::new("instances.recover", name), work).await
    }
}

async fn reclaim(store: &dyn Store, name: &str) -> Result<OperationReport, OperationError> {
    let mut report = OperationReport::default();
    let (mut live, mut left) = (None, Vec::new());
    for instance in store.instances(Some(name)).await? {
        if is_live(&instance) {
            live = Some(instance);
        } else if decide_admission(&instance, Recovery::Auto) == Admission::Recover {
            match reclaim_one(store, &instance, &mut report).await {
                Ok(held) => left.extend(held),
                Err(error) => return Err(OperationError::from(error).after(report, 0)),
            }
        }
    }
    match live {
        Some(live) if report.counts.is_empty() => return Err(still_alive(&live)),
        None if report.counts.is_empty() => report.add(OperationOutcome::NothingToRecover),
        _ => {}
    }
    if left.is_empty() {
        return Ok(report);
    }
    let why = why_not_reclaimed(store).await?;
    let recovered = report.recovered.len();
    let cause = OperationError::Busy(format!(
        "{name} is declared lost; {} recovered, {} not: {why}. Try again when the lock is released; live engines retry at every heartbeat",
        count(recovered, "task"),
        left.len()
    ));
    Err(if recovered == 0 { cause } else { cause.after(report, left.len()) })
}

/// Reclaims the tasks of one dead instance, and says which it still holds because another
/// session has locked them.
async fn reclaim_one(
    store: &dyn Store,
    instance: &InstanceRow,
    report: &mut OperationReport,
) -> Result<Vec<UnendedAttempt>, StoreError> {
    store.declare_lost(instance.id, instance.process_gone).await?;
    report.add(OperationOutcome::DeclaredLost);
    for attempt in store.reclaim(Reclaim::Lost(instance.id)).await? {
        report.add(match attempt.next {
            NextState::Wait { .. } => OperationOutcome::RecoveredWaiting,
            NextState::End(TaskStatus::Cancelled) => OperationOutcome::RecoveredCancelled,
            NextState::End(_) => OperationOutcome::RecoveredFailed,
        });
        report.task_ids.push(attempt.id.task_id);
        report.recovered.push(attempt);
    }
    store.held_attempts(instance.id).await
}

/// Waits until the programs of dead instances on this machine have ended.
async fn wait_for_programs(store: &dyn Store, name: &str) -> Result<Vec<InstanceRow>, StoreError> {
    let deadline = Instant::now() + PROGRAMS_END_WITHIN;
    loop {
        let instances = store.instances(Some(name)).await?;
        let mut marks = instances.iter().filter(|it| !it.has_ended()).flat_map(|it| &it.process);
        if !marks.any(|mark| process::is_ending(mark)) || Instant::now() >= deadline {
            return Ok(instances);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_live(instance: &InstanceRow) -> bool {
    matches!(decide_admission(instance, Recovery::Auto), Admission::Wait(_) | Admission::Taken)
}

fn still_alive(engine: &InstanceRow) -> OperationError {
    OperationError::Conflict(format!(
        "engine {} is alive: process {} on {}, last heartbeat {} ago. If its machine is gone, it counts as dead in {}; try again then",
        engine.name,
        engine.pid,
        engine.host,
        span(engine.heartbeat_age),
        span(engine.lease.saturating_sub(engine.heartbeat_age))
    ))
}

async fn known_names(store: &dyn Store) -> Result<String, StoreError> {
    let instances = store.instances(None).await?;
    let names: std::collections::BTreeSet<_> =
        instances.iter().map(|it| it.name.as_str()).collect();
    Ok(if names.is_empty() {
        "no engine has run recently".to_owned()
    } else {
        format!("known engines: {}", names.into_iter().collect::<Vec<_>>().join(", "))
    })
}
