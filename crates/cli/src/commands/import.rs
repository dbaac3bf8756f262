//! `task-engine import`.

use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use task_engine::StoreError;
use task_engine_core::display::count;
use task_engine_core::recovery::Reclaim;
use task_engine_store::export::{ExportFile, ImportIds, ImportOutcome};

use super::export::content_text;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;
use crate::json_output::write_json_line;

/// Read what `export` wrote: all of it, or nothing
#[derive(Debug, Args)]
#[command(after_help = "\
ImportIds are kept, so the database must have neither tasks nor schedules. With
--new-ids, tasks are added after the existing ones: every id of the file grows by
the same number, which is printed, and so do references between tasks. A unique
key stays with the existing task.")]
pub(crate) struct Arguments {
    /// The file [default: the standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Give everything new ids
    #[arg(long)]
    new_ids: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let name =
        args.file.as_ref().map_or("the standard input".to_owned(), |f| f.display().to_string());
    let input: Box<dyn BufRead + Send> = match &args.file {
        Some(path) => match fs::File::open(path) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CliError::NotFound(format!("there is no file {name}")));
            }
            Err(error) => return Err(CliError::Usage(format!("cannot read {name}: {error}"))),
        },
        None if io::stdin().is_terminal() => {
            return Err(CliError::Usage(
                "name a file, or redirect one: task-engine import < FILE".to_owned(),
            ));
        }
        None => Box::new(BufReader::new(io::stdin())),
    };
    let bad = |why: &dyn std::fmt::Display| {
        CliError::Usage(format!("{name}: {why}; nothing was imported"))
    };
    let file = ExportFile::open(input).map_err(|error| bad(&error))?;
    let store = console.database()?.open(OpenMode::CreateIfMissing).await?;
    store.migrate().await?;
    let ids = if args.new_ids { ImportIds::New } else { ImportIds::Keep };
    let (read, shift, holders) = match store.import(file, ids).await {
        Ok(ImportOutcome::Done { read, shift, holders }) => (read, shift, holders),
        Ok(ImportOutcome::Conflict(why)) => {
            return Err(CliError::Conflict(format!(
                "{}: {why}; nothing was imported",
                store.location()
            )));
        }
        Err(StoreError::InvalidData(why)) => return Err(bad(&why)),
        Err(error) => return Err(error.into()),
    };
    // Everything is imported, and the holders are recorded as ended. If this is
    // interrupted, any recovering engine, or `task-engine recover`, does the same.
    let mut reclaimed = 0;
    for holder in holders {
        reclaimed += store.reclaim(Reclaim::Lost(holder)).await?.len();
    }
    let mut out = console.results();
    if args.json {
        let report = serde_json::json!({
            "tasks": read.tasks,
            "schedules": read.schedules,
            "paused_queues": read.paused_queues,
            "instances": read.instances,
            "ids_grew_by": shift.tasks,
            "reclaimed": reclaimed,
        });
        write_json_line(&mut out, &report)?;
    } else if args.new_ids {
        writeln!(out, "task ids grew by {}: task N of the file is task N + {0}", shift.tasks)?;
    }
    out.flush()?;
    console.message(format_args!("Imported {} into {}.", content_text(read), store.location()));
    if reclaimed > 0 {
        console.message(format_args!(
            "{} ran when the file was written; recorded as InstanceLost, and the retry rule of the class decides what comes next.",
            count(reclaimed, "task")
        ));
    }
    Ok(())
}
