//! `task-engine demo`: an engine executes sample tasks of every kind, and a summary
//! shows what happened.

mod progress;
mod summary;

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use task_engine::samples::handle_samples;
use task_engine::{Json, NewTask, Store, TaskEngine, TaskId, TaskStatus};
use task_engine_core::display::count;
use task_engine_core::task::{TaskListQuery, TaskRow};

use crate::commands::start;
use crate::console::{Console, now};
use crate::database::{Database, OpenMode};
use crate::error::CliError;
use crate::signals::{self, StopSignals};
use crate::web::{DEFAULT_ADDRESS, DashboardServer, WebOptions, address};
use progress::DemoProgress;
use summary::DemoSummary;

/// See it work: 106 sample tasks, in a few seconds
///
/// Most wait for a moment, some fail in different ways, one is scheduled a few
/// seconds ahead. Watch it on the dashboard, whose address is printed first. At
/// the end it prints what happened. The database, task-engine-demo.db in the
/// current folder, stays for you to look around.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Remove the database of earlier demos first
    #[arg(long)]
    fresh: bool,
    /// Where to serve the dashboard [default: 127.0.0.1:8642, or another port if
    /// that is taken]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    web: Option<SocketAddr>,
    /// Leave the dashboard open at the end, until Ctrl-C; on a terminal, it is
    #[arg(long)]
    stay: bool,
}

const FILE: &str = "task-engine-demo.db";
const WORKERS: u16 = 5;
const WAITING_TASKS: u32 = 100;
const SCHEDULED_AHEAD: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    // The environment may name a database of real tasks, so it is ignored.
    let named = console.named_database()?;
    if args.fresh {
        if named.is_some() {
            return Err(CliError::Usage(
                "--fresh removes only the demo's own file; leave out --fresh or --database"
                    .to_owned(),
            ));
        }
        remove(Path::new(FILE)).await?;
    }
    let database = named.unwrap_or_else(|| Database::File(FILE.into()));
    let store = database.open_for_one().await?;
    console.message(format_args!("Database: {}", store.location()));
    store.migrate().await?;
    let web = dashboard(console, &database, &store, args.web).await?;

    let began = Instant::now();
    let due = store.queues().await?.iter().map(|queue| queue.due.counted).sum::<i64>();
    let tasks = sample_tasks()?;
    let ids = store.create(&tasks).await?;
    console.message(format_args!("Created {} tasks; {WORKERS} workers execute them.", ids.len()));
    if due > 0 {
        let earlier = count(usize::try_from(due).unwrap_or(usize::MAX), "task");
        console.message(format_args!("{earlier} of earlier demos are still due and run first."));
    }
    // No retention: --database may name a database of real tasks.
    let engine =
        TaskEngine::new(store.clone()).engine(()).instance(name()).workers(WORKERS).retention(None);
    let engine = handle_samples(engine);
    let stop = engine.stop_handle();
    start::stop_on_sighup(stop.clone())?;
    signals::exit_on_third_signal()?;
    let mut running = tokio::spawn(engine.run());
    let mut progress = DemoProgress::new(console, ids.len());
    let (ended, to_its_end) = tokio::select! {
        // Ctrl-C, or an error.
        ended = &mut running => (ended, false),
        watched = watch(&*store, &ids, &mut progress) => {
            stop.stop();
            let ended = running.await;
            watched?;
            (ended, true)
        }
    };
    let took = began.elapsed();
    progress.finish();
    let stopped =
        ended.map_err(|error| CliError::Failure(format!("the engine failed: {error}")))??;

    let rows = look(&*store, &ids).await?;
    let scheduled = ids[ids.len() - 1];
    let lateness = lateness(&*store, scheduled).await?;
    let summary = DemoSummary { rows, took, workers: WORKERS, scheduled, lateness, now: now() };
    summary.print(console, &database, console.results())?;
    let watched = args.stay || (io::stdout().is_terminal() && io::stdin().is_terminal());
    if to_its_end && watched {
        console.message(format_args!("The dashboard stays at {} until Ctrl-C.", web.url));
        StopSignals::listen()?.recv().await;
    }
    web.end().await;
    start::exit_result(stopped)
}

