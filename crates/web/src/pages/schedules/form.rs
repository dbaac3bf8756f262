//! A schedule as somebody types it: every field a text, checked together, so that
//! all mistakes come back at once, each beside its field.

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
use crate::pages::actions::Fields;
use crate::problem::Problem;

/// The fields, as they are in the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) name: String,
    pub(super) rule: String,
    pub(super) zone: String,
    pub(super) class: String,
    pub(super) parameters: String,
    pub(super) queue: String,
    pub(super) priority: String,
    pub(super) missed: String,
    pub(super) missed_max: String,
    pub(super) overlap: String,
    pub(super) jitter: String,
}

/// A schedule that is there: as it is, and as it may be seen.
#[derive(Debug, Clone)]
pub(super) struct Old {
    pub(super) stored: ScheduleDefinition,
    /// Without the secrets of its class.
    pub(super) shown: ScheduleDefinition,
}

/// What is wrong, by field. The empty name is for the whole.
pub(super) type Mistakes = BTreeMap<&'static str, String>;

impl Default for Typed {
    fn default() -> Self {
        Self {
            name: String::new(),
            rule: String::new(),
            zone: "UTC".to_owned(),
            class: String::new(),
            parameters: "{}".to_owned(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: "0".to_owned(),
            missed: "last".to_owned(),
            missed_max: Missed::ALL_DEFAULT.to_string(),
            overlap: Overlap::default().to_string(),
            jitter: "0s".to_owned(),
        }
    }
}

impl Typed {
    pub(super) fn read(fields: &Fields) -> Self {
        // Browsers send the ends of lines as two characters.
        let text = |name| fields.all(name).next().unwrap_or_default().replace("\r\n", "\n");
        Self {
            name: text("name"),
            rule: text("rule").trim().to_owned(),
            zone: text("zone").trim().to_owned(),
            class: text("class").trim().to_owned(),
            parameters: text("parameters"),
            queue: text("queue").trim().to_owned(),
            priority: text("priority").trim().to_owned(),
            missed: text("missed"),
            missed_max: text("missed_max").trim().to_owned(),
            overlap: text("overlap"),
            jitter: text("jitter").trim().to_owned(),
        }
    }

