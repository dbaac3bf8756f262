//! `task-engine errors`.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use task_engine::model::errors::{ErrorGroup, groups};
use task_engine::model::search::{Found, PATIENCE, Search};
use task_engine::model::words::{count, relative};
use task_engine::{TaskId, TaskStatus};

use crate::choice::{FILTERS, filter};
use crate::console::{Console, quoted};
use crate::database::Access;
use crate::escape::summary;
use crate::exit::Fault;
use crate::json_output::write_json_line;
use crate::table::table;

/// Show what fails: failed tasks, grouped by error
///
/// Errors are the same if their classes and messages are, apart from numbers, ids
/// and what stands in quotes. Looks at the newest failures only, and says how far
/// it went. A filter that says nothing about the status means failed tasks; with
/// status=waiting it shows what is being retried.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    /// Only tasks that this filter means
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// How many failures to look at, the newest
    #[arg(long, default_value_t = 2000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    limit: u32,
    /// Only tasks older than this one: where the search before ended
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    before: Option<TaskId>,
    /// Print JSON, one group a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let mut filter = filter(&args.filter)?;
    if !filter.has_status() {
        filter = filter.and_status(&[TaskStatus::Failed]);
    }
    let store = console.database()?.open(Access::MustExist).await?;
    let search = Search { filter, before: args.before, limit: args.limit, patience: PATIENCE };
    let found = search.run(&*store).await?;
    let groups = groups(&found);
    let mut out = console.results();
    if args.json {
        for group in &groups {
            write_json_line(&mut out, group)?;
        }
    } else if !groups.is_empty() {
        let head = ["COUNT", "CLASS", "ERROR", "FIRST", "LAST", "LAST 12 H", "NEWEST"];
        let rows = groups.iter().map(|group| line(group, found.now)).collect();
        writeln!(out, "{}", table(&head, &[0, 6], rows))?;
    }
    out.flush()?;
    say_how_far(console, &found, &search);
    Ok(())
}

fn line(group: &ErrorGroup, now: Timestamp) -> Vec<String> {
    vec![
        group.count.to_string(),
        summary(&group.task_class, 40),
        summary(&format!("{}: {}", group.exception, group.message), 60),
        relative(group.first_seen, now),
        relative(group.last_seen, now),
        bars(&group.per_hour),
        group.newest_task.to_string(),
    ]
}

/// A little chart: nothing is a dot, the highest is full.
fn bars(numbers: &[usize]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0);
    let bar = |number: usize| match number {
        0 => '·',
        number => BARS[(number * BARS.len()).div_ceil(most).clamp(1, BARS.len()) - 1],
    };
    numbers.iter().map(|number| bar(*number)).collect()
}

fn say_how_far(console: &Console, found: &Found, search: &Search) {
    let number = count(found.tasks.len(), "failure");
    match found.next {
        None => console.say(format_args!("{number}: all there are.")),
        Some(next) => {
            let more = console
                .command(&format!("errors {} --before {next}", quoted(&search.filter.to_string())));
            console.say(format_args!(
                "{number}: the newest, searched down to task {next}; older ones are not counted. Go on with: {more}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_has_a_bar_for_each_number() {
        assert_eq!(bars(&[0, 1, 4, 8]), "·▁▄█");
        assert_eq!(bars(&[0, 0]), "··");
        assert_eq!(bars(&[1, 1]), "██");
        assert_eq!(bars(&[1, 1_000_000]), "▁█");
    }
}
