//! What code in this process measures through the facade `metrics`: an engine with
//! the hook `Metrics` does, and so may an application.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// What an execution may take, in seconds: the same bounds as those of figures.
const BOUNDS_SECS: [f64; 11] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0];
/// How many tasks a batch may have.
const BOUNDS_TASKS: [f64; 8] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0];
/// Measurements are summed up at least as often, whether or not anybody asks.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The recorder of this process. Cheap to clone.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use task_engine::Store;
/// # use task_engine_web::{Access, Dashboard, Recorder};
/// # fn example(store: Arc<dyn Store>) -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = Recorder::install()?;
/// tokio::spawn(recorder.clone().keep());
/// let dashboard =
///     Dashboard::new(store, Access::closed()).engine_metrics(move || recorder.render());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Recorder(PrometheusHandle);

/// There is one already.
#[derive(Debug, thiserror::Error)]
#[error("a recorder of metrics is installed in this process already; use that one for /metrics")]
pub struct RecorderTaken;

impl Recorder {
    /// Becomes the recorder of this process, which has one at the most.
    pub fn install() -> Result<Self, RecorderTaken> {
        // Counted in buckets: quantiles of several engines could not be added.
        let name = Matcher::Suffix("_seconds".to_owned());
        let taken = |_: BuildError| RecorderTaken;
        let tasks = Matcher::Suffix("_tasks".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(name, &BOUNDS_SECS);
        let builder = builder.and_then(|it| it.set_buckets_for_metric(tasks, &BOUNDS_TASKS));
        builder.and_then(PrometheusBuilder::install_recorder).map(Self).map_err(taken)
    }

    /// What was counted so far, in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Sums up what was measured, for ever. Without it, each measurement stays in
    /// memory until somebody asks.
    pub async fn keep(self) {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            self.0.run_upkeep();
        }
    }
}
