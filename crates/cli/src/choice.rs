//! Which tasks a command is about: ids, or a filter, as they are typed.

use std::collections::HashSet;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use task_engine::{TaskId, TaskStatus};
use task_engine_core::ParseError;
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

/// What was typed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chosen {
    Ids(Vec<TaskId>),
    Filter(Filter),
}

impl Chosen {
    /// Ids if the first word looks like one, else a filter.
    pub(crate) fn read(words: &[String]) -> Result<Self, CliError> {
        let is_id = |word: &String| word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if !words.iter().any(is_id) {
            return Ok(Self::Filter(filter(words)?));
        }
        let mut seen = HashSet::new();
        let mut ids = Vec::new();
        for word in words {
            if !is_id(word) {
                return Err(CliError::Usage(format!(
                    "{word:?} stands among ids; give ids or a filter, as in id=7,9 {word}"
                )));
            }
            let id: TaskId = word.parse().map_err(|bad: ParseError| CliError::Usage(bad.into()))?;
            if seen.insert(id) {
                ids.push(id);
            }
        }
        Ok(Self::Ids(ids))
    }
}

/// Reads a filter, and shows where it is wrong.
pub(crate) fn filter(words: &[String]) -> Result<Filter, CliError> {
    Filter::parse_words(words, now().time_zone()).map_err(|(word, bad)| {
        let arrow = " ".repeat(bad.at - 1);
        CliError::Usage(format!("the filter is wrong {bad}\n  {word}\n  {arrow}^"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Chosen, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Chosen::read(&words).map_err(|fault| fault.to_string())
    }

    #[test]
    fn ids_or_a_filter() {
        assert_eq!(read(&["3", "1", "3"]), Ok(Chosen::Ids(vec![TaskId(3), TaskId(1)])));
        let Ok(Chosen::Filter(filter)) = read(&["status=failed", "id>3"]) else { panic!() };
        assert_eq!(filter.to_string(), "status=failed id>3");
        assert!(read(&["3", "status=failed"]).unwrap_err().contains("stands among ids"));
        assert!(read(&["-3"]).unwrap_err().contains("from 1 up"));
        assert!(read(&["3x"]).unwrap_err().contains("from 1 up"));
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        let wrong = read(&["id>3", "status=failed clas=a"]).unwrap_err();
        assert!(wrong.ends_with("\n  status=failed clas=a\n                ^"), "{wrong}");
    }
}
