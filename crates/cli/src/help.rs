//! The help of the program, with its commands in groups; and the answer to an
//! unknown command.

use std::fmt::Write as _;

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::console::quoted;

/// Every visible command, once.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["start", "web", "migrate", "check", "demo"]),
    (
        "Look",
        &[
            "tasks", "show", "steps", "why", "logs", "errors", "stats", "top", "tail", "trace",
            "wait",
        ],
    ),
    ("Act", &["create", "retry", "cancel", "rerun", "signal", "edit", "delete", "prune"]),
    (
        "Operate",
        &[
            "flow",
            "queues",
            "limits",
            "schedules",
            "instances",
            "classes",
            "recover",
            "doctor",
            "verify",
            "audit",
            "tokens",
        ],
    ),
    ("Other", &["export", "import", "types", "completions", "man"]),
];

/// Wider lines are hard to read, and a narrower terminal has its own width.
const COLUMNS_MAX: usize = 80;

/// Commands that remove something. They are never suggested: a user may copy a
/// suggestion without reading it.
const DESTRUCTIVE: [&str; 6] = ["delete", "prune", "cancel", "remove", "revoke", "clear"];

/// Words of other systems, and the command for each. `{}` is the next word that the
/// user typed.
const KNOWN_WORDS: &[(&[&str], &[&str])] = &[
    (
        &["pause"],
        &[
            "pause a queue: task-engine queues pause {}",
            "pause a schedule: task-engine schedules pause {}",
        ],
    ),
    (
        &["resume", "unpause", "continue"],
        &[
            "resume a queue: task-engine queues resume {}",
            "resume a schedule: task-engine schedules resume {}",
        ],
    ),
    (
        &["run", "work", "worker", "serve", "server"],
        &[
            "run an engine: task-engine start",
            "create a task: task-engine create CLASS",
            "create a task of a schedule now: task-engine schedules run NAME",
        ],
    ),
    (
        &["stop", "quit", "shutdown"],
        &[
            "stop an engine: send SIGTERM to its process (task-engine instances lists them)",
            "let no more tasks of a queue start: task-engine queues pause NAME",
        ],
    ),
    (
        &["add", "enqueue", "push", "submit", "new", "insert"],
        &[
            "create a task: task-engine create CLASS",
            "add a schedule: task-engine schedules add NAME",
        ],
    ),
    (&["list", "ls", "job", "jobs", "find", "search"], &["list tasks: task-engine tasks"]),
    (
        &["status", "info", "health"],
        &[
            "see how many tasks wait and run: task-engine stats",
            "check everything: task-engine doctor",
        ],
    ),
    (
        &["schema", "schemas", "handlers"],
        &["list classes, and whether they have a schema: task-engine classes"],
    ),
    (
        &["codegen", "generate", "typings"],
        &["print the types of parameters: task-engine types typescript"],
    ),
    (&["ps", "engine", "engines", "workers", "nodes"], &["list engines: task-engine instances"]),
    (
        &["requeue", "replay", "restart", "redo"],
        &[
            "send failed tasks back to wait: task-engine retry ID",
            "create a task again: task-engine rerun ID",
        ],
    ),
    (
        &["approve", "notify", "send", "event"],
        &["send a signal to a task: task-engine signal {} NAME"],
    ),
    (
        &["throttle", "concurrency", "rate", "ratelimit", "rate-limit"],
        &["limit how many tasks run or start: task-engine limits set NAME"],
    ),
    (
        &["dag", "workflow", "pipeline", "chain", "batch"],
        &[
            "run tasks that depend on each other: task-engine flow run flow.toml",
            "list flows: task-engine flow list",
        ],
    ),
    (&["cron", "scheduled"], &["list schedules: task-engine schedules list"]),
    (&["dashboard", "ui", "api"], &["serve the dashboard: task-engine web"]),
    (&["init", "setup", "upgrade"], &["create or update the tables: task-engine migrate"]),
    (&["watch", "monitor"], &["watch activity: task-engine top", "follow ends: task-engine tail"]),
    (&["dump", "backup"], &["write everything as JSON lines: task-engine export"]),
    (&["history"], &["list tasks: task-engine tasks", "list operations: task-engine audit"]),
];

/// The program as clap knows it, with its help in groups.
pub(crate) fn command() -> Command {
    let command = Cli::command().max_term_width(COLUMNS_MAX);
    let template = template(&command);
    command.help_template(template)
}

/// Reads the arguments of this process, or ends it with help or an error.
pub(crate) fn parse_arguments() -> Cli {
    let arguments: Vec<_> = std::env::args_os().collect();
    let parsed = command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|mut error| {
        if error.kind() == ErrorKind::InvalidSubcommand {
            let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
            explain_unknown(&mut error, &words.collect::<Vec<_>>());
        }
        error.exit()
    })
}

fn template(command: &Command) -> String {
    let styles = Styles::default();
    let header = styles.get_header();
    let literal = styles.get_literal();
    let mut groups = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(groups, "{header}{group}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {literal}{name:<11}{literal:#}  {about}");
        }
        groups.push('\n');
    }
    format!(
        "{{about-with-newline}}
{{usage-heading}} {{usage}}

{groups}{header}Options:{header:#}
{{options}}{{after-help}}"
    )
}

/// Replaces clap's suggestions: none that removes something, and the right command
/// for a word that other systems use.
fn explain_unknown(error: &mut clap::Error, words: &[String]) {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let unknown = unknown.clone();
    let at = words.iter().position(|word| *word == unknown).unwrap_or(words.len());
    let (before, after) = words.split_at(at);
    let similar = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names,
        Some(ContextValue::String(name)) => vec![name],
        _ => Vec::new(),
    };
    // clap also suggests to pass the word as a value, which no command takes.
    error.remove(ContextKind::Suggested);
    let is_of_root = !before.iter().any(|word| Cli::command().find_subcommand(word).is_some());
    let next = after.get(1).filter(|word| !word.starts_with('-')).map(String::as_str);
    let tips = if is_of_root { tips(&unknown, next) } else { Vec::new() };
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        return;
    }
    let harmless = |name: &String| !DESTRUCTIVE.contains(&name.as_str());
    let similar: Vec<_> = similar.into_iter().filter(harmless).collect();
    if !similar.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
    }
}

fn tips(unknown: &str, next: Option<&str>) -> Vec<String> {
    let known = KNOWN_WORDS.iter().find(|(words, _)| words.contains(&unknown));
    let tips = known.map_or(&[][..], |(_, tips)| tips);
    let next = next.map_or_else(|| "NAME".to_owned(), quoted);
    tips.iter().map(|tip| format!("to {}", tip.replace("{}", &next))).collect()
}

#[cfg(test)]
mod tests;
