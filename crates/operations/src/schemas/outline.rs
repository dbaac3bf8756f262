//! What a schema says about the fields of the parameters, for people: a list of fields, and
//! an example to fill in.

use std::cell::Cell;

use serde_json::{Map, Value};
use task_engine_core::display::brief;
use task_engine_core::schema::Schema;

/// Deeper types are not written out, and no more references are followed in a row.
const DEPTH_MAX: usize = 8;
const STEPS_MAX: usize = 5_000;
const FIELDS_MAX: usize = 100;
const TEXT_CHARS_MAX: usize = 500;
const CHOICES_SHOWN: usize = 12;

/// A field of the parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaField {
    /// The name.
    pub name: String,
    /// Its type, in words.
    pub kind: String,
    /// Whether it must be there.
    pub required: bool,
    /// What the schema says about it.
    pub description: String,
}

/// Returns the fields of the parameters, the required ones first.
#[must_use]
pub fn fields(schema: &Schema) -> Vec<SchemaField> {
    let outline = Outline::of(schema);
    let root = outline.root;
    let mut fields: Vec<SchemaField> = Vec::new();
    for (name, required, field) in outline.properties(root, 0) {
        if fields.iter().any(|known| known.name == name) {
            continue;
        }
        let target = resolve(root, field);
        let text = |key: &str| {
            let own = field.get(key).or_else(|| target.get(key));
            own.and_then(Value::as_str).map(|text| brief(text.trim(), TEXT_CHARS_MAX))
        };
        let mut description = text("description").or_else(|| text("title")).unwrap_or_default();
        if let Some(default) = field.get("default").or_else(|| target.get("default")) {
            let default = brief(&default.to_string(), 80);
            let space = if description.is_empty() { "" } else { " " };
            description = format!("{description}{space}Default: {default}.");
        }
        fields.push(SchemaField {
            name: name.to_owned(),
            kind: brief(&outline.kind(field, 0), TEXT_CHARS_MAX),
            required,
            description,
        });
    }
    fields.sort_by_key(|field| !field.required);
    fields.truncate(FIELDS_MAX);
    fields
}

/// Parameters with the required fields, to be filled in.
///
/// Not all of them may fit.
#[must_use]
pub fn skeleton(schema: &Schema) -> Value {
    match Outline::of(schema).example(schema.as_value(), 0) {
        object @ Value::Object(_) => object,
        _ => Value::Object(Map::new()),
    }
}

/// Follows references within the schema.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..DEPTH_MAX {
        match at.get("$ref").and_then(Value::as_str).and_then(|to| reference(root, to)) {
            Some(target) => at = target,
            None => break,
        }
    }
    at
}

/// The target of a reference within the schema: `#/$defs/NAME`.
pub(crate) fn reference<'a>(root: &'a Value, to: &str) -> Option<&'a Value> {
    let pointer = to.strip_prefix('#')?;
    let decoded = percent_decoded(pointer)?;
    root.pointer(&decoded)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match tail {
            [high, low, tail @ ..] if *first == b'%' => {
                let digits = std::str::from_utf8(&[*high, *low]).ok()?.to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).ok()?);
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// A schema that is read, and how much of it may still be: its references can be nested.
struct Outline<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

impl<'a> Outline<'a> {
    fn of(schema: &'a Schema) -> Self {
        Self { root: schema.as_value(), steps_left: Cell::new(STEPS_MAX) }
    }

    fn is_too_much(&self, depth: usize) -> bool {
        let left = self.steps_left.get();
        self.steps_left.set(left.saturating_sub(1));
        depth > DEPTH_MAX || left == 0
    }

