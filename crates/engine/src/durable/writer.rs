//! Writes steps in batches. While one write is under way, the next batch gathers; there is
//! no timer, and no delay when the engine is idle.

use std::sync::Arc;

use task_engine_core::display::span;
use task_engine_core::step::{NewStep, StepOutcome};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::backoff::Backoff;

const BATCH_MAX: usize = 1000;

/// A step to be recorded, and where its outcome goes.
pub(crate) type StepRequest = (NewStep, oneshot::Sender<Result<StepOutcome, StoreError>>);

/// Records the steps of all attempts of a session until the last sender is gone.
pub(crate) async fn write_steps(
    store: Arc<dyn Store>,
    mut requests: UnboundedReceiver<StepRequest>,
) {
    let mut batch = Vec::new();
    while requests.recv_many(&mut batch, BATCH_MAX).await > 0 {
        write(&*store, std::mem::take(&mut batch)).await;
    }
}

/// Writes a batch, and tries again while the store cannot be reached.
async fn write(store: &dyn Store, mut batch: Vec<StepRequest>) {
    let mut backoff = Backoff::new();
    loop {
        // Nothing waits for a step of an attempt that was dropped. It has run, and may be
        // run again.
        batch.retain(|(_, reply)| !reply.is_closed());
        if batch.is_empty() {
            return;
        }
        let steps: Vec<NewStep> = batch.iter().map(|(step, _)| step.clone()).collect();
        match store.record_steps(&steps).await {
            Ok(outcomes) => {
                crate::measure::steps_recorded(outcomes.len());
                for ((_, reply), outcome) in batch.into_iter().zip(outcomes) {
                    let _ = reply.send(Ok(outcome));
                }
                return;
            }
            Err(error) if error.is_temporary() => {
                let wait = backoff.next();
                let count = batch.len();
                tracing::warn!(
                    "{count} steps wait until the store takes them, next try in {}: {error}",
                    span(wait)
                );
                tokio::time::sleep(wait).await;
            }
            // One that is refused must not prevent the others.
            Err(_) if batch.len() > 1 => {
                for one in batch {
                    Box::pin(write(store, vec![one])).await;
                }
                return;
            }
            Err(error) => {
                for (_, reply) in batch {
                    let _ = reply.send(Err(error.clone()));
                }
                return;
            }
        }
    }
}
