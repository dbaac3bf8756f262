//! `task-engine flow list`.

use clap::Args;
use jiff::Timestamp;
use task_engine_core::dependency::FlowCounts;
use task_engine_core::display::relative;
use task_engine_operations::flows::{self, FlowSummary};

use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::summary;
use crate::table::{fit_lines, table};

/// List flows, newest first: their state and progress
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// How many to list
    #[arg(long, default_value_t = 50, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Only flows before this number, which --json has as `id`: the next page
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    before: Option<i64>,
    /// Print JSON, one flow a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

pub(super) async fn run(console: &Console, args: &ListArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let page = flows::list(&*store, args.before, args.limit).await?;
    if args.json {
        return console.print_json(&page.flows);
    }
    if page.flows.is_empty() {
        console.message(format_args!(
            "There are no flows on {}. Run one: {}",
            store.location(),
            console.command("flow run flow.toml")
        ));
        return Ok(());
    }
    let header = ["FLOW", "NAME", "STATE", "PROGRESS", "FAILED", "CANCELLED", "CREATED"];
    let now = now().timestamp();
    let lines = page.flows.iter().map(|flow| line(flow, now)).collect();
    console.print(fit_lines(&table(&header, &[4, 5], lines)))?;
    if let Some(next) = page.next {
        let more = console.command(&format!("flow list --before {next}"));
        console.message(format_args!("{} shown. Older ones: {more}", page.flows.len()));
    }
    Ok(())
}

fn line(flow: &FlowSummary, now: Timestamp) -> Vec<String> {
    let FlowSummary { row, state } = flow;
    vec![
        summary(&row.correlation_id, 50),
        row.name.as_ref().map_or_else(|| "-".to_owned(), |name| summary(name, 40)),
        state.as_str().to_owned(),
        progress(&row.counts),
        row.counts.failed.to_string(),
        row.counts.cancelled.to_string(),
        relative(row.created_at, now),
    ]
}

/// `3 of 12 ended`.
pub(super) fn progress(counts: &FlowCounts) -> String {
    let ended = counts.total() - counts.open();
    let more = if counts.and_more { "+" } else { "" };
    format!("{ended} of {}{more} ended", counts.total())
}
