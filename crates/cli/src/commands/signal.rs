//! `task-engine signal`.

use clap::Args;
use task_engine::TaskId;
use task_engine_core::ParseError;
use task_engine_core::step::SignalTarget;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;
use crate::operations::operator;
use crate::parameters;

/// Send a signal to a task
///
/// A task that waits for the signal continues at once. If the task does not wait
/// for it yet, the signal is kept until then. The first signal of a name counts: a
/// second one is refused, as is one for a task that has ended or whose wait has
/// timed out (exit code 4).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct Arguments {
    /// The task by its id, the name of the signal, and its payload: JSON, @FILE to
    /// read it, or - for the standard input [default: null]. With --class and
    /// --key, leave out the id
    #[arg(value_name = "ID NAME JSON|@FILE|-", required = true, num_args = 1..=3,
          allow_negative_numbers = true)]
    words: Vec<String>,
    /// The class of the task, if it is named by its unique key
    #[arg(long, value_name = "CLASS", requires = "key")]
    class: Option<String>,
    /// The unique key of the task: the last one that was created with it
    #[arg(long, value_name = "KEY", requires = "class")]
    key: Option<String>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

const USAGE: &str = "task-engine signal [OPTIONS] <ID> <NAME> [JSON|@FILE|-]
       task-engine signal [OPTIONS] --class <CLASS> --key <KEY> <NAME> [JSON|@FILE|-]";

const EXAMPLES: &str = r#"Examples:
  task-engine signal 17 approved
  task-engine signal 17 approved '{"by": "ada"}'
  task-engine signal --class order --key 4711 approved @payload.json"#;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let (target, name, payload) = request(&args)?;
    let payload = parameters::read_payload(payload, console)?;
    let store = console.open().await?;
    let sent = operator(&store).signal(&target, name, &payload).await?;
    let accepted = sent.status.is_accepted();
    if args.json {
        console.print_json([&sent])?;
    } else if accepted {
        console.print(escape(&sent.report.message))?;
    }
    if accepted {
        return Ok(());
    }
    let message = sent.report.message.trim_end_matches('.');
    Err(CliError::Conflict(escape(message).into_owned()))
}

/// The words as the task, the name and the payload.
fn request(args: &Arguments) -> Result<(SignalTarget, &str, Option<&str>), CliError> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    if let (Some(class), Some(key)) = (args.class.clone(), args.key.clone()) {
        return match words[..] {
            [name] => Ok((SignalTarget::UniqueKey { class, key }, name, None)),
            [name, payload] => Ok((SignalTarget::UniqueKey { class, key }, name, Some(payload))),
            _ => Err(CliError::Usage(
                "with --class and --key, give the name of the signal and its payload, and no id"
                    .to_owned(),
            )),
        };
    }
    let (id, name, payload) = match words[..] {
        [id, name] => (id, name, None),
        [id, name, payload] => (id, name, Some(payload)),
        _ => {
            return Err(CliError::Usage(
                "give the id of the task and the name of the signal, as in `signal 17 approved`"
                    .to_owned(),
            ));
        }
    };
    let id: TaskId = id.parse().map_err(|bad: ParseError| CliError::Usage(bad.into()))?;
    Ok((SignalTarget::Id(id), name, payload))
}
