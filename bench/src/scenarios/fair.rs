//! Time from the commit of a task to its start, while many tasks of another key wait and
//! run. The keys share the workers and have no other limit. Compare with `pickup`, which has
//! an idle engine.

use task_engine_core::limit::LimitOptions;

use super::limited::set_limit;
use super::pickup::pause;
use crate::database::BenchDatabase;
use crate::engine::{KEY, KeyedParameters, LIMITED_1MS, STAMPED_KEY};
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::{Measurement, Metric, percentile};
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    set_limit(&*store, LIMITED_1MS, LimitOptions::fair(KEY)).await?;
    let keys = ["acme".to_owned()];
    tasks::create_keyed(&*store, LIMITED_1MS, &keys, settings.backlog).await?;
    let task = [tasks::task_with(LIMITED_1MS, &KeyedParameters::sample(STAMPED_KEY))?];
    let options = EngineOptions::new(settings.engines, settings.workers);
    let mut engines = Engines::start_claiming(database, options).await?;
    engines.recorded(1).await?;
    let (mut from_return, mut from_call) = (Vec::new(), Vec::new());
    for sample in 0..settings.samples {
        tokio::time::sleep(pause(sample)).await;
        let called_us = now_us();
        store.create(&task).await?;
        let returned_us = now_us();
        let (_, began_us) = engines.began().await?;
        from_return.push((began_us - returned_us).max(0) as f64 / 1000.0);
        from_call.push((began_us - called_us) as f64 / 1000.0);
    }
    let executed = engines.recorded_now()?;
    engines.stop().await?;
    Ok(Measurement::default()
        .latencies(from_return)
        .with(Metric::CallLatencyMsP50, percentile(&from_call, 0.50))
        .with(Metric::CallLatencyMsP99, percentile(&from_call, 0.99))
        .with(Metric::BacklogLeft, Some(settings.backlog.saturating_sub(executed) as f64)))
}
