//! Filters and statuses on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use task_engine::TaskStatus;
use task_engine_core::filter::Filter;

use crate::console::now;
use crate::error::CliError;

/// For the help of every command that takes a filter.
pub(crate) const FILTERS: &str = r#"Filters:
  A filter has terms like status=failed; a task matches if all of them hold.
    status=failed,cancelled          one of several; != for none of them
                                     waiting, running, stopped (or succeeded),
                                     failed, cancelled
    class=send_mail queue!=mail      also instance=web-1, correlation=order-17
    error~"429 too many"             has this text in it, in either case; !~ if not
    created>now-2h                   later than 2 hours ago; also updated, due
    created<now-2h                   earlier than 2 hours ago
    created>2026-12-24               later than this time
    'started<2026-12-24T03:10:00Z' 'ended>2026-12-24T03:00:00Z'
                                     ran between the two, by the last attempt
    priority>=5 id>=100 attempts>3   also retries
    params.user.id=42                a field of the parameters; also context.…
  A shell needs single quotes around a term with < or > or spaces: 'created>now-2h'."#;

/// Reads one of these statuses; `succeeded` is `stopped`.
pub(crate) fn status_of(
    statuses: &[TaskStatus],
) -> impl TypedValueParser<Value = TaskStatus> + use<> {
    let values = statuses.iter().map(|status| {
        let value = PossibleValue::new(status.as_str());
        if *status == TaskStatus::Stopped { value.alias(TaskStatus::SUCCEEDED) } else { value }
    });
    PossibleValuesParser::new(values.collect::<Vec<_>>()).try_map(|text| text.parse::<TaskStatus>())
}

/// Reads a filter, and shows where it is wrong.
pub(crate) fn filter(words: &[String]) -> Result<Filter, CliError> {
    Filter::parse_words(words, now().time_zone()).map_err(|(word, bad)| {
        let arrow = " ".repeat(bad.at - 1);
        CliError::Usage(format!("the filter is wrong {bad}\n  {word}\n  {arrow}^"))
    })
}
