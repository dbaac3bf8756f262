//! Properties: random histories, against a model so simple that one sees that
//! it is right. Whatever engines, operators and crashes do in whatever order,
//! each task is where the model says, with as many attempts.

use std::time::Duration;

use task_engine_core::task::TaskStatus;

use crate::Database;
use crate::bench::Bench;
use crate::world::World;

/// Histories that are the same every time, so that a change that breaks one is
/// found by everybody.
const FIXED_SEEDS: u64 = 18;
/// Histories that nobody has seen before.
const FRESH_SEEDS: u64 = 4;
const STEPS: usize = 200;
/// Looking at everything is slow, so it is not done after each step.
const STEPS_BETWEEN_LOOKS: usize = 20;
/// Set it to the seed of a failure to see that history again, alone.
const SEED_VARIABLE: &str = "TASK_ENGINE_SEED";

/// Every history leaves each task where the model says.
pub async fn any_history_ends_where_the_model_says(db: &dyn Database) {
    for seed in seeds() {
        let told = SeedOfFailure(seed);
        let mut world = World::begin(Bench::open(db).await, seed).await;
        for step in 1..=STEPS {
            world.step().await;
            if step % STEPS_BETWEEN_LOOKS == 0 {
                world.look().await;
            }
        }
        world.look().await;
        clear(world).await;
        drop(told);
    }
}

/// Brings everything to its end, so that the next history begins with nothing.
async fn clear(mut world: World) {
    world.end_everything().await;
    world.look().await;
    let bench = world.bench;
    for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled] {
        let pruned = bench.store.prune(status, Duration::ZERO, 1_000_000).await;
        pruned.expect("prune");
    }
    assert_eq!(bench.list(None).await, [], "nothing is left");
}

fn seeds() -> Vec<u64> {
    match std::env::var(SEED_VARIABLE) {
        Ok(seed) => vec![seed.parse().expect("a seed is a whole number")],
        Err(_) => (0..FIXED_SEEDS).chain((0..FRESH_SEEDS).map(|_| fastrand::u64(..))).collect(),
    }
}

/// Tells how to see a failure again.
struct SeedOfFailure(u64);

impl Drop for SeedOfFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to see this history again: {SEED_VARIABLE}={}", self.0);
        }
    }
}
