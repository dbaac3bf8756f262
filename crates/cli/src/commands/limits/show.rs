//! Lists limits, and shows one with its keys.

use std::io::{self, Write};

use clap::Args;
use jiff::Timestamp;
use task_engine_core::display::{
    clock_and_relative, count_text, limit_options_text, limit_target_text, rate_text, relative,
    span,
};
use task_engine_core::limit::{LimitOptions, LimitRow};
use task_engine_operations::limits::{self, KeySummary, LimitDetails, LimitHolder, LimitSummary};

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::table::table;

/// List limits: what they allow, and how many tasks run and are blocked
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Print JSON, one limit a line
    #[arg(long)]
    json: bool,
}

/// Show a limit and its keys: the running and the blocked tasks, the next start
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The limit
    #[arg(value_name = "NAME")]
    name: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// So many keys are printed; --json has more.
const KEYS_SHOWN: usize = 20;
/// So many holders of a key are printed.
const HOLDERS_SHOWN: usize = 3;

pub(super) async fn list(console: &Console, args: &ListArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let list = limits::list(&*store).await?;
    if args.json {
        return console.print_json(&list.limits);
    }
    if list.limits.is_empty() {
        console.message(format_args!(
            "There is no limit on {}. Engines declare those of their classes; or add one: {}",
            store.location(),
            console.command("limits set sync --class sync --max 2")
        ));
        return Ok(());
    }
    let header =
        ["NAME", "FOR", "KEY", "MAX", "RATE", "RUNNING", "BLOCKED", "CLOSED KEYS", "SET BY"];
    let rows = list.limits.iter().map(line).collect();
    console.print(table(&header, &[3, 5, 6, 7], rows))?;
    if list.and_more {
        console.message("There are more keys than were counted; the numbers are lower bounds.");
    }
    Ok(())
}

fn line(limit: &LimitSummary) -> Vec<String> {
    let LimitRow { limit: definition, .. } = &limit.row;
    let options = &definition.options;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        summary(&definition.name, 40),
        summary(&limit_target_text(&definition.target), 40),
        or_dash(options.key.as_ref().map(|key| summary(key, 30))),
        or_dash(max_text(options)),
        or_dash(
            options
                .rate
                .as_ref()
                .map(|rate| format!("{}{}", rate_text(rate), if rate.even { " even" } else { "" })),
        ),
        // A rate counts starts only.
        or_dash(options.max_running().map(|_| limit.running.to_string())),
        count_text(limit.blocked),
        limit.closed_keys.to_string(),
        set_by(&limit.row).to_owned(),
    ]
}

fn max_text(options: &LimitOptions) -> Option<String> {
    if options.in_order {
        return Some("1 in order".to_owned());
    }
    options.max.map(|max| max.to_string())
}

fn set_by(row: &LimitRow) -> &'static str {
    match (row.set_by_operator, row.declared.is_some()) {
        (true, true) => "operator (declared, too)",
        (true, false) => "operator",
        (false, _) => "declared",
    }
}

pub(super) async fn show(console: &Console, args: &ShowArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let details = limits::show(&*store, &args.name).await?;
    if args.json {
        return console.print_json([details]);
    }
    let mut out = console.results();
    print(&mut out, &details)?;
    out.flush()?;
    let closed = details.keys.iter().find(|key| key.closed.is_some());
    if let Some(key) = closed {
        let open = format!("limits open {} {}", quoted(&args.name), quoted(&key.key));
        console.message(format_args!("\nTo open a key: {}", console.command(&open)));
    }
    Ok(())
}

fn print(out: &mut impl Write, details: &LimitDetails) -> io::Result<()> {
    let LimitSummary { row, running, blocked, blocked_since, .. } = &details.summary;
    let zone = now().time_zone().clone();
    let time = |time: Timestamp| clock_and_relative(time, details.at, &zone);
    let options = &row.limit.options;
    writeln!(out, "Limit {}: {}", escape(&row.limit.name), escape(&limit_options_text(options)))?;
    let mut field = |name: &str, text: &str| writeln!(out, "  {name:10}  {}", escape(text));
    field("for", &limit_target_text(&row.limit.target))?;
    field("set by", set_by(row))?;
    if let Some(declared) = row.declared.as_ref().filter(|it| *it != options) {
        field("declared", &limit_options_text(declared))?;
    }
    for (key, weight) in &options.weights {
        field("weight", &format!("{weight} for {}", summary(key, 60)))?;
    }
    field("changed", &time(row.changed_at))?;
    field("running", &running.to_string())?;
    let since = blocked_since.map(|since| format!(", the first for {}", age(since, details.at)));
    field("blocked", &format!("{}{}", count_text(*blocked), since.unwrap_or_default()))?;
    if details.keys.is_empty() {
        return writeln!(out, "\nNo key is in use: no task runs or waits.");
    }
    let header = ["KEY", "RUNNING", "BLOCKED", "BLOCKED FOR", "NEXT START", "HELD BY"];
    let keys = details.keys.iter().take(KEYS_SHOWN);
    let lines = keys.map(|key| key_line(key, details.at)).collect();
    writeln!(out, "\nKeys\n{}", table(&header, &[1, 2], lines))?;
    if details.keys.len() > KEYS_SHOWN || details.and_more {
        let more = if details.and_more { " or more" } else { "" };
        let number = details.keys.len();
        writeln!(out, "({KEYS_SHOWN} of {number}{more} keys in use; --json has more)")?;
    }
    Ok(())
}

fn key_line(key: &KeySummary, now: Timestamp) -> Vec<String> {
    let next = match (&key.closed, key.waits_for, key.next_start_at) {
        (Some(closed), ..) => {
            format!("closed, {}: {}", relative(closed.until, now), summary(&closed.because, 40))
        }
        (None, Some(wait), None) => wait.text().to_owned(),
        (None, _, Some(at)) => relative(at, now),
        (None, None, None) => "now".to_owned(),
    };
    vec![
        if key.key.is_empty() { "(none)".to_owned() } else { summary(&key.key, 40) },
        key.running.to_string(),
        count_text(key.blocked),
        key.blocked_since.map_or_else(|| "-".to_owned(), |since| age(since, now)),
        next,
        holders(&key.holders, key.running, now),
    ]
}

fn holders(holders: &[LimitHolder], running: usize, now: Timestamp) -> String {
    let one = |holder: &LimitHolder| match holder.since.filter(|_| holder.is_running) {
        Some(since) => format!("task {} for {}", holder.task_id, age(since, now)),
        None if holder.is_running => format!("task {}", holder.task_id),
        None => format!("task {}, which waits", holder.task_id),
    };
    let mut each: Vec<_> = holders.iter().take(HOLDERS_SHOWN).map(one).collect();
    let all = running.max(holders.len());
    if all > HOLDERS_SHOWN {
        each.push(format!("and {} more", all - HOLDERS_SHOWN));
    }
    if each.is_empty() { "-".to_owned() } else { each.join(", ") }
}

fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(since).unsigned_abs())
}
