//! `task-engine queues`.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;
use task_engine_core::display::{count_text, relative};
use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::{QueuePause, QueueRow};
use task_engine_core::queue::{QueueService, check_queue_name, queue_services};
use task_engine_operations::OperationOutcome;
use task_engine_operations::queues::is_known;

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::operations::operator;
use crate::table::table;

/// List queues; pause and resume them
///
/// No engine takes tasks from a paused queue; running tasks finish. A pause stays
/// until `queues resume`, also when engines stop and start.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: QueuesCommand,
}

#[derive(Debug, Subcommand)]
enum QueuesCommand {
    /// List queues: what waits and runs in each, and which engines serve it
    List {
        /// Print JSON, one queue a line
        #[arg(long)]
        json: bool,
    },
    /// Start no more tasks of a queue
    Pause {
        /// The queue; it need not be known yet
        #[arg(value_name = "NAME")]
        name: String,
        /// The reason, for other operators
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Start tasks of a paused queue again
    Resume {
        /// The queue
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    match args.command {
        QueuesCommand::List { json } => list(console, json).await,
        QueuesCommand::Pause { name, reason } => {
            let pause = QueuePause::new(name, reason)
                .map_err(|error| CliError::Usage(error.to_string()))?;
            self::pause(console, &pause).await
        }
        QueuesCommand::Resume { name } => {
            check_queue_name(&name).map_err(|error| CliError::Usage(error.to_string()))?;
            resume(console, &name).await
        }
    }
}

async fn list(console: &Console, json: bool) -> Result<(), CliError> {
    let store = console.open().await?;
    let queues = store.queues().await?;
    let engines = store.instances(None).await?;
    if json {
        return console.print_json(queues.iter().map(|queue| {
            let served_by = queue_services(&queue.name, &engines);
            QueueLine { queue, served_by }
        }));
    }
    if queues.is_empty() {
        console.message(format_args!(
            "No task waits on {}, and no engine serves a queue. Start one: {}",
            store.location(),
            console.command("start")
        ));
        return Ok(());
    }
    let rows = queues.iter().map(|queue| line(queue, &engines)).collect();
    let header = ["QUEUE", "DUE", "LATER", "RUNNING", "WORKERS", "STATE"];
    console.print(table(&header, &[1, 2, 3], rows))
}

/// A queue and the engines that serve it.
#[derive(Serialize)]
struct QueueLine<'a> {
    #[serde(flatten)]
    queue: &'a QueueRow,
    served_by: Vec<QueueService>,
}

fn line(queue: &QueueRow, engines: &[InstanceRow]) -> Vec<String> {
    let state = match &queue.paused {
        None => "open".to_owned(),
        Some(paused) => {
            let since = relative(paused.paused_at, now().timestamp());
            let why = paused.reason.as_ref().map(|reason| format!(": {}", summary(reason, 60)));
            format!("paused {since}{}", why.unwrap_or_default())
        }
    };
    vec![
        summary(&queue.name, 50),
        count_text(queue.due),
        count_text(queue.later),
        queue.running.to_string(),
        workers(&queue_services(&queue.name, engines)),
        state,
    ]
}

fn workers(services: &[QueueService]) -> String {
    const SHOWN_MAX: usize = 3;
    let mut each: Vec<_> = services
        .iter()
        .take(SHOWN_MAX)
        .map(|service| match service {
            QueueService { instance, workers, reserved: 0 } => {
                format!("{workers} {}", summary(instance, 30))
            }
            QueueService { instance, workers, reserved } => {
                format!("{workers}+{reserved} {}", summary(instance, 30))
            }
        })
        .collect();
    if services.len() > SHOWN_MAX {
        each.push(format!("and {} more", services.len() - SHOWN_MAX));
    }
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

async fn pause(console: &Console, pause: &QueuePause) -> Result<(), CliError> {
    let store = console.open().await?;
    let report = operator(&store).reason(pause.reason()).pause_queue(pause.queue()).await?;
    let name = escape(pause.queue());
    let mut out = console.results();
    match (report.has(OperationOutcome::Paused), pause.reason()) {
        (true, _) => writeln!(out, "queue {name} was paused; its running tasks finish")?,
        (false, None) => writeln!(out, "queue {name} was paused before")?,
        (false, Some(_)) => writeln!(out, "queue {name} was paused before; it has a new reason")?,
    }
    out.flush()?;
    if !is_known(&*store, pause.queue()).await? {
        console.message(format_args!(
            "Queue {name} has no tasks, and no engine serves it; the pause applies to future tasks."
        ));
    }
    console.message(format_args!(
        "Let its tasks run again: {}",
        console.command(&format!("queues resume {}", quoted(pause.queue())))
    ));
    Ok(())
}

async fn resume(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.open().await?;
    let report = operator(&store).resume_queue(name).await?;
    let name = escape(name);
    if report.has(OperationOutcome::NotPaused) {
        console.message(format_args!("queue {name} was not paused"));
        return Ok(());
    }
    console.print(format_args!("queue {name} was resumed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_named_with_their_engines() {
        let service = |instance: &str, workers, reserved| QueueService {
            instance: instance.to_owned(),
            workers,
            reserved,
        };
        assert_eq!(workers(&[]), "none");
        let two = [service("web-1", 10, 0), service("web-2", 5, 2)];
        assert_eq!(workers(&two), "10 web-1, 5+2 web-2");
        let many: Vec<_> = (0..5).map(|n| service(&n.to_string(), 1, 0)).collect();
        assert_eq!(workers(&many), "1 0, 1 1, 1 2, and 2 more");
    }
}
