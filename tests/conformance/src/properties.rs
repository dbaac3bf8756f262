//! Random histories compared with a simple model. After any order of engine calls,
//! operations and crashes, each task has the status and the attempts of the model.

use std::time::Duration;

use task_engine_core::task::TaskStatus;

use crate::TestDatabase;
use crate::fixture::Fixture;
use crate::model::ModelCheck;

/// Histories that are the same every time, so that a change that breaks one is
/// found by everybody.
const FIXED_SEEDS: u64 = 18;
/// A new random seed for each run.
const FRESH_SEEDS: u64 = 4;
const STEPS: usize = 200;
/// Looking at everything is slow, so it is not done after each step.
const STEPS_BETWEEN_COMPARISONS: usize = 20;
/// Set this to the seed of a failure to repeat that history.
const SEED_VARIABLE: &str = "TASK_ENGINE_SEED";

/// After every history, each task is in the state of the model.
pub async fn random_histories_match_model(db: &dyn TestDatabase) {
    for seed in seeds() {
        let reporter = SeedReporter(seed);
        let mut model = ModelCheck::begin(Fixture::open(db).await, seed).await;
        for step in 1..=STEPS {
            model.step().await;
            if step % STEPS_BETWEEN_COMPARISONS == 0 {
                model.compare().await;
            }
        }
        model.compare().await;
        clear(model).await;
        drop(reporter);
    }
}

/// Ends and removes all tasks, so that the next history starts empty.
async fn clear(mut model: ModelCheck) {
    model.end_everything().await;
    model.compare().await;
    let fixture = model.fixture;
    for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
        let pruned = fixture.store.prune(status, Duration::ZERO, 1_000_000).await;
        pruned.expect("prune");
    }
    assert_eq!(fixture.list(None).await, [], "nothing is left");
}

fn seeds() -> Vec<u64> {
    match std::env::var(SEED_VARIABLE) {
        Ok(seed) => vec![seed.parse().expect("a seed is a whole number")],
        Err(_) => (0..FIXED_SEEDS).chain((0..FRESH_SEEDS).map(|_| fastrand::u64(..))).collect(),
    }
}

/// Prints the seed of a failure.
struct SeedReporter(u64);

impl Drop for SeedReporter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat this history: {SEED_VARIABLE}={}", self.0);
        }
    }
}
