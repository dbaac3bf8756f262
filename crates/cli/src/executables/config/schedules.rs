//! Regular tasks in the file: `[schedule.NAME]`.

use serde_json::{Map, Number, Value as Json};
use task_engine::{NewTask, Schedule};
use task_engine_core::ParseError;
use task_engine_core::json::Json as Text;
use task_engine_core::schedule::InvalidDefinition;
use toml::de::{DeTable, DeValue};

use super::values::{Key, Value, entry, nearest};
use super::{Executable, Reader};
use task_engine_core::retry::DELAY_MAX;

const SCHEDULE_KEYS: [&str; 10] = [
    "class",
    "cron",
    "every",
    "time_zone",
    "parameters",
    "queue",
    "priority",
    "missed",
    "overlap",
    "jitter",
];

impl Reader<'_> {
    pub(super) fn schedule(
        &mut self,
        name: &Key<'_>,
        table: &DeTable<'_>,
        classes: &[Executable],
    ) -> Option<Schedule> {
        self.unknown_keys(table, &SCHEDULE_KEYS, "see `task-engine start --help`");
        let before = self.mistakes.len();
        let task = self.task(name, table, classes);
        let schedule = self.times(name, table);
        let time_zone = self.text_of(table, "time_zone");
        let missed = self.word(table, "missed");
        let overlap = self.word(table, "overlap");
        let jitter = self.duration(table, "jitter", DELAY_MAX);
        if self.mistakes.len() > before {
            return None;
        }
        let mut schedule = schedule?.new_task(task?);
        if let Some(zone) = time_zone {
            schedule = schedule.time_zone(zone);
        }
        if let Some(missed) = missed {
            schedule = schedule.missed(missed);
        }
        if let Some(overlap) = overlap {
            schedule = schedule.overlap(overlap);
        }
        if let Some(jitter) = jitter {
            schedule = schedule.jitter(jitter);
        }
        match schedule.definition() {
            Ok(_) => Some(schedule),
            Err(error) => {
                let keys: &[&str] = match &error.why {
                    InvalidDefinition::Rule(_) | InvalidDefinition::Never(_) => &["cron", "every"],
                    InvalidDefinition::Zone(_) => &["time_zone"],
                    InvalidDefinition::Jitter => &["jitter"],
                    InvalidDefinition::Missed => &["missed"],
                    _ => &[],
                };
                let place = keys.iter().find_map(|key| entry(table, key));
                let place = place.map_or(name.span(), |(_, value)| value.span());
                self.mistake(place, error.why.to_string());
                None
            }
        }
    }

    /// When it fires.
    fn times(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> Option<Schedule> {
        let schedule = name.get_ref().to_string();
        match (entry(table, "cron"), entry(table, "every")) {
            (Some((_, cron)), None) => Some(Schedule::cron(schedule, self.text(cron, "cron")?)),
            (None, Some(_)) => {
                Some(Schedule::every(schedule, self.duration(table, "every", DELAY_MAX)?))
            }
            (Some(_), Some((key, _))) => {
                self.mistake(key.span(), "a schedule has cron or every, not both");
                None
            }
            (None, None) => {
                let message = format!(
                    "schedule {schedule} never runs; write cron = \"0 3 * * *\" or every = \"15m\""
                );
                self.mistake(name.span(), message);
                None
            }
        }
    }

    /// What it creates: in the queue and with the priority of its class, unless it
    /// says otherwise.
    fn task(
        &mut self,
        name: &Key<'_>,
        table: &DeTable<'_>,
        classes: &[Executable],
    ) -> Option<NewTask> {
        let Some((_, value)) = entry(table, "class") else {
            let message =
                format!("schedule {} has no class; write class = \"NAME\"", name.get_ref());
            self.mistake(name.span(), message);
            return None;
        };
        let class = self.text(value, "class")?;
        let known = classes.iter().find(|one| one.class == class);
        if known.is_none() {
            // A class of another engine is as good; a slip of the pen is not.
            let names: Vec<&str> = classes.iter().map(|one| one.class.as_str()).collect();
            if let Some(near) = nearest(&class, &names) {
                let message = format!("class {class:?} is not in this file; did you mean {near}?");
                self.mistake(value.span(), message);
            }
        }
        let rules = known.map(Executable::rules).unwrap_or_default();
        let parameters = match entry(table, "parameters") {
            None => Text::empty_object(),
            Some((_, value)) => self.parameters(value)?,
        };
        let queue = self.queue(table).unwrap_or(rules.queue);
        let priority = self.whole(table, "priority", i32::MIN.into(), i32::MAX.into());
        let task = NewTask::new(class, parameters)
            .and_then(|task| task.queue(queue))
            .and_then(|task| task.secret(&rules.secret));
        match task {
            Ok(task) => Some(task.priority(priority.unwrap_or(rules.priority))),
            Err(error) => {
                self.mistake(value.span(), error.to_string());
                None
            }
        }
    }

    fn parameters(&mut self, value: &Value<'_>) -> Option<Text> {
        self.table(value, "parameters")?;
        let json = self.json(value)?;
        match Text::encode_object(&json) {
            Ok(text) => Some(text),
            Err(error) => {
                self.mistake(value.span(), error.to_string());
                None
            }
        }
    }

    /// The same value in JSON. Times become texts, as JSON has none.
    fn json(&mut self, value: &Value<'_>) -> Option<Json> {
        let number = |number: Option<Number>| number.map(Json::Number);
        let json = match value.get_ref() {
            DeValue::String(text) => Some(Json::String(text.to_string())),
            DeValue::Boolean(yes) => Some(Json::Bool(*yes)),
            DeValue::Datetime(time) => Some(Json::String(time.to_string())),
            DeValue::Integer(digits) => {
                let whole = i64::from_str_radix(digits.as_str(), digits.radix());
                number(whole.ok().map(Number::from))
            }
            DeValue::Float(digits) => {
                number(digits.as_str().parse().ok().and_then(Number::from_f64))
            }
            DeValue::Array(list) => {
                return list.iter().map(|value| self.json(value)).collect::<Option<_>>();
            }
            DeValue::Table(table) => {
                let pairs = table.iter();
                let pairs =
                    pairs.map(|(key, value)| Some((key.get_ref().to_string(), self.json(value)?)));
                return pairs.collect::<Option<Map<_, _>>>().map(Json::Object);
            }
        };
        if json.is_none() {
            self.mistake(value.span(), "JSON has no such number");
        }
        json
    }

    fn text_of(&mut self, table: &DeTable<'_>, key: &str) -> Option<String> {
        let (_, value) = entry(table, key)?;
        self.text(value, key)
    }

    /// One of a few words.
    fn word<T: std::str::FromStr<Err = ParseError>>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
    ) -> Option<T> {
        let (_, value) = entry(table, key)?;
        match self.text(value, key)?.parse() {
            Ok(word) => Some(word),
            Err(error) => {
                self.mistake(value.span(), format!("{key}: {error}"));
                None
            }
        }
    }
}
