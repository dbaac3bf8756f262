//! The secrets of classes, as engines have declared them.

use task_engine_core::secret::Secrets;
use task_engine_store::{Store, StoreError};

/// Reads what engines, live and dead, have declared about their classes.
pub async fn read(store: &dyn Store) -> Result<Secrets, StoreError> {
    Ok(Secrets::of(&store.instances(None).await?))
}