/// On the default port if it is free, else on any other, so that a demo does not
/// fail because of it.
async fn dashboard(
    console: &Console,
    database: &Database,
    store: &Arc<dyn Store>,
    asked: Option<SocketAddr>,
) -> Result<DashboardServer, CliError> {
    let watched = match database {
        // No second connection could see it.
        Database::Memory => Arc::clone(store),
        lasting => lasting.open_to_watch().await?,
    };
    let options = WebOptions::default();
    if let Some(address) = asked {
        return DashboardServer::begin(console, watched, address, &options, None).await;
    }
    let usual = address(DEFAULT_ADDRESS).map_err(CliError::Failure)?;
    match DashboardServer::begin(console, Arc::clone(&watched), usual, &options, None).await {
        Err(CliError::Failure(_)) => {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            DashboardServer::begin(console, watched, any, &options, None).await
        }
        served => served,
    }
}

/// No two demos share a name, even where every process has the same number.
fn name() -> String {
    format!("demo-{}-{}", std::process::id(), now().strftime("%H%M%S"))
}

fn sample_tasks() -> Result<Vec<NewTask>, CliError> {
    let new = |class: &str, parameters: &serde_json::Value| {
        let parameters = Json::encode(parameters).map_err(|error| error.to_string());
        parameters
            .and_then(|parameters| NewTask::new(class, parameters).map_err(|e| e.to_string()))
            .map_err(CliError::Failure)
    };
    let wait = |secs: f64| new("WaitingTask", &serde_json::json!({ "waiting_time": secs }));
    let empty = serde_json::json!({});
    let mut tasks = Vec::new();
    for number in 0..WAITING_TASKS {
        // Short and long ones, mixed, the same in every demo.
        let place = f64::from(number * 37 % WAITING_TASKS) / f64::from(WAITING_TASKS - 1);
        let ms = (50.0 + 450.0 * place * place).round();
        tasks.push(wait(ms / 1000.0)?);
    }
    for class in [
        "FailingTask",
        "FailingTask",
        "FailingTask",
        "FailingNotRetryTask",
        "FailingNotRetryExceptionTask",
    ] {
        tasks.push(new(class, &empty)?);
    }
    tasks.push(wait(0.1)?.after(SCHEDULED_AHEAD));
    Ok(tasks)
}

/// Waits until all tasks have ended, or wait for a retry.
async fn watch(
    store: &dyn Store,
    ids: &[TaskId],
    progress: &mut DemoProgress<'_>,
) -> Result<(), CliError> {
    loop {
        let rows = look(store, ids).await?;
        let done = rows.iter().filter(|row| is_done(row)).count();
        progress.show(done);
        if done == ids.len() {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn is_done(row: &TaskRow) -> bool {
    match row.status {
        TaskStatus::Stopped | TaskStatus::Failed | TaskStatus::Cancelled => true,
        TaskStatus::Waiting => row.retry_number > 0,
        TaskStatus::Running => false,
    }
}

/// The demo's own tasks, oldest first. Others may be in between.
async fn look(store: &dyn Store, ids: &[TaskId]) -> Result<Vec<TaskRow>, CliError> {
    let mut found: HashMap<TaskId, TaskRow> = HashMap::new();
    let (first, last) = (ids[0], ids[ids.len() - 1]);
    let mut before = TaskId(last.0 + 1);
    while before > first {
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let page = TaskListQuery { before: Some(before), limit, ..TaskListQuery::default() };
        let rows = store.tasks(&page).await?;
        let Some(oldest) = rows.last().map(|row| row.id) else {
            break;
        };
        before = oldest;
        found.extend(rows.into_iter().map(|row| (row.id, row)));
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

/// How long after its time the scheduled task began, if it did.
async fn lateness(store: &dyn Store, id: TaskId) -> Result<Option<Duration>, CliError> {
    let task = store.task(id).await?;
    Ok(task.and_then(|task| {
        let started = task.executions.first()?.started_at?;
        let late = started.duration_since(task.row.scheduled_at);
        // Both are times of the database's clock, read at different moments.
        Some(Duration::try_from(late).unwrap_or_default())
    }))
}

/// Removes the demo's database, unless an engine uses it.
async fn remove(file: &Path) -> Result<(), CliError> {
    if !file.exists() {
        return Ok(());
    }
    // A file that cannot be opened or read is removed, too.
    if let Ok(store) = Database::File(file.into()).open(OpenMode::MustExist).await {
        let engines = store.instances(None).await.unwrap_or_default();
        if let Some(engine) = engines.iter().find(|engine| engine.is_alive()) {
            return Err(CliError::Conflict(format!(
                "an engine uses {}: {}, process {}; stop it first",
                file.display(),
                engine.name,
                engine.pid
            )));
        }
    }
    for ending in ["", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(ending);
        match std::fs::remove_file(PathBuf::from(&path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CliError::Failure(format!(
                    "{} cannot be removed: {error}",
                    file.display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
