//! How much work a check by a schema may be. References can make it endless, or double it at
//! each level, and a check cannot be interrupted.

use serde_json::Value;

use super::outline::reference;

/// Subschemas that may be looked at for one path through the parameters.
const STEPS_MAX: usize = 50_000;
/// References and subschemas in a row.
const DEPTH_MAX: usize = 500;

/// Keywords whose value is data, not a schema.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords whose subschemas are about a part of the value.
const PARTS: [&str; 10] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose subschemas are about the same value.
const WHOLE: [&str; 9] =
    ["allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"];
/// Keywords with subschemas by name.
const BY_NAME: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
const SELF_REFERENCE: &str =
    "its references lead back to themselves, or there are too many of them";
const OTHER_REFERENCE: &str =
    "only references within the schema are followed, like #/$defs/NAME, and this is another: ";

/// Whether a schema can be used at all, and whether it has references.
pub(super) fn inspect(schema: &Value) -> Result<bool, String> {
    let mut has_references = false;
    let mut rest = vec![schema];
    while let Some(at) = rest.pop() {
        match at {
            Value::Object(fields) => {
                if !std::ptr::eq(at, schema) && fields.get("$id").is_some_and(Value::is_string) {
                    return Err("a part of it has an $id".to_owned());
                }
                for (key, value) in fields {
                    match value.as_str().filter(|_| REFERENCES.contains(&key.as_str())) {
                        Some(to) if reference(schema, to).is_none() => {
                            return Err(format!("{OTHER_REFERENCE}{to}"));
                        }
                        Some(_) => has_references = true,
                        None if DATA.contains(&key.as_str()) => {}
                        None => rest.push(value),
                    }
                }
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    if has_references && !is_bounded(schema, 0) {
        return Err(SELF_REFERENCE.to_owned());
    }
    Ok(has_references)
}

/// Whether a check of values with so many levels ends soon.
pub(super) fn is_bounded(schema: &Value, levels: usize) -> bool {
    Walk { root: schema, steps_left: STEPS_MAX }.visit(schema, levels, 0).is_some()
}

/// The levels of a value.
pub(super) fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// Follows a schema as a check does, for the deepest path.
struct Walk<'a> {
    root: &'a Value,
    steps_left: usize,
}

impl Walk<'_> {
    /// `None`: too much.
    fn visit(&mut self, schema: &Value, levels: usize, depth: usize) -> Option<()> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        if depth > DEPTH_MAX {
            return None;
        }
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let key = key.as_str();
                    let target = value.as_str().filter(|_| REFERENCES.contains(&key));
                    if let Some(target) = target.and_then(|to| reference(self.root, to)) {
                        self.visit(target, levels, depth + 1)?;
                    } else if WHOLE.contains(&key) {
                        self.visit_all(key, value, levels, depth)?;
                    } else if PARTS.contains(&key)
                        && let Some(below) = levels.checked_sub(1)
                    {
                        self.visit_all(key, value, below, depth)?;
                    }
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    /// A schema, a list of schemas, or schemas by name.
    fn visit_all(&mut self, key: &str, value: &Value, levels: usize, depth: usize) -> Option<()> {
        match value {
            Value::Array(items) => {
                items.iter().try_for_each(|item| self.visit(item, levels, depth + 1))
            }
            Value::Object(fields) if BY_NAME.contains(&key) => {
                fields.values().try_for_each(|one| self.visit(one, levels, depth + 1))
            }
            schema => self.visit(schema, levels, depth + 1),
        }
    }
}
