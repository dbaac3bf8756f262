//! The store: every method hands one job to the thread that it belongs to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::attempt::{AttemptId, Ending};
use task_engine_core::change::{Edit, EditReport, RemoveReport};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::Settled;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::queue::{Lanes, PausedQueue, QueuePause, QueueRow};
use task_engine_core::recovery::{HeldTask, Reclaim, ReclaimedAttempt};
use task_engine_core::report::{LogFilter, LogRow, Report};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{
    DueSchedules, FiredSlot, Firing, ScheduleRow, ScheduleWrite,
};
use task_engine_core::task::{NewTask, TaskDetails, TaskFilter, TaskId, TaskRow, TaskStatus};
use task_engine_core::unique::Creation;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry};
use task_engine_store::check::{Check, Depth, Inventory};
use task_engine_store::claim::{Claim, Claimer};
use task_engine_store::contract::{CancelReport, HeartbeatReply, RetryReport, Tables};
use task_engine_store::contract::{Store, StoreFuture, WakeUp};
use task_engine_store::error::StoreError;
use task_engine_store::export::{ExportFilter, File, Ids, Imported, Sink};
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{ClassMinute, RollupQuery, RollupRow};
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage};
use task_engine_store::token::{NewToken, TokenHash, TokenRow};

use crate::claim::{Wanted, claim};
use crate::connection::FileMark;
use crate::desk::{Desk, read_all};
use crate::listen::{Hints, listen};
use crate::watch;
use crate::writer::write_all;
use crate::{
    audit, change, checks, complete, connection, create, export, figures, flow, import, instances,
    logins, migrate, operate, queues, read, record, recover, report, scan, schedules, tokens,
    verify,
};

/// The ledger in an SQLite file. Cheap to clone; its threads end with the last
/// clone.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` for a private database in memory.
    path: Option<PathBuf>,
    place: Arc<str>,
    writer: Desk,
    /// `None` where there is one connection only, and the writer reads too.
    reader: Option<Desk>,
    hints: Hints,
}

impl SqliteStore {
    /// Opens a file, and creates it if it is not there. Its folder must be.
    ///
    /// The file is switched to SQLite's write-ahead log, and stays so.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if path == Path::new(":memory:") {
            return Self::open_in_memory();
        }
        let place: Arc<str> = format!("sqlite:{}", path.display()).into();
        let writer = connection::open(path, &place)?;
        let reader = connection::open(path, &place)?;
        Self::start(Some(path.to_owned()), place, writer, Some(reader))
    }

    /// A private database that is gone with its last handle: for trying things
    /// out, and for tests.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let place: Arc<str> = "sqlite::memory:".into();
        let connection = connection::open_in_memory(&place)?;
        Self::start(None, place, connection, None)
    }

    fn start(
        path: Option<PathBuf>,
        place: Arc<str>,
        writer: rusqlite::Connection,
        reader: Option<rusqlite::Connection>,
    ) -> Result<Self, StoreError> {
        let hints = Hints::new();
        let mark = || {
            let mark = path.as_deref().map(FileMark::of).transpose();
            mark.map_err(|e| StoreError::Unavailable(format!("{place}: {e}")))
        };
        let (file, file_to_read) = (mark()?, mark()?);
        let write = {
            let (place, hints) = (place.clone(), hints.clone());
            move |inbox| write_all(&writer, file.as_ref(), &inbox, &place, &hints)
        };
        let reader = reader.zip(file_to_read).map(|(reader, file)| {
            let at = place.clone();
            let read = move |inbox| read_all(&reader, &file, &inbox, &at);
            Desk::staff("task-engine-sqlite-reader", place.clone(), read)
        });
        let shared = Shared {
            path,
            writer: Desk::staff("task-engine-sqlite-writer", place.clone(), write)?,
            reader: reader.transpose()?,
            place,
            hints,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A job for the writer that is not part of the contract.
    #[cfg(feature = "testing")]
    pub(crate) async fn ask_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&crate::desk::Turn<'_>) -> Result<T, crate::fault::Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer().ask(work).await
    }

    fn writer(&self) -> &Desk {
        &self.shared.writer
    }

    fn reader(&self) -> &Desk {
        self.shared.reader.as_ref().unwrap_or(&self.shared.writer)
    }
}

impl Store for SqliteStore {
    fn place(&self) -> String {
        self.shared.place.to_string()
    }

