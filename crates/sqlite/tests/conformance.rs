//! The suite that every store passes, on a file that every handle opens anew.

use std::pin::Pin;
use std::sync::Arc;

use task_engine_conformance::Database;
use task_engine_model::Store;
use task_engine_sqlite::SqliteStore;
use tempfile::TempDir;

struct File(TempDir);

impl Database for File {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async {
            let store = SqliteStore::open(self.0.path().join("tasks.db")).expect("open");
            store.migrate().await.expect("migrate");
            Arc::new(store) as Arc<dyn Store>
        })
    }
}

async fn fresh_file() -> Box<dyn Database> {
    Box::new(File(tempfile::tempdir().expect("a folder")))
}

task_engine_conformance::suite!(fresh_file);
