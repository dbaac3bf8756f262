//! Output: results go to the standard output, the rest to the standard error. A
//! closed standard error is ignored, where `eprintln!` would panic.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use task_engine::Store;
use task_engine_core::display::capitalize;

use crate::args::Common;
use crate::database::{DEFAULT_URL, Database, OpenMode, URL_VARIABLE};
use crate::error::CliError;
use crate::escape::escape_lines;
use crate::executables::{self, ConfigPurpose};
use crate::json_output::write_json_line;

pub(crate) use task_engine_core::display::shell_quoted as quoted;

/// The output of this run, and its database.
#[derive(Debug)]
pub(crate) struct Console {
    common: Common,
}

impl Console {
    pub(crate) fn new(common: Common) -> Self {
        Self { common }
    }

    /// The results, buffered: flush after writing.
    pub(crate) fn results(&self) -> BufWriter<StdoutLock<'static>> {
        BufWriter::new(io::stdout().lock())
    }

    /// Prints a result.
    pub(crate) fn print(&self, text: impl Display) -> Result<(), CliError> {
        let mut out = self.results();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Prints values as JSON, one a line.
    pub(crate) fn print_json<T: Serialize>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> Result<(), CliError> {
        let mut out = self.results();
        for value in values {
            write_json_line(&mut out, &value)?;
        }
        Ok(out.flush()?)
    }

    /// A message beside the results.
    pub(crate) fn message(&self, message: impl Display) {
        if !self.common.quiet {
            to_stderr(&message);
        }
    }

    pub(crate) fn print_error(&self, error: &CliError) {
        match error {
            // The engine did what was asked.
            CliError::Released(_) => to_stderr(&format_args!("{}", capitalize(&error.to_string()))),
            _ => to_stderr(&format_args!("error: {error}")),
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.common.quiet
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.common.verbose
    }

    /// Whether a progress bar may be drawn.
    pub(crate) fn may_animate(&self) -> bool {
        !self.common.quiet && !self.common.verbose && io::stderr().is_terminal()
    }

    /// Opens the database of this run, which must exist.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, CliError> {
        self.database()?.open(OpenMode::MustExist).await
    }

    /// Opens the database of this run to create tasks: unless it must not be migrated, it is
    /// created if it is missing, and brought up to date.
    pub(crate) async fn open_to_create(
        &self,
        no_migrate: bool,
    ) -> Result<Arc<dyn Store>, CliError> {
        let mode = if no_migrate { OpenMode::MustExist } else { OpenMode::CreateIfMissing };
        let store = self.database()?.open(mode).await?;
        self.message(format_args!("Database: {}", store.location()));
        if !no_migrate {
            for applied in store.migrate().await? {
                self.message(format_args!("Applied migration {applied}"));
            }
        }
        Ok(store)
    }

    /// The database of this run: by option, by environment, by task-engine.toml
    /// in the working folder, or the default.
    pub(crate) fn database(&self) -> Result<Database, CliError> {
        if let Some(url) = self.chosen_url() {
            return self.parse(&url);
        }
        let config = executables::load(None, ConfigPurpose::Database)?;
        self.parse(config.database.as_deref().unwrap_or(DEFAULT_URL))
    }

    /// The same, with the database of a file that has been read.
    pub(crate) fn database_or(&self, in_file: Option<&str>) -> Result<Database, CliError> {
        let chosen = self.chosen_url();
        self.parse(chosen.as_deref().or(in_file).unwrap_or(DEFAULT_URL))
    }

    /// The option or the variable; both go before a file.
    fn chosen_url(&self) -> Option<String> {
        let variable = || std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty());
        self.common.database.clone().or_else(variable)
    }

    /// The database of the option --database only.
    pub(crate) fn named_database(&self) -> Result<Option<Database>, CliError> {
        self.common.database.as_deref().map(|url| self.parse(url)).transpose()
    }

    fn parse(&self, url: &str) -> Result<Database, CliError> {
        Database::parse(url, self.common.schema.as_deref())
    }

    /// A command to try next, with the database and schema of this one.
    pub(crate) fn command(&self, rest: &str) -> String {
        let database = match self.named_database() {
            Ok(Some(database)) => database.as_option(),
            _ => String::new(),
        };
        let schema = self.common.schema.as_deref();
        let schema = schema.map_or_else(String::new, |name| format!(" --schema {name}"));
        format!("{} {rest}{database}{schema}", program())
    }
}

fn to_stderr(message: &dyn Display) {
    let text = message.to_string();
    let text = escape_lines(&text);
    // One write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// How this program was called, so that printed commands can be copied: after
/// `cargo run -- demo`, it is not in PATH.
pub(crate) fn program() -> String {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return "cargo run -q --".to_owned();
    }
    match std::env::args().next() {
        Some(path) if path.contains('/') => quoted(&path),
        _ => "task-engine".to_owned(),
    }
}

/// The current time in the local time zone.
pub(crate) fn now() -> Zoned {
    Timestamp::now().to_zoned(TimeZone::system())
}