    fn migrate(&self) -> StoreFuture<'_, Vec<String>> {
        let place = self.place();
        Box::pin(self.writer().ask(move |turn| migrate::migrate(turn, &place)))
    }

    fn tables(&self) -> StoreFuture<'_, Tables> {
        Box::pin(self.reader().ask(migrate::tables))
    }

    fn create_each<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<Creation>> {
        let tasks = tasks.to_vec();
        Box::pin(self.writer().ask(move |turn| {
            turn.brings_work.set(!tasks.is_empty() || turn.brings_work.get());
            create::create(turn, &tasks)
        }))
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        Box::new(SqliteClaimer {
            store: self.clone(),
            wanted: Arc::new(Wanted::new(instance, lanes)),
        })
    }

    fn record<'a>(
        &'a self,
        endings: &'a [Ending],
        finished: &'a [ClaimId],
    ) -> StoreFuture<'a, Vec<AttemptId>> {
        let (endings, finished) = (endings.to_vec(), finished.to_vec());
        Box::pin(self.writer().ask(move |turn| record::record(turn, &endings, &finished)))
    }

    fn settle<'a>(&'a self, endings: &'a [Ending]) -> StoreFuture<'a, Vec<Settled>> {
        Box::pin(async move {
            let (seen, endings) = (endings.to_vec(), endings.to_vec());
            // A look costs no write, and is enough if all is well.
            let look = self.reader().ask(move |turn| complete::all_completed(turn, &seen));
            if look.await? {
                return Ok(vec![Settled::Completed; endings.len()]);
            }
            self.writer().ask(move |turn| complete::settle(turn, &endings)).await
        })
    }

    fn reclaim(&self, what: Reclaim) -> StoreFuture<'_, Vec<ReclaimedAttempt>> {
        Box::pin(self.writer().ask(move |turn| recover::reclaim(turn, &what)))
    }

    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId> {
        let instance = instance.clone();
        Box::pin(self.writer().ask(move |turn| instances::register(turn, &instance)))
    }

    fn heartbeat(&self, instance: InstanceId) -> StoreFuture<'_, HeartbeatReply> {
        Box::pin(self.writer().ask(move |turn| instances::heartbeat(turn, instance)))
    }

    fn unregister(&self, instance: InstanceId) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().ask(move |turn| instances::unregister(turn, instance)))
    }

    fn declare_lost(&self, instance: InstanceId, process_gone: bool) -> StoreFuture<'_, bool> {
        Box::pin(
            self.writer().ask(move |turn| instances::declare_lost(turn, instance, process_gone)),
        )
    }

    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>> {
        let name = name.map(str::to_owned);
        Box::pin(self.reader().ask(move |turn| instances::instances(turn, name.as_deref())))
    }

    fn held(&self, instance: InstanceId) -> StoreFuture<'_, Vec<HeldTask>> {
        Box::pin(self.reader().ask(move |turn| instances::held(turn, instance)))
    }

    fn cancel<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<CancelReport>> {
        let ids = ids.to_vec();
        Box::pin(self.writer().ask(move |turn| operate::cancel(turn, &ids)))
    }

    fn retry<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RetryReport>> {
        let ids = ids.to_vec();
        Box::pin(self.writer().ask(move |turn| operate::retry(turn, &ids)))
    }

    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> StoreFuture<'a, Vec<TaskRow>> {
        let filter = filter.clone();
        Box::pin(self.reader().ask(move |turn| read::tasks(turn, &filter)))
    }

    fn task(&self, id: TaskId) -> StoreFuture<'_, Option<TaskDetails>> {
        Box::pin(self.reader().ask(move |turn| read::task(turn, id)))
    }

    fn prune(&self, status: TaskStatus, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().ask(move |turn| operate::prune(turn, status, age, limit)))
    }

    fn verify(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.reader().ask(verify::verify))
    }

    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()> {
        let shared = &self.shared;
        let path = shared.path.as_deref();
        Box::pin(listen(&shared.hints, path, &shared.place, hear))
    }

    fn pause_queue<'a>(&'a self, pause: &'a QueuePause) -> StoreFuture<'a, bool> {
        let pause = pause.clone();
        Box::pin(self.writer().ask(move |turn| queues::pause(turn, &pause)))
    }

    fn resume_queue<'a>(&'a self, queue: &'a str) -> StoreFuture<'a, bool> {
        let queue = queue.to_owned();
        Box::pin(self.writer().ask(move |turn| queues::resume(turn, &queue)))
    }

    fn paused_queues(&self) -> StoreFuture<'_, Vec<PausedQueue>> {
        Box::pin(self.reader().ask(queues::paused))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueRow>> {
        Box::pin(self.reader().ask(queues::queues))
    }

    fn report<'a>(&'a self, reports: &'a [Report]) -> StoreFuture<'a, Vec<AttemptId>> {
        let reports = reports.to_vec();
        Box::pin(self.writer().ask(move |turn| report::report(turn, &reports)))
    }

    fn logs<'a>(&'a self, id: TaskId, filter: &'a LogFilter) -> StoreFuture<'a, Vec<LogRow>> {
        let filter = *filter;
        Box::pin(self.reader().ask(move |turn| report::logs(turn, id, &filter)))
    }

    fn flow<'a>(&'a self, page: &'a FlowPage) -> StoreFuture<'a, Vec<FlowTask>> {
        let page = page.clone();
        Box::pin(self.reader().ask(move |turn| flow::flow(turn, &page)))
    }

    fn schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (Option<ScheduleRow>, Timestamp)> {
        let name = name.to_owned();
        Box::pin(self.reader().ask(move |turn| schedules::schedule(turn, &name)))
    }

    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>> {
        let after = after.map(str::to_owned);
        Box::pin(self.reader().ask(move |turn| schedules::schedules(turn, after.as_deref(), limit)))
    }

    fn write_schedule<'a>(&'a self, write: &'a ScheduleWrite) -> StoreFuture<'a, bool> {
        let write = write.clone();
        Box::pin(self.writer().ask(move |turn| schedules::write(turn, &write)))
    }

    fn remove_schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        let name = name.to_owned();
        Box::pin(self.writer().ask(move |turn| schedules::remove(turn, &name)))
    }

    fn due_schedules(&self, limit: u32) -> StoreFuture<'_, DueSchedules> {
        Box::pin(self.reader().ask(move |turn| schedules::due(turn, limit)))
    }

    fn fire_schedules<'a>(&'a self, firings: &'a [Firing]) -> StoreFuture<'a, Vec<bool>> {
        let firings = firings.to_vec();
        Box::pin(self.writer().ask(move |turn| schedules::fire(turn, &firings)))
    }

    fn fired_slots(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<FiredSlot>> {
        Box::pin(self.reader().ask(move |turn| schedules::fired_slots(turn, schedule_id, limit)))
    }

    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation> {
        let (task, requested_by) = (task.clone(), requested_by.map(str::to_owned));
        Box::pin(self.writer().ask(move |turn| {
            turn.brings_work.set(true);
            schedules::run(turn, schedule_id, &task, requested_by.as_deref())
        }))
    }

    fn schedule_events(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<ScheduleEvent>> {
        Box::pin(self.reader().ask(move |turn| schedules::events(turn, schedule_id, limit)))
    }

    fn activity(&self, look: ActivityQuery) -> StoreFuture<'_, Activity> {
        Box::pin(self.reader().ask(move |turn| watch::moving(turn, look)))
    }

    fn endings<'a>(&'a self, look: &'a EndingsQuery) -> StoreFuture<'a, Vec<EndingRow>> {
        let look = look.clone();
        Box::pin(self.reader().ask(move |turn| watch::endings(turn, &look)))
    }

    fn failure_counts(&self) -> StoreFuture<'_, FailureCounts> {
        Box::pin(self.reader().ask(watch::failure_counts))
    }

    fn queue_position<'a>(
        &'a self,
        look: &'a QueuePositionQuery,
    ) -> StoreFuture<'a, Option<QueuePosition>> {
        let look = look.clone();
        Box::pin(self.reader().ask(move |turn| watch::ahead(turn, &look)))
    }

    fn checks(&self, depth: Depth) -> StoreFuture<'_, Vec<Check>> {
        let path = self.shared.path.clone();
        Box::pin(self.reader().ask(move |turn| Ok(checks::checks(turn, path.as_deref(), depth))))
    }

    fn inventory(&self) -> StoreFuture<'_, Inventory> {
        Box::pin(self.reader().ask(verify::inventory))
    }

    fn export<'a>(&'a self, filter: &'a ExportFilter, to: Sink) -> StoreFuture<'a, ()> {
        let (filter, place) = (filter.clone(), self.place());
        Box::pin(self.reader().ask(move |turn| export::export(turn, &filter, place, to)))
    }

    fn import(&self, file: File, ids: Ids) -> StoreFuture<'_, Imported> {
        Box::pin(self.writer().ask(move |turn| import::import(turn, file, ids)))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> StoreFuture<'a, ScanPage> {
        let scan = scan.clone();
        Box::pin(self.reader().ask(move |turn| scan::scan(turn, &scan)))
    }

    fn creation_times<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, CreationTimes> {
        let ids = ids.to_vec();
        Box::pin(self.reader().ask(move |turn| scan::creation_times(turn, &ids)))
    }

    fn edit<'a>(&'a self, id: TaskId, edit: &'a Edit) -> StoreFuture<'a, EditReport> {
        let edit = edit.clone();
        Box::pin(self.writer().ask(move |turn| change::edit(turn, id, &edit)))
    }

    fn remove<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RemoveReport>> {
        let ids = ids.to_vec();
        Box::pin(self.writer().ask(move |turn| change::remove(turn, &ids)))
    }

    fn audit<'a>(&'a self, entry: &'a NewAuditEntry) -> StoreFuture<'a, i64> {
        let entry = entry.clone();
        Box::pin(self.writer().ask(move |turn| audit::audit(turn, &entry)))
    }

    fn audit_page<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<AuditEntry>> {
        let filter = filter.clone();
        Box::pin(self.reader().ask(move |turn| audit::page(turn, &filter)))
    }

    fn prune_audit(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().ask(move |turn| audit::prune(turn, age, limit)))
    }

    fn database_key(&self) -> StoreFuture<'_, DatabaseKey> {
        Box::pin(self.reader().ask(logins::key))
    }

    fn end_login(&self, login: LoginId, lasts: Duration) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().ask(move |turn| logins::end(turn, login, lasts)))
    }

    fn is_login_ended(&self, login: LoginId) -> StoreFuture<'_, bool> {
        Box::pin(self.reader().ask(move |turn| logins::is_ended(turn, login)))
    }

    fn add_token<'a>(&'a self, token: &'a NewToken) -> StoreFuture<'a, i64> {
        let token = token.clone();
        Box::pin(self.writer().ask(move |turn| tokens::add(turn, &token)))
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<TokenRow>> {
        Box::pin(self.reader().ask(tokens::all))
    }

    fn revoke_token<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        let name = name.to_owned();
        Box::pin(self.writer().ask(move |turn| tokens::revoke(turn, &name)))
    }

    fn figures<'a>(&'a self, instance: InstanceId, rows: &'a [ClassMinute]) -> StoreFuture<'a, ()> {
        let rows = rows.to_vec();
        Box::pin(self.writer().ask(move |turn| figures::keep(turn, instance, &rows)))
    }

    fn rollups(&self, look: RollupQuery) -> StoreFuture<'_, Vec<RollupRow>> {
        Box::pin(self.reader().ask(move |turn| figures::since(turn, look)))
    }

    fn prune_rollups(&self, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().ask(move |turn| figures::prune(turn, limit)))
    }

    fn prune_instances(&self, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().ask(move |turn| instances::prune(turn, limit)))
    }

    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>> {
        Box::pin(async move {
            let hash = *hash;
            let found = self.reader().ask(move |turn| tokens::by_hash(turn, &hash)).await?;
            let Some((mut token, is_stale)) = found else { return Ok(None) };
            if is_stale {
                let id = token.id;
                // It is good, whether or not that can be written down.
                match self.writer().ask(move |turn| tokens::touch(turn, id)).await {
                    Ok(used_at) => token.last_used_at = Some(used_at),
                    Err(error) => tracing::debug!("the use of a token is not noted: {error}"),
                }
            }
            Ok(Some(token))
        })
    }
}

/// Claims look every time: with the queue at hand there is nothing to remember.
struct SqliteClaimer {
    store: SqliteStore,
    wanted: Arc<Wanted>,
}

impl Claimer for SqliteClaimer {
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim> {
        let wanted = self.wanted.clone();
        Box::pin(self.store.writer().ask(move |turn| claim(turn, &wanted, id, limit)))
    }

    fn wake(&mut self) {}
}

impl fmt::Debug for SqliteClaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteClaimer").field(&self.wanted).finish()
    }
}
