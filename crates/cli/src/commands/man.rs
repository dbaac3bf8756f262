//! `task-engine man`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use crate::console::Console;
use crate::error::CliError;
use crate::help::command;

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
#[command(after_help = "Read it at once: task-engine man | man -l -")]
pub(crate) struct Arguments {
    /// The page of this command, like `create` or `queues pause`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let mut root = command();
    root.build();
    let mut out = console.results();
    match args.dir {
        Some(folder) => {
            let unwritable = |e: io::Error| {
                CliError::Failure(format!("{} cannot be written: {e}", folder.display()))
            };
            fs::create_dir_all(&folder).map_err(unwritable)?;
            let mut written = Vec::new();
            write_all(&root, "task-engine", &folder, &mut written).map_err(unwritable)?;
            for file in written {
                writeln!(out, "{}", file.display())?;
            }
        }
        None => {
            let (mut at, mut name) = (&root, "task-engine".to_owned());
            for word in &args.command {
                at = at.find_subcommand(word).ok_or_else(|| {
                    CliError::NotFound(format!(
                        "there is no command {name} {word}; see {name} --help"
                    ))
                })?;
                name = format!("{name} {word}");
            }
            out.write_all(&page(at, &name)?)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn write_all(
    command: &Command,
    name: &str,
    folder: &Path,
    written: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let file = folder.join(format!("{}.1", name.replace(' ', "-")));
    fs::write(&file, page(command, name)?)?;
    written.push(file);
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        write_all(inner, &format!("{name} {}", inner.get_name()), folder, written)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let title = name.replace(' ', "-");
    let command = command.clone().display_name(title).bin_name(name);
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}
