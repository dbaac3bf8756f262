//! `task-engine errors`.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine::TaskId;
use task_engine_core::display::{count, count_text, relative};
use task_engine_core::filter::Filter;
use task_engine_operations::errors::{ErrorGroup, Failures, LIMIT};

use crate::args::{FILTERS, filter};
use crate::console::{Console, quoted};
use crate::error::CliError;
use crate::escape::summary;
use crate::json_output::write_json_line;
use crate::table::{fit_lines, table};

/// Show failed tasks, grouped by error
///
/// A group has the same task class and message, apart from numbers, ids and quoted
/// text; below it is the message of its newest task. Reads the newest failures, for
/// about a second; if there may be more, a line above the table says so, and
/// "is_sample" is true in JSON. A filter without status selects failed tasks;
/// status=waiting selects tasks that are retried.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    /// Only tasks that match this filter
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// How many failures to read, newest first
    #[arg(long, default_value_t = LIMIT, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    limit: u32,
    /// Only tasks older than this one: where the search before ended
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    before: Option<TaskId>,
    /// Print JSON, one group a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

/// A group as JSON.
#[derive(Serialize)]
struct GroupOutput<'a> {
    #[serde(flatten)]
    group: &'a ErrorGroup,
    /// Whether its numbers are those of a sample.
    is_sample: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let filter = filter(&args.filter)?;
    let store = console.open().await?;
    let failures = Failures::find(&*store, filter.clone(), args.before, args.limit).await?;
    let groups = failures.groups();
    let mut out = console.results();
    if args.json {
        for group in &groups {
            let line = GroupOutput { group, is_sample: failures.is_sample() };
            write_json_line(&mut out, &line)?;
        }
    } else {
        if failures.is_sample() {
            writeln!(out, "{}\n", sample(&failures))?;
        }
        if !groups.is_empty() {
            writeln!(out, "{}", fit_lines(&page(&groups, failures.found.now)))?;
        }
    }
    out.flush()?;
    print_hint(console, &failures, &filter);
    Ok(())
}

/// Which failures the numbers count, if not all.
fn sample(failures: &Failures) -> String {
    let looked_at = failures.found.tasks.len();
    let of = match failures.total {
        Some(total) => format!("the newest {looked_at} of {} failed tasks", count_text(total)),
        None => format!("the newest {}", tasks_with_error(looked_at)),
    };
    let next =
        failures.found.next.map_or_else(String::new, |next| format!(" (down to task {next})"));
    format!("Sample: {of}{next}. Older ones are not counted.")
}

fn tasks_with_error(number: usize) -> String {
    format!("{} with an error", count(number, "task"))
}

/// The table; below each group the message of its newest task, if it differs.
fn page(groups: &[ErrorGroup], now: Timestamp) -> String {
    let head = ["COUNT", "CLASS", "FIRST", "LAST", "LAST 12 H", "NEWEST", "ERROR"];
    let rows = groups.iter().map(|group| line(group, now)).collect();
    let table = table(&head, &[0, 5], rows);
    let mut lines = table.lines();
    let mut page: Vec<String> = lines.next().map(str::to_owned).into_iter().collect();
    for (line, group) in lines.zip(groups) {
        page.push(line.to_owned());
        if group.example != group.message {
            page.push(format!("       e.g. {}", summary(&group.example, usize::MAX)));
        }
    }
    page.join("\n")
}

fn line(group: &ErrorGroup, now: Timestamp) -> Vec<String> {
    vec![
        group.count.to_string(),
        summary(&group.class, 40),
        relative(group.first_seen, now),
        relative(group.last_seen, now),
        bars(&group.per_hour),
        group.newest_task.to_string(),
        summary(&format!("{}: {}", group.exception, group.message), usize::MAX),
    ]
}

/// A small bar chart: zero is a dot, the highest number is full.
fn bars(numbers: &[usize]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0);
    let bar = |number: usize| match number {
        0 => '·',
        number => BARS[(number * BARS.len()).div_ceil(most).clamp(1, BARS.len()) - 1],
    };
    numbers.iter().map(|number| bar(*number)).collect()
}

fn print_hint(console: &Console, failures: &Failures, filter: &Filter) {
    let number = tasks_with_error(failures.found.tasks.len());
    match failures.found.next {
        None => console.message(format_args!("{number}: all there are.")),
        Some(next) => {
            let filter = filter.to_string();
            let words = if filter.is_empty() { filter } else { format!(" {}", quoted(&filter)) };
            let more = console.command(&format!("errors{words} --before {next}"));
            console.message(format_args!(
                "{number}, searched down to task {next}; older ones are not counted. Continue: {more}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trend_has_bar_for_each_number() {
        assert_eq!(bars(&[0, 1, 4, 8]), "·▁▄█");
        assert_eq!(bars(&[0, 0]), "··");
        assert_eq!(bars(&[1, 1]), "██");
        assert_eq!(bars(&[1, 1_000_000]), "▁█");
    }
}
