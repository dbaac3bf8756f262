//! The frame of every command that does something to many tasks: show what is
//! meant, ask, do it in batches, and say what became of each.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::display::{capitalize, count};
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_operations::search::find_all;

use crate::choice::Chosen;
use crate::commands::tasks;
use crate::console::{Console, now};
use crate::deed::Deed;
use crate::error::CliError;
use crate::json_output::write_json_line;

/// Which tasks, and how.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// The tasks: their ids, or a filter like status=failed class=send_mail
    #[arg(required = true, value_name = "ID|FILTER", allow_negative_numbers = true)]
    what: Vec<String>,
    #[command(flatten)]
    pub(crate) manner: Manner,
    /// With a filter: no more than so many, the newest first
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

/// How something is done that may be regretted.
#[derive(Debug, Args)]
pub(crate) struct Manner {
    /// Do it without asking; needed in scripts
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON, one task a line
    #[arg(long, visible_alias = "jsonl")]
    pub(crate) json: bool,
}

/// What a command does to tasks.
pub(crate) trait Action {
    /// `retry`
    const VERB: &'static str;
    /// What a filter means that says nothing about the status.
    const STATUSES: &'static [TaskStatus];
    /// What cannot be undone is asked about even if tasks are named.
    const ALWAYS_ASKS: bool = false;

    /// Does it, and tells what became of each.
    async fn apply(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Outcome>, CliError>;

    /// The command that takes it back for these tasks, if there is one.
    fn undo(&self, done: &[TaskId]) -> Option<String>;
}

/// What became of one task.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    kind: Kind,
    /// The same for all that fared alike.
    what: &'static str,
    /// More about this one.
    more: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Done,
    /// Nothing was done, and nothing was to do.
    Unchanged,
    Conflict,
    Missing,
}

impl Outcome {
    pub(crate) fn done(what: &'static str) -> Self {
        Self { kind: Kind::Done, what, more: String::new() }
    }

    pub(crate) fn unchanged(what: &'static str) -> Self {
        Self { kind: Kind::Unchanged, what, more: String::new() }
    }

    pub(crate) fn conflict(what: &'static str) -> Self {
        Self { kind: Kind::Conflict, what, more: String::new() }
    }

    pub(crate) fn missing() -> Self {
        Self { kind: Kind::Missing, what: "does not exist", more: String::new() }
    }

    pub(crate) fn and(mut self, more: String) -> Self {
        self.more = more;
        self
    }
}

/// So many tasks are changed at a time.
const BATCH: usize = 200;
/// So many are shown before anybody is asked.
const SAMPLE: usize = 5;
/// More tasks than this are told in groups, unless they were named.
const LINES_MAX: usize = 50;
/// An undo names no more tasks than this.
const UNDO_MAX: usize = 50;

/// Does it, all in all. `false` if nothing was to do, or somebody said no.
pub(crate) async fn run<A: Action>(
    console: &Console,
    store: &dyn Store,
    choice: &Choice,
    action: &mut A,
) -> Result<bool, CliError> {
    let manner = &choice.manner;
    let (ids, named, target) = match choice.chosen()? {
        Chosen::Ids(ids) => {
            if A::ALWAYS_ASKS || manner.dry_run {
                let found = find(console, store, &Filter::of_ids(&ids), u32::MAX, manner).await?;
                if !ask::<A>(console, manner, &found, ids.len())? {
                    return Ok(false);
                }
            }
            let target = targets(&ids);
            (ids, true, target)
        }
        Chosen::Filter(filter) => {
            let filter = meant::<A>(filter);
            let found = find(console, store, &filter, choice.limit, manner).await?;
            if found.ids.is_empty() {
                console.say(format_args!("No tasks match {filter} on {}.", store.location()));
                return Ok(false);
            }
            if !ask::<A>(console, manner, &found, found.ids.len())? {
                return Ok(false);
            }
            (found.ids, false, filter.to_string())
        }
    };
    let deed = Deed::new(format!("tasks.{}", A::VERB), target).begin(store).await?;
    let (outcomes, broken) = apply(console, store, &ids, action).await;
    let mut counts = BTreeMap::new();
    for outcome in &outcomes {
        *counts.entry(outcome.what.to_owned()).or_default() += 1;
    }
    deed.end(store, &counts, broken.as_ref()).await;
    let told: Vec<_> = ids.iter().copied().zip(outcomes).collect();
    tell(console, &told, named, choice.manner.json)?;
    let done: Vec<_> =
        told.iter().filter(|(_, it)| it.kind == Kind::Done).map(|(id, _)| *id).collect();
    say_undo::<A>(console, action, &done);
    verdict(&told, ids.len(), named, broken).map(|()| true)
}

