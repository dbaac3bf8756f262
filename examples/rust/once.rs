//! Effectively once: the effect of a task in the database and the end of the task
//! are one commit.
//!
//! Engines die, connections break, and a task whose end was not recorded runs again.
//! If its effect is in the database of the tasks, `cx.complete_in` makes both one
//! transaction: the effect happens once, however many attempts it takes. Here every
//! second payment fails first, after it has changed the balance, and every fifth
//! fails after its commit, when it can no longer change anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::postgres::tokio_postgres;
use task_engine::{Context, Failure, NewTask, Task, TaskEngine, TaskStatus};

const PAYMENTS: i64 = 20;

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 5, backoff = "10ms")]
struct Pay {
    number: i64,
}

struct App {
    database: String,
}

impl App {
    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let connected = tokio_postgres::connect(&self.database, tokio_postgres::NoTls).await;
        let (client, connection) = connected?;
        tokio::spawn(connection);
        Ok(client)
    }
}

async fn pay(task: Pay, cx: Context<App>) -> Result<(), Failure> {
    let mut client = cx.state().connect().await?;
    let transaction = client.transaction().await?;
    transaction.execute("UPDATE account SET balance = balance + 1", &[]).await?;
    if task.number % 2 == 0 && cx.retry_number() == 0 {
        return Err("the power is out".into());
    }
    cx.complete_in(&transaction, &()).await?; // Last, and with `?`.
    transaction.commit().await?;
    if task.number % 5 == 0 {
        return Err("the power is out again, but it is paid".into());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let app = App { database };
    let client = app.connect().await?;
    client
        .batch_execute(
            "DROP TABLE IF EXISTS account;
             CREATE TABLE account (balance bigint NOT NULL);
             INSERT INTO account VALUES (0)",
        )
        .await?;
    let tasks = TaskEngine::connect(&app.database).await?;
    tasks.migrate().await?;
    let engine = tasks.engine(app).handle(pay);
    let payments: Result<Vec<NewTask>, _> =
        (1..=PAYMENTS).map(|number| NewTask::of(&Pay { number })).collect();
    let ids = tasks.create_many(&payments?).await?;

    let engine = engine.start().await?;
    let mut attempts = 0;
    for id in ids {
        let ended = loop {
            let task = tasks.get(id).await?.ok_or("a task is missing")?;
            if !matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
                break task;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(ended.row.status, TaskStatus::Stopped);
        attempts += ended.executions.len();
    }
    engine.stop();
    engine.join().await?;

    let balance: i64 = client.query_one("SELECT balance FROM account", &[]).await?.get(0);
    println!("{PAYMENTS} payments of 1 each: the balance is {balance}, after {attempts} attempts");
    Ok(())
}
