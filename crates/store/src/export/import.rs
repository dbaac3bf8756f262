//! Imports: how ids are assigned, and the outcome.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::step::KEPT_STEPS;

use super::{ExportCounts, ExportHeader, ExportLine};

/// Fields of a context that are the id of another task: its parent, the task that it runs
/// again, and the one whose steps it kept.
const ID_FIELDS: [&str; 3] = ["parent_id", "rerun_of", KEPT_STEPS];

/// The way in which an import assigns ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportIds {
    /// Ids are kept; the store must have neither tasks nor schedules.
    Keep,
    /// Ids are shifted after those of the store.
    New,
}

/// The outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The whole file is imported.
    Done {
        /// The lines that were read.
        read: ExportCounts,
        /// By how much ids were moved.
        shift: IdShift,
        /// Engine sessions, now ended, that hold attempts to be reclaimed.
        holders: Vec<InstanceId>,
    },
    /// Nothing was changed: the store is not empty, or has a schedule of the same name.
    Conflict(String),
}

impl ImportOutcome {
    /// Ids can be kept only where there are none.
    pub const NOT_EMPTY: &'static str = "the database has tasks or schedules already; import into an empty one, or give what comes in new ids (--new-ids)";
    /// The numbers of a file can be anything.
    pub const TOO_FAR: &'static str =
        "the ids of this file are too high to be moved behind those that are there";

    /// Creates a name that is taken.
    #[must_use]
    pub fn same_schedule(name: &str) -> Self {
        Self::Conflict(format!(
            "there is a schedule named {name:?} already; remove one of the two: task-engine schedules remove"
        ))
    }
}

/// The distance by which ids are moved.
///
/// Zero keeps them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IdShift {
    /// Of tasks.
    pub tasks: i64,
    /// Of engine sessions.
    pub instances: i64,
    /// Of schedules.
    pub schedules: i64,
}

impl IdShift {
    /// Returns whether ids up to those of this file can be moved so far.
    #[must_use]
    pub fn fits(&self, header: &ExportHeader) -> bool {
        // The ids of claims have an instance id in their upper bits.
        let sessions = header.last_instance_id.checked_add(self.instances);
        header.last_task_id.checked_add(self.tasks).is_some_and(|last| last < i64::MAX)
            && header.last_schedule_id.checked_add(self.schedules).is_some()
            && sessions.is_some_and(|last| last < 1 << 22)
    }

    /// Returns a line with its ids shifted, including the ids that it refers to.
    ///
    /// A flow without a correlation id is named by the id of its first task, as text. So
    /// all correlation ids that could be ids of this file are shifted as well, and flows
    /// stay complete.
    #[must_use]
    pub fn apply(&self, mut line: ExportLine, header: &ExportHeader) -> ExportLine {
        match &mut line {
            ExportLine::Instance(instance) => instance.id += self.instances,
            ExportLine::Task(task) => {
                task.id += self.tasks;
                if let Some(running) = &mut task.running {
                    running.instance_id += self.instances;
                }
                for execution in &mut task.executions {
                    execution.instance_id = execution.instance_id.map(|id| id + self.instances);
                }
                if self.tasks != 0 {
                    task.shift_named(self);
                    task.context = self.context(&task.context, header);
                }
            }
            ExportLine::Schedule(schedule) => {
                schedule.id += self.schedules;
                schedule.last_task_id = schedule.last_task_id.map(|id| id + self.tasks);
                for fired in &mut schedule.fired_slots {
                    fired.task_id += self.tasks;
                }
                for event in &mut schedule.events {
                    event.task_id = event.task_id.map(|id| id + self.tasks);
                }
            }
            ExportLine::SkippedTask(skipped) => skipped.id += self.tasks,
            ExportLine::Flow(flow) => {
                if let Some(id) = task_named(&flow.correlation_id, header) {
                    flow.correlation_id = (id + self.tasks).to_string();
                }
            }
            ExportLine::Header(_)
            | ExportLine::PausedQueue(_)
            | ExportLine::Limit(_)
            | ExportLine::End(_) => {}
        }
        line
    }

    fn context(&self, context: &Json, header: &ExportHeader) -> Json {
        // Only these fields are parsed; all others keep their text.
        let Ok(mut fields) = context.decode::<BTreeMap<String, Box<RawValue>>>() else {
            return context.clone();
        };
        let own = |id: &i64| (1..=header.last_task_id).contains(id);
        let mut shifted = Vec::new();
        for name in ID_FIELDS {
            let id = fields.get(name).and_then(|raw| raw.get().parse().ok());
            if let Some(id) = id.filter(own) {
                shifted.push((name, (id + self.tasks).to_string()));
            }
        }
        let flow = fields.get("correlation_id").and_then(|raw| {
            let text: String = serde_json::from_str(raw.get()).ok()?;
            task_named(&text, header)
        });
        if let Some(id) = flow {
            shifted.push(("correlation_id", format!("\"{}\"", id + self.tasks)));
        }
        if shifted.is_empty() {
            return context.clone();
        }
        for (name, text) in shifted {
            if let Ok(raw) = RawValue::from_string(text) {
                fields.insert(name.to_owned(), raw);
            }
        }
        serde_json::to_string(&fields).map_or_else(|_| context.clone(), Json::from_store)
    }
}

/// The task of the file that a correlation id names.
fn task_named(correlation_id: &str, header: &ExportHeader) -> Option<i64> {
    let id: i64 = correlation_id.parse().ok()?;
    let names_task = id.to_string() == correlation_id && (1..=header.last_task_id).contains(&id);
    names_task.then_some(id)
}
