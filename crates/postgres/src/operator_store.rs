//! The contract of operators.

use std::time::Duration;
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::queue::QueuePause;
use task_engine_core::schedule::row::ScheduleWrite;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::audit::NewAuditEntry;
use task_engine_store::check::{Check, CheckDepth, Inventory, Violation};
use task_engine_store::contract::{
    CancelReport, OperatorStore, RetryReport, StoreBase as _, StoreFuture,
};
use task_engine_store::export::{ExportFile, ExportFilter, ExportSink, ImportIds, ImportOutcome};
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::token::{NewToken, TokenHash, TokenRow};

use crate::store::{PgStore, STATEMENT, UNLIMITED, calls};

impl OperatorStore for PgStore {
    calls! {
        STATEMENT => fn cancel<'a>(ids: &'a [TaskId]) -> Vec<CancelReport>;
        STATEMENT => fn retry<'a>(ids: &'a [TaskId]) -> Vec<RetryReport>;
        STATEMENT => fn edit<'a>(id: TaskId, edit: &'a Edit) -> EditReport;
        STATEMENT => fn delete<'a>(ids: &'a [TaskId]) -> Vec<DeleteReport>;
        STATEMENT => fn pause_queue<'a>(pause: &'a QueuePause) -> bool;
        STATEMENT => fn resume_queue<'a>(queue: &'a str) -> bool;
        STATEMENT => fn write_schedule<'a>(write: &'a ScheduleWrite) -> bool;
        STATEMENT => fn remove_schedule<'a>(name: &'a str) -> bool;
        STATEMENT => fn run_schedule<'a>(
            schedule_id: i64, task: &'a NewTask, requested_by: Option<&'a str>
        ) -> Creation;
        STATEMENT => fn audit<'a>(entry: &'a NewAuditEntry) -> i64;
        STATEMENT => fn add_token<'a>(token: &'a NewToken) -> i64;
        STATEMENT => fn tokens<'a>() -> Vec<TokenRow>;
        STATEMENT => fn revoke_token<'a>(name: &'a str) -> bool;
        STATEMENT => fn token_by_hash<'a>(hash: &'a TokenHash) -> Option<TokenRow>;
        STATEMENT => fn database_key<'a>() -> DatabaseKey;
        STATEMENT => fn end_login<'a>(login: LoginId, lasts: Duration) -> ();
        STATEMENT => fn is_login_ended<'a>(login: LoginId) -> bool;
        UNLIMITED => fn verify<'a>() -> Vec<Violation>;
        UNLIMITED => fn checks<'a>(depth: CheckDepth) -> Vec<Check>;
        UNLIMITED => fn inventory<'a>() -> Inventory;
        UNLIMITED => fn import<'a>(file: ExportFile, ids: ImportIds) -> ImportOutcome;
    }

    fn export<'a>(&'a self, filter: &'a ExportFilter, to: ExportSink) -> StoreFuture<'a, ()> {
        self.call(UNLIMITED, self.inner.export(filter, self.location(), to))
    }
}
