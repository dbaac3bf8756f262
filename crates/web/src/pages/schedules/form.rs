//! The form of a schedule. All fields are checked together, so that all errors are
//! shown at once, each at its field.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use task_engine_core::ParseError;
use task_engine_core::json::Json;
use task_engine_core::parse;
use task_engine_core::queue::check_queue_name;
use task_engine_core::schedule::{
    InvalidDefinition, Missed, Overlap, Schedule, ScheduleDefinition, ScheduleRule,
};
use task_engine_core::secret;
use task_engine_core::secret::Secrets;
use task_engine_core::task::NewTask;
use task_engine_core::task::{DEFAULT_QUEUE, InvalidTask};

use super::parameters;
use crate::error::ApiError;
use crate::pages::operations::FormFields;

/// The fields of the form, as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduleForm {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) time_zone: String,
    pub(super) class: String,
    pub(super) parameters: String,
    pub(super) queue: String,
    pub(super) priority: String,
    pub(super) missed: String,
    pub(super) missed_max: String,
    pub(super) overlap: String,
    pub(super) jitter: String,
    /// Whether the parameters are not checked by the schema of the class.
    pub(super) ignores_schema: bool,
}

/// An existing schedule, with and without its secrets.
#[derive(Debug, Clone)]
pub(super) struct StoredSchedule {
    pub(super) stored: ScheduleDefinition,
    /// Without the secrets of its class.
    pub(super) redacted: ScheduleDefinition,
}

/// Errors by field. The empty name: the whole form.
pub(super) type FieldErrors = BTreeMap<&'static str, String>;

impl Default for ScheduleForm {
    fn default() -> Self {
        Self {
            name: String::new(),
            rule: String::new(),
            time_zone: "UTC".to_owned(),
            class: String::new(),
            parameters: "{}".to_owned(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: "0".to_owned(),
            missed: "last".to_owned(),
            missed_max: Missed::ALL_DEFAULT.to_string(),
            overlap: Overlap::default().to_string(),
            jitter: "0s".to_owned(),
            ignores_schema: false,
        }
    }
}

impl ScheduleForm {
    pub(super) fn read(fields: &FormFields) -> Self {
        // Browsers send line ends as CRLF.
        let text = |name| fields.all(name).next().unwrap_or_default().replace("\r\n", "\n");
        Self {
            name: text("name"),
            rule: text("rule").trim().to_owned(),
            time_zone: text("time_zone").trim().to_owned(),
            class: text("class").trim().to_owned(),
            parameters: text("parameters"),
            queue: text("queue").trim().to_owned(),
            priority: text("priority").trim().to_owned(),
            missed: text("missed"),
            missed_max: text("missed_max").trim().to_owned(),
            overlap: text("overlap"),
            jitter: text("jitter").trim().to_owned(),
            ignores_schema: text("check") == "no",
        }
    }

    /// From a redacted definition.
    pub(super) fn of(name: &str, definition: &ScheduleDefinition) -> Self {
        let (missed, missed_max) = match definition.missed {
            Missed::All(number) => ("all", number),
            Missed::Last => ("last", Missed::ALL_DEFAULT),
            Missed::Skip => ("skip", Missed::ALL_DEFAULT),
        };
        let jitter = jiff::SignedDuration::try_from(definition.jitter).unwrap_or_default();
        Self {
            name: name.to_owned(),
            rule: definition.rule.clone(),
            time_zone: definition.time_zone.clone(),
            class: definition.class.clone(),
            parameters: parameters(&definition.parameters),
            queue: definition.queue.clone(),
            priority: definition.priority.to_string(),
            missed: missed.to_owned(),
            missed_max: missed_max.to_string(),
            overlap: definition.overlap.to_string(),
            jitter: format!("{jitter:#}"),
            ignores_schema: false,
        }
    }

    /// The schedule of the form. What the form does not show, and unchanged
    /// parameters, stay as in `old`. `secrets`: those of the class.
    pub(super) fn schedule(
        &self,
        old: Option<&StoredSchedule>,
        secrets: &Secrets,
    ) -> Result<Schedule, FieldErrors> {
        let mut errors = FieldErrors::new();
        let task = self.task(old, secrets, &mut errors);
        let missed = self.missed().map_err(|why| errors.insert("missed", why));
        let overlap = self.overlap.parse();
        let overlap = overlap.map_err(|why: ParseError| errors.insert("overlap", why.into()));
        let jitter = jitter(&self.jitter).map_err(|why| errors.insert("jitter", why));
        let schedule = Schedule::new(self.name.as_str(), self.rule.as_str())
            .time_zone(self.time_zone.as_str())
            .missed(missed.unwrap_or_default())
            .overlap(overlap.unwrap_or_default())
            .jitter(jitter.unwrap_or_default());
        self.check_times(&mut errors);
        // Errors of the task are collected already; any task serves for the rest.
        let any = NewTask::new("any", Json::empty_object());
        let whole = match (task, any) {
            (Some(task), _) | (None, Ok(task)) => schedule.new_task(task),
            (None, Err(_)) => schedule,
        };
        if let Err(bad) = whole.definition() {
            errors.entry(field_of(&bad.why)).or_insert(bad.why.to_string());
        }
        if errors.is_empty() { Ok(whole) } else { Err(errors) }
    }

