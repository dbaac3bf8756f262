//! Execution of tasks of ten steps that were created before. Every step is durable
//! before the next one begins.

use super::drain;
use crate::database::BenchDatabase;
use crate::durable_tasks::{STEPS, STEPS_PER_TASK};
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let measurement = drain::measure(STEPS, database, settings).await?;
    let tasks = measurement.values.get(&Metric::TasksPerSec).copied().flatten();
    Ok(measurement.with(Metric::StepsPerSec, tasks.map(|rate| rate * f64::from(STEPS_PER_TASK))))
}
