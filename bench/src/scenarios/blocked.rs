//! Drain and pickup of tasks without limits beside many tasks of one key that may not
//! start, in the same queue. The key allows one attempt, which another instance holds.
//!
//! Compare with `drain` and `pickup`, in alternation.

use task_engine_core::claim::ClaimIds;
use task_engine_core::limit::LimitOptions;
use task_engine_core::queue::Lanes;

use super::claim::new_instance;
use super::limited::set_limit;
use super::{drain, pickup};
use crate::database::BenchDatabase;
use crate::engine::{KEY, LIMITED, NOOP, QUEUE};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    set_limit(&*store, LIMITED, LimitOptions::max(1).key(KEY)).await?;
    let keys = ["acme".to_owned()];
    tasks::create_keyed(&*store, LIMITED, &keys, settings.backlog + 1).await?;
    let holder = store.register(&new_instance("bench-holder", [QUEUE], [LIMITED])).await?;
    let lanes = Lanes::new(vec![QUEUE.to_owned()], vec![LIMITED.to_owned()]);
    let claim = store.claimer(holder, lanes).claim(ClaimIds::new(holder).take(), 1).await?;
    if claim.tasks.len() != 1 {
        return Err(BenchError::Failure("no task could be claimed".to_owned()));
    }
    let drained = drain::measure(NOOP, database, settings).await?;
    let mut measured = pickup::measure(database, settings).await?;
    measured.values.extend(drained.values);
    store.unregister(holder).await?;
    Ok(measured)
}
