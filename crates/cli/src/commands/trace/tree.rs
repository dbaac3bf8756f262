//! A flow as a tree, without recursion: a chain of tasks may be very long.

use std::collections::HashMap;
use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::dependency::{DependencyCondition, DependencyRow};
use task_engine_core::display::{relative, span};
use task_engine_core::flow::FlowAttempt;
use task_engine_core::flow::FlowTask;
use task_engine_core::task::ExecutionStatus;

use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::json_output::write_json_line;

/// Deeper tasks are not indented further.
const LEVELS_MAX: usize = 24;
/// Of more attempts, only the last ones are shown.
const ATTEMPTS_MAX: usize = 10;
const ERROR_CHARS_MAX: usize = 100;
/// More dependencies of a task are only counted.
const DEPENDENCIES_SHOWN: usize = 5;

/// A task in the tree.
pub(super) struct TreeNode {
    /// Its index in the list of tasks.
    at: usize,
    depth: usize,
    /// Whether each of its ancestors, from the outermost on, and then itself,
    /// is the last child of its parent; as far as it is shown.
    last: Vec<bool>,
}

/// Parents before their children, both oldest first. A task whose parent is not
/// among them stands at the top.
pub(super) fn order(tasks: &[FlowTask]) -> Vec<TreeNode> {
    let places: HashMap<TaskId, usize> =
        tasks.iter().enumerate().map(|(at, task)| (task.row.id, at)).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut tops = Vec::new();
    for (at, task) in tasks.iter().enumerate() {
        // SQL of users may set any parent; one that is not older would make a cycle.
        let parent = task.parent_id.filter(|parent| *parent < task.row.id);
        match parent.and_then(|parent| places.get(&parent)) {
            Some(parent) => children.entry(*parent).or_default().push(at),
            None => tops.push(at),
        }
    }
    let mut order = Vec::with_capacity(tasks.len());
    let mut open: Vec<TreeNode> = Vec::new();
    let push = |open: &mut Vec<TreeNode>, ats: &[usize], depth: usize, above: &[bool]| {
        for (n, at) in ats.iter().enumerate().rev() {
            let mut last = above.to_vec();
            if depth > 0 && depth <= LEVELS_MAX {
                last.push(n + 1 == ats.len());
            }
            open.push(TreeNode { at: *at, depth, last });
        }
    };
    push(&mut open, &tops, 0, &[]);
    while let Some(node) = open.pop() {
        if let Some(children) = children.get(&node.at) {
            push(&mut open, children, node.depth + 1, &node.last);
        }
        order.push(node);
    }
    order
}

/// What each task depends on.
#[derive(Default)]
pub(super) struct Dependencies(HashMap<TaskId, Vec<DependencyRow>>);

impl Dependencies {
    pub(super) fn of(rows: Vec<DependencyRow>) -> Self {
        let mut by_task: HashMap<TaskId, Vec<DependencyRow>> = HashMap::new();
        for row in rows {
            by_task.entry(row.task_id).or_default().push(row);
        }
        Self(by_task)
    }

    fn of_task(&self, id: TaskId) -> &[DependencyRow] {
        self.0.get(&id).map_or(&[], Vec::as_slice)
    }

    /// `after extract, load, after failure of 17`.
    fn text(&self, id: TaskId) -> String {
        let rows = self.of_task(id);
        let name = |row: &DependencyRow| match &row.name {
            Some(name) => summary(name, 40),
            None => row.depends_on.to_string(),
        };
        let mut text = String::new();
        for condition in DependencyCondition::ALL {
            let names: Vec<_> =
                rows.iter().filter(|row| row.condition == condition).map(name).collect();
            if names.is_empty() {
                continue;
            }
            let words = match condition {
                DependencyCondition::End => "after the end of ",
                DependencyCondition::Failure => "after a failure of ",
                _ => "after ",
            };
            let shown = &names[..names.len().min(DEPENDENCIES_SHOWN)];
            text.push_str(&format!(", {words}{}", shown.join(", ")));
            if names.len() > shown.len() {
                text.push_str(&format!(" and {} more", names.len() - shown.len()));
            }
        }
        text
    }
}

/// One line a task, and one an attempt where there were several.
pub(super) fn write_text(
    out: &mut impl Write,
    tasks: &[FlowTask],
    dependencies: &Dependencies,
    order: &[TreeNode],
    named: Option<TaskId>,
    now: Timestamp,
) -> io::Result<()> {
    for node in order {
        let task = &tasks[node.at];
        let mark = if named == Some(task.row.id) { "  <" } else { "" };
        let deep = if node.depth > LEVELS_MAX {
            format!("({} levels down) ", node.depth)
        } else {
            String::new()
        };
        let origin = match task.parent_id {
            Some(parent) if node.depth == 0 => {
                format!(", created by task {parent}, which is not here")
            }
            _ => String::new(),
        };
        writeln!(
            out,
            "{}{deep}{} {} {}{}{origin}{mark}",
            branch(node),
            task.row.id,
            called(task),
            summary_text(task, now),
            dependencies.text(task.row.id)
        )?;
        write_attempts(out, task, &trunk(node))?;
    }
    Ok(())
}