impl Choice {
    /// Read before a database is opened: a mistake changes nothing.
    pub(crate) fn chosen(&self) -> Result<Chosen, CliError> {
        Chosen::read(&self.what)
    }
}

fn meant<A: Action>(filter: Filter) -> Filter {
    if filter.has_status() || A::STATUSES.is_empty() {
        filter
    } else {
        filter.and_status(A::STATUSES)
    }
}

/// Named tasks, for the audit.
fn targets(ids: &[TaskId]) -> String {
    match ids {
        [id] => format!("task {id}"),
        ids => {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            format!("tasks {}", ids.join(", "))
        }
    }
}

/// What is meant.
struct Meant {
    ids: Vec<TaskId>,
    /// As many as are shown.
    sample: Vec<FoundTask>,
    /// Whether there may be more beyond the limit.
    more: bool,
}

async fn find(
    console: &Console,
    store: &dyn Store,
    filter: &Filter,
    limit: u32,
    manner: &Manner,
) -> Result<Meant, CliError> {
    let shown = if manner.dry_run && manner.json { usize::MAX } else { LINES_MAX };
    let (mut ids, mut sample) = (Vec::new(), Vec::new());
    let bar = bar(console, None, "found");
    let more = find_all(store, filter, limit, |task| {
        ids.push(task.row.id);
        if sample.len() < shown {
            sample.push(task);
        }
        bar.inc(1);
    })
    .await?;
    bar.finish_and_clear();
    Ok(Meant { ids, sample, more })
}

/// Shows what is meant, and asks. True if it is to be done.
fn ask<A: Action>(
    console: &Console,
    manner: &Manner,
    found: &Meant,
    all: usize,
) -> Result<bool, CliError> {
    let verb = A::VERB;
    let tasks = &found.sample;
    let rest = if found.more { "; there may be more, for another run" } else { "" };
    let tasks_in_words = count(all, "task");
    if manner.dry_run {
        let mut out = console.results();
        if manner.json {
            tasks::write_json(&mut out, tasks)?;
        } else if !tasks.is_empty() {
            writeln!(out, "{}", tasks::lines(tasks, now().timestamp()))?;
            let hidden = found.ids.len() - tasks.len();
            if hidden > 0 {
                writeln!(out, "… and {hidden} more")?;
            }
        }
        out.flush()?;
        console.say(format_args!("Would {verb} {tasks_in_words}{rest}; nothing was done."));
        return Ok(false);
    }
    if manner.yes {
        return Ok(true);
    }
    let sample = &tasks[..tasks.len().min(SAMPLE)];
    if !sample.is_empty() {
        console.say(tasks::lines(sample, now().timestamp()));
    }
    let hidden = all.saturating_sub(sample.len());
    if hidden > 0 && !sample.is_empty() {
        console.say(format_args!("… and {hidden} more{rest}"));
    }
    confirm(&format!("{} {tasks_in_words}?", capitalize(verb)))
}

/// Asks on a terminal. Elsewhere, --yes must have been passed.
pub(crate) fn confirm(question: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} Not a terminal: pass --yes to confirm, or --dry-run to see what would be done. Nothing was changed"
        )));
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    let yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !yes {
        let _ = writeln!(io::stderr(), "Nothing was changed.");
    }
    Ok(yes)
}

