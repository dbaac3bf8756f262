//! Regular tasks in the file: `[schedule.NAME]`.

use serde_json::{Map, Number, Value};
use task_engine::{NewTask, Schedule};
use task_engine_core::json::Json;
use task_engine_core::schedule::InvalidDefinition;
use toml::Spanned;

use super::file::{ScheduleTable, SpannedName};
use super::{Checker, Executable, nearest, span};

impl Checker<'_> {
    pub(super) fn schedule(
        &mut self,
        name: &SpannedName,
        table: &ScheduleTable,
        classes: &[Executable],
    ) -> Option<Schedule> {
        let task = self.task(name, table, classes);
        let schedule = self.times(name, table);
        let mut schedule = schedule?.new_task(task?);
        if let Some(zone) = &table.time_zone {
            schedule = schedule.time_zone(zone.get_ref().to_string());
        }
        if let Some(missed) = &table.missed {
            schedule = schedule.missed(missed.get_ref().0);
        }
        if let Some(overlap) = table.overlap {
            schedule = schedule.overlap(overlap.0);
        }
        if let Some(jitter) = &table.jitter {
            schedule = schedule.jitter(jitter.get_ref().0);
        }
        match schedule.definition() {
            Ok(_) => Some(schedule),
            Err(error) => {
                let key = match &error.why {
                    InvalidDefinition::Rule(_) | InvalidDefinition::Never(_) => {
                        span(&table.cron).or_else(|| span(&table.every))
                    }
                    InvalidDefinition::Zone(_) => span(&table.time_zone),
                    InvalidDefinition::Jitter => span(&table.jitter),
                    InvalidDefinition::Missed => span(&table.missed),
                    _ => None,
                };
                self.error(key.unwrap_or_else(|| name.span()), error.why.to_string());
                None
            }
        }
    }

    /// When it fires.
    fn times(&mut self, name: &SpannedName, table: &ScheduleTable) -> Option<Schedule> {
        let schedule = name.get_ref();
        match (&table.cron, &table.every) {
            (Some(cron), None) => Some(Schedule::cron(schedule, cron.get_ref().to_string())),
            (None, Some(every)) => Some(Schedule::every(schedule, every.get_ref().0)),
            (Some(_), Some(every)) => {
                self.error(every.span(), "a schedule has cron or every, not both");
                None
            }
            (None, None) => {
                let message = format!(
                    "schedule {schedule} never runs; write cron = \"0 3 * * *\" or every = \"15m\""
                );
                self.error(name.span(), message);
                None
            }
        }
    }

    /// What it creates: in the queue and with the priority of its class, unless the
    /// table names others.
    fn task(
        &mut self,
        name: &SpannedName,
        table: &ScheduleTable,
        classes: &[Executable],
    ) -> Option<NewTask> {
        let Some(class) = &table.class else {
            let message =
                format!("schedule {} has no class; write class = \"NAME\"", name.get_ref());
            self.error(name.span(), message);
            return None;
        };
        let class_name: &str = class.get_ref();
        let known = classes.iter().find(|one| one.class == class_name);
        if known.is_none() {
            // The class may belong to another engine; a similar name is a slip.
            let names = classes.iter().map(|one| one.class.as_str());
            if let Some(near) = nearest(class_name, names) {
                let message =
                    format!("class {class_name:?} is not in this file; did you mean {near}?");
                self.error(class.span(), message);
            }
        }
        let options = known.map(Executable::options).unwrap_or_default();
        let parameters = match &table.parameters {
            None => Json::empty_object(),
            Some(parameters) => self.parameters(parameters)?,
        };
        let queue = self.queue(table.queue.as_ref()).unwrap_or(options.queue);
        let task = NewTask::new(class_name, parameters)
            .and_then(|task| task.queue(queue))
            .and_then(|task| task.secret(&options.secret));
        match task {
            Ok(task) => {
                let task = task.priority(table.priority.unwrap_or(options.priority));
                Some(self.limited(task, table))
            }
            Err(error) => {
                self.error(class.span(), error.to_string());
                None
            }
        }
    }

    /// The task with the limits that the table names.
    fn limited(&mut self, task: NewTask, table: &ScheduleTable) -> NewTask {
        let Some(limits) = &table.limits else { return task };
        let mut named = limits.get_ref().iter();
        let limited = named.try_fold(task.clone(), |task, (name, key)| task.limit(name, &**key));
        limited.unwrap_or_else(|error| {
            self.error(limits.span(), error.to_string());
            task
        })
    }

    fn parameters(&mut self, table: &Spanned<toml::Table>) -> Option<Json> {
        let json = json_object(table.get_ref()).ok_or("JSON has no such number".to_owned());
        match json.and_then(|json| Json::encode_object(&json).map_err(|error| error.to_string())) {
            Ok(json) => Some(json),
            Err(why) => {
                self.error(table.span(), format!("parameters: {why}"));
                None
            }
        }
    }
}

fn json_object(table: &toml::Table) -> Option<Value> {
    let fields = table.iter().map(|(key, value)| Some((key.clone(), json(value)?)));
    fields.collect::<Option<Map<_, _>>>().map(Value::Object)
}

/// The same value in JSON. Times become texts, because JSON has none; `None` is for a
/// number that JSON does not have.
fn json(value: &toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => Value::String(text.clone()),
        toml::Value::Boolean(yes) => Value::Bool(*yes),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::Number(Number::from_f64(*number)?),
        toml::Value::Array(list) => list.iter().map(json).collect::<Option<_>>()?,
        toml::Value::Table(table) => json_object(table)?,
    })
}