    /// `definition` reports only its first error.
    fn check_times(&self, errors: &mut FieldErrors) {
        if let Err(why) = self.rule.parse::<ScheduleRule>() {
            errors.insert("rule", why.to_string());
        }
        if TimeZone::get(&self.time_zone).is_err() {
            errors.insert("time_zone", InvalidDefinition::Zone(self.time_zone.clone()).to_string());
        }
    }

    fn task(
        &self,
        old: Option<&StoredSchedule>,
        secrets: &Secrets,
        errors: &mut FieldErrors,
    ) -> Option<NewTask> {
        let before = errors.len();
        let json = self.json(old);
        let json = json.map_err(|why| errors.insert("parameters", why));
        let priority = self.priority.parse::<i32>();
        let priority = priority.map_err(|_| {
            errors.insert("priority", "a priority is a whole number, like 0 or -5".to_owned())
        });
        if let Err(bad) = check_queue_name(&self.queue) {
            errors.insert("queue", bad.to_string());
        }
        let task = NewTask::new(self.class.as_str(), json.unwrap_or_else(|_| Json::empty_object()));
        let task = task.map_err(|bad| errors.insert(field_of_task(&bad), bad.to_string())).ok()?;
        let task = task.queue(self.queue.as_str()).ok()?;
        let mut task = task.priority(priority.unwrap_or_default());
        if let Some(old) = old {
            task.context = old.stored.context.clone();
        }
        let task = task.secret(&secrets.of_class(&self.class));
        let task = task.map_err(|bad| errors.insert(field_of_task(&bad), bad.to_string())).ok()?;
        (errors.len() == before).then_some(task)
    }

    fn json(&self, old: Option<&StoredSchedule>) -> Result<Json, String> {
        let text = self.parameters.trim();
        if let Some(old) = old {
            if parameters(&old.redacted.parameters) == self.parameters {
                return Ok(old.stored.parameters.clone());
            }
            let is_redacted = old.redacted.parameters != old.stored.parameters;
            if is_redacted && text.contains(secret::PLACEHOLDER) {
                return Err(format!(
                    "write the value in place of {}, or leave all parameters unchanged",
                    secret::PLACEHOLDER
                ));
            }
        }
        let text = if text.is_empty() { "{}" } else { text };
        Json::parse_object(text).map_err(|why| why.to_string())
    }

    fn missed(&self) -> Result<Missed, String> {
        match self.missed.as_str() {
            "all" => format!("all:{}", self.missed_max).parse().map_err(|_: ParseError| {
                format!("1 to {} missed slots can be caught up", Missed::ALL_MAX)
            }),
            missed => Ok(missed.parse::<Missed>()?),
        }
    }
}

fn field_of(why: &InvalidDefinition) -> &'static str {
    match why {
        InvalidDefinition::Name => "name",
        InvalidDefinition::Rule(_) | InvalidDefinition::Never(_) => "rule",
        InvalidDefinition::Zone(_) => "time_zone",
        InvalidDefinition::Jitter => "jitter",
        InvalidDefinition::Missed => "missed",
        InvalidDefinition::Task(bad) => field_of_task(bad),
        _ => "",
    }
}

fn field_of_task(bad: &InvalidTask) -> &'static str {
    match bad {
        InvalidTask::Parameters { .. } => "parameters",
        InvalidTask::Name { what: "queue", .. } => "queue",
        InvalidTask::Name { .. } => "class",
        _ => "",
    }
}

/// Empty: no jitter.
fn jitter(text: &str) -> Result<Duration, String> {
    if text.is_empty() { Ok(Duration::ZERO) } else { parse::duration(text) }
}

/// The error of a refused change, by field.
pub(super) fn field_errors_of(problem: &ApiError) -> FieldErrors {
    let is_name = problem.status == axum::http::StatusCode::CONFLICT;
    let field = match &problem.pointer {
        Some(pointer) if pointer.starts_with("/parameters") => "parameters",
        _ if is_name => "name",
        _ => "",
    };
    FieldErrors::from([(field, problem.detail.clone())])
}

#[cfg(test)]
mod tests;
