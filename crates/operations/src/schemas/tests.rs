use std::time::{Duration, Instant};

use serde_json::json;
use task_engine_core::instance::InstanceId;
use task_engine_core::task::TaskOptions;

use super::*;

fn engine(id: i64, class: &str, options: TaskOptions) -> InstanceRow {
    let now = jiff::Timestamp::UNIX_EPOCH;
    InstanceRow {
        id: InstanceId(id),
        name: format!("engine-{id}"),
        host: "h".to_owned(),
        pid: 1,
        process: None,
        version: "1".to_owned(),
        workers: 1,
        queues: vec![],
        pools: vec![],
        classes: [(class.to_owned(), options)].into(),
        started_at: now,
        heartbeat_at: now,
        heartbeat_age: Duration::ZERO,
        lease: Duration::from_secs(15),
        stopped_at: None,
        lost_at: None,
        held: 0,
        process_gone: false,
    }
}

fn with(schema: Value) -> TaskOptions {
    TaskOptions::default().schema(schema)
}

fn check(engines: &[InstanceRow], parameters: &Value) -> Result<(), InvalidParameters> {
    let parameters = Json::encode(parameters).expect("JSON");
    let secrets = Secrets::of(engines);
    Schemas::of(engines).check("c", &parameters, &Json::empty_object(), &secrets)
}

fn wrong(schema: &Value, parameters: &Value) -> (String, String) {
    let engines = [engine(1, "c", with(schema.clone()))];
    let error = check(&engines, parameters).expect_err("does not fit");
    (error.pointer, error.why)
}

