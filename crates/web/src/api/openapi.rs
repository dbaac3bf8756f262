//! The OpenAPI 3.1 document: operations, parameters and the schemas of requests and
//! responses from `openapi/*.json`, roles from `routes`.
//!
//! Written by hand: deriving the schemas would add a macro to some forty types of
//! four crates and an attribute to each handler, which is more text than these
//! files. Tests compare every route, parameter, body and response with the document,
//! and fail on each field that it does not describe.

use axum::Json as JsonResponse;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::routes::{Route, all};

const OPERATIONS: &str = include_str!("openapi/operations.json");
const PARAMETERS: &str = include_str!("openapi/parameters.json");
const REQUESTS: &str = include_str!("openapi/requests.json");
const RESPONSES: &str = include_str!("openapi/responses.json");

/// An operation of `operations.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiOperation {
    method: String,
    path: String,
    /// The name in generated clients.
    id: String,
    summary: String,
    /// Query and header parameters, by their names in the components.
    #[serde(default)]
    parameters: Vec<String>,
    /// The schema of the request, if it has a body.
    body: Option<String>,
    #[serde(default)]
    body_required: bool,
    /// The statuses of success; 200 if there are none.
    #[serde(default)]
    statuses: Vec<u16>,
    /// The schema of the response; empty for plain text.
    response: String,
}

impl ApiOperation {
    fn kind(&self) -> &'static str {
        match (self.id.as_str(), self.response.as_str()) {
            ("events", _) => "text/event-stream",
            (_, "") => "text/plain",
            _ => "application/json",
        }
    }
}

pub(super) async fn openapi(State(app): State<App>) -> JsonResponse<Value> {
    JsonResponse(describe(&app.base))
}

fn describe(base: &str) -> Value {
    let read = |text| serde_json::from_str::<Map<String, Value>>(text).expect("tests read it, too");
    let mut schemas = read(REQUESTS);
    schemas.extend(read(RESPONSES));
    let components = json!({
        "parameters": read(PARAMETERS),
        "schemas": schemas,
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "A token of `task-engine tokens create`."},
            "session": {"type": "apiKey", "in": "cookie", "name": crate::guard::COOKIE},
        },
    });
    let routes = all();
    let mut paths: Map<String, Value> = Map::new();
    let operations: Vec<ApiOperation> =
        serde_json::from_str(OPERATIONS).expect("tests read it, too");
    for operation in &operations {
        let of = |route: &&Route| route.method == operation.method && route.path == operation.path;
        let Some(route) = routes.iter().find(of) else { continue };
        let path = paths.entry(operation.path.as_str()).or_insert_with(|| json!({}));
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

fn one(operation: &ApiOperation, route: &Route) -> Value {
    let mut parameters: Vec<Value> = path_parameters(&operation.path)
        .map(|name| {
            let kind = if name == "id" { "integer" } else { "string" };
            json!({"name": name, "in": "path", "required": true, "schema": {"type": kind}})
        })
        .collect();
    let refer = |name: &String| json!({"$ref": format!("#/components/parameters/{name}")});
    parameters.extend(operation.parameters.iter().map(refer));
    let content = |kind: &str, schema: &str| {
        let schema = match schema {
            "" => json!({"type": "string"}),
            name => json!({"$ref": format!("#/components/schemas/{name}")}),
        };
        json!({kind: {"schema": schema}})
    };
    let mut responses = Map::new();
    let statuses = if operation.statuses.is_empty() { &[200][..] } else { &operation.statuses };
    for status in statuses {
        let response = json!({
            "description": operation.summary,
            "content": content(operation.kind(), &operation.response),
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
    if let Some(schema) = &operation.body {
        all["requestBody"] = json!({
            "required": operation.body_required,
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
