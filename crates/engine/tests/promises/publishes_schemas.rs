//! Schemas of classes, in the row of the engine.

use serde_json::{Value, json};
use task_engine::sqlite::SqliteStore;
use task_engine::{Failure, TaskEngine, TaskOptions};

async fn none() -> Result<(), Failure> {
    Ok(())
}

/// The schemas of a started engine, by class.
async fn published(engine: task_engine::Engine<()>, store: &SqliteStore) -> Vec<Option<Value>> {
    let running = engine.start().await.unwrap();
    let row = store.instances(None).await.unwrap().remove(0);
    running.stop();
    running.join().await.unwrap();
    row.classes
        .into_values()
        .map(|one| one.schema.map(|schema| schema.as_value().clone()))
        .collect()
}

async fn store() -> SqliteStore {
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn large_schema_is_not_published() {
    let store = store().await;
    let with =
        |bytes: usize| TaskOptions::default().schema(json!({"description": "x".repeat(bytes)}));
    let engine = TaskEngine::new(store.clone())
        .engine(())
        .handle_class::<Value, _>("a", with(10), none)
        .handle_class::<Value, _>("b", with(70_000), none)
        .handle_class::<Value, _>("c", TaskOptions::default(), none);
    let [Some(small), None, None] = &published(engine, &store).await[..] else {
        panic!("one schema")
    };
    assert_eq!(small["description"], "x".repeat(10));
}

#[cfg(feature = "schemars")]
#[tokio::test(flavor = "multi_thread")]
async fn type_publishes_its_schema() {
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, task_engine::Task)]
    struct Resize {
        /// In pixels.
        width: u32,
        note: Option<String>,
    }

    async fn resize(task: Resize) -> Result<u32, Failure> {
        drop(task.note);
        Ok(task.width)
    }

    let store = store().await;
    let tasks = TaskEngine::new(store.clone());
    let engine = tasks.engine(()).handle(resize).publish_schema::<Resize>();
    let [Some(schema)] = &published(engine, &store).await[..] else { panic!("one schema") };
    assert_eq!(schema["required"], json!(["width"]));
    assert_eq!(schema["properties"]["width"]["description"], "In pixels.");
    let unknown = tasks.engine(()).publish_schema::<Resize>().start().await;
    let Err(task_engine::EngineError::Setting(why)) = unknown else { panic!("it has no handler") };
    assert!(why.contains("a schema is for class resize"), "{why}");
}
