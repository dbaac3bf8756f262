//! Checks parameters by the JSON Schemas that live engines publish.
//!
//! The command line, the HTTP API and the dashboard check before they create or change
//! something. Creation by SQL and in Rust does not: it works without an engine, and in a
//! transaction.
//!
//! A schema comes from a worker, so it may be anything. A `$ref` to another document is never
//! fetched, patterns have a limit of steps, and a schema that cannot be used is no schema.

mod complexity;
mod message;
pub mod outline;
pub mod types;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use task_engine_core::instance::InstanceRow;
use task_engine_core::json::Json;
use task_engine_core::schedule::ScheduleDefinition;
use task_engine_core::schema::Schema;
use task_engine_core::secret::Secrets;
use task_engine_core::task::NewTask;

use crate::operator::{OperationError, Operator};

/// The error of parameters that fit no schema of their class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("class {class} does not accept these parameters: {why}")]
pub struct InvalidParameters {
    /// The class.
    pub class: String,
    /// What is wrong first, as a JSON pointer in the parameters.
    pub pointer: String,
    /// What is wrong, with the pointers.
    pub why: String,
}

/// The schemas of classes, as live engines publish them.
#[derive(Debug, Clone, Default)]
pub struct Schemas(BTreeMap<String, Vec<PublishedSchema>>);

/// A schema of a class, and the engines that publish it.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedSchema {
    /// The schema.
    pub schema: Schema,
    /// The names of the engines.
    pub engines: Vec<String>,
}

impl PublishedSchema {
    /// Returns why the schema cannot be used, if it cannot.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        compiled(&self.schema).as_ref().as_ref().err().cloned()
    }
}

impl Schemas {
    /// Returns the schemas of the live ones of these engines.
    ///
    /// The newest engine comes first.
    #[must_use]
    pub fn of(engines: &[InstanceRow]) -> Self {
        let mut classes: BTreeMap<String, Vec<PublishedSchema>> = BTreeMap::new();
        for engine in engines.iter().filter(|engine| engine.is_alive()) {
            for (class, options) in &engine.classes {
                let Some(schema) = &options.schema else { continue };
                let known = classes.entry(class.clone()).or_default();
                match known.iter_mut().find(|one| one.schema == *schema) {
                    Some(one) => one.engines.push(engine.name.clone()),
                    None => known.push(PublishedSchema {
                        schema: schema.clone(),
                        engines: vec![engine.name.clone()],
                    }),
                }
            }
        }
        Self(classes)
    }

    /// Returns the classes that have schemas.
    pub fn classes(&self) -> impl Iterator<Item = (&str, &[PublishedSchema])> {
        self.0.iter().map(|(class, schemas)| (class.as_str(), schemas.as_slice()))
    }

    /// Returns the schemas of a class; several during a deployment.
    #[must_use]
    pub fn of_class(&self, class: &str) -> &[PublishedSchema] {
        self.0.get(class).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest schema of a class that can be used.
    #[must_use]
    pub fn newest(&self, class: &str) -> Option<&Schema> {
        let usable = self.of_class(class).iter().find(|one| one.error().is_none());
        usable.map(|one| &one.schema)
    }

    /// Returns why schemas of a class cannot be used, as sentences.
    #[must_use]
    pub fn warnings(&self, class: &str) -> Vec<String> {
        let unusable = self.of_class(class).iter().filter_map(|one| Some((one.error()?, one)));
        let sentence = |(why, one): (String, &PublishedSchema)| {
            let engines = one.engines.join(", ");
            format!("The schema of class {class} that {engines} publishes cannot be used: {why}.")
        };
        unusable.map(sentence).collect()
    }

    /// Checks the parameters of a new task.
    ///
    /// They must fit one of the schemas: during a deployment, engines of both versions are alive.
    pub fn check_task(&self, task: &NewTask, secrets: &Secrets) -> Result<(), InvalidParameters> {
        self.check(&task.class, &task.parameters, &task.context, secrets)
    }

    /// Checks parameters.
    ///
    /// The context may name further secrets, which the error does not show.
    pub fn check(
        &self,
        class: &str,
        parameters: &Json,
        context: &Json,
        secrets: &Secrets,
    ) -> Result<(), InvalidParameters> {
        let Some(schemas) = self.0.get(class) else { return Ok(()) };
        // A number that is too large for the check.
        let Ok(value) = parameters.decode::<Value>() else { return Ok(()) };
        let levels = complexity::levels(&value);
        let mut first = None;
        for one in schemas {
            let compiled = compiled(&one.schema);
            let Ok(usable) = &*compiled else { continue };
            if usable.has_references && !complexity::is_bounded(one.schema.as_value(), levels) {
                return Ok(());
            }
            let errors = message::errors(&usable.validator, one.schema.as_value(), &value);
            if errors.is_empty() {
                return Ok(());
            }
            first.get_or_insert(errors);
        }
        let Some(errors) = first else { return Ok(()) };
        let redactor = secrets.redactor(class, parameters, context);
        let (pointer, why) = message::text(&errors, &redactor);
        Err(InvalidParameters { class: class.to_owned(), pointer, why })
    }
}

impl Operator {
    /// Sets whether parameters are checked by the schemas of classes.
    ///
    /// They are by default.
    #[must_use]
    pub fn checking_parameters(mut self, check: bool) -> Self {
        self.checks_parameters = check;
        self
    }

