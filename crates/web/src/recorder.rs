//! Metrics of this process, recorded through the facade `metrics`: by engines with
//! the hook `Metrics`, and by the application.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Buckets of durations, in seconds.
const BOUNDS_SECS: [f64; 11] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0];
/// Buckets of batch sizes.
const BOUNDS_TASKS: [f64; 8] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0];
/// How often measurements are aggregated, also without a scrape.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Records the metrics of this process, for
/// [`Dashboard::engine_metrics`](crate::Dashboard::engine_metrics).
///
/// It is cheap to clone.
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

/// The error of [`Recorder::install`]: this process has a recorder already, so use that one.
#[derive(Debug, thiserror::Error)]
#[error("a metrics recorder is already installed in this process; use that one for /metrics")]
pub struct RecorderTaken;

impl Recorder {
    /// Installs the recorder of this process.
    ///
    /// There is at most one.
    pub fn install() -> Result<Self, RecorderTaken> {
        // Buckets, because quantiles of several engines cannot be added.
        let name = Matcher::Suffix("_seconds".to_owned());
        let taken = |_: BuildError| RecorderTaken;
        let tasks = Matcher::Suffix("_tasks".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(name, &BOUNDS_SECS);
        let builder = builder.and_then(|it| it.set_buckets_for_metric(tasks, &BOUNDS_TASKS));
        builder.and_then(PrometheusBuilder::install_recorder).map(Self).map_err(taken)
    }

    /// Returns the metrics in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Aggregates measurements until the future is dropped.
    ///
    /// Without it, each measurement stays in memory until the next scrape.
    pub async fn keep(self) {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            self.0.run_upkeep();
        }
    }
}
