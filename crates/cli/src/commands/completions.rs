//! `task-engine completions`.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

use crate::console::Console;
use crate::error::CliError;
use crate::help::command;

/// Print the completions for a shell
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "\
Where to install them:
  bash        task-engine completions bash > ~/.local/share/bash-completion/completions/task-engine
  zsh         task-engine completions zsh > a folder of $fpath, as _task-engine
  fish        task-engine completions fish > ~/.config/fish/completions/task-engine.fish")]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    // Into memory first: the generator panics when its output is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "task-engine", &mut text);
    let mut out = console.results();
    out.write_all(&text)?;
    out.flush()?;
    Ok(())
}
