//! An order that survives every crash: reserve, charge, wait for approval, ship, notify.
//! If it is refused, not approved in time, or cannot be shipped, the money goes back and
//! the item is released.
//!
//! ```text
//! order place lamp    creates an order and prints its id
//! order run           runs the engine; kill it whenever you like, and run it again
//! order approve 1     (or: refuse 1) sends the signal that the order waits for
//! ```
//!
//! Recorded steps never run again. The code between them runs again in every attempt, so it
//! has no effects of its own. `effects.txt` shows what has happened outside the database.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::durable::WaitTimedOut;
use task_engine::postgres::tokio_postgres::{self, NoTls};
use task_engine::{Context, Failure, Task, TaskEngine, TaskId};

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 10, backoff = "200ms")]
struct Order {
    item: String,
    cents: u64,
    approve_within_secs: u64,
}

async fn order(order: Order, cx: Context<Shop>) -> Result<String, Failure> {
    let shop = cx.state();
    change_stock(&cx, "reserve", &order.item, -1).await?;
    // Another system: if the engine dies before this is recorded, it is called again. The id
    // of the task is the key by which a bank recognises a second request.
    let payment = cx.step("charge", || shop.effect("charge", cx.task_id(), order.cents)).await?;

    // Neither of these uses a worker while it waits, and both outcomes are final.
    let within = Duration::from_secs(order.approve_within_secs);
    let refused = match cx.wait_for::<Approval>("approved", within).await {
        Err(WaitTimedOut { .. }) => Some("not approved in time".to_owned()),
        Ok(Approval { yes: false, by }) => Some(format!("refused by {by}")),
        // A task of its own, with its own retries.
        Ok(_) => match cx.call::<_, String>(Ship { item: order.item.clone() }).await {
            Err(failed) => Some(format!("not shipped: {}", failed.error.message)),
            Ok(_) => None,
        },
    };

    let news = match refused {
        None => {
            cx.sleep("delivery", Duration::from_secs(1)).await;
            "delivered".to_owned()
        }
        Some(why) => {
            cx.step("refund", || shop.effect("refund", cx.task_id(), &payment)).await?;
            change_stock(&cx, "release", &order.item, 1).await?;
            format!("cancelled: {why}")
        }
    };
    cx.step("notify", || shop.effect("notify", cx.task_id(), &news)).await?;
    Ok(news)
}

/// A step in our own database: the change and its record are one commit, so it happens once.
async fn change_stock(cx: &Context<Shop>, step: &str, item: &str, by: i64) -> Result<i64, Failure> {
    if let Some(left) = cx.recorded(step).await {
        return Ok(left);
    }
    let mut client = cx.state().connect().await?;
    let tx = client.transaction().await?;
    let change = "UPDATE stock SET items = items + $2 WHERE item = $1 RETURNING items";
    let left = tx.query_one(change, &[&item, &by]).await?.get(0);
    cx.step_in(&tx, step, &left).await?; // Last, and with `?`.
    tx.commit().await?;
    Ok(left)
}

#[derive(Serialize, Deserialize)]
struct Approval {
    yes: bool,
    by: String,
}

#[derive(Serialize, Deserialize, Task)]
#[task(retries = 5, backoff = "200ms")]
struct Ship {
    item: String,
}

async fn ship(task: Ship, cx: Context<Shop>) -> Result<String, Failure> {
    if task.item == "piano" {
        return Err(Failure::no_retry("too heavy for the courier"));
    }
    cx.state().effect("ship", cx.task_id(), task.item).await
}

struct Shop {
    database: String,
}

impl Shop {
    /// Stands for a bank, a courier, a mail server.
    async fn effect(
        &self,
        name: &str,
        id: TaskId,
        details: impl std::fmt::Display,
    ) -> Result<String, Failure> {
        let mut file = OpenOptions::new().create(true).append(true).open("effects.txt")?;
        file.write_all(format!("{name} {id} {details}\n").as_bytes())?;
        Ok(format!("{name}-{id}"))
    }

    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.database, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let shop = Shop { database };
    let tasks = TaskEngine::connect(&shop.database).await?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["place", item, ref within @ ..] => {
            tasks.migrate().await?;
            let stock = "CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, items bigint);
                         INSERT INTO stock VALUES ('lamp', 10), ('piano', 10) ON CONFLICT DO NOTHING";
            shop.connect().await?.batch_execute(stock).await?;
            let approve_within_secs = within.first().unwrap_or(&"604800").parse()?;
            let order = Order { item: item.into(), cents: 4200, approve_within_secs };
            println!("{}", tasks.create(order).await?);
        }
        [answer @ ("approve" | "refuse"), id] => {
            let approval = Approval { yes: answer == "approve", by: "ada".into() };
            let sent = tasks.signal(TaskId(id.parse()?), "approved", &approval).await?;
            println!("{}", sent.status.as_str());
        }
        ["run"] => {
            tasks.engine(shop).handle(order).handle(ship).run().await?;
        }
        _ => return Err("write: place ITEM, run, approve ID or refuse ID".into()),
    }
    Ok(())
}