    /// As it may be seen.
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
            zone: definition.time_zone.clone(),
            class: definition.task_class.clone(),
            parameters: parameters(&definition.task_parameters),
            queue: definition.queue.clone(),
            priority: definition.priority.to_string(),
            missed: missed.to_owned(),
            missed_max: missed_max.to_string(),
            overlap: definition.overlap.to_string(),
            jitter: format!("{jitter:#}"),
        }
    }

    /// The schedule that is meant. `old` is what it was: what the form does not
    /// show stays, and parameters that nobody has touched stay as they are.
    /// `secrets` are those of the class.
    pub(super) fn schedule(
        &self,
        old: Option<&Old>,
        secrets: &Secrets,
    ) -> Result<Schedule, Mistakes> {
        let mut mistakes = Mistakes::new();
        let task = self.task(old, secrets, &mut mistakes);
        let missed = self.missed().map_err(|why| mistakes.insert("missed", why));
        let overlap = self.overlap.parse();
        let overlap = overlap.map_err(|why: ParseError| mistakes.insert("overlap", why.into()));
        let jitter = jitter(&self.jitter).map_err(|why| mistakes.insert("jitter", why));
        let schedule = Schedule::new(self.name.as_str(), self.rule.as_str())
            .time_zone(self.zone.as_str())
            .missed(missed.unwrap_or_default())
            .overlap(overlap.unwrap_or_default())
            .jitter(jitter.unwrap_or_default());
        self.check_times(&mut mistakes);
        // What is wrong with the task is known by now; the rest is seen beside
        // any task.
        let any = NewTask::new("any", Json::empty_object());
        let whole = match (task, any) {
            (Some(task), _) | (None, Ok(task)) => schedule.new_task(task),
            (None, Err(_)) => schedule,
        };
        if let Err(bad) = whole.definition() {
            let (field, words) = (field_of(&bad.why), bad.why.to_string());
            mistakes.entry(field).or_insert(words);
        }
        if mistakes.is_empty() { Ok(whole) } else { Err(mistakes) }
    }

    /// A definition tells its first mistake alone.
    fn check_times(&self, mistakes: &mut Mistakes) {
        if let Err(why) = self.rule.parse::<ScheduleRule>() {
            mistakes.insert("rule", why.to_string());
        }
        if TimeZone::get(&self.zone).is_err() {
            mistakes.insert("zone", InvalidDefinition::Zone(self.zone.clone()).to_string());
        }
    }

    fn task(
        &self,
        old: Option<&Old>,
        secrets: &Secrets,
        mistakes: &mut Mistakes,
    ) -> Option<NewTask> {
        let before = mistakes.len();
        let json = self.json(old);
        let json = json.map_err(|why| mistakes.insert("parameters", why));
        let priority = self.priority.parse::<i32>();
        let priority = priority.map_err(|_| {
            mistakes.insert("priority", "a priority is a whole number, like 0 or -5".to_owned())
        });
        if let Err(bad) = check_queue_name(&self.queue) {
            mistakes.insert("queue", bad.to_string());
        }
        let task = NewTask::new(self.class.as_str(), json.unwrap_or_else(|_| Json::empty_object()));
        let task =
            task.map_err(|bad| mistakes.insert(field_of_task(&bad), bad.to_string())).ok()?;
        let task = task.queue(self.queue.as_str()).ok()?;
        let mut task = task.priority(priority.unwrap_or_default());
        if let Some(old) = old {
            task.context = old.stored.context.clone();
        }
        let task = task.secret(&secrets.of_class(&self.class));
        let task =
            task.map_err(|bad| mistakes.insert(field_of_task(&bad), bad.to_string())).ok()?;
        (mistakes.len() == before).then_some(task)
    }

    fn json(&self, old: Option<&Old>) -> Result<Json, String> {
        let typed = self.parameters.trim();
        if let Some(old) = old {
            if parameters(&old.shown.task_parameters) == self.parameters {
                return Ok(old.stored.task_parameters.clone());
            }
            let hides = old.shown.task_parameters != old.stored.task_parameters;
            if hides && typed.contains(secret::PLACEHOLDER) {
                return Err(format!(
                    "type what stands in the place of {}, or leave all parameters as they are",
                    secret::PLACEHOLDER
                ));
            }
        }
        let typed = if typed.is_empty() { "{}" } else { typed };
        Json::parse_object(typed).map_err(|why| why.to_string())
    }

    fn missed(&self) -> Result<Missed, String> {
        match self.missed.as_str() {
            "all" => format!("all:{}", self.missed_max).parse().map_err(|_: ParseError| {
                format!("of missed times, 1 to {} can be made good", Missed::ALL_MAX)
            }),
            missed => Ok(missed.parse::<Missed>()?),
        }
    }
}