/// In batches, each of which is one step for the store: if one fails, those
/// before are done, and told.
async fn apply<A: Action>(
    console: &Console,
    store: &dyn Store,
    ids: &[TaskId],
    action: &mut A,
) -> (Vec<Outcome>, Option<CliError>) {
    let bar = bar(console, Some(ids.len()), A::VERB);
    let mut outcomes = Vec::with_capacity(ids.len());
    for batch in ids.chunks(BATCH) {
        match action.apply(store, batch).await {
            Ok(more) => outcomes.extend(more),
            Err(fault) => {
                bar.finish_and_clear();
                return (outcomes, Some(fault));
            }
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    (outcomes, None)
}

/// A bar on a terminal, and nothing elsewhere.
pub(crate) fn bar(console: &Console, length: Option<usize>, what: &'static str) -> ProgressBar {
    if !console.may_animate() || length.is_some_and(|length| length <= BATCH) {
        return ProgressBar::hidden();
    }
    let (bar, style) = match length {
        Some(length) => (ProgressBar::new(length as u64), "{msg} {bar:30} {pos}/{len} ({eta})"),
        None => (ProgressBar::new_spinner(), "{spinner} {pos} {msg}"),
    };
    let style = ProgressStyle::with_template(style);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(what)
}

#[derive(Serialize)]
struct Told<'a> {
    id: TaskId,
    outcome: Kind,
    message: &'a str,
}

fn tell(
    console: &Console,
    told: &[(TaskId, Outcome)],
    named: bool,
    json: bool,
) -> Result<(), CliError> {
    let mut out = console.results();
    if json {
        for (id, outcome) in told {
            let message = format!("{}{}", outcome.what, outcome.more);
            let line = Told { id: *id, outcome: outcome.kind, message: &message };
            write_json_line(&mut out, &line)?;
        }
    } else if named || told.len() <= LINES_MAX {
        for (id, outcome) in told {
            writeln!(out, "task {id} {}{}", outcome.what, outcome.more)?;
        }
    } else {
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, outcome) in told {
            *groups.entry(outcome.what).or_default() += 1;
        }
        for (what, number) in groups {
            writeln!(out, "{number} × {what}")?;
        }
    }
    Ok(out.flush()?)
}

fn say_undo<A: Action>(console: &Console, action: &A, done: &[TaskId]) {
    if done.is_empty() || done.len() > UNDO_MAX {
        return;
    }
    if let Some(undo) = action.undo(done) {
        console.say(format_args!("To undo it: {}", console.command(&undo)));
    }
}

/// The ids as words of a command.
pub(crate) fn id_words(ids: &[TaskId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Of named tasks, a missing one weighs more than one in another state: it is a
/// mistake, not a matter of time. Tasks that a filter found may have moved since.
fn verdict(
    told: &[(TaskId, Outcome)],
    all: usize,
    named: bool,
    broken: Option<CliError>,
) -> Result<(), CliError> {
    let count = |kind| told.iter().filter(|(_, outcome)| outcome.kind == kind).count();
    let (missing, conflicting) = (count(Kind::Missing), count(Kind::Conflict));
    let good = told.len() - missing - conflicting;
    if let Some(fault) = broken {
        return Err(if told.is_empty() {
            fault
        } else {
            CliError::Partial(format!("{} of {all} were dealt with, and then: {fault}", told.len()))
        });
    }
    match (missing, conflicting) {
        (0, 0) => Ok(()),
        (0, _) if named || good == 0 => {
            Err(CliError::Conflict(format!("nothing was done for {conflicting} of {all}")))
        }
        (_, _) if named => Err(CliError::NotFound(format!("{missing} of {all} not found"))),
        _ => Err(CliError::Partial(format!(
            "nothing was done for {} of {all}: they have moved on meanwhile",
            missing + conflicting
        ))),
    }
}
