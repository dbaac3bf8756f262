//! Time from a signal to the code behind the wait for it, on an idle engine. The
//! task is suspended meanwhile: the signal makes it due, and an attempt begins.
//!
//! Measured from the return of the call that sends the signal, and from the call,
//! as in `pickup`.

use task_engine::{Json, TaskId};
use task_engine_core::step::{SignalStatus, SignalTarget};

use super::pickup::{idle_engine, pause};
use crate::database::BenchDatabase;
use crate::durable_tasks::{APPROVED, SIGNAL};
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::{Measurement, Metric, percentile};
use crate::options::BenchSettings;
use crate::tasks;

/// Signals before the first sample: they prepare statements.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let mut engines = idle_engine(database, &*store).await?;
    let task = [tasks::task(SIGNAL)?];
    let payload = Json::encode(&"ada").map_err(|e| BenchError::Failure(e.to_string()))?;
    let (mut from_return, mut from_call) = (Vec::new(), Vec::new());
    for sample in 0..WARM_UP + settings.samples {
        store.create(&task).await?;
        let id = engines.suspended().await?;
        tokio::time::sleep(pause(sample)).await;
        let called_us = now_us();
        let target = SignalTarget::Id(TaskId(id));
        let sent = store.signal(&target, APPROVED, &payload).await?;
        let returned_us = now_us();
        if sent.status != SignalStatus::Delivered {
            return Err(BenchError::Failure(format!("a signal was {}", sent.status.as_str())));
        }
        let (_, began_us) = engines.began().await?;
        if sample >= WARM_UP {
            from_return.push((began_us - returned_us).max(0) as f64 / 1000.0);
            from_call.push((began_us - called_us) as f64 / 1000.0);
        }
    }
    engines.stop().await?;
    Ok(Measurement::default()
        .latencies(from_return)
        .with(Metric::CallLatencyMsP50, percentile(&from_call, 0.50))
        .with(Metric::CallLatencyMsP99, percentile(&from_call, 0.99)))
}
