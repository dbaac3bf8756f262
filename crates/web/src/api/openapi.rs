//! The description of the interface (OpenAPI 3.1): which routes there are is in
//! the table below, who may use them in `routes`, what they take and answer in
//! `openapi/*.json`. Tests hold all of it against real answers.

mod operations;

use axum::Json as Answer;
use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::routes::{Route, all};
use operations::{OPERATIONS, Operation, Sent};

const PARAMETERS: &str = include_str!("openapi/parameters.json");
const SCHEMAS: &str = include_str!("openapi/schemas.json");

pub(super) async fn openapi(State(app): State<App>) -> Answer<Value> {
    Answer(describe(&app.base))
}

fn describe(base: &str) -> Value {
    let read = |text| serde_json::from_str::<Value>(text).expect("a test reads it, too");
    let components = json!({
        "parameters": read(PARAMETERS),
        "schemas": read(SCHEMAS),
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "A token made by `task-engine tokens create`."},
            "session": {"type": "apiKey", "in": "cookie", "name": crate::guard::COOKIE},
        },
    });
    let routes = all();
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let of = |route: &&Route| (route.method, route.path) == (operation.method, operation.path);
        let Some(route) = routes.iter().find(of) else { continue };
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = one(operation, route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Task Engine",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Everything that the dashboard does. Errors are application/problem+json (RFC 9457). Ids are whole numbers of 64 bits; where one is sent, a text of digits is taken, too. `x-role` is the lowest role that may use a route.",
        },
        "servers": [{"url": if base.is_empty() { "/" } else { base }}],
        "paths": paths,
        "components": components,
    })
}

fn one(operation: &Operation, route: &Route) -> Value {
    let mut parameters: Vec<Value> = pieces(operation.path)
        .map(|name| {
            let kind = if name == "id" { "integer" } else { "string" };
            json!({"name": name, "in": "path", "required": true, "schema": {"type": kind}})
        })
        .collect();
    let refer = |name: &&str| json!({"$ref": format!("#/components/parameters/{name}")});
    parameters.extend(operation.parameters.iter().map(refer));
    let content = |kind: &str, schema: &str| {
        let schema = match schema {
            "" => json!({"type": "string"}),
            name => json!({"$ref": format!("#/components/schemas/{name}")}),
        };
        json!({kind: {"schema": schema}})
    };
    let mut responses = Map::new();
    for status in operation.statuses {
        let answer = json!({
            "description": operation.summary,
            "content": content(operation.kind(), operation.answer),
        });
        responses.insert(status.to_string(), answer);
    }
    let problem = json!({
        "description": "What is wrong, and what to do.",
        "content": content("application/problem+json", "Problem"),
    });
    responses.insert("default".into(), problem);
    let mut all = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Sent::Needs(schema) | Sent::May(schema) = operation.sent {
        all["requestBody"] = json!({
            "required": matches!(operation.sent, Sent::Needs(_)),
            "content": content("application/json", schema),
        });
    }
    if let Some(role) = route.needs {
        all["x-role"] = json!(role);
        all["security"] = json!([{"token": []}, {"session": []}]);
    }
    all
}

/// The names of what varies in a path.
fn pieces(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
}
