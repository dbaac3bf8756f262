//! Hostile values: whatever the model accepts comes back as it went in.

use serde_json::{Value, json};
use task_engine_model::json::BYTES_MAX;
use task_engine_model::{Json, NewTask, Outcome, RetryRule, TaskError, TaskStatus};

use crate::Database;
use crate::bench::{Bench, WORK, knowing, new_instance, new_task};

/// Numbers, nesting, letters and quotes of every kind, as parameters, context
/// and result.
pub async fn json_comes_back_as_it_went_in(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for value in hostile_values() {
        let text = Json::encode(&value).expect("valid for the model");
        let mut task = NewTask::new(WORK, text.clone()).unwrap();
        task.context = text.clone();
        let id = bench.create(task).await;
        let hold = engine.claim_one().await;
        assert_value(&hold.task.parameters, &value);
        assert_value(&hold.task.context, &value);
        let ending = hold.ends(Outcome::Success(text), &RetryRule::default());
        assert_eq!(engine.record(&[ending]).await, []);
        let details = bench.details(id).await;
        assert_value(&details.task_parameters, &value);
        assert_value(&details.context, &value);
        let result = details.executions[0].result.as_ref().expect("a result");
        assert_value(result, &value);
    }
}

/// No digit of a long number is lost on the way.
pub async fn long_numbers_keep_every_digit(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let digits = [
        "1970670598291982290",
        "-9223372036854775808",
        "18446744073709551615",
        "123456789012345678901234567890",
        "0.12345678901234567890123456789",
    ];
    let text = format!(r#"{{"n":[{}]}}"#, digits.join(","));
    let parameters = Json::parse_object(text).unwrap();
    let id = bench.create(NewTask::new(WORK, parameters.clone()).unwrap()).await;
    let hold = engine.claim_one().await;
    let ending = hold.ends(Outcome::Success(parameters), &RetryRule::default());
    assert_eq!(engine.record(&[ending]).await, []);
    let details = bench.details(id).await;
    let result = details.executions[0].result.as_ref().expect("a result");
    for json in [&hold.task.parameters, &details.task_parameters, result] {
        for number in digits {
            assert!(json.as_str().contains(number), "{number} in {json}");
        }
    }
}

/// Results that are no objects are results, too; null is one, and not none.
pub async fn results_of_every_kind(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for value in [json!(null), json!(true), json!(0), json!(""), json!([]), json!({})] {
        let id = bench.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let result = Json::encode(&value).unwrap();
        let ending = hold.ends(Outcome::Success(result), &RetryRule::default());
        assert_eq!(engine.record(&[ending]).await, []);
        let execution = bench.details(id).await.executions.remove(0);
        assert_value(&execution.result.expect("a result"), &value);
    }
}

/// The longest parameters and results that the model accepts.
pub async fn a_mebibyte_is_kept(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let frame = r#"{"t":""}"#;
    // Letters that do not compress to nothing.
    let mut chance = fastrand::Rng::with_seed(7);
    let letters: String = (0..BYTES_MAX - frame.len()).map(|_| chance.alphanumeric()).collect();
    let value = json!({ "t": letters });
    let text = Json::encode(&value).unwrap();
    assert_eq!(text.as_str().len(), BYTES_MAX);
    let id = bench.create(NewTask::new(WORK, text.clone()).unwrap()).await;
    let hold = engine.claim_one().await;
    assert!(hold.task.parameters.decode::<Value>().unwrap() == value);
    let ending = hold.ends(Outcome::Success(text), &RetryRule::default());
    assert_eq!(engine.record(&[ending]).await, []);
    let result = bench.details(id).await.executions.remove(0).result;
    assert!(result.expect("a result").decode::<Value>().unwrap() == value);
}

/// Names of classes, queues and engines are names, whatever is in them.
pub async fn names_are_only_names(db: &dyn Database) {
    let bench = Bench::open(db).await;
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
        let id = bench.create(task).await;
        let mut new = knowing(new_instance(name), &[(name, RetryRule::never())]);
        new.queues = vec![name.to_owned()];
        let mut engine = bench.register(new).await;
        let hold = engine.claim_one().await;
        assert_eq!((&*hold.task.class, &*hold.task.queue), (name, name));
        assert!(bench.lose(engine.id).await);
        let taken = bench.recover(engine.id).await;
        assert_eq!(taken[0].class, name);
        let row = bench.details(id).await.row;
        assert_eq!(row.status, TaskStatus::Failed, "by the rule of {name:?}");
        assert_eq!(row.instance.as_deref(), Some(name));
        assert_eq!((&*row.task_class, &*row.queue), (name, name));
    }
}

/// An error is kept to the last letter.
pub async fn errors_come_back_as_they_went_in(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
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
        let id = bench.create_work(1).await[0];
        let hold = engine.claim_one().await;
        let mut ending = hold.fails();
        ending.error = Some(error.clone());
        assert_eq!(engine.record(&[ending]).await, []);
        let details = bench.details(id).await;
        assert_eq!(details.executions[0].error.as_ref(), Some(&error));
        assert_eq!(details.row.error, Some(error));
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
