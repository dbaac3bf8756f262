//! Types in other languages, generated from schemas.
//!
//! What a language cannot express becomes `Any` or `unknown`, so that every schema has a type.
//! The same schemas always give the same text.

mod python;
mod typescript;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use task_engine_core::schema::Schema;

use super::outline::reference;

/// Subschemas that are read of a class; the rest is `Any`.
const STEPS_MAX: usize = 5_000;
const DEPTH_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 100;

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python 3.11: `TypedDict`.
    Python,
    /// TypeScript: interfaces.
    TypeScript,
}

/// Returns the types of the parameters of classes, as a source file.
#[must_use]
pub fn generate(language: Language, schemas: &BTreeMap<&str, &Schema>) -> String {
    let reserved: &[&str] = match language {
        Language::Python => &python::RESERVED,
        Language::TypeScript => &typescript::RESERVED,
    };
    let taken = reserved.iter().map(|name| (*name).to_owned()).collect();
    let mut types = Types { taken, declarations: Vec::new() };
    // The names of classes come first: they do not depend on other definitions.
    let roots: Vec<usize> = schemas
        .keys()
        .map(|class| {
            let about = format!("The parameters of class {}.", one_line(class));
            types.declare(&[type_name(class)], Some(about))
        })
        .collect();
    for ((class, schema), index) in schemas.iter().zip(roots) {
        let root = schema.as_value();
        let known = BTreeMap::from([("#".to_owned(), index)]);
        let prefix = type_name(class);
        let mut reader = Reader { types: &mut types, root, prefix, known, steps_left: STEPS_MAX };
        let text = description(root);
        let body = reader.body(root, &type_name(class), 0);
        let declaration = &mut types.declarations[index];
        declaration.body = body;
        if let (Some(about), Some(text)) = (&mut declaration.description, text) {
            *about = format!("{about}\n{text}");
        }
    }
    types.break_cycles();
    match language {
        Language::Python => python::write(&types.declarations),
        Language::TypeScript => typescript::write(&types.declarations),
    }
}

/// A type with a name.
#[derive(Debug)]
struct Declaration {
    name: String,
    description: Option<String>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Object(Vec<Property>),
    Alias(Type),
}

#[derive(Debug)]
struct Property {
    name: String,
    of: Type,
    required: bool,
    description: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Type {
    Any,
    Null,
    Boolean,
    Integer,
    Number,
    String,
    List(Box<Type>),
    Map(Box<Type>),
    /// A string, a whole number or a boolean.
    Literal(Value),
    Union(Vec<Type>),
    Named(usize),
}

struct Types {
    taken: BTreeSet<String>,
    declarations: Vec<Declaration>,
}

impl Types {
    /// A new declaration with the first name that is free, or else with a number.
    fn declare(&mut self, names: &[String], description: Option<String>) -> usize {
        let free = names.iter().find(|name| !self.taken.contains(*name)).cloned();
        let last = names.last().cloned().unwrap_or_default();
        let name = free.unwrap_or_else(|| {
            let mut numbered = (2_u32..).map(|number| format!("{last}{number}"));
            numbered.find(|name| !self.taken.contains(name)).unwrap_or_default()
        });
        self.taken.insert(name.clone());
        self.declarations.push(Declaration { name, description, body: Body::Alias(Type::Any) });
        self.declarations.len() - 1
    }

    /// An alias that is itself, or a choice with itself, is no type.
    fn break_cycles(&mut self) {
        for at in 0..self.declarations.len() {
            if self.reaches(at, at, &mut BTreeSet::new()) {
                self.declarations[at].body = Body::Alias(Type::Any);
            }
        }
    }

    fn reaches(&self, from: usize, to: usize, seen: &mut BTreeSet<usize>) -> bool {
        let Body::Alias(of) = &self.declarations[from].body else { return false };
        let choices = match of {
            Type::Union(choices) => choices.as_slice(),
            one => std::slice::from_ref(one),
        };
        choices.iter().any(|choice| match choice {
            Type::Named(next) => {
                *next == to || (seen.insert(*next) && self.reaches(*next, to, seen))
            }
            _ => false,
        })
    }
}

/// Reads the schema of one class.
struct Reader<'a> {
    types: &'a mut Types,
    root: &'a Value,
    /// The name of the type of the class.
    prefix: String,
    /// The declarations of references.
    known: BTreeMap<String, usize>,
    steps_left: usize,
}

impl<'a> Reader<'a> {
    /// The body of a declaration of this name.
    fn body(&mut self, schema: &'a Value, name: &str, depth: usize) -> Body {
        let parts = object_parts(schema);
        match parts {
            Some(parts) => self.object(&parts, name, depth),
            None => Body::Alias(self.read(schema, name, depth)),
        }
    }

