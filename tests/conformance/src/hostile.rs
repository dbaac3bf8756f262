//! Hostile values: every accepted value is read back unchanged.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use task_engine_core::attempt::{AttemptEnd, TaskError};
use task_engine_core::json::BYTES_MAX;
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskStatus};

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_instance, new_task, with_classes};

/// Numbers, nesting, letters and quotes of every kind, as parameters, context
/// and result.
pub async fn json_round_trips_unchanged(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for value in hostile_values() {
        let text = Json::encode(&value).expect("valid for the model");
        let mut task = NewTask::new(WORK, text.clone()).unwrap();
        task.context = text.clone();
        let id = fixture.create(task).await;
        let hold = engine.claim_one().await;
        assert_value(&hold.task.parameters, &value);
        assert_value(&hold.task.context, &value);
        let ending = hold.ends(AttemptEnd::Success(text), &RetryRule::default());
        assert_eq!(engine.record(&[ending]).await, []);
        let details = fixture.details(id).await;
        assert_value(&details.parameters, &value);
        assert_value(&details.context, &value);
        let result = details.executions[0].result.as_ref().expect("a result");
        assert_value(result, &value);
    }
}

/// No digit of a long number is lost on the way.
pub async fn long_numbers_keep_every_digit(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let digits = [
        "1970670598291982290",
        "-9223372036854775808",
        "18446744073709551615",
        "123456789012345678901234567890",
        "0.12345678901234567890123456789",
    ];
    let text = format!(r#"{{"n":[{}]}}"#, digits.join(","));
    let parameters = Json::parse_object(text).unwrap();
    let id = fixture.create(NewTask::new(WORK, parameters.clone()).unwrap()).await;
    let hold = engine.claim_one().await;
    let ending = hold.ends(AttemptEnd::Success(parameters), &RetryRule::default());
    assert_eq!(engine.record(&[ending]).await, []);
    let details = fixture.details(id).await;
    let result = details.executions[0].result.as_ref().expect("a result");
    for json in [&hold.task.parameters, &details.parameters, result] {
        for number in digits {
            assert!(json.as_str().contains(number), "{number} in {json}");
        }
    }
}

/// Results that are no objects are results, too; null is one, and not none.
pub async fn results_of_every_kind(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    for value in [json!(null), json!(true), json!(0), json!(""), json!([]), json!({})] {
        let id = fixture.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let result = Json::encode(&value).unwrap();
        let ending = hold.ends(AttemptEnd::Success(result), &RetryRule::default());
        assert_eq!(engine.record(&[ending]).await, []);
        let execution = fixture.details(id).await.executions.remove(0);
        assert_value(&execution.result.expect("a result"), &value);
    }
}

/// The longest parameters and results that the model accepts.
pub async fn one_mebibyte_of_json_is_kept(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let frame = r#"{"t": ""}"#;
    // Letters that do not compress well.
    let mut rng = fastrand::Rng::with_seed(7);
    let letters: String = (0..BYTES_MAX - frame.len()).map(|_| rng.alphanumeric()).collect();
    let value = json!({ "t": letters });
    let text = Json::encode(&value).unwrap();
    assert_eq!(text.as_str().len(), BYTES_MAX - 1, "PostgreSQL prints a blank after the colon");
    let id = fixture.create(NewTask::new(WORK, text.clone()).unwrap()).await;
    let hold = engine.claim_one().await;
    assert!(hold.task.parameters.decode::<Value>().unwrap() == value);
    let ending = hold.ends(AttemptEnd::Success(text), &RetryRule::default());
    assert_eq!(engine.record(&[ending]).await, []);
    let result = fixture.details(id).await.executions.remove(0).result;
    assert!(result.expect("a result").decode::<Value>().unwrap() == value);
}

/// Names of classes, queues and engines may contain any text.
pub async fn hostile_names_are_stored_unchanged(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let names = [
        "O'Reilly; DROP TABLE tasks; --",
        "%s {} $1 ?1 :a @b \\ \"q\"",
        "Ünï – 仕事 🛠",
        "{a,b}",
        "NULL",
        " ",
        &"x".repeat(200),
    ];
    for name in names {
        let task = new_task(name).queue(name).unwrap();
        let id = fixture.create(task).await;
        let mut new = with_classes(new_instance(name), &[(name, RetryRule::never())]);
        new.queues = vec![name.to_owned()];
        let mut engine = fixture.register(new).await;
        let hold = engine.claim_one().await;
        assert_eq!((&*hold.task.class, &*hold.task.queue), (name, name));
        assert!(fixture.declare_lost(engine.id).await);
        let taken = fixture.recover(engine.id).await;
        assert_eq!(taken[0].class, name);
        let row = fixture.details(id).await.row;
        assert_eq!(row.status, TaskStatus::Failed, "by the rule of {name:?}");
        assert_eq!(row.instance.as_deref(), Some(name));
        assert_eq!((&*row.class, &*row.queue), (name, name));
    }
}

/// An error is kept to the last letter.
pub async fn errors_round_trip_unchanged(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let nul = TaskError::new("a\0b", "c\0d").storable();
    let long = TaskError::new("E", "é\n\"'\\".repeat(10_000)).storable();
    let empty = TaskError::new("", "");
    let odd = TaskError::new("{\"a\":1}", "\u{7f}\u{1}\t\u{2028}").with_backtrace(vec![
        "{}".into(),
        "a,b".into(),
        "\\\"".into(),
        "NULL".into(),
    ]);
    for error in [nul, long, empty, odd] {
        let id = fixture.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let mut ending = hold.fails();
        ending.error = Some(error.clone());
        assert_eq!(engine.record(&[ending]).await, []);
        let details = fixture.details(id).await;
        assert_eq!(details.executions[0].error.as_ref(), Some(&error));
        assert_eq!(details.row.error, Some(error));
    }
}

/// All accepted JSON is stored, printed and read back equal, within the limits. Runs for
/// a second, or for `FUZZ_SECONDS`.
pub async fn random_json_round_trips(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    while Instant::now() < until {
        let mut text = String::new();
        write_object(&mut text, &mut rng, 1);
        let Ok(parameters) = Json::parse_object(text.as_str()) else { continue };
        let task = NewTask::new(WORK, parameters.clone()).unwrap();
        let id = fixture.create(task).await;
        let hold = engine.claim_one().await;
        assert_eq!(hold.task.unreadable, None, "seed {seed}: {text}");
        let ending = hold.ends(AttemptEnd::Success(parameters.clone()), &RetryRule::default());
        assert_eq!(engine.record(&[ending]).await, [], "seed {seed}: {text}");
        let details = fixture.details(id).await;
        let result = details.executions[0].result.as_ref().expect("a result");
        for found in [&hold.task.parameters, &details.parameters, result] {
            assert!(Json::parse(found.as_str()).is_ok(), "seed {seed}: {text} came as {found}");
            // A number that is too large for a float is equal to no other.
            if let Ok(expected) = parameters.decode::<Value>() {
                let found: Value = found.decode().unwrap();
                assert!(is_same(&found, &expected), "seed {seed}: {text} came as {found}");
            }
        }
    }
}

/// Whether two values are equal, regardless of how numbers are written: `12e3` is read
/// back as `12000`, and `-0` as `0`.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            // The parser rounds the last digit of a float by how the number is written.
            (one - other).abs() <= 1e-300 + 1e-12 * one.abs()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, one): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_same(one, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

fn write_object(out: &mut String, rng: &mut fastrand::Rng, depth: usize) {
    out.push('{');
    for n in 0..rng.usize(0..5) {
        if n > 0 {
            out.push(',');
        }
        write_string(out, rng);
        out.push(':');
        write_value(out, rng, depth);
    }
    out.push('}');
}

fn write_value(out: &mut String, rng: &mut fastrand::Rng, depth: usize) {
    match rng.u8(0..if depth > 66 { 6 } else { 9 }) {
        0 => out.push_str(rng.choice(["null", "true", "false", " 0 ", "\t-0"]).unwrap()),
        1 | 2 => write_number(out, rng),
        3..=5 => write_string(out, rng),
        6 => write_object(out, rng, depth + 1),
        7 => {
            out.push('[');
            for n in 0..rng.usize(0..4) {
                out.push_str(if n > 0 { ", " } else { "" });
                write_value(out, rng, depth + 1);
            }
            out.push(']');
        }
        // Straight down, to the limit and beyond.
        _ => {
            let levels = rng.usize(0..70);
            out.push_str(&"[".repeat(levels));
            write_number(out, rng);
            out.push_str(&"]".repeat(levels));
        }
    }
}

fn write_number(out: &mut String, rng: &mut fastrand::Rng) {
    if rng.bool() {
        out.push('-');
    }
    out.push_str(&rng.u64(..).to_string()[..rng.usize(1..20).min(1 + rng.usize(..9))]);
    if rng.bool() {
        out.push_str(&format!(".{}", rng.u64(..)));
    }
    if rng.bool() {
        let most = *rng.choice(&[3_u32, 300, 1001, 20_000]).unwrap();
        out.push_str(&format!("{}{}", rng.choice(["e", "E-", "e+"]).unwrap(), rng.u32(..most)));
    }
}

fn write_string(out: &mut String, rng: &mut fastrand::Rng) {
    out.push('"');
    for _ in 0..rng.usize(0..6) {
        match rng.u8(0..6) {
            0 => out.push_str(
                rng.choice([
                    "\\n",
                    "\\\"",
                    "\\\\",
                    "\\/",
                    "\\u0001",
                    "\\u00e9",
                    "\\ud83d\\ude00",
                    "\\ud800",
                ])
                .unwrap(),
            ),
            1 => out.push(rng.char('\u{80}'..=char::MAX)),
            _ => out.push(rng.alphanumeric()),
        }
    }
    out.push('"');
}

/// JSON beyond the limits is refused and JSON within them is kept, by every store.
pub async fn json_limits_are_enforced(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let explosive = format!(r#"{{"n":[{}0]}}"#, "1e131071,".repeat(60_000));
    let padded = format!(r#"{{"n":[{}0]}}"#, "0e-16383,".repeat(60_000));
    let deep = format!(r#"{{"d":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    for text in [explosive, padded, deep, r#"{"n":1e999999}"#.to_owned()] {
        assert!(Json::parse_object(text).is_err());
    }
    let digits = "7".repeat(1000);
    let deep = format!(r#"{{"d":{}{}}}"#, "[".repeat(63), "]".repeat(63));
    for text in [format!(r#"{{"n":-{digits}.{digits}}}"#), deep, r#"{"n":1e-16383}"#.to_owned()] {
        let parameters = Json::parse_object(text).unwrap();
        fixture.create(NewTask::new(WORK, parameters).unwrap()).await;
    }
}

fn assert_value(found: &Json, expected: &Value) {
    let found: Value = found.decode().expect("valid JSON");
    assert_eq!(&found, expected);
}

fn hostile_values() -> Vec<Value> {
    let mut deep = json!({"bottom": [true, false, null]});
    for _ in 0..58 {
        deep = json!({ "d": deep });
    }
    vec![
        json!({}),
        json!({"n": [0, -1, 1.5, -0.25, 1e-7, i64::MAX, i64::MIN, 1_970_670_598_291_982_290_u64]}),
        deep,
        json!({"": "", "a b": " ", "é": "ß ﷽ \u{10FFFF} 👩‍👩‍👧‍👦 e\u{301} \u{202e}", "\u{feff}": "\u{feff}"}),
        json!({"quotes": "' '' \" \\ \\\\ \\u0041 ` $1 $$ ? :a %s {} </script> -- ; /* \n\r\t\u{8}\u{c}\u{1f}\u{7f}"}),
        json!({"$tag$": [[], {}, [[]], [{}], "null", null, "true"]}),
    ]
}