#[test]
fn errors_have_pointer_and_reason() {
    let schema = json!({
        "type": "object",
        "properties": {
            "to": {"type": "string", "minLength": 3},
            "count": {"type": "integer", "maximum": 5},
            "size": {"enum": ["small", "large"]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "shape": {"oneOf": [{"$ref": "#/$defs/circle"}, {"type": "null"}]},
            "a/b": {"type": "array", "items": {"type": ["string", "number"]}},
        },
        "required": ["to"],
        "additionalProperties": false,
        "$defs": {"circle": {
            "type": "object", "properties": {"radius": {"type": "number"}}, "required": ["radius"],
        }},
    });
    for (parameters, pointer, why) in [
        (json!({}), "/to", "/to: the field is missing"),
        (json!({"to": 7}), "/to", "/to: expected a string, found a number"),
        (json!({"to": "x"}), "/to", "/to: the value is shorter than 3 characters"),
        (
            json!({"to": "ada", "count": 1.5}),
            "/count",
            "/count: expected a whole number, found a number with a fraction",
        ),
        (
            json!({"to": "ada", "count": 9}),
            "/count",
            "/count: the value is greater than the maximum of 5",
        ),
        (
            json!({"to": "ada", "size": "huge"}),
            "/size",
            r#"/size: expected one of "small", "large""#,
        ),
        (
            json!({"to": "ada", "maybe": "x"}),
            "/maybe",
            "/maybe: expected a whole number or null, found a string",
        ),
        (json!({"to": "ada", "shape": {}}), "/shape/radius", "/shape/radius: the field is missing"),
        (
            json!({"to": "ada", "a/b": ["x", 1, null]}),
            "/a~1b/2",
            "/a~1b/2: expected a number or a string, found null",
        ),
        (json!({"to": "ada", "cuont": 1}), "/cuont", "/cuont: unknown field; did you mean count?"),
        (
            json!({"to": 1, "count": "2"}),
            "/count",
            "/count: expected a whole number, found a string; /to: expected a string, found a number",
        ),
    ] {
        assert_eq!(wrong(&schema, &parameters), (pointer.to_owned(), why.to_owned()));
    }
    let fits = json!({"to": "ada", "count": 5.0, "maybe": null, "shape": {"radius": 1}});
    assert_eq!(check(&[engine(1, "c", with(schema))], &fits), Ok(()));
    let (pointer, why) = wrong(&json!({"minProperties": 1}), &json!({}));
    assert_eq!((pointer.as_str(), why.as_str()), ("", "the value has less than 1 property"));
}

#[test]
fn one_live_engine_that_accepts_suffices() {
    let old = with(json!({"required": ["old"]}));
    let new = with(json!({"required": ["new"]}));
    let both = [engine(2, "c", new.clone()), engine(1, "c", old.clone())];
    assert_eq!(check(&both, &json!({"old": 1})), Ok(()));
    assert_eq!(check(&both, &json!({"new": 1})), Ok(()));
    let error = check(&both, &json!({})).unwrap_err();
    assert_eq!(error.pointer, "/new", "the newest engine says what is wrong");
    assert_eq!(
        error.to_string(),
        "class c does not accept these parameters: /new: the field is missing"
    );

    let mut ended = both.clone();
    ended[1].stopped_at = Some(jiff::Timestamp::UNIX_EPOCH);
    assert!(check(&ended, &json!({"old": 1})).is_err(), "it has stopped");
    ended[0].heartbeat_age = Duration::from_secs(60);
    assert_eq!(check(&ended, &json!({})), Ok(()), "none is alive");
    let published = [engine(3, "c", TaskOptions::default()), engine(2, "c", new)];
    assert!(check(&published, &json!({})).is_err(), "an engine without a schema says nothing");
    assert_eq!(check(&[engine(1, "other", old)], &json!({})), Ok(()));
}

#[test]
fn equal_schemas_are_listed_once() {
    let schema = json!({"type": "object"});
    let engines =
        [3, 2, 1].map(|id| engine(id, "c", with(if id == 2 { json!({}) } else { schema.clone() })));
    let schemas = Schemas::of(&engines);
    let names: Vec<_> = schemas.of_class("c").iter().map(|one| one.engines.clone()).collect();
    assert_eq!(names, [vec!["engine-3", "engine-1"], vec!["engine-2"]]);
    assert_eq!(schemas.newest("c").map(Schema::as_value), Some(&schema));
}

#[test]
fn unusable_schemas_check_nothing() {
    for schema in [
        json!({"type": "nonsense"}),
        json!({"$ref": "https://localhost:1/schema.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"$ref": "#/$defs/none"}),
        json!({"pattern": "("}),
        json!({"properties": []}),
        json!(7),
    ] {
        let engines = [engine(1, "c", with(schema.clone()))];
        assert_eq!(check(&engines, &json!({"a": 1})), Ok(()), "{schema}");
        let schemas = Schemas::of(&engines);
        let [warning] = &schemas.warnings("c")[..] else { panic!("{schema}") };
        assert!(warning.contains("class c that engine-1 publishes cannot be used: "), "{warning}");
        assert_eq!(schemas.newest("c"), None);
        let usable = with(json!({"required": ["a"]}));
        let both = [engines[0].clone(), engine(2, "c", usable)];
        assert!(check(&both, &json!({})).is_err(), "the other one counts");
    }
    let engines =
        [engine(1, "c", with(json!({"$schema": "https://json-schema.org/draft-07/schema#"})))];
    assert_eq!(check(&engines, &json!({})), Ok(()));
}

#[test]
fn hostile_schemas_end_in_time() {
    let begun = Instant::now();
    let deep = (0..60).fold(json!({"a": "x"}), |inner, _| json!({ "a": inner }));
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"properties": {"a": {"$ref": "#"}}, "type": ["object", "string"]}),
        json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "type": "object"}),
        json!({"$dynamicRef": "#x", "$dynamicAnchor": "x"}),
    ] {
        let engines = [engine(1, "c", with(schema.clone()))];
        let _ = check(&engines, &deep);
        assert!(begun.elapsed() < Duration::from_secs(20), "{schema}");
    }
    let doubled: serde_json::Map<String, Value> = (0..60)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
            (n.to_string(), json!({"allOf": [next, next]}))
        })
        .chain([("60".to_owned(), json!({}))])
        .collect();
    let doubled = json!({"$defs": doubled, "$ref": "#/$defs/0"});
    assert_eq!(Schemas::of(&[engine(1, "c", with(doubled))]).warnings("c").len(), 1);
    // A tree is checked, however deep it is.
    let tree = json!({"properties": {"a": {"$ref": "#"}}, "type": "object"});
    let engines = [engine(1, "c", with(tree))];
    let error = check(&engines, &deep).unwrap_err();
    assert!(
        error.pointer.ends_with("/a/a/a") && error.why.contains("expected an object"),
        "{error}"
    );
    let slow = json!({"properties": {"a": {"pattern": "^(?:(a+)+b|(c)\\2)$"}}});
    let engines = [engine(1, "c", with(slow))];
    let text = format!("{}!", "a".repeat(5_000));
    let _ = check(&engines, &json!({ "a": text }));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn errors_hide_secrets() {
    let secret = "s3cr3t-value";
    let schema = json!({
        "type": "object",
        "properties": {
            "password": {"type": "integer"},
            "card": {
                "type": "object",
                "properties": {"number": {"maxLength": 2}},
                "additionalProperties": false,
            },
            "shown": {"const": 1},
            "names": {"propertyNames": {"maxLength": 3}},
        },
        "additionalProperties": {"type": "null"},
    });
    let options = with(schema).secret(["password", "card", "keys.*"]);
    let engines = [engine(1, "c", options)];
    for (parameters, pointer) in [
        (json!({"password": secret}), "/password"),
        (json!({"card": {"number": secret}}), "/card"),
        (json!({"card": {secret: 1}}), "/card"),
        (json!({"password": 1, "card": {"number": secret}, "shown": secret}), "/card"),
        (json!({"password": secret, "names": {secret: 1}}), "/names"),
    ] {
        let error = check(&engines, &parameters).unwrap_err();
        assert_eq!(error.pointer, pointer, "{error}");
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
    let error = check(&engines, &json!({"password": "long text"})).unwrap_err();
    assert_eq!(
        error.why,
        "/password: it does not fit the schema (it is secret, so no details are shown)"
    );
    // Values are not shown either if they are not secret.
    let error = check(&engines, &json!({"shown": "public"})).unwrap_err();
    assert_eq!(error.why, "/shown: expected 1");
}

#[test]
fn check_by_known_schema_is_fast() {
    let schema = json!({
        "type": "object",
        "properties": {"to": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["to"],
    });
    let engines = [engine(1, "c", with(schema))];
    let begun = Instant::now();
    check(&engines, &json!({"to": "ada"})).unwrap();
    let first = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..100 {
        check(&engines, &json!({"to": "ada"})).unwrap();
    }
    let later = begun.elapsed() / 100;
    println!("first {first:?}, later {later:?}");
    assert!(later < Duration::from_millis(5));
}
