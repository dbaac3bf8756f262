//! `task-engine start`.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use task_engine::hooks::{Budget, Metrics};
use task_engine::samples::handle_samples;
use task_engine::{Engine, Recovery, StopHandle, Stopped, Store, TaskEngine};
use task_engine_core::display::count;

use crate::console::Console;
use crate::database::{Database, OpenMode};
use crate::error::CliError;
use crate::executables::listen::{self, ListenOptions, Listener};
use crate::executables::{self, ConfigPurpose, FILE, resources};
use crate::pools::{QueueArg, ReserveArg, WorkerArgs};
use crate::signals::{self, SighupListener};
use crate::times::{Retention, audit_retention, duration};
use crate::web::{DEFAULT_ADDRESS, DashboardServer, WebOptions, address, keep_metrics};

/// Run an engine until SIGTERM or Ctrl-C
///
/// It runs executables in any language, configured in task-engine.toml in the
/// working folder; see the example below. An application in Rust contains its own
/// engine, with its own classes.
///
/// The first signal, or the end of the terminal (unless started with `nohup`),
/// lets running tasks finish (exit code 0). The second signal, or the end of
/// --stop-timeout, releases them without using a retry (exit code 9).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The name of this engine; no two live engines share one [default: the host
    /// name, or HOST-2, HOST-3, … if live engines have it]
    #[arg(long, env = "TASK_ENGINE_INSTANCE", value_name = "NAME")]
    instance: Option<String>,
    /// How many tasks run at a time, of all queues that have no workers of their
    /// own; 0 for none [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(0..=10_000))]
    workers: Option<u16>,
    /// A queue to take tasks from. With =N, it has N workers of its own, and the
    /// other queues are served as before. Without, it takes the place of the
    /// default. May be given several times [default: default, and the queues of
    /// the classes]
    #[arg(long = "queue", value_name = "NAME[=N]", value_parser = QueueArg::parse)]
    queues: Vec<QueueArg>,
    /// N more workers, which take only tasks of this priority or a higher one,
    /// from all queues of this engine. May be given several times
    #[arg(long, value_name = "PRIORITY=N", value_parser = ReserveArg::parse,
          allow_hyphen_values = true)]
    reserve: Vec<ReserveArg>,
    /// What happens to the tasks of dead engines: engines recover them, or an
    /// operator does (`recover`), and an engine whose name left tasks refuses to
    /// start
    #[arg(long, default_value = "auto", value_name = "HOW")]
    recovery: RecoveryMode,
    /// How long running tasks may go on after the first signal [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    stop_timeout: Option<Duration>,
    /// How often the engine sends a heartbeat
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    heartbeat: Duration,
    /// How long after its last heartbeat other engines declare it dead
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    dead_after: Duration,
    /// How often it looks for work without a wake-up, at most 10s
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    poll: Duration,
    /// How long successful tasks are kept, or `never` to remove none
    #[arg(long, default_value = "30days", value_name = "DURATION", value_parser = Retention::parse)]
    retention: Retention,
    /// How long entries of the audit are kept, at least 90 days, or `never` to
    /// remove none
    #[arg(long, default_value = "never", value_name = "DURATION", value_parser = audit_retention)]
    audit_retention: Retention,
    /// Warn about executions that take longer than this
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    warn_after: Option<Duration>,
    /// The file that names the executable of each class [default:
    /// task-engine.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Do not create or update the tables
    #[arg(long)]
    no_migrate: bool,
    /// Also know the sample classes: WaitingTask {"waiting_time": SECONDS},
    /// FailingTask, FailingNotRetryTask, FailingNotRetryExceptionTask, and
    /// ReportingTask {"steps": N, "step_time": SECONDS}, which reports progress
    #[arg(long)]
    samples: bool,
    /// Also serve the dashboard and the HTTP API, there or on 127.0.0.1:8642
    #[arg(long, value_name = "ADDRESS", value_parser = address, num_args = 0..=1,
          default_missing_value = DEFAULT_ADDRESS, help_heading = "Dashboard")]
    web: Option<SocketAddr>,
    #[command(flatten)]
    web_options: WebOptions,
    #[command(flatten)]
    listen_options: ListenOptions,
}

const EXAMPLE: &str = r#"Example of task-engine.toml:

  [class.hello]                     # one process a task
  command = ["./hello.py"]
  timeout = "30s"
  limit = 2                         # two at a time, over all engines

  [worker.python]                   # processes that stay, for several classes
  command = ["python3", "-u", "worker.py"]
  classes = ["resize", "thumbnail"]
  processes = 2
  concurrency = 4

  [schedule.nightly]                # a regular task
  class = "hello"
  cron = "0 3 * * *"
  time_zone = "Europe/Paris"

`task-engine check` reads it without starting anything."#;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RecoveryMode {
    Auto,
    Manual,
}

