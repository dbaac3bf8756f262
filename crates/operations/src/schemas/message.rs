//! What is wrong with parameters, as sentences. They contain names and what the schema
//! says, and no values: these may be secret.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::Value;
use task_engine_core::display::brief;
use task_engine_core::json::Json;
use task_engine_core::secret::{PLACEHOLDER, Redactor};
use task_engine_core::suggest::did_you_mean;

use crate::fields::escaped;

/// More errors are not shown.
const ERRORS_MAX: usize = 5;
const MESSAGE_CHARS_MAX: usize = 300;
const POINTER_CHARS_MAX: usize = 300;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaError {
    /// A JSON pointer in the parameters.
    pub(super) pointer: String,
    pub(super) why: String,
    /// Whether the pointer names a field that is not there.
    missing: bool,
}

/// The first errors. Empty if the parameters fit.
pub(super) fn errors(
    validator: &Validator,
    schema: &Value,
    parameters: &Value,
) -> Vec<SchemaError> {
    if validator.is_valid(parameters) {
        return Vec::new();
    }
    // A pattern that takes too long says nothing about the parameters.
    let is_about = |error: &ValidationError<'_>| {
        !matches!(
            error.kind(),
            Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. }
        )
    };
    let errors = validator.iter_errors(parameters).filter(is_about);
    errors.flat_map(|error| of_error(&error, schema)).take(ERRORS_MAX).collect()
}

/// The pointer of the first error, and all of them as a text, without secrets.
pub(super) fn text(errors: &[SchemaError], redactor: &Redactor) -> (String, String) {
    let shown: Vec<(String, String)> = errors.iter().map(|one| visible(one, redactor)).collect();
    let mut lines: Vec<String> = Vec::new();
    for (pointer, why) in &shown {
        let line = if pointer.is_empty() { why.clone() } else { format!("{pointer}: {why}") };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let first = shown.into_iter().next().map(|(pointer, _)| pointer).unwrap_or_default();
    (first, lines.join("; "))
}

/// An error as everyone may see it. Within a secret, even names and lengths are hidden.
fn visible(error: &SchemaError, redactor: &Redactor) -> (String, String) {
    let hidden = redactor.parameters().and_then(|redacted| secret_at(redacted, error));
    match hidden {
        Some(pointer) => {
            (pointer, "it does not fit the schema (it is secret, so no details are shown)".into())
        }
        None => (
            redactor.text(&brief(&error.pointer, POINTER_CHARS_MAX)).into_owned(),
            redactor.text(&error.why).into_owned(),
        ),
    }
}

/// The pointer to the secret that contains the place of an error.
fn secret_at(redacted: &Json, error: &SchemaError) -> Option<String> {
    let mut value = redacted.decode::<Value>().ok()?;
    let mut seen = String::new();
    let mut steps = error.pointer.split('/').skip(1).peekable();
    loop {
        if value.as_str() == Some(PLACEHOLDER) {
            return Some(seen);
        }
        let step = steps.next()?;
        let name = step.replace("~1", "/").replace("~0", "~");
        let inner = match &mut value {
            Value::Object(fields) => fields.remove(&name),
            Value::Array(items) => {
                name.parse().ok().and_then(|at: usize| items.get_mut(at)).map(Value::take)
            }
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            // A name that is not there, or one that is a secret itself.
            None if steps.peek().is_none() && error.missing => return None,
            None => return Some(seen),
        }
        seen = format!("{seen}/{step}");
    }
}

fn of_error(error: &ValidationError<'_>, schema: &Value) -> Vec<SchemaError> {
    let pointer = error.instance_path().to_string();
    let at = |why: String| vec![SchemaError { pointer: pointer.clone(), why, missing: false }];
    let field = |name: &str, why: String, missing: bool| SchemaError {
        pointer: format!("{pointer}/{}", escaped(name)),
        why,
        missing,
    };
    match error.kind() {
        Kind::Type { kind } => at(expected(&types(kind), error.instance())),
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![field(name, "the field is missing".to_owned(), true)]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = known_fields(error, schema);
            let hint = |name: &str| did_you_mean(name, known.iter().map(String::as_str));
            let unknown = unexpected.iter();
            unknown.map(|name| field(name, format!("unknown field{}", hint(name)), false)).collect()
        }
        Kind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let list: Vec<String> = options.iter().map(Value::to_string).collect();
            at(brief(&format!("expected one of {}", list.join(", ")), MESSAGE_CHARS_MAX))
        }
        Kind::Constant { expected_value } => {
            at(brief(&format!("expected {expected_value}"), MESSAGE_CHARS_MAX))
        }
        Kind::FalseSchema => at("nothing is allowed here".to_owned()),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            alternatives(context, error, schema).unwrap_or_else(|| at(masked(error)))
        }
        _ => at(masked(error)),
    }
}

/// The errors of the alternative that fits best, or the types that all alternatives expect.
fn alternatives(
    context: &[Vec<ValidationError<'static>>],
    error: &ValidationError<'_>,
    schema: &Value,
) -> Option<Vec<SchemaError>> {
    let place = error.instance_path();
    let mut expected_types: Vec<&str> = Vec::new();
    let mut others = Vec::new();
    for errors in context {
        let own_type = errors
            .iter()
            .find(|one| matches!(one.kind(), Kind::Type { .. }) && one.instance_path() == place);
        match own_type.map(ValidationError::kind) {
            Some(Kind::Type { kind }) => {
                let new: Vec<_> = types(kind);
                expected_types.extend(new);
            }
            _ => others.push(errors),
        }
    }
    match &others[..] {
        [] => {
            expected_types.dedup();
            let why = expected(&expected_types, error.instance());
            Some(vec![SchemaError { pointer: place.to_string(), why, missing: false }])
        }
        // All others are of another type.
        [errors] => Some(errors.iter().flat_map(|one| of_error(one, schema)).collect()),
        _ => None,
    }
}

/// The message of the library, without values.
fn masked(error: &ValidationError<'_>) -> String {
    brief_line(&error.masked_with("the value").to_string())
}

/// In one line, and not too long.
pub(super) fn brief_line(text: &str) -> String {
    brief(&text.split_whitespace().collect::<Vec<_>>().join(" "), MESSAGE_CHARS_MAX)
}

fn types(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(one) => vec![type_text(*one)],
        TypeKind::Multiple(all) => all.iter().map(type_text).collect(),
    }
}

fn type_text(of: JsonType) -> &'static str {
    match of {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn expected(types: &[&str], found: &Value) -> String {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    // A fraction where a whole number is expected.
    let also = if found == "a number" && types.contains(&"a whole number") {
        " with a fraction"
    } else {
        ""
    };
    format!("expected {}, found {found}{also}", types.join(" or "))
}

/// The fields that the schema names beside `additionalProperties`.
fn known_fields(error: &ValidationError<'_>, schema: &Value) -> Vec<String> {
    let keyword = error.schema_path().to_string();
    let object = keyword.rsplit_once('/').map_or("", |(object, _)| object);
    let properties = schema.pointer(object).and_then(|object| object.get("properties"));
    let properties = properties.and_then(Value::as_object);
    properties.into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}
