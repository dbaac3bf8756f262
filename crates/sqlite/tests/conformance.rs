//! The suite that every store passes, on a file that every handle opens anew.

use std::pin::Pin;
use std::sync::Arc;

use rusqlite::Connection;
use task_engine_conformance::TestDatabase;
use task_engine_conformance::completions::{Local, TestTransaction};
use task_engine_core::completion::Completion;
use task_engine_core::task::TaskId;
use task_engine_sqlite::{SqliteStore, complete_in};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tempfile::TempDir;

struct File(TempDir);

impl TestDatabase for File {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async {
            let store = SqliteStore::open(self.0.path().join("tasks.db")).expect("open");
            store.migrate().await.expect("migrate");
            Arc::new(store) as Arc<dyn Store>
        })
    }

    fn begin(&self) -> Local<'_, Box<dyn TestTransaction>> {
        let connection = self.connect();
        connection.execute_batch("BEGIN").unwrap();
        Box::pin(async { Box::new(Own(connection)) as Box<dyn TestTransaction> })
    }

    fn effects(&self) -> Local<'_, Vec<TaskId>> {
        let connection = self.connect();
        let mut ask = connection.prepare("SELECT task_id FROM effects ORDER BY task_id").unwrap();
        let rows = ask.query_map([], |row| row.get(0)).unwrap();
        let ids = rows.map(|id| TaskId(id.unwrap())).collect();
        Box::pin(async { ids })
    }
}

impl File {
    fn connect(&self) -> Connection {
        let connection = Connection::open(self.0.path().join("tasks.db")).unwrap();
        connection.execute_batch("CREATE TABLE IF NOT EXISTS effects (task_id INTEGER)").unwrap();
        connection
    }
}

struct Own(Connection);

impl TestTransaction for Own {
    fn effect(&mut self, task: TaskId) -> Local<'_, ()> {
        self.0.execute("INSERT INTO effects VALUES (?1)", [task.0]).unwrap();
        Box::pin(async {})
    }

    fn complete<'a>(&'a mut self, completion: &'a Completion) -> Local<'a, Result<(), StoreError>> {
        Box::pin(async move { complete_in(&self.0, completion) })
    }

    fn commit(self: Box<Self>) -> Local<'static, ()> {
        // Fails if the transaction has ended already.
        let _ = self.0.execute_batch("COMMIT");
        Box::pin(async {})
    }

    fn rollback(self: Box<Self>) -> Local<'static, ()> {
        self.0.execute_batch("ROLLBACK").unwrap();
        Box::pin(async {})
    }
}

async fn fresh_file() -> Box<dyn TestDatabase> {
    Box::new(File(tempfile::tempdir().expect("a folder")))
}

task_engine_conformance::suite!(fresh_file);
