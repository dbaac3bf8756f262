//! Engines that die while flows run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use task_engine::{RetryOverride, Store, StoreError, TaskError, TaskId, TaskStatus};
use task_engine_core::dependency::{DependencyCondition, Flow};

use crate::commands::{Action, TaskSpec};
use crate::harness::context::TestContext;
use crate::history::History;
use crate::producer::confirm;
use crate::registry::StoreKind;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TASKS: usize = 30;

/// F46: engines are killed right after ends of tasks that others depend on, before these are
/// resolved. Then an operator retries what has failed, while engines are killed again.
pub fn flow_kill_storm(ctx: &mut TestContext) {
    ctx.use_default_store();
    ctx.start(&NAMES);
    let flows = if ctx.soak { 40 } else { 8 };
    let store = ctx.store();
    let mut storm = Storm::default();
    let mut created = 0;
    while created < flows || (storm.killed < 16 && has_open_tasks(ctx, &*store)) {
        created += usize::from(created < flows && create_flow(ctx, &*store, created));
        storm.strike(ctx);
    }
    ctx.settle();
    ctx.note(format!("{} engines killed after an end", storm.killed));
    let (history, broken) = ctx.collect_violations();
    assert!(broken.is_empty(), "{} promises broken: {broken:#?}\n{}", broken.len(), ctx.logs());
    let count = |exception: &str| history.count(exception);
    ctx.note(format!(
        "{} tasks cancelled, {} not needed, {} attempts lost",
        count(TaskError::DEPENDENCY_FAILED),
        count(TaskError::NOT_NEEDED),
        count(TaskError::INSTANCE_LOST)
    ));

    let mut retried = retry_failed(ctx, &*store, &history);
    let mut again = Storm::default();
    while again.killed < 4 && has_open_tasks(ctx, &*store) {
        again.strike(ctx);
    }
    // The loss of an engine fails those that have no retries.
    loop {
        ctx.settle_only();
        let history = ctx.block_on(History::read(&*store)).expect("the history is read");
        match retry_failed(ctx, &*store, &history) {
            0 => break,
            count => retried += count,
        }
    }
    ctx.note(format!("{retried} tasks retried, {} engines killed meanwhile", again.killed));
    ctx.settle_and_check();
}

/// Creates a random flow, unless a killed process keeps the lock of an SQLite file.
fn create_flow(ctx: &mut TestContext, store: &dyn Store, number: usize) -> bool {
    let mut flow = Flow::new().name(format!("flow {number}"));
    for n in 0..TASKS {
        let mut spec = TaskSpec::work(ctx.rng.u64(1..40));
        let task = match ctx.rng.u8(..30) {
            // Only the first attempt fails: a retry by an operator succeeds.
            0..3 => {
                spec.action = Action::Fail;
                spec.attempts = Some(1);
                spec.task().retry(RetryOverride::default().maximum(0))
            }
            3 => {
                spec.action = Action::AbortAfter;
                spec.attempts = Some(1);
                spec.task()
            }
            _ => spec.task(),
        };
        flow = flow.add(n.to_string(), task);
        let mut earlier: Vec<usize> = (n.saturating_sub(8)..n).collect();
        ctx.rng.shuffle(&mut earlier);
        earlier.truncate(if n < 3 { 0 } else { ctx.rng.usize(1..5) });
        for on in earlier {
            let condition = match ctx.rng.u8(..10) {
                0..6 => DependencyCondition::Success,
                6..9 => DependencyCondition::End,
                _ => DependencyCondition::Failure,
            };
            flow = flow.depend(on.to_string(), condition);
        }
    }
    let flow = flow.resolve().expect("a valid flow");
    match ctx.block_on(store.create_flow(&flow)) {
        Ok(created) => {
            confirm(&ctx.path("acks"), &created.ids).expect("a file for what is confirmed");
            true
        }
        Err(StoreError::Unavailable(_)) => false,
        Err(error) => panic!("a flow is created: {error}"),
    }
}

fn has_open_tasks(ctx: &TestContext, store: &dyn Store) -> bool {
    ctx.block_on(store.inventory()).map_or(true, |all| all.waiting + all.running > 0)
}

/// Retries what has failed, as an operator does. What was cancelled because of it is restored.
fn retry_failed(ctx: &mut TestContext, store: &dyn Store, history: &History) -> usize {
    let failed = history.tasks.values().filter(|task| task.status == TaskStatus::Failed);
    let mut failed: Vec<TaskId> = failed.map(|task| TaskId(task.id)).collect();
    ctx.rng.shuffle(&mut failed);
    for some in failed.chunks(5) {
        let retried = loop {
            match ctx.block_on(store.retry(some)) {
                Err(StoreError::Unavailable(_)) => ctx.sleep(Duration::from_millis(50)),
                retried => break retried,
            }
        };
        retried.expect("tasks are retried");
        some.iter().for_each(|id| ctx.requeued(*id));
    }
    failed.len()
}

/// Kills engines between the end of an attempt and what follows from it.
#[derive(Default)]
struct Storm {
    killed: u32,
    /// The attempts whose ends were seen.
    seen: BTreeSet<(i64, i32)>,
}

impl Storm {
    fn strike(&mut self, ctx: &mut TestContext) {
        // PostgreSQL: no blocked task can be resolved for a moment.
        let lock = (ctx.kind == StoreKind::Postgres && ctx.rng.u8(..3) == 0).then(|| {
            let client = ctx.sql();
            let locked =
                "BEGIN; SELECT FROM task_engine.suspended_tasks ORDER BY task_id FOR UPDATE";
            ctx.block_on(client.batch_execute(locked)).expect("rows are locked");
            client
        });
        let begun = Instant::now();
        let victim = loop {
            let witness = ctx.witness();
            let new = witness.attempts.iter().filter(|(key, _)| !self.seen.contains(*key));
            let mut ended = new.filter(|(_, seen)| seen.ended.is_some());
            let process = ended.next_back().map(|(_, seen)| seen.process);
            let ended = witness.attempts.iter().filter(|(_, seen)| seen.ended.is_some());
            self.seen.extend(ended.map(|(key, _)| *key));
            let victim = process.and_then(|process| {
                NAMES.into_iter().find(|name| ctx.engines.process(name) == Some(process))
            });
            if victim.is_some() || begun.elapsed() > Duration::from_millis(800) {
                break victim;
            }
            ctx.sleep(Duration::from_millis(1));
        };
        if let Some(victim) = victim {
            // The record takes a few milliseconds.
            let pause = Duration::from_micros(ctx.rng.u64(..12_000));
            ctx.sleep(pause);
            self.killed += u32::from(ctx.engines.kill(victim));
        }
        drop(lock);
        ctx.sleep_random(0..400);
    }
}
