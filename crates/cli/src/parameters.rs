//! The JSON of a new task or of a signal: written on the command line, in a file, or piped in.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal, Read};

use clap::Args;
use task_engine::{Json, NewTask};
use task_engine_core::instance::InstanceRow;
use task_engine_core::json::{BYTES_MAX, InvalidJson};
use task_engine_core::secret;
use task_engine_core::secret::{Secrets, UnexpectedPlaceholder};
use task_engine_operations::Operator;
use task_engine_operations::schemas::Schemas;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;

/// Reads and checks the parameters of a task: `JSON`, `@FILE`, or `-` for the standard
/// input. Reads little more than the limit of a task.
pub(crate) fn read(given: Option<&str>, console: &Console) -> Result<Json, CliError> {
    let Some(given) = given else { return Ok(Json::empty_object()) };
    let text = text(given, console, "Type the parameters as a JSON object; end with Ctrl-D.")?;
    Json::parse_object(text.trim()).map_err(|why| invalid("parameters", given, &why, QUOTES))
}

/// Reads and checks the payload of a signal in the same way: any JSON value.
pub(crate) fn read_payload(given: Option<&str>, console: &Console) -> Result<Json, CliError> {
    let Some(given) = given else { return Ok(Json::null()) };
    let text = text(given, console, "Type the payload as JSON; end with Ctrl-D.")?;
    Json::parse(text.trim()).map_err(|why| invalid("payload", given, &why, QUOTES_OF_TEXT))
}

fn text(given: &str, console: &Console, prompt: &str) -> Result<String, CliError> {
    if given == "-" {
        if io::stdin().is_terminal() {
            console.message(prompt);
        }
        return read_text("the standard input", io::stdin().lock());
    }
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let file = File::open(path)
        .map_err(|error| CliError::Usage(format!("the file {path:?} cannot be opened: {error}")))?;
    read_text(path, file)
}

fn invalid(what: &str, given: &str, why: &InvalidJson, quotes: &str) -> CliError {
    let typed = given != "-" && !given.starts_with('@');
    let hint = if typed && matches!(why, InvalidJson::Syntax(_)) { quotes } else { "" };
    CliError::Usage(format!("{what}: {why}{hint}"))
}

/// Refuses parameters with a placeholder of a hidden secret, copied from a page or
/// an output. `inside`: the class has secrets, so placeholders within texts count.
pub(crate) fn refuse_placeholders(parameters: &Json, inside: bool) -> Result<(), CliError> {
    secret::refuse_placeholders(parameters, inside).map_err(|found| placeholder_error(&found))
}

/// `--no-check`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct CheckArgs {
    /// Do not check the parameters by the schema of the class
    #[arg(long)]
    no_check: bool,
}

impl CheckArgs {
    /// An operator that checks parameters, or not.
    pub(crate) fn apply(self, operator: Operator) -> Operator {
        operator.checking_parameters(!self.no_check)
    }

    /// Checks the parameters of new tasks by the schemas of these engines. Each task comes
    /// with what to write before the error.
    pub(crate) fn check<'a>(
        self,
        console: &Console,
        engines: &[InstanceRow],
        tasks: impl IntoIterator<Item = (&'a NewTask, String)>,
    ) -> Result<(), CliError> {
        if self.no_check {
            return Ok(());
        }
        let (schemas, secrets) = (Schemas::of(engines), Secrets::of(engines));
        let mut warned = BTreeSet::new();
        for (task, begin) in tasks {
            if warned.insert(task.class.as_str()) {
                for warning in schemas.warnings(&task.class) {
                    console.message(format_args!("Warning: {}", escape(&warning)));
                }
            }
            schemas.check_task(task, &secrets).map_err(|invalid| {
                match CliError::from(invalid.at("")) {
                    CliError::Usage(why) => CliError::Usage(format!("{begin}{why}")),
                    error => error,
                }
            })?;
        }
        Ok(())
    }
}

pub(crate) fn placeholder_error(found: &UnexpectedPlaceholder) -> CliError {
    CliError::Usage(format!("parameters: {found}"))
}

/// Shells remove quotes, and JSON has only double ones.
const QUOTES: &str = r#"; on a command line, write single quotes around it and double quotes inside, like '{"name": "value"}'"#;

const QUOTES_OF_TEXT: &str = r#"; on a command line, write single quotes around JSON, like '{"name": "value"}', '"text"' or 7"#;

fn read_text(from: &str, input: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    // White space around the object does not count.
    const MARGIN: usize = 4096;
    let limit = BYTES_MAX + MARGIN;
    input
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::Usage(format!("cannot read {from}: {error}")))?;
    if bytes.len() > limit {
        return Err(CliError::Usage(format!(
            "{from} has more than {BYTES_MAX} bytes, too many for a task; keep the data elsewhere and pass a reference to it"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::Usage(format!("{from} is not text in UTF-8 (at byte {at})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_input_is_cut_off() {
        let error = read_text("the pipe", io::repeat(b' ')).unwrap_err();
        assert!(error.to_string().contains("the pipe has more than"), "{error}");
    }

    #[test]
    fn invalid_utf8_is_refused_with_position() {
        let error = read_text("f", &b"{\"a\":\xff}"[..]).unwrap_err();
        assert!(error.to_string().contains("f is not text in UTF-8 (at byte 5)"), "{error}");
    }
}
