//! `task-engine schedules next`: when a schedule runs, before it does.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use task_engine_core::display::relative;
use task_engine_core::schedule::SlotPreview;
use task_engine_core::schedule::history::ScheduleDetails;
use task_engine_core::schedule::{InvalidDefinition, InvalidSchedule, Timetable};
use task_engine_store::schedules::Schedules;

use super::RuleArguments;
use crate::console::Console;
use crate::error::CliError;
use crate::json_output::write_json_line;
use crate::table::table;

/// Show when a schedule runs next, with notes on clock changes
///
/// Of a stored one by its name, or of any rule, without a database.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A stored schedule
    #[arg(value_name = "NAME", conflicts_with_all = ["cron", "every", "time_zone"])]
    pub(super) name: Option<String>,
    #[command(flatten)]
    rule: RuleArguments,
    /// Whose clock the cron expression is about [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// How many times
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    number: u32,
    /// From when on: 2027-03-13, or 2027-03-13T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// Print JSON, one time a line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  task-engine schedules next --cron '30 2 * * *' --time-zone America/New_York --after 2027-03-13
  task-engine schedules next nightly -n 3";

pub(super) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let (timetable, now) = match (&args.name, args.rule.rule()) {
        (Some(name), _) => stored_timetable(console, name).await?,
        (None, Some(rule)) => {
            let now = Timestamp::now();
            (typed(&rule, args.time_zone.as_deref().unwrap_or("UTC"), now)?, now)
        }
        (None, None) => {
            return Err(CliError::Usage(
                "name a schedule, or say --cron EXPRESSION or --every DURATION".to_owned(),
            ));
        }
    };
    let after = match &args.after {
        Some(text) => time(text, &timetable.zone)?,
        None => now,
    };
    let previews = timetable.preview(after, args.number as usize);
    let mut out = console.results();
    if args.json {
        for preview in &previews {
            write_json_line(&mut out, preview)?;
        }
    } else {
        writeln!(out, "{}", times(&previews, now))?;
    }
    Ok(out.flush()?)
}

/// Times as a table.
pub(super) fn times(previews: &[SlotPreview], now: Timestamp) -> String {
    let row = |preview: &SlotPreview| {
        vec![
            preview.local.strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
            preview.at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            relative(preview.at, now),
            preview.note.clone().unwrap_or_default(),
        ]
    };
    table(&["LOCAL", "UTC", "WHEN", "NOTE"], &[], previews.iter().map(row).collect())
}

async fn stored_timetable(
    console: &Console,
    name: &str,
) -> Result<(Timetable, Timestamp), CliError> {
    let store = console.open().await?;
    let ScheduleDetails { row, now, .. } = Schedules::of(&*store).show(name, 0).await?;
    let timetable = row.definition().and_then(|definition| definition.timetable(row.state.anchor));
    let timetable = timetable.map_err(|why| {
        CliError::Conflict(InvalidSchedule { name: name.to_owned(), why }.to_string())
    })?;
    if let Some(pause) = &row.state.paused {
        let since = relative(pause.at, now);
        console.message(format_args!(
            "It is paused (since {since}), and runs at none of these times until it is resumed."
        ));
    }
    Ok((timetable, now))
}

fn typed(rule: &str, zone: &str, anchor: Timestamp) -> Result<Timetable, CliError> {
    let wrong = |why: InvalidDefinition| CliError::Usage(why.to_string());
    let zone = TimeZone::get(zone).map_err(|_| wrong(InvalidDefinition::Zone(zone.to_owned())))?;
    let rule_read = rule.parse().map_err(|why| wrong(InvalidDefinition::Rule(why)))?;
    let timetable = Timetable { rule: rule_read, zone, anchor };
    if timetable.next_after(anchor).is_none() {
        return Err(wrong(InvalidDefinition::Never(rule.to_owned())));
    }
    Ok(timetable)
}

fn time(text: &str, zone: &TimeZone) -> Result<Timestamp, CliError> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let begin = |date: Date| date.to_zoned(zone.clone()).map(|zoned| zoned.timestamp());
    text.parse::<Date>().and_then(begin).map_err(|_| {
        CliError::Usage(format!(
            "--after {text:?} is not a time; write 2027-03-13 or 2027-03-13T12:00:00Z"
        ))
    })
}