    /// The properties of an object, also of those that it is composed of.
    fn properties(&self, schema: &'a Value, depth: usize) -> Vec<(&'a str, bool, &'a Value)> {
        if self.is_too_much(depth) {
            return Vec::new();
        }
        let schema = resolve(self.root, schema);
        let is_required = |name: &str| {
            let names = schema.get("required").and_then(Value::as_array);
            names.is_some_and(|names| names.iter().any(|one| one == name))
        };
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut found: Vec<_> =
            own.map(|(name, field)| (name.as_str(), is_required(name), field)).collect();
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            for (name, required, field) in self.properties(part, depth + 1) {
                if found.len() >= FIELDS_MAX {
                    return found;
                }
                match found.iter_mut().find(|(known, ..)| *known == name) {
                    Some(known) => known.1 |= required,
                    None => found.push((name, required || is_required(name), field)),
                }
            }
        }
        found
    }

    /// A type in words: `string`, `list of integer`, `"small" or "large"`.
    fn kind(&self, schema: &'a Value, depth: usize) -> String {
        if self.is_too_much(depth) {
            return "any".to_owned();
        }
        let schema = resolve(self.root, schema);
        if let Some(value) = schema.get("const") {
            return brief(&value.to_string(), 80);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let mut texts: Vec<String> = values
                .iter()
                .take(CHOICES_SHOWN)
                .map(|value| brief(&value.to_string(), 80))
                .collect();
            if values.len() > CHOICES_SHOWN {
                texts.push("…".to_owned());
            }
            return texts.join(" or ");
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(key).and_then(Value::as_array) {
                let mut texts: Vec<String> = Vec::new();
                for choice in choices.iter().take(CHOICES_SHOWN) {
                    let text = self.kind(choice, depth + 1);
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                return texts.join(" or ");
            }
        }
        let one = |name: &str| match name {
            "array" => match schema.get("items") {
                Some(items @ Value::Object(_)) => {
                    format!("list of {}", self.kind(items, depth + 1))
                }
                _ => "list".to_owned(),
            },
            "string" => match schema.get("format").and_then(Value::as_str) {
                Some(format) => format!("string ({})", brief(format, 40)),
                None => "string".to_owned(),
            },
            other => brief(other, 40),
        };
        match schema.get("type") {
            Some(Value::String(name)) => one(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
            }
            _ if schema.get("properties").is_some() => "object".to_owned(),
            _ => "any".to_owned(),
        }
    }

    /// A value to be filled in.
    fn example(&self, schema: &'a Value, depth: usize) -> Value {
        let schema = resolve(self.root, schema);
        if self.is_too_much(depth) {
            return Value::Null;
        }
        let first =
            |key: &str| schema.get(key).and_then(Value::as_array).and_then(|all| all.first());
        let given = schema.get("default").or_else(|| schema.get("const"));
        if let Some(value) = given.or_else(|| first("enum")).or_else(|| first("examples")) {
            return value.clone();
        }
        let fields = self.properties(schema, depth);
        let name = match schema.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(Value::Array(names)) => names.first().and_then(Value::as_str).unwrap_or_default(),
            _ if !fields.is_empty() => "object",
            _ => match first("anyOf").or_else(|| first("oneOf")) {
                Some(choice) => return self.example(choice, depth + 1),
                None => return Value::Null,
            },
        };
        match name {
            "object" => {
                let required = fields.iter().filter(|(_, required, _)| *required);
                let field = |(name, _, of): &(&str, bool, &'a Value)| {
                    ((*name).to_owned(), self.example(of, depth + 1))
                };
                Value::Object(required.map(field).collect())
            }
            "array" => Value::Array(Vec::new()),
            "string" => "".into(),
            "integer" | "number" => {
                schema.get("minimum").filter(|least| least.is_number()).cloned().unwrap_or(0.into())
            }
            "boolean" => false.into(),
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_listed_with_types() {
        let schema = Schema::from(json!({
            "$ref": "#/$defs/Order",
            "$defs": {
                "Order": {
                    "type": "object",
                    "properties": {
                        "note": {"type": ["string", "null"], "default": null, "description": " A note. "},
                        "size": {"enum": ["small", 2]},
                        "to": {"$ref": "#/$defs/Address%20Line"},
                        "when": {"type": "string", "format": "date-time"},
                        "items": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                        "self": {"$ref": "#/$defs/Order"},
                        "loop": {"$ref": "#/$defs/loop"},
                        "free": {},
                    },
                    "required": ["to", "size", "items"],
                },
                "Address Line": {"type": "object", "title": "Address", "properties": {"street": {"type": "string"}, "zip": {}}, "required": ["street"]},
                "loop": {"$ref": "#/$defs/loop"},
            },
        }));
        let found = fields(&schema);
        let texts: Vec<_> = found
            .iter()
            .map(|it| {
                format!(
                    "{}{} {} | {}",
                    it.name,
                    if it.required { "*" } else { "" },
                    it.kind,
                    it.description
                )
            })
            .collect();
        assert_eq!(
            texts,
            [
                "items* list of integer or null | ",
                "size* \"small\" or 2 | ",
                "to* object | Address",
                "free any | ",
                "loop any | ",
                "note string or null | A note. Default: null.",
                "self object | ",
                "when string (date-time) | ",
            ]
        );
        assert_eq!(skeleton(&schema), json!({"items": [], "size": "small", "to": {"street": ""}}));
    }

    #[test]
    fn parts_of_an_object_are_merged() {
        let schema = Schema::from(json!({
            "allOf": [
                {"properties": {"a": {"type": "integer", "minimum": 3}}},
                {"properties": {"b": {"type": "boolean"}}, "required": ["a", "b"]},
            ],
            "required": ["b"],
        }));
        let names: Vec<_> = fields(&schema).into_iter().map(|it| (it.name, it.required)).collect();
        assert_eq!(names, [("b".to_owned(), true), ("a".to_owned(), false)]);
        assert_eq!(skeleton(&schema), json!({"b": false}));
    }

    #[test]
    fn hostile_schemas_have_an_outline() {
        let endless =
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        let both = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let wide = json!({"anyOf": vec![json!({"$ref": "#"}); 100]});
        let merged = json!({"allOf": vec![json!({"$ref": "#"}); 100]});
        for schema in
            [endless, both, wide, merged, json!(true), json!({"properties": 7}), json!({"type": 7})]
        {
            let schema = Schema::from(schema);
            let _ = fields(&schema);
            assert!(skeleton(&schema).is_object(), "{schema}");
        }
    }
}