fn field_of(why: &InvalidDefinition) -> &'static str {
    match why {
        InvalidDefinition::Name => "name",
        InvalidDefinition::Rule(_) | InvalidDefinition::Never(_) => "rule",
        InvalidDefinition::Zone(_) => "zone",
        InvalidDefinition::Jitter => "jitter",
        InvalidDefinition::Missed => "missed",
        InvalidDefinition::Task(bad) => field_of_task(bad),
        // About the whole of it.
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

/// Nothing is none at all.
fn jitter(text: &str) -> Result<Duration, String> {
    if text.is_empty() { Ok(Duration::ZERO) } else { parse::duration(text) }
}

/// What was refused after all, beside the field that it is about.
pub(super) fn mistakes_of(problem: &Problem) -> Mistakes {
    let is_name = problem.status == axum::http::StatusCode::CONFLICT;
    Mistakes::from([(if is_name { "name" } else { "" }, problem.detail.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed() -> Typed {
        Typed {
            name: "nightly".into(),
            rule: "0 3 * * *".into(),
            class: "tidy".into(),
            ..Typed::default()
        }
    }

    #[test]
    fn what_is_typed_becomes_a_schedule_and_comes_back() {
        let typed = Typed {
            zone: "Europe/Paris".into(),
            parameters: "{\n  \"n\": 1.50\n}".into(),
            queue: "mail".into(),
            priority: "-5".into(),
            missed: "all".into(),
            missed_max: "7".into(),
            overlap: "wait".into(),
            jitter: "1m 30s".into(),
            ..typed()
        };
        let definition = typed.schedule(None, &Secrets::default()).unwrap().definition().unwrap();
        assert_eq!(definition.task_parameters.as_str().replace([' ', '\n'], ""), "{\"n\":1.50}");
        assert_eq!((definition.missed, definition.overlap), (Missed::All(7), Overlap::Wait));
        assert_eq!((definition.queue.as_str(), definition.priority), ("mail", -5));
        assert_eq!(definition.jitter, Duration::from_secs(90));
        let again = Typed::of("nightly", &definition);
        assert_eq!(again, Typed { jitter: again.jitter.clone(), ..typed });
        let old = Old { stored: definition.clone(), shown: definition.clone() };
        let same = again.schedule(Some(&old), &Secrets::default()).unwrap();
        assert_eq!(same.definition().unwrap(), definition);
    }

    #[test]
    fn the_context_and_untouched_parameters_stay_as_they_are() {
        let none = Secrets::default();
        let mut stored = typed().schedule(None, &none).unwrap().definition().unwrap();
        stored.context = Json::parse(r#"{"correlation_id":"x"}"#).unwrap();
        stored.task_parameters = Json::parse(r#"{ "n" : 12345678901234567890123 }"#).unwrap();
        let old = Old { shown: stored.clone(), stored };
        let form = Typed { queue: "mail".into(), ..Typed::of("nightly", &old.shown) };
        let new = form.schedule(Some(&old), &none).unwrap().definition().unwrap();
        assert_eq!(new.context, old.stored.context);
        assert_eq!(new.task_parameters, old.stored.task_parameters);
        assert_eq!(new.queue, "mail");
    }

    #[test]
    fn a_secret_is_kept_or_typed_anew_and_never_written_as_it_is_shown() {
        let none = Secrets::default();
        let mut stored = typed().schedule(None, &none).unwrap().definition().unwrap();
        stored.task_parameters = Json::parse(r#"{"key":"hunter22","n":1}"#).unwrap();
        let mut shown = stored.clone();
        shown.task_parameters = Json::parse(r#"{"key":"[secret]","n":1}"#).unwrap();
        let old = Old { stored, shown };
        let form = Typed::of("nightly", &old.shown);
        assert!(!form.parameters.contains("hunter22"));
        let kept = form.schedule(Some(&old), &none).unwrap().definition().unwrap();
        assert_eq!(kept.task_parameters, old.stored.task_parameters);
        let touched = Typed { parameters: form.parameters.replace('1', "2"), ..form.clone() };
        let mistakes = touched.schedule(Some(&old), &none).unwrap_err();
        assert_eq!(mistakes.keys().collect::<Vec<_>>(), [&"parameters"]);
        let anew = Typed { parameters: r#"{"key":"other","n":2}"#.into(), ..form };
        assert!(anew.schedule(Some(&old), &none).is_ok());
    }

    #[test]
    fn all_mistakes_come_at_once_each_at_its_field() {
        let wrong = Typed {
            name: String::new(),
            rule: "0 25 * * *".into(),
            zone: "Mars/Base".into(),
            class: String::new(),
            parameters: "[1]".into(),
            queue: "x".repeat(201),
            priority: "high".into(),
            missed: "all".into(),
            missed_max: "0".into(),
            overlap: "maybe".into(),
            jitter: "soon".into(),
        };
        let mistakes = wrong.schedule(None, &Secrets::default()).unwrap_err();
        let fields: Vec<_> = mistakes.keys().copied().collect();
        assert_eq!(
            fields,
            [
                "class",
                "jitter",
                "missed",
                "name",
                "overlap",
                "parameters",
                "priority",
                "queue",
                "rule",
                "zone"
            ],
            "{mistakes:?}"
        );
        for (typed, field) in [
            (Typed { rule: "0 0 31 2 *".into(), ..typed() }, "rule"),
            (Typed { rule: String::new(), ..typed() }, "rule"),
            (Typed { zone: "Mars/Base".into(), ..typed() }, "zone"),
            (Typed { queue: "\u{1}".into(), ..typed() }, "queue"),
            (Typed { jitter: "2 days".into(), ..typed() }, "jitter"),
            (Typed { jitter: "-5s".into(), ..typed() }, "jitter"),
            (Typed { name: "x".repeat(201), ..typed() }, "name"),
        ] {
            let mistakes = typed.schedule(None, &Secrets::default()).unwrap_err();
            assert_eq!(mistakes.keys().collect::<Vec<_>>(), [&field], "{mistakes:?}");
        }
    }
}
