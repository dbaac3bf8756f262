//! `task-engine migrate`.

use std::io::Write;

use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;

pub(crate) async fn run(console: &Console) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::CreateIfMissing).await?;
    let applied = store.migrate().await?;
    let mut out = console.results();
    for name in &applied {
        writeln!(out, "applied {name}")?;
    }
    out.flush()?;
    if applied.is_empty() {
        console.message(format_args!("{} is up to date.", store.location()));
    } else {
        console.message(format_args!("{} is now up to date.", store.location()));
    }
    Ok(())
}
