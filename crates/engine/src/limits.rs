//! Limits of an engine: declares them at the start, wakes claimers when keys may be free, and
//! closes the keys of a task that was rate limited. Tasks without limits cost nothing here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine_core::display::span;
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, InvalidLimit, Limit, LimitChange, LimitKey, LimitRow, LimitTarget,
    check_declared,
};
use task_engine_core::retry::DELAY_MAX;
use task_engine_store::claim::LimitedStart;
use task_engine_store::contract::Store;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::classes::Classes;
use crate::engine_error::EngineError;
use crate::rollup::EndingLabels;
use crate::wake_up::WakeUps;

const BATCH_MAX: usize = 1000;

/// The limits of classes, and those that the engine was given.
pub(crate) fn declared<S: Send + Sync + 'static>(
    classes: &Classes<S>,
    given: &[Limit],
) -> DeclaredLimits {
    let mut limits = Vec::new();
    for (class, options) in classes.options() {
        limits.extend(options.limits.iter().map(|limit| limit.of_class(&class)));
    }
    limits.extend_from_slice(given);
    DeclaredLimits { classes: classes.names(), limits }
}

/// Whether an engine with these classes may declare these limits.
pub(crate) fn check<S: Send + Sync + 'static>(
    classes: &Classes<S>,
    given: &[Limit],
) -> Result<(), String> {
    let limits = declared(classes, given).limits;
    check_declared(&limits).map_err(|error| error.to_string())?;
    for limit in &limits {
        if let LimitTarget::Class(class) = &limit.target
            && classes.get(class).is_none()
        {
            return Err(format!(
                "limit {:?} is for class {class}, which has no handler here; check the name",
                limit.name
            ));
        }
        for (class, options) in classes.options() {
            let is_other = matches!(&limit.target, LimitTarget::Class(name) if *name != class);
            if !is_other && limit.options.has_secret_key(&options.secret) {
                let (name, key) = (limit.name.clone(), limit.options.key.clone());
                let key = key.unwrap_or_default();
                return Err(InvalidLimit::SecretKey { name, key, class }.to_string());
            }
        }
    }
    Ok(())
}

/// Stores the limits that the engine declares, and removes those of its classes that it no
/// longer declares.
pub(crate) async fn declare(
    store: &dyn Store,
    declared: &DeclaredLimits,
) -> Result<(), EngineError> {
    let before = if declared.limits.is_empty() { Vec::new() } else { store.limits().await? };
    for (name, change) in store.declare_limits(declared).await? {
        let stored = before.iter().find(|row| row.limit.name == name);
        let limit = declared.limits.iter().find(|limit| limit.name == name);
        log_change(&name, change, limit, stored);
    }
    Ok(())
}

fn log_change(name: &str, change: LimitChange, limit: Option<&Limit>, stored: Option<&LimitRow>) {
    let declares = limit.map(|limit| limit.options.to_string()).unwrap_or_default();
    let stored = stored.map(|row| match &row.declared {
        Some(declared) if change == LimitChange::Changed => declared.to_string(),
        _ => row.limit.options.to_string(),
    });
    let stored = stored.unwrap_or_default();
    match change {
        LimitChange::Added => tracing::info!("stored limit {name:?}: {declares}"),
        LimitChange::Changed => tracing::warn!(
            "limit {name:?} was declared as {stored} before, by another engine or an earlier version; this engine declares {declares}, which applies from now on"
        ),
        LimitChange::Removed => {
            tracing::info!("removed limit {name:?}: its class no longer declares it");
        }
        LimitChange::Overridden => tracing::warn!(
            "limit {name:?}: an operator has set {stored}, which applies until the operator clears it; this engine declares {declares}"
        ),
        LimitChange::Unchanged => {}
    }
}

/// Wakes claimers after attempts with limits have ended: their keys may be free.
#[derive(Clone)]
pub(crate) struct FreedKeys {
    wake_ups: Arc<WakeUps>,
    others: UnboundedSender<()>,
}

impl FreedKeys {
    pub(crate) fn new(wake_ups: Arc<WakeUps>, others: UnboundedSender<()>) -> Self {
        Self { wake_ups, others }
    }

    /// Called once for a batch of recorded endings. The own dispatchers are woken at once.
    pub(crate) fn wake_after(&self, recorded: &[EndingLabels]) {
        if recorded.iter().any(|labels| labels.limited) {
            self.wake_ups.wake_for_keys();
            let _ = self.others.send(());
        }
    }
}

/// Wakes other engines until the last sender is gone. A lost wake-up is found by their polls.
pub(crate) async fn wake_others(store: Arc<dyn Store>, mut freed: UnboundedReceiver<()>) {
    let mut batch = Vec::new();
    while freed.recv_many(&mut batch, BATCH_MAX).await > 0 {
        batch.clear();
        if let Err(error) = store.wake_limited().await {
            tracing::debug!("other engines find free keys of limits with their polls: {error}");
        }
    }
}

/// Why a claimed attempt must not start any more: a rate has counted it up to a time that is
/// over.
pub(crate) fn too_late(limited: Option<&LimitedStart>) -> Option<String> {
    let late = Instant::now().checked_duration_since(limited?.start_before?)?;
    Some(format!(
        "it could start only {} after its turn under its rate limit",
        span(late.max(Duration::from_millis(1)))
    ))
}

/// Closes the keys of a task: no attempt of them starts for this time. If the store cannot be
/// reached, only this task waits.
pub(crate) async fn close_keys(
    store: &dyn Store,
    limited: &LimitedStart,
    closed_for: Duration,
    reason: &str,
) {
    let closed_for = closed_for.min(DELAY_MAX);
    let close = |LimitKey(limit, key): &LimitKey| ClosedKey {
        limit: *limit,
        key: key.clone(),
        closed_for,
        reason: reason.to_owned(),
    };
    let keys: Vec<ClosedKey> = limited.lane_key.closed_by_task().into_iter().map(close).collect();
    if keys.is_empty() || closed_for.is_zero() {
        return;
    }
    if let Err(error) = store.close_limit_keys(&keys).await {
        tracing::warn!(
            "cannot close the keys of its limits for {}, so only this task waits: {error}",
            span(closed_for)
        );
    }
}
