//! The OpenAPI 3.1 document: operations from a table, roles from `routes`, schemas
//! from `openapi/*.json`.
//!
//! Written by hand: deriving the schemas would add a macro to some forty types of
//! four crates and an attribute to each handler, which is more text than these
//! files. Tests compare every route, parameter, body and response with the document,
//! and fail on each field that it does not describe.

mod operations;

use axum::Json as Answer;
use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::routes::{Route, all};
use operations::{OPERATIONS, Operation, RequestBody};

const PARAMETERS: &str = include_str!("openapi/parameters.json");
const SCHEMAS: &str = include_str!("openapi/schemas.json");

pub(super) async fn openapi(State(app): State<App>) -> Answer<Value> {
    Answer(describe(&app.base))
}

fn describe(base: &str) -> Value {
    let read = |text| serde_json::from_str::<Value>(text).expect("tests read it, too");
    let components = json!({
        "parameters": read(PARAMETERS),
        "schemas": read(SCHEMAS),
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "A token of `task-engine tokens create`."},
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
            "description": "All operations of the dashboard. Errors are application/problem+json (RFC 9457). Ids are 64-bit integers; requests may send them as strings. `x-role` is the lowest role that may use a route.",
        },
        "servers": [{"url": if base.is_empty() { "/" } else { base }}],
        "paths": paths,
        "components": components,
    })
}

fn one(operation: &Operation, route: &Route) -> Value {
    let mut parameters: Vec<Value> = path_parameters(operation.path)
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
        let response = json!({
            "description": operation.summary,
            "content": content(operation.kind(), operation.response),
        });
        responses.insert(status.to_string(), response);
    }
    let problem = json!({
        "description": "The error, and what to do.",
        "content": content("application/problem+json", "Error"),
    });
    responses.insert("default".into(), problem);
    let mut all = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let RequestBody::Required(schema) | RequestBody::Optional(schema) = operation.body {
        all["requestBody"] = json!({
            "required": matches!(operation.body, RequestBody::Required(_)),
            "content": content("application/json", schema),
        });
    }
    if let Some(role) = route.needs {
        all["x-role"] = json!(role);
        all["security"] = json!([{"token": []}, {"session": []}]);
    }
    all
}

/// The names of the path parameters.
fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
}
