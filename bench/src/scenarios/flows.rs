//! Flows of empty tasks that were created before, as `drain`: the difference between the two
//! is the cost of the dependencies. Each flow has up to 10,000 tasks.

use task_engine::Store;
use task_engine_core::dependency::{FLOW_TASKS_MAX, Flow};

use super::drain;
use crate::database::{BenchDatabase, FlowOrder};
use crate::engine::NOOP;
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

/// Which tasks depend on which.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// All others depend on the first.
    FanOut,
    /// The last depends on all others.
    FanIn,
    /// Twenty layers; each task depends on three of the layer before.
    Layers,
    /// Each depends on the one before.
    Chain,
}

const LAYERS: usize = 20;

pub(crate) async fn measure(
    shape: Shape,
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let before = database.flow_order().await?;
    let store = database.store().await?;
    let mut missing = usize::try_from(settings.tasks).unwrap_or(FLOW_TASKS_MAX);
    let mut dependencies = 0;
    while missing > 0 {
        let tasks = missing.min(FLOW_TASKS_MAX);
        dependencies += create(&*store, shape, tasks).await?;
        missing -= tasks;
    }
    drop(store);
    let measurement = drain::execute(database, settings).await?;
    check(database, before, settings.tasks, dependencies).await?;
    Ok(measurement)
}

/// A rate counts only if each task has run, and after those that it depends on. `before`:
/// of earlier measurements, and of rows that were inserted.
async fn check(
    database: &BenchDatabase,
    before: FlowOrder,
    tasks: u64,
    dependencies: usize,
) -> Result<(), BenchError> {
    let after = database.flow_order().await?;
    let found = FlowOrder {
        succeeded: after.succeeded - before.succeeded,
        dependencies: after.dependencies - before.dependencies,
        not_respected: after.not_respected - before.not_respected,
    };
    let expected = FlowOrder {
        succeeded: i64::try_from(tasks).unwrap_or(i64::MAX),
        dependencies: i64::try_from(dependencies).unwrap_or(i64::MAX),
        not_respected: 0,
    };
    if found == expected {
        return Ok(());
    }
    Err(BenchError::Failure(format!(
        "of {tasks} tasks {} have succeeded, and of {dependencies} dependencies {} exist and {} were not respected",
        found.succeeded, found.dependencies, found.not_respected
    )))
}

/// Creates a flow; returns how many dependencies it has.
async fn create(store: &dyn Store, shape: Shape, tasks: usize) -> Result<usize, BenchError> {
    let task = tasks::task(NOOP)?;
    let name = |number: usize| number.to_string();
    let mut flow = Flow::new();
    for number in 0..tasks {
        flow = flow.add(name(number), task.clone());
        flow = match shape {
            Shape::FanOut if number > 0 => flow.after("0"),
            Shape::FanIn if number + 1 == tasks => {
                flow.after((0..number).map(name).collect::<Vec<_>>())
            }
            Shape::Chain if number > 0 => flow.after(name(number - 1)),
            Shape::Layers => match dependencies_in_layers(number, tasks.div_ceil(LAYERS)) {
                Some(on) => flow.after(on.map(name)),
                None => flow,
            },
            _ => flow,
        };
    }
    let flow = flow.resolve().map_err(|error| BenchError::Failure(error.to_string()))?;
    store.create_flow(&flow).await?;
    Ok(flow.tasks.iter().map(|task| task.dependencies.len()).sum())
}

/// Three tasks of the layer before; `None` in the first layer.
fn dependencies_in_layers(number: usize, width: usize) -> Option<[usize; 3]> {
    let before = (number / width).checked_sub(1)? * width;
    let place = number % width;
    Some([place, place + width / 3, place + width * 2 / 3].map(|on| before + on % width))
}
