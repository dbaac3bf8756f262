//! An application and its unit tests: `cargo test -p task-engine-examples`.
//!
//! The feature `testing`, enabled in `[dev-dependencies]`, has a harness: an engine
//! that does nothing by itself, on a database in memory. Tests perform one task or
//! drain all due tasks, move the clock, and check which tasks were created. The
//! application and its tests call the same function to create the engine, so handlers,
//! queues and schedules are those of production.

use serde::{Deserialize, Serialize};
use task_engine::{Context, Engine, Failure, Schedule, StopHandle, Task, TaskEngine};

#[derive(Debug, PartialEq, Serialize, Deserialize, Task)]
struct Remind {
    customer: String,
}

#[derive(Serialize, Deserialize, Task)]
struct FindDebtors;

/// State of the application; tests pass other customers.
struct App {
    debts: Vec<(&'static str, i64)>,
    stop: StopHandle,
}

async fn find_debtors(_: FindDebtors, cx: Context<App>) -> Result<usize, Failure> {
    let debtors: Vec<_> = cx.state().debts.iter().filter(|(_, cents)| *cents > 0).collect();
    for (customer, cents) in &debtors {
        let remind = Remind { customer: (*customer).to_owned() };
        // The largest debt is reminded first.
        cx.create(remind).priority(i32::try_from(*cents)?).await?;
    }
    Ok(debtors.len())
}

async fn remind(task: Remind, cx: Context<App>) -> Result<(), Failure> {
    if task.customer.is_empty() {
        return Err(Failure::no_retry("a customer without a name"));
    }
    if task.customer == "moved" && cx.retry_number() == 0 {
        return Err("no answer".into());
    }
    cx.log(format!("a letter to {}", task.customer));
    println!("a letter to {}", task.customer);
    cx.state().stop.stop();
    Ok(())
}

fn engine(tasks: &TaskEngine, app: App) -> Engine<App> {
    let stop = app.stop.clone();
    let nightly = Schedule::cron("debtors", "0 3 * * *").task(&FindDebtors);
    tasks.engine(app).stopped_by(stop).schedule(nightly).handle(find_debtors).handle(remind)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let app = App { debts: vec![("ada", 0), ("bob", 250)], stop: StopHandle::new() };
    let engine = engine(&tasks, app);
    tasks.create(FindDebtors).await?;
    engine.run().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use task_engine::testing::Harness;

    async fn harness(debts: &[(&'static str, i64)]) -> Harness<App> {
        let app = App { debts: debts.to_vec(), stop: StopHandle::new() };
        Harness::new(|tasks| engine(tasks, app)).await
    }

    fn remind(customer: &str) -> Remind {
        Remind { customer: customer.to_owned() }
    }

    /// One handler by itself: its result, and what it created.
    #[tokio::test]
    async fn debtors_are_reminded() {
        let harness = harness(&[("ada", 0), ("bob", 5), ("eve", 9)]).await;
        let done = harness.perform(FindDebtors).await;
        assert_eq!(done.result::<usize>(), Ok(2));
        assert_eq!(harness.assert_created(&remind("eve")).await.priority, 9);
        harness.assert_not_created(&remind("ada")).await;
    }

    /// Failures, as the engine sees them.
    #[tokio::test]
    async fn customer_without_name_is_not_retried() {
        let failed = harness(&[]).await.perform(remind("")).await;
        assert_eq!(failed.error().message, "a customer without a name");
        assert!(!failed.will_be_retried());
    }

    /// Several tasks, in the order of an engine.
    #[tokio::test]
    async fn largest_debt_is_reminded_first() {
        let harness = harness(&[("bob", 5), ("eve", 9)]).await;
        harness.tasks().create(FindDebtors).await.unwrap();
        let drained = harness.drain().await;
        let letters: Vec<_> =
            drained.of::<Remind>().into_iter().flat_map(|one| one.log()).collect();
        assert_eq!(letters, ["a letter to eve", "a letter to bob"]);
    }

    /// Retries, without waiting for them.
    #[tokio::test]
    async fn missing_answer_is_retried() {
        let harness = harness(&[]).await;
        harness.tasks().create(remind("moved")).await.unwrap();
        assert!(harness.drain().await[0].will_be_retried());
        harness.drain_until_quiet().await.assert_all_done();
    }

    /// Schedules, without waiting for the night.
    #[tokio::test]
    async fn debtors_are_found_every_night() {
        let harness = harness(&[("bob", 5)]).await;
        harness.advance(Duration::from_secs(86_400)).await;
        harness.drain().await.assert_all_done();
        assert!(!harness.created::<FindDebtors>().await.is_empty());
        harness.assert_created(&remind("bob")).await;
    }
}
