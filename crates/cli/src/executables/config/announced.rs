//! Classes that workers announce, as if the file contained them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use task_engine_core::display::brief;
use task_engine_core::suggest::did_you_mean;
use toml::Table;

use super::{Config, ConfigPurpose, Executable, Worker, parse};
use crate::executables::announcement::Announcement;

/// A file with workers that announce their classes. It was read without errors.
#[derive(Debug, Clone)]
pub(in crate::executables) struct AnnouncingFile {
    text: String,
    folder: PathBuf,
    purpose: ConfigPurpose,
    /// The workers without `classes`.
    pub(in crate::executables) workers: Vec<Arc<Worker>>,
}

impl AnnouncingFile {
    pub(super) fn new(
        text: &str,
        folder: &Path,
        purpose: ConfigPurpose,
        workers: Vec<Arc<Worker>>,
    ) -> Self {
        Self { text: text.to_owned(), folder: folder.to_owned(), purpose, workers }
    }

    /// The file with the classes that its workers announced, in the order of `workers`.
    /// What the file says takes precedence.
    pub(in crate::executables) fn with(
        &self,
        announcements: &[Announcement],
    ) -> Result<Config, Vec<String>> {
        let mut file: Table =
            toml::from_str(&self.text).map_err(|error| vec![error.to_string()])?;
        let mut errors = Vec::new();
        for (worker, announcement) in self.workers.iter().zip(announcements) {
            if let Err(why) = add(&mut file, &worker.name, announcement) {
                errors.push(format!("worker {}: {why}", worker.name));
            }
        }
        if self.purpose != ConfigPurpose::Listen {
            errors.extend(unserved(&file, announcements));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let schemas = announcements.iter().flat_map(|announcement| &announcement.classes);
        let schemas: Vec<_> =
            schemas.filter_map(|(name, class)| Some((name, class.schema.clone()?))).collect();
        let text = toml::to_string(&file).map_err(|error| vec![error.to_string()])?;
        let mut config = parse(&text, &self.folder, self.purpose)
            .map_err(|errors| errors.into_iter().map(|error| error.message).collect::<Vec<_>>())?;
        for (name, schema) in schemas {
            if let Some(class) = config.classes.iter_mut().find(|class| class.class == *name) {
                class.schema = Some(schema);
            }
        }
        Ok(config)
    }
}

/// The classes of a worker that connects. `options` are those of the engine's file,
/// which take precedence.
pub(in crate::executables) fn connected(
    name: &str,
    announcement: &Announcement,
    options: &Table,
) -> Result<Vec<Executable>, Vec<String>> {
    let class = announcement.classes.keys();
    let class: Table =
        class.filter_map(|name| Some((name.clone(), options.get(name)?.clone()))).collect();
    let command = Table::from_iter([("command".to_owned(), vec!["connected"].into())]);
    let worker = Table::from_iter([(name.to_owned(), command.into())]);
    let tables = [("class".to_owned(), class.into()), ("worker".to_owned(), worker.into())];
    let text = toml::to_string(&Table::from_iter(tables)).map_err(|why| vec![why.to_string()])?;
    let worker = Arc::new(Worker { name: name.to_owned(), ..Worker::default() });
    // Its program is on another machine.
    let file = AnnouncingFile::new(&text, Path::new("/"), ConfigPurpose::Create, vec![worker]);
    Ok(file.with(std::slice::from_ref(announcement))?.classes)
}

/// The classes of a file that have neither a program nor a worker: options for those
/// that a worker announces.
pub(super) fn options(text: &str) -> Table {
    let file: Table = toml::from_str(text).unwrap_or_default();
    let classes = file.get("class").and_then(toml::Value::as_table).cloned().unwrap_or_default();
    classes.into_iter().filter(|(_, class)| is_unserved(class)).collect()
}

fn is_unserved(class: &toml::Value) -> bool {
    class.get("command").is_none() && class.get("worker").is_none()
}

fn add(file: &mut Table, worker: &str, announcement: &Announcement) -> Result<(), String> {
    let names = announcement.classes.keys().map(|name| toml::Value::from(name.clone())).collect();
    let classes = subtable(file, "class")?;
    for (name, class) in &announcement.classes {
        let quoted = brief(name, 40);
        let known = subtable(classes, name)?;
        for key in ["command", "worker"] {
            if known.contains_key(key) {
                return Err(format!(
                    "it announces the class {quoted}, which has a {key} in the file; remove one of them"
                ));
            }
        }
        for (key, value) in &class.options {
            let value = toml_value(value)
                .map_err(|why| format!("the class {quoted} has the option {key} with {why}"))?;
            let Some(value) = value else { continue };
            merge(known, key, value);
        }
    }
    let worker = subtable(subtable(file, "worker")?, worker)?;
    worker.insert("classes".to_owned(), toml::Value::Array(names));
    if let Some(concurrency) = announcement.concurrency {
        let concurrency = i64::try_from(concurrency).unwrap_or(i64::MAX);
        worker.entry("concurrency").or_insert(concurrency.into());
    }
    Ok(())
}

/// Sets a value unless the file has it; of tables, each value.
fn merge(into: &mut Table, key: &str, value: toml::Value) {
    match (into.get_mut(key), value) {
        (None, value) => {
            into.insert(key.to_owned(), value);
        }
        (Some(toml::Value::Table(known)), toml::Value::Table(values)) => {
            for (key, value) in values {
                merge(known, &key, value);
            }
        }
        (Some(_), _) => {}
    }
}

/// Classes of the file that have neither a program nor a worker.
fn unserved(file: &Table, announcements: &[Announcement]) -> Vec<String> {
    let announced = || announcements.iter().flat_map(|one| one.classes.keys().map(String::as_str));
    let classes = file.get("class").and_then(toml::Value::as_table).into_iter().flatten();
    let lost = classes.filter(|(name, class)| {
        is_unserved(class) && !announced().any(|known| known == name.as_str())
    });
    let sentence = |(name, _): (&String, _)| {
        let hint = did_you_mean(name, announced());
        format!("class {} has no command, and no worker announces it{hint}", brief(name, 40))
    };
    lost.map(sentence).collect()
}

fn subtable<'a>(table: &'a mut Table, key: &str) -> Result<&'a mut Table, String> {
    let value = table.entry(key).or_insert_with(|| toml::Value::Table(Table::new()));
    value.as_table_mut().ok_or_else(|| format!("{} is not a table", brief(key, 40)))
}

/// `None` for null: an option that is not set.
fn toml_value(value: &Value) -> Result<Option<toml::Value>, String> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.clone().into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(number)) => number.into(),
            (None, None) => return Err(format!("the number {number}, which is too large")),
        },
        Value::Array(values) => {
            let values: Result<Vec<_>, String> =
                values.iter().map(|value| Ok(toml_value(value)?.into_iter())).collect();
            toml::Value::Array(values?.into_iter().flatten().collect())
        }
        Value::Object(values) => {
            let mut table = Table::new();
            for (key, value) in values {
                if let Some(value) = toml_value(value)? {
                    table.insert(key.clone(), value);
                }
            }
            toml::Value::Table(table)
        }
    }))
}
