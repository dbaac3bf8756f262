//! `task-engine tail`.
//!
//! There is no index by the time of an end. An ended attempt is found because its task
//! ran at the last poll, was among the first of its lane, or was created since. Each
//! poll is bounded, however much history there is.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::attempt::AttemptId;
use task_engine_core::display::span;
use task_engine_store::activity::{Activity, ActivityQuery, EndingRow, EndingsQuery, HeldAttempt};

use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::json_output::write_json_line;
use crate::times::duration;

/// Follow attempts as they end, one line each, until Ctrl-C
///
/// Twice a second, it reads which tasks run, come next, and are new, and then how
/// they ended. If more than a thousand of a class end in a second, it shows some
/// of them.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only tasks of this class; may be given several times
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// Only attempts that failed
    #[arg(long, conflicts_with = "starts")]
    failed: bool,
    /// Also print attempts that start, if they run long enough to be seen
    #[arg(long)]
    starts: bool,
    /// Print one JSON document a line
    #[arg(long, alias = "json")]
    jsonl: bool,
    /// Stop after this time [default: never]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasting: Option<Duration>,
}

const POLL_EVERY: Duration = Duration::from_millis(500);
/// Tasks that will be due before the poll after the next.
const SOON: Duration = Duration::from_secs(2);
const PER_LANE: i64 = 500;
const ENDINGS_MAX: i64 = 5_000;
/// A task may become visible after one with a higher id.
const LATE_IDS: i64 = 1_000;

/// How many printed endings are remembered.
const SEEN_MAX: usize = 100_000;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum TailEvent<'a> {
    Started(&'a HeldAttempt),
    Ended(&'a EndingRow),
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let begun = Instant::now();
    let look = ActivityQuery { per_lane: PER_LANE, soon: SOON };
    let mut last = store.activity(look).await?;
    console.message(format_args!("Following attempts on {}; Ctrl-C stops.", store.location()));
    let since = last.now;
    let mut seen = PrintedEndings::default();
    let mut printer = TailPrinter { out: console.results(), zone: now().time_zone().clone(), args };
    loop {
        let left = printer.args.lasting.map(|time| time.saturating_sub(begun.elapsed()));
        tokio::time::sleep(POLL_EVERY.min(left.unwrap_or(POLL_EVERY))).await;
        let moving = store.activity(look).await?;
        let mut endings = store.endings(&endings_between(&last, &moving, since)).await?;
        endings.retain(|ending| ending.stopped_at >= since && seen.is_new(ending));
        printer.ended(&endings)?;
        printer.started(&last, &moving)?;
        last = moving;
        if left.is_some_and(|left| left <= POLL_EVERY) {
            return Ok(());
        }
    }
}

/// The tasks that may have ended between two polls.
fn endings_between(last: &Activity, moving: &Activity, since: Timestamp) -> EndingsQuery {
    let age = Duration::try_from(moving.now.duration_since(since)).unwrap_or_default();
    let mut look = EndingsQuery::new(ENDINGS_MAX, age + Duration::from_secs(60));
    let runs: HashSet<_> = moving.held.iter().map(|held| (held.task_id, held.attempt)).collect();
    let waits: HashSet<_> = moving.next.iter().map(|next| (next.task_id, next.due_at)).collect();
    for held in &last.held {
        if !runs.contains(&(held.task_id, held.attempt)) {
            look.of(held.task_id);
        }
    }
    for next in &last.next {
        if !waits.contains(&(next.task_id, next.due_at)) {
            look.of(next.task_id);
        }
    }
    look.after(last.newest.map_or(TaskId(0), |id| TaskId((id.0 - LATE_IDS).max(0))));
    look
}

/// Printed endings, so that none is printed twice.
#[derive(Debug, Default)]
struct PrintedEndings(BTreeSet<(Timestamp, AttemptId)>);

impl PrintedEndings {
    fn is_new(&mut self, ending: &EndingRow) -> bool {
        let is_new = self.0.insert((ending.stopped_at, ending.id()));
        if self.0.len() > SEEN_MAX {
            self.0.pop_first();
        }
        is_new
    }
}

struct TailPrinter<W> {
    out: W,
    zone: TimeZone,
    args: Arguments,
}

impl<W: Write> TailPrinter<W> {
    fn wants(&self, class: &str) -> bool {
        self.args.class.is_empty() || self.args.class.iter().any(|wanted| wanted == class)
    }

    fn started(&mut self, last: &Activity, moving: &Activity) -> Result<(), CliError> {
        if !self.args.starts {
            return Ok(());
        }
        let ran: HashSet<_> = last.held.iter().map(|held| (held.task_id, held.attempt)).collect();
        for held in &moving.held {
            if ran.contains(&(held.task_id, held.attempt)) || !self.wants(&held.class) {
                continue;
            }
            let class = escape(&held.class);
            let text = format!("{}  {class}  started, attempt {}", held.task_id, held.attempt);
            self.line(&TailEvent::Started(held), held.claimed_at, &text)?;
        }
        Ok(self.out.flush()?)
    }

    fn ended(&mut self, endings: &[EndingRow]) -> Result<(), CliError> {
        for ending in endings {
            let fits = self.wants(&ending.class) && (!self.args.failed || ending.error.is_some());
            if fits {
                self.line(&TailEvent::Ended(ending), ending.stopped_at, &line(ending))?;
            }
        }
        Ok(self.out.flush()?)
    }

    fn line(&mut self, event: &TailEvent<'_>, at: Timestamp, text: &str) -> Result<(), CliError> {
        if self.args.jsonl {
            return Ok(write_json_line(&mut self.out, event)?);
        }
        let at = at.to_zoned(self.zone.clone()).strftime("%H:%M:%S.%3f").to_string();
        Ok(writeln!(self.out, "{at}  {text}")?)
    }
}

fn line(ending: &EndingRow) -> String {
    let what = match ending.ends_task {
        Some(TaskStatus::Stopped) => "stopped".to_owned(),
        Some(status) => status.to_string(),
        None => {
            let after = ending.retry_at.map(|at| at.duration_since(ending.stopped_at));
            match after.and_then(|after| Duration::try_from(after).ok()) {
                Some(after) if ending.error.is_none() => format!("snoozed for {}", span(after)),
                Some(after) if !after.is_zero() => format!("retried in {}", span(after)),
                _ => "waiting again".to_owned(),
            }
        }
    };
    let mut text = format!("{}  {}  {what}", ending.task_id, escape(&ending.class));
    if let Some(lasted) = ending.lasted() {
        text += &format!(" after {}", span(lasted));
    }
    if let Some(name) = &ending.instance {
        text += &format!(" on {}", escape(name));
    }
    if let Some(error) = &ending.error {
        text += &format!(": {}", summary(error, 200));
    }
    text
}