fn write_attempts(out: &mut impl Write, task: &FlowTask, indent: &str) -> io::Result<()> {
    if task.executions.len() < 2 {
        return Ok(());
    }
    let skipped = task.executions.len().saturating_sub(ATTEMPTS_MAX);
    if skipped > 0 {
        writeln!(out, "{indent}… {skipped} earlier attempts")?;
    }
    for (execution, wait) in task.executions.iter().zip(task.waits()).skip(skipped) {
        let word = execution.status.as_str();
        let times = times(execution, wait);
        writeln!(out, "{indent}attempt {}: {word}{times}{}", execution.attempt, error(execution))?;
    }
    Ok(())
}

/// Its class, with its name in the flow if that is another one.
fn called(task: &FlowTask) -> String {
    let class = summary(&task.row.class, 60);
    match task.name.as_deref().map(|name| summary(name, 60)) {
        Some(name) if name != class => format!("{name} ({class})"),
        _ => class,
    }
}

/// A task on one line.
fn summary_text(task: &FlowTask, now: Timestamp) -> String {
    let status = task.row.status;
    let mut text = status.to_string();
    if task.row.is_blocked {
        text = "blocked".to_owned();
        if task.row.scheduled_at > now {
            text.push_str(&format!(", due {}", relative(task.row.scheduled_at, now)));
        }
    } else if status == TaskStatus::Waiting {
        text.push_str(&format!(", due {}", relative(task.row.scheduled_at, now)));
    }
    match &task.executions[..] {
        [] => {}
        [only] => {
            if only.status == ExecutionStatus::Snoozed {
                text.push_str(", snoozed");
            }
            let wait = task.waits().first().copied().flatten();
            text.push_str(&times(only, wait));
            text.push_str(&error(only));
        }
        many => {
            let ran = many.iter().filter_map(FlowAttempt::run_time).sum();
            text.push_str(&format!(", {} attempts, ran {} in all", many.len(), span(ran)));
        }
    }
    text
}

fn times(execution: &FlowAttempt, wait: Option<std::time::Duration>) -> String {
    let mut text = String::new();
    if let Some(wait) = wait {
        text.push_str(&format!(", waited {}", span(wait)));
    }
    match (execution.started_at, execution.run_time()) {
        (Some(_), Some(lasted)) => text.push_str(&format!(", ran {}", span(lasted))),
        (None, _) => text.push_str(", never started"),
        (Some(_), None) => {}
    }
    if let Some(instance) = &execution.instance {
        text.push_str(&format!(" on {}", escape(instance)));
    }
    text
}

fn error(execution: &FlowAttempt) -> String {
    let Some(error) = &execution.error else { return String::new() };
    let text = match execution.status {
        ExecutionStatus::Snoozed => error.message.clone(),
        _ => error.to_string(),
    };
    format!(": {}", summary(&text, ERROR_CHARS_MAX))
}

/// The branch before the line of a task.
fn branch(node: &TreeNode) -> String {
    let Some((last, above)) = node.last.split_last() else {
        return String::new();
    };
    let mut text = bars(above);
    text.push_str(if *last { "└─ " } else { "├─ " });
    text
}

/// The branch before further lines of a task.
fn trunk(node: &TreeNode) -> String {
    format!("{}   ", bars(&node.last))
}

fn bars(last: &[bool]) -> String {
    last.iter().map(|last| if *last { "   " } else { "│  " }).collect()
}

#[derive(Serialize)]
struct FlowOutput<'a> {
    correlation_id: &'a str,
    /// False if there are more tasks than asked for.
    complete: bool,
    tasks: Vec<FlowTaskOutput<'a>>,
}

/// Flat, with the depth: nested as deep as the flow is, no parser would take it.
#[derive(Serialize)]
struct FlowTaskOutput<'a> {
    depth: usize,
    #[serde(flatten)]
    task: &'a FlowTask,
    waited_ms: Vec<Option<f64>>,
    ran_ms: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    dependencies: &'a [DependencyRow],
}

pub(super) fn write_json(
    out: &mut impl Write,
    correlation_id: &str,
    tasks: &[FlowTask],
    dependencies: &Dependencies,
    order: &[TreeNode],
    more: bool,
) -> Result<(), CliError> {
    let ms = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64() * 1000.0);
    let tasks = order.iter().map(|node| {
        let task = &tasks[node.at];
        FlowTaskOutput {
            depth: node.depth,
            task,
            waited_ms: task.waits().into_iter().map(ms).collect(),
            dependencies: dependencies.of_task(task.row.id),
            ran_ms: task.executions.iter().map(|execution| ms(execution.run_time())).collect(),
        }
    });
    let flow = FlowOutput { correlation_id, complete: !more, tasks: tasks.collect() };
    write_json_line(out, &flow)?;
    Ok(())
}

#[cfg(test)]
mod tests;
