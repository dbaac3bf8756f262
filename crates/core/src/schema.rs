//! The JSON Schema of the parameters of a class.
//!
//! An engine publishes it with the options of the class
//! ([`TaskOptions::schema`](crate::task::TaskOptions::schema)), and only the schemas of live
//! engines count. This crate stores a schema and does not read it: the operations check
//! parameters by it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::json::{InvalidJson, Json};
use crate::task::TaskOptions;

/// The longest schema of a class, in bytes.
pub const BYTES_MAX: usize = 64 * 1024;
/// The most bytes of all schemas of an engine.
///
/// They are part of its row, which heartbeats update and lists of engines read.
pub const ENGINE_BYTES_MAX: usize = 256 * 1024;
/// The deepest nesting: a schema is stored two levels below the top.
const DEPTH_MAX: usize = crate::json::DEPTH_MAX - 2;

/// The JSON Schema of the parameters of a class, as an object of JSON.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use serde_json::json;
/// use task_engine::TaskOptions;
///
/// let schema = json!({
///     "type": "object",
///     "properties": {"to": {"type": "string"}},
///     "required": ["to"],
/// });
/// let options = TaskOptions::default().schema(schema);
/// # assert!(options.schema.is_some());
/// ```
#[derive(Clone, PartialEq)]
pub struct Schema(Arc<Value>);

/// The reason why an engine does not publish a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSchema {
    /// The schema is not a JSON object.
    #[error("it is not an object")]
    NotAnObject,
    /// The schema is longer than [`BYTES_MAX`]: make it shorter.
    #[error("it has {0} bytes, and at most {BYTES_MAX} are published")]
    TooLong(usize),
    /// All schemas of the engine together are longer than [`ENGINE_BYTES_MAX`].
    #[error("the schemas of an engine have at most {ENGINE_BYTES_MAX} bytes together")]
    TooLongTogether,
    /// The schema is nested too deep.
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The schema contains text that cannot be stored.
    #[error("{0}")]
    Json(InvalidJson),
}

impl Schema {
    /// Returns the schema of the JSON that a Rust type reads.
    #[cfg(feature = "schemars")]
    #[must_use]
    pub fn of<T: schemars::JsonSchema>() -> Self {
        Self::from(schemars::schema_for!(T).to_value())
    }

    /// Returns the schema.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// Returns whether an engine may publish it, and its length.
    pub fn check(&self) -> Result<usize, InvalidSchema> {
        if !self.0.is_object() {
            return Err(InvalidSchema::NotAnObject);
        }
        if depth(&self.0) > DEPTH_MAX {
            return Err(InvalidSchema::TooDeep);
        }
        let bytes = Json::encode(&*self.0).map_err(InvalidSchema::Json)?.as_str().len();
        if bytes > BYTES_MAX { Err(InvalidSchema::TooLong(bytes)) } else { Ok(bytes) }
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Reads any value, so that the options beside it can be read as well.
impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::from)
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(Arc::new(value))
    }
}

impl From<&Json> for Schema {
    fn from(json: &Json) -> Self {
        Self::from(json.decode().unwrap_or(Value::Null))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Removes the schemas that an engine cannot publish, and returns the reasons by class.
pub fn remove_invalid(classes: &mut BTreeMap<String, TaskOptions>) -> Vec<(String, InvalidSchema)> {
    let (mut removed, mut left) = (Vec::new(), ENGINE_BYTES_MAX);
    for (class, options) in classes {
        let Some(schema) = &options.schema else { continue };
        let fits = schema.check().and_then(|bytes| {
            left.checked_sub(bytes).map(|rest| left = rest).ok_or(InvalidSchema::TooLongTogether)
        });
        if let Err(why) = fits {
            options.schema = None;
            removed.push((class.clone(), why));
        }
    }
    removed
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Schema {
        (1..levels).fold(json!({}), |inner, _| json!({ "not": inner })).into()
    }

    #[test]
    fn only_storable_schemas_are_published() {
        let of_length = |bytes: usize| Schema::from(json!({"a": "x".repeat(bytes - 8)}));
        assert_eq!(of_length(BYTES_MAX).check(), Ok(BYTES_MAX));
        assert_eq!(of_length(BYTES_MAX + 1).check(), Err(InvalidSchema::TooLong(BYTES_MAX + 1)));
        assert!(nested(DEPTH_MAX).check().is_ok());
        assert_eq!(nested(DEPTH_MAX + 1).check(), Err(InvalidSchema::TooDeep));
        assert_eq!(Schema::from(json!(true)).check(), Err(InvalidSchema::NotAnObject));
        let unstorable = Schema::from(json!({"pattern": "\u{0}"})).check();
        assert!(matches!(unstorable, Err(InvalidSchema::Json(_))), "{unstorable:?}");
    }

    #[test]
    fn options_without_their_schema_are_published() {
        let with = |schema: Value| TaskOptions::default().priority(7).schema(schema);
        let large = json!({"description": "x".repeat(60_000)});
        let mut classes: BTreeMap<_, _> =
            (0..6).map(|n| (format!("class {n}"), with(large.clone()))).collect();
        classes.insert("a".to_owned(), with(json!([])));
        let removed = remove_invalid(&mut classes);
        let names: Vec<_> = removed.iter().map(|(class, _)| class.as_str()).collect();
        assert_eq!(names, ["a", "class 4", "class 5"]);
        assert_eq!(removed[1].1, InvalidSchema::TooLongTogether);
        assert!(classes.values().all(|options| options.priority == 7));
        assert_eq!(classes.values().filter(|options| options.schema.is_some()).count(), 4);
    }

    #[test]
    fn options_are_read_with_any_schema() {
        let read = |schema: Value| {
            let text = json!({"priority": 3, "schema": schema}).to_string();
            serde_json::from_str::<TaskOptions>(&text).expect("options")
        };
        for schema in [json!({"type": "object"}), json!(true), json!([1]), json!("x")] {
            let options = read(schema.clone());
            assert_eq!(options.priority, 3);
            assert_eq!(options.schema, Some(schema.into()));
        }
        assert_eq!(read(Value::Null).schema, None);
        let text = serde_json::to_string(&TaskOptions::default()).unwrap();
        assert!(!text.contains("schema"), "{text}");
    }
}
