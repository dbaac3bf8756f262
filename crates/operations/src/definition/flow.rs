//! The definition of a flow: its tasks by name, and what each depends on.

use std::collections::HashSet;

use serde_json::value::RawValue;
use task_engine_core::dependency::{
    DependencyCondition, DependencyTarget, FLOW_TASKS_MAX, Flow, InvalidFlow, NewFlow,
};
use task_engine_core::suggest::nearest;
use task_engine_core::task::{NewTask, TaskId};

use super::task_with_wait;
use crate::fields::{InvalidField, Object, escaped, kind, list};

const FIELDS: [&str; 3] = ["name", "correlation_id", "tasks"];
/// `delay` is the `after` of a task on its own.
const TASK_FIELDS: [&str; 12] = [
    "class",
    "parameters",
    "queue",
    "priority",
    "scheduled_at",
    "delay",
    "retry",
    "limits",
    "traceparent",
    "after",
    "after_end",
    "after_failure",
];
const DEPENDENCIES: [(&str, DependencyCondition); 3] = [
    ("after", DependencyCondition::Success),
    ("after_end", DependencyCondition::End),
    ("after_failure", DependencyCondition::Failure),
];

/// A flow as it was defined.
#[derive(Debug)]
pub struct FlowDefinition<'a> {
    /// The name that lists show.
    pub name: Option<String>,
    /// The correlation id of its tasks.
    pub correlation_id: Option<String>,
    /// Its tasks, in the order of the definition.
    pub tasks: Vec<TaskDefinition<'a>>,
}

/// A task of a flow as it was defined.
#[derive(Debug)]
pub struct TaskDefinition<'a> {
    /// Its name in the flow.
    pub name: String,
    /// Its JSON pointer.
    pub pointer: String,
    /// Its JSON.
    pub sent: &'a RawValue,
    /// The task.
    pub task: NewTask,
    /// Whether the definition says which queue it waits in.
    pub has_queue: bool,
    /// Whether the definition says which priority it has.
    pub has_priority: bool,
    dependencies: Vec<(DependencyTarget, DependencyCondition)>,
}

impl<'a> FlowDefinition<'a> {
    /// Reads a flow: `{"name": …, "correlation_id": …, "tasks": {"NAME": {"class": …}}}`.
    pub fn read(value: &'a RawValue) -> Result<Self, InvalidField> {
        let whole = Object::read(value, String::new(), &FIELDS)?;
        let (name, correlation_id) = (whole.text("name")?, whole.text("correlation_id")?);
        let expected = "an object of tasks by name, like {\"load\": {\"class\": \"load\"}}";
        let entries = whole.entries("tasks", expected)?;
        if entries.is_empty() {
            return Err(whole.invalid("tasks", format!("a flow needs a task: {expected}")));
        }
        if entries.len() > FLOW_TASKS_MAX {
            return Err(whole.invalid("tasks", InvalidFlow::TooManyTasks(entries.len())));
        }
        let names: HashSet<String> = entries.iter().map(|(name, ..)| name.clone()).collect();
        let read = |(name, pointer, sent): (String, String, &'a RawValue)| {
            let object = Object::read(sent, pointer.clone(), &TASK_FIELDS)?;
            Ok(TaskDefinition {
                task: task_with_wait(&object, "delay")?,
                has_queue: object.raw("queue").is_some(),
                has_priority: object.raw("priority").is_some(),
                dependencies: dependencies(&object, &name, &names)?,
                name,
                pointer,
                sent,
            })
        };
        let tasks = entries.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { name, correlation_id, tasks })
    }

    /// Checks the whole, and puts each task after those that it depends on.
    pub fn resolve(self) -> Result<NewFlow, InvalidField> {
        let mut flow = Flow::new();
        if let Some(name) = self.name {
            flow = flow.name(name);
        }
        if let Some(id) = self.correlation_id {
            // Its own check says more than that of the flow.
            let probe = NewTask::new("a", task_engine_core::json::Json::empty_object());
            let checked = probe.and_then(|task| task.correlation(&id));
            checked.map_err(|bad| InvalidField::new("/correlation_id", format!("{bad}.")))?;
            flow = flow.correlation(id);
        }
        for task in self.tasks {
            flow = flow.add(task.name, task.task);
            for (target, condition) in task.dependencies {
                flow = flow.depend(target, condition);
            }
        }
        flow.resolve().map_err(|invalid| {
            let pointer = match &invalid {
                InvalidFlow::Cycle(names) => names.first().map(|name| of_task(name)),
                InvalidFlow::Name(name) => Some(of_task(name)),
                InvalidFlow::UnknownName { task, .. }
                | InvalidFlow::TwoConditions { task, .. }
                | InvalidFlow::UniqueTask(task)
                | InvalidFlow::DuplicateName(task) => Some(of_task(task)),
                _ => Some("/tasks".to_owned()),
            };
            let text = invalid.to_string();
            let advice = match &invalid {
                InvalidFlow::Cycle(_) => "; remove one of these dependencies",
                _ => "",
            };
            let end = if text.ends_with(['.', '?']) { "" } else { "." };
            InvalidField::new(
                pointer.unwrap_or_default(),
                format!("{}{advice}{end}", task_engine_core::display::capitalize(&text)),
            )
        })
    }
}

fn of_task(name: &str) -> String {
    format!("/tasks/{}", escaped(name))
}

/// The tasks that one depends on: in each field a name, an id, or a list of them.
fn dependencies(
    object: &Object<'_>,
    task: &str,
    names: &HashSet<String>,
) -> Result<Vec<(DependencyTarget, DependencyCondition)>, InvalidField> {
    let mut found = Vec::new();
    for (field, condition) in DEPENDENCIES {
        let Some(value) = object.raw(field) else { continue };
        match list(value) {
            None => found.push((target(object, field, value, task, names)?, condition)),
            Some(values) => {
                for (at, value) in values.into_iter().enumerate() {
                    let field = format!("{field}/{at}");
                    found.push((target(object, &field, value, task, names)?, condition));
                }
            }
        }
    }
    Ok(found)
}

fn target(
    object: &Object<'_>,
    field: &str,
    value: &RawValue,
    task: &str,
    names: &HashSet<String>,
) -> Result<DependencyTarget, InvalidField> {
    let expected = "the name of a task of the flow, the id of an existing task, or a list of them";
    match kind(value) {
        "a number" => {
            let id = value.get().parse::<i64>().ok().filter(|id| *id > 0);
            let id = id.ok_or_else(|| {
                object.invalid(field, format!("{} is not the id of a task", value.get()))
            })?;
            Ok(TaskId(id).into())
        }
        "a string" => {
            let name: String = serde_json::from_str(value.get())
                .map_err(|_| object.mismatch(field, expected, value))?;
            if names.contains(&name) {
                return Ok(name.into());
            }
            let short: String = name.chars().take(100).collect();
            let advice = match nearest(&name, names.iter().map(String::as_str)) {
                Some(similar) => format!("; did you mean {similar:?}?"),
                None if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => {
                    format!("; write an id without quotes: {short}")
                }
                None => "; write the name of one of its tasks, or the id of an existing task as a number".to_owned(),
            };
            Err(object.invalid(
                field,
                format!("task {task:?} depends on {short:?}, which is no task of the flow{advice}"),
            ))
        }
        _ => Err(object.mismatch(field, expected, value)),
    }
}
