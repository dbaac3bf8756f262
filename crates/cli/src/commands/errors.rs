//! `task-engine errors`.

use std::collections::HashMap;
use std::io::{self, Write};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine::model::folding::fold;
use task_engine::model::search::{Found, PATIENCE, Search};
use task_engine::model::words::{count, relative};
use task_engine::{TaskId, TaskStatus};

use crate::choice::{FILTERS, filter};
use crate::console::{Console, now, quoted};
use crate::database::Access;
use crate::escape::summary;
use crate::exit::Fault;
use crate::table::table;

/// Show what fails: failed tasks in groups of the same error
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

/// The trend has one number an hour.
const HOURS: usize = 12;

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
            serde_json::to_writer(&mut out, group).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    } else if !groups.is_empty() {
        let head = ["COUNT", "CLASS", "ERROR", "FIRST", "LAST", "LAST 12 H", "NEWEST"];
        let rows = groups.iter().map(|group| group.line(now().timestamp())).collect();
        writeln!(out, "{}", table(&head, &[0, 6], rows))?;
    }
    out.flush()?;
    say_how_far(console, &found, &search);
    Ok(())
}

#[derive(Debug, Serialize)]
struct Group {
    task_class: String,
    exception: String,
    /// The message without what differs.
    message: String,
    count: usize,
    first_seen: Timestamp,
    last_seen: Timestamp,
    /// Failures in each of the last hours, the oldest first.
    per_hour: [usize; HOURS],
    newest_task: TaskId,
    /// The message of the newest, as it is.
    example: String,
}

/// The largest first; of equal ones, the newest.
fn groups(found: &Found) -> Vec<Group> {
    let mut places: HashMap<(String, String, String), usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for task in &found.tasks {
        let row = &task.row;
        let Some(error) = &row.error else { continue };
        let message = fold(&error.message);
        let key = (row.task_class.clone(), error.exception.clone(), message.clone());
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group {
                task_class: row.task_class.clone(),
                exception: error.exception.clone(),
                message,
                count: 0,
                first_seen: row.updated_at,
                last_seen: row.updated_at,
                per_hour: [0; HOURS],
                newest_task: row.id,
                example: error.message.clone(),
            });
        }
        groups[place].add(row.updated_at, found.now);
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.newest_task)));
    groups
}

impl Group {
    fn add(&mut self, at: Timestamp, now: Timestamp) {
        self.count += 1;
        self.first_seen = self.first_seen.min(at);
        self.last_seen = self.last_seen.max(at);
        let hours_ago = usize::try_from(now.duration_since(at).as_secs().max(0) / 3600);
        if let Some(hour) = hours_ago.ok().filter(|hour| *hour < HOURS) {
            self.per_hour[HOURS - 1 - hour] += 1;
        }
    }

    fn line(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.count.to_string(),
            summary(&self.task_class, 40),
            summary(&format!("{}: {}", self.exception, self.message), 60),
            relative(self.first_seen, now),
            relative(self.last_seen, now),
            bars(&self.per_hour),
            self.newest_task.to_string(),
        ]
    }
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