    fn object(&mut self, parts: &[&'a Value], name: &str, depth: usize) -> Body {
        let mut properties: Vec<Property> = Vec::new();
        let required: BTreeSet<&str> = parts
            .iter()
            .filter_map(|part| part.get("required")?.as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for part in parts {
            let fields = part.get("properties").and_then(Value::as_object).into_iter().flatten();
            for (field, of) in fields {
                if properties.iter().any(|known| known.name == *field) {
                    continue;
                }
                let inner = format!("{name}{}", type_name(field));
                properties.push(Property {
                    name: field.clone(),
                    of: self.read(of, &inner, depth + 1),
                    required: required.contains(field.as_str()),
                    description: description(of),
                });
            }
        }
        Body::Object(properties)
    }

    /// A type; `name` is for a declaration, if it needs one.
    fn read(&mut self, schema: &'a Value, name: &str, depth: usize) -> Type {
        let Some(left) = self.steps_left.checked_sub(1) else { return Type::Any };
        self.steps_left = left;
        if depth > DEPTH_MAX {
            return Type::Any;
        }
        let of = self.read_one(schema, name, depth);
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            return union(vec![of, Type::Null]);
        }
        of
    }

    fn read_one(&mut self, schema: &'a Value, name: &str, depth: usize) -> Type {
        if let Some(to) = schema.get("$ref").and_then(Value::as_str) {
            return self.referenced(to, depth);
        }
        if let Some(value) = schema.get("const") {
            return literal(value);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return union(values.iter().map(literal).collect());
        }
        if let Some(parts) = object_parts(schema) {
            let index = self.types.declare(&[name.to_owned()], description(schema));
            let own = self.types.declarations[index].name.clone();
            let body = self.object(&parts, &own, depth);
            self.types.declarations[index].body = body;
            return Type::Named(index);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(key).and_then(Value::as_array) {
                let choices = choices.iter().map(|choice| self.read(choice, name, depth + 1));
                return union(choices.collect());
            }
        }
        if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
            return match &all[..] {
                [one] => self.read(one, name, depth + 1),
                _ => Type::Any,
            };
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.simple(kind, schema, name, depth),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                union(kinds.map(|kind| self.simple(kind, schema, name, depth)).collect())
            }
            _ => Type::Any,
        }
    }

    fn simple(&mut self, kind: &str, schema: &'a Value, name: &str, depth: usize) -> Type {
        match kind {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "string" => Type::String,
            "array" => {
                let item = match schema.get("items") {
                    Some(items @ Value::Object(_)) if schema.get("prefixItems").is_none() => {
                        self.read(items, &format!("{name}Item"), depth + 1)
                    }
                    _ => Type::Any,
                };
                Type::List(Box::new(item))
            }
            "object" => {
                let value = match schema.get("additionalProperties") {
                    Some(of @ Value::Object(_)) if schema.get("patternProperties").is_none() => {
                        self.read(of, &format!("{name}Value"), depth + 1)
                    }
                    _ => Type::Any,
                };
                Type::Map(Box::new(value))
            }
            _ => Type::Any,
        }
    }

    fn referenced(&mut self, to: &str, depth: usize) -> Type {
        if let Some(known) = self.known.get(to) {
            return Type::Named(*known);
        }
        let Some(target) = reference(self.root, to) else { return Type::Any };
        let last = to.rsplit('/').next().unwrap_or_default();
        let own = type_name(&last.replace("~1", "/").replace("~0", "~"));
        let names = [own.clone(), format!("{}{own}", self.prefix)];
        let index = self.types.declare(&names, description(target));
        self.known.insert(to.to_owned(), index);
        let name = self.types.declarations[index].name.clone();
        let Some(left) = self.steps_left.checked_sub(1) else { return Type::Any };
        self.steps_left = left;
        if depth <= DEPTH_MAX {
            let body = self.body(target, &name, depth + 1);
            self.types.declarations[index].body = body;
        }
        Type::Named(index)
    }
}

/// The schemas whose properties an object has together. `None` if it is no object with
/// known properties.
fn object_parts(schema: &Value) -> Option<Vec<&Value>> {
    let is_other = ["$ref", "anyOf", "oneOf", "enum", "const"].iter();
    if is_other.into_iter().any(|key| schema.get(key).is_some()) {
        return None;
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return None;
    }
    let mut parts = vec![schema];
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        for part in all {
            // References would hide the properties of the others.
            parts.extend(object_parts(part)?);
        }
    }
    let has_properties = parts.iter().any(|part| part.get("properties").is_some());
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    (has_properties || is_closed && schema.get("patternProperties").is_none()).then_some(parts)
}

fn literal(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) | Value::String(_) => Type::Literal(value.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Type::Literal(value.clone()),
        Value::Number(_) => Type::Number,
        _ => Type::Any,
    }
}

/// One of these types, each once; `Any` takes in all others.
fn union(types: Vec<Type>) -> Type {
    let mut choices: Vec<Type> = Vec::new();
    for of in types {
        let parts = if let Type::Union(parts) = of { parts } else { vec![of] };
        for part in parts {
            if !choices.contains(&part) {
                choices.push(part);
            }
        }
    }
    if choices.is_empty() || choices.contains(&Type::Any) {
        return Type::Any;
    }
    if choices.len() == 1 { choices.remove(0) } else { Type::Union(choices) }
}

fn description(schema: &Value) -> Option<String> {
    let text = schema.get("description").and_then(Value::as_str)?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The lines of a comment, without characters that could end it or hide something.
fn comment_lines(text: &str) -> Vec<String> {
    text.lines().map(|line| one_line(line).trim_end().to_owned()).collect()
}

fn one_line(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

/// A name in the form `SendMail`, of ASCII letters and digits.
fn type_name(text: &str) -> String {
    let mut name = String::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.extend(letters);
    }
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    match name.chars().next() {
        None => "Unnamed".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("Type{name}"),
        Some(_) => name,
    }
}

/// Whether a text can be written as a name in both languages.
fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests;
