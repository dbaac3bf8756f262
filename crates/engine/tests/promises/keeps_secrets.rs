//! Secret parameters reach the handler, and are never shown.

use serde::{Deserialize, Serialize};
use task_engine::core::progress::LogFilter;
use task_engine::{
    Context, Engine, EngineError, Failure, Json, RetryRule, Task, TaskEngine, TaskOptions,
    TaskStatus,
};

use crate::store::{Fresh, on_every_store, start};

on_every_store! {
    only_handler_sees_secrets
}

const CANARY: &str = "canary-51d0";

#[derive(Serialize, Deserialize)]
struct Charge {
    amount: u32,
    card: Card,
    how: How,
}

#[derive(Serialize, Deserialize)]
struct Card {
    number: String,
}

#[derive(Serialize, Deserialize)]
enum How {
    Fail,
    Panic,
    Succeed,
}

impl Task for Charge {
    const CLASS: &'static str = "charge";
    const SECRETS: &'static [&'static str] = &["card"];

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(std::time::Duration::from_secs(1), 0))
    }
}

async fn charge(task: Charge, cx: Context<()>) -> Result<String, Failure> {
    let number = &task.card.number;
    assert_eq!(number, CANARY, "the code gets it");
    cx.log(format!("charges {number}"));
    cx.progress(50, format!("charging {number}"));
    assert_eq!(cx.without_secrets(number), "[secret]");
    match task.how {
        How::Fail => {
            Err(Failure::named(format!("Declined{number}"), format!("{number}: declined")))
        }
        How::Panic => panic!("no idea of {number}"),
        How::Succeed => Ok(format!("charged {number}")),
    }
}

async fn only_handler_sees_secrets(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let mut ids = Vec::new();
    for how in [How::Fail, How::Panic, How::Succeed] {
        let card = Card { number: CANARY.to_owned() };
        ids.push(client.create(Charge { amount: 7, card, how }).await.unwrap());
    }
    // One that is created by its name alone is protected by the engine.
    let parameters = format!(r#"{{"amount":"{CANARY}","card":{{"number":"{CANARY}"}}}}"#);
    let odd = task_engine::NewTask::new("charge", Json::parse(parameters).unwrap()).unwrap();
    ids.push(fresh.create_task(odd).await);
    let engine = start(fresh.engine().handle(charge));
    for (at, (status, error)) in [
        (TaskStatus::Failed, "Declined[secret]: [secret]: declined"),
        (TaskStatus::Failed, "Panic: no idea of [secret]"),
        (TaskStatus::Stopped, ""),
        (TaskStatus::Failed, "ParametersNotDecodable: "),
    ]
    .into_iter()
    .enumerate()
    {
        let mut task = fresh.until_status(ids[at], status).await;
        assert!(task.parameters.as_str().contains(CANARY), "the code needs it again");
        let execution = &task.executions[0];
        let found = execution.error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(found.starts_with(error) && !found.contains(CANARY), "{found}");
        let few = LogFilter { limit: 10, ..LogFilter::default() };
        let log = fresh.store.logs(ids[at], &few).await.unwrap();
        if at < 3 {
            assert_eq!(log[0].message, "charges [secret]");
            assert_eq!(execution.progress.as_ref().unwrap().message, "charging [secret]");
            assert_eq!(task.context.as_str().replace(' ', ""), r#"{"secret_parameters":["card"]}"#);
        }
        task_engine_operations::redaction::secrets(&*fresh.store)
            .await
            .unwrap()
            .redactor_of(&task)
            .task(&mut task);
        let shown = serde_json::to_string(&task).unwrap();
        assert!(!shown.contains(CANARY) && shown.contains(r#""card":"[secret]""#), "{shown}");
        assert_eq!(shown.contains("charged [secret]"), status == TaskStatus::Stopped);
    }
    engine.stop().await;
}

#[tokio::test]
async fn invalid_secret_path_is_refused() {
    #[derive(Serialize, Deserialize)]
    struct Odd;
    impl Task for Odd {
        const CLASS: &'static str = "odd";
        const SECRETS: &'static [&'static str] = &["a..b"];
    }
    let fresh = crate::store::sqlite().await;
    let words = "class odd: \"a..b\" is not the path of a secret parameter";
    let error = TaskEngine::new(fresh.store.clone()).create(Odd).await.unwrap_err().to_string();
    assert!(error.starts_with(words), "{error}");
    let engine: Engine<()> = fresh.engine().handle(|_: Odd, _| async { Ok::<_, Failure>(()) });
    match engine.run().await {
        Err(EngineError::Setting(why)) => assert!(why.starts_with(words), "{why}"),
        other => panic!("{other:?}"),
    }
}
