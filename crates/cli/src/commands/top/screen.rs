//! The lines of the screen.

use task_engine_core::display::{count, span};
use task_engine_operations::stats::StatsSnapshot;

use super::super::stats::{classes, ended, overview, queues};
use crate::escape::summary;
use crate::log_follow::progress_text;
use crate::table::table;

/// At most `height` lines. Running tasks, which may be many, get the lines that the
/// rest leaves.
pub(super) fn lines(
    look: &StatsSnapshot,
    before: Option<&StatsSnapshot>,
    height: usize,
) -> Vec<String> {
    let stats = &look.stats;
    let busy: i64 = stats.engines.iter().map(|engine| engine.busy).sum();
    let workers: i32 = stats.engines.iter().map(|engine| engine.workers).sum();
    let mut lines = vec![
        overview(stats),
        format!(
            "{}, {busy} of {workers} workers busy{}",
            count(stats.engines.len(), "engine"),
            before.map(|before| changes(look, before)).unwrap_or_default()
        ),
        ended(&stats.last_minute),
        ended(&stats.last_hour),
    ];
    if !stats.last_hour.classes.is_empty() {
        section(&mut lines, &classes(&stats.last_hour), few(height));
    }
    if !stats.queues.is_empty() {
        section(&mut lines, &queues(stats), few(height));
    }
    if !look.activity.held.is_empty() {
        let left = height.saturating_sub(lines.len() + 1);
        section(&mut lines, &running_text(look), left);
    }
    lines
}

fn few(height: usize) -> usize {
    (height / 4).max(3)
}

/// A table with its header, and how many rows did not fit.
fn section(lines: &mut Vec<String>, text: &str, rows_max: usize) {
    lines.push(String::new());
    let all: Vec<_> = text.lines().collect();
    if all.len() <= rows_max {
        lines.extend(all.into_iter().map(str::to_owned));
        return;
    }
    let shown = rows_max.saturating_sub(1);
    lines.extend(all.iter().take(shown).map(|line| (*line).to_owned()));
    lines.push(format!("… and {} more", all.len() - shown));
}

/// Changes since the last refresh.
fn changes(look: &StatsSnapshot, before: &StatsSnapshot) -> String {
    let id = |look: &StatsSnapshot| look.stats.newest_task.map_or(0, |id| id.0);
    let created = id(look) - id(before);
    let due = look.stats.due.counted - before.stats.due.counted;
    format!("; {created} created, {due:+} due since the last refresh")
}

fn running_text(snapshot: &StatsSnapshot) -> String {
    let rows = snapshot.activity.held.iter().map(|held| {
        let name = snapshot.names.iter().find(|(id, _)| *id == held.instance_id);
        let time = snapshot.activity.now.duration_since(held.claimed_at).unsigned_abs();
        vec![
            held.task_id.to_string(),
            summary(&held.class, 40),
            name.map_or_else(String::new, |(_, name)| summary(name, 30)),
            span(time),
            held.progress
                .as_ref()
                .map(|progress| summary(&progress_text(progress), 50))
                .unwrap_or_default(),
        ]
    });
    table(&["RUNNING", "CLASS", "ENGINE", "FOR", "PROGRESS"], &[0, 3], rows.collect())
}

/// As many characters as fit.
pub(super) fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_rows_are_counted() {
        let mut lines = Vec::new();
        section(&mut lines, "H\n1\n2\n3\n4", 3);
        assert_eq!(lines, ["", "H", "1", "… and 3 more"]);
        lines.clear();
        section(&mut lines, "H\n1", 3);
        assert_eq!(lines, ["", "H", "1"]);
        assert_eq!(cut("Grüße", 3), "Grü");
    }
}
