//! Adds and changes limits.

use clap::{Args, ValueEnum};
use task_engine_core::display::rate_text;
use task_engine_core::limit::{Limit, LimitTarget, Rate};
use task_engine_core::parse;
use task_engine_core::suggest::nearest;
use task_engine_operations::OperationOutcome;
use task_engine_operations::limits::LimitEdit;

use crate::console::{Console, quoted};
use crate::error::CliError;
use crate::escape::escape;
use crate::operations::operator;

/// Add a limit, or change the given options of one
///
/// It applies at once, to all engines; running tasks count, and continue. It
/// stays as it is set here, also if engines declare it otherwise.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// A new limit: for all tasks of this class
    #[arg(long, value_name = "CLASS", conflicts_with = "queue")]
    class: Option<String>,
    /// A new limit: for all tasks of this queue; without either, for tasks that
    /// name it
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Apply it to each value of this parameter separately
    #[arg(long, value_name = "PARAMETER")]
    key: Option<String>,
    /// At most so many running tasks
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max: Option<u32>,
    /// At most so many starts in any such time: 100/1s, 5/min, 1000/1h
    #[arg(long, value_name = "N/TIME", value_parser = parse::rate, allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Spread the starts evenly over the time
    #[arg(long)]
    even: bool,
    /// Run tasks one at a time and in order: a failed task that waits for its
    /// retry blocks its key
    #[arg(long)]
    in_order: bool,
    /// Give a key a larger share of the workers; 1 is the default
    #[arg(long = "weight", value_name = "KEY=N", value_parser = weight)]
    weights: Vec<(String, u32)>,
    /// Remove an option
    #[arg(long, value_name = "OPTION", value_enum)]
    without: Vec<LimitOption>,
    /// The reason, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  task-engine limits set sync --class sync --max 2 --key customer_id
  task-engine limits set api --rate 100/1s --even
  task-engine limits set sync --max 5
  task-engine limits set sync --weight acme=3";

/// What can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LimitOption {
    Key,
    Max,
    Rate,
    Even,
    InOrder,
    Weights,
}

fn weight(text: &str) -> Result<(String, u32), String> {
    // A key may contain the sign itself.
    let (key, weight) = text.rsplit_once('=').ok_or("write KEY=N, like acme=3")?;
    let weight = weight.trim().parse().map_err(|_| "the weight is a whole number, like acme=3")?;
    Ok((key.to_owned(), weight))
}

impl Arguments {
    fn edit(&self) -> LimitEdit {
        let without = |option| self.without.contains(&option);
        let target = self.class.clone().map(LimitTarget::Class);
        LimitEdit {
            target: target.or_else(|| self.queue.clone().map(LimitTarget::Queue)),
            key: self.key.clone().map(Some).or(without(LimitOption::Key).then_some(None)),
            max: self.max.map(Some).or(without(LimitOption::Max).then_some(None)),
            rate: self.rate.map(Some).or(without(LimitOption::Rate).then_some(None)),
            even: self.even.then_some(true).or(without(LimitOption::Even).then_some(false)),
            in_order: self
                .in_order
                .then_some(true)
                .or(without(LimitOption::InOrder).then_some(false)),
            without_weights: without(LimitOption::Weights),
            weights: self.weights.clone(),
        }
    }
}

pub(super) async fn set(console: &Console, args: Arguments) -> Result<(), CliError> {
    let edit = args.edit();
    if edit.is_empty() {
        return Err(CliError::Usage(
            "nothing to set: give --max, --rate, --in-order, --key, --weight or --without".into(),
        ));
    }
    let store = console.open().await?;
    let names: Vec<String> = store.limits().await?.into_iter().map(|row| row.limit.name).collect();
    let report =
        operator(&store).reason(args.reason.as_deref()).set_limit(&args.name, &edit).await?;
    if args.json {
        return console.print_json([report]);
    }
    console.print(escape(&report.message))?;
    if !report.has(OperationOutcome::Added) {
        return Ok(());
    }
    if edit.target.is_none() {
        let name = quoted(&args.name);
        console.message(format_args!("Tasks name it at their creation: create --limit {name}=KEY"));
        if let Some(near) = nearest(&args.name, names.iter().map(String::as_str)) {
            let near = escape(near);
            console.message(format_args!("There is also a limit {near}: did you mean that one?"));
        }
    }
    console.message(format_args!(
        "To remove it: {}",
        console.command(&format!("limits clear {}", quoted(&args.name)))
    ));
    Ok(())
}

/// The arguments that set a limit like this.
pub(super) fn arguments_of(limit: &Limit) -> String {
    let Limit { name, target, options } = limit;
    let mut words = vec![quoted(name)];
    match target {
        LimitTarget::Class(class) => words.push(format!("--class {}", quoted(class))),
        LimitTarget::Queue(queue) => words.push(format!("--queue {}", quoted(queue))),
        LimitTarget::Named => {}
    }
    words.extend(options.key.as_ref().map(|key| format!("--key {}", quoted(key))));
    words.extend(options.max.map(|max| format!("--max {max}")));
    words.extend(options.rate.as_ref().map(|rate| format!("--rate {}", rate_text(rate))));
    words.extend(options.rate.filter(|rate| rate.even).map(|_| "--even".to_owned()));
    words.extend(options.in_order.then(|| "--in-order".to_owned()));
    let weights = options.weights.iter();
    words.extend(weights.map(|(key, n)| format!("--weight {}", quoted(&format!("{key}={n}")))));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use task_engine_core::limit::LimitOptions;

    use super::*;

    #[test]
    fn weight_is_after_last_equals_sign() {
        assert_eq!(weight("acme=3"), Ok(("acme".into(), 3)));
        assert_eq!(weight("a=b=2"), Ok(("a=b".into(), 2)));
        for wrong in ["acme", "acme=", "acme=x", "acme=-1"] {
            assert!(weight(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limit_as_arguments() {
        let rate = Rate::new(100, Duration::from_secs(1)).even();
        let options = LimitOptions::max(2).key("customer id").and_rate(rate).weight("a b", 3);
        let limit = Limit::of_class("sync", "sync", options).unwrap();
        assert_eq!(
            arguments_of(&limit),
            "sync --class sync --key 'customer id' --max 2 --rate 100/1s --even --weight 'a b=3'"
        );
    }
}
