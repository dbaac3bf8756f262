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

use crate::store::{SqliteStore, jobs};
use crate::{
    audit, checks, export, import, logins, queues, schedules, task_operations, tokens, verify,
};

impl OperatorStore for SqliteStore {
    jobs! {
        writer fn cancel<'a>(ids: &'a [TaskId]) -> Vec<CancelReport> =>
            move |tx| task_operations::cancel(tx, &ids);
        writer fn retry<'a>(ids: &'a [TaskId]) -> Vec<RetryReport> =>
            move |tx| task_operations::retry(tx, &ids);
        writer fn edit<'a>(id: TaskId, edit: &'a Edit) -> EditReport =>
            move |tx| task_operations::edit(tx, id, &edit);
        writer fn delete<'a>(ids: &'a [TaskId]) -> Vec<DeleteReport> =>
            move |tx| task_operations::delete(tx, &ids);
        writer fn pause_queue<'a>(pause: &'a QueuePause) -> bool => move |tx| queues::pause(tx, &pause);
        writer fn resume_queue<'a>(queue: &'a str) -> bool => move |tx| queues::resume(tx, &queue);
        writer fn write_schedule<'a>(write: &'a ScheduleWrite) -> bool =>
            move |tx| schedules::write(tx, &write);
        writer fn remove_schedule<'a>(name: &'a str) -> bool =>
            move |tx| schedules::remove(tx, &name);
        writer fn audit<'a>(entry: &'a NewAuditEntry) -> i64 => move |tx| audit::audit(tx, &entry);
        writer fn add_token<'a>(token: &'a NewToken) -> i64 => move |tx| tokens::add(tx, &token);
        reader fn tokens<'a>() -> Vec<TokenRow> => tokens::all;
        writer fn revoke_token<'a>(name: &'a str) -> bool => move |tx| tokens::revoke(tx, &name);
        reader fn database_key<'a>() -> DatabaseKey => logins::key;
        writer fn end_login<'a>(login: LoginId, lasts: Duration) -> () =>
            move |tx| logins::end(tx, login, lasts);
        reader fn is_login_ended<'a>(login: LoginId) -> bool =>
            move |tx| logins::is_ended(tx, login);
        reader fn verify<'a>() -> Vec<Violation> => verify::verify;
        reader fn inventory<'a>() -> Inventory => verify::inventory;
    }

    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation> {
        let (task, requested_by) = (task.clone(), requested_by.map(str::to_owned));
        Box::pin(self.writer().run(move |tx| {
            tx.brings_work.set(true);
            schedules::run(tx, schedule_id, &task, requested_by.as_deref())
        }))
    }

    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>> {
        Box::pin(async move {
            let hash = *hash;
            let found = self.reader().run(move |tx| tokens::by_hash(tx, &hash)).await?;
            let Some((mut token, is_stale)) = found else { return Ok(None) };
            if is_stale {
                let id = token.id;
                // The token is valid even if its use cannot be recorded.
                match self.writer().run(move |tx| tokens::touch(tx, id)).await {
                    Ok(used_at) => token.last_used_at = Some(used_at),
                    Err(error) => tracing::debug!("the use of a token was not recorded: {error}"),
                }
            }
            Ok(Some(token))
        })
    }

    fn checks(&self, depth: CheckDepth) -> StoreFuture<'_, Vec<Check>> {
        let path = self.shared.path.clone();
        Box::pin(self.reader().run(move |tx| Ok(checks::checks(tx, path.as_deref(), depth))))
    }

    fn export<'a>(&'a self, filter: &'a ExportFilter, to: ExportSink) -> StoreFuture<'a, ()> {
        let (filter, location) = (filter.clone(), self.location());
        Box::pin(self.reader().run(move |tx| export::export(tx, &filter, location, to)))
    }

    fn import(&self, file: ExportFile, ids: ImportIds) -> StoreFuture<'_, ImportOutcome> {
        Box::pin(self.writer().run(move |tx| import::import(tx, file, ids)))
    }
}