    /// Checks new parameters, unless the actor does not want it.
    pub(crate) fn check_parameters(
        &self,
        engines: &[InstanceRow],
        class: &str,
        parameters: &Json,
        context: &Json,
    ) -> Result<(), OperationError> {
        if !self.checks_parameters {
            return Ok(());
        }
        let (schemas, secrets) = (Schemas::of(engines), Secrets::of(engines));
        schemas.check(class, parameters, context, &secrets).map_err(|invalid| invalid.at(""))
    }

    /// Checks the parameters of a schedule.
    pub(crate) fn check_schedule(
        &self,
        engines: &[InstanceRow],
        definition: &ScheduleDefinition,
    ) -> Result<(), OperationError> {
        let ScheduleDefinition { class, parameters, context, .. } = definition;
        self.check_parameters(engines, class, parameters, context)
    }
}

impl InvalidParameters {
    /// Returns the error of a request; `pointer` is the task in it.
    #[must_use]
    pub fn at(self, pointer: &str) -> OperationError {
        OperationError::Parameters {
            pointer: format!("{pointer}/parameters{}", self.pointer),
            invalid: self,
        }
    }
}

/// A schema that can be used.
struct UsableSchema {
    validator: Validator,
    has_references: bool,
}

type Compiled = Arc<Result<UsableSchema, String>>;

/// The last schemas that were compiled. To compile one takes longer than to check by it.
static COMPILED: Mutex<VecDeque<(Schema, Compiled)>> = Mutex::new(VecDeque::new());
const COMPILED_MAX: usize = 64;
/// Steps of a pattern with back references, and bytes of a compiled pattern.
const PATTERN_STEPS_MAX: usize = 100_000;
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

fn compiled(schema: &Schema) -> Compiled {
    let mut known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, compiled)) = known.iter().find(|(one, _)| one == schema) {
        return compiled.clone();
    }
    let compiled = Arc::new(compile(schema.as_value()));
    if let Err(why) = &*compiled {
        tracing::warn!("the schema of a class cannot be used, so nothing is checked by it: {why}");
    }
    if known.len() >= COMPILED_MAX {
        known.pop_front();
    }
    known.push_back((schema.clone(), compiled.clone()));
    compiled
}

fn compile(schema: &Value) -> Result<UsableSchema, String> {
    let has_references = complexity::inspect(schema).map_err(|why| message::brief_line(&why))?;
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(PATTERN_STEPS_MAX)
        .size_limit(PATTERN_BYTES_MAX);
    let validator = jsonschema::options().offline().with_pattern_options(patterns).build(schema);
    let validator = validator.map_err(|error| message::brief_line(&error.to_string()))?;
    Ok(UsableSchema { validator, has_references })
}

#[cfg(test)]
mod tests;