impl From<RecoveryMode> for Recovery {
    fn from(mode: RecoveryMode) -> Self {
        match mode {
            RecoveryMode::Manual => Self::Manual,
            RecoveryMode::Auto => Self::Auto,
        }
    }
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let listens = args.listen_options.listen.is_some();
    let purpose = if listens { ConfigPurpose::Listen } else { ConfigPurpose::Run };
    let config = executables::load(args.config.as_deref(), purpose)?;
    resources::raise_descriptor_limit();
    let stop = StopHandle::new();
    stop.stop_on_signals()
        .map_err(|e| CliError::Failure(format!("could not install signal handlers: {e}")))?;
    signals::exit_on_third_signal()?;
    stop_on_sighup(stop.clone())?;
    let database = console.database_or(config.database.as_deref())?;
    let file = args.config.as_deref().unwrap_or(Path::new(FILE));
    let prepared = async {
        let config = executables::with_announcements(config, file).await?;
        let (store, web) = open(console, &database, &args).await?;
        let listener = Listener::bind(console, &args.listen_options).await?;
        Ok::<_, CliError>((config, store, web, listener))
    };
    let (config, store, web, listener) = tokio::select! {
        prepared = prepared => prepared?,
        () = stop.requested() => {
            console.message("Stopped before the database was connected.");
            return Ok(());
        }
    };
    if io::stderr().is_terminal() {
        console.message("Waiting for tasks; Ctrl-C stops.");
    }
    let common = CommonSettings::new(&args, web.is_some());
    let mut engine = common
        .apply(&TaskEngine::new(store.clone()))
        .retention(args.retention.age())
        .audit_retention(args.audit_retention.age())
        .migrate_at_start(!args.no_migrate);
    let workers = WorkerArgs { workers: args.workers, queues: args.queues, reserve: args.reserve };
    engine = workers.limited(&config.classes).apply(engine);
    if let Some(name) = args.instance {
        engine = engine.instance(name);
    }
    if args.samples {
        engine = handle_samples(engine);
    }
    engine = executables::handle_executables(engine, &config.classes);
    for schedule in config.schedules {
        engine = engine.schedule(schedule);
    }
    for limit in config.limits {
        engine = engine.limit(limit);
    }
    if config.classes.is_empty() && !args.samples && !listens {
        tracing::warn!(
            "this engine has no class and runs no task: name executables in task-engine.toml, or start it with --samples to try it"
        );
    }
    let connected = listener.map(|listener| {
        // What an engine does for the whole database is done by the first one.
        let engine = move || {
            let tasks = TaskEngine::new(store.clone());
            common.apply(&tasks).retention(None).migrate_at_start(false)
        };
        tokio::spawn(listener.run(Arc::new(engine), config.options, stop.clone()))
    });
    let stopped = engine.stopped_by(stop.clone()).run_until(std::future::pending()).await;
    let mut all = stopped.as_ref().copied().unwrap_or_default();
    if let Some(connected) = connected {
        stop.stop();
        listen::add(&mut all, connected.await.unwrap_or_default());
    }
    if let Some(web) = web {
        web.end().await;
    }
    stopped?;
    exit_result(all)
}

/// The settings that the engine and the sessions of connected workers share.
#[derive(Debug, Clone, Copy)]
struct CommonSettings {
    recovery: Recovery,
    heartbeat: Duration,
    dead_after: Duration,
    poll: Duration,
    stop_timeout: Option<Duration>,
    warn_after: Option<Duration>,
    has_metrics: bool,
}

impl CommonSettings {
    fn new(args: &Arguments, has_metrics: bool) -> Self {
        Self {
            recovery: args.recovery.into(),
            heartbeat: args.heartbeat,
            dead_after: args.dead_after,
            poll: args.poll,
            stop_timeout: args.stop_timeout,
            warn_after: args.warn_after,
            has_metrics,
        }
    }

    fn apply(self, tasks: &TaskEngine) -> Engine<()> {
        let mut engine = tasks
            .engine(())
            .recovery(self.recovery)
            .heartbeat(self.heartbeat, self.dead_after)
            .poll(self.poll);
        if let Some(time) = self.stop_timeout {
            engine = engine.stop_timeout(time);
        }
        if let Some(time) = self.warn_after {
            engine = engine.hook(Budget::warn(time));
        }
        if self.has_metrics {
            engine = engine.hook(Metrics);
        }
        engine
    }
}

/// The database, and the dashboard with --web.
async fn open(
    console: &Console,
    database: &Database,
    args: &Arguments,
) -> Result<(Arc<dyn Store>, Option<DashboardServer>), CliError> {
    let access = if args.no_migrate { OpenMode::MustExist } else { OpenMode::CreateIfMissing };
    let store = database.open(access).await?;
    console.message(format_args!("Database: {}", store.location()));
    let Some(address) = args.web else {
        return Ok((store, None));
    };
    if !args.no_migrate {
        // The dashboard may be used before the engine is ready.
        store.migrate().await?;
    }
    let watched = database.open_to_watch().await?;
    let metrics = Some(keep_metrics()?);
    let web = DashboardServer::begin(console, watched, address, &args.web_options, metrics).await?;
    Ok((store, Some(web)))
}

/// Stops the engine gracefully when its terminal is closed. By default the signal
/// would kill it, and leave its tasks to recovery.
pub(crate) fn stop_on_sighup(stop: StopHandle) -> Result<(), CliError> {
    let mut sighup = SighupListener::listen()?;
    tokio::spawn(async move {
        sighup.recv().await;
        tracing::info!("SIGHUP: no new task starts, running tasks finish");
        stop.stop();
    });
    Ok(())
}

/// The exit code of an engine that stopped.
pub(crate) fn exit_result(stopped: Stopped) -> Result<(), CliError> {
    let Stopped { forced, released, unrecorded, .. } = stopped;
    if unrecorded > 0 {
        return Err(CliError::Failure(format!(
            "could not record the results of {}; see the log. Recovery decides about them",
            count(unrecorded, "task")
        )));
    }
    if released > 0 {
        return Err(CliError::Released(format!(
            "stopped before {} had ended: released to wait again, without using a retry",
            count(released, "task")
        )));
    }
    if forced {
        return Err(CliError::Released("stopped at once; no task was running".to_owned()));
    }
    Ok(())
}
